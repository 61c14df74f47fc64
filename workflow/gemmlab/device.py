"""Which GPU this run is for: one quick question to nvidia-smi when the Snakefile is read, and what follows from it."""

from __future__ import annotations

import dataclasses
import functools
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gemmlab import driver
from gemmlab.errors import GemmlabError
from gemmlab.files import repository_root
from gemmlab.nvidia_smi import query, smi_value
from gemmlab.toolchain import find_nvcc

_FIELDS = ("name", "uuid", "driver_version", "compute_cap", "mig.mode.current")
_CAPABILITY = re.compile(r"\d+\.\d+")


@dataclass(frozen=True)
class Gpu:
    """One card as nvidia-smi names it; what it doesn't say is None."""

    name: str
    uuid: str
    compute_capability: tuple[int, int] | None
    mig: bool = False

    @property
    def slug(self) -> str:
        """The name of its folder under results/; a card cut into MIG slices is another device than the whole."""
        return slug(self.name) + ("-mig" if self.mig else "")

    @property
    def architecture(self) -> str | None:
        """What is compiled for it, such as sm_90."""
        return "sm_{}{}".format(*self.compute_capability) if self.compute_capability else None


@dataclass(frozen=True)
class Device:
    """The cards that this process may use, in nvidia-smi's order, and their driver."""

    gpus: tuple[Gpu, ...]
    driver_version: str | None
    driver_cuda: tuple[int, int] | None


@dataclass(frozen=True)
class Target:
    """What a run is for: its results folder, the architecture compiled for, and whether the GPU stages run.

    `toolkit` is the release of the nvcc that compiles, None where there is none.
    `gpu` and `driver` are None unless the configuration left it to the probe (`device: auto`): a named device has to
    give the same parameters on a login node as beside the card.
    """

    slug: str
    architecture: str
    has_gpu: bool
    gpu: str | None = None
    driver: str | None = None
    toolkit: str | None = None

    @property
    def fingerprint(self) -> dict[str, str | None]:
        """Parameters of the GPU rules: another card, driver series or compiler reruns them, nothing else here does."""
        return {"device": self.slug, "gpu": self.gpu, "driver": self.driver, "toolkit": self.toolkit}


def slug(name: str) -> str:
    """A GPU's name as a folder's: `NVIDIA H200` gives `nvidia-h200`."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def probe() -> Device | None:
    """The GPUs of this machine, or None; asked once a process. `probe_failure` says why there is none."""
    answer = _probe()
    return answer if isinstance(answer, Device) else None


def probe_failure() -> str | None:
    """Why `probe` found no GPU, or None if it found one."""
    answer = _probe()
    return None if isinstance(answer, Device) else answer


@functools.cache
def _probe() -> Device | str:
    rows = query(_FIELDS)
    if isinstance(rows, str):
        return rows
    gpus = visible_gpus(tuple(map(gpu_of, rows)), os.environ.get("CUDA_VISIBLE_DEVICES"))
    if not gpus:
        return f"CUDA_VISIBLE_DEVICES is {os.environ['CUDA_VISIBLE_DEVICES']!r} and hides every GPU"
    version = smi_value(rows[0].get("driver_version"))
    return Device(tuple(map(_with_capability, gpus)), version, driver.cuda_version())


def gpu_of(row: Mapping[str, str]) -> Gpu:
    """A card from its row of nvidia-smi's answer to the probe."""
    return Gpu(
        name=smi_value(row.get("name")) or "unnamed GPU",
        uuid=row["uuid"],
        compute_capability=parse_capability(smi_value(row.get("compute_cap"))),
        mig=row.get("mig.mode.current") == "Enabled",
    )


def parse_capability(text: str | None) -> tuple[int, int] | None:
    """`9.0` as (9, 0); None for anything else, so that no message of nvidia-smi becomes an architecture."""
    if text is None or not _CAPABILITY.fullmatch(text):
        return None
    major, minor = text.split(".")
    return int(major), int(minor)


def visible_gpus(gpus: tuple[Gpu, ...], variable: str | None) -> tuple[Gpu, ...]:
    """Those of `gpus` that CUDA_VISIBLE_DEVICES leaves, in its order: numbers or UUIDs, up to the first unknown one.

    A MIG slice's UUID can't be told from here and leaves all cards.
    """
    if variable is None or "MIG" in variable:
        return gpus
    chosen: list[Gpu] = []
    for entry in filter(None, variable.replace(" ", "").split(",")):
        if entry.isdigit():
            found = gpus[int(entry) : int(entry) + 1]
        else:
            found = tuple(gpu for gpu in gpus if entry.startswith("GPU-") and gpu.uuid.startswith(entry))[:1]
        if not found:
            break
        chosen += found
    return tuple(chosen)


def _with_capability(gpu: Gpu) -> Gpu:
    if gpu.compute_capability is not None:
        return gpu
    return dataclasses.replace(gpu, compute_capability=driver.compute_capability(gpu.uuid))


def resolve(config: Mapping[str, Any]) -> Target:
    """What the configuration's `device`, `architecture` and `nvcc` mean on this machine.

    `none` is the emulator; a slug is that device, whether or not it is here; `auto` is the first GPU found, or the
    emulator where there is none.

    Raises:
        GemmlabError: there is a GPU, but nothing tells its compute capability.
    """
    choice, architecture = config["device"], config["architecture"]
    device = probe() if choice != "none" else None
    toolkit = _toolkit(config["nvcc"], device)
    if choice == "none" or (choice == "auto" and device is None):
        return Target(f"emulator-{architecture}", architecture, has_gpu=False, toolkit=toolkit)
    if choice != "auto":
        here = next((gpu for gpu in device.gpus if gpu.slug == choice), None) if device else None
        return Target(choice, (here and here.architecture) or architecture, has_gpu=True, toolkit=toolkit)
    gpu = device.gpus[0]
    if gpu.architecture is None:
        raise GemmlabError(
            f"device: auto found {gpu.name}, but neither nvidia-smi nor the driver tells its compute capability. "
            f"In config/config.yaml name both, such as device: {gpu.slug} and architecture: sm_90, or say device: none."
        )
    series = device.driver_version.split(".")[0] if device.driver_version else None
    return Target(gpu.slug, gpu.architecture, has_gpu=True, gpu=gpu.name, driver=series, toolkit=toolkit)


def absent_device(choice: str, published: Path | None = None) -> str | None:
    """What to tell a user who named a GPU that isn't here, or None where the name fits or none was given.

    No error: on a login node it is meant, and the jobs run elsewhere.

    Args:
        choice: the configuration's `device`.
        published: the folder of recorded runs, whose names are known too; results/published if left out.
    """
    if choice in ("auto", "none"):
        return None
    found = probe()
    here = list(dict.fromkeys(gpu.slug for gpu in found.gpus)) if found else []
    if choice in here:
        return None
    folder = published or repository_root() / "results" / "published"
    known = dict.fromkeys(
        ["auto", "none", *here, *sorted(path.parent.name for path in folder.glob("*/manifest.json"))]
    )
    present = f"the GPU here is {', '.join(here)}" if here else f"there is no GPU here ({probe_failure()})"
    return (
        f"device is {choice}, but {present}; known are {', '.join(known)}. Where the jobs run here too, "
        f"{'they measure that GPU under this name' if here else 'they measure nothing'}."
    )


def _toolkit(choice: str, device: Device | None) -> str | None:
    try:
        nvcc = find_nvcc(choice, driver_cuda=device.driver_cuda if device else None)
    except GemmlabError:
        return None  # the compile stage says it, with the cure; a Snakefile has to stay readable without
    return ".".join(map(str, nvcc.release))

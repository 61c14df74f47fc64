"""Where nvcc, ptxas, nvdisasm, ncu, compute-sanitizer and nvidia-smi are."""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from gemmlab.errors import GemmlabError
from gemmlab.process import run_process

TOOLKIT_FOLDERS = (Path("/usr/local/cuda"), Path("/opt/cuda"))
_WSL_FOLDER = Path("/usr/lib/wsl/lib")
_NSIGHT_COMPUTE_FOLDER = Path("/opt/nvidia/nsight-compute")
_TIMEOUT_S = 20


@dataclass(frozen=True)
class Nvcc:
    """A CUDA compiler that answered `--version`; `origin` is the kind of place where it was found."""

    path: Path
    release: tuple[int, int]
    build: str
    origin: str

    def __str__(self) -> str:
        return f"{self.release[0]}.{self.release[1]}, {self.build}"


def wheel_folder() -> Path | None:
    """The folder of CUDA programs that the lock's wheels bring (nvidia/cu13/bin in site-packages), or None."""
    # The import system is asked for the namespace package because site-packages may be anywhere on sys.path.
    spec = importlib.util.find_spec("nvidia")
    for folder in spec.submodule_search_locations or [] if spec else []:
        for candidate in sorted(Path(folder).glob("cu*/bin"), reverse=True):
            if (candidate / "nvcc").is_file() or (candidate / "nvdisasm").is_file():
                return candidate
    return None


def _nvcc_places(environment: Mapping[str, str]) -> Iterator[tuple[str, Path | None]]:
    """Where an nvcc may be, best first: what the place is called, and the path (None: nothing there to look at)."""
    homes = [entry for entry in environment.get("CUDA_HOME", "").split(":") if entry]
    for home in homes:
        yield "CUDA_HOME", Path(home) / "bin" / "nvcc"
    if not homes:
        yield "CUDA_HOME", None
    found = shutil.which("nvcc", path=environment.get("PATH", ""))
    yield "PATH", Path(found) if found else None
    for folder in TOOLKIT_FOLDERS:
        yield "toolkit folder", folder / "bin" / "nvcc"
    wheel = wheel_folder()
    yield "the lock's wheel", wheel / "nvcc" if wheel else None


def find_nvcc(
    choice: str = "auto",
    *,
    driver_cuda: tuple[int, int] | None = None,
    environment: Mapping[str, str] | None = None,
) -> Nvcc:
    """The nvcc to compile with.

    Args:
        choice: `auto` (CUDA_HOME, PATH, the usual toolkit folder, the lock's wheel), `wheel`, or a path.
        driver_cuda: the CUDA that the driver supports. `auto` then passes over an nvcc of a later major release,
            whose cubins this driver can't load, if another is found; if there is none, the first is returned after
            all, because the emulator needs its PTX.
        environment: variables to look in; this process's own if left out.

    Raises:
        GemmlabError: there is none; the message says what was looked for where.
    """
    environment = os.environ if environment is None else environment
    if choice == "wheel":
        wheel = wheel_folder()
        places: list[tuple[str, Path | None]] = [("the lock's wheel", wheel / "nvcc" if wheel else None)]
    elif choice == "auto":
        places = list(_nvcc_places(environment))
    else:
        places = [("the configuration", Path(choice))]
    tried: list[str] = []
    too_new: Nvcc | None = None
    for place, path in places:
        if path is None or not path.is_file():
            tried.append(f"{place}: not there" if path is None else f"{place}: no {path}")
            continue
        nvcc = _ask_nvcc(path, place)
        if isinstance(nvcc, str):
            tried.append(f"{place}: {nvcc}")
        elif choice == "auto" and not loads_on(nvcc, driver_cuda):
            too_new = too_new or nvcc
        else:
            return nvcc
    if too_new:
        return too_new
    raise GemmlabError(
        f"no nvcc with nvcc: {choice}. Looked for nvcc in: {'; '.join(tried)}. "
        "Cure: pip install -r requirements.lock (brings one), or name yours: nvcc: /path/to/nvcc in config/config.yaml."
    )


def loads_on(nvcc: Nvcc, driver_cuda: tuple[int, int] | None) -> bool:
    """Whether a driver that supports `driver_cuda` can load cubins of `nvcc`; without a driver every nvcc will do.

    Within a major release it can, whatever the minor ("CUDA minor version compatibility" in NVIDIA's CUDA
    Compatibility guide; it holds for cubins, not for PTX, and we never leave PTX to the driver).
    """
    return driver_cuda is None or nvcc.release[0] <= driver_cuda[0]


def driver_verdict(nvcc: Nvcc, driver_version: str | None, driver_cuda: tuple[int, int] | None) -> str:
    """In one sentence whether the driver loads what `nvcc` compiles."""
    release = "{}.{}".format(*nvcc.release)
    if driver_cuda is None:
        return f"no driver: kernels of nvcc {release} run on the emulator alone"
    name = f"driver {driver_version or '(version unknown)'}, which supports CUDA {driver_cuda[0]}.{driver_cuda[1]},"
    if loads_on(nvcc, driver_cuda):
        return f"{name} loads cubins of nvcc {release}"
    return f"{name} can't load cubins of nvcc {release}; they run on the emulator alone"


@functools.cache
def _ask_nvcc(path: Path, place: str) -> Nvcc | str:
    completed = run_process([path, "--version"], timeout_s=_TIMEOUT_S)
    if completed.returncode != 0:
        return f"{path} --version ended with status {completed.returncode} ({_first_line(completed.output)})"
    return parse_nvcc_version(completed.stdout, path, place) or f"{path} --version names no release"


def parse_nvcc_version(text: str, path: Path, origin: str) -> Nvcc | None:
    """An `Nvcc` from what `nvcc --version` printed, or None if that names no release."""
    release = re.search(r"release (\d+)\.(\d+)(?:, (V[\d.]+))?", text)
    if not release:
        return None
    build = re.search(r"^Build (\S+)", text, re.MULTILINE)
    parts = [release[3], build[1] if build else None]
    return Nvcc(path, (int(release[1]), int(release[2])), ", ".join(filter(None, parts)), origin)


@functools.cache
def toolkit_binaries(nvcc: Nvcc) -> Path:
    """The folder where nvcc itself takes its programs from, also when `nvcc.path` is a shell wrapper or a link."""
    completed = run_process([nvcc.path, "--dryrun", "-ptx", "none.cu"], timeout_s=_TIMEOUT_S)
    here = re.search(r"^#\$ _HERE_=(.+)$", completed.output, re.MULTILINE)
    return Path(here[1].strip()) if here else nvcc.path.resolve().parent


def find_ptxas(nvcc: Nvcc) -> Path:
    """The ptxas of the same toolkit as `nvcc`.

    Raises:
        GemmlabError: there is none.
    """
    for folder in (toolkit_binaries(nvcc), nvcc.path.parent):
        if (folder / "ptxas").is_file():
            return folder / "ptxas"
    raise GemmlabError(
        f"no ptxas in {toolkit_binaries(nvcc)} or beside {nvcc.path}. Cure: nvcc: wheel in config/config.yaml."
    )


@functools.cache
def supported_architectures(nvcc: Nvcc) -> tuple[str, ...]:
    """The architectures that `nvcc` compiles for (sm_75, sm_80, ...), by number.

    Raises:
        GemmlabError: nvcc doesn't list them.
    """
    completed = run_process([nvcc.path, "--list-gpu-code"], timeout_s=_TIMEOUT_S)
    names = re.findall(r"^sm_\d+$", completed.stdout, re.MULTILINE)
    if completed.returncode != 0 or not names:
        raise GemmlabError(
            f"{nvcc.path} --list-gpu-code ended with status {completed.returncode} and lists no architecture "
            f"({_first_line(completed.output)}). Cure: nvcc: wheel in config/config.yaml."
        )
    return tuple(sorted(names, key=lambda name: int(name.removeprefix("sm_"))))


def _find(name: str, folders: list[Path]) -> Path | None:
    found = shutil.which(name)
    if found:
        return Path(found)
    return next((folder / name for folder in folders if (folder / name).is_file()), None)


def find_nvdisasm(nvcc: Nvcc | None = None) -> Path | None:
    """nvdisasm on PATH, in nvcc's toolkit or in the lock's wheel; None if there is none."""
    folders = [toolkit_binaries(nvcc)] if nvcc else []
    wheel = wheel_folder()
    return _find("nvdisasm", [*folders, *([wheel] if wheel else [])])


def find_ncu() -> Path | None:
    """Nsight Compute's command line on PATH, in the usual toolkit folder or in its own; None if there is none."""
    own = sorted(_NSIGHT_COMPUTE_FOLDER.glob("*/"), reverse=True) if _NSIGHT_COMPUTE_FOLDER.is_dir() else []
    return _find("ncu", [*(folder / "bin" for folder in TOOLKIT_FOLDERS), *own])


def find_compute_sanitizer() -> Path | None:
    """compute-sanitizer on PATH or in the usual toolkit folder; None if there is none."""
    folders = [folder / part for folder in TOOLKIT_FOLDERS for part in ("bin", "compute-sanitizer")]
    return _find("compute-sanitizer", folders)


def find_nvidia_smi() -> Path | None:
    """nvidia-smi on PATH or where WSL2 keeps it; None if there is none."""
    return _find("nvidia-smi", [_WSL_FOLDER])


def _first_line(text: str) -> str:
    return text.strip().splitlines()[0] if text.strip() else "no output"

"""`gemmlab doctor`: what this machine has, what it lacks, what that costs, and the cure as a command."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import textwrap
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from gemmlab import device, driver
from gemmlab.config import load_config
from gemmlab.device import Gpu
from gemmlab.errors import GemmlabError
from gemmlab.files import repository_root
from gemmlab.packages import GPU_LOCK, LOCK, cupy_packages, installed_packages, read_lock
from gemmlab.process import run_process
from gemmlab.toolchain import (
    Nvcc,
    driver_verdict,
    find_compute_sanitizer,
    find_ncu,
    find_nvcc,
    find_nvdisasm,
    loads_on,
    supported_architectures,
)

OK = "ok"
MISSING = "missing"
WRONG = "wrong"

_LEAST_DISK_BYTES = 500_000_000
_COUNTERS_FILE = Path("/proc/driver/nvidia/params")
_WIDTH = 110
_PIP = f"{sys.executable} -m pip"
_INSTALL = f"{_PIP} install --no-deps --require-hashes -r {LOCK}"
_INSTALL_GPU = f"{_PIP} install --no-deps --require-hashes -r {GPU_LOCK}"

# Run in a child, because a broken CuPy or NVML may take its process down with it.
_CUPY_QUESTION = """
import json, re
import cupy
from cupy.cuda import device, runtime
answer = {"cupy": cupy.__version__, "runtime": runtime.runtimeGetVersion()}
from cupy_backends.cuda.libs import cublas
answer["cublas"] = cublas.getVersion(device.get_cublas_handle())
maps = open("/proc/self/maps").read()
answer["loaded"] = sorted({int(major) for major in re.findall(r"libcublas\\.so\\.(\\d+)", maps)})
print(json.dumps(answer))
"""
_NVML_QUESTION = "import pynvml; pynvml.nvmlInit(); print(pynvml.nvmlSystemGetDriverVersion())"
_CHILD_TIMEOUT_S = 120


@dataclass(frozen=True)
class CupyAnswer:
    """What CuPy said when it was asked for a cuBLAS handle: versions as CUDA numbers them, or the error."""

    version: str | None = None
    runtime: int | None = None
    cublas: int | None = None
    loaded_cublas: tuple[int, ...] = ()
    error: str | None = None


@dataclass(frozen=True)
class Facts:
    """What the doctor judges; `gather` fills it from this machine and tests fill it as they like."""

    system: str = "Linux"
    python: tuple[int, int, int] = (3, 11, 0)
    requires_python: str = ">=3.11"
    requirements: Mapping[str, str] = field(default_factory=dict)
    locked: Mapping[str, str] = field(default_factory=dict)
    installed: Mapping[str, str] = field(default_factory=dict)
    config_error: str | None = None
    gxx: str | None = None
    nvcc: Nvcc | None = None
    nvcc_error: str | None = None
    passed_over: Nvcc | None = None
    architectures: tuple[str, ...] = ()
    architecture: str = "sm_90"
    driver_version: str | None = None
    driver_cuda: tuple[int, int] | None = None
    gpus: tuple[Gpu, ...] = ()
    gpu_failure: str | None = None
    cupy: CupyAnswer | None = None
    nvml_error: str | None = None
    ncu: bool = False
    counters_for_root_only: bool = False
    is_root: bool = False
    compute_sanitizer: bool = False
    nvdisasm: bool = False
    free_bytes: int = 0


@dataclass(frozen=True)
class Item:
    """A line of the doctor's table; `wrong` is what the exit status tells."""

    name: str
    state: str
    finding: str
    cost: str = ""
    cures: tuple[str, ...] = ()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The doctor takes no options."""


def run(options: argparse.Namespace) -> int:
    """Print the table; returns 1 if something is wrong, 0 if nothing is (something optional may be missing)."""
    items = examine(gather())
    print(render(items))
    return 1 if any(item.state == WRONG for item in items) else 0


def examine(facts: Facts) -> list[Item]:
    """Every item of the table, judged from `facts` alone."""
    return [
        _python(facts),
        _packages(facts),
        _configuration(facts),
        _gxx(facts),
        _nvcc(facts),
        _nvdisasm(facts),
        _gpu(facts),
        _driver(facts),
        _architecture(facts),
        _cupy(facts),
        _cublas(facts),
        _nvml(facts),
        _ncu(facts),
        _compute_sanitizer(facts),
        _disk(facts),
    ]


def _python(facts: Facts) -> Item:
    version = ".".join(map(str, facts.python))
    if facts.system != "Linux":
        return Item(
            "Python", WRONG, f"{version} on {facts.system}", "gemmlab runs on Linux", ("use Linux or WSL2",)
        )
    if version not in SpecifierSet(facts.requires_python):
        cure = "make clean setup PYTHON=python3.12"
        return Item(
            "Python",
            WRONG,
            f"{version}, needed is {facts.requires_python}",
            "packages don't install",
            (cure,),
        )
    return Item("Python", OK, version)


def _packages(facts: Facts) -> Item:
    absent, unfit, other = [], [], []
    for name, specifier in facts.requirements.items():
        version = facts.installed.get(name)
        if version is None:
            absent.append(name)
        elif version not in SpecifierSet(specifier, prereleases=True):
            unfit.append(f"{name} {version} (needed: {specifier})")
    for name, version in facts.locked.items():
        if name in facts.installed and facts.installed[name] != version:
            other.append(f"{name} {facts.installed[name]} (lock: {version})")
    if absent or unfit:
        finding = "; ".join(filter(None, [f"lacks {', '.join(absent)}" if absent else "", ", ".join(unfit)]))
        return Item("packages", WRONG, finding, "stages fail at import", (_INSTALL,))
    if other:
        shown = ", ".join(other[:5]) + (f" and {len(other) - 5} more" if len(other) > 5 else "")
        return Item("packages", OK, f"differ from {LOCK}: {shown}")
    return Item("packages", OK, f"as in {LOCK}")


def _configuration(facts: Facts) -> Item:
    if facts.config_error:
        return Item("configuration", WRONG, facts.config_error, "no stage runs", ("edit config/config.yaml",))
    return Item("configuration", OK, "config/config.yaml is valid")


def _gxx(facts: Facts) -> Item:
    if facts.gxx is None:
        cost = "nvcc compiles nothing and the emulator can't be built"
        return Item("g++", WRONG, "not on PATH", cost, ("sudo apt-get install g++",))
    return Item("g++", OK, facts.gxx)


def _nvcc(facts: Facts) -> Item:
    if facts.nvcc is None:
        return Item("nvcc", WRONG, facts.nvcc_error or "none", "no kernel can be compiled", (_INSTALL,))
    finding = f"{facts.nvcc} ({facts.nvcc.origin}: {facts.nvcc.path})"
    if facts.passed_over:
        finding += f"; passed over {facts.passed_over.path}, whose {_release(facts.passed_over)} the driver can't load"
    return Item("nvcc", OK, finding)


def _nvdisasm(facts: Facts) -> Item:
    if not facts.nvdisasm:
        return Item("nvdisasm", MISSING, "not found", "no instruction mix in the report", (_INSTALL,))
    return Item("nvdisasm", OK, "found")


def _gpu(facts: Facts) -> Item:
    if facts.gpus:
        return Item("GPU", OK, ", ".join(gpu.name for gpu in facts.gpus))
    cost = "speeds are unavailable; kernels run on the emulator"
    failure = facts.gpu_failure or "none found"
    if "mismatch" in failure:
        return Item("GPU", WRONG, failure, cost, ("sudo reboot",))
    return Item(
        "GPU", MISSING, failure, cost, ("run on a machine with an NVIDIA GPU and driver 525 or later",)
    )


def _driver(facts: Facts) -> Item:
    if facts.driver_cuda is None:
        return Item("driver", MISSING, "no CUDA driver library (libcuda.so.1)", "as for the GPU")
    if facts.nvcc is None:
        return Item("driver", OK, f"{facts.driver_version}, supports CUDA {_dotted(facts.driver_cuda)}")
    verdict = driver_verdict(facts.nvcc, facts.driver_version, facts.driver_cuda)
    if loads_on(facts.nvcc, facts.driver_cuda):
        return Item("driver", OK, verdict)
    major = facts.driver_cuda[0]
    cures = (
        f"install a driver that supports CUDA {_release(facts.nvcc)}",
        f"or, with a toolkit of CUDA {major}: snakemake --cores all --config nvcc=/usr/local/cuda-{major}/bin/nvcc",
    )
    return Item("driver", WRONG, verdict, "nothing is checked, timed or profiled on the GPU", cures)


def _architecture(facts: Facts) -> Item:
    gpu = facts.gpus[0] if facts.gpus else None
    wanted = gpu.architecture if gpu else facts.architecture
    whose = f"the {gpu.name}" if gpu else "the configuration"
    if wanted is None:
        finding = f"neither nvidia-smi nor the driver tells the compute capability of {whose}"
        cure = f"snakemake --cores all --config device={gpu.slug} architecture=sm_90"
        return Item("architecture", WRONG, finding, "no kernel can be compiled for it", (cure,))
    if facts.architectures and wanted not in facts.architectures:
        finding = f"{wanted} of {whose} is none of nvcc's: {', '.join(facts.architectures)}"
        older = int(wanted.removeprefix("sm_")) < int(facts.architectures[0].removeprefix("sm_"))
        cure = f"snakemake --cores all --config nvcc=PATH with an nvcc of {'an earlier' if older else 'a later'} CUDA"
        return Item("architecture", WRONG, finding, "there would be no kernel image for it", (cure,))
    return Item("architecture", OK, f"{wanted}, of {whose}")


def _cupy(facts: Facts) -> Item:
    wheels = cupy_packages(dict(facts.installed))
    if len(wheels) > 1:
        named = " and ".join(f"{name} {version}" for name, version in wheels.items())
        cures = (f"{_PIP} uninstall -y {' '.join(wheels)}", _INSTALL_GPU)
        return Item(
            "CuPy", WRONG, f"{named} overwrite each other's files", "imports fail or mix versions", cures
        )
    if not wheels:
        cost = "the GPU can't be used" if facts.gpus else "nothing here, since there is no GPU"
        return Item("CuPy", MISSING, "not installed", cost, (_INSTALL_GPU,))
    name, version = next(iter(wheels.items()))
    cuda = _cupy_cuda(name)
    if cuda and facts.driver_cuda and cuda > facts.driver_cuda[0]:
        finding = f"{name} {version} needs CUDA {cuda}, the driver supports {_dotted(facts.driver_cuda)}"
        cures = (f"{_PIP} uninstall -y {name}", _INSTALL_GPU)
        return Item("CuPy", WRONG, finding, "the GPU can't be used", cures)
    if facts.cupy and facts.cupy.error:
        cures = (f"{_PIP} uninstall -y {name}", _INSTALL_GPU)
        return Item("CuPy", WRONG, f"{name} {version}: {facts.cupy.error}", "the GPU can't be used", cures)
    return Item("CuPy", OK, f"{name} {version}")


def _cublas(facts: Facts) -> Item:
    answer = facts.cupy
    if answer is None or answer.cublas is None or answer.runtime is None:
        return Item("cuBLAS", MISSING, "not asked: it needs a GPU and a working CuPy", "no baseline", ())
    # CUDA writes 12.9 as 12090, cuBLAS 12.9.1 as 120901.
    wanted, found = answer.runtime // 1000, answer.cublas // 10000
    others = [major for major in answer.loaded_cublas if major != wanted]
    if found != wanted or others:
        loaded = ", ".join(f"libcublas.so.{major}" for major in answer.loaded_cublas) or f"cuBLAS {found}"
        finding = f"loaded is {loaded}, CuPy is for CUDA {wanted}"
        cures = ("unset LD_LIBRARY_PATH LD_PRELOAD", _INSTALL_GPU)
        return Item("cuBLAS", WRONG, finding, "the baseline is another library than the record says", cures)
    return Item("cuBLAS", OK, f"libcublas.so.{found}, version {answer.cublas}")


def _nvml(facts: Facts) -> Item:
    cost = "no clocks, power and throttle flags beside the timings"
    if "nvidia-ml-py" not in facts.installed:
        return Item("NVML", MISSING, "nvidia-ml-py is not installed", cost, (_INSTALL_GPU,))
    if not facts.gpus:
        return Item("NVML", MISSING, "not asked: there is no GPU", cost)
    if facts.nvml_error:
        return Item("NVML", WRONG, facts.nvml_error, cost, ("nvidia-smi",))
    return Item("NVML", OK, f"nvidia-ml-py {facts.installed['nvidia-ml-py']}")


def _ncu(facts: Facts) -> Item:
    if not facts.ncu:
        cure = "install NVIDIA Nsight Compute (it comes with the CUDA toolkit) and put ncu on PATH"
        return Item(
            "ncu", MISSING, "not found", "no hardware counters; the report shows the emulator's", (cure,)
        )
    if facts.counters_for_root_only and not facts.is_root:
        option = "options nvidia NVreg_RestrictProfilingToAdminUsers=0"
        cures = (f"echo {option} | sudo tee /etc/modprobe.d/nvidia-profiling.conf && sudo reboot",)
        finding = "found; this driver keeps counters for administrators and may refuse"
        return Item("ncu", MISSING, finding, "profiles may be unavailable: counter permission", cures)
    return Item("ncu", OK, "found")


def _compute_sanitizer(facts: Facts) -> Item:
    if not facts.compute_sanitizer:
        cure = "install the CUDA toolkit's compute-sanitizer and put it on PATH"
        cost = "races of broken kernels are found by the emulator alone"
        return Item("compute-sanitizer", MISSING, "not found", cost, (cure,))
    return Item("compute-sanitizer", OK, "found")


def _disk(facts: Facts) -> Item:
    free = f"{facts.free_bytes / 1e9:.1f} GB free"
    if facts.free_bytes < _LEAST_DISK_BYTES:
        finding = f"{free}, needed are {_LEAST_DISK_BYTES / 1e9:.1f} GB"
        return Item("disk", WRONG, finding, "results can't be written", ("make clean",))
    return Item("disk", OK, free)


def render(items: Iterable[Item]) -> str:
    """The table as text: a line for each item, and under it what its absence costs and the cure."""
    lines = []
    for item in items:
        lines += _wrapped(f"{item.name:<18} {item.state:<8} ", item.finding)
        if item.state != OK:
            lines += _wrapped(" " * 28 + "costs: ", item.cost) if item.cost else []
            for cure in item.cures:
                lines.append(" " * 28 + "cure:  " + cure)
    return "\n".join(lines)


def _wrapped(head: str, text: str) -> list[str]:
    return textwrap.wrap(
        head + " ".join(text.split()),
        width=_WIDTH,
        subsequent_indent=" " * len(head),
        break_long_words=False,
        break_on_hyphens=False,
        drop_whitespace=True,
    )


def gather() -> Facts:
    """The facts of this machine."""
    root = repository_root()
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    installed = installed_packages()
    choice, architecture, config_error = "auto", "sm_90", None
    try:
        config = load_config()
        choice, architecture = config["nvcc"], config["architecture"]
    except GemmlabError as error:
        config_error = str(error)
    cuda = driver.cuda_version()
    nvcc, nvcc_error, passed_over = _gather_nvcc(choice, cuda)
    found = device.probe()
    gpus = found.gpus if found else ()
    return Facts(
        system=os.uname().sysname,
        python=sys.version_info[:3],
        requires_python=project["requires-python"],
        requirements=_requirements(project["dependencies"]),
        locked=read_lock(root / LOCK),
        installed=installed,
        config_error=config_error,
        gxx=_gxx_version(),
        nvcc=nvcc,
        nvcc_error=nvcc_error,
        passed_over=passed_over,
        architectures=supported_architectures(nvcc) if nvcc else (),
        architecture=architecture,
        driver_version=found.driver_version if found else None,
        driver_cuda=cuda,
        gpus=gpus,
        gpu_failure=device.probe_failure(),
        cupy=_ask_cupy() if gpus and len(cupy_packages(installed)) == 1 else None,
        nvml_error=_ask_nvml() if gpus and "nvidia-ml-py" in installed else None,
        ncu=find_ncu() is not None,
        counters_for_root_only=_counters_for_root_only(),
        is_root=os.geteuid() == 0,
        compute_sanitizer=find_compute_sanitizer() is not None,
        nvdisasm=find_nvdisasm(nvcc) is not None,
        free_bytes=shutil.disk_usage(root).free,
    )


def _requirements(dependencies: Iterable[str]) -> dict[str, str]:
    """Version specifier by name of the Python packages; nvcc and nvdisasm have items of their own."""
    requirements = map(Requirement, dependencies)
    return {
        canonicalize_name(requirement.name): str(requirement.specifier)
        for requirement in requirements
        if not requirement.name.startswith(("cuda-toolkit", "nvidia-"))
        and (requirement.marker is None or requirement.marker.evaluate())
    }


def _gather_nvcc(choice: str, cuda: tuple[int, int] | None) -> tuple[Nvcc | None, str | None, Nvcc | None]:
    try:
        nvcc = find_nvcc(choice, driver_cuda=cuda)
        first = find_nvcc(choice)
    except GemmlabError as error:
        return None, str(error), None
    return nvcc, None, first if first != nvcc else None


def _gxx_version() -> str | None:
    completed = run_process(["g++", "-dumpfullversion"], timeout_s=20)
    return completed.stdout.strip() or None if completed.returncode == 0 else None


def _ask_cupy() -> CupyAnswer:
    completed = run_process([sys.executable, "-c", _CUPY_QUESTION], timeout_s=_CHILD_TIMEOUT_S)
    if completed.returncode != 0:
        lines = completed.stderr.strip().splitlines() or ["no answer"]
        return CupyAnswer(error=lines[-1])
    answer = json.loads(completed.stdout)
    return CupyAnswer(answer["cupy"], answer["runtime"], answer["cublas"], tuple(answer["loaded"]))


def _ask_nvml() -> str | None:
    completed = run_process([sys.executable, "-c", _NVML_QUESTION], timeout_s=_CHILD_TIMEOUT_S)
    lines = completed.stderr.strip().splitlines() or ["no answer"]
    return None if completed.returncode == 0 else lines[-1]


def _counters_for_root_only() -> bool:
    try:
        return "RmProfilingAdminOnly: 1" in _COUNTERS_FILE.read_text()
    except OSError:
        return False


def _cupy_cuda(name: str) -> int | None:
    digits = name.removeprefix("cupy-cuda").removesuffix("x")
    return int(digits) if digits.isdigit() else None


def _release(nvcc: Nvcc) -> str:
    return _dotted(nvcc.release)


def _dotted(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"

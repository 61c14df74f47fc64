"""Record this machine: what a reader needs to judge or repeat a measurement, and nothing that names its owner.

Whatever can't be had is null, and `missing` says why under the key's path. No host name, user, serial number, path or
process is recorded, because the record is published.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from gemmlab import device, driver
from gemmlab.config import load_config
from gemmlab.errors import GemmlabError
from gemmlab.files import git_head, repository_root, sha256_of, write_json
from gemmlab.nvidia_smi import query, smi_value
from gemmlab.packages import GPU_LOCK, LOCK, cupy_packages, installed_packages, read_lock
from gemmlab.process import run_process
from gemmlab.schema import validate
from gemmlab.toolchain import (
    Nvcc,
    driver_verdict,
    find_compute_sanitizer,
    find_ncu,
    find_nvcc,
    find_nvdisasm,
)

_TIMEOUT_S = 30
VARIABLES = (
    "CUBLAS_WORKSPACE_CONFIG",
    "CUDA_DEVICE_MAX_CONNECTIONS",
    "CUDA_DEVICE_ORDER",
    "CUDA_FORCE_PTX_JIT",
    "CUDA_LAUNCH_BLOCKING",
    "CUDA_MODULE_LOADING",
    "CUDA_VISIBLE_DEVICES",
    "CUPY_ACCELERATORS",
    "CUPY_TF32",
    "NVIDIA_TF32_OVERRIDE",
    "OMP_NUM_THREADS",
)
# Key of the record: nvidia-smi's field and the type of its value.
_SETTINGS: dict[str, tuple[str, type]] = {
    "vbios": ("vbios_version", str),
    "memory_total_mib": ("memory.total", int),
    "ecc": ("ecc.mode.current", str),
    "mig": ("mig.mode.current", str),
    "persistence_mode": ("persistence_mode", str),
    "compute_mode": ("compute_mode", str),
    "pcie_generation_max": ("pcie.link.gen.max", int),
    "pcie_width_max": ("pcie.link.width.max", int),
    "power_limit_w": ("power.limit", float),
    "power_limit_default_w": ("power.default_limit", float),
    "power_limit_max_w": ("power.max_limit", float),
    "sm_clock_max_mhz": ("clocks.max.sm", int),
    "memory_clock_max_mhz": ("clocks.max.memory", int),
    "sm_clock_application_mhz": ("clocks.applications.graphics", int),
    "memory_clock_application_mhz": ("clocks.applications.memory", int),
}
_STATE: dict[str, tuple[str, type]] = {
    "sm_clock_mhz": ("clocks.sm", int),
    "memory_clock_mhz": ("clocks.mem", int),
    "temperature_c": ("temperature.gpu", int),
    "memory_temperature_c": ("temperature.memory", int),
    "power_w": ("power.draw", float),
    "utilization_percent": ("utilization.gpu", int),
    "memory_used_mib": ("memory.used", int),
    "performance_state": ("pstate", str),
    "throttle_reasons": ("clocks_throttle_reasons.active", str),
    "ecc_uncorrected_errors": ("ecc.errors.uncorrected.volatile.total", int),
}
# What changes from one minute to the next and so doesn't belong to the record's id.
_NOT_IN_ID = ("id", "date", "state")

_NO_COMMIT = "no git checkout with a commit, or git is not installed"

Missing = dict[str, str]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `gemmlab environment`."""
    parser.add_argument("--device", required=True, help="the slug of the run, such as nvidia-h200")
    parser.add_argument("--output", required=True, type=Path)


def run(options: argparse.Namespace) -> None:
    """Write the record of this machine to `options.output`."""
    record = collect(options.device, load_config()["nvcc"])
    validate(record, "environment", str(options.output))
    write_json(options.output, record)


def collect(slug: str, nvcc_choice: str) -> dict[str, Any]:
    """The record (schema `environment`) of this machine.

    Args:
        slug: the device that the run is for.
        nvcc_choice: the configuration's `nvcc`.
    """
    missing: Missing = {}
    record: dict[str, Any] = {"id": "", "device": slug, "date": _now()}
    try:
        nvcc = find_nvcc(nvcc_choice, driver_cuda=driver.cuda_version())
    except GemmlabError as error:
        nvcc = None
        missing["tools.nvcc"] = missing["driver.verdict"] = str(error)
    sections: dict[str, Callable[[Missing], Any]] = {
        "commit": _commit,
        "dirty": _dirty,
        "operating_system": _operating_system,
        "cpu": _cpu,
        "memory_bytes": _memory_bytes,
        "python": lambda _: platform.python_version(),
        "packages": _packages,
        "variables": lambda _: variables(os.environ),
        "driver": lambda missing: _driver(missing, nvcc),
        "tools": lambda missing: _tools(missing, nvcc),
        "gpus": _gpus,
        "state": _state,
    }
    for name, section in sections.items():
        try:
            record[name] = section(missing)
        except Exception as error:  # whatever breaks in here must not cost anyone a run
            record[name] = None
            missing[name] = f"{type(error).__name__}: {error}"
    record["missing"] = {key: without_folders(reason) for key, reason in missing.items()}
    record["id"] = identity(record)
    return record


def identity(record: Mapping[str, Any]) -> str:
    """16 hexadecimal digits of what is stable in `record`: two runs in one environment share them."""
    stable = {key: value for key, value in record.items() if key not in _NOT_IN_ID}
    stable["missing"] = {
        key: reason for key, reason in record["missing"].items() if not key.startswith(_NOT_IN_ID)
    }
    return sha256_of([json.dumps(stable, sort_keys=True)])[:16]


def variables(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that change results or speeds, of those that are set; a path in one is not told."""
    return {name: without_folders(environment[name]) for name in VARIABLES if name in environment}


def without_folders(text: str) -> str:
    """`text` with every absolute path cut to its last part."""
    return re.sub(r"(?<![\w.])~?(?:/[^/\s:;,'\"]+)*/([^/\s:;,'\"]+)", r"\1", text)


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def _commit(missing: Missing) -> str | None:
    commit = git_head()
    if commit is None:
        missing["commit"] = _NO_COMMIT
    return commit


def _dirty(missing: Missing) -> bool | None:
    command = ["git", "-C", repository_root(), "status", "--porcelain"]
    completed = run_process(command, timeout_s=_TIMEOUT_S)
    if completed.returncode != 0 or git_head() is None:
        missing["dirty"] = _NO_COMMIT
        return None
    return bool(completed.stdout.strip())


def _operating_system(missing: Missing) -> dict[str, str | None]:
    try:
        distribution = platform.freedesktop_os_release().get("PRETTY_NAME")
    except OSError:
        distribution = None
        missing["operating_system.distribution"] = "no os-release file"
    return {
        "system": platform.system(),
        "distribution": distribution,
        "kernel": platform.release(),
        "libc": " ".join(platform.libc_ver()).strip() or None,
    }


def _cpu(missing: Missing) -> dict[str, Any]:
    text = _read("/proc/cpuinfo") or ""
    model = re.search(r"^(?:model name|Model|cpu model)\s*:\s*(.+)$", text, re.MULTILINE)
    if model is None:
        missing["cpu.model"] = "the kernel doesn't name it"
    return {
        "model": model[1].strip() if model else None,
        "machine": platform.machine(),
        "logical_cores": os.cpu_count(),
        "usable_cores": len(os.sched_getaffinity(0)),
    }


def _memory_bytes(_: Missing) -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _packages(_: Missing) -> dict[str, str]:
    installed = installed_packages()
    root = repository_root()
    wanted = {*read_lock(root / LOCK), *read_lock(root / GPU_LOCK), *cupy_packages(installed), "gemmlab"}
    return {name: version for name, version in sorted(installed.items()) if name in wanted}


def _driver(missing: Missing, nvcc: Nvcc | None) -> dict[str, Any]:
    found = device.probe()
    cuda = driver.cuda_version()
    if found is None or found.driver_version is None:
        missing["driver.version"] = device.probe_failure() or "nvidia-smi doesn't name it"
    if cuda is None:
        missing["driver.cuda"] = "no CUDA driver library (libcuda.so.1)"
    version = found.driver_version if found else None
    return {
        "version": version,
        "cuda": _dotted(cuda),
        "verdict": driver_verdict(nvcc, version, cuda) if nvcc else None,
    }


def _tools(missing: Missing, nvcc: Nvcc | None) -> dict[str, Any]:
    programs = {
        "nvdisasm": find_nvdisasm(nvcc),
        "ncu": find_ncu(),
        "compute_sanitizer": find_compute_sanitizer(),
        "gxx": "g++",
    }
    versions = {name: _version(f"tools.{name}", program, missing) for name, program in programs.items()}
    compiler = (
        {"release": _dotted(nvcc.release), "build": nvcc.build, "origin": nvcc.origin} if nvcc else None
    )
    return {"nvcc": compiler} | versions


def _version(key: str, program: Path | str | None, missing: Missing) -> str | None:
    if program is None:
        missing[key] = "not installed"
        return None
    completed = run_process([program, "--version"], timeout_s=_TIMEOUT_S)
    version = tool_version(completed.stdout) if completed.returncode == 0 else None
    if version is None:
        missing[key] = "not installed" if completed.returncode == 127 else "--version names no version"
    return version


def tool_version(text: str) -> str | None:
    """The version in what a tool prints for --version: `V13.5.37`, `Version 2025.3.1.0` or `g++ (...) 12.2.0`."""
    for pattern in (r"\bV(\d+\.\d[\d.]*)", r"[Vv]ersion:? (\d+\.\d[\d.]*)", r"\s(\d+\.\d+\.\d+)\s*$"):
        match = re.search(pattern, text, re.MULTILINE)
        if match:
            return match[1].rstrip(".")
    return None


def _gpus(missing: Missing) -> list[dict[str, Any]]:
    found = device.probe()
    if found is None:
        missing["gpus"] = device.probe_failure() or "none found"
        return []
    rows = _rows(_SETTINGS)
    gpus = []
    for number, gpu in enumerate(found.gpus):
        key = f"gpus[{number}]"
        ordinal = driver.device_of(gpu.uuid)
        if ordinal is None:
            missing[f"{key}.attributes"] = "the CUDA driver doesn't show this card under its UUID"
        if gpu.compute_capability is None:
            missing[f"{key}.compute_capability"] = "neither nvidia-smi nor the driver tells it"
        gpus.append(
            {
                "name": gpu.name,
                "uuid": gpu.uuid,
                "compute_capability": _dotted(gpu.compute_capability),
                "settings": smi_values(rows.get(gpu.uuid, {}), _SETTINGS, f"{key}.settings", missing),
                "attributes": None if ordinal is None else driver.device_attributes(ordinal),
            }
        )
    return gpus


def _state(missing: Missing) -> list[dict[str, Any]]:
    found = device.probe()
    if found is None:
        return []
    rows = _rows(_STATE)
    return [
        {"uuid": gpu.uuid} | smi_values(rows.get(gpu.uuid, {}), _STATE, f"state[{number}]", missing)
        for number, gpu in enumerate(found.gpus)
    ]


def _rows(fields: Mapping[str, tuple[str, type]]) -> dict[str, dict[str, str]]:
    rows = query(["uuid", *(field for field, _ in fields.values())])
    return {} if isinstance(rows, str) else {row["uuid"]: row for row in rows}


def smi_values(
    row: Mapping[str, str], fields: Mapping[str, tuple[str, type]], key: str, missing: Missing
) -> dict[str, Any]:
    """The values of one card by the record's names; what nvidia-smi doesn't give is None and explained in `missing`.

    Args:
        row: text by nvidia-smi's field.
        fields: record name: nvidia-smi's field and its type.
        key: the path under which `missing` names them.
        missing: reasons, which this adds to.
    """
    values: dict[str, Any] = {}
    for name, (field, kind) in fields.items():
        text = smi_value(row.get(field))
        try:
            values[name] = None if text is None else kind(text)
        except ValueError:
            values[name] = None
        if values[name] is None:
            missing[f"{key}.{name}"] = (
                f"nvidia-smi says {row[field]}" if field in row else "nvidia-smi doesn't know it"
            )
    return values


def _dotted(version: tuple[int, int] | None) -> str | None:
    return None if version is None else f"{version[0]}.{version[1]}"


def _read(path: str) -> str | None:
    try:
        return Path(path).read_text()
    except OSError:
        return None

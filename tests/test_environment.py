from __future__ import annotations

import getpass
import json
import socket
import subprocess
from pathlib import Path

import pytest

from gemmlab import device, driver, environment
from gemmlab.cli import main
from gemmlab.device import Device, Gpu
from gemmlab.errors import GemmlabError
from gemmlab.files import git_head, read_json, repository_root
from gemmlab.schema import validate

H200 = Gpu("NVIDIA H200", "GPU-5e1a6f0e", (9, 0))
SMI = {
    "uuid": "GPU-5e1a6f0e",
    "memory.total": "143771",
    "power.limit": "700.00",
    "clocks.max.sm": "1980",
    "ecc.mode.current": "Enabled",
    "mig.mode.current": "[N/A]",
    "clocks.sm": "345",
    "temperature.gpu": "[Unknown Error]",
    "power.draw": "[Not Supported]",
    "memory.used": "many",
}


@pytest.fixture
def record() -> dict:
    return environment.collect("emulator-sm_90", "auto")


@pytest.fixture
def with_gpu(monkeypatch: pytest.MonkeyPatch) -> dict:
    monkeypatch.setattr(device, "_probe", lambda: Device((H200,), "580.159.04", (13, 0)))
    monkeypatch.setattr(driver, "cuda_version", lambda: (13, 0))
    monkeypatch.setattr(driver, "device_of", lambda uuid: 0)
    monkeypatch.setattr(driver, "device_attributes", lambda ordinal: {"multiprocessor_count": 132})
    monkeypatch.setattr(
        environment, "query", lambda fields: [{name: SMI[name] for name in fields if name in SMI}]
    )
    return environment.collect("nvidia-h200", "auto")


def test_the_command_writes_a_valid_record(tmp_path: Path) -> None:
    path = tmp_path / "environment.json"
    assert main(["environment", "--device", "emulator-sm_90", "--output", str(path)]) == 0
    written = read_json(path)
    validate(written, "environment", str(path))
    assert written["device"] == "emulator-sm_90"
    assert written["tools"]["nvcc"]["release"]


def test_nothing_in_it_names_the_machine_or_its_user(record: dict) -> None:
    text = json.dumps(record)
    for secret in (socket.gethostname(), getpass.getuser(), str(repository_root()), "/usr", "/home", "/tmp"):
        assert f'"{secret}' not in text
        assert f"{secret}/" not in text


def test_every_null_has_its_reason(with_gpu: dict) -> None:
    def nulls(value: object, path: str) -> list[str]:
        if value is None:
            return [path]
        if isinstance(value, dict):
            return [p for key, item in value.items() for p in nulls(item, f"{path}.{key}" if path else key)]
        if isinstance(value, list):
            return [p for number, item in enumerate(value) for p in nulls(item, f"{path}[{number}]")]
        return []

    assert set(nulls(with_gpu, "")) <= set(with_gpu["missing"])


def test_a_card_is_recorded_with_what_it_answers(with_gpu: dict) -> None:
    validate(with_gpu, "environment", "record")
    (gpu,) = with_gpu["gpus"]
    assert (gpu["name"], gpu["compute_capability"]) == ("NVIDIA H200", "9.0")
    assert (gpu["settings"]["memory_total_mib"], gpu["settings"]["power_limit_w"]) == (143771, 700.0)
    assert gpu["attributes"] == {"multiprocessor_count": 132}
    assert gpu["settings"]["mig"] is None
    assert with_gpu["missing"]["gpus[0].settings.mig"] == "nvidia-smi says [N/A]"
    (state,) = with_gpu["state"]
    assert (state["sm_clock_mhz"], state["temperature_c"], state["memory_used_mib"]) == (345, None, None)
    assert with_gpu["missing"]["state[0].temperature_c"] == "nvidia-smi says [Unknown Error]"
    assert "loads cubins of nvcc" in with_gpu["driver"]["verdict"]


def test_the_id_is_the_same_when_only_the_moment_differs(record: dict) -> None:
    later = record | {"date": "2031-01-01T00:00:00+00:00", "state": [{"uuid": "GPU-1", "power_w": 5.0}]}
    later["missing"] = record["missing"] | {"state[0].temperature_c": "nvidia-smi says [N/A]"}
    assert environment.identity(later) == record["id"]
    other = record | {"commit": "0" * 40}
    assert environment.identity(other) != record["id"]


def test_variables_that_change_results_are_recorded_without_paths() -> None:
    set_variables = {
        "CUPY_TF32": "1",
        "NVIDIA_TF32_OVERRIDE": "0",
        "HOME": "/home/someone",
        "OMP_NUM_THREADS": "2",
    }
    set_variables["CUBLAS_WORKSPACE_CONFIG"] = "/home/someone/x"
    assert environment.variables(set_variables) == {
        "CUBLAS_WORKSPACE_CONFIG": "x",
        "CUPY_TF32": "1",
        "NVIDIA_TF32_OVERRIDE": "0",
        "OMP_NUM_THREADS": "2",
    }


def test_paths_are_cut_to_their_last_part() -> None:
    text = "no nvcc: no /opt/cuda/bin/nvcc; /usr/local/x --version: 3/4 of 1/2, ~/bin/y"
    assert environment.without_folders(text) == "no nvcc: no nvcc; x --version: 3/4 of 1/2, y"


def test_a_section_that_breaks_costs_its_values_only(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(missing: dict) -> None:
        raise RuntimeError("the moon is full")

    monkeypatch.setattr(environment, "_cpu", broken)
    record = environment.collect("emulator-sm_90", "auto")
    assert record["cpu"] is None
    assert record["missing"]["cpu"] == "RuntimeError: the moon is full"
    assert record["python"]
    validate(record, "environment", "record")


def test_a_checkout_without_a_commit_has_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    assert git_head(tmp_path) is None
    monkeypatch.setattr(environment, "git_head", lambda: git_head(tmp_path))
    record = environment.collect("emulator-sm_90", "auto")
    assert (record["commit"], record["dirty"]) == (None, None)
    assert {"commit", "dirty"} <= set(record["missing"])
    validate(record, "environment", "record")


def test_no_nvcc_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: object, **__: object) -> None:
        raise GemmlabError("no nvcc; looked in /opt/cuda/bin")

    monkeypatch.setattr(environment, "find_nvcc", none)
    record = environment.collect("emulator-sm_90", "auto")
    assert record["tools"]["nvcc"] is None
    assert record["missing"]["tools.nvcc"] == "no nvcc; looked in bin"
    validate(record, "environment", "record")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "NVIDIA (R) Nsight Compute Command Line Profiler\nVersion 2025.3.1.0 (build 36398880) (public-release)",
            "2025.3.1.0",
        ),
        ("NVIDIA Compute Sanitizer\nVersion 2025.3.1.0 (build 36376478) (public-release)", "2025.3.1.0"),
        ("Cuda compilation tools, release 13.5, V13.5.37\nBuild cuda_13.5.r13.5/compiler.1_0", "13.5.37"),
        ("g++ (Debian 12.2.0-14+deb12u1) 12.2.0\nCopyright (C) 2022", "12.2.0"),
        ("no version here", None),
    ],
)
def test_the_version_of_a_tool(text: str, expected: str | None) -> None:
    assert environment.tool_version(text) == expected

from __future__ import annotations

import sys
import types

import pytest

from gemmlab.timing.telemetry import Reading, Telemetry, slowing


class NvmlError(Exception):
    pass


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> types.SimpleNamespace:
    """NVML with one card, on which process 1000 of another runs."""

    def unsupported(*arguments: object) -> None:
        raise NvmlError("Not Supported")

    module = types.SimpleNamespace(
        NVMLError=NvmlError,
        NVML_CLOCK_SM=1,
        NVML_TEMPERATURE_GPU=0,
        pids=[1000],
        nvmlInit=lambda: None,
        nvmlDeviceGetHandleByUUID=lambda uuid: "handle",
        nvmlDeviceGetPowerUsage=lambda handle: 612_345,
        nvmlDeviceGetClockInfo=lambda handle, kind: 1980,
        nvmlDeviceGetMaxClockInfo=lambda handle, kind: 1980,
        nvmlDeviceGetTemperature=unsupported,
        nvmlDeviceGetCurrentClocksThrottleReasons=lambda handle: 0x4,
        nvmlDeviceGetName=lambda handle: b"NVIDIA H200",
        nvmlSystemGetDriverVersion=lambda: "580.95",
    )
    module.nvmlDeviceGetComputeRunningProcesses = lambda handle: [
        types.SimpleNamespace(pid=pid) for pid in module.pids
    ]
    monkeypatch.setitem(sys.modules, "pynvml", module)
    return module


def test_reads_what_the_card_supports_and_null_for_the_rest(nvml: types.SimpleNamespace) -> None:
    telemetry = Telemetry("GPU-1")
    reading = telemetry.read()
    assert (reading.sm_clock_mhz, reading.power_w, reading.throttle_reasons) == (1980, 612.345, 4)
    assert reading.temperature_c is None
    assert (telemetry.name(), telemetry.driver(), telemetry.max_sm_clock_mhz()) == (
        "NVIDIA H200",
        "580.95",
        1980,
    )


def test_the_process_that_appears_with_our_context_is_ours(nvml: types.SimpleNamespace) -> None:
    nvml.pids = []
    telemetry = Telemetry("GPU-1")
    nvml.pids = [4711]
    telemetry.own_context_created()
    assert telemetry.others(telemetry.read()) == frozenset()
    nvml.pids = [4711, 4712]
    assert telemetry.others(telemetry.read()) == {4712}


def test_a_process_that_was_there_before_is_another_s(nvml: types.SimpleNamespace) -> None:
    telemetry = Telemetry("GPU-1")
    nvml.pids = [1000, 4711]
    telemetry.own_context_created()
    assert telemetry.others(telemetry.read()) == {1000}


@pytest.mark.parametrize("broken", ["missing", "init"])
def test_without_nvml_everything_is_null(
    nvml: types.SimpleNamespace, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    def fail() -> None:
        raise NvmlError("Driver/library version mismatch")

    if broken == "missing":
        monkeypatch.setitem(sys.modules, "pynvml", None)
    else:
        nvml.nvmlInit = fail
    telemetry = Telemetry("GPU-1")
    telemetry.own_context_created()
    reading = telemetry.read()
    assert (reading.sm_clock_mhz, reading.power_w, reading.throttle_reasons) == (None, None, None)
    assert reading.processes == frozenset()
    assert (telemetry.name(), telemetry.driver(), telemetry.max_sm_clock_mhz()) == (None, None, None)


def test_the_clock_of_an_idle_card_is_no_working_clock() -> None:
    assert Reading(sm_clock_mhz=345, throttle_reasons=0x1).working_clock_mhz is None
    assert Reading(sm_clock_mhz=1515, throttle_reasons=0x4).working_clock_mhz == 1515
    assert Reading(sm_clock_mhz=1980).working_clock_mhz == 1980


def test_reasons_that_slow_the_clock_are_told_from_harmless_ones() -> None:
    assert slowing(0x1 | 0x2 | 0x10 | 0x100) == 0
    assert slowing(None) == 0
    assert slowing(0x1 | 0x4 | 0x40) == 0x44

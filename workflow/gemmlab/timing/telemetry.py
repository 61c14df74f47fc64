"""What NVML says beside each block: SM clock, power, temperature, throttle reasons, other processes on the card.

NVML only watches: no setting of the card is ever changed. A field that it doesn't support is null, and a machine
without NVML gives nulls alone; telemetry never fails a run.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

_IDLE = 0x001
# Bits of nvmlClocksEventReason* that are no reason for concern: idle, a clock that somebody set, a group of cards that
# keep one clock, a display.
_HARMLESS_REASONS = _IDLE | 0x002 | 0x010 | 0x100


@dataclass(frozen=True)
class Reading:
    """The card at one moment; None where NVML has no answer.

    NVML refreshes clock and reasons about every tenth of a second (H200, driver 580), so that a reading tells of a
    moment up to that long ago; power is its average over the last second.
    """

    sm_clock_mhz: int | None = None
    power_w: float | None = None
    temperature_c: int | None = None
    throttle_reasons: int | None = None
    processes: frozenset[int] = frozenset()

    @property
    def working_clock_mhz(self) -> int | None:
        """The SM clock if the card was at work when NVML looked: an idle card's clock says nothing about a block."""
        return None if (self.throttle_reasons or 0) & _IDLE else self.sm_clock_mhz


def slowing(reasons: int | None) -> int:
    """The bits of NVML's throttle reasons that slow the clock down; 0 if there are none or NVML doesn't say."""
    return (reasons or 0) & ~_HARMLESS_REASONS


class Telemetry:
    """NVML's view of one GPU. `before` holds the processes that had contexts on it before this one."""

    def __init__(self, uuid: str | None) -> None:
        """Open NVML for the GPU `uuid` before this process creates its CUDA context.

        In a container NVML lists processes by the host's numbers, so this process can't find itself by its own:
        the one that appears with our context is taken for ours (`own_context_created`).
        """
        self._nvml: Any = None
        self._handle: Any = None
        if uuid:
            self._open(uuid)
        self.before = self._processes()
        self.own: frozenset[int] = frozenset({os.getpid()})

    def _open(self, uuid: str) -> None:
        try:
            import pynvml

            pynvml.nvmlInit()
        except Exception:  # any failure of a missing, mismatched or broken NVML means no telemetry
            return
        self._nvml = pynvml
        self._handle = self._ask(lambda: pynvml.nvmlDeviceGetHandleByUUID(uuid))

    def own_context_created(self) -> None:
        """Tell which process of the list is this one: call once after the CUDA context exists."""
        appeared = self._processes() - self.before
        self.own = self.own | appeared if len(appeared) == 1 else self.own

    def read(self) -> Reading:
        """The present readings."""
        nvml, handle = self._nvml, self._handle
        if handle is None:
            return Reading()
        milliwatts = self._ask(lambda: nvml.nvmlDeviceGetPowerUsage(handle))
        return Reading(
            sm_clock_mhz=self._ask(lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM)),
            power_w=None if milliwatts is None else milliwatts / 1000,
            temperature_c=self._ask(lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)),
            throttle_reasons=self._ask(lambda: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)),
            processes=self._processes(),
        )

    def others(self, reading: Reading) -> frozenset[int]:
        """The processes of a reading that are not this one."""
        return reading.processes - self.own

    def max_sm_clock_mhz(self) -> int | None:
        """The highest SM clock of the card."""
        nvml, handle = self._nvml, self._handle
        return handle and self._ask(lambda: nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_SM))

    def name(self) -> str | None:
        """The card's name."""
        return self._handle and _text(self._ask(lambda: self._nvml.nvmlDeviceGetName(self._handle)))

    def driver(self) -> str | None:
        """The driver's version."""
        return self._nvml and _text(self._ask(self._nvml.nvmlSystemGetDriverVersion))

    def _processes(self) -> frozenset[int]:
        if self._handle is None:
            return frozenset()
        listed = self._ask(lambda: self._nvml.nvmlDeviceGetComputeRunningProcesses(self._handle))
        return frozenset(process.pid for process in listed or ())

    def _ask(self, question: Callable[[], Any]) -> Any:
        try:
            return question()
        except (self._nvml.NVMLError, AttributeError, TypeError, ValueError):
            return None


def _text(value: str | bytes | None) -> str | None:
    return value.decode(errors="replace") if isinstance(value, bytes) else value

"""A process that times one variant at some shapes: opens the GPU, prepares each shape, measures, makes the rows."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from gemmlab import status
from gemmlab.catalogue import Variant
from gemmlab.errors import GemmlabError
from gemmlab.executors.base import NotLaunchable, Unavailable, failure
from gemmlab.executors.device_memory import device_faults
from gemmlab.timing import flags
from gemmlab.timing.blocks import (
    Interval,
    Measurement,
    ShapePlan,
    block_values,
    interval,
    samples_for,
    schedule,
)
from gemmlab.timing.cold import load_nvbench, measure_cold
from gemmlab.timing.device import NUMBER, open_device
from gemmlab.timing.hot import launches_per_sample, measure_hot
from gemmlab.timing.peak import peak_tflops
from gemmlab.timing.prepare import NotTimed, ReadyShape, graphs_of, prepare_shape
from gemmlab.timing.settings import BLOCKS_OF_ENDLESS, LONG_MS, Settings, Shape
from gemmlab.timing.telemetry import Reading

Row = dict[str, Any]

# Launches go on this long before the first block, for clocks to rise and NVML to see the card at work: it looks about
# every tenth of a second.
_SETTLING_S = 0.15

SAMPLE_COLUMNS = (
    *("variant", "m", "n", "k", "cache", "block", "position", "role", "sample", "time_ms", "launches"),
    *("sample_clock_mhz", "sm_clock_mhz", "power_w", "temperature_c", "throttle_reasons"),
    *("start_s", "end_s", "utc", "gpu_uuid"),
)


@dataclass(frozen=True)
class Result:
    """Rows of timings.csv and of the samples (in the order of SAMPLE_COLUMNS), as plain JSON types."""

    rows: list[Row]
    samples: list[list[Any]]


def measure_variant(
    variant: Variant,
    baseline: Variant | None,
    shapes: Sequence[Shape],
    settings: Settings,
    cubin: Path | None,
) -> Result:
    """Time `variant` at `shapes`; whatever happens on the device becomes rows.

    Args:
        variant: a kernel, or a library's call.
        baseline: what it is timed against, if anything.
        shapes: m, n, k of each problem.
        settings: the configuration's.
        cubin: the kernel's file; None for a library's call.
    """
    common = {"variant": variant.name, "arithmetic": variant.arithmetic, "preset": settings.preset}
    try:
        session = _Session(variant, baseline, settings, cubin)
    except (Unavailable, NotLaunchable) as error:
        return Result([common | failure(error)], [])
    common |= session.identity
    rows: list[Row] = []
    ready: list[ReadyShape] = []
    finished: list[Shape] = []
    samples: list[list[Any]] = []
    try:
        for shape in shapes:
            try:
                ready.append(session.prepare(shape))
            except NotTimed as why:
                rows.append(common | _shape(shape) | {"status": why.state, "reason": why.reason})
                finished.append(shape)
        for cache in settings.caches:
            timed, measurements = session.measure(cache, ready)
            for entry in timed:
                own = [m for m in measurements if timed[m.step.shape] is entry]
                rows.append(common | _shape(entry.shape) | {"cache": cache} | session.row(entry, own))
                samples += session.samples(entry, cache, own)
            rows += [
                common | _shape(entry.shape) | {"cache": cache} | _too_long(entry)
                for entry in session.wanted(cache, ready)
                if entry not in timed
            ]
    except Unavailable as error:
        rows.append(common | failure(error))
    except GemmlabError as error:
        rows += [common | _shape(shape) | failure(error) for shape in shapes if shape not in finished]
    session.report_phases()
    return Result(rows, samples)


def _shape(shape: Shape) -> Row:
    return dict(zip("mnk", shape, strict=True))


def _too_long(entry: ReadyShape) -> Row:
    longest = max(entry.launch_ms.values())
    return {
        "status": status.SKIPPED,
        "reason": f"a launch takes {longest:.0f} ms, over {LONG_MS:g} ms: a warm cache decides nothing there",
    }


class _Session:
    """The GPU held, its context made, libraries loaded and handles created: all that must not be timed."""

    def __init__(
        self, variant: Variant, baseline: Variant | None, settings: Settings, cubin: Path | None
    ) -> None:
        self.variant, self.baseline, self.settings = variant, baseline, settings
        self._phases: dict[str, float] = {}
        self._reading_s = 0.0
        self._phase_started = time.monotonic()
        self.device = open_device(cubin, library=bool(variant.library or baseline))
        if "cold" in settings.caches:
            load_nvbench()
        self.highest_clock_mhz = self.device.highest_clock_mhz
        limits, telemetry = self.device.limits, self.device.telemetry
        self.peak_tflops = peak_tflops(
            variant.arithmetic, limits.capability, limits.multiprocessors, self.highest_clock_mhz
        )
        self.identity = {
            "baseline": baseline.name if baseline else None,
            "baseline_version": f"cuBLAS {self.device.cublas.version}" if self.device.cublas else None,
            "gpu": telemetry.name(),
            "gpu_uuid": self.device.uuid,
            "driver": telemetry.driver(),
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        self._phase("open")

    def prepare(self, shape: Shape) -> ReadyShape:
        """See `prepare_shape`."""
        ready = prepare_shape(self.device, self.variant, self.baseline, shape, self.settings)
        self._phase("prepare")
        return ready

    def wanted(self, cache: str, ready: Sequence[ReadyShape]) -> list[ReadyShape]:
        """Those of `ready` that the preset times with this cache."""
        return [entry for entry in ready if cache in self.settings.caches_at(entry.shape)]

    def measure(self, cache: str, ready: Sequence[ReadyShape]) -> tuple[list[ReadyShape], list[Measurement]]:
        """The shapes that are timed with this cache and their measurements, whose steps number these shapes."""
        wanted = self.wanted(cache, ready)
        timed = [entry for entry in wanted if cache == "cold" or max(entry.launch_ms.values()) <= LONG_MS]
        with device_faults(self.device.cupy, f"timing {self.variant.name}"):
            self._settle(timed)
            measurements = self._hot(timed) if cache == "hot" else self._cold(timed)
        self._phase(cache)
        return timed, measurements

    def _settle(self, timed: Sequence[ReadyShape]) -> None:
        """Untimed launches of every side at every shape, repeated until the clocks had time to rise."""
        short = [entry for entry in timed if max(entry.launch_ms.values()) <= LONG_MS]
        if not short or not self.settings.warmup:
            return
        end = time.monotonic() + _SETTLING_S
        while True:
            for entry in short:
                for launchable in entry.launchables.values():
                    for _ in range(self.settings.warmup):
                        launchable.launch(self.device.stream)
            self.device.stream.synchronize()
            if time.monotonic() >= end:
                return

    def _hot(self, timed: Sequence[ReadyShape]) -> list[Measurement]:
        launches = [launches_per_sample(list(entry.launch_ms.values())) for entry in timed]
        graphs = [
            graphs_of(self.device, entry, number) for entry, number in zip(timed, launches, strict=True)
        ]
        # A hot sample is a mean of many launches already, so half as many do.
        repeats = max(1, self.settings.repeats // 2)
        plans = [
            self._plan(
                entry, repeats, lambda role, entry=entry, number=number: entry.launch_ms[role] * number
            )
            for entry, number in zip(timed, launches, strict=True)
        ]
        steps = schedule(plans, self.settings.seed)
        return measure_hot(self.device.cupy, steps, graphs, launches, self.device.stream, self._read)

    def _cold(self, timed: Sequence[ReadyShape]) -> list[Measurement]:
        plans = [
            self._plan(entry, self.settings.repeats, lambda role, entry=entry: entry.launch_ms[role])
            for entry in timed
        ]
        steps = schedule(plans, self.settings.seed + 1)
        launchables = [entry.launchables for entry in timed]
        return measure_cold(self.device.cupy, steps, launchables, NUMBER, self._read)

    def _plan(self, entry: ReadyShape, repeats: int, sample_ms: Callable[[str], float]) -> ShapePlan:
        endless = entry.launch_ms["variant"] > self.settings.skip_over_ms
        samples = {
            role: samples_for(sample_ms(role), repeats, self.settings.block_ms) for role in entry.launchables
        }
        return ShapePlan(
            blocks=min(BLOCKS_OF_ENDLESS, self.settings.present_blocks)
            if endless
            else self.settings.present_blocks,
            variant_samples=samples["variant"],
            baseline_samples=samples.get("baseline", 0),
        )

    def _read(self) -> Reading:
        started = time.monotonic()
        reading = self.device.telemetry.read()
        self._reading_s += time.monotonic() - started
        return reading

    def row(self, entry: ReadyShape, measurements: Sequence[Measurement]) -> Row:
        """The columns of timings.csv that the measurements of one shape and cache decide."""
        settings = self.settings
        variant_ms, baseline_ms, ratios = block_values(measurements)
        times = interval(variant_ms, settings.seed)
        ratio = interval(ratios, settings.seed) if ratios.size else None
        own = [m for m in measurements if m.step.role == "variant"]
        tflops = 2 * entry.problem.fmas / (times.median * 1e-3) / 1e12
        samples = np.concatenate([m.times_ms for m in own])
        found = _flags(self, entry, measurements, samples, ratio, tflops)
        # A rate above the peak is a fault of the measurement, so nothing may be ranked by it.
        shown = None if "implausible" in found else ratio
        return {
            "blocks": len(variant_ms),
            "samples": len(samples),
            "time_ms_median": times.median,
            "time_ms_low": times.low,
            "time_ms_high": times.high,
            "tflops": tflops,
            "percent_of_peak": self.peak_tflops and 100 * tflops / self.peak_tflops,
            "baseline_kernel": entry.baseline_kernel,
            "baseline_time_ms_median": float(np.median(baseline_ms)) if baseline_ms.size else None,
            "ratio": shown and shown.median,
            "ratio_low": shown and shown.low,
            "ratio_high": shown and shown.high,
            "sm_clock_mhz": _median(m.reading.sm_clock_mhz for m in own),
            "power_w": _median(m.reading.power_w for m in own),
            "temperature_c": _median(m.reading.temperature_c for m in own),
            "flags": " ".join(found) or None,
            "status": status.OK,
            "reason": None,
        }

    def samples(self, entry: ReadyShape, cache: str, measurements: Sequence[Measurement]) -> list[list[Any]]:
        """Every sample of one shape and cache, in the order of SAMPLE_COLUMNS."""
        rows = []
        for m in measurements:
            step, reading = m.step, m.reading
            for number, time_ms in enumerate(m.times_ms):
                clock = None if m.clocks_mhz is None else _finite(m.clocks_mhz[number])
                rows.append(
                    [
                        *(self.variant.name, *entry.shape, cache, step.block, step.position, step.role),
                        *(number, float(time_ms), m.launches, clock),
                        *(
                            reading.sm_clock_mhz,
                            reading.power_w,
                            reading.temperature_c,
                            reading.throttle_reasons,
                        ),
                        *(m.start_s, m.end_s, m.utc, self.device.uuid),
                    ]
                )
        return rows

    def report_phases(self) -> None:
        """Say on standard error what the time went to."""
        phases = ", ".join(f"{name} {seconds:.2f} s" for name, seconds in self._phases.items())
        print(f"{self.variant.name}: {phases}, of which telemetry {self._reading_s:.2f} s", file=sys.stderr)

    def _phase(self, name: str) -> None:
        now = time.monotonic()
        self._phases[name] = self._phases.get(name, 0.0) + now - self._phase_started
        self._phase_started = now


def _flags(
    session: _Session,
    entry: ReadyShape,
    measurements: Sequence[Measurement],
    samples: np.ndarray,
    ratio: Interval | None,
    tflops: float,
) -> list[str]:
    readings = [m.reading for m in measurements]
    tests = {
        "throttled": flags.throttled(reading.throttle_reasons for reading in readings),
        "low_clock": flags.low_clock(map(_clock_mhz, measurements), session.highest_clock_mhz),
        "drift": flags.drift(samples),
        "noisy": flags.noisy(
            samples,
            ratio and ratio.median,
            ratio and ratio.low,
            ratio and ratio.high,
            entry.problem.fmas,
        ),
        "implausible": flags.implausible(tflops, session.peak_tflops),
        "few_samples": flags.few_samples(len({m.step.block for m in measurements})),
        "shared_card": flags.shared_card(session.device.telemetry.others(reading) for reading in readings),
        "no_warmup": flags.no_warmup(session.settings.warmup),
    }
    return [name for name, raised in tests.items() if raised]


def _clock_mhz(measurement: Measurement) -> float | None:
    """The SM clock of a measurement: NVBench's own where it has one, since NVML's is of a moment before."""
    if measurement.clocks_mhz is None:
        return measurement.reading.working_clock_mhz
    return _median(clock for clock in measurement.clocks_mhz if math.isfinite(clock))


def _median(values: Any) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.median(known)) if known else None


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None

"""Cold timings: NVBench flushes L2 before each launch and times it on the device behind a blocking kernel.

NVBench runs once in a process and takes its benchmarks' states in the order of their axis. So all steps of all
shapes are one benchmark with one axis, the number of the step: blocks alternate as the schedule says.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gemmlab.errors import GemmlabError
from gemmlab.executors.base import Unavailable
from gemmlab.timing.blocks import Measurement, Step
from gemmlab.timing.clock import Span, measured
from gemmlab.timing.hot import Launchable

_NAME = "gemmlab"
_AXIS = "step"
# NVBench ends a measurement after this long whatever its criterion says; the stage has its own limit.
_TIMEOUT_S = 3600.0


def load_nvbench() -> Any:
    """The module cuda.bench.

    Raises:
        Unavailable: it isn't installed or finds no driver.
    """
    try:
        import cuda.bench as nvbench

        # Loads the extension, which needs the driver.
        _ = nvbench.State
    except ImportError as error:
        raise Unavailable(
            f"NVBench can't be imported ({error}). requirements-gpu-cu12.lock installs it (cuda-bench)."
        ) from error
    return nvbench


def measure_cold(
    cupy: Any,
    steps: Sequence[Step],
    launchables: Sequence[dict[str, Launchable]],
    device: int,
    read: Callable[[], Any],
) -> list[Measurement]:
    """Measure `steps` in their order; only once in a process.

    The stopping criterion counts samples, and the throttle threshold is 0: NVBench would drop throttled samples and
    pause, while gemmlab keeps and flags them.

    Args:
        cupy: the module.
        steps: what to measure.
        launchables: for each shape what to launch for each role.
        device: CUDA's number of the GPU.
        read: NVML's readings, asked for after each step.
    """
    if not steps:
        return []
    nvbench = load_nvbench()
    spans: dict[int, tuple[Span, Any]] = {}
    faults: list[BaseException] = []

    def benchmark(state: Any) -> None:
        if faults:
            state.skip("an earlier step failed")
            return
        number = state.get_int64(_AXIS)
        step = steps[number]
        launchable = launchables[step.shape][step.role]
        stream = cupy.cuda.Stream.from_external(state.get_stream())
        state.set_min_samples(step.samples)
        try:
            with measured() as span:
                state.exec(lambda launch: launchable.launch(stream), batched=False)
            spans[number] = (span, read())
        except BaseException as error:
            # NVBench turns exceptions into skipped states, so this one is kept for later.
            faults.append(error)
            raise

    benchmark.__name__ = _NAME
    registered = nvbench.register(benchmark)
    registered.add_int64_axis(_AXIS, list(range(len(steps))))
    registered.set_stopping_criterion("sample-count")
    registered.set_criterion_param_int64("target-samples", 1)
    registered.set_throttle_threshold(0.0)
    registered.set_timeout(_TIMEOUT_S)
    with tempfile.TemporaryDirectory(prefix="gemmlab-nvbench-") as folder:
        report = Path(folder) / "report.json"
        nvbench.run_all_benchmarks(["--quiet", "--devices", str(device), "--jsonbin", str(report)])
        if faults:
            raise faults[0]
        samples = _read_samples(report)
    lacking = [number for number in range(len(steps)) if number not in samples]
    if lacking:
        raise GemmlabError(
            f"NVBench skipped {len(lacking)} of {len(steps)} steps, the first is {lacking[0]}."
        )
    measurements = []
    for number, step in enumerate(steps):
        times_ms, clocks_mhz = samples[number]
        span, reading = spans[number]
        measurements.append(Measurement(step, times_ms, 1, clocks_mhz, *span.fields(), reading))
    return measurements


def _read_samples(report: Path) -> dict[int, tuple[np.ndarray, np.ndarray | None]]:
    """Times in ms and SM clocks in MHz of each step, from NVBench's report and the binary files beside it."""
    from cuda.bench.results import BenchmarkResult

    samples = {}
    for state in BenchmarkResult.from_json(report)[_NAME]:
        if state.samples is None:
            raise GemmlabError(f"NVBench left no samples of step {state.point[_AXIS]} beside its report.")
        clocks = None if state.frequencies is None else np.array(state.frequencies, dtype=np.float64) / 1e6
        samples[int(state.point[_AXIS])] = (np.array(state.samples, dtype=np.float64) * 1e3, clocks)
    return samples

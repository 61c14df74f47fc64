from __future__ import annotations

import sys
import types

import pytest
from fake_gpu import Gpu, Kernel

from gemmlab.executors.base import Unavailable
from gemmlab.timing.blocks import ShapePlan, schedule
from gemmlab.timing.cold import load_nvbench, measure_cold
from gemmlab.timing.telemetry import Reading


def launchable(gpu: Gpu, milliseconds: float) -> types.SimpleNamespace:
    kernel = Kernel(lambda: None, lambda: milliseconds)
    return types.SimpleNamespace(launch=lambda stream: gpu.launch(kernel, ()))


def test_steps_run_in_the_schedule_s_order_with_their_own_samples(gpu: Gpu) -> None:
    sides = [
        {"variant": launchable(gpu, 1.0), "baseline": launchable(gpu, 2.0)},
        {"variant": launchable(gpu, 3.0), "baseline": launchable(gpu, 4.0)},
    ]
    steps = schedule([ShapePlan(2, 4, 4), ShapePlan(1, 1, 1)], seed=1)
    measurements = measure_cold(sys.modules["cupy"], steps, sides, 0, Reading)
    assert [m.step for m in measurements] == steps
    starts = [m.start_s for m in measurements]
    assert starts == sorted(starts)
    expected = {(0, "variant"): 1.0, (0, "baseline"): 2.0, (1, "variant"): 3.0, (1, "baseline"): 4.0}
    for m in measurements:
        assert m.times_ms.tolist() == pytest.approx([expected[m.step.shape, m.step.role]] * m.step.samples)
        assert m.clocks_mhz.tolist() == [1980] * m.step.samples


def test_nvbench_counts_samples_and_drops_none_for_throttling(gpu: Gpu) -> None:
    steps = schedule([ShapePlan(1, 2, 0)], seed=1)
    measure_cold(sys.modules["cupy"], steps, [{"variant": launchable(gpu, 1.0)}], 0, Reading)
    (registered,) = sys.modules["cuda.bench"].registered
    assert registered.settings["set_throttle_threshold"] == (0.0,)
    assert registered.settings["set_stopping_criterion"] == ("sample-count",)


def test_an_error_inside_a_step_comes_out_instead_of_a_skipped_state(gpu: Gpu) -> None:
    def fail(stream) -> None:
        raise ValueError("cublasGemmEx returned status 13")

    sides = [{"variant": types.SimpleNamespace(launch=fail)}]
    with pytest.raises(ValueError, match="status 13"):
        measure_cold(sys.modules["cupy"], schedule([ShapePlan(3, 1, 0)], seed=1), sides, 0, Reading)


def test_without_nvbench_cold_timings_are_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cuda", None)
    with pytest.raises(Unavailable, match="NVBench can't be imported"):
        load_nvbench()

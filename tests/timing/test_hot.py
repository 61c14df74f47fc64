from __future__ import annotations

import sys

import pytest
from fake_gpu import Gpu, Kernel

from gemmlab.timing.hot import capture, launches_per_sample, replay_ms


@pytest.mark.parametrize(
    ("times", "launches"), [([0.01], 100), ([0.3, 0.011], 91), ([2.7, 3.0], 1), ([1e-9], 1000), ([0.0], 1000)]
)
def test_a_sample_lasts_a_millisecond_on_the_fastest_side(times: list[float], launches: int) -> None:
    assert launches_per_sample(times) == launches


def test_replays_are_timed_without_the_first(gpu: Gpu) -> None:
    cupy = sys.modules["cupy"]
    times = iter([9.0, 9.0, 1.0, 1.0, 2.0, 2.0])
    kernel = Kernel(lambda: None, lambda: next(times))
    launchable = type("Launchable", (), {"launch": lambda self, stream: gpu.launch(kernel, ())})()
    stream = cupy.cuda.Stream()
    graph = capture(launchable, 2, stream)
    assert gpu.launches == 0
    assert replay_ms(cupy, graph, stream, samples=2).tolist() == [2.0, 4.0]


def test_a_failed_capture_ends_the_capture(gpu: Gpu) -> None:
    def fail(self, stream) -> None:
        raise ValueError("refused")

    stream = sys.modules["cupy"].cuda.Stream()
    with pytest.raises(ValueError, match="refused"):
        capture(type("Launchable", (), {"launch": fail})(), 2, stream)
    assert gpu.capturing is None

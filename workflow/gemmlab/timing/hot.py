"""Hot timings: one CUDA graph of N launches, replayed back to back, so that neither Python nor the launch counts.

NVBench's own batch mode launches from Python and is bound by it under about 60 us a launch.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from gemmlab.timing.blocks import Measurement, Step
from gemmlab.timing.clock import measured

SAMPLE_MS = 1.0
_MOST_LAUNCHES = 1000


class Launchable(Protocol):
    """Anything that queues its work on a stream without taking memory or waiting."""

    def launch(self, stream: Any) -> None:
        """Queue the work on `stream`."""
        ...


def launches_per_sample(launch_ms: Sequence[float]) -> int:
    """How many launches make a sample of at least 1 ms on the fastest side; the same number serves all sides."""
    return min(_MOST_LAUNCHES, max(1, math.ceil(SAMPLE_MS / max(min(launch_ms), 1e-6))))


def capture(launchable: Launchable, launches: int, stream: Any) -> Any:
    """A CUDA graph (CuPy's) of `launches` launches in a row."""
    stream.begin_capture()
    try:
        for _ in range(launches):
            launchable.launch(stream)
    finally:
        # Also after an error: a stream left capturing refuses all that follows.
        graph = stream.end_capture()
    return graph


def replay_ms(cupy: Any, graph: Any, stream: Any, samples: int) -> np.ndarray:
    """Times of `samples` replays in ms, float64.

    One untimed replay goes ahead. All are queued at once, with an event between each two: the next replay waits on
    the device while the last one still runs, so that no sample holds the time to submit a graph.
    """
    events = [cupy.cuda.Event() for _ in range(samples + 1)]
    graph.launch(stream=stream)
    events[0].record(stream)
    for event in events[1:]:
        graph.launch(stream=stream)
        event.record(stream)
    events[-1].synchronize()
    times = [cupy.cuda.get_elapsed_time(before, after) for before, after in itertools.pairwise(events)]
    return np.array(times, dtype=np.float64)


def measure_hot(
    cupy: Any,
    steps: Sequence[Step],
    graphs: Sequence[dict[str, Any]],
    launches: Sequence[int],
    stream: Any,
    read: Callable[[], Any],
) -> list[Measurement]:
    """Measure `steps` in their order.

    Args:
        cupy: the module.
        steps: what to measure.
        graphs: for each shape the graph of each role.
        launches: for each shape the launches in its graphs.
        stream: where to run.
        read: NVML's readings, asked for after each step.
    """
    measurements = []
    for step in steps:
        with measured() as span:
            times = replay_ms(cupy, graphs[step.shape][step.role], stream, step.samples)
        number = launches[step.shape]
        measurements.append(Measurement(step, times / number, number, None, *span.fields(), read()))
    return measurements

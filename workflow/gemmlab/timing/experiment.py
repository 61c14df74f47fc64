"""An experiment for docs/measuring.md: what zeros, constants and random inputs, caches and first launches do.

Run as `python3 -m gemmlab.timing.experiment` on a machine with a GPU; it prints two Markdown tables.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import time
from collections.abc import Sequence

import numpy as np

from gemmlab.catalogue import Variant, load_catalogue
from gemmlab.config import load_config
from gemmlab.elements import STORAGE
from gemmlab.errors import GemmlabError
from gemmlab.executors.device_memory import allocate
from gemmlab.problem import Problem
from gemmlab.timing.blocks import Measurement, ShapePlan, block_values, interval, schedule
from gemmlab.timing.cold import load_nvbench, measure_cold
from gemmlab.timing.device import NUMBER, Device, open_device
from gemmlab.timing.hot import launches_per_sample, measure_hot
from gemmlab.timing.prepare import Fill, ReadyShape, graphs_of, prepare_shape, uniform
from gemmlab.timing.settings import Settings, Shape

_VARIANTS = ("cublas_fp32", "cublas_tf32", "cublas_bf16")
_BLOCKS = 8
_SAMPLES = 4
# A sustained sample, with an untimed one as long ahead of it: power limits act only after some tenths of a second.
_SUSTAINED_S = 0.25
_FIRST_LAUNCHES = 4


def zeros(generator: np.random.Generator, count: int) -> np.ndarray:
    """`count` zeros, float32."""
    return np.zeros(count, dtype=np.float32)


def ones(generator: np.random.Generator, count: int) -> np.ndarray:
    """`count` ones, float32."""
    return np.ones(count, dtype=np.float32)


FILLS: dict[str, Fill] = {"zeros": zeros, "ones": ones, "uniform": uniform}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; the exit status is 0, or 2 where there is no GPU to measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--edge", type=int, default=4096, help="m = n = k")
    parser.add_argument("--variants", nargs="+", default=_VARIANTS, help="baselines of the catalogue")
    options = parser.parse_args(arguments)
    try:
        started = time.perf_counter()
        device = open_device(None, library=True)
        load_nvbench()
        opened_s = time.perf_counter() - started
        catalogue = load_catalogue()
        variants = [catalogue[name] for name in options.variants]
        shape = (options.edge,) * 3
        print(first_launches(device, variants, shape, opened_s))
        print(inputs_and_caches(device, variants, shape))
    except GemmlabError as error:
        print(f"experiment: {error}", file=sys.stderr)
        return 2
    return 0


def _settings() -> Settings:
    config = load_config()
    given = {key: config[key] for key in ("preset", "seed", "headline_shape", "bench")}
    return dataclasses.replace(Settings.parse(json.dumps(given)), preset="full")


def first_launches(device: Device, variants: Sequence[Variant], shape: Shape, opened_s: float) -> str:
    """A table of the wall-clock times of each variant's first launches, ms, with the time to open the GPU.

    Must come before anything else is launched: a library's first call loads its kernels.
    """
    lines = [
        f"Opening the GPU (context, libraries, handles): {opened_s:.2f} s.",
        "",
        "| variant | " + " | ".join(f"launch {n + 1}, ms" for n in range(_FIRST_LAUNCHES)) + " |",
        "|---" * (_FIRST_LAUNCHES + 1) + "|",
    ]
    for variant in variants:
        problem = Problem.packed(*shape, transpose_b=variant.transpose_b)
        elements, types = problem.elements(), (variant.input_type, variant.output_type)
        buffers = []
        for name, element_type in zip("abc", (types[0], types[0], types[1]), strict=True):
            storage = STORAGE[element_type]
            buffers.append(allocate(device.cupy, elements[name] * storage.itemsize, storage))
        addresses = tuple(buffer.address for buffer in buffers)
        matmul = device.cublas.matmul(problem, variant.arithmetic, types, addresses)
        times = []
        for _ in range(_FIRST_LAUNCHES):
            started = time.perf_counter()
            matmul.launch(device.stream)
            device.stream.synchronize()
            times.append(f"{(time.perf_counter() - started) * 1e3:.3f}")
        lines.append(f"| {variant.name} | {' | '.join(times)} |")
    return "\n".join(lines) + "\n"


def inputs_and_caches(device: Device, variants: Sequence[Variant], shape: Shape) -> str:
    """A table of TFLOP/s by variant and input: cold, hot in short samples, and hot for long samples on end.

    All combinations are measured in blocks of one shuffled schedule, so that they share the card's history.
    """
    settings = _settings()
    cases = [(variant, fill) for variant in variants for fill in FILLS]
    ready = [prepare_shape(device, variant, None, shape, settings, FILLS[fill]) for variant, fill in cases]
    kinds = {
        "cold": _cold(device, ready, settings),
        "hot": _hot(device, ready, settings, [_launches(entry) for entry in ready], _SAMPLES),
        "hot, sustained": _hot(device, ready, settings, [_sustained(entry) for entry in ready], 1),
    }
    lines = [
        "| variant | inputs | " + " | ".join(f"{kind}, TFLOP/s" for kind in kinds) + " | clock after, MHz |",
        "|---" * (len(kinds) + 3) + "|",
    ]
    for number, (variant, fill) in enumerate(cases):
        cells = [variant.name, fill]
        for measurements in kinds.values():
            own = [m for m in measurements if m.step.shape == number]
            time_ms = interval(block_values(own)[0], settings.seed)
            flops = 2 * ready[number].problem.fmas
            low, high = (flops / (ms * 1e9) for ms in (time_ms.high, time_ms.low))
            cells.append(f"{flops / (time_ms.median * 1e9):.1f} ({low:.1f} to {high:.1f})")
        clocks = [m.reading.sm_clock_mhz for m in own if m.reading.sm_clock_mhz is not None]
        cells.append(f"{np.median(clocks):.0f}" if clocks else "")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _launches(entry: ReadyShape) -> int:
    return launches_per_sample(list(entry.launch_ms.values()))


def _sustained(entry: ReadyShape) -> int:
    return max(1, round(_SUSTAINED_S * 1e3 / entry.launch_ms["variant"]))


def _cold(device: Device, ready: Sequence[ReadyShape], settings: Settings) -> list[Measurement]:
    steps = schedule([ShapePlan(_BLOCKS, _SAMPLES, 0)] * len(ready), settings.seed)
    launchables = [entry.launchables for entry in ready]
    return measure_cold(device.cupy, steps, launchables, NUMBER, device.telemetry.read)


def _hot(
    device: Device, ready: Sequence[ReadyShape], settings: Settings, launches: Sequence[int], samples: int
) -> list[Measurement]:
    steps = schedule([ShapePlan(_BLOCKS, samples, 0)] * len(ready), settings.seed)
    graphs = [graphs_of(device, entry, number) for entry, number in zip(ready, launches, strict=True)]
    return measure_hot(device.cupy, steps, graphs, launches, device.stream, device.telemetry.read)


if __name__ == "__main__":
    sys.exit(main())

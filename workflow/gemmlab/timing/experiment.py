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
from pathlib import Path

import numpy as np

from gemmlab.catalogue import Variant, load_catalogue
from gemmlab.config import load_config
from gemmlab.errors import GemmlabError
from gemmlab.executors.base import Unavailable
from gemmlab.timing.blocks import Measurement, ShapePlan, block_values, interval, schedule
from gemmlab.timing.cold import load_nvbench, measure_cold
from gemmlab.timing.device import NUMBER, Device, open_device
from gemmlab.timing.hot import launches_per_sample, measure_hot
from gemmlab.timing.prepare import Fill, ReadyShape, graphs_of, prepare_shape, uniform
from gemmlab.timing.settings import Settings, Shape

_VARIANTS = ("cublas_fp32", "cublas_tf32", "cublas_bf16")
_BLOCKS = 8
_SAMPLES = 4
# Replays of a sustained sample: power limits act only after some tenths of a second.
_SUSTAINED_S = 0.5
_FIRST_LAUNCHES = 4


def zeros(generator: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    """Zeros, float32 of `shape`."""
    return np.zeros(shape, dtype=np.float32)


def ones(generator: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    """Ones, float32 of `shape`."""
    return np.ones(shape, dtype=np.float32)


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
    except (Unavailable, GemmlabError) as error:
        print(f"experiment: {error}", file=sys.stderr)
        return 2
    return 0


def _settings() -> Settings:
    config = load_config(Path(__file__).resolve().parents[3] / "config" / "config.yaml")
    given = {key: config[key] for key in ("preset", "seed", "headline_shape", "bench")}
    return dataclasses.replace(Settings.parse(json.dumps(given)), preset="full")


def first_launches(device: Device, variants: Sequence[Variant], shape: Shape, opened_s: float) -> str:
    """A table of the wall-clock times of each variant's first launches, in ms, with the time to open the GPU."""
    lines = [
        f"Opening the GPU (context, libraries, handles): {opened_s:.2f} s.",
        "",
        "| variant | " + " | ".join(f"launch {n + 1}, ms" for n in range(_FIRST_LAUNCHES)) + " |",
        "|---" * (_FIRST_LAUNCHES + 1) + "|",
    ]
    settings = _settings()
    for variant in variants:
        times: list[float] = []

        def recorded(launchable, what, times=times) -> float:
            started = time.perf_counter()
            device.cupy.cuda.runtime.deviceSynchronize()
            launchable.launch(device.stream)
            device.stream.synchronize()
            times.append((time.perf_counter() - started) * 1e3)
            return times[-1]

        watched = _Watched(device, recorded)
        ready = prepare_shape(watched, variant, None, shape, settings)
        while len(times) < _FIRST_LAUNCHES:
            recorded(ready.launchables["variant"], variant.name)
        lines.append(f"| {variant.name} | " + " | ".join(f"{t:.3f}" for t in times[:_FIRST_LAUNCHES]) + " |")
    return "\n".join(lines) + "\n"

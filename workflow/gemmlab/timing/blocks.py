"""Blocks of baseline, variant, baseline: their order, and what they say together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from gemmlab.timing.flags import LEAST_BLOCKS
from gemmlab.timing.telemetry import Reading

Role = Literal["baseline", "variant"]
_CONFIDENCE = 0.95
_RESAMPLES = 9999


@dataclass(frozen=True)
class Step:
    """One measurement: `samples` samples of one side at one shape. `position` is 0, 1 or 2 within its block."""

    shape: int
    block: int
    role: Role
    position: int
    samples: int


@dataclass(frozen=True)
class Measurement:
    """What a step gave.

    Attributes:
        step: what was measured.
        times_ms: one time a sample, of a single launch (a sample of n launches is divided by n).
        launches: launches in a sample.
        clocks_mhz: SM clock of each sample as NVBench saw it on the device, or None.
        start_s: CLOCK_MONOTONIC at the start, seconds; comparable between processes of one machine.
        end_s: the same at the end.
        utc: date and time of the start, ISO 8601.
        reading: NVML's readings right after.
    """

    step: Step
    times_ms: np.ndarray
    launches: int
    clocks_mhz: np.ndarray | None
    start_s: float
    end_s: float
    utc: str
    reading: Reading


@dataclass(frozen=True)
class ShapePlan:
    """How often a shape is measured; `baseline_samples` is 0 where there is no baseline."""

    blocks: int
    variant_samples: int
    baseline_samples: int


@dataclass(frozen=True)
class Interval:
    """A median over blocks and its 95 % bootstrap interval, which is None with fewer than 8 blocks."""

    median: float
    low: float | None
    high: float | None


def samples_for(sample_ms: float, repeats: int, block_ms: float) -> int:
    """Samples of one side in a block: as many as fill `block_ms`, from one to `repeats`.

    One is enough for a slow launch: on an H200 the intervals of FP32 kernels at 2048^3 and above stayed within 0.4 %
    with a single sample in each of 8 blocks.
    """
    return min(repeats, int(np.ceil(block_ms / sample_ms))) if sample_ms > 0 else repeats


def schedule(plans: Sequence[ShapePlan], seed: int) -> list[Step]:
    """The steps in the order of measuring: blocks of all shapes shuffled by `seed`, each block kept together."""
    order = [(shape, block) for shape, plan in enumerate(plans) for block in range(plan.blocks)]
    order = [order[index] for index in np.random.default_rng(seed).permutation(len(order))]
    steps = []
    for shape, block in order:
        plan = plans[shape]
        # The two baselines of a block share its samples, so that both sides are seen equally often.
        beside = (plan.baseline_samples + 1) // 2
        if beside:
            steps.append(Step(shape, block, "baseline", 0, beside))
        steps.append(Step(shape, block, "variant", 1, plan.variant_samples))
        if beside:
            steps.append(Step(shape, block, "baseline", 2, beside))
    return steps


def block_values(measurements: Sequence[Measurement]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Per block of one shape, in order: the variant's median time, the baseline's, and their ratio.

    The baseline's is the median over its samples before and after, so that a steady drift cancels out. The last two
    arrays are empty without a baseline. A ratio over 1 means that the variant is faster.
    """
    blocks: dict[int, dict[Role, list[np.ndarray]]] = {}
    for measurement in measurements:
        sides = blocks.setdefault(measurement.step.block, {"variant": [], "baseline": []})
        sides[measurement.step.role].append(measurement.times_ms)
    ordered = [blocks[block] for block in sorted(blocks)]
    variant = np.array([np.median(np.concatenate(sides["variant"])) for sides in ordered])
    if not all(sides["baseline"] for sides in ordered):
        return variant, np.array([]), np.array([])
    baseline = np.array([np.median(np.concatenate(sides["baseline"])) for sides in ordered])
    return variant, baseline, baseline / variant


def interval(values: np.ndarray, seed: int) -> Interval:
    """The median of `values` over blocks with its percentile bootstrap interval (Efron and Tibshirani, chapter 13).

    The same as scipy.stats.bootstrap's, whose import takes longer than all timings of a fast kernel.
    """
    median = float(np.median(values))
    if values.size < LEAST_BLOCKS:
        return Interval(median, None, None)
    chosen = np.random.default_rng(seed).integers(values.size, size=(_RESAMPLES, values.size))
    tail = (1 - _CONFIDENCE) / 2
    low, high = np.quantile(np.median(values[chosen], axis=1), (tail, 1 - tail))
    return Interval(median, float(low), float(high))

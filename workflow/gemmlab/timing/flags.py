"""Flags: what about a timing a reader must know before trusting it. Pure functions on numbers; nothing is dropped.

| flag | meaning |
|---|---|
| throttled | the card gave a reason for slowing down beside a block: power, temperature or a hardware brake |
| low_clock | the SM clock of a block was over 5 % below the highest, whether the card said why or not |
| drift | the times rise or fall by over 5 % from the first sample to the last (Theil-Sen slope) |
| noisy | the ratio's interval reaches over 1 % (3 % for small problems), or a sample took over twice the median |
| implausible | faster than the device's peak: not ranked |
| few_samples | fewer than 8 blocks: no interval |
| shared_card | another process had a context on the card |
| no_warmup | timed without untimed launches before |
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from gemmlab.timing.telemetry import slowing

LEAST_BLOCKS = 8
_CLOCK_DROP = 0.05
_DRIFT = 0.05
_DRIFT_LEAST_SAMPLES = 8
_OUTLIER = 2.0
_NARROW, _NARROW_SMALL = 0.01, 0.03
# Problems of 2048^3 and more run long enough for the narrow limit.
_LARGE_FMAS = 2048**3


def throttled(reasons: Iterable[int | None]) -> bool:
    """Whether NVML gave a reason that slows the card down; a clock that still rises from idle has none."""
    return any(slowing(reason) for reason in reasons)


def low_clock(clocks_mhz: Iterable[float | None], highest_clock_mhz: float | None) -> bool:
    """Whether a block's SM clock was over 5 % below the highest (both MHz); unknown clocks blame nothing."""
    known = [clock for clock in clocks_mhz if clock is not None]
    return bool(known and highest_clock_mhz and min(known) < (1 - _CLOCK_DROP) * highest_clock_mhz)


def drift(times_ms: Sequence[float] | np.ndarray) -> bool:
    """Whether samples in the order of time follow a line that rises or falls by over 5 % of their median.

    The Theil-Sen slope is the median of all slopes between two samples, so single outliers don't move it.
    """
    times = np.asarray(times_ms, dtype=float)
    if times.size < _DRIFT_LEAST_SAMPLES:
        return False
    first, second = np.triu_indices(times.size, k=1)
    slope = np.median((times[second] - times[first]) / (second - first))
    return bool(abs(slope) * (times.size - 1) > _DRIFT * np.median(times))


def noisy(
    times_ms: Sequence[float] | np.ndarray,
    ratio: float | None,
    ratio_low: float | None,
    ratio_high: float | None,
    fmas: int,
) -> bool:
    """Whether the ratio's interval reaches too far from the ratio, or a sample took over twice the median."""
    times = np.asarray(times_ms, dtype=float)
    if times.size and times.max() > _OUTLIER * np.median(times):
        return True
    if ratio is None or ratio_low is None or ratio_high is None:
        return False
    allowed = _NARROW if fmas >= _LARGE_FMAS else _NARROW_SMALL
    return max(ratio_high - ratio, ratio - ratio_low) > allowed * ratio


def implausible(tflops: float, peak_tflops: float | None) -> bool:
    """Whether a rate exceeds the device's peak; never where the peak isn't known."""
    return peak_tflops is not None and tflops > peak_tflops


def few_samples(blocks: int) -> bool:
    """Whether there are too few blocks for an interval."""
    return blocks < LEAST_BLOCKS


def shared_card(other_processes: Iterable[frozenset[int]]) -> bool:
    """Whether any reading showed a process of others on the card."""
    return any(other_processes)


def no_warmup(warmup: int) -> bool:
    """Whether nothing was launched untimed before the first block."""
    return warmup == 0

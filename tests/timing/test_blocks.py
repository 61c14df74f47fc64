from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import scipy.stats

from gemmlab.timing.blocks import (
    Measurement,
    ShapePlan,
    Step,
    block_values,
    interval,
    samples_for,
    schedule,
)
from gemmlab.timing.telemetry import Reading


def measurement(block: int, position: int, times: list[float]) -> Measurement:
    role = "variant" if position == 1 else "baseline"
    step = Step(0, block, role, position, len(times))
    return Measurement(step, np.array(times), 1, None, 0.0, 1.0, "", Reading())


def test_every_block_is_baseline_variant_baseline_without_a_gap() -> None:
    steps = schedule([ShapePlan(8, 5, 5), ShapePlan(8, 3, 3)], seed=1)
    assert len(steps) == 2 * 8 * 3
    for start in range(0, len(steps), 3):
        before, variant, after = steps[start : start + 3]
        assert {(s.shape, s.block) for s in (before, variant, after)} == {(variant.shape, variant.block)}
        assert [s.role for s in (before, variant, after)] == ["baseline", "variant", "baseline"]
        assert before.samples + after.samples == variant.samples + 1


def test_the_order_is_shuffled_by_the_seed_and_complete() -> None:
    plans = [ShapePlan(8, 1, 0), ShapePlan(8, 1, 0), ShapePlan(8, 1, 0)]
    first, again, other = (schedule(plans, seed) for seed in (1, 1, 2))
    assert first == again
    assert first != other
    assert first != sorted(first, key=lambda step: (step.shape, step.block))
    assert Counter(step.shape for step in first) == {0: 8, 1: 8, 2: 8}


def test_without_a_baseline_only_the_variant_is_measured() -> None:
    assert {step.role for step in schedule([ShapePlan(8, 4, 0)], seed=1)} == {"variant"}


def test_a_block_s_ratio_is_the_median_baseline_before_and_after_over_the_variant_s_median() -> None:
    blocks = [
        measurement(0, 0, [2.0, 2.0]),
        measurement(0, 1, [1.0, 1.0, 50.0]),
        measurement(0, 2, [4.0, 4.0]),
        measurement(1, 0, [3.0]),
        measurement(1, 1, [2.0]),
        measurement(1, 2, [3.0]),
    ]
    variant, baseline, ratio = block_values(blocks)
    assert variant.tolist() == [1.0, 2.0]
    assert baseline.tolist() == [3.0, 3.0]
    assert ratio.tolist() == [3.0, 1.5]


def test_a_steady_drift_within_a_block_leaves_the_ratio_at_one() -> None:
    _, _, ratio = block_values([measurement(0, position, [1.0 + 0.1 * position]) for position in range(3)])
    assert ratio[0] == pytest.approx(1.0)


def test_one_outlier_of_fifty_leaves_the_median_and_is_not_dropped() -> None:
    times = [[1.0, 1.0, 1.0] for _ in range(8)]
    times[3][1] = 50.0
    variant, _, _ = block_values([measurement(block, 1, values) for block, values in enumerate(times)])
    assert interval(variant, seed=1).median == 1.0
    assert variant.size == 8


def test_the_interval_holds_the_median_and_tightens_with_the_blocks() -> None:
    generator = np.random.default_rng(5)
    few, many = generator.normal(1, 0.02, 8), generator.normal(1, 0.02, 64)
    wide, narrow = interval(few, seed=1), interval(many, seed=1)
    assert wide.low <= wide.median <= wide.high
    assert narrow.high - narrow.low < wide.high - wide.low
    assert interval(few, seed=1) == wide


def test_the_interval_is_scipy_s_percentile_bootstrap() -> None:
    values = np.random.default_rng(7).normal(1, 0.02, 12)
    theirs = scipy.stats.bootstrap((values,), np.median, method="percentile", rng=1).confidence_interval
    ours = interval(values, seed=1)
    assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high), abs=1e-3)


def test_fewer_than_eight_blocks_give_no_interval() -> None:
    result = interval(np.array([1.0, 2.0, 3.0, 1.0, 2.0, 3.0, 2.0]), seed=1)
    assert (result.median, result.low, result.high) == (2.0, None, None)


def test_equal_blocks_give_an_interval_of_no_width() -> None:
    assert interval(np.full(8, 0.5), seed=1).low == interval(np.full(8, 0.5), seed=1).high == 0.5


@pytest.mark.parametrize(
    ("launch_ms", "samples"), [(0.0, 8), (0.01, 8), (0.7, 8), (2.7, 2), (5.0, 1), (14.0, 1), (400.0, 1)]
)
def test_slow_launches_get_fewer_samples_but_one(launch_ms: float, samples: int) -> None:
    assert samples_for(launch_ms, repeats=8, block_ms=5) == samples

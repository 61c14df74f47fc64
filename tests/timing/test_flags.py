from __future__ import annotations

import numpy as np
import pytest
import scipy.stats

from gemmlab.timing import flags

STEADY = np.random.default_rng(3).normal(1.0, 0.005, 64)
POWER_CAP, IDLE = 0x4, 0x1


def test_a_linear_rise_of_ten_percent_is_drift() -> None:
    assert flags.drift(STEADY * np.linspace(1.0, 1.1, 64))
    assert flags.drift(STEADY * np.linspace(1.1, 1.0, 64))


def test_steady_samples_and_single_outliers_are_no_drift() -> None:
    assert not flags.drift(STEADY)
    late_outlier = STEADY.copy()
    late_outlier[-1] = 50.0
    assert not flags.drift(late_outlier)


def test_the_slope_is_scipy_s() -> None:
    times = STEADY * np.linspace(1.0, 1.1, 64)
    whole_rise = scipy.stats.theilslopes(times).slope * 63 / np.median(times)
    assert flags.drift(
        times * 1.0,
    )
    assert flags.drift(1 + (times - 1) * 0.06 / whole_rise)
    assert not flags.drift(1 + (times - 1) * 0.04 / whole_rise)


def test_a_handful_of_samples_shows_no_drift() -> None:
    assert not flags.drift([1.0, 1.2, 1.4])


def test_a_fifty_fold_outlier_is_noise_and_leaves_the_median() -> None:
    times = STEADY.copy()
    times[10] = 50.0
    assert flags.noisy(times, None, None, None, 2048**3)
    assert np.median(times) == pytest.approx(np.median(STEADY), rel=1e-3)


@pytest.mark.parametrize(
    ("low", "high", "fmas", "raised"),
    [
        (0.995, 1.005, 2048**3, False),
        (0.995, 1.011, 2048**3, True),
        (0.985, 1.005, 2048**3, True),
        (0.985, 1.02, 1024**3, False),
        (0.96, 1.02, 1024**3, True),
    ],
)
def test_a_wide_interval_of_the_ratio_is_noise(low: float, high: float, fmas: int, raised: bool) -> None:
    assert flags.noisy(STEADY, 1.0, low, high, fmas) is raised


@pytest.mark.parametrize(
    ("reasons", "raised"),
    [
        ([IDLE, 0], False),
        ([0, POWER_CAP], True),
        ([POWER_CAP | IDLE], True),
        ([0x2, 0x100], False),
        ([None], False),
    ],
)
def test_only_a_reason_of_the_card_s_is_throttling(reasons: list, raised: bool) -> None:
    assert flags.throttled(reasons) is raised


@pytest.mark.parametrize(
    ("clocks", "raised"), [([1980, 1800], True), ([1980, 1900], False), ([None, 1980], False), ([], False)]
)
def test_a_clock_over_five_percent_below_the_highest_is_low(clocks: list, raised: bool) -> None:
    assert flags.low_clock(clocks, 1980) is raised


def test_an_unknown_highest_clock_blames_no_clock() -> None:
    assert not flags.low_clock([1000], None)


def test_faster_than_the_peak_is_implausible() -> None:
    assert flags.implausible(67.0, 66.9)
    assert not flags.implausible(66.9, 66.9)
    assert not flags.implausible(1e6, None)


def test_fewer_than_eight_blocks_are_few_samples() -> None:
    assert flags.few_samples(7)
    assert not flags.few_samples(8)


def test_another_process_in_any_reading_is_a_shared_card() -> None:
    assert flags.shared_card([frozenset(), frozenset({7})])
    assert not flags.shared_card([frozenset(), frozenset()])


def test_no_untimed_launches_are_flagged() -> None:
    assert flags.no_warmup(0)
    assert not flags.no_warmup(1)

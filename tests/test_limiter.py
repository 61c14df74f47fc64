from __future__ import annotations

import publish_cases as cases
import pytest

from gemmlab import limiter
from gemmlab.limiter import Limiter, find_limiter
from gemmlab.ncu_metrics import STANDARD, stall_metric

DRAM = "dram__throughput.avg.pct_of_peak_sustained_elapsed"
L2 = "lts__throughput.avg.pct_of_peak_sustained_elapsed"
L1 = "l1tex__throughput.avg.pct_of_peak_sustained_active"
LSU = "sm__inst_executed_pipe_lsu.avg.pct_of_peak_sustained_active"
FMA = "sm__pipe_fma_cycles_active.avg.pct_of_peak_sustained_active"
TENSOR = "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active"
ISSUE = "smsp__issue_active.avg.pct_of_peak_sustained_active"
AT_WORK = "sm__cycles_active.avg.pct_of_peak_sustained_elapsed"
WARPS = "sm__warps_active.avg.pct_of_peak_sustained_active"

IDLE = {
    DRAM: 5.0,
    L2: 10.0,
    L1: 30.0,
    LSU: 20.0,
    FMA: 25.0,
    TENSOR: 0.0,
    ISSUE: 40.0,
    AT_WORK: 97.0,
    WARPS: 90.0,
}


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        # Traffic with the SM idle, as article A tells of its naive kernel.
        ({DRAM: 90.0}, "DRAM (90 %)"),
        ({L2: 85.0, DRAM: 62.0}, "L2 (85 %)"),
        # A naive kernel that the caches feed: the load-store unit is full, device memory isn't.
        ({L1: 92.0, DRAM: 15.0}, "L1 and shared memory (92 %)"),
        # The pipe may be fuller than what ncu calls the throughput of L1.
        ({L1: 55.0, LSU: 71.0}, "L1 and shared memory (71 %)"),
        # A register tile: as much as cuBLAS reaches, with most issue slots taken by the multiply-adds.
        ({FMA: 79.0, ISSUE: 90.0, L1: 40.0, WARPS: 12.5}, "FMA issue (79 %)"),
        ({TENSOR: 82.0, L1: 64.0}, "tensor cores (82 %)"),
        ({ISSUE: 88.0}, "instruction issue (88 %)"),
        # 64 blocks on 132 SMs: whatever the busy ones do, half of the card waits.
        ({AT_WORK: 48.0, FMA: 85.0}, "tail (SMs at work 48 %)"),
        # A saturated memory serves all SMs, so idle SMs aren't to blame.
        ({AT_WORK: 48.0, DRAM: 88.0}, "DRAM (88 %)"),
        ({WARPS: 12.5}, "occupancy (warps active 12 %)"),
        ({}, "latency"),
    ],
)
def test_the_rule(changed, expected):
    assert str(find_limiter(IDLE | changed)) == expected


def test_latency_says_what_the_warps_wait_for():
    stalls = {
        stall_metric("long_scoreboard"): 3.0,
        stall_metric("barrier"): 5.0,
        stall_metric("not_selected"): 9.0,
    }
    assert find_limiter(IDLE | stalls) == Limiter(limiter.LATENCY, wait="a barrier")
    assert str(find_limiter(IDLE | stalls)) == "latency (waits for a barrier)"


@pytest.mark.parametrize("edge", [limiter.SATURATED, limiter.SATURATED - 0.1])
def test_a_resource_limits_from_its_threshold_on(edge):
    found = find_limiter(IDLE | {DRAM: edge})
    assert (found.kind == limiter.DRAM) == (edge >= limiter.SATURATED)


def test_without_a_throughput_nothing_is_said():
    assert find_limiter({}) is None
    assert find_limiter({WARPS: 3.0, DRAM: None}) is None


def test_every_metric_of_the_rule_is_collected():
    collected = {metric.name for metric in STANDARD}
    assert set(IDLE) <= collected
    used = {name for names in limiter._UTILISATION.values() for name in names}
    used |= {limiter._ISSUE, limiter._AT_WORK, limiter._WARPS} | {
        stall_metric(reason) for reason in limiter._WAITS
    }
    assert used <= collected


def test_metrics_are_those_of_the_longest_launch_at_the_shape():
    shape = cases.HEADLINE
    rows = []
    for launch, duration, busy in ((1, 5.0, 80.0), (2, 50.0, 20.0)):
        rows.append(cases.metric("x", shape, "gpu__time_duration.sum", duration, launch=launch))
        rows.append(cases.metric("x", shape, DRAM, busy, launch=launch))
    rows.append(cases.metric("x", (1, 1, 1), DRAM, 99.0, launch=2))
    rows.append(cases.metric("x", shape, L2, None, launch=2))
    assert limiter.launch_metrics(rows, shape) == {"gpu__time_duration.sum": 50.0, DRAM: 20.0}
    assert limiter.launch_metrics([], shape) == {}

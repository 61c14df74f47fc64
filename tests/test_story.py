from __future__ import annotations

import claim_cases as runs
import publish_cases as cases
import pytest
from claim_cases import HEADLINE, SMALL, count, entry, make_run, profile

from gemmlab.limiter import Limiter
from gemmlab.ncu_metrics import stall_metric
from gemmlab.schema import validate
from gemmlab.story import (
    Quantity,
    changes_in_words,
    emulator_sentence,
    gpu_sentence,
    heaviest_demand,
    story_rows,
)

REQUESTS = "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum"
SECTORS = "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"
STORED = "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum"
SHARED = [
    f"l1tex__data_{what}_mem_shared_op_{kind}.sum"
    for what in ("pipe_lsu_wavefronts", "bank_conflicts_pipe_lsu")
    for kind in ("ld", "st")
]
DRAM = "dram__throughput.avg.pct_of_peak_sustained_elapsed"
L1 = "l1tex__throughput.avg.pct_of_peak_sustained_active"
WARPS = "sm__warps_active.avg.pct_of_peak_sustained_active"
SM = "sm__throughput.avg.pct_of_peak_sustained_elapsed"


def counters(requests, sectors, wavefronts, *, conflicts=0, instructions=1000, barriers=0):
    return {
        REQUESTS: requests,
        SECTORS: sectors,
        STORED: 0,
        SHARED[0]: wavefronts,
        SHARED[1]: 0,
        SHARED[2]: conflicts,
        SHARED[3]: 0,
        "ptx_instructions": instructions,
        "ptx_block_barriers": barriers,
        "ptx_thread_fma": 128**3,
    }


def emulated(before, after, **fields):
    naive = entry(cases.kernel("naive"), gpu=False, count=count("naive", {SMALL: before}))
    tile = entry(
        cases.kernel("tile", compared_with="naive"), gpu=False, count=count("tile", {SMALL: after}, **fields)
    )
    return story_rows(make_run([naive, tile]), HEADLINE)


def test_the_emulator_tells_traffic_and_where_the_work_went():
    (row,) = emulated(counters(131072, 262144, 0), counters(8192, 32768, 106496, barriers=1024))
    assert (row["variant"], row["compared_with"], row["source"]) == ("tile", "naive", "emulator")
    assert (row["m"], row["n"], row["k"]) == SMALL
    assert row["requests_ratio"] == 0.0625
    assert row["l1_sectors_ratio"] == 0.125
    assert row["shared_wavefronts_ratio"] is None
    assert "time_ratio" not in row
    assert (row["limiter_before"], row["limiter_after"]) == ("global loads", "shared memory")
    assert row["story"] == (
        "Against naive: global load requests x 0.0625, sectors asked of L1 x 0.125, "
        "shared-memory wavefronts 0 to 106,496, barriers 0 to 1,024; "
        "most of an SM's cycles went to global loads and go to shared memory now."
    )
    validate(row, "story", "row")


def test_a_story_without_a_change_says_so():
    same = counters(8192, 32768, 106496)
    (row,) = emulated(same, same)
    assert (
        row["story"]
        == "Nothing that is counted differs from naive; most of an SM's cycles still go to shared memory."
    )


def test_a_variant_that_was_not_counted_has_no_story_but_a_reason():
    naive = entry(cases.kernel("naive"), gpu=False, count=count("naive", {SMALL: counters(1, 1, 1)}))
    run = make_run([naive, entry(cases.kernel("tile", compared_with="naive"), gpu=False)])
    (row,) = story_rows(run, HEADLINE)
    assert row["status"] == "unavailable"
    assert "story" not in row
    assert row["reason"] == "the emulator counted the two at no common shape"


def test_only_variants_with_a_partner_in_the_run_have_a_story():
    alone = entry(cases.kernel("tile", compared_with="absent"), gpu=False)
    broken = entry(cases.kernel("broken", kind="broken", compared_with="tile", stands_for="x"), gpu=False)
    assert story_rows(make_run([alone, broken]), HEADLINE) == []


def measured(name, time_ms, metrics, **fields):
    variant = cases.kernel(name, **fields)
    row = cases.timing(name, HEADLINE, "cold", 10.0) | {"time_ms_median": time_ms}
    return entry(variant, bench=[row], profile=profile(name, {HEADLINE: metrics}))


def test_a_gpu_adds_time_waits_occupancy_and_the_bottleneck_that_moved():
    before = {
        SM: 20.0,
        DRAM: 91.0,
        L1: 30.0,
        WARPS: 95.0,
        "smsp__inst_executed.sum": 1000.0,
        stall_metric("long_scoreboard"): 9.0,
    }
    after = {
        SM: 80.0,
        DRAM: 20.0,
        L1: 85.0,
        WARPS: 90.0,
        "smsp__inst_executed.sum": 600.0,
        stall_metric("mio_throttle"): 4.0,
    }
    run = make_run([measured("naive", 20.0, before), measured("tile", 8.0, after, compared_with="naive")])
    rows = {row["source"]: row for row in story_rows(run, HEADLINE)}
    row = rows["gpu"]
    assert row["time_ratio"] == 0.4
    assert row["instructions_ratio"] == 0.6
    assert (row["occupancy_before"], row["occupancy_after"]) == (95, 90)
    assert (row["wait_before"], row["wait_after"]) == ("global or local memory", "the queue of shared memory")
    assert (row["limiter_before"], row["limiter_after"]) == ("DRAM (91 %)", "L1 and shared memory (85 %)")
    assert row["story"] == (
        "2.5 times as fast as naive: instructions x 0.6; warps waited most for global or local memory "
        "and wait for the queue of shared memory now; "
        "the bottleneck moved from DRAM (91 %) to L1 and shared memory (85 %)."
    )
    assert rows["emulator"]["status"] == "unavailable"
    validate(row, "story", "row")


def test_times_make_a_story_without_a_profile_and_nothing_without_times():
    unavailable = cases.unavailable_rows(cases.kernel("x"), "profile", "ncu is not installed")
    pair = [measured("naive", 10.0, {}), measured("tile", 8.0, {}, compared_with="naive")]
    run = make_run([runs.entry(each.variant, bench=each.bench, profile=unavailable) for each in pair])
    gpu = next(row for row in story_rows(run, HEADLINE) if row["source"] == "gpu")
    assert gpu["story"] == "1.25 times as fast as naive: nothing that is counted changed."
    run = make_run([entry(each.variant) for each in pair])
    gpu = next(row for row in story_rows(run, HEADLINE) if row["source"] == "gpu")
    assert gpu["status"] == "unavailable"
    assert "was not timed" in gpu["reason"]


@pytest.mark.parametrize(
    ("ratio", "limiters", "expected"),
    [
        (
            0.5,
            ("DRAM", "DRAM"),
            "2 times as fast as naive: a x 2; the bottleneck stays: DRAM (80 %) before, DRAM (70 %) after.",
        ),
        (
            1.3,
            ("DRAM", "L2"),
            "1.3 times as slow as naive: a x 2; the bottleneck moved from DRAM (80 %) to L2 (70 %).",
        ),
        (0.98, ("DRAM", None), "As fast as naive (time x 0.98): a x 2."),
    ],
)
def test_the_sentence_of_a_gpu(ratio, limiters, expected):
    found = [kind and Limiter(kind, percent) for kind, percent in zip(limiters, (80, 70), strict=True)]
    assert gpu_sentence("naive", ratio, ["a x 2"], (None, None), found) == expected


def test_small_changes_are_not_told():
    quantities = (Quantity("a", "a"), Quantity("b", "b", absolute=True), Quantity("c", "c"))
    assert changes_in_words(quantities, {"a": (100, 104), "b": (31, 32), "c": (10, 10)}) == []
    assert changes_in_words(quantities, {"a": (100, 50), "b": (31, 64), "c": (0, 7)}) == [
        "a x 0.5",
        "b 31 to 64",
        "c 0 to 7",
    ]
    assert changes_in_words(quantities, {}) == []


def test_the_heaviest_demand_is_the_one_with_most_cycles():
    assert heaviest_demand({"global loads": 10, "shared memory": 30, "multiply-adds": 20}) == "shared memory"
    assert emulator_sentence("x", [], ["a", "b"]).endswith(
        "most of an SM's cycles went to a and go to b now."
    )

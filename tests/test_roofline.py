from __future__ import annotations

import claim_cases as runs
import publish_cases as cases
import pytest
from claim_cases import HEADLINE, entry, make_run, probe_record, profile

from gemmlab import figures
from gemmlab.roofline import Ceilings, ceilings, points

PROBES = {
    "probe_bandwidth": probe_record(
        "probe_bandwidth", global_rate=[1000.0, 1000.0], shared_rate=[8000.0, 8000.0]
    ),
    "probe_multiply_add": probe_record("probe_multiply_add", rate=[8000.0, 8000.0]),
}


def measured(name, tflops, dram_bytes, sectors, wavefronts, **fields):
    variant = cases.kernel(name, **fields)
    values = {
        "dram__bytes_read.sum": dram_bytes / 2,
        "dram__bytes_write.sum": dram_bytes / 2,
        "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum": sectors,
        "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum": 0.0,
        "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum": wavefronts,
        "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum": 0.0,
    }
    row = cases.timing(name, HEADLINE, "cold", tflops, arithmetic=variant.arithmetic)
    return entry(variant, bench=[row], profile=profile(name, {HEADLINE: values}))


@pytest.fixture
def run():
    return make_run(
        [
            measured("naive", 5.0, 1e9, 1e9, 0.0, articles=("S1",)),
            measured("tile", 10.0, 4e8, 1e8, 2e9),
            measured("half", 90.0, 4e8, 1e8, 2e9, arithmetic="fp16"),
            entry(cases.kernel("untimed")),
        ]
    )


def test_ceilings_are_cycles_times_the_clock_of_the_timings():
    timings = [
        cases.timing("x", runs.cube(512), "cold", 9.0, sm_clock_mhz=clock) for clock in (1700, 1800, 1900)
    ]
    timings.append(cases.timing("x", runs.cube(512), "cold", 9.0, sm_clock_mhz=300, status="failed"))
    found = ceilings(PROBES, timings)
    assert found == Ceilings(pytest.approx(57.6), pytest.approx(3.6), pytest.approx(28.8), 1800)
    # Without a timing the probes' own card states its highest clock.
    assert ceilings(PROBES, []).clock_mhz == 2000


@pytest.mark.parametrize(
    ("probes", "reason"),
    [
        ({}, "probe_bandwidth was not run."),
        (
            PROBES | {"probe_multiply_add": {"status": "failed", "reason": "a hang"}},
            "probe_multiply_add: failed, a hang.",
        ),
    ],
)
def test_without_probes_there_are_no_ceilings_but_a_reason(probes, reason):
    assert ceilings(probes, []) == reason


def test_points_are_the_fp32_variants_that_were_timed_and_profiled(run):
    found = {
        point.variant: point
        for point in points(run.tables["timings"], run.tables["counters"], run.catalogue, HEADLINE)
    }
    assert set(found) == {"naive", "tile"}
    flops = 2 * 4096**3
    assert found["naive"].dram_intensity == pytest.approx(flops / 1e9)
    assert found["tile"].l1_intensity == pytest.approx(flops / (32e8 + 128 * 2e9))


def test_the_figure_or_a_note(run):
    tables = run.tables
    drawn = figures.roofline(tables["timings"], tables["counters"], PROBES, run.catalogue, HEADLINE)
    assert drawn.figure is not None
    assert [axes.get_title(loc="left") for axes in drawn.figure.axes] == [
        "Device memory: 3.96 TB/s",
        "L1 and shared memory: 31.7 TB/s",
    ]
    assert "63.4 TFLOP/s" in drawn.caption
    assert figures.save(drawn, None)["svg"].startswith(b"<?xml")
    without = figures.roofline(tables["timings"], tables["counters"], {}, run.catalogue, HEADLINE)
    assert without.figure is None
    assert "probe_bandwidth was not run" in without.note
    nothing = figures.roofline(tables["timings"], tables["counters"], PROBES, run.catalogue, (1, 1, 1))
    assert "timed and profiled" in nothing.note

from __future__ import annotations

import claim_cases as runs
import publish_cases as cases
import pytest
from claim_cases import SMALL, SQUARE, count, entry, make_run, profile

from gemmlab.article_tables import article_rows
from gemmlab.catalogue import Variant
from gemmlab.claims import load_claims
from gemmlab.schema import columns, validate

DRAM = "dram__throughput.avg.pct_of_peak_sustained_elapsed"
SM = "sm__throughput.avg.pct_of_peak_sustained_elapsed"
WARPS = "sm__warps_active.avg.pct_of_peak_sustained_active"
SECTORS = "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"


@pytest.fixture(scope="module")
def reported():
    return load_claims()["tables"]


def timed(name, edge, time_ms, **fields):
    row = cases.timing(name, runs.cube(edge), "cold", 2e-9 * edge**3 / time_ms)
    return row | {"time_ms_median": time_ms} | fields


def test_what_the_articles_report_stands_beside_and_the_rest_is_blank(reported, catalogue):
    rows = article_rows(make_run([entry(catalogue["naive"], gpu=False)]), reported)
    for name, table in rows.items():
        for row in table:
            validate({column: row.get(column) for column in columns(name)}, name, "row")
    ladder = {row["variant"]: row for row in rows["article_a"]}
    assert ladder["naive"]["reported_time_ms"] == 1.6
    assert ladder["naive"]["reported_dram_percent"] == 90
    assert ladder["register4x4"]["reported_time_ms"] is None
    assert ladder["naive"]["reason"] == "needs a GPU"
    # Figures that the articles leave out are never filled in.
    known = {
        name: {key for key in row if key.startswith("reported") and row[key] is not None}
        for name, row in ladder.items()
    }
    assert known["register2x2"] == known["register4x4"] == known["register8x8"] == set()
    assert known["cublas_fp32"] == {"reported_time_ms"}
    sizes = {row["m"]: row for row in rows["article_b"]}
    assert sizes[2048]["reported_naive_ms"] == 148.3
    assert sizes[2048].get("naive_ms") is None
    assert {row["status"] for table in rows.values() for row in table} == {"unavailable"}


def test_the_ladder_is_measured_at_1024(reported):
    naive = entry(
        cases.kernel("naive"),
        bench=[timed("naive", 1024, 0.4, percent_of_peak=8.0)],
        profile=profile("naive", {SQUARE: {DRAM: 12.0, SM: 70.0, WARPS: 95.0}}),
    )
    tile = entry(cases.kernel("tile16_padded"), bench=[timed("tile16_padded", 1024, 0.2, ratio=0.25)])
    rows = {row["variant"]: row for row in article_rows(make_run([naive, tile]), reported)["article_a"]}
    assert rows["naive"]["time_ms"] == 0.4
    assert rows["naive"]["speed_up"] == 1
    assert (rows["naive"]["dram_percent"], rows["naive"]["sm_percent"], rows["naive"]["warps_percent"]) == (
        12,
        70,
        95,
    )
    assert rows["naive"]["limiter"] == "latency"
    assert rows["tile16_padded"]["speed_up"] == 2
    assert rows["tile16_padded"]["percent_of_cublas"] == 25
    assert rows["tile16_padded"]["status"] == "ok"
    assert "dram__throughput" in rows["tile16_padded"]["reason"]
    assert rows["tile32"]["reason"] == "tile32 is not in this run"


def test_the_table_of_sizes_has_both_readings_of_naive(reported):
    times = {"naive": 8.0, "uncoalesced": 40.0, "tile16_padded_a": 4.0}
    run = make_run(
        [entry(cases.kernel(name), bench=[timed(name, 512, time)]) for name, time in times.items()]
    )
    row = article_rows(run, reported)["article_b"][0]
    assert (row["speed_up"], row["speed_up_over_uncoalesced"], row["reported_speed_up"]) == (2, 10, 6.7)
    assert row["status"] == "ok"


def test_traffic_goes_from_the_claim_to_device_memory(reported, catalogue):
    loads = 128**3 // 32 * 2
    tile = entry(
        catalogue["block_tile"],
        count=count(
            "block_tile",
            {SMALL: {"ptx_thread_global_loads": loads, SECTORS: loads // 8, "ptx_block_barriers": 256}},
        ),
        profile=profile(
            "block_tile",
            {
                SQUARE: {
                    SECTORS: 1000.0,
                    "lts__t_sectors_srcunit_tex_op_read.sum": 100.0,
                    "dram__bytes_read.sum": 400.0,
                }
            },
        ),
    )
    rows = {row["m"]: row for row in article_rows(make_run([tile]), reported)["article_c"]}
    small, large = rows[128], rows[1024]
    assert small["claimed_elements"] == 2 * 128**2
    assert small["modelled_elements"] == small["requested_elements"] == small["emulated_l1_elements"] == loads
    assert small["blocks"] == 16
    assert small["barriers_of_a_block"] == 16
    assert small["l1_elements"] is None
    assert (large["l1_elements"], large["l2_elements"], large["dram_elements"]) == (8000, 800, 100)
    assert large["requested_elements"] is None
    assert large["registers"] == 32
    assert "not profiled" in small["reason"] or "no " in small["reason"]


def test_a_baseline_has_its_row_too(reported):
    library = Variant("cublas_fp32", "baselines.yaml", "the library", kind="baseline", library="cublas")
    row = timed("cublas_fp32", 1024, 0.05, ratio=None, baseline=None, cubin_sha256=None)
    run = make_run(
        [entry(library, bench=[row]), entry(cases.kernel("naive"), bench=[timed("naive", 1024, 0.5)])]
    )
    rows = {row["variant"]: row for row in article_rows(run, reported)["article_a"]}
    assert rows["cublas_fp32"]["speed_up"] == 10
    assert rows["cublas_fp32"]["percent_of_cublas"] is None

from __future__ import annotations

from pathlib import Path

import publish_cases as cases
import pytest

from gemmlab import tables
from gemmlab.catalogue import Variant
from gemmlab.errors import GemmlabError
from gemmlab.files import repository_root, write_text
from gemmlab.schema import write_table


def build(results: Path, catalogue: dict[str, Variant]) -> dict[str, list[dict]]:
    return tables.build_tables(
        tables.read_records(results, catalogue), cases.HEADLINE, tables.read_environment(results)
    )


def row_of(rows: list[dict], variant: str, **fields: object) -> dict:
    found = [row for row in rows if row["variant"] == variant and fields.items() <= row.items()]
    assert len(found) == 1, found
    return found[0]


def one_kernel(results: Path, *, gpu: bool, **fields: object) -> dict[str, Variant]:
    catalogue = {"tile16": cases.kernel("tile16", **fields)}
    cases.write_run(results, catalogue, gpu=gpu)
    return catalogue


def test_summary_without_a_gpu_is_ok_where_the_check_passed_and_says_why_there_is_no_time(tmp_path):
    rows = build(tmp_path, cases.write_small_run(tmp_path, gpu=False))["summary"]
    naive = row_of(rows, "naive")
    assert naive["status"] == "ok"
    assert naive["time_ms"] is None
    assert naive["percent_of_baseline"] is None
    assert naive["reason"] == "time unavailable: this run has no GPU"
    assert naive["check"] == "300/300 emulator"
    assert naive["registers"] == 35
    assert naive["environment"] == cases.environment_record(False)["id"]


def test_summary_tells_each_fate(tmp_path):
    rows = build(tmp_path, cases.write_small_run(tmp_path, gpu=False))["summary"]
    states = {row["variant"]: row["status"] for row in rows}
    assert states == {
        "cublas_fp32": "unavailable",
        "naive": "ok",
        "tile16": "ok",
        "tile32": "ok",
        "register4x4": "ok",
        "does_not_compile": "failed",
        "wrong_result": "failed",
        "tensor_cores": "unavailable",
    }
    assert row_of(rows, "does_not_compile")["reason"].startswith("compile: kernels/does_not_compile.cu(12)")
    assert row_of(rows, "wrong_result")["reason"].startswith("check on emulator: exact: 129 of 300")
    assert "wgmma" in row_of(rows, "tensor_cores")["reason"]


def test_summary_with_a_gpu_takes_the_cold_row_of_the_headline_shape(tmp_path):
    catalogue = cases.write_small_run(tmp_path, gpu=True)
    rows = build(tmp_path, catalogue)["summary"]
    naive = row_of(rows, "naive")
    cold = next(row for row in cases.timings("naive", 55.0) if row["m"] == 4096 and row["cache"] == "cold")
    assert naive["check"] == "300/300 emulator, 300/300 cuda"
    assert naive["percent_of_baseline"] == pytest.approx(2 * naive["tflops"])
    assert 0 < naive["tflops"] < cold["tflops"]
    assert row_of(rows, "cublas_fp32")["percent_of_baseline"] == 100
    assert row_of(rows, "tensor_cores")["status"] == "ok"
    assert row_of(rows, "tensor_cores")["time_ms"] is not None


@pytest.mark.parametrize(
    ("missing", "reason"),
    [("build/tile16.json", "not run: no record of its build"), ("check/emulator/tile16.json", "not checked")],
)
def test_a_variant_that_was_never_run_is_not_ok(tmp_path, missing, reason):
    catalogue = one_kernel(tmp_path, gpu=False)
    (tmp_path / missing).unlink()
    row = row_of(build(tmp_path, catalogue)["summary"], "tile16")
    assert row["status"] == "unavailable"
    assert row["reason"].startswith(reason)


def test_a_check_missing_on_one_executor_is_told_in_checks(tmp_path):
    catalogue = cases.small_catalogue()
    cases.write_run(tmp_path, catalogue, gpu=True)
    (tmp_path / "check" / "cuda" / "tile16.json").unlink()
    built = build(tmp_path, catalogue)
    assert row_of(built["checks"], "tile16", executor="cuda")["status"] == "unavailable"
    timing = row_of(built["timings"], "tile16", m=4096, cache="cold")
    assert timing["status"] == "skipped"
    assert timing["flags"] == "unchecked"


def test_checks_tell_in_how_many_problems_the_two_executors_bits_differ(tmp_path):
    catalogue = cases.small_catalogue()
    cases.write_run(tmp_path, catalogue, gpu=True)

    def differing(**digests):
        for executor, texts in digests.items():
            record = cases.check_record("tile16", executor, output_digests=texts)
            cases.write_record(tmp_path / "check" / executor / "tile16.json", record, "check")
        built = build(tmp_path, catalogue)
        assert row_of(built["checks"], "tile16", executor="emulator")["differs_from_emulator"] is None
        return row_of(built["checks"], "tile16", executor="cuda")["differs_from_emulator"]

    one, two, three = (letter * 12 for letter in "123")
    assert differing(emulator=[one, two, three], cuda=[one, two, three]) == 0
    assert differing(cuda=[one, three, two]) == 2
    assert differing(cuda=[one, None, three]) == 0
    assert differing(cuda=[one, two]) is None
    assert differing(cuda=None) is None


def test_a_check_of_another_build_counts_as_none(tmp_path):
    catalogue = one_kernel(tmp_path, gpu=False)
    old = cases.check_record("tile16", "emulator", cubin_sha256=cases.digest_of("older"))
    cases.write_record(tmp_path / "check" / "emulator" / "tile16.json", old, "check")
    built = build(tmp_path, catalogue)
    assert built["checks"][0]["status"] == "unavailable"
    assert "of another cubin" in built["checks"][0]["reason"]
    assert built["summary"][0]["status"] == "unavailable"


def test_a_time_of_another_cubin_is_not_ranked(tmp_path):
    catalogue = one_kernel(tmp_path, gpu=True)
    rows = cases.timings("tile16", 20.0, cubin_sha256=cases.digest_of("older"))
    write_table(tmp_path / "bench" / "tile16.csv", rows, "timings")
    built = build(tmp_path, catalogue)
    assert {row["status"] for row in built["timings"]} == {"skipped"}
    assert {row["flags"] for row in built["timings"]} == {"other_cubin"}
    assert built["timings"][0]["time_ms_median"] is not None
    assert built["summary"][0]["time_ms"] is None
    assert "another cubin" in built["summary"][0]["reason"]


def test_an_implausible_time_is_not_ranked(tmp_path):
    catalogue = one_kernel(tmp_path, gpu=True)
    rows = [cases.timing("tile16", cases.HEADLINE, "cold", 90.0, flags="noisy implausible")]
    write_table(tmp_path / "bench" / "tile16.csv", rows, "timings")
    cases.write_tables(tmp_path, catalogue)
    frames = cases.read_tables(tmp_path)
    assert tables.ranked(frames["timings"]).empty
    assert frames["summary"]["time_ms"].isna().all()
    assert "implausible" in frames["summary"].loc[0, "reason"]
    assert frames["summary"].loc[0, "status"] == "ok"


def test_a_headline_shape_that_was_skipped_makes_the_row_skipped(tmp_path):
    catalogue = one_kernel(tmp_path, gpu=True)
    slow = {"variant": "tile16", "arithmetic": "fp32", "m": 4096, "n": 4096, "k": 4096, "cache": "cold"}
    slow |= {"status": "skipped", "reason": "a launch takes 700 ms"}
    write_table(tmp_path / "bench" / "tile16.csv", [slow, *cases.timings("tile16", 5.0, (512,))], "timings")
    row = build(tmp_path, catalogue)["summary"][0]
    assert (row["status"], row["reason"]) == ("skipped", "time skipped: a launch takes 700 ms")


@pytest.mark.parametrize(("failed", "state"), [(False, "skipped"), (True, "failed")])
def test_a_probe_is_compiled_and_not_ranked(tmp_path, failed, state):
    catalogue = {"latency": cases.kernel("latency", kind="probe", baseline=None)}
    cases.write_record(
        tmp_path / "build" / "latency.json", cases.build_record("latency", failed=failed), "compile"
    )
    built = build(tmp_path, catalogue)
    assert built["summary"][0]["status"] == state
    assert built["checks"] == []


def test_registers_are_those_of_the_widest_launch(tmp_path):
    build_record = cases.build_record("x", registers=220)
    used = tables.resources(build_record)
    assert used["registers"] == 220
    assert used["spill_bytes"] == 112
    assert used["shared_bytes"] == 2048
    assert tables.resources(cases.build_record("x", failed=True)) == {}


def test_checks_hold_no_broken_kernel_and_broken_nothing_else(tmp_path):
    built = build(tmp_path, cases.write_small_run(tmp_path, gpu=True))
    assert not {row["variant"] for row in built["checks"]} & {"broken_caught", "broken_unnoticed"}
    assert {row["variant"] for row in built["broken"]} == {"broken_caught", "broken_unnoticed"}
    for table in ("summary", "timings", "counters"):
        assert "broken_caught" not in {row["variant"] for row in built[table]}


def test_broken_kernels_say_what_caught_them_and_where(tmp_path):
    rows = build(tmp_path, cases.write_small_run(tmp_path, gpu=True))["broken"]
    emulated = row_of(rows, "broken_caught", executor="emulator")
    assert emulated["status"] == "ok"
    assert emulated["caught_by"] == "wrong_values race"
    assert emulated["finding"].startswith("race: thread (3, 0, 0) reads")
    assert emulated["finding"].endswith(", broken_caught.cu:27")
    assert row_of(rows, "broken_unnoticed", executor="emulator")["status"] == "failed"


def sanitize_record(errors: int) -> dict:
    tools = {"racecheck": {"errors": errors, "first": "a race" if errors else None}}
    return {"variant": "broken_unnoticed", "status": "ok", "reason": None, "tools": tools}


@pytest.mark.parametrize(
    ("record", "state", "caught_by"),
    [
        (None, "unavailable", None),
        (
            {"variant": "broken_unnoticed", "status": "unavailable", "reason": "no sanitizer", "tools": {}},
            "unavailable",
            None,
        ),
        (sanitize_record(3), "ok", "racecheck"),
        (sanitize_record(0), "failed", None),
        (sanitize_record(3) | {"cubin_sha256": cases.digest_of("older")}, "unavailable", None),
        (
            sanitize_record(0) | {"tools": {"racecheck": {"errors": None, "reason": "timed out"}}},
            "unavailable",
            None,
        ),
    ],
)
def test_a_broken_kernel_that_passes_on_a_gpu_depends_on_the_sanitizer(tmp_path, record, state, caught_by):
    catalogue = cases.write_small_run(tmp_path, gpu=True)
    if record:
        cases.write_record(tmp_path / "sanitize" / "broken_unnoticed.json", record, "sanitize")
    row = row_of(build(tmp_path, catalogue)["broken"], "broken_unnoticed", executor="cuda")
    assert (row["status"], row["caught_by"]) == (state, caught_by)


def test_a_broken_kernel_that_ends_its_process_is_caught_by_the_fault(tmp_path):
    catalogue = cases.write_small_run(tmp_path, gpu=True)
    fault = cases.check_record(
        "broken_unnoticed", "cuda", "failed", failures=[], reason="device fault: misaligned"
    )
    cases.write_record(tmp_path / "check" / "cuda" / "broken_unnoticed.json", fault, "check")
    row = row_of(build(tmp_path, catalogue)["broken"], "broken_unnoticed", executor="cuda")
    assert (row["status"], row["caught_by"], row["finding"]) == ("ok", "fault", "device fault: misaligned")


def test_a_broken_kernel_that_does_not_compile_is_bad(tmp_path):
    catalogue = cases.write_small_run(tmp_path, gpu=False)
    record = cases.build_record("broken_caught", failed=True)
    cases.write_record(tmp_path / "build" / "broken_caught.json", record, "compile")
    row = row_of(build(tmp_path, catalogue)["broken"], "broken_caught")
    assert row["status"] == "failed"
    assert row["reason"].startswith("compile failed")


def test_counters_stand_side_by_side_and_say_why_one_is_missing(tmp_path):
    catalogue = one_kernel(tmp_path, gpu=True)
    counter = cases.COUNTERS[0]
    rows = build(tmp_path, catalogue)["counters"]
    both = row_of(rows, "tile16", counter=counter, m=128)
    assert both["emulator"] is not None
    assert both["ncu"] is not None
    assert both["reason"] is None
    emulated = row_of(rows, "tile16", counter=counter, m=100)
    assert (emulated["status"], emulated["reason"]) == ("ok", "ncu: not profiled at this shape")
    measured = row_of(rows, "tile16", counter="sm__throughput.avg.pct_of_peak_sustained_elapsed")
    assert (measured["ncu"], measured["unit"], measured["emulator"]) == (40.0, "%", None)
    assert measured["reason"] == "emulator: not run at this shape"
    unknown = row_of(rows, "tile16", counter="dram__bytes_read.sum")
    assert unknown["status"] == "unavailable"
    assert "ncu: not known to this ncu" in unknown["reason"]


def test_counters_without_a_gpu_keep_the_emulator_column(tmp_path):
    rows = build(tmp_path, cases.write_small_run(tmp_path, gpu=False))["counters"]
    row = row_of(rows, "tile16", counter=cases.COUNTERS[1], m=128)
    assert row["status"] == "ok"
    assert row["ncu"] is None
    assert row["reason"] == "ncu: this run has no GPU"
    nothing = row_of(rows, "tensor_cores")
    assert (nothing["counter"], nothing["status"]) == ("any", "unavailable")
    assert "wgmma" in nothing["reason"]


def test_sums_add_up_over_launches_and_other_metrics_come_from_the_longest(tmp_path):
    catalogue = one_kernel(tmp_path, gpu=True)
    percent = "dram__throughput.avg.pct_of_peak_sustained_elapsed"
    rows = []
    for launch, (duration, sectors, busy) in enumerate([(5.0, 10, 80.0), (50.0, 100, 20.0)], start=1):
        rows += [
            cases.metric(
                "tile16", cases.HEADLINE, "gpu__time_duration.sum", duration, launch=launch, unit="us"
            ),
            cases.metric("tile16", cases.HEADLINE, cases.COUNTERS[1], sectors, launch=launch),
            cases.metric("tile16", cases.HEADLINE, percent, busy, launch=launch, unit="%"),
        ]
    write_table(tmp_path / "profile" / "tile16.csv", rows, "profile")
    built = build(tmp_path, catalogue)
    assert row_of(built["counters"], "tile16", counter=cases.COUNTERS[1], m=4096)["ncu"] == 110
    assert row_of(built["counters"], "tile16", counter=percent)["ncu"] == 20.0
    assert built["summary"][0]["limiter"] == "latency"


def test_the_limiter_is_that_of_the_longest_launch_at_the_shape():
    percent = "dram__throughput.avg.pct_of_peak_sustained_elapsed"
    rows = []
    for launch, (duration, busy) in enumerate([(5.0, 80.0), (50.0, 91.0)], start=1):
        rows += [
            cases.metric("x", cases.HEADLINE, "gpu__time_duration.sum", duration, launch=launch),
            cases.metric("x", cases.HEADLINE, percent, busy, launch=launch),
        ]
    assert tables.limiter(rows, cases.HEADLINE) == "DRAM (91 %)"
    assert tables.limiter(rows, (1, 1, 1)) is None


def test_a_failed_profile_is_bad_and_named_once(tmp_path):
    catalogue = one_kernel(tmp_path, gpu=True)
    failed = {"variant": "tile16", "metric": "any", "status": "failed", "reason": "no kernels were profiled"}
    write_table(tmp_path / "profile" / "tile16.csv", [failed], "profile")
    cases.write_tables(tmp_path, catalogue)
    bad = tables.bad_results(cases.read_tables(tmp_path))
    assert [str(result) for result in bad] == ["tile16, profile: no kernels were profiled"]


def test_bad_results_name_every_variant_with_stage_and_reason(tmp_path):
    catalogue = cases.write_small_run(tmp_path, gpu=True)
    rows = cases.timings("tile32", 20.0, status="failed", reason="wrong at this shape")
    write_table(tmp_path / "bench" / "tile32.csv", rows, "timings")
    cases.write_tables(tmp_path, catalogue)
    bad = tables.bad_results(cases.read_tables(tmp_path))
    assert [(result.variant, result.stage) for result in bad] == [
        ("tile32", "bench"),
        ("does_not_compile", "compile"),
        ("wrong_result", "check on emulator"),
        ("wrong_result", "check on cuda"),
        ("broken_unnoticed", "broken kernel on emulator"),
    ]
    assert bad[0].reason == "wrong at this shape (and 7 more rows)"


def test_names_that_look_like_something_else_stay_text(tmp_path):
    catalogue = {name: cases.kernel(name) for name in ("NA", "nan", "e3")}
    cases.write_run(tmp_path, catalogue, gpu=True)
    cases.write_tables(tmp_path, catalogue)
    for frame in cases.read_tables(tmp_path).values():
        assert set(frame["variant"]) <= {"NA", "nan", "e3"}
    assert list(cases.read_tables(tmp_path)["summary"]["variant"]) == ["NA", "nan", "e3"]


def test_the_commit_of_a_changed_tree_says_so(tmp_path):
    catalogue = one_kernel(tmp_path, gpu=True)
    record = cases.environment_record(True) | {"dirty": True}
    cases.write_record(tmp_path / "environment" / "environment.json", record, "environment")
    built = build(tmp_path, catalogue)
    assert {row["commit"] for row in built["timings"]} == {f"{cases.COMMIT}-dirty"}


def test_a_broken_record_is_named(tmp_path):
    catalogue = one_kernel(tmp_path, gpu=False)
    write_text(tmp_path / "check" / "emulator" / "tile16.json", '{"variant": "tile16", "status": "fine"}')
    with pytest.raises(GemmlabError, match=r"tile16\.json: .*status is \"fine\", expected one of ok"):
        build(tmp_path, catalogue)


def test_an_empty_table_of_a_stage_is_named(tmp_path):
    catalogue = one_kernel(tmp_path, gpu=False)
    write_text(tmp_path / "bench" / "tile16.csv", "")
    with pytest.raises(GemmlabError, match=r"bench/tile16\.csv"):
        tables.read_variant(tmp_path, catalogue["tile16"])


RECORDED = repository_root() / "results" / "published" / "nvidia-h200" / "tables"


@pytest.mark.parametrize(
    ("table", "old", "new", "message"),
    [
        ("tune", "8,8,8,1,1,0.0", ",8,8,1,1,0.0", "row 1: BM is null, expected an integer"),
        ("tune", "8,8,8,1,1,0.0", "8.7,8,8,1,1,0.0", "row 1: BM is '8.7', expected a whole number"),
        ("tune", "8,8,8,1,1,0.0", "0,8,8,1,1,0.0", "row 1: BM is 0, expected at least 1"),
        ("tune", ",1,1,0.0", ",1,1,-0.0", "row 1: time_ms is -0.0"),
        ("tune", ",1,1,0.08315008163452148", ",1,1,0", "row 1: time_ms is 0.0, expected more than 0"),
        ("tune", ",1,1,0.08315008163452148", ",1,1,", "row 1: time_ms is null, expected a number"),
        ("tune", "False,ok", "False,great", 'row 1: status is "great", expected one of ok'),
        ("tune", ",BM,", ",", "the header lacks the column BM"),
        ("tune", ",status,", ",", "the header lacks the column status"),
        ("static", "gemm,64,32", "gemm,64,", "row 1: registers is null, expected an integer"),
        ("static", "gemm,64,32", "gemm,64,-5", "row 1: registers is -5, expected at least 1"),
        ("static", "gemm,64,32", "gemm,64,9999", "row 1: registers is 9999, expected at most 255"),
        ("static", ",registers,", ",", "the header lacks the column registers"),
    ],
)
def test_a_faulty_sweep_or_static_evidence_is_named_with_row_column_and_cure(
    tmp_path, table, old, new, message
):
    path = tmp_path / ("tune" if table == "tune" else "tables") / f"{table}.csv"
    write_text(path, (RECORDED / f"{table}.csv").read_text())
    assert len(tables.read_asked_for(tmp_path)[table]) > 1
    write_text(path, (RECORDED / f"{table}.csv").read_text().replace(old, new, 1))
    with pytest.raises(GemmlabError) as caught:
        tables.read_asked_for(tmp_path)
    target = "tune" if table == "tune" else "static_evidence"
    assert str(path) in str(caught.value)
    assert message in str(caught.value)
    assert f"Delete it and run `snakemake --cores all {target}` again" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_row_of_a_sweep_that_ends_early_is_named(tmp_path):
    text = (RECORDED / "tune.csv").read_text()
    write_text(tmp_path / "tune" / "tune.csv", text[: len(text) // 2])
    with pytest.raises(GemmlabError, match=r"tune\.csv, row \d+: \d+ cells .*expected 34"):
        tables.read_asked_for(tmp_path)


def test_a_stage_s_rows_are_validated(tmp_path):
    catalogue = one_kernel(tmp_path, gpu=True)
    path = tmp_path / "bench" / "tile16.csv"
    write_text(path, path.read_text().replace(",8,64,", ",8,64,-", 1))
    with pytest.raises(
        GemmlabError, match=r"bench/tile16\.csv, row 1: time_ms_median is -.*expected more than 0"
    ):
        tables.read_variant(tmp_path, catalogue["tile16"])

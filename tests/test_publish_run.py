from __future__ import annotations

import hashlib
import json

import publish_cases as cases
import pytest

from gemmlab import cli, figures, publish_run
from gemmlab.catalogue import load_catalogue
from gemmlab.config import load_config
from gemmlab.errors import GemmlabError
from gemmlab.files import read_json
from gemmlab.schema import read_table, validate, write_table
from gemmlab.tables import joint_digest, read_rows


def no_digest(table, row):
    return None


@pytest.fixture(autouse=True)
def few_figures(monkeypatch):
    """Two small drawings in place of the real ones, which other tests look at."""
    from matplotlib.figure import Figure

    def draw(timings, catalogue, shape, label):
        names = ("ladder", "ratios")
        return [figures.Drawing(name, label, "", figure=Figure(figsize=(1, 1))) for name in names]

    monkeypatch.setattr(figures, "timing_drawings", draw)


@pytest.fixture
def results(tmp_path):
    """The tables of a few variants of a small run."""
    folder = tmp_path / "results" / "synthetic-gpu"
    cases.write_small_run(folder, gpu=True)
    chosen = {"cublas_fp32", "tile16", "tensor_cores", "broken_caught"}
    for name in ("summary", "timings", "checks", "broken", "counters"):
        rewrite(folder, name, lambda row: row if row["variant"] in chosen else None)
    return folder


def record(results, present_digest=no_digest, words=(), swept_sizes=()):
    published, catalogue = results.parent / "published", cases.small_catalogue()
    return publish_run.publish_run(results, published, catalogue, present_digest, words, swept_sizes)


def timings_of(results, variant="tile16"):
    frame = read_table(results.parent / "published" / results.name / "tables" / "timings.csv", "timings")
    return frame[frame["variant"] == variant]


def rewrite(results, name, change):
    """Change rows of a table of the run by `change(row)`; None drops a row."""
    rows = [change(dict(row)) for row in read_rows(results / "tables" / f"{name}.csv", name)]
    write_table(results / "tables" / f"{name}.csv", [row for row in rows if row is not None], name)


def test_only_what_is_allowed_is_copied_and_the_manifest_lists_it(results):
    manifest = record(results)
    folder = results.parent / "published" / "synthetic-gpu"
    files = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    identity = cases.environment_record(True)["id"]
    assert files == {
        "manifest.json",
        *(f"tables/{name}.csv" for name in ("summary", "timings", "checks", "broken", "counters")),
        f"environments/{identity}.json",
        "figures/ladder.svg",
    }
    assert manifest == read_json(folder / "manifest.json")
    validate(manifest, "manifest", "manifest.json")
    assert (manifest["gpu"], manifest["driver"], manifest["commit"]) == (cases.GPU, "580.0", cases.COMMIT)
    assert {file["path"] for file in manifest["files"]} == files - {"manifest.json"}
    for file in manifest["files"]:
        assert hashlib.sha256((folder / file["path"]).read_bytes()).hexdigest() == file["sha256"]


def write_sweep(results, *tiles, edges=(64,), **fields):
    rows = [
        {
            "variant": "tile16",
            "m": edge,
            "n": edge,
            "k": edge,
            "BM": tile,
            "BN": tile,
            "BK": 8,
            "TM": 1,
            "TN": 1,
        }
        | {"time_ms": 1.0, "tflops": 1.0, "best": tile == tiles[0], "status": "ok", "gpu": cases.GPU}
        | fields
        for edge in edges
        for tile in tiles
    ]
    write_table(results / "tune" / "tune.csv", rows, "tune")


def test_a_sweep_replaces_the_recorded_one_and_stays_when_a_run_has_none(results):
    def recorded(manifest):
        path = results.parent / "published" / results.name / "tables" / "tune.csv"
        assert {"tables/tune.csv", "figures/tune.svg"} <= {file["path"] for file in manifest["files"]}
        table = read_table(path, "tune")
        assert set(table["environment"]) == set(manifest["environments"])
        return list(table["BM"])

    write_sweep(results, 16, 32)
    assert recorded(record(results)) == [16, 32]
    write_sweep(results, 32, 64)
    assert recorded(record(results)) == [32, 64]
    (results / "tune" / "tune.csv").unlink()
    assert recorded(record(results)) == [32, 64]


def test_a_sweep_that_is_cut_or_of_another_gpu_is_refused(results):
    write_sweep(results, 16, 32, edges=(64, 96))
    path = results / "tune" / "tune.csv"
    path.write_text(path.read_text().rsplit("\n", 2)[0] + "\n")
    message = r"tune\.csv: the sweep of tile16 is incomplete or mixed: 1 configurations at 96\^3, 2 in all. Delete it"
    with pytest.raises(GemmlabError, match=message):
        record(results)
    write_sweep(results, 16, 32)
    with pytest.raises(GemmlabError, match=r"tune\.csv: no row at size 96, which config/tune\.yaml names"):
        record(results, swept_sizes=(64, 96))
    write_sweep(results, 16, 32, gpu="NVIDIA T4")
    message = rf"tune\.csv: gpu is NVIDIA T4, the run's environment has {cases.GPU}. Delete it and run `snakemake tune`"
    with pytest.raises(GemmlabError, match=message):
        record(results)
    assert not (results.parent / "published").exists()


@pytest.mark.parametrize("table", ["tune", "static"])
@pytest.mark.parametrize("stale", [{"digest": "deadbeefdeadbeef"}, {"variant": "no_such"}])
def test_a_sweep_or_static_evidence_of_other_sources_is_refused(results, table, stale):
    catalogue = cases.small_catalogue()
    present = publish_run.tree_digests(load_config(), catalogue | {"tile16": load_catalogue()["tile16"]})

    def present_digest(name, row):
        return present(name, row) if name == table else None

    def write(**fields):
        if table == "tune":
            write_sweep(results, 16, 32, **fields)
            return
        row = {"variant": "tile16", "architecture": "sm_80", "entry": "gemm", "threads": 256, "registers": 32}
        row |= {"spill_bytes": 0, "status": "ok"} | fields
        write_table(results / "tables" / "static.csv", [row], "static")

    good = {"digest": present(table, {"variant": "tile16", "architecture": "sm_80"})}
    write(**(good | stale))
    with pytest.raises(GemmlabError, match=rf"rows don't come from the present sources(.|\n)*{table}\.csv"):
        record(results, present_digest)
    assert not (results.parent / "published").exists()
    write(**good)
    record(results, present_digest)


def test_what_the_manifest_does_not_list_is_removed(results):
    claim = {"claim": "B7", "article": "B", "statement": "words", "verdict": "reproduced", "status": "ok"}
    write_table(results / "tables" / "claims.csv", [claim], "claims")
    folder = results.parent / "published" / results.name
    assert "tables/claims.csv" in {file["path"] for file in record(results)["files"]}
    (results / "tables" / "claims.csv").unlink()
    for name in ("tables/old.csv", "environments/old.json", "figures/tune.svg"):
        (folder / name).write_text("old")
    kept = [folder / "NOTES.md", folder / "other" / "file"]
    for path in kept:
        path.parent.mkdir(exist_ok=True)
        path.write_text("kept")
    listed = {folder / file["path"] for file in record(results)["files"]}
    assert folder / "tables" / "claims.csv" not in listed
    assert {path for path in folder.rglob("*") if path.is_file()} == {
        *listed,
        *kept,
        folder / "manifest.json",
    }


def test_a_claim_that_was_taken_out_leaves_no_row(results):
    def claims(**verdicts):
        rows = [
            {"claim": name, "article": name[0], "statement": "words", "verdict": verdict}
            | {"status": "ok" if verdict != "untested" else "unavailable"}
            for name, verdict in verdicts.items()
        ]
        write_table(results / "tables" / "claims.csv", rows, "claims")
        record(results)
        path = results.parent / "published" / results.name / "tables" / "claims.csv"
        return dict(read_table(path, "claims")[["claim", "verdict"]].itertuples(index=False))

    assert claims(B7="reproduced", C6="reproduced") == {"B7": "reproduced", "C6": "reproduced"}
    # C6 could not be tested this time: what was measured stays. B7 is gone.
    assert claims(B7a="opposite", C6="untested") == {"B7a": "opposite", "C6": "reproduced"}


def test_recording_twice_changes_nothing(results):
    record(results)
    folder = results.parent / "published"
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    record(results)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_a_row_of_other_sources_refuses_the_whole_run(results):
    def present(table, row):
        return "other" if table == "timings" and row["variant"] == "tile16" else row["digest"]

    with pytest.raises(
        GemmlabError, match=r"8 rows don't come from the present sources(.|\n)*tile16 512 512 512 cold"
    ):
        record(results, present)
    assert not (results.parent / "published").exists()


def test_rows_that_ran_nothing_need_no_digest(results):
    def present(table, row):
        return row["digest"] or "present"

    record(results, present)


def test_an_unavailable_row_never_replaces_a_measured_one(results):
    record(results)
    unavailable = {"status": "unavailable", "reason": "no GPU today"}

    def drop_times(row):
        if row["variant"] != "tile16":
            return row
        if row["m"] != 512 or row["cache"] != "cold":
            return None
        empty = dict.fromkeys(("m", "n", "k", "cache", "time_ms_median", "digest", "flags"))
        return row | empty | unavailable

    rewrite(results, "timings", drop_times)
    empty = dict.fromkeys(("time_ms", "tflops", "percent_of_peak", "percent_of_baseline"))
    rewrite(results, "summary", lambda row: row | empty if row["variant"] == "tile16" else row)
    record(results)
    assert len(timings_of(results)) == 8
    assert timings_of(results)["time_ms_median"].notna().all()
    summary = read_table(results.parent / "published" / results.name / "tables" / "summary.csv", "summary")
    assert summary["time_ms"].notna().sum() == 3


def test_a_failed_row_replaces_a_measured_one(results):
    record(results)

    def fail(row):
        return row | {"status": "failed", "reason": "wrong now"} if row["variant"] == "tile16" else row

    rewrite(results, "checks", fail)
    record(results)
    checks = read_table(results.parent / "published" / results.name / "tables" / "checks.csv", "checks")
    assert set(checks[checks["variant"] == "tile16"]["status"]) == {"failed"}


def test_a_variant_that_was_skipped_as_a_whole_keeps_no_old_times(results):
    record(results)
    empty = dict.fromkeys(("m", "n", "k", "cache", "time_ms_median"))

    def skip(row):
        if row["variant"] != "tile16":
            return row
        first = row["m"] == 512 and row["cache"] == "cold"
        return row | empty | {"status": "skipped", "reason": "compile failed"} if first else None

    rewrite(results, "timings", skip)
    record(results)
    assert list(timings_of(results)["status"]) == ["skipped"]


@pytest.mark.parametrize(("same_sources", "rows"), [(True, 8), (False, 2)])
def test_old_shapes_stay_only_beside_rows_of_the_same_sources(results, same_sources, rows):
    record(results)
    digest = cases.digest_of("tile16 bench")[:16] if same_sources else "edited"

    def shorten(row):
        if row["variant"] != "tile16":
            return row
        return row | {"digest": digest} if row["m"] == 512 else None

    def present(table, row):
        return digest if table == "timings" and row["variant"] == "tile16" else None

    rewrite(results, "timings", shorten)
    record(results, present)
    assert len(timings_of(results)) == rows


def test_rows_of_variants_that_are_gone_are_dropped(results):
    record(results)
    catalogue = {name: variant for name, variant in cases.small_catalogue().items() if name != "tile16"}
    for name in ("summary", "timings", "checks", "counters"):
        rewrite(results, name, lambda row: None if row["variant"] == "tile16" else row)
    publish_run.publish_run(results, results.parent / "published", catalogue, no_digest)
    assert timings_of(results).empty


@pytest.mark.parametrize(
    "text",
    [
        "/home/someone/gemmlab/kernels/x.cu(3): error",
        "ptxas fatal: '/usr/local/cuda/bin/x' is gone",
        "refused by node17.cluster",
        "node 192.168.3.4 is down",
        "Serial Number: 1654922012345",
        "ask someone@example.org",
        "seen on thishost only",
    ],
)
def test_text_that_names_a_machine_or_a_person_is_refused(results, text):
    rewrite(
        results, "checks", lambda row: row | {"reason": text} if row["variant"] == "tensor_cores" else row
    )
    with pytest.raises(GemmlabError, match=r"tables\.checks.*is not to be published"):
        record(results, words=["thishost"])
    assert not (results.parent / "published").exists()


@pytest.mark.parametrize(
    "text",
    [
        "kernels/tensor_cores.cu:88: race",
        "300/300 emulator, 10/10 repeats",
        "needs k % 4 == 0, got 3 x 4 x 5",
        "12.9.1.4",
    ],
)
def test_ordinary_text_is_not_taken_for_private(results, text):
    rewrite(
        results, "checks", lambda row: row | {"reason": text} if row["variant"] == "tensor_cores" else row
    )
    record(results)


def test_a_run_without_a_gpu_or_without_tables_is_refused(tmp_path, results):
    cases.write_environment(results, gpu=False)
    with pytest.raises(GemmlabError, match="had no GPU"):
        record(results)
    cases.write_environment(results, gpu=True)
    (results / "tables" / "checks.csv").unlink()
    with pytest.raises(GemmlabError, match=r"no checks\.csv"):
        record(results)


def test_a_run_without_a_time_is_refused(results):
    rewrite(
        results,
        "timings",
        lambda row: row | {"time_ms_median": None, "status": "unavailable", "reason": "busy"},
    )
    with pytest.raises(GemmlabError, match="no time to record"):
        record(results)


def test_a_table_that_breaks_its_schema_is_refused(results):
    path = results / "tables" / "checks.csv"
    path.write_text(path.read_text().replace(",unavailable,", ",perhaps,", 1))
    with pytest.raises(GemmlabError, match=r"checks\.csv, row \d+: status is \"perhaps\""):
        record(results)


def test_the_tree_s_digests_follow_settings_preset_and_executor(catalogue):
    config = load_config()
    digest = publish_run.tree_digests(config, catalogue)
    check = {"variant": "tile16", "executor": "emulator"}
    assert digest("checks", check) == digest("broken", check)
    assert digest("checks", check) != digest("checks", check | {"executor": "cuda"})
    full = publish_run.tree_digests(config | {"preset": "full"}, catalogue)
    assert digest("timings", check) != full("timings", check)
    assert digest("checks", check) == full("checks", check)
    assert digest("summary", {"variant": "tile16"}) is None
    other = publish_run.tree_digests(config | {"seed": config["seed"] + 1}, catalogue)
    assert other("checks", check) != digest("checks", check)


def test_the_command_says_what_it_wrote(results, monkeypatch, capsys):
    monkeypatch.setattr(publish_run, "load_catalogue", cases.small_catalogue)
    monkeypatch.setattr(publish_run, "tree_digests", lambda config, catalogue: no_digest)
    arguments = ["--results", str(results), "--published", str(results.parent / "published")]
    assert cli.main(["publish-run", *arguments]) == 0
    assert "tables/summary.csv (3 rows)" in capsys.readouterr().out


def test_the_tree_s_digests_are_those_that_the_stages_write(tmp_path, catalogue):
    """With a build that failed every stage ends at once, and its digest is the one that a good run would carry."""
    config = load_config()
    build = tmp_path / "build" / "tile16.json"
    cases.write_record(
        build,
        cases.build_record("tile16", failed=True) | {"ptx_sha256": None, "cubin_sha256": None},
        "compile",
    )
    common = ["--variant", "tile16", "--build", str(build), "--output"]

    def settings(*names):
        return json.dumps({name: config[name] for name in names}, sort_keys=True)

    def call(stage, output, *options):
        assert cli.main([stage, *common, str(output), *options]) == 0
        return output

    drawn = ["--shapes", str(config["check"]["shapes"]), "--seed", str(config["seed"])]
    drawn += ["--repeated-shapes", str(config["check"]["repeated_shapes"])]
    check = call("check", tmp_path / "check.json", "--executor", "cuda", *drawn)
    count = call("count", tmp_path / "count.json", "--shapes", json.dumps(config["count"]["shapes"]))
    timed = settings("preset", "seed", "headline_shape", "bench")
    checked = ["--check", str(check), "--settings"]
    bench = call("bench", tmp_path / "bench.csv", "--samples", str(tmp_path / "samples.csv"), *checked, timed)
    profiled = settings("preset", "seed", "headline_shape", "profile", "count")
    profile = call(
        "profile", tmp_path / "profile.csv", "--report", str(tmp_path / "ncu-rep"), *checked, profiled
    )

    digest = publish_run.tree_digests(config, catalogue)
    row = {"variant": "tile16", "executor": "cuda", "ncu": 1.0, "digest": None}
    assert digest("checks", row) == read_json(check)["digest"]
    assert digest("timings", row) == read_table(bench, "timings").loc[0, "digest"]
    both = [read_json(count)["digest"], read_table(profile, "profile").loc[0, "digest"]]
    assert digest("counters", row) == joint_digest(both)

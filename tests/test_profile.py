from __future__ import annotations

import json
import os
import stat
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from gemmlab import cli, profile, status
from gemmlab.errors import GemmlabError
from gemmlab.files import sha256_file
from gemmlab.ncu import Action, Value
from gemmlab.ncu_metrics import COUNTERS, DURATION, NVPROF_ONLY, STANDARD
from gemmlab.schema import read_table, write_table

CASES = Path(__file__).parent / "cases" / "profile"
SETTINGS = {
    "preset": "standard",
    "seed": 1,
    "headline_shape": [4096, 4096, 4096],
    "profile": {"shapes": [[1024, 1024, 1024], [4096, 4096, 4096]], "time_limit_s": 30},
    "count": {"shapes": [[128, 128, 128], [67, 129, 35]]},
}
UUID = "GPU-00000000-0000-0000-0000-000000000000"

# An ncu that acts as it is told by the file `act` beside it: a case to log, what the target says, how to end.
FAKE_NCU = """
import json, pathlib, subprocess, sys
words = sys.argv[1:]
here = pathlib.Path(sys.argv[0]).parent
if words == ["--version"]:
    print("NVIDIA (R) Nsight Compute Command Line Profiler\\nVersion 2025.3.1.0 (build 1) (public-release)")
    sys.exit(0)
act = json.loads((here / "act").read_text())
with (here / "calls").open("a") as calls:
    calls.write(json.dumps(words) + "\\n")
value = lambda option: words[words.index(option) + 1]
metrics = value("--metrics").split(",")
log = pathlib.Path(value("--log-file"))
for name in act.get("unknown", []):
    if name in metrics:
        every = ", ".join(name.replace(".sum", suffix) for suffix in (".avg", ".max", ".min", ".sum"))
        log.write_text(f"==ERROR== Unable to access the following 4 metrics: {every}.\\n")
        sys.exit(9)
if act.get("hang"):
    subprocess.run([sys.executable, "-c", act["hang"]])
shapes = [list(map(int, words[i + 1].split(","))) for i, word in enumerate(words) if word == "--shape"]
skipped = act.get("skipped", {})
done = [
    dict(zip("mnk", shape), entries=act["entries"], skipped=skipped.get("x".join(map(str, shape))))
    for shape in shapes
]
print(act.get("stderr", ""), file=sys.stderr)
log.write_text((pathlib.Path(act["log"]).read_text()) if "log" in act else "")
if not act.get("code") or act.get("launched"):
    pathlib.Path(value("--launches")).write_text(json.dumps({"gpu_uuid": act["uuid"], "shapes": done}))
if act.get("report", True):
    pathlib.Path(value("--export")).write_text(json.dumps([metrics, len(shapes) - len(skipped)]))
sys.exit(act.get("code", 0))
"""


class Bench:
    """A folder with a fake ncu, a build and a check, and what was asked of ncu."""

    def __init__(self, folder: Path, monkeypatch, entries: list[str] | None):
        self.folder, self.entries = folder, entries
        self.ncu = folder / "bin" / "ncu"
        self.ncu.parent.mkdir(parents=True)
        self.ncu.write_text(f"#!{sys.executable}\n{FAKE_NCU}")
        self.ncu.chmod(self.ncu.stat().st_mode | stat.S_IXUSR)
        self.report = folder / "profile" / "v.ncu-rep"
        self.build, self.check = folder / "build.json", folder / "check.json"
        self.build.with_suffix(".cubin").write_bytes(b"cubin")
        self.sha = sha256_file(self.build.with_suffix(".cubin"))
        self.write()
        self.act()
        monkeypatch.setattr(profile.toolchain, "find_ncu", lambda: self.ncu)
        monkeypatch.setattr(profile.driver, "device_count", lambda: 1)
        monkeypatch.setattr(profile.ncu, "read_report", self.read_report)

    def write(self, build=None, check=None):
        record = {"status": "ok", "reason": None, "cubin_sha256": self.sha}
        self.build.write_text(json.dumps(record | (build or {})))
        self.check.write_text(json.dumps(record | (check or {})))

    def act(self, **how):
        how = {"entries": self.entries, "uuid": UUID} | how
        (self.ncu.parent / "act").write_text(json.dumps(how))

    def read_report(self, path, metrics):
        asked, shapes = json.loads(path.read_text())
        assert list(metrics) == asked
        names = self.entries or ["first_kernel", "second_kernel"]
        return [
            Action(
                name, f"void {name}<float>()", 10 + shape, {metric: Value(1.0, "inst") for metric in asked}
            )
            for shape in range(shapes)
            for name in names
        ]

    def calls(self):
        path = self.ncu.parent / "calls"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []

    def run(self, variant, settings=SETTINGS):
        rows = profile.profile_variant(variant, self.build, self.check, self.report, settings)
        # Every row must fit its schema.
        write_table(self.folder / "table.csv", rows, "profile")
        return rows


@pytest.fixture
def bench(tmp_path, monkeypatch):
    return Bench(tmp_path, monkeypatch, ["gemm"])


@pytest.fixture
def variant(catalogue):
    return catalogue["tile16"]


def shapes_of(rows):
    return list(dict.fromkeys((row.get("m"), row.get("n"), row.get("k")) for row in rows))


def test_one_ncu_process_covers_all_shapes_and_counts_keep_their_counters(bench, variant):
    rows = bench.run(variant)
    assert len(bench.calls()) == 1
    assert shapes_of(rows) == [(1024,) * 3, (4096,) * 3, (128,) * 3, (67, 129, 35)]
    full = [row["metric"] for row in rows if row["m"] == 4096]
    assert full == [metric.name for metric in STANDARD]
    counted = [row["metric"] for row in rows if row["m"] == 67]
    assert counted == [DURATION, *(metric.name for metric in COUNTERS)]
    row = rows[0]
    assert (row["kernel"], row["launch"], row["value"], row["unit"]) == ("gemm", 1, 1.0, "inst")
    assert (row["cache_control"], row["ncu_version"], row["gpu_uuid"]) == ("all", "2025.3.1.0", UUID)
    assert row["cubin_sha256"] == bench.sha
    assert bench.report.is_file()


def test_the_target_launches_this_cubin_after_a_warm_up(bench, variant):
    bench.run(variant)
    (words,) = bench.calls()
    target = words[words.index("-m") + 1 :]
    assert target[0] == "gemmlab.launch_once"
    assert target[target.index("--cubin") + 1] == str(bench.build.with_suffix(".cubin"))
    assert target[target.index("--warmup") + 1] == "1"
    assert target[target.index("--repeat") + 1] == "1"
    assert words[words.index("--kernel-name") + 1] == "regex:^(gemm)$"


def test_shapes_that_the_variant_counts_itself_replace_the_configured_ones(variant):
    own = replace(variant, count_shapes=((96, 96, 96),))
    assert (96, 96, 96) in profile.plan_shapes(own, SETTINGS).shapes
    assert (128, 128, 128) not in profile.plan_shapes(own, SETTINGS).shapes


def test_every_launch_of_a_variant_has_its_rows(tmp_path, monkeypatch, variant):
    bench = Bench(tmp_path, monkeypatch, ["split", "reduce"])
    launches = tuple(replace(variant.launches[0], entry=entry) for entry in bench.entries)
    rows = bench.run(replace(variant, launches=launches))
    here = [(row["launch"], row["kernel"]) for row in rows if row["m"] == 128 and row["metric"] == DURATION]
    assert here == [(1, "split"), (2, "reduce")]


def test_a_librarys_launches_are_told_apart_by_stream(tmp_path, monkeypatch, catalogue):
    bench = Bench(tmp_path, monkeypatch, None)
    rows = profile.profile_variant(catalogue["cublas_fp32"], None, None, bench.report, SETTINGS)
    assert shapes_of(rows) == [(1024,) * 3, (4096,) * 3]
    names = {(row["m"], row["launch"], row["kernel"]) for row in rows}
    assert len(names) == 4
    assert (4096, 2, "void second_kernel<float>()") in names
    (words,) = bench.calls()
    assert "--kernel-name" not in words
    assert "baseline" in words


def test_launches_that_do_not_match_are_a_failure(bench, variant):
    shapes = [{"entries": ["gemm"], "skipped": None}]
    failure = profile.assign([Action("other", "other", 1)], shapes)
    assert "other" in failure.reason
    library = [{"entries": None, "skipped": None}] * 2
    assert "1 streams" in profile.assign([Action("a", "a", 1)], library).reason


def test_unknown_metrics_are_dropped_listed_and_the_run_repeated(bench, variant):
    unknown = ["dram__bytes_read.sum", "smsp__inst_executed_op_ldgsts.sum"]
    bench.act(unknown=unknown)
    rows = bench.run(variant)
    assert len(bench.calls()) == 3
    dropped = [row for row in rows if row["metric"] in unknown]
    assert len(dropped) == 4
    assert all(row["value"] is None and "dropped" in row["reason"] for row in dropped)
    assert all(row["status"] == status.UNAVAILABLE for row in dropped)
    kept = [row for row in rows if row["metric"] not in unknown]
    assert all(row["status"] == status.OK for row in kept)


def test_known_but_not_available_is_null_and_never_zero(bench, variant, monkeypatch):
    real = bench.read_report

    def read(path, metrics):
        actions = real(path, metrics)
        for action in actions:
            action.metrics[DURATION] = Value(None, "ns", "ncu reports n/a for it on this GPU")
        return actions

    monkeypatch.setattr(profile.ncu, "read_report", read)
    bench.run(variant)
    table = read_table(bench.folder / "table.csv", "profile")
    absent = table[table.metric == DURATION]
    assert absent.value.isna().all()
    assert (absent.status == status.UNAVAILABLE).all()
    assert absent.reason.str.contains("n/a").all()


@pytest.mark.parametrize(
    ("log", "code", "word", "said"),
    [
        ("permission.log", 1, status.UNAVAILABLE, "counter permission"),
        ("nothing_profiled.log", 0, status.FAILED, "profiled no kernel"),
        ("target_failed.log", 3, status.FAILED, "status 3 under ncu: device fault: gemm"),
        ("counters_taken.log", 1, status.UNAVAILABLE, "DCGM"),
    ],
)
def test_failures_become_one_row_and_no_stale_report_stays(bench, variant, log, code, word, said):
    bench.report.parent.mkdir()
    bench.report.write_text("of an earlier run")
    bench.act(log=str(CASES / log), code=code, stderr="device fault: gemm", report=False)
    (row,) = bench.run(variant)
    assert (row["metric"], row["status"]) == ("any", word)
    assert said in row["reason"]
    assert not bench.report.exists()


def test_a_hanging_target_ends_with_its_whole_process_group(bench, variant, tmp_path):
    pid_file = tmp_path / "pid"
    hang = f"import os, pathlib, time; pathlib.Path({str(pid_file)!r}).write_text(str(os.getpid())); time.sleep(60)"
    bench.act(hang=hang)
    settings = SETTINGS | {"profile": SETTINGS["profile"] | {"time_limit_s": 1}}
    (row,) = bench.run(variant, settings)
    assert row["status"] == status.FAILED
    assert "no end within 1 s" in row["reason"]
    pid = int(pid_file.read_text())
    for _ in range(50):
        if not Path(f"/proc/{pid}").exists() or "Z" in Path(f"/proc/{pid}/stat").read_text().split()[2]:
            break
        time.sleep(0.05)
    else:
        os.kill(pid, 9)
        pytest.fail("the target lived on")


def test_shapes_that_the_target_skipped_have_a_row_that_says_why(bench, variant):
    bench.act(skipped={"4096x4096x4096": "a launch takes 812 ms, over the limit of 500 ms"})
    rows = bench.run(variant)
    (row,) = [row for row in rows if row["m"] == 4096]
    assert (row["metric"], row["status"]) == ("any", status.SKIPPED)
    assert "812 ms" in row["reason"]
    assert any(row["m"] == 1024 and row["status"] == status.OK for row in rows)


def test_a_variant_that_can_be_launched_nowhere_is_skipped_although_nothing_was_profiled(bench, variant):
    shapes = ["1024x1024x1024", "4096x4096x4096", "128x128x128", "67x129x35"]
    bench.act(
        skipped=dict.fromkeys(shapes, "not launchable: needs 300 KiB"),
        code=3,
        launched=True,
        report=False,
        log=str(CASES / "nothing_profiled.log"),
    )
    rows = bench.run(variant)
    assert [row["status"] for row in rows] == [status.SKIPPED] * 4


def test_shapes_outside_the_constraints_never_reach_ncu(bench, variant):
    narrow = replace(variant, constraints=("k % 4 == 0",))
    rows = bench.run(narrow)
    (row,) = [row for row in rows if row["m"] == 67]
    assert row["status"] == status.SKIPPED
    assert "k % 4" in row["reason"]
    assert "67,129,35" not in bench.calls()[0]


@pytest.mark.parametrize(
    ("build", "check", "word", "said"),
    [
        ({"status": "failed", "reason": "error"}, {}, status.SKIPPED, "compile failed"),
        ({}, {"status": "failed", "reason": "3 cells wrong"}, status.SKIPPED, "check failed: 3 cells wrong"),
        (
            {},
            {"status": "unavailable", "reason": "no CuPy"},
            status.UNAVAILABLE,
            "not checked on a GPU: no CuPy",
        ),
        ({}, {"cubin_sha256": "0" * 64}, status.SKIPPED, "another cubin"),
        ({"cubin_sha256": "0" * 64}, {"cubin_sha256": "0" * 64}, status.SKIPPED, "not the file"),
    ],
)
def test_what_is_not_checked_with_this_very_cubin_is_not_profiled(bench, variant, build, check, word, said):
    bench.write(build, check)
    (row,) = bench.run(variant)
    assert (row["metric"], row["status"]) == ("any", word)
    assert said in row["reason"]
    assert not bench.calls()


def test_without_ncu_or_gpu_the_row_says_so(bench, variant, monkeypatch):
    monkeypatch.setattr(profile.toolchain, "find_ncu", lambda: None)
    (row,) = bench.run(variant)
    assert row["status"] == status.UNAVAILABLE
    assert "ncu" in row["reason"]
    monkeypatch.setattr(profile.driver, "device_count", lambda: 0)
    (row,) = bench.run(variant)
    assert "no GPU" in row["reason"]


def test_full_asks_for_ncus_set_and_all_of_nvprofs_metrics(bench, variant):
    rows = bench.run(variant, SETTINGS | {"preset": "full"})
    (words,) = bench.calls()
    assert words[words.index("--set") + 1] == "full"
    assert "--skip-over-ms" not in words
    assert set(NVPROF_ONLY) <= {row["metric"] for row in rows}


def test_a_dispatch_has_nothing_to_profile(bench, variant):
    dispatch = replace(variant, kind="dispatch", source=None, launches=())
    (row,) = profile.profile_variant(dispatch, None, None, bench.report, SETTINGS)
    assert row["status"] == status.SKIPPED


def test_a_kernel_needs_its_records(bench, variant):
    with pytest.raises(GemmlabError, match="--build and --check"):
        profile.profile_variant(variant, None, None, bench.report, SETTINGS)


def test_the_command_writes_the_table_and_lists_metrics(bench, capsys):
    output = bench.folder / "profile" / "tile16.csv"
    words = ["profile", "--variant", "tile16", "--build", str(bench.build), "--check", str(bench.check)]
    words += ["--output", str(output), "--report", str(bench.report), "--settings", json.dumps(SETTINGS)]
    assert cli.main(words) == 0
    assert (read_table(output, "profile").variant == "tile16").all()
    capsys.readouterr()
    assert cli.main(["profile", "--list-metrics"]) == 0
    assert "`gld_throughput`" in capsys.readouterr().out
    assert cli.main(["profile", "--variant", "tile16"]) == 2
    assert "--output, --report, --settings" in capsys.readouterr().err

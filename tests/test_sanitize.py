from __future__ import annotations

import json
import re
import stat
import sys
from pathlib import Path

import pytest

from gemmlab import sanitize, status
from gemmlab.errors import GemmlabError
from gemmlab.files import sha256_file
from gemmlab.schema import validate

CASES = Path(__file__).parent / "cases" / "sanitize"
SETTINGS = {"preset": "standard", "seed": 1}


def case(name: str) -> str:
    return (CASES / name).read_text()


@pytest.mark.parametrize(
    ("name", "errors", "first"),
    [
        ("clean.txt", 0, None),
        ("race_clean.txt", 0, None),
        (
            "memcheck.txt",
            493,
            "Invalid __global__ write of size 4 bytes, at gemm in store_unchecked.cu:34, by thread (0,1,0) in block "
            "(0,1,0), Access is out of bounds and is 1 bytes after the nearest allocation of size 1,292 bytes",
        ),
        (
            "racecheck.txt",
            2,
            "Race reported between Write access at gemm in no_second_barrier.cu:24 and Read access at gemm in "
            "no_second_barrier.cu:28 and Read access at gemm in no_second_barrier.cu:30",
        ),
        (
            "initcheck.txt",
            323,
            "Uninitialized __global__ memory read of size 4 bytes, at gemm in beta_zero_reads_c.cu:28, "
            "by thread (0,4,0) in block (0,0,0)",
        ),
        (
            "synccheck.txt",
            320,
            "Barrier error detected. Divergent thread(s) in block., at gemm in barrier_on_one_side.cu:32, "
            "by thread (0,14,0) in block (0,0,0)",
        ),
        (
            "never_connected.txt",
            None,
            "Tracking kernels launched by child processes requires the --target-processes all option.",
        ),
    ],
)
def test_reports_of_the_four_tools(name, errors, first):
    report = sanitize.parse_report(case(name))
    assert report.errors == errors
    if errors is not None:
        assert report.first == first


def test_errors_that_were_not_printed_are_not_the_count():
    text = "========= ERROR SUMMARY: 259 errors were not printed. Use --print-limit option\n"
    assert sanitize.parse_report(text).errors is None


def make_tool(folder: Path, name: str, code: int, extra: str = "", help_text: str = "--tool") -> Path:
    """A compute-sanitizer that writes a case to its log file, notes how it was called and ends with `code`."""
    program = folder / "compute-sanitizer"
    program.write_text(
        f"#!{sys.executable}\nimport json, sys, time, pathlib\n"
        f"if sys.argv[1:] == ['--help']:\n    print({help_text!r})\n    sys.exit(0)\n"
        "log = sys.argv[sys.argv.index('--log-file') + 1]\n"
        f"pathlib.Path(log).write_text(pathlib.Path({str(CASES / name)!r}).read_text())\n"
        f"called = pathlib.Path({str(folder)!r}, 'called-' + sys.argv[sys.argv.index('--tool') + 1])\n"
        "called.write_text(json.dumps(sys.argv[1:]))\n"
        f"{extra}\nsys.exit({code})\n"
    )
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return program


def run_tool(program: Path, tool: str, time_limit_s: float = 30) -> dict:
    return sanitize.run_tools(program, {tool: ["target"]}, time_limit_s)[tool]


def test_a_clean_tool_and_one_with_errors(tmp_path):
    clean = run_tool(make_tool(tmp_path, "clean.txt", 0), "memcheck")
    assert clean == {"errors": 0, "first": None, "reason": None}
    found = run_tool(make_tool(tmp_path, "memcheck.txt", 86), "memcheck")
    assert found["errors"] == 493
    assert "store_unchecked.cu:34" in found["first"]


def test_the_tools_run_side_by_side_each_over_its_target(tmp_path):
    # Each waits until all four run.
    wait = f"while len(list(pathlib.Path({str(tmp_path)!r}).glob('called-*'))) < 4: time.sleep(0.01)"
    program = make_tool(tmp_path, "clean.txt", 0, wait)
    found = sanitize.run_tools(program, {tool: ["target", tool] for tool in sanitize.TOOLS}, 20)
    assert {tool: result["errors"] for tool, result in found.items()} == dict.fromkeys(sanitize.TOOLS, 0)
    for tool in sanitize.TOOLS:
        assert json.loads((tmp_path / f"called-{tool}").read_text())[-2:] == ["target", tool]


@pytest.mark.parametrize("known", [False, True])
def test_initcheck_looks_at_shared_memory_where_the_release_can(tmp_path, known):
    help_text = "  --initcheck-address-space arg (=global)" if known else "  --tool arg"
    program = make_tool(tmp_path, "clean.txt", 0, help_text=help_text)
    sanitize.run_tools(program, {tool: ["target"] for tool in sanitize.TOOLS})
    for tool in sanitize.TOOLS:
        called = json.loads((tmp_path / f"called-{tool}").read_text())
        assert ("--initcheck-address-space" in called) is (known and tool == "initcheck")


@pytest.mark.parametrize(
    ("name", "code", "extra", "reason"),
    [
        ("not_supported.txt", 0, "", "does not support this device or machine: Device not supported"),
        ("never_connected.txt", 1, "print('no module cupy', file=sys.stderr)", "no summary.*no module cupy"),
        ("clean.txt", 2, "print('device fault: gemm', file=sys.stderr)", "status 2: device fault: gemm"),
        ("clean.txt", 3, "print('not launchable: 70 KiB', file=sys.stderr)", "status 3: not launchable"),
        ("clean.txt", 0, "time.sleep(60)", "no end within 0.5 s"),
    ],
)
def test_what_a_tool_could_not_say_is_null_with_a_reason(tmp_path, name, code, extra, reason):
    program = make_tool(tmp_path, name, code, extra)
    result = run_tool(program, "racecheck", 0.5 if "sleep" in extra else 30)
    assert result["errors"] is None
    assert re.search(reason, result["reason"])


def test_errors_count_although_the_fault_ended_the_target(tmp_path):
    assert run_tool(make_tool(tmp_path, "memcheck.txt", 2), "memcheck")["errors"] == 493


def tools(**errors):
    return {
        name: {
            "errors": count,
            "first": "a race" if count else None,
            "reason": None if count is not None else "hung",
        }
        for name, count in errors.items()
    }


@pytest.mark.parametrize(
    ("kind", "found", "expected"),
    [
        ("kernel", {"memcheck": 0, "racecheck": 0}, (status.OK, None)),
        ("kernel", {"memcheck": 0, "racecheck": 3}, (status.FAILED, "racecheck: 3 errors, first: a race")),
        ("kernel", {"memcheck": None, "racecheck": 0}, (status.UNAVAILABLE, "memcheck: hung")),
        ("kernel", {"memcheck": None, "racecheck": 1}, (status.FAILED, "racecheck: 1 errors, first: a race")),
        ("broken", {"memcheck": 0, "racecheck": 3}, (status.OK, None)),
        ("broken", {"memcheck": 0, "racecheck": None}, (status.OK, "racecheck: hung")),
        (
            "broken",
            {"memcheck": None, "racecheck": None},
            (status.UNAVAILABLE, "memcheck: hung; racecheck: hung"),
        ),
    ],
)
def test_errors_fail_a_kernel_and_are_data_of_a_broken_one(kind, found, expected):
    assert sanitize.judge(kind, tools(**found)) == expected


def test_problems_are_odd_small_and_larger_than_the_tile(catalogue):
    for variant in catalogue.values():
        if variant.compiled:
            problem = sanitize.problem_for(variant)
            bm, bn, bk = variant.tile
            assert variant.unsupported(problem) is None
            assert problem.m > bm
            assert problem.n > bn
            assert problem.k > 3 * bk
            assert problem.fmas < 2**26
    assert sanitize.problem_for(catalogue["tile16"], beta=0.5).beta == 0.5


def test_constraints_that_no_problem_meets_are_named(catalogue):
    from dataclasses import replace

    variant = replace(catalogue["tile16"], constraints=("m % 8192 == 0",))
    with pytest.raises(GemmlabError, match="m % 8192"):
        sanitize.problem_for(variant)


@pytest.fixture
def build(tmp_path):
    """A record of compile with its cubin."""
    cubin = tmp_path / "build" / "broken_no_second_barrier.cubin"
    cubin.parent.mkdir()
    cubin.write_bytes(b"cubin")
    record = {"status": "ok", "reason": None, "cubin_sha256": sha256_file(cubin)}
    cubin.with_suffix(".json").write_text(json.dumps(record))
    return cubin.with_suffix(".json")


def test_a_record_of_a_broken_kernel(tmp_path, monkeypatch, catalogue, build):
    monkeypatch.setattr(sanitize.driver, "device_count", lambda: 1)
    tool = make_tool(tmp_path, "racecheck.txt", 86)
    monkeypatch.setattr(sanitize.toolchain, "find_compute_sanitizer", lambda: tool)
    record = sanitize.sanitize_variant(catalogue["broken_no_second_barrier"], build, SETTINGS)
    validate(record, "sanitize", "test")
    assert record["status"] == status.OK
    assert record["problem"].startswith("17 x 19 x 49")
    assert {name: tool["errors"] for name, tool in record["tools"].items()} == dict.fromkeys(
        sanitize.TOOLS, 2
    )


def test_without_gpu_sanitizer_or_cubin_the_record_says_so(monkeypatch, catalogue, build):
    variant = catalogue["broken_no_second_barrier"]
    monkeypatch.setattr(sanitize.driver, "device_count", lambda: 0)
    assert sanitize.sanitize_variant(variant, build, SETTINGS)["status"] == status.UNAVAILABLE
    monkeypatch.setattr(sanitize.driver, "device_count", lambda: 1)
    monkeypatch.setattr(sanitize.toolchain, "find_compute_sanitizer", lambda: None)
    record = sanitize.sanitize_variant(variant, build, SETTINGS)
    assert record["status"] == status.UNAVAILABLE
    assert "not installed" in record["reason"]
    build.with_suffix(".cubin").write_bytes(b"another")
    assert sanitize.sanitize_variant(variant, build, SETTINGS)["status"] == status.SKIPPED
    build.write_text(json.dumps({"status": "failed", "reason": "error", "cubin_sha256": None}))
    record = sanitize.sanitize_variant(variant, build, SETTINGS)
    assert (record["status"], record["reason"]) == (status.SKIPPED, "compile failed")


def test_api_errors_are_asked_of_memcheck_alone():
    options = {tool: sanitize.tool_command(Path("cs"), tool, Path("log"), False) for tool in sanitize.TOOLS}
    assert [tool for tool, words in options.items() if "--report-api-errors" in words] == ["memcheck"]
    assert all(words[words.index("--error-exitcode") + 1] == "86" for words in options.values())

from __future__ import annotations

import publish_cases as cases
import pytest

from gemmlab import cli, gate
from gemmlab.schema import write_table


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(gate, "load_catalogue", cases.small_catalogue)


@pytest.fixture
def results(tmp_path):
    cases.write_small_run(tmp_path, gpu=True)
    return tmp_path


def call(results, variant: str | None = None, device: str | None = None) -> int:
    chosen = (["--variant", variant] if variant else []) + (["--device", device] if device else [])
    output = results / "gate" / (variant or "all")
    return cli.main(["gate", "--results", str(results), "--output", str(output), *chosen])


def test_a_good_variant_prints_its_row_and_writes_its_file(results, capsys):
    assert call(results, "tile16") == 0
    output = capsys.readouterr().out
    assert "46 registers" in output
    assert "300 of 300 shapes" in output
    assert "4096^3 cold: 11.05 ms" in output
    assert "may be older" in output
    assert (results / "gate" / "tile16").read_text() == output


def test_without_a_gpu_a_checked_variant_passes_the_gate(tmp_path, capsys):
    cases.write_small_run(tmp_path, gpu=False)
    assert call(tmp_path, "tile16") == 0
    assert "this run has no GPU" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("variant", "message"),
    [
        ("does_not_compile", "does_not_compile, compile: kernels/does_not_compile.cu(12)"),
        ("wrong_result", "wrong_result, check on cuda: exact: 129 of 300 shapes"),
        ("broken_unnoticed", "broken_unnoticed, broken kernel on emulator: passed unnoticed"),
    ],
)
def test_a_bad_variant_fails_with_the_reason_and_leaves_no_file(results, capsys, variant, message):
    old = results / "gate" / variant
    old.parent.mkdir()
    old.write_text("from a better day")
    assert call(results, variant) == 1
    assert message in capsys.readouterr().err
    assert not old.exists()


def test_a_broken_kernel_that_is_caught_is_good(results, capsys):
    assert call(results, "broken_caught") == 0
    assert "by wrong values, race; race: thread (3, 0, 0) reads" in capsys.readouterr().out


def test_a_variants_gate_reads_only_its_own_files(results):
    for folder in ("build", "check/emulator", "check/cuda", "count"):
        (results / folder / "naive.json").write_text("not JSON")
    assert call(results, "tile16") == 0


def test_a_timing_that_failed_is_bad(results, capsys):
    rows = cases.timings("tile16", 20.0, (512,), status="failed", reason="the result is wrong")
    write_table(results / "bench" / "tile16.csv", rows, "timings")
    assert call(results, "tile16") == 1
    assert "tile16, bench: the result is wrong (and 1 more rows)" in capsys.readouterr().err


@pytest.mark.parametrize("variant", ["tile16", "cublas_fp32", "nonsense"])
def test_what_was_never_run_or_does_not_exist_is_a_mistake(tmp_path, capsys, variant):
    assert call(tmp_path, variant) == 2
    assert variant in capsys.readouterr().err


def test_the_gate_of_all_names_each_bad_one_on_a_line(results, capsys):
    assert call(results) == 1
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(": ")[1] for line in lines] == [
        "does_not_compile, compile",
        "wrong_result, check on emulator",
        "wrong_result, check on cuda",
        "broken_unnoticed, broken kernel on emulator",
    ]
    assert not (results / "gate" / "all").exists()


def test_the_gate_of_all_opens_for_a_good_run(tmp_path):
    catalogue = {
        name: variant for name, variant in cases.small_catalogue().items() if variant.kind != "broken"
    }
    cases.write_run(tmp_path, catalogue, gpu=True)
    cases.write_tables(tmp_path, catalogue)
    assert call(tmp_path) == 0
    assert (tmp_path / "gate" / "all").is_file()


def good_run(folder, *, gpu: bool) -> None:
    catalogue = {
        name: variant
        for name, variant in cases.small_catalogue().items()
        if name in ("cublas_fp32", "naive", "tile16")
    }
    cases.write_run(folder, catalogue, gpu=gpu)
    cases.write_tables(folder, catalogue)


@pytest.mark.parametrize("variant", [None, "tile16"])
def test_a_gpu_asked_for_by_name_that_measured_nothing_is_bad(tmp_path, capsys, variant):
    good_run(tmp_path, gpu=False)
    for device in (None, "auto", "none"):
        assert call(tmp_path, variant, device) == 0
    capsys.readouterr()
    assert call(tmp_path, variant, "nvidia-h20") == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "nvidia-h20, bench: asked for by name, but not one row was measured: this run has no GPU." in line
    assert "device: auto" in line
    assert not (tmp_path / "gate" / (variant or "all")).exists()


@pytest.mark.parametrize("variant", [None, "tile16"])
def test_a_gpu_asked_for_by_name_that_measured_something_is_good(tmp_path, variant):
    good_run(tmp_path, gpu=True)
    assert call(tmp_path, variant, "nvidia-h200") == 0
    rows = cases.timings("naive", 20.0, (512,), status="unavailable", reason="the card was busy")
    write_table(tmp_path / "bench" / "naive.csv", rows, "timings")
    assert call(tmp_path, variant, "nvidia-h200") == 0


def test_the_gate_of_all_wants_tables(tmp_path, capsys):
    assert call(tmp_path) == 2
    assert "no such table" in capsys.readouterr().err


def test_output_may_be_left_out(results):
    assert cli.main(["gate", "--results", str(results), "--variant", "tile16"]) == 0
    assert not (results / "gate").exists()


def test_a_kernel_that_no_executor_could_check_is_named_though_nothing_is_bad(tmp_path, monkeypatch, capsys):
    def check(variant: str, executor: str, status: str) -> dict[str, str]:
        return {"variant": variant, "executor": executor, "status": status}

    rows = [
        check("prints", "emulator", "unavailable"),
        check("prints", "cuda", "unavailable"),
        check("seen", "emulator", "unavailable"),
        check("seen", "cuda", "ok"),
    ]
    write_table(tmp_path / "tables" / "checks.csv", rows, "checks")
    monkeypatch.setattr(gate, "all_gate", lambda *_: [])
    assert call(tmp_path) == 0
    output = capsys.readouterr().out
    assert "never checked, since no executor here can run them: prints" in output
    assert "seen" not in output

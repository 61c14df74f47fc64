from __future__ import annotations

import csv
import dataclasses
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from fake_gpu import Gpu, Kernel, gemm, gpu, make_cubin  # noqa: F401 - gpu is a fixture

from gemmlab import bench, cli, status
from gemmlab.config import load_config
from gemmlab.files import read_json, sha256_file, write_json
from gemmlab.schema import columns, read_table
from gemmlab.timing.session import SAMPLE_COLUMNS
from gemmlab.worker import WorkerResult, run_forked


def settings(**bench_changes) -> str:
    config = load_config()
    given = {key: config[key] for key in ("preset", "seed")}
    small = {"sizes": [16, 24], "full_sizes": [8, 12, 20, 28, 32], "full_shapes": [[8, 16, 24]]}
    given |= {"headline_shape": [24, 24, 24], "bench": config["bench"] | small | bench_changes}
    return json.dumps(given | {"preset": bench_changes.pop("preset", "standard")})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """R/build and R/check/cuda of the variant naive, all well."""
    cubin = tmp_path / "build" / "naive.cubin"
    cubin.parent.mkdir()
    cubin.write_bytes(make_cubin(90, ["gemm"]))
    write_json(tmp_path / "build" / "naive.json", {"variant": "naive", "status": "ok", "reason": None})
    check = {"variant": "naive", "executor": "cuda", "status": "ok", "reason": None}
    write_json(tmp_path / "check" / "naive.json", check | {"cubin_sha256": sha256_file(cubin)})
    return tmp_path


def arguments(folder: Path, variant: str = "naive", **bench_changes) -> list[str]:
    words = ["bench", "--variant", variant]
    if variant == "naive":
        words += ["--build", f"{folder}/build/naive.json", "--check", f"{folder}/check/naive.json"]
    return [
        *words,
        *("--output", f"{folder}/bench/{variant}.csv"),
        *("--samples", f"{folder}/bench/{variant}.samples.csv"),
        *("--settings", settings(**bench_changes)),
    ]


def rows(folder: Path, variant: str = "naive") -> list[dict]:
    return read_table(folder / "bench" / f"{variant}.csv", "timings").to_dict("records")


@pytest.fixture
def workers(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> list[float]:  # noqa: F811
    """The time limits of the workers that ran; they are real forks, but their GPU is not."""
    limits: list[float] = []

    def run(task: Callable[[], None], time_limit_s: float) -> WorkerResult:
        limits.append(time_limit_s)
        return run_forked(task, time_limit_s)

    gpu.kernels["gemm"] = Kernel(gemm)
    monkeypatch.setattr(bench, "run_forked", run)
    return limits


def test_a_variant_is_timed_at_the_configuration_s_shapes(folder: Path, workers: list) -> None:
    assert cli.main(arguments(folder)) == 0
    table = rows(folder)
    assert [(row["m"], row["cache"]) for row in table] == [(16, "cold"), (24, "cold"), (24, "hot")]
    assert {row["status"] for row in table} == {status.OK}
    assert {row["cubin_sha256"] for row in table} == {sha256_file(folder / "build" / "naive.cubin")}
    assert len({row["digest"] for row in table}) == 1
    assert len(workers) == 1


def test_the_samples_follow_their_schema(folder: Path, workers: list) -> None:
    cli.main(arguments(folder))
    assert list(SAMPLE_COLUMNS) == columns("samples")
    with (folder / "bench" / "naive.samples.csv").open() as file:
        samples = list(csv.DictReader(file))
    assert len(samples) == sum(row["samples"] * 2 for row in rows(folder))
    assert {sample["role"] for sample in samples} == {"baseline", "variant"}


def test_a_baseline_needs_no_build_and_no_check(folder: Path, workers: list) -> None:
    assert cli.main(arguments(folder, "cublas_fp32")) == 0
    table = rows(folder, "cublas_fp32")
    assert {row["status"] for row in table} == {status.OK}
    assert table[0]["baseline_version"] == "cuBLAS 13.1.0"


@pytest.mark.parametrize(
    ("file", "changes", "state", "words"),
    [
        ("build", {"status": "failed", "reason": "syntax error"}, "skipped", "compile failed"),
        ("build", {"status": "skipped", "reason": "needs sm_100"}, "skipped", "needs sm_100"),
        ("check", {"status": "failed", "reason": "3 cells wrong"}, "skipped", "check failed: 3 cells wrong"),
        ("check", {"status": "unavailable", "reason": "no GPU"}, "unavailable", "check: no GPU"),
        ("check", {"cubin_sha256": "0" * 64}, "skipped", "the check was of another cubin"),
    ],
)
def test_only_what_was_checked_with_this_very_cubin_is_timed(
    folder: Path, workers: list, file: str, changes: dict, state: str, words: str
) -> None:
    path = folder / file / "naive.json"
    write_json(path, read_json(path) | changes)
    assert cli.main(arguments(folder)) == 0
    (row,) = rows(folder)
    assert row["status"] == state
    assert words in row["reason"]
    assert workers == []
    assert (folder / "bench" / "naive.samples.csv").is_file()


def test_full_goes_on_after_the_slices_that_an_interrupted_run_finished(
    folder: Path, workers: list, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = bench.run_forked

    def interrupt(*words) -> WorkerResult:
        if len(workers) == 1:
            raise KeyboardInterrupt
        return run(*words)

    monkeypatch.setattr(bench, "run_forked", interrupt)
    assert cli.main(arguments(folder, preset="full")) == 130
    assert len(list((folder / "bench").glob(".naive.*.json"))) == 1
    monkeypatch.setattr(bench, "run_forked", run)
    assert cli.main(arguments(folder, preset="full")) == 0
    assert len(workers) == 2
    assert len({(row["m"], row["n"], row["k"]) for row in rows(folder)}) == 8
    assert list((folder / "bench").glob(".naive.*.json")) == []


def test_what_other_settings_measured_is_not_reused(folder: Path, workers: list) -> None:
    (folder / "bench").mkdir()
    write_json(folder / "bench" / ".naive.0123456789abcdef.0.json", {"rows": [], "samples": []})
    cli.main(arguments(folder))
    assert rows(folder)
    assert len(workers) == 1


@pytest.mark.parametrize(
    ("result", "words"),
    [
        (WorkerResult(-9, True, "", "", 540.0), "no end within 540 s"),
        (WorkerResult(-11, False, "", "", 540.0), "SIGSEGV ended the process"),
        (WorkerResult(0, False, "", "", 540.0), "left no result"),
    ],
)
def test_a_worker_s_death_becomes_failed_rows(
    folder: Path, monkeypatch: pytest.MonkeyPatch, result: WorkerResult, words: str
) -> None:
    monkeypatch.setattr(bench, "run_forked", lambda *words: result)
    assert cli.main(arguments(folder)) == 0
    table = rows(folder)
    assert [(row["m"], row["status"]) for row in table] == [(16, status.FAILED), (24, status.FAILED)]
    assert all(words in row["reason"] for row in table)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda words: [*words[:2], "nobody", *words[3:]], "--variant nobody: no such variant"),
        (lambda words: [*words[:3], *words[7:]], "naive: is a kernel, so bench needs --build and --check"),
        (lambda words: [*words[:-1], "{}"], "--settings: lacks the key bench"),
    ],
)
def test_a_user_s_mistake_is_one_message(
    folder: Path, capsys: pytest.CaptureFixture, change: Callable, words: str
) -> None:
    assert cli.main(change(arguments(folder))) == 2
    assert words in capsys.readouterr().err


def test_a_kernel_that_takes_its_process_along_fails_its_shapes_alone(
    folder: Path,
    gpu: Gpu,  # noqa: F811
    workers: list,
) -> None:
    gpu.kernels["gemm"] = Kernel(lambda *arguments: os.kill(os.getpid(), signal.SIGKILL))
    assert cli.main(arguments(folder)) == 0
    assert {row["status"] for row in rows(folder)} == {status.FAILED}
    assert all("SIGKILL ended the process" in row["reason"] for row in rows(folder))


def test_the_real_worker_says_unavailable_where_it_sees_no_gpu(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert cli.main(arguments(folder)) == 0
    (row,) = rows(folder)
    assert row["status"] == status.UNAVAILABLE
    assert "CuPy" in row["reason"]


def test_a_baseline_of_other_inputs_is_refused(
    folder: Path, catalogue: dict, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    changed = catalogue | {"naive": dataclasses.replace(catalogue["naive"], baseline="cublas_fp16")}
    monkeypatch.setattr(bench, "load_catalogue", lambda: changed)
    assert cli.main(arguments(folder)) == 2
    assert "naive: takes float32, but its baseline cublas_fp16 takes float16" in capsys.readouterr().err

from __future__ import annotations

import dataclasses
import json
import os
import signal
import time

import pytest
from fake_executor import FakeExecutor

from gemmlab import check, cli, count, status
from gemmlab.errors import GemmlabError
from gemmlab.executors.base import DeviceFault, NotLaunchable, Unavailable
from gemmlab.files import read_json, write_json

SHAPES = {"shapes": 60, "repeated_shapes": 5, "seed": 3}


@pytest.fixture
def variant(catalogue):
    return catalogue["tile16"]


def test_right_kernel_passes_everything(variant):
    executor = FakeExecutor()
    tally = check.check_variant(variant, executor, **SHAPES)
    assert (tally.shapes_run, tally.exact_passed, tally.rounded_passed) == (60, 60, 60)
    assert (tally.repeats, tally.repeats_identical) == (5, 5)
    assert tally.failures == []
    assert 0 < tally.worst_fraction < 1
    assert executor.runs == 2 * 60 + 3 * 5 + check.NONFINITE_SHAPES


def test_results_have_a_digest_by_which_executors_are_compared_bit_by_bit(variant):
    def digests(executor, variant=variant):
        return check.check_variant(variant, executor, **SHAPES).output_digests

    right = digests(FakeExecutor())
    assert len(set(right)) == len(right) == 60
    assert digests(FakeExecutor()) == right
    other = digests(FakeExecutor("other bits"))
    assert sum(a != b for a, b in zip(right, other, strict=True)) > 30
    assert None in digests(FakeExecutor("short k"))
    assert digests(FakeExecutor(), dataclasses.replace(variant, deterministic=False)) == []
    assert digests(FakeExecutor(), dataclasses.replace(variant, arithmetic="tf32")) == []


@pytest.mark.parametrize(
    ("mistake", "test"),
    [
        ("short k", "exact"),
        ("last cell unwritten", "exact"),
        ("writes nothing", "exact"),
        ("reads C at beta 0", "exact"),
        ("changes A", "input"),
        ("writes past the row", "exact"),
        ("infinite", "rounded"),
        ("order matters", "repeat"),
    ],
)
def test_each_mistake_is_found(variant, mistake, test):
    tally = check.check_variant(variant, FakeExecutor(mistake), **SHAPES)
    assert test in {failure["test"] for failure in tally.failures}
    outcome = check._outcome(tally, variant)
    assert outcome["status"] == status.FAILED
    assert outcome["reason"]
    json.dumps(outcome, allow_nan=False)  # a record of a wrong kernel is a record, too


def test_a_race_fails_although_every_value_is_right(variant):
    tally = check.check_variant(variant, FakeExecutor("race"), **SHAPES)
    assert tally.failures == []
    assert tally.exact_passed == 0
    (finding,) = tally.findings.values()
    assert finding["count"] > 60
    assert check._outcome(tally, variant)["reason"] == "race: a.cu:7"


def test_check_stops_when_it_knows_enough(variant):
    tally = check.check_variant(variant, FakeExecutor("writes nothing"), **SHAPES)
    assert check.FAILURES_ENOUGH <= len(tally.failures) < check.FAILURES_ENOUGH + 5
    assert tally.shapes_run < 60


class TestCommand:
    @pytest.fixture(autouse=True)
    def _build(self, tmp_path):
        self.build = tmp_path / "tile16.json"
        self.output = tmp_path / "out.json"
        self.record = {
            "variant": "tile16",
            "status": "ok",
            "reason": None,
            "ptx_sha256": "p",
            "cubin_sha256": "c",
        }
        write_json(self.build, self.record)

    def call(self, *more, executor="emulator"):
        command = ["check", "--variant", "tile16", "--executor", executor, "--build", str(self.build)]
        return cli.main([*command, "--output", str(self.output), "--shapes", "25", *more])

    def test_record_is_written_and_valid(self, monkeypatch):
        monkeypatch.setattr(check, "open_executor", lambda *_: FakeExecutor())
        assert self.call() == 0
        record = read_json(self.output)
        assert (record["status"], record["exact_passed"], record["cubin_sha256"]) == ("ok", 25, "c")

    def test_a_gpu_s_check_is_made_by_a_process_of_its_own(self, monkeypatch):
        monkeypatch.setattr(check, "open_executor", lambda *_: FakeExecutor())
        assert self.call(executor="cuda") == 0
        record = read_json(self.output)
        assert (record["status"], record["executor"], record["rounded_passed"]) == ("ok", "cuda", 25)

    def test_a_fault_that_takes_the_process_along_is_a_failed_check(self, monkeypatch):
        monkeypatch.setattr(check, "open_executor", lambda *_: os.kill(os.getpid(), signal.SIGKILL))
        assert self.call(executor="cuda") == 0
        record = read_json(self.output)
        assert record["status"] == "failed"
        assert record["reason"].startswith("check: SIGKILL ended the process")

    def test_a_check_that_hangs_ends_at_its_limit(self, monkeypatch):
        monkeypatch.setattr(check, "open_executor", lambda *_: time.sleep(60))
        assert self.call("--time-limit", "0.3", executor="cuda") == 0
        assert "no end within 0.3 s" in read_json(self.output)["reason"]

    @pytest.mark.parametrize(
        ("error", "expected"),
        [
            (
                Unavailable("PTX instruction wgmma.mma_async is unknown"),
                ("unavailable", "PTX instruction wgmma"),
            ),
            (NotLaunchable("block of 2048 threads, limit 1024"), ("failed", "not launchable: block of 2048")),
            (DeviceFault("gemm: misaligned address"), ("failed", "device fault: gemm: misaligned")),
            (GemmlabError("kernel gemmm not found"), ("failed", "kernel gemmm not found")),
        ],
    )
    def test_what_the_executor_says_becomes_the_record(self, monkeypatch, error, expected):
        def refuse(*_):
            raise error

        monkeypatch.setattr(check, "open_executor", refuse)
        assert self.call() == 0
        record = read_json(self.output)
        assert record["status"] == expected[0]
        assert record["reason"].startswith(expected[1])

    def test_failed_compile_is_skipped(self):
        write_json(self.build, self.record | {"status": "failed", "reason": "x.cu:3: expected a ;"})
        assert self.call() == 0
        assert (read_json(self.output)["status"], read_json(self.output)["reason"]) == (
            "skipped",
            "compile failed",
        )

    def test_another_variant_s_build_is_refused(self, capsys):
        write_json(self.build, self.record | {"variant": "naive"})
        assert self.call() == 2
        assert "built for naive, not for tile16" in capsys.readouterr().err

    def test_a_kernel_that_makes_no_progress_has_no_counts(self, monkeypatch):
        monkeypatch.setattr(count, "open_executor", lambda *_: FakeExecutor("no progress"))
        command = ["count", "--variant", "tile16", "--build", str(self.build), "--output", str(self.output)]
        assert cli.main([*command, "--shapes", "[[4, 5, 6]]"]) == 0
        assert (read_json(self.output)["status"], read_json(self.output)["shapes"]) == ("skipped", [])

    def test_unknown_variant_is_one_message(self, capsys):
        assert (
            cli.main(["check", "--variant", "no", "--executor", "emulator", "--build", "b", "--output", "o"])
            == 2
        )
        assert "variant no: no kernel of this name" in capsys.readouterr().err

    def test_count_writes_its_shapes(self, monkeypatch, tmp_path):
        monkeypatch.setattr(count, "open_executor", lambda *_: FakeExecutor())
        shapes = json.dumps([[4, 5, 6], [1, 1, 1]])
        command = ["count", "--variant", "tile16", "--build", str(self.build), "--output", str(self.output)]
        assert cli.main([*command, "--shapes", shapes]) == 0
        record = read_json(self.output)
        assert [shape["counters"]["ptx_instructions"] for shape in record["shapes"]] == [120, 1]

from __future__ import annotations

import json

import numpy as np
import pytest

from gemmlab import cli, probe, refusals
from gemmlab.errors import GemmlabError
from gemmlab.executors.base import Execution, Unavailable
from gemmlab.files import read_json, write_json
from gemmlab.probe import run_probe
from gemmlab.schema import validate


class Clock:
    """An executor whose launches write a value that grows from run to run."""

    name = "cuda"

    def __init__(self, unwritten=False):
        self.runs = 0
        self.launches = []
        self.unwritten = unwritten

    def run(self, launches, buffers, *, order=0, find=True, count=False):
        assert all(np.isnan(buffer).all() for buffer in buffers.values())
        self.launches = launches
        self.runs += 1
        for buffer in buffers.values():
            buffer[:] = 100.0 if self.runs == 1 else self.runs
        if self.unwritten:
            buffers["latency"][2] = np.nan
        return Execution()


def test_a_probe_s_result_is_the_median_after_a_warm_up(catalogue):
    executor = Clock()
    values = run_probe(catalogue["probe_multiply_add"], executor, sm_count=3, repeats=5)
    # Runs 2 to 6 count; the first, which is far off, doesn't.
    assert values == {"rate": [4.0] * 3}
    assert executor.runs == 6
    assert executor.launches[0].grid == (3, 1, 1)


def test_only_results_are_kept_and_what_was_left_out_is_none(catalogue):
    values = run_probe(catalogue["probe_latency"], Clock(unwritten=True), sm_count=3, repeats=1)
    assert values == {"latency": [2.0, 2.0, None, 2.0]}


@pytest.fixture
def build(tmp_path):
    path = tmp_path / "build" / "probe_latency.json"
    write_json(path, {"variant": "probe_latency", "status": "ok", "reason": None, "cubin_sha256": "0" * 64})
    path.with_suffix(".cubin").write_bytes(b"")
    return path


def run(build, output, *more):
    words = ["probe", "--variant", "probe_latency", "--build", str(build), "--output", str(output), *more]
    assert cli.main(words) == 0
    return read_json(output)


def test_a_machine_without_a_gpu_says_so(build, tmp_path, monkeypatch):
    def none(cubin, library):
        raise Unavailable("CuPy sees no CUDA device.")

    monkeypatch.setattr(probe, "open_device", none)
    monkeypatch.setattr(probe, "end_with_parent", lambda: None)
    record = run(build, tmp_path / "probe.json", "--inside-worker")
    assert (record["status"], record["reason"]) == ("unavailable", "CuPy sees no CUDA device.")
    assert record["cubin_sha256"] == "0" * 64
    assert record["digest"]


def test_a_worker_that_dies_becomes_a_failed_record(build, tmp_path, monkeypatch):
    dead = probe.run_worker(["false"], 10.0, None)
    monkeypatch.setattr(probe, "run_worker", lambda command, limit, log: dead)
    record = run(build, tmp_path / "probe.json")
    assert record["status"] == "failed"
    assert "ended with status 1" in record["reason"]


def test_a_probe_that_did_not_compile_is_skipped(build, tmp_path):
    write_json(build, {"variant": "probe_latency", "status": "failed", "reason": "an error"})
    record = run(build, tmp_path / "probe.json")
    assert (record["status"], record["reason"]) == ("skipped", "compile failed")


def test_only_a_probe_can_be_run(build, tmp_path, capsys):
    words = ["probe", "--variant", "naive", "--build", str(build), "--output", str(tmp_path / "x.json")]
    assert cli.main(words) == 2
    assert "no probe of this name" in capsys.readouterr().err


def test_every_probe_says_where_its_results_lie(catalogue):
    for variant in catalogue.values():
        if variant.kind == "probe":
            assert set(variant.results) <= set(variant.workspace)
            assert variant.results


# ---- What the driver refuses


def test_each_build_has_its_case():
    cases = refusals.builds("sm_90", ("sm_75", "sm_80", "sm_90", "sm_100"))
    assert cases["cubin_without_architecture"] == ["-cubin"]
    assert cases["cubin_for_another_architecture"] == ["-cubin", "-arch=sm_75"]
    assert "cubin_for_another_architecture" not in refusals.builds("sm_90", ("sm_90",))
    assert (
        refusals.builds("sm_100", ("sm_100", "sm_103", "sm_120"))["cubin_for_another_architecture"][1]
        == "-arch=sm_120"
    )


def test_ptx_is_marked_as_of_a_later_version_and_nothing_else():
    text = b"//\n.version 9.0\n.target sm_90\n.version 8.0\n"
    assert refusals.newer_version(text) == b"//\n.version 99.0\n.target sm_90\n.version 8.0\n"


def test_answers_are_the_error_s_name_and_words():
    def refuse():
        raise RuntimeError("CUDA_ERROR_NO_BINARY_FOR_GPU: no kernel image is available")

    assert refusals.answer_to(refuse, (RuntimeError,)) == {
        "error": "CUDA_ERROR_NO_BINARY_FOR_GPU",
        "message": "no kernel image is available",
    }
    assert refusals.answer_to(lambda: None, (RuntimeError,))["error"] == refusals.ACCEPTED
    with pytest.raises(ValueError, match="another"):
        refusals.answer_to(lambda: int("another"), (RuntimeError,))


def test_shared_memory_is_asked_for_at_and_over_both_limits():
    assert refusals.shared_memory_cases(232448) == {
        "shared_memory_without_opting_in": (49153, False),
        "shared_memory_at_the_limit": (232448, True),
        "shared_memory_over_the_limit": (232449, True),
    }


def test_a_record_of_answers_follows_the_schema(tmp_path, monkeypatch):
    answers = {"cubin_without_architecture": {"error": "X", "message": "y"}}
    monkeypatch.setattr(refusals, "try_all", lambda nvcc: answers)
    monkeypatch.setattr(refusals, "end_with_parent", lambda: None)
    output = tmp_path / "refusals.json"
    assert cli.main(["refusals", "--output", str(output), "--inside-worker"]) == 0
    record = json.loads(output.read_text())
    validate(record, "probe", "record")
    assert record["answers"] == answers

    def unavailable(nvcc):
        raise Unavailable("no GPU")

    monkeypatch.setattr(refusals, "try_all", unavailable)
    cli.main(["refusals", "--output", str(output), "--inside-worker"])
    assert json.loads(output.read_text())["status"] == "unavailable"


def test_the_catalogue_wants_a_probe_s_results(tmp_path):
    from gemmlab.catalogue import load_catalogue
    from gemmlab.files import repository_root

    (tmp_path / "probes.yaml").write_text(
        "probe_x:\n  kind: probe\n  idea: x\n  source: kernels/92_multiply_add.cu\n  block: [1]\n  grid: [1]\n"
        "  arguments: {rate: pointer}\n  workspace: {rate: {elements: 1}}\n"
    )
    with pytest.raises(GemmlabError, match="a probe names the buffers"):
        load_catalogue(tmp_path, repository_root())

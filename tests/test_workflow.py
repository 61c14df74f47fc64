"""The DAG as a user meets it: a small catalogue in a copy of the repository, whose path has a space and an accent."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from gemmlab import live_run
from gemmlab.files import read_yaml, repository_root
from gemmlab.schema import write_table

VARIANTS = ["naive", "tile16", "broken_no_second_barrier"]
RESULTS = Path("results/emulator-sm_90")
# For a machine that has one.
NO_GPU = {"CUDA_VISIBLE_DEVICES": ""}


class Checkout:
    """A copy of the repository with a few variants and small checks."""

    def __init__(self, folder: Path):
        self.folder = folder
        root = repository_root()
        for name in ("Snakefile", "environment.yml", "README.md", "pyproject.toml", "requirements.lock"):
            shutil.copy(root / name, folder / name)
        for name in ("config", "kernels", "profiles", "workflow"):
            shutil.copytree(root / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        config = read_yaml(folder / "config" / "config.yaml")
        config |= {"variants": VARIANTS, "device": "none", "check": config["check"] | {"shapes": 20}}
        config["count"] = {"shapes": [[16, 16, 16]]}
        (folder / "config" / "config.yaml").write_text(yaml.safe_dump(config))

    def snakemake(self, *arguments, cwd=None, variables=None):
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        environment |= variables or {}
        # One build of the emulator serves every copy.
        environment.setdefault("GEMMLAB_EMULATOR_DIR", str(repository_root() / "results" / "emulator"))
        return subprocess.run(
            [sys.executable, "-m", "snakemake", *arguments],
            cwd=cwd or self.folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=300,
        )

    def planned(self, *arguments):
        """Jobs by rule that a dry run lists."""
        answer = self.snakemake("-n", "--quiet=rules", *arguments)
        assert answer.returncode == 0, answer.stderr
        text = answer.stdout + answer.stderr
        rows = re.findall(r"^(\w+) +(\d+)$", text, re.MULTILINE)
        return {rule: int(number) for rule, number in rows if rule != "total"}


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    checkout = Checkout(tmp_path_factory.mktemp("été au lac"))
    run = checkout.snakemake("--cores", "2")
    assert run.returncode == 0, run.stderr
    return checkout


def test_run_publishes_everything(checkout):
    results = checkout.folder / RESULTS
    tables = {path.name for path in (results / "tables").glob("*.csv")}
    assert tables >= {"summary.csv", "checks.csv", "broken.csv", "counters.csv", "timings.csv", "claims.csv"}
    assert (results / "report.html").stat().st_size > 10_000
    assert (results / "gate" / "all").is_file()
    caught = (results / "tables" / "broken.csv").read_text()
    assert "race" in caught
    assert "no_second_barrier.cu" in caught
    assert str(checkout.folder) not in (results / "build" / "naive.ptx").read_text()


def test_second_run_and_touch_plan_nothing(checkout):
    assert checkout.planned() == {}
    (checkout.folder / "kernels" / "01_naive.cu").touch()
    assert checkout.planned() == {}


def test_editing_a_kernel_reruns_its_chain_only(checkout):
    kernel = checkout.folder / "kernels" / "01_naive.cu"
    text = kernel.read_text()
    try:
        kernel.write_text(text + "// A comment.\n")
        planned = checkout.planned()
        assert planned == {
            "all": 1,
            "check": 1,
            "claims": 1,
            "compile": 1,
            "count": 1,
            "gate_all": 1,
            "publish": 1,
        }
        assert checkout.planned("tile16") == {"gate_variant": 1, "tile16": 1}
    finally:
        kernel.write_text(text)
    assert checkout.planned() == {}


def test_a_live_run_is_not_unlocked(checkout):
    with live_run.announce(checkout.folder, unlocking=False):
        answer = checkout.snakemake("--unlock")
        assert answer.returncode != 0
        assert "a run is going on here" in answer.stdout + answer.stderr
    assert checkout.snakemake("--unlock").returncode == 0


def test_a_deleted_report_is_made_again(checkout):
    (checkout.folder / RESULTS / "report.html").unlink()
    assert checkout.planned()["publish"] == 1
    assert checkout.snakemake("--cores", "2").returncode == 0


def test_make_works_in_a_folder_with_a_space(checkout):
    shutil.copy(repository_root() / "Makefile", checkout.folder / "Makefile")
    environment = Path(sys.executable).parents[1]
    answer = subprocess.run(
        ["make", "--no-print-directory", "report", f"VENV={environment}"],
        cwd=checkout.folder,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert answer.returncode == 0, answer.stderr
    assert "Report: results/emulator-sm_90/report.html" in answer.stdout


def test_lost_ptx_is_compiled_again(checkout):
    """A check that runs again needs the PTX: without it a run would fail, and so would every later one."""
    results = checkout.folder / RESULTS
    (results / "build" / "naive.ptx").unlink()
    (results / "check" / "emulator" / "naive.json").unlink()
    (results / "report.html").unlink()
    assert checkout.snakemake("--cores", "2").returncode == 0
    assert (results / "build" / "naive.ptx").is_file()


def test_editing_a_figure_reruns_no_measurement(checkout):
    figures = checkout.folder / "workflow" / "gemmlab" / "figures.py"
    text = figures.read_text()
    try:
        figures.write_text(text + "# A comment.\n")
        assert set(checkout.planned()) <= {"all", "publish", "gate_all"}
    finally:
        figures.write_text(text)


@pytest.mark.parametrize(("folder", "name"), [("tune", "tune"), ("tables", "static")])
def test_a_table_that_was_asked_for_is_read_by_claims_and_becomes_no_part_of_the_run(checkout, folder, name):
    table = checkout.folder / RESULTS / folder / f"{name}.csv"
    write_table(table, [], name)
    try:
        assert set(checkout.planned()) == {"all", "claims", "publish", "gate_all"}
    finally:
        table.unlink()


def test_runs_from_another_folder(checkout, tmp_path):
    answer = checkout.snakemake("-n", "-s", str(checkout.folder / "Snakefile"), cwd=tmp_path)
    assert answer.returncode == 0, answer.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_gpu_named_on_another_machine_plans_its_stages_without_cores(checkout):
    planned = checkout.planned("--config", "device=nvidia-h200")
    assert planned["bench"] == planned["profile"] == 3  # naive, tile16 and their baseline
    assert planned["check"] == 6
    assert planned["sanitize"] == 1
    unlocked = checkout.snakemake("--unlock", "--config", "device=nvidia-h200")
    assert unlocked.returncode == 0, unlocked.stderr


@pytest.fixture
def fake_h200(tmp_path):
    """Variables of a machine whose nvidia-smi lists an H200."""
    program = tmp_path / "bin" / "nvidia-smi"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho 'NVIDIA H200, GPU-5e1a6f0e, 580.159.04, 9.0, Disabled'\n")
    program.chmod(0o755)
    path = os.pathsep.join([str(program.parent), os.environ["PATH"]])
    return {"PATH": path, "CUDA_VISIBLE_DEVICES": "0"}


def test_a_gpu_s_plan_takes_no_fixed_file_for_a_variant(checkout, fake_h200):
    answer = checkout.snakemake("-n", "--quiet=rules", "--config", "device=auto", variables=fake_h200)
    text = answer.stdout + answer.stderr
    assert answer.returncode == 0, text
    assert re.search(r"^refusals +1$", text, re.MULTILINE)
    assert re.search(r"^gate_all +1$", text, re.MULTILINE)
    assert "InputFunctionException" not in text
    assert "KeyError" not in text
    assert "gemmlab: warning" not in text


def test_a_named_gpu_that_is_not_here_is_said_once_and_first(checkout, fake_h200):
    answer = checkout.snakemake("-n", "--quiet=all", "--config", "device=nvidia-h20", variables=NO_GPU)
    assert answer.returncode == 0, answer.stderr
    assert answer.stderr.count("gemmlab: warning: device is nvidia-h20, but there is no GPU here") == 1
    assert "known are auto, none" in answer.stderr
    answer = checkout.snakemake("-n", "--quiet=all", "--config", "device=nvidia-h20", variables=fake_h200)
    assert answer.stderr.count("but the GPU here is nvidia-h200; known are auto, none, nvidia-h200") == 1
    answer = checkout.snakemake("-n", "--quiet=all", "--config", "device=nvidia-h200", variables=fake_h200)
    assert "warning" not in answer.stderr


def test_a_named_gpu_that_measured_nothing_ends_non_zero(checkout):
    named = ["--config", "device=nvidia-h20", "variants=[naive]"]
    answer = checkout.snakemake("--cores", "2", *named, variables=NO_GPU)
    text = answer.stdout + answer.stderr
    assert answer.returncode != 0, text
    assert "nvidia-h20, bench: asked for by name, but not one row was measured" in text
    assert text.count("gemmlab: warning") == 1
    results = checkout.folder / "results" / "nvidia-h20"
    assert "asked for by name" in (results / "report.html").read_text()
    assert not (results / "gate" / "all").exists()


def test_a_named_commit_that_is_none_is_refused_before_any_job(checkout):
    answer = checkout.snakemake("-n", variables={"GEMMLAB_COMMIT": "main"})
    text = answer.stdout + answer.stderr
    assert answer.returncode != 0
    assert "GEMMLAB_COMMIT is 'main', expected" in text
    assert "Traceback" not in text
    assert "Job stats" not in text


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (b"a: \xe9\n", "byte 0xe9 is not UTF-8"),
        (b"a: \0\n", "U+0000"),
        (b"a:\n\tb: 1\n", "a tab in the"),
        (b"a: 1\na: 2\n", "stands twice"),
    ],
)
@pytest.mark.parametrize("name", ["config.yaml", "variants/zz_extra.yaml"])
def test_a_file_that_is_no_yaml_is_one_message(checkout, name, content, fault):
    file = checkout.folder / "config" / name
    before = file.read_bytes() if file.is_file() else None
    file.write_bytes((before or b"") + content)
    try:
        answer = checkout.snakemake("-n")
    finally:
        file.unlink() if before is None else file.write_bytes(before)
    text = answer.stdout + answer.stderr
    assert answer.returncode != 0
    assert f"{name}:" in text
    assert fault in text
    assert "Traceback" not in text


@pytest.mark.parametrize("setting", ["preset=quick", "sizes=[1,10]", "variants=[nothing]", "seed=-1"])
def test_faulty_configuration_is_one_message(checkout, setting):
    answer = checkout.snakemake("-n", "--config", setting)
    assert answer.returncode != 0
    text = answer.stdout + answer.stderr
    assert "configuration" in text
    assert "Traceback" not in text


@pytest.mark.parametrize("name", ["all", "kernels"])
def test_variant_with_a_target_s_name_is_refused(checkout, name):
    extra = checkout.folder / "config" / "variants" / "zz_extra.yaml"
    extra.write_text(f"{name}:\n  idea: x\n  source: kernels/01_naive.cu\n  block: [1]\n  grid: [1]\n")
    try:
        answer = checkout.snakemake("-n")
    finally:
        extra.unlink()
    assert answer.returncode != 0
    assert f"variant {name}: the name {name} is" in answer.stdout + answer.stderr


def test_syntax_error_fails_twice_and_stops_nobody(checkout):
    broken = checkout.folder / "kernels" / "01_naive.cu"
    other = checkout.folder / "kernels" / "03_shared_tile.cu"
    texts = {path: path.read_text() for path in (broken, other)}
    try:
        broken.write_text(texts[broken].replace("{", "{ not C++;", 1))
        other.write_text(texts[other] + "// A comment.\n")
        first = checkout.snakemake("--cores", "2")
        assert first.returncode != 0, first.stdout + first.stderr
        results = checkout.folder / RESULTS
        assert (results / "build" / "naive.cubin").stat().st_size == 0
        assert "compile failed" in (results / "check" / "emulator" / "naive.json").read_text()
        assert '"status": "ok"' in (results / "check" / "emulator" / "tile16.json").read_text()
        assert "01_naive.cu" in first.stdout + first.stderr
        assert checkout.snakemake("--cores", "2").returncode != 0
        assert checkout.snakemake("--cores", "1", "naive").returncode != 0
        assert checkout.snakemake("--cores", "1", "tile16").returncode == 0
    finally:
        for path, text in texts.items():
            path.write_text(text)

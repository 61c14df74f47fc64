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

from gemmlab.files import read_yaml, repository_root

VARIANTS = ["naive", "tile16", "broken_no_second_barrier"]
RESULTS = Path("results/emulator-sm_90")


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

    def snakemake(self, *arguments, cwd=None):
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
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


def test_editing_a_figure_reruns_no_measurement(checkout):
    figures = checkout.folder / "workflow" / "gemmlab" / "figures.py"
    text = figures.read_text()
    try:
        figures.write_text(text + "# A comment.\n")
        assert set(checkout.planned()) <= {"all", "publish", "gate_all"}
    finally:
        figures.write_text(text)


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

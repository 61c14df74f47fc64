from __future__ import annotations

import re
import subprocess
import sys

import yaml

from gemmlab.files import repository_root

ROOT = repository_root()


def pins(name):
    return dict(re.findall(r"^([A-Za-z0-9_.-]+)==([^ ;\\]+)", (ROOT / name).read_text(), re.MULTILINE))


def test_pip_part_of_environment_is_the_locks():
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())
    python, pip, packages = environment["dependencies"]
    assert python.startswith("python=3.1")
    assert pip == "pip"
    assert packages["pip"] == ["-r requirements.lock", "-r requirements-gpu-cu12.lock"]


def test_locks_have_hashes_and_no_addresses():
    for name in ("requirements.lock", "requirements-gpu-cu12.lock"):
        text = (ROOT / name).read_text()
        assert text.count("--hash=sha256:") >= len(pins(name)) > 5
        assert "://" not in text


def test_locks_agree_with_each_other():
    base, gpu = pins("requirements.lock"), pins("requirements-gpu-cu12.lock")
    for name in set(base) & set(gpu):
        assert base[name] == gpu[name], name


def test_lock_holds_every_dependency():
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wanted = project["project"]["dependencies"] + project["dependency-groups"]["development"]
    names = {re.split(r"[\[<>=; ]", requirement)[0].lower().replace("_", "-") for requirement in wanted}
    assert names <= {name.lower().replace("_", "-") for name in pins("requirements.lock")}


def test_command_line_runs():
    answer = subprocess.run(
        [sys.executable, "-m", "gemmlab", "--version"], capture_output=True, text=True, check=True
    )
    assert re.fullmatch(r"gemmlab \d+\.\d+\.\d+\n", answer.stdout)

from __future__ import annotations

from pathlib import Path

import pytest

from gemmlab import nvidia_smi
from gemmlab.nvidia_smi import complaint, parse_rows, query, smi_value

CASES = Path(__file__).parent / "cases"
FIELDS = ["name", "uuid", "driver_version", "compute_cap", "mig.mode.current"]


def fake_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    path = tmp_path / "nvidia-smi"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    monkeypatch.setattr(nvidia_smi, "find_nvidia_smi", lambda: path)


def test_every_card_is_a_row() -> None:
    rows = parse_rows((CASES / "nvidia_smi_two_gpus.txt").read_text(), FIELDS)
    assert [row["name"] for row in rows] == ["NVIDIA H200", "NVIDIA A100-SXM4-80GB"]
    assert rows[1]["compute_cap"] == "[N/A]"


def test_a_driver_mismatch_on_standard_output_is_no_card() -> None:
    text = (CASES / "nvidia_smi_mismatch.txt").read_text()
    assert parse_rows(text, FIELDS) == []
    assert "Driver/library version mismatch" in complaint(text)
    assert "reboot" in complaint(text)


@pytest.mark.parametrize(
    "text", ["[N/A]", "[Not Supported]", "[Unknown Error]", "[GPU requires reset]", "ERR!", ""]
)
def test_what_is_no_value_is_none(text: str) -> None:
    assert smi_value(text) is None


def test_a_value_stays_as_it_is() -> None:
    assert smi_value("700.00") == "700.00"


def test_a_field_that_this_nvidia_smi_does_not_know_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = """case "$1" in
*mystery*) echo 'Field "mystery" is not a valid field to query.'; exit 2;;
*) echo 'GPU-1, 350';;
esac"""
    fake_smi(tmp_path, monkeypatch, script)
    assert query(["uuid", "mystery", "clocks.sm"]) == [{"uuid": "GPU-1", "clocks.sm": "350"}]


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("echo 'No devices were found'", "No devices were found"),
        ("cat >/dev/null", "it printed nothing"),
        ("echo 'Failed to initialize NVML: Driver/library version mismatch'", "mismatch"),
    ],
)
def test_no_card_is_said_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, words: str
) -> None:
    fake_smi(tmp_path, monkeypatch, script)
    answer = query(["uuid", "name"])
    assert isinstance(answer, str)
    assert words in answer


def test_an_nvidia_smi_that_hangs_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvidia_smi, "TIMEOUT_S", 0.3)
    fake_smi(tmp_path, monkeypatch, "sleep 30")
    assert "didn't answer" in query(["uuid"])

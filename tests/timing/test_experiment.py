from __future__ import annotations

import sys

import pytest
from fake_gpu import Gpu

from gemmlab.timing import experiment


def test_both_tables_have_a_row_for_each_case(gpu: Gpu, capsys: pytest.CaptureFixture) -> None:
    assert experiment.main(["--edge", "32", "--variants", "cublas_fp32", "cublas_tf32"]) == 0
    text = capsys.readouterr().out
    tables = [block for block in text.split("\n\n") if block.startswith("|")]
    first, inputs = (block.strip().splitlines() for block in tables)
    assert len(first) == 2 + 2
    assert len(inputs) == 2 + 2 * 3
    assert all(line.count("|") == inputs[0].count("|") for line in inputs)
    # The fake takes 0.2 ms whatever the input: 2 x 32^3 operations.
    assert f"{2 * 32**3 / 0.2e9:.1f}" in inputs[2]


def test_without_a_gpu_the_reason_is_said(
    gpu: Gpu, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    assert experiment.main([]) == 2
    assert "CuPy can't be imported" in capsys.readouterr().err

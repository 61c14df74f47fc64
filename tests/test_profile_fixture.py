"""profile's reading of a report against ncu's own CSV export of the same report, from an H200.

tests/cases/profile holds pairs of NAME.ncu-rep and NAME.csv (`ncu --import NAME.ncu-rep --csv --page raw`).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from gemmlab import ncu

CASES = Path(__file__).parent / "cases" / "profile"
REPORTS = sorted(CASES.glob("*.ncu-rep"))
ARTICLES = (
    "gpu__time_duration.sum",
    "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum",
    "sm__warps_active.avg.pct_of_peak_sustained_active",
)


def test_three_variants_are_compared():
    assert len(REPORTS) >= 3


@pytest.mark.parametrize("report", REPORTS, ids=lambda path: path.stem)
def test_report_and_export_agree(report):
    rows = ncu.parse_csv(report.with_suffix(".csv").read_text())
    metrics = [name for name, cell in rows[0].items() if isinstance(cell, ncu.Cell)]
    actions = ncu.read_report(report, metrics)
    assert set(ARTICLES) <= set(metrics)
    assert ncu.differences(actions, rows) == []
    assert [action.name for action in actions] == [row["Kernel Name"] for row in rows]
    assert all(action.metrics["gpu__time_duration.sum"].unit == "ns" for action in actions)


@pytest.mark.parametrize("report", REPORTS, ids=lambda path: path.stem)
def test_a_changed_export_is_noticed(report):
    rows = ncu.parse_csv(report.with_suffix(".csv").read_text())
    actions = ncu.read_report(report, ["gpu__time_duration.sum"])
    cell = rows[0]["gpu__time_duration.sum"]
    rows[0]["gpu__time_duration.sum"] = ncu.Cell(cell.value * 1.1, cell.unit, cell.tolerance)
    assert len(ncu.differences(actions, rows)) == 1

"""profile.csv against ncu's own CSV export of the same report, for three variants on an H200.

tests/cases/profile holds pairs of NAME.ncu-rep and NAME.csv (`ncu --import NAME.ncu-rep --csv --page raw`): one launch
each at 256 x 256 x 256 and at 67 x 129 x 35, the metrics that the articles read.
"""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from gemmlab import ncu, profile, status
from gemmlab.schema import read_table, write_table

CASES = Path(__file__).parent / "cases" / "profile"
REPORTS = sorted(CASES.glob("*.ncu-rep"))
SHAPES = ((256, 256, 256), (67, 129, 35))
ARTICLES = (
    "gpu__time_duration.sum",
    "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum",
    "sm__warps_active.avg.pct_of_peak_sustained_active",
)


def export_of(report: Path) -> list[dict[str, ncu.Cell | str]]:
    return ncu.parse_csv(report.with_suffix(".csv").read_text())


def test_three_variants_are_compared():
    assert len(REPORTS) >= 3


@pytest.mark.parametrize("report", REPORTS, ids=lambda path: path.stem)
def test_the_table_holds_what_ncu_exports(report, catalogue, tmp_path):
    launched = [
        dict(zip("mnk", shape, strict=True)) | {"entries": ["gemm"], "skipped": None} for shape in SHAPES
    ]
    recorded = profile.Recorded(
        ncu.read_report(report, ARTICLES), {"gpu_uuid": "GPU-1", "shapes": launched}, (), None
    )
    plan = profile.Plan(dict.fromkeys(SHAPES, ARTICLES), ARTICLES)
    rows = profile.rows_of(recorded, plan, catalogue[report.stem], {"variant": report.stem})
    write_table(tmp_path / "profile.csv", rows, "profile")
    table = read_table(tmp_path / "profile.csv", "profile")
    assert len(table) == len(SHAPES) * len(ARTICLES)
    assert (table.status == status.OK).all()
    for shape, exported in zip(SHAPES, export_of(report), strict=True):
        launch = catalogue[report.stem].plan(profile.Problem.packed(*shape))[0]
        assert exported["Grid Size"] == str(launch.grid)
        assert exported["Block Size"] == str(launch.block)
        here = table[(table.m == shape[0]) & (table.n == shape[1]) & (table.k == shape[2])]
        assert here.kernel.unique().tolist() == [exported["Kernel Name"]]
        for row in here.itertuples():
            cell = exported[row.metric]
            assert math.isclose(row.value, cell.value, rel_tol=1e-9, abs_tol=cell.tolerance), row.metric
            assert (row.unit if isinstance(row.unit, str) else "") == cell.unit


@pytest.mark.parametrize("report", REPORTS, ids=lambda path: path.stem)
def test_every_number_of_a_report_agrees_with_its_export(report):
    rows = export_of(report)
    metrics = [name for name, cell in rows[0].items() if isinstance(cell, ncu.Cell)]
    actions = ncu.read_report(report, metrics)
    assert len(metrics) > 250
    assert ncu.differences(actions, rows) == []
    absent = {name for name, value in actions[0].metrics.items() if value.value is None}
    assert absent == {name for name in metrics if rows[0][name].value is None}
    assert len(absent) < 10
    # A launch has a stream of its own, by which the launches of a library are told apart.
    assert len({action.stream for action in actions}) == len(SHAPES)


@pytest.mark.parametrize("report", REPORTS, ids=lambda path: path.stem)
def test_a_changed_export_is_noticed(report):
    rows = export_of(report)
    actions = ncu.read_report(report, ["gpu__time_duration.sum"])
    cell = rows[0]["gpu__time_duration.sum"]
    rows[0]["gpu__time_duration.sum"] = ncu.Cell(cell.value * 1.0001, cell.unit, cell.tolerance)
    assert len(ncu.differences(actions, rows)) == 1


def test_a_metric_that_a_report_lacks_is_null_with_a_reason():
    (first, _) = ncu.read_report(REPORTS[0], ["smsp__imagined.sum"])
    assert first.metrics["smsp__imagined.sum"] == ncu.Value(None, None, "ncu recorded no such metric")

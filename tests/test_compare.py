from __future__ import annotations

import publish_cases as cases
import pytest

from gemmlab import cli, compare
from gemmlab.schema import read_table, write_table


def write_run(folder, rows) -> str:
    write_table(folder / "tables" / "timings.csv", rows, "timings")
    return str(folder)


def narrow(tflops: float, size: int = 4096, width: float = 0.001, **fields):
    """A timing whose ratio has an interval of `width` to each side."""
    ratio = tflops / 50.0
    interval = {"ratio_low": ratio * (1 - width), "ratio_high": ratio * (1 + width)}
    return cases.timing("tile16", (size, size, size), "cold", tflops, **(interval | fields))


@pytest.mark.parametrize(
    ("size", "before", "after", "width", "verdict", "over"),
    [
        (4096, 20.0, 20.1, 0.001, "same", False),
        (4096, 20.0, 20.5, 0.001, "faster", True),
        (4096, 20.5, 20.0, 0.001, "slower", True),
        (4096, 20.0, 20.1, 0.02, "unsure", False),
        (4096, 20.0, 20.5, 0.03, "unsure", True),
        (4096, 20.0, 20.18, 0.003, "faster", False),
        (1024, 20.0, 20.5, 0.001, "same", False),
        (1024, 20.0, 21.0, 0.001, "faster", True),
    ],
)
def test_verdicts(tmp_path, size, before, after, width, verdict, over):
    runs = [
        write_run(tmp_path / name, [narrow(speed, size, width)])
        for name, speed in (("a", before), ("b", after))
    ]
    output = tmp_path / "comparison.csv"
    assert cli.main(["compare", *runs, "--output", str(output)]) == 0
    row = read_table(output, "comparison").loc[0]
    assert (row["verdict"], bool(row["over_tolerance"]), row["compared"]) == (verdict, over, "ratio")
    assert row["change_percent"] == pytest.approx(100 * (after / before - 1))


def test_intervals_join_by_the_root_of_squares(tmp_path):
    before, after = (compare.read_timings(tmp_path / name) for name in write_pair(tmp_path, 0.003, 0.004))
    row = compare.compare(before, after)[0]
    assert row["change_percent_high"] == pytest.approx(0.5, rel=0.01)
    assert row["change_percent_low"] == pytest.approx(-0.5, rel=0.01)


def write_pair(folder, *widths: float) -> list[str]:
    names = [f"run{number}" for number in range(len(widths))]
    for name, width in zip(names, widths, strict=True):
        write_run(folder / name, [narrow(20.0, width=width)])
    return names


def test_rows_without_an_interval_are_unsure(tmp_path):
    runs = [
        write_run(tmp_path / "a", [narrow(20.0, ratio_low=None, ratio_high=None)]),
        write_run(tmp_path / "b", [narrow(30.0)]),
    ]
    rows = compare.compare(*(compare.read_timings(tmp_path / name) for name in ("a", "b")))
    assert (rows[0]["verdict"], rows[0]["change_percent_low"]) == ("unsure", None)
    assert cli.main(["compare", *runs]) == 0


def test_a_baseline_is_compared_by_its_time(tmp_path):
    fields = {"ratio": None, "ratio_low": None, "ratio_high": None, "time_ms_low": 1.0, "time_ms_high": 1.0}
    for name, time in (("a", 1.0), ("b", 0.5)):
        row = cases.timing("cublas_fp32", cases.HEADLINE, "hot", 40.0, **fields, time_ms_median=time)
        write_run(tmp_path / name, [row | {"time_ms_low": time, "time_ms_high": time}])
    row = compare.compare(*(compare.read_timings(tmp_path / name) for name in ("a", "b")))[0]
    assert (row["compared"], row["verdict"], row["change_percent"]) == ("time", "faster", 100.0)


def test_what_only_one_run_has_is_named(tmp_path, capsys):
    a = write_run(tmp_path / "a", [narrow(20.0), narrow(20.0, 1024)])
    b = write_run(tmp_path / "b", [narrow(20.0), cases.timing("tile32", cases.HEADLINE, "hot", 9.0)])
    assert cli.main(["compare", a, b]) == 0
    output = capsys.readouterr().out
    assert f"Only in {a}: tile16 at 1024^3 cold" in output
    assert f"Only in {b}: tile32 at 4096^3 hot" in output
    assert "1 rows: 1 same, 0 faster, 0 slower, 0 unsure. 0 differ" in output


def test_rows_that_are_not_ranked_are_left_out(tmp_path):
    write_run(tmp_path / "a", [narrow(20.0), narrow(90.0, 1024, flags="implausible")])
    assert [row["m"] for row in compare.read_timings(tmp_path / "a")] == [4096]


@pytest.mark.parametrize("rows", [None, [], [narrow(20.0, status="failed", reason="wrong")]])
def test_a_run_without_times_is_refused(tmp_path, capsys, rows):
    good = write_run(tmp_path / "good", [narrow(20.0)])
    if rows is not None:
        write_run(tmp_path / "other", rows)
    assert cli.main(["compare", good, str(tmp_path / "other")]) == 2
    assert "other" in capsys.readouterr().err


def test_runs_with_nothing_in_common_are_refused(tmp_path, capsys):
    a, b = write_run(tmp_path / "a", [narrow(20.0)]), write_run(tmp_path / "b", [narrow(20.0, 1024)])
    assert cli.main(["compare", a, b]) == 2
    assert "in common" in capsys.readouterr().err


def fails(capsys, *runs: str) -> str:
    assert cli.main(["compare", *runs]) == 2
    message = capsys.readouterr().err
    assert message.count("\n") == 1
    return message


@pytest.mark.parametrize(
    ("column", "text", "message"),
    [
        ("time_ms_median", "0", "time_ms_median is 0, expected more than 0"),
        ("ratio", "0", "ratio is 0, expected more than 0"),
        ("ratio_low", "-0.5", "ratio_low is -0.5, expected more than 0"),
        ("ratio", "inf", "ratio is 'inf', expected a finite number"),
        ("m", "", "m is null, expected an integer"),
    ],
)
def test_rows_with_a_senseless_figure_are_refused(tmp_path, capsys, column, text, message):
    a, b = (write_run(tmp_path / name, [narrow(20.0)]) for name in ("a", "b"))
    path = tmp_path / "b" / "tables" / "timings.csv"
    header, row = (line.split(",") for line in path.read_text().splitlines())
    row[header.index(column)] = text
    path.write_text(f"{','.join(header)}\n{','.join(row)}\n")
    assert f"{path}, row 1: {message}" in fails(capsys, a, b)


def test_a_row_that_is_given_twice_is_refused(tmp_path, capsys):
    a = write_run(tmp_path / "a", [narrow(20.0)])
    b = write_run(tmp_path / "b", [narrow(20.0), narrow(20.0, 1024), narrow(30.0)])
    assert "timings.csv, row 3: tile16 at 4096^3 cold stands in row 1 already" in fails(capsys, a, b)


@pytest.mark.parametrize(
    ("before", "after"),
    [({"ratio": 1e-300}, {"ratio": 1e300}), ({"time_ms_median": 1e-310, "ratio": None}, {"ratio": None})],
)
def test_figures_too_far_apart_for_a_float_are_refused(tmp_path, capsys, before, after):
    a = write_run(tmp_path / "a", [narrow(20.0, **before)])
    b = write_run(tmp_path / "b", [narrow(20.0, **after)])
    assert "tile16 at 4096^3 cold" in fails(capsys, a, b)

"""`gemmlab compare RUN_A RUN_B`: which variants became faster or slower from run A to run B.

What is compared is the ratio to the baseline timed in the same process, since clocks and temperatures act on both;
a baseline itself has no ratio, so its own speed is compared. `change` is B / A - 1; its interval joins the 95 %
intervals of both runs, which are independent, by the root of the sum of squares of their relative widths to that
side. The tolerance is 1 % from 2048^3 on and 3 % below.

| verdict | when |
|---|---|
| same | the whole interval lies within the tolerance |
| faster, slower | else, if the whole interval lies above, below zero |
| unsure | else: it holds zero and reaches past the tolerance, or a run has no interval |
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from pathlib import Path

from gemmlab.errors import GemmlabError
from gemmlab.schema import cure, write_table
from gemmlab.tables import Row, ranked_row, read_rows, shape_text

LARGE_FMAS = 2048**3
TOLERANCE_LARGE = 0.01
TOLERANCE_SMALL = 0.03
VERDICTS = ("same", "faster", "slower", "unsure")
_KEY = ("variant", "m", "n", "k", "cache")


def read_timings(run: Path) -> list[Row]:
    """The rows of a run's timings.csv that may be compared, one for each variant, shape and cache.

    Args:
        run: a folder with tables/timings.csv (results/<device>, results/published/<gpu>), or one with timings.csv.

    Raises:
        GemmlabError: there is no such table, a row breaks its schema or is given twice, or none may be compared.
    """
    places = [run / "tables" / "timings.csv", run / "timings.csv"]
    path = next((place for place in places if place.is_file()), None)
    if path is None:
        raise GemmlabError(
            f"{run}: neither tables/timings.csv nor timings.csv lies here; expected results/<device>."
        )
    numbered = [pair for pair in enumerate(read_rows(path, "timings"), start=1) if ranked_row(pair[1])]
    if not numbered:
        raise GemmlabError(f"{path}: no row with a time that may be compared; the column reason says why.")
    seen: dict[tuple, int] = {}
    for number, row in numbered:
        first = seen.setdefault(_key(row), number)
        if first != number:
            raise GemmlabError(
                f"{path}, row {number}: {_where(_key(row))} stands in row {first} already. {cure('timings')}"
            )
    return [row for _, row in numbered]


def _key(row: Row) -> tuple:
    return tuple(row[name] for name in _KEY)


def compare(before: Sequence[Row], after: Sequence[Row]) -> list[Row]:
    """A row (schema `comparison`) for each variant, shape and cache that both runs hold, in the order of `after`.

    Args:
        before: rows as `read_timings` gives them.
        after: the same of the later run.

    Raises:
        GemmlabError: two times are so far apart that a float can't hold their ratio.
    """
    old = {_key(row): row for row in before}
    rows = []
    for new in after:
        key = _key(new)
        if key in old:
            rows.append(dict(zip(_KEY, key, strict=True)) | _compare(old[key], new))
    return rows


def _compare(old: Row, new: Row) -> Row:
    by_ratio = old["ratio"] is not None and new["ratio"] is not None
    a, b = (_speed(row, by_ratio) for row in (old, new))
    change = b[1] / a[1] - 1
    fmas = new["m"] * new["n"] * new["k"]
    tolerance = TOLERANCE_LARGE if fmas >= LARGE_FMAS else TOLERANCE_SMALL
    known = None not in (*a, *b)
    low = (1 + change) * (1 - math.hypot(1 - b[0] / b[1], a[2] / a[1] - 1)) - 1 if known else None
    high = (1 + change) * (1 + math.hypot(b[2] / b[1] - 1, 1 - a[0] / a[1])) - 1 if known else None
    row: Row = {
        "compared": "ratio" if by_ratio else "time",
        "before": a[1],
        "after": b[1],
        "change_percent": 100 * change,
        "change_percent_low": 100 * low if known else None,
        "change_percent_high": 100 * high if known else None,
        "tolerance_percent": 100 * tolerance,
        "over_tolerance": abs(change) > tolerance,
        "verdict": verdict(low, high, tolerance),
    }
    if not all(math.isfinite(value) for value in row.values() if isinstance(value, float)):
        raise GemmlabError(
            f"{_where(_key(new))}: {a[1]:.3g} before and {b[1]:.3g} after can't be compared; expected plausible times."
        )
    return row


def _speed(row: Row, by_ratio: bool) -> tuple[float | None, float, float | None]:
    """Low, middle and high of the ratio to the baseline, or else of 1 / time in 1/ms."""
    if by_ratio:
        return row["ratio_low"], row["ratio"], row["ratio_high"]
    times = (row["time_ms_high"], row["time_ms_median"], row["time_ms_low"])
    low, middle, high = (None if time is None else 1 / time for time in times)
    return low, middle, high


def verdict(low: float | None, high: float | None, tolerance: float) -> str:
    """One of `VERDICTS` for a change whose interval reaches from `low` to `high` (fractions, 0 is no change)."""
    if low is None or high is None:
        return "unsure"
    if -tolerance <= low and high <= tolerance:
        return "same"
    if low > 0:
        return "faster"
    if high < 0:
        return "slower"
    return "unsure"


def one_sided(before: Sequence[Row], after: Sequence[Row]) -> tuple[list[str], list[str]]:
    """Rows that only `before` has, and rows that only `after` has, as text."""
    keys = [set(map(_key, rows)) for rows in (before, after)]
    return (sorted(map(_where, keys[0] - keys[1])), sorted(map(_where, keys[1] - keys[0])))


def _where(key: Sequence) -> str:
    variant, m, n, k, cache = key
    return f"{variant} at {shape_text((m, n, k))} {cache or ''}".rstrip()


def as_text(rows: Sequence[Row]) -> str:
    """The comparison as a table for a terminal; `!` marks a change over the tolerance."""
    header = ("variant", "shape", "cache", "before", "after", "change", "95 % interval", "verdict")
    cells = [header]
    for row in rows:
        interval = "-"
        if row["change_percent_low"] is not None:
            interval = f"{row['change_percent_low']:+.2f} to {row['change_percent_high']:+.2f} %"
        cells.append(
            (
                row["variant"],
                shape_text((row["m"], row["n"], row["k"])),
                row["cache"] or "-",
                _short(row["before"]),
                _short(row["after"]),
                f"{row['change_percent']:+.2f} %{' !' if row['over_tolerance'] else '  '}",
                interval,
                row["verdict"],
            )
        )
    widths = [max(len(line[column]) for line in cells) for column in range(len(header))]
    right = {3, 4, 5, 6}
    return "\n".join(
        "  ".join(
            text.rjust(width) if column in right else text.ljust(width)
            for column, (text, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in cells
    )


def _short(value: float) -> str:
    decimals = max(0, 3 - math.floor(math.log10(value))) if value > 0 else 4
    return f"{value:.{decimals}f}"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument(
        "run_a", type=Path, metavar="RUN_A", help="the earlier run: results/<device> or a copy of it"
    )
    parser.add_argument("run_b", type=Path, metavar="RUN_B", help="the later run")
    parser.add_argument("--output", type=Path, help="write the comparison as CSV too")


def run(options: argparse.Namespace) -> int:
    """Print the comparison and what only one run has; raises GemmlabError if nothing can be compared."""
    before, after = read_timings(options.run_a), read_timings(options.run_b)
    rows = compare(before, after)
    if not rows:
        raise GemmlabError(f"{options.run_a} and {options.run_b} have no variant, shape and cache in common.")
    print(as_text(rows))
    counts = ", ".join(f"{sum(row['verdict'] == word for row in rows)} {word}" for word in VERDICTS)
    over = sum(row["over_tolerance"] for row in rows)
    print(
        f"\n{len(rows)} rows: {counts}. {over} differ by more than 1 % from 2048^3 on or 3 % below (marked !)."
    )
    print(
        "same: the 95 % interval of the change lies within 1 % (3 % for small problems); faster, slower: it lies on "
        "one side of 0; unsure: neither, or no interval."
    )
    for run_path, texts in zip((options.run_a, options.run_b), one_sided(before, after), strict=True):
        if texts:
            print(
                f"Only in {run_path}: {', '.join(texts[:10])}{f' and {len(texts) - 10} more' if texts[10:] else ''}"
            )
    if options.output:
        write_table(options.output, rows, "comparison")
    return 0

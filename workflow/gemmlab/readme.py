"""`gemmlab readme`: rewrites the README's table of recorded runs, which stands between two markers."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from gemmlab.catalogue import Variant, load_catalogue
from gemmlab.errors import GemmlabError
from gemmlab.files import read_json, repository_root, write_text
from gemmlab.schema import read_table, validate
from gemmlab.tables import Row, ranked, rows_of, shape_text

START = "<!-- gemmlab:table -->"
END = "<!-- gemmlab:end -->"
_SMALL = (1024, 1024, 1024)


def rewrite(text: str, table: str, where: str) -> str:
    """`text` with `table` between the markers.

    Raises:
        GemmlabError: a marker is missing, stands twice or they stand the wrong way round.
    """
    for marker in (START, END):
        if text.count(marker) != 1:
            raise GemmlabError(
                f"{where}: the marker {marker} stands {text.count(marker)} times, expected once."
            )
    if text.index(START) > text.index(END):
        raise GemmlabError(f"{where}: {END} stands before {START}; swap them.")
    before, rest = text.split(START)
    after = rest.split(END)[1]
    return f"{before}{START}\n{table}\n{END}{after}"


def recorded_tables(published: Path, catalogue: Mapping[str, Variant]) -> str:
    """The tables of all recorded runs as Markdown, one for each GPU."""
    parts = []
    for path in sorted(published.glob("*/manifest.json")):
        manifest = read_json(path)
        validate(manifest, "manifest", str(path))
        summary = read_table(path.parent / "tables" / "summary.csv", "summary")
        timings = read_table(path.parent / "tables" / "timings.csv", "timings")
        parts.append(
            f"{manifest['gpu']}, driver {manifest['driver'] or 'unknown'}, {manifest['date'][:10]}, cold cache:\n\n"
            + run_table(summary, timings, catalogue)
        )
    return "\n\n".join(parts) or "No run has been recorded yet: `gemmlab publish-run` records one."


def run_table(summary: pd.DataFrame, timings: pd.DataFrame, catalogue: Mapping[str, Variant]) -> str:
    """A recorded run's kernels and baselines with a time at the headline shape, in the order of the table."""
    small = {
        row["variant"]: row
        for row in rows_of(ranked(timings), "timings")
        if (row["m"], row["n"], row["k"]) == _SMALL and row["cache"] == "cold"
    }
    rows = [row for row in rows_of(summary, "summary") if row["time_ms"] is not None]
    if not rows:
        return "No variant of this run has a time."
    headline = shape_text((rows[0]["m"], rows[0]["n"], rows[0]["k"]))
    lines = [
        f"| variant | idea | TFLOP/s at {shape_text(_SMALL)} | TFLOP/s at {headline} | % of cuBLAS | % of peak |",
        "| --- | --- | ---: | ---: | ---: | ---: |",
    ]
    for row in rows:
        idea = catalogue[row["variant"]].idea if row["variant"] in catalogue else ""
        cells = [
            f"`{row['variant']}`",
            idea.replace("|", "\\|"),
            _decimal(small.get(row["variant"], {}), "tflops"),
            _decimal(row, "tflops"),
            _decimal(row, "percent_of_baseline"),
            _decimal(row, "percent_of_peak"),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _decimal(row: Row, key: str) -> str:
    return "–" if row.get(key) is None else f"{row[key]:.1f}"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument("--readme", type=Path, default=repository_root() / "README.md")
    parser.add_argument("--published", type=Path, default=repository_root() / "results" / "published")
    parser.add_argument("--check", action="store_true", help="write nothing, fail if something would change")


def run(options: argparse.Namespace) -> int:
    """Rewrite the README, or with `--check` say (exit 1) that it is older than the recorded runs."""
    try:
        text = options.readme.read_text()
    except FileNotFoundError as error:
        raise GemmlabError(f"{options.readme}: no such file.") from error
    new = rewrite(text, recorded_tables(options.published, load_catalogue()), str(options.readme))
    if new == text:
        print(f"{options.readme}: up to date")
        return 0
    if options.check:
        print(f"{options.readme}: its table is not that of {options.published}. Run: gemmlab readme")
        return 1
    write_text(options.readme, new)
    print(f"{options.readme}: table rewritten")
    return 0

"""`gemmlab readme`: rewrites the README's table of recorded runs, which stands between two markers."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

from gemmlab.catalogue import BASELINES, Variant, load_catalogue
from gemmlab.errors import GemmlabError
from gemmlab.files import read_json, repository_root, sha256_file, write_text
from gemmlab.schema import validate
from gemmlab.tables import Row, Shape, ranked_row, read_rows, shape_text

START = "<!-- gemmlab:table -->"
END = "<!-- gemmlab:end -->"
_SMALL = (1024, 1024, 1024)
_SLOWED_FLAGS = frozenset({"throttled", "low_clock"})
_SLOWED = (
    "† timed while the card held its SM clock down (flag `throttled` or `low_clock` in timings.csv): a comparison with "
    "a row without this mark is one between different clocks."
)


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
    """The tables of all recorded runs as Markdown, one for each GPU.

    Raises:
        GemmlabError: a recorded file isn't the one that its manifest lists.
    """
    parts = []
    for path in sorted(published.glob("*/manifest.json")):
        manifest = read_json(path)
        validate(manifest, "manifest", str(path))
        verify_files(path.parent, manifest["files"])
        summary = read_rows(path.parent / "tables" / "summary.csv", "summary")
        timings = read_rows(path.parent / "tables" / "timings.csv", "timings")
        parts.append(
            f"{manifest['gpu']}, driver {manifest['driver'] or 'unknown'}, {manifest['date'][:10]}, cold cache:\n\n"
            + run_table(summary, timings, catalogue)
        )
    return "\n\n".join(parts) or "No run has been recorded yet: `gemmlab publish-run` records one."


def verify_files(folder: Path, files: Sequence[Mapping[str, str]]) -> None:
    """Hold the files of a recorded run against the hashes that its manifest lists.

    Raises:
        GemmlabError: a file is missing or differs.
    """
    for file in files:
        path = folder / file["path"]
        fault = "" if path.is_file() else "is missing"
        if not fault and sha256_file(path) != file["sha256"]:
            fault = "has another SHA-256 than there"
        if fault:
            raise GemmlabError(
                f"{path}: listed in {folder / 'manifest.json'}, but {fault}. `git checkout` the folder, or record the "
                "run anew with `gemmlab publish-run`."
            )


def run_table(summary: Sequence[Row], timings: Sequence[Row], catalogue: Mapping[str, Variant]) -> str:
    """A recorded run's kernels and baselines with a time at the headline shape, in the order of the table.

    Args:
        summary: the rows of summary.csv.
        timings: the rows of timings.csv.
        catalogue: for the variants' ideas.
    """
    rows = [row for row in summary if row["time_ms"] is not None]
    if not rows:
        return "No variant of this run has a time."
    headline: Shape = rows[0]["m"], rows[0]["n"], rows[0]["k"]
    cold = {
        (row["variant"], (row["m"], row["n"], row["k"])): row
        for row in timings
        if ranked_row(row) and row["cache"] == "cold"
    }
    lines = [
        f"| variant | idea | TFLOP/s at {shape_text(_SMALL)} | TFLOP/s at {shape_text(headline)} | % of cuBLAS | "
        "% of peak |",
        "| --- | --- | ---: | ---: | ---: | ---: |",
    ]
    for row in rows:
        name = row["variant"]
        idea = catalogue[name].idea if name in catalogue else ""
        small, large = (cold.get((name, shape), {}) for shape in (_SMALL, headline))
        cells = [
            f"`{name}`",
            idea.replace("|", "\\|"),
            _decimal(small, "tflops") + _mark(small),
            _decimal(row, "tflops") + _mark(large),
            _decimal(row, "percent_of_baseline"),
            _decimal(row, "percent_of_peak"),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    notes = [_baseline_note(rows, [cold.get((row["variant"], headline), {}) for row in rows])]
    if any("†" in line for line in lines):
        notes.append(_SLOWED)
    return "\n\n".join(["\n".join(lines), *notes])


def _mark(timing: Row) -> str:
    return "†" if _SLOWED_FLAGS & set((timing.get("flags") or "").split()) else ""


def _baseline_note(rows: Sequence[Row], timings: Sequence[Row]) -> str:
    """Which cuBLAS a percentage is of; by name where it isn't the one of the variant's own arithmetic."""
    others = [
        f"`{row['variant']}`, which computes in {row['arithmetic']}, against `{timing['baseline']}`"
        for row, timing in zip(rows, timings, strict=True)
        if timing.get("baseline") not in (None, BASELINES.get(row["arithmetic"]))
    ]
    note = "% of cuBLAS is against cuBLAS in the arithmetic of the variant's inputs"
    return f"{note}, so for {' and for '.join(others)}." if others else f"{note}."


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

"""Stage publish: tables, figures, report and summary from what the other stages wrote."""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from gemmlab import figures
from gemmlab.catalogue import Variant, load_catalogue, select
from gemmlab.claims_report import claims_sections, read_claims_tables
from gemmlab.errors import GemmlabError
from gemmlab.files import read_json, write_text
from gemmlab.report import FigureView, RecordedRun, Run, render_report, render_summary
from gemmlab.schema import read_table, validate, write_table
from gemmlab.tables import (
    TABLES,
    Shape,
    bad_results,
    build_tables,
    read_environment,
    read_records,
    rows_of,
)


def publish(
    results: Path, published: Path, catalogue: Mapping[str, Variant], settings: Mapping[str, Any]
) -> Run:
    """Write tables/, figures/, report.html and summary.md of a run.

    Args:
        results: the run, results/<device>.
        published: recorded runs, which the report shows where this run has no time of its own; may be absent.
        catalogue: the variants that the run is about.
        settings: `headline_shape`, `device` (a GPU that was asked for by name), and what else the report should quote.

    Raises:
        GemmlabError: a stage's file is broken or a setting is missing.
    """
    shape = _headline_shape(settings)
    environment = read_environment(results)
    records = read_records(results, catalogue)
    tables = build_tables(records, shape, environment)
    for name, rows in tables.items():
        write_table(results / "tables" / f"{name}.csv", rows, name)
    frames = {name: read_table(results / "tables" / f"{name}.csv", name) for name in TABLES}
    folder = results / "figures"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    timed = bool(len(figures.ranked(frames["timings"])))
    drawings = figures.run_drawings(frames, catalogue)
    recorded = [] if timed else read_recorded(published, catalogue, shape)
    if timed or not recorded:
        drawings += figures.timing_drawings(frames["timings"], catalogue, shape)
    if timed:
        probes = {entry.variant.name: entry.probe for entry in records if entry.probe}
        drawings.append(figures.roofline(tables["timings"], tables["counters"], probes, catalogue, shape))
    run = Run(
        results=results,
        headline_shape=shape,
        catalogue=catalogue,
        tables={name: rows_of(frame, name) for name, frame in frames.items()},
        bad=bad_results(frames, settings.get("device")),
        environment=environment,
        figures=_views(drawings, folder),
        recorded=recorded,
        sections=claims_sections(
            read_claims_tables(results / "tables"), {run.label: run.claims for run in recorded if run.claims}
        ),
        settings=settings,
    )
    write_text(results / "report.html", render_report(run))
    write_text(results / "summary.md", render_summary(run))
    return run


def read_recorded(
    published: Path, catalogue: Mapping[str, Variant], headline_shape: Shape
) -> list[RecordedRun]:
    """The runs under results/published, each with its headline table and the figures drawn from its timings."""
    runs = []
    for manifest_path in sorted(published.glob("*/manifest.json")):
        manifest = read_json(manifest_path)
        validate(manifest, "manifest", str(manifest_path))
        folder = manifest_path.parent
        summary = read_table(folder / "tables" / "summary.csv", "summary")
        timings = read_table(folder / "tables" / "timings.csv", "timings")
        label = f"{manifest['gpu']}, {manifest['date'][:10]}"
        drawings = figures.timing_drawings(timings, catalogue, headline_shape, label)
        runs.append(
            RecordedRun(
                gpu=manifest["gpu"],
                date=manifest["date"],
                folder=str(folder),
                summary=rows_of(summary, "summary"),
                headline_shape=_shape_of(summary, headline_shape),
                claims=read_claims_tables(folder / "tables").get("claims", ()),
                figures=_views(drawings, None),
            )
        )
    return runs


def _shape_of(summary: pd.DataFrame, otherwise: Shape) -> Shape:
    return tuple(int(side) for side in summary.loc[0, ["m", "n", "k"]]) if len(summary) else otherwise


def _views(drawings: Sequence[figures.Drawing], folder: Path | None) -> list[FigureView]:
    return [
        FigureView(drawing.title, drawing.caption, figures.save(drawing, folder).get("svg"), drawing.note)
        for drawing in drawings
    ]


def _headline_shape(settings: Mapping[str, Any]) -> Shape:
    shape = settings.get("headline_shape")
    if not isinstance(shape, list) or len(shape) != 3 or not all(isinstance(side, int) for side in shape):
        raise GemmlabError(
            f"--settings: headline_shape is {shape!r}, expected three whole numbers [m, n, k]."
        )
    return tuple(shape)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument("--results", required=True, type=Path, help="the run: results/<device>")
    parser.add_argument("--published", required=True, type=Path, help="recorded runs: results/published")
    parser.add_argument(
        "--settings", required=True, type=json.loads, help="JSON: headline_shape, variants, and what to quote"
    )


def run(options: argparse.Namespace) -> int:
    """Publish a run; prints one line, since `make` shows the summary itself."""
    catalogue = select(load_catalogue(), options.settings.get("variants", []))
    published = publish(options.results, options.published, catalogue, options.settings)
    drawn = sum(view.svg is not None for view in published.figures)
    print(
        f"{options.results}: {len(TABLES)} tables, {drawn} figures, report.html, summary.md; {len(published.bad)} bad"
    )
    return 0

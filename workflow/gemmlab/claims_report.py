"""The report's sections on claims, contradictions, stories and the articles' tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from gemmlab.claims import TABLES, VERDICTS
from gemmlab.report import Column, Section, TableView
from gemmlab.run_view import number
from gemmlab.schema import read_table
from gemmlab.tables import Row, rows_of, shape_text


def read_claims_tables(folder: Path) -> dict[str, list[Row]]:
    """The tables of the stage claims that lie in `folder`, by name."""
    return {
        name: rows_of(read_table(folder / f"{name}.csv", name), name)
        for name in TABLES
        if (folder / f"{name}.csv").is_file()
    }


def claims_sections(
    tables: Mapping[str, Sequence[Row]], recorded: Mapping[str, Sequence[Row]] | None = None
) -> list[Section]:
    """The sections for those tables that there are.

    Args:
        tables: as `read_claims_tables` gives them.
        recorded: rows of claims.csv of recorded runs by what to call the run, shown beside a run with no GPU.
    """
    sections = []
    if tables.get("claims"):
        sections.append(_claims_section(tables["claims"], recorded or {}))
    if tables.get("contradictions"):
        sections.append(_contradictions_section(tables["contradictions"]))
    if any(row["story"] for row in tables.get("story", ())):
        sections.append(_story_section(tables["story"]))
    articles = [
        (caption, _view(columns, tables[name]))
        for name, caption, columns in (
            ("article_a", "Article A: the ladder at 1024^3", _ladder_columns()),
            ("article_b", "Article B: naive against a 16x16 tile", _size_columns()),
            (
                "article_c",
                "Article C: elements read, from what it claims down to device memory",
                _traffic_columns(),
            ),
        )
        if tables.get(name)
    ]
    if articles:
        sections.append(
            Section(
                "articles",
                "The articles' tables",
                "Reported figures are the articles', of other cards; what an article doesn't give stays blank, as "
                "does what this run has not measured. Times are with a cold cache.",
                articles,
            )
        )
    return sections


def _claims_section(rows: Sequence[Row], recorded: Mapping[str, Sequence[Row]]) -> Section:
    counts = Counter(row["verdict"] for row in rows)
    told = ", ".join(
        f"{counts[verdict]} {verdict.replace('_', ' ')}" for verdict in VERDICTS if counts[verdict]
    )
    columns = [
        Column("claim", _text("claim"), kind="name"),
        Column("what the article says", _text("statement"), kind="text"),
        Column("reported", _text("reported"), kind="text"),
        Column("measured here", _text("measured"), kind="text"),
        Column("expected", _text("tolerance"), kind="text"),
        Column("verdict", _text("verdict"), kind="status"),
        *(_recorded_column(label, own) for label, own in recorded.items()),
        Column("evidence", lambda row: row["evidence"] or row["reason"] or "", kind="text wide"),
    ]
    text = (
        f"What articles A, B and C claim, tested: {told}. A claim is tested in the form that can recur on another "
        "card; what was to be measured, and how near it must come, stood in config/claims.yaml before "
        "(but for four parts about the sweep, which docs/claims.md names)."
    )
    return Section("claims", "Claims", text, [("", _view(columns, rows))])


def _recorded_column(label: str, rows: Sequence[Row]) -> Column:
    verdicts = {row["claim"]: row["verdict"] for row in rows}
    return Column(label, lambda row: verdicts.get(row["claim"], ""), kind="status")


def _contradictions_section(rows: Sequence[Row]) -> Section:
    columns = [
        Column("claims", lambda row: row["claims"].replace(" ", ", "), kind="name"),
        Column("the reported figures against each other", _text("sentence"), kind="text wide"),
        Column("verdict", _text("verdict"), kind="status"),
    ]
    found = sum(row["verdict"] == "contradiction" for row in rows)
    text = f"Arithmetic on the articles' own figures, nothing measured: {found} of {len(rows)} don't fit each other."
    return Section("contradictions", "Contradictions in the articles", text, [("", _view(columns, rows))])


def _story_section(rows: Sequence[Row]) -> Section:
    told: dict[str, Row] = {}
    for row in rows:
        if row["status"] == "ok" and (row["source"] == "gpu" or row["variant"] not in told):
            told[row["variant"]] = row
    columns = [
        Column("variant", _text("variant"), kind="name"),
        Column("by", _text("source")),
        Column("shape", lambda row: shape_text((row["m"], row["n"], row["k"]))),
        Column("what changed, and where the bottleneck moved", _text("story"), kind="text wide"),
    ]
    text = (
        "Each variant against the one that it is compared with, in words that follow from the counters. Without a GPU "
        "the emulator's counts tell what is asked of an SM; a time never comes from there. All figures are in "
        "tables/story.csv."
    )
    return Section("story", "Story of the ladder", text, [("", _view(columns, list(told.values())))])


def _ladder_columns() -> list[Column]:
    return [
        Column("step", _text("step"), kind="name"),
        Column("variant", _text("variant")),
        *_numbers(
            reported_time_ms="reported ms",
            time_ms="ms",
            reported_tflops="reported TFLOP/s",
            tflops="TFLOP/s",
            reported_speed_up="reported speed-up",
            speed_up="speed-up over naive",
            reported_percent_of_peak="reported % of peak",
            percent_of_peak="% of peak",
            percent_of_cublas="% of cuBLAS",
            reported_dram_percent="reported DRAM %",
            dram_percent="DRAM %",
            reported_sm_percent="reported SM %",
            sm_percent="SM %",
            reported_warps_percent="reported warps active %",
            warps_percent="warps active %",
        ),
        Column("limiter", _text("limiter"), kind="text"),
    ]


def _size_columns() -> list[Column]:
    return [
        Column("M = N = K", lambda row: str(row["m"]), kind="name"),
        *_numbers(
            reported_naive_ms="reported naive, ms",
            naive_ms="naive, ms",
            uncoalesced_ms="uncoalesced naive, ms",
            reported_tile_ms="reported tile, ms",
            tile_ms="tile, ms",
            reported_speed_up="reported speed-up",
            speed_up="speed-up over naive",
            speed_up_over_uncoalesced="speed-up over uncoalesced",
            tile_percent_of_peak="tile, % of peak",
        ),
    ]


def _traffic_columns() -> list[Column]:
    return [
        Column("variant", _text("variant"), kind="name"),
        Column("shape", lambda row: shape_text((row["m"], row["n"], row["k"]))),
        *_numbers(
            claimed_elements="claimed",
            modelled_elements="modelled",
            requested_elements="requested (emulator)",
            emulated_l1_elements="L1 sectors (emulator)",
            l1_elements="L1 sectors",
            l2_elements="L2",
            dram_elements="device memory",
            barriers_of_a_block="barriers of a block",
            shared_bytes="shared, B",
            registers="registers",
            blocks_per_sm="blocks of an SM",
            time_ms="ms",
        ),
    ]


def _numbers(**labels: str) -> list[Column]:
    return [Column(label, _number(key), numeric=True) for key, label in labels.items()]


def _number(key: str) -> Callable[[Row], str]:
    return lambda row: "" if row[key] is None else number(row[key])


def _text(key: str) -> Callable[[Row], str]:
    return lambda row: row[key] or ""


def _view(columns: Sequence[Column], rows: Sequence[Row]) -> TableView:
    return TableView(columns, [[column.cell(row) for column in columns] for row in rows])

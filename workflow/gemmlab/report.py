"""The report (one self-contained HTML file) and the summary (Markdown that a terminal can show)."""

from __future__ import annotations

import base64
import functools
import math
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jinja2

from gemmlab import __version__, status
from gemmlab.catalogue import Variant
from gemmlab.tables import EXECUTORS, BadResult, Row, Shape, shape_text

SUMMARY_COLUMNS = 120
NOTHING = "–"
_PREFERRED_COUNT_SHAPE = (128, 128, 128)
_REPORT_COUNTERS = (
    ("l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum", "global load requests"),
    ("l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum", "global load sectors"),
    ("l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum", "global store sectors"),
    ("l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum", "shared load wavefronts"),
    ("l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum", "shared load conflicts"),
    ("l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum", "shared store wavefronts"),
    ("l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum", "shared store conflicts"),
)


@dataclass(frozen=True)
class Column:
    """A column of a table of the report: its heading, and how the cell of a row is made."""

    label: str
    cell: Callable[[Row], str]
    numeric: bool = False
    kind: str = ""

    @property
    def classes(self) -> str:
        """CSS classes of its cells."""
        return " ".join(filter(None, ["number" if self.numeric else "", self.kind]))


@dataclass(frozen=True)
class TableView:
    """A table ready for the template."""

    columns: Sequence[Column]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class FigureView:
    """A figure ready for the template: its SVG, or the note that stands in its place."""

    title: str
    caption: str
    svg: bytes | None = None
    note: str | None = None

    @property
    def source(self) -> str:
        """The image as a data address, so that the report needs no other file."""
        return "data:image/svg+xml;base64," + base64.b64encode(self.svg or b"").decode()


@dataclass(frozen=True)
class Section:
    """A section of tables, each with its caption, ready for the template."""

    identity: str
    title: str
    text: str
    views: Sequence[tuple[str, TableView]]


@dataclass(frozen=True)
class RecordedRun:
    """A run that lies under results/published, shown beside a run with no GPU."""

    gpu: str
    date: str
    folder: str
    summary: Sequence[Row]
    headline_shape: Shape
    claims: Sequence[Row] = ()
    figures: Sequence[FigureView] = ()

    @property
    def label(self) -> str:
        """The machine and the day."""
        return f"{self.gpu}, {self.date[:10]}"


@dataclass(frozen=True)
class Run:
    """What the report and the summary tell of."""

    results: Path
    headline_shape: Shape
    catalogue: Mapping[str, Variant]
    tables: Mapping[str, Sequence[Row]]
    bad: Sequence[BadResult] = ()
    environment: Mapping[str, Any] | None = None
    figures: Sequence[FigureView] = ()
    recorded: Sequence[RecordedRun] = ()
    sections: Sequence[Section] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def timed(self) -> bool:
        """Whether any time may be ranked."""
        return any(row["time_ms"] is not None for row in self.tables["summary"])

    @property
    def date(self) -> str:
        """The day that the environment was recorded, empty if it doesn't say."""
        return str((self.environment or {}).get("date") or "")[:10]


def render_report(run: Run) -> str:
    """The HTML of the report: no script, and no reference to anything outside the file."""
    summary, checks, broken, counters = (
        run.tables[name] for name in ("summary", "checks", "broken", "counters")
    )
    template = _environment().get_template("report.html.j2")
    return template.render(
        run=run,
        version=__version__,
        verdict=verdict(run),
        shape=shape_text(run.headline_shape),
        shared_reason=shared_reason(summary),
        remarks=remarks(summary),
        headline=_headline_view(summary, run.catalogue),
        checks=_view(_check_columns(), checks),
        broken=_view(_broken_columns(), broken),
        caught=broken_caught(broken),
        counters=_counter_view(counters, run.catalogue),
        counter_shape=_counter_shape(counters),
        agreement=_agreement(counters),
        facts=environment_facts(run.environment),
        missing=(run.environment or {}).get("missing") or {},
        recorded=[(entry, _headline_view(entry.summary, run.catalogue)) for entry in run.recorded],
        digests=_view(_digest_columns(), summary),
        example=next((row["variant"] for row in summary if row["kind"] == "kernel"), "VARIANT"),
    )


def render_summary(run: Run) -> str:
    """Markdown with the headline table, at most 120 columns wide, and what is bad."""
    summary = run.tables["summary"]
    template = _environment().get_template("summary.md.j2")
    return template.render(
        run=run,
        verdict=verdict(run),
        legend=_wrapped(
            f"Shapes that passed the check on each executor. Times at {shape_text(run.headline_shape)} with a cold "
            "cache; % base is the speed against cuBLAS in the same arithmetic.",
            "",
        ),
        table=_markdown_table(summary),
        shared_reason=shared_reason(summary),
        remarks=[_wrapped(f"- {variant}: {remark}", "  ") for variant, remark in remarks(summary)],
        bad=[_wrapped(f"- {entry}", "  ") for entry in run.bad],
        recorded=[entry.label for entry in run.recorded],
    )


def verdict(run: Run) -> str:
    """One sentence: how many variants ended how, and how many broken kernels were caught."""
    summary, broken = run.tables["summary"], run.tables["broken"]
    counts = {state: sum(row["status"] == state for row in summary) for state in status.STATUSES}
    parts = [f"{count} {state}" for state, count in counts.items() if count]
    text = f"{len(summary)} variant{'s' * (len(summary) != 1)}: {', '.join(parts) or 'none'}."
    if broken:
        text += f" Broken kernels caught: {broken_caught(broken)}."
    return text


def broken_caught(broken: Sequence[Row]) -> str:
    """How many broken kernels were caught by an executor and passed none, of how many; and how many nothing ran."""
    names = {row["variant"] for row in broken}
    caught = {row["variant"] for row in broken if row["status"] == status.OK}
    passed = {row["variant"] for row in broken if row["status"] == status.FAILED}
    untried = len(names - caught - passed)
    return f"{len(caught - passed)} of {len(names)}" + (f" ({untried} unavailable)" if untried else "")


def shared_reason(summary: Sequence[Row]) -> str | None:
    """A remark that at least half of the rows carry (such as "no GPU"), said once instead of in each."""
    remarks = [row["reason"] for row in summary if row["status"] != status.FAILED and row["reason"]]
    if not remarks:
        return None
    parts = [remark.split("; ")[-1] for remark in remarks]
    most = max(set(parts), key=parts.count)
    return most if parts.count(most) > 1 and 2 * parts.count(most) >= len(summary) else None


def remarks(summary: Sequence[Row]) -> list[tuple[str, str]]:
    """Variants, and what their reasons say beyond the shared remark; failures have a list of their own."""
    shared = shared_reason(summary)
    found = []
    for row in summary:
        reason = row["reason"] or ""
        if shared and reason.endswith(shared):
            reason = reason[: -len(shared)].rstrip("; ")
        if reason and row["status"] != status.FAILED:
            found.append((row["variant"], reason))
    return found


def _headline_view(summary: Sequence[Row], catalogue: Mapping[str, Variant]) -> TableView:
    """The headline table; columns that are empty, or 0, in every row are left out."""
    columns = [
        Column("variant", lambda row: row["variant"], kind="name"),
        Column("status", lambda row: row["status"], kind="status"),
        *_check_columns_of_summary(),
        Column("idea", lambda row: _idea(row, catalogue), kind="text"),
        Column("arithmetic", _text("arithmetic")),
        Column("ms", _number("time_ms", 4), numeric=True),
        Column("TFLOP/s", _fixed("tflops", 2), numeric=True),
        Column("% of peak", _fixed("percent_of_peak", 1), numeric=True),
        Column("% of baseline", _fixed("percent_of_baseline", 1), numeric=True),
        Column("registers", _whole("registers"), numeric=True),
        Column("spills, B", _whole("spill_bytes"), numeric=True),
        Column("occupancy, %", _occupancy, numeric=True),
        Column("limiter", _text("limiter")),
    ]
    return _view(
        [column for column in columns if any(column.cell(row) not in (NOTHING, "0") for row in summary)],
        summary,
    )


def _idea(row: Row, catalogue: Mapping[str, Variant]) -> str:
    """What a variant shows and the articles' rows that it stands for."""
    if row["variant"] not in catalogue:
        return NOTHING
    articles = f" ({row['article_ids'].replace(' ', ', ')})" if row["article_ids"] else ""
    return catalogue[row["variant"]].idea + articles


def environment_facts(environment: Mapping[str, Any] | None) -> list[tuple[str, str]]:
    """Names and values of what a reader asks of a machine first; what the record doesn't know is left out."""
    record = environment or {}
    gpus = record.get("gpus") or []
    settings = gpus[0]["settings"] if gpus else {}
    driver, cpu = record.get("driver") or {}, record.get("cpu") or {}
    system, tools = record.get("operating_system") or {}, record.get("tools") or {}
    nvcc = tools.get("nvcc") or {}
    known = [
        ("GPU", _joined(", ", *dict.fromkeys(gpu["name"] for gpu in gpus))),
        ("Cards that this run may use", str(len(gpus)) if len(gpus) > 1 else None),
        ("Compute capability", gpus[0]["compute_capability"] if gpus else None),
        ("Power limit", _with_unit(settings.get("power_limit_w"), "W")),
        ("Highest SM clock", _with_unit(settings.get("sm_clock_max_mhz"), "MHz")),
        ("ECC", settings.get("ecc")),
        ("MIG", settings.get("mig")),
        ("Driver", _joined(", CUDA ", driver.get("version"), driver.get("cuda"))),
        ("nvcc", _joined(", ", nvcc.get("release"), nvcc.get("build"), nvcc.get("origin"))),
        ("nvdisasm", tools.get("nvdisasm")),
        ("Nsight Compute", tools.get("ncu")),
        ("compute-sanitizer", tools.get("compute_sanitizer")),
        ("g++", tools.get("gxx")),
        ("System", _joined(", ", system.get("distribution"), system.get("system"), system.get("kernel"))),
        ("CPU", _joined(", ", cpu.get("model"), _with_unit(cpu.get("usable_cores"), "usable cores"))),
        ("Memory", _with_unit(_gibibytes(record.get("memory_bytes")), "GiB")),
        ("Python", record.get("python")),
        (
            "Variables",
            _joined(", ", *(f"{name}={value}" for name, value in (record.get("variables") or {}).items())),
        ),
        (
            "Packages",
            _joined(", ", *(f"{name} {value}" for name, value in (record.get("packages") or {}).items())),
        ),
        (
            "Commit",
            _joined(
                ", ", record.get("commit"), "with changes not committed" if record.get("dirty") else None
            ),
        ),
        ("Recorded", _joined(", id ", record.get("date"), record.get("id"))),
    ]
    return [(name, value) for name, value in known if value]


def _joined(separator: str, *values: str | None) -> str:
    return separator.join(value for value in values if value)


def _with_unit(value: float | None, unit: str) -> str | None:
    return None if value is None else f"{value:g} {unit}"


def _gibibytes(size: int | None) -> float | None:
    return None if size is None else round(size / 2**30)


def _check_columns() -> list[Column]:
    return [
        Column("variant", lambda row: row["variant"], kind="name"),
        Column("executor", lambda row: row["executor"]),
        Column("shapes", _whole("shapes"), numeric=True),
        Column("exact", _whole("exact_passed"), numeric=True),
        Column("rounded", _whole("rounded_passed"), numeric=True),
        Column("same bits", _identical, numeric=True),
        Column("worst error / bound", _number("worst_fraction_of_bound", 3), numeric=True),
        Column("differ from emulator", _whole("differs_from_emulator"), numeric=True),
        Column("findings", _whole("findings"), numeric=True),
        Column("status", lambda row: row["status"], kind="status"),
        Column("reason", lambda row: row["reason"] or row["first_finding"] or "", kind="text wide"),
    ]


def _broken_columns() -> list[Column]:
    return [
        Column("kernel", lambda row: row["variant"], kind="name"),
        Column("stands for", _text("stands_for"), kind="text"),
        Column("executor", lambda row: row["executor"]),
        Column("caught by", _caught_by, kind="text"),
        Column("what and where", lambda row: row["finding"] or row["reason"] or NOTHING, kind="text wide"),
        Column("status", lambda row: row["status"], kind="status"),
    ]


def _caught_by(row: Row) -> str:
    return (row["caught_by"] or NOTHING).replace(" ", ", ").replace("_", " ")


def _digest_columns() -> list[Column]:
    return [
        Column("variant", lambda row: row["variant"], kind="name"),
        Column("digest of inputs", _text("digest"), kind="code"),
        Column("environment", _text("environment"), kind="code"),
    ]


def _counter_shape(counters: Sequence[Row]) -> str:
    shape = _shape_of_counters(counters)
    return shape_text(shape) if shape else ""


def _shape_of_counters(counters: Sequence[Row]) -> Shape | None:
    shapes = {(row["m"], row["n"], row["k"]) for row in counters if row["emulator"] is not None}
    if not shapes:
        return None
    return _PREFERRED_COUNT_SHAPE if _PREFERRED_COUNT_SHAPE in shapes else max(shapes, key=math.prod)


def _counter_view(counters: Sequence[Row], catalogue: Mapping[str, Variant]) -> TableView:
    """Variants down, the main counters across, at one shape; Nsight Compute's figure where it differs."""
    shape = _shape_of_counters(counters)
    cells: dict[str, Row] = {}
    for row in counters:
        if (row["m"], row["n"], row["k"]) == shape and row["emulator"] is not None:
            cells.setdefault(row["variant"], {})[row["counter"]] = _both(row)
    columns = [Column("variant", lambda row: row["variant"], kind="name")]
    columns += [Column(label, _text(name), numeric=True) for name, label in _REPORT_COUNTERS]
    rows = [
        {"variant": name, **dict.fromkeys(dict(_REPORT_COUNTERS)), **cells[name]}
        for name in catalogue
        if name in cells
    ]
    return _view(columns, rows)


def _both(row: Row) -> str:
    text = f"{row['emulator']:,.0f}"
    if row["ncu"] is not None and row["ncu"] != row["emulator"]:
        text += f" (ncu {row['ncu']:,.0f})"
    return text


def _agreement(counters: Sequence[Row]) -> tuple[int, int]:
    """In how many rows emulator and Nsight Compute agree, of those that have both."""
    both = [row for row in counters if row["emulator"] is not None and row["ncu"] is not None]
    return sum(row["emulator"] == row["ncu"] for row in both), len(both)


def _view(columns: Sequence[Column], rows: Sequence[Row]) -> TableView:
    return TableView(columns, [[column.cell(row) for column in columns] for row in rows])


def _text(key: str) -> Callable[[Row], str]:
    return lambda row: str(row[key]) if row[key] not in (None, "") else NOTHING


def _whole(key: str) -> Callable[[Row], str]:
    return lambda row: NOTHING if row[key] is None else f"{row[key]:,d}"


def _fixed(key: str, decimals: int) -> Callable[[Row], str]:
    return lambda row: NOTHING if row[key] is None else f"{row[key]:.{decimals}f}"


def _number(key: str, digits: int) -> Callable[[Row], str]:
    return lambda row: NOTHING if row[key] is None else significant(row[key], digits)


def significant(value: float, digits: int) -> str:
    """`value` with `digits` significant digits and never an exponent."""
    if value == 0:
        return "0"
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    return f"{value:.{decimals}f}"


def _occupancy(row: Row) -> str:
    return NOTHING if row["occupancy"] is None else f"{100 * row['occupancy']:.0f}"


def _identical(row: Row) -> str:
    if row["repeats"] is None or row["repeats_identical"] is None:
        return NOTHING
    return f"{row['repeats_identical']} of {row['repeats']}"


def _markdown_table(summary: Sequence[Row]) -> str:
    """The headline table as aligned Markdown; columns from the right are dropped while it is too wide."""
    columns = [
        Column("variant", lambda row: row["variant"]),
        Column("status", lambda row: row["status"]),
        *_check_columns_of_summary(),
        Column("ms", _number("time_ms", 4), numeric=True),
        Column("TFLOP/s", _fixed("tflops", 2), numeric=True),
        Column("% peak", _fixed("percent_of_peak", 1), numeric=True),
        Column("% base", _fixed("percent_of_baseline", 1), numeric=True),
        Column("regs", _whole("registers"), numeric=True),
        Column("occ %", _occupancy, numeric=True),
        Column("spills", _whole("spill_bytes"), numeric=True),
        Column("limiter", _text("limiter")),
    ]
    columns = [column for column in columns if any(column.cell(row) not in (NOTHING, "0") for row in summary)]
    view = _view(columns, summary)
    widths = [
        max(len(column.label), 3, *(len(row[number]) for row in view.rows))
        for number, column in enumerate(columns)
    ]
    while sum(widths) + 3 * len(widths) + 1 > SUMMARY_COLUMNS and len(widths) > 2:
        columns, widths = columns[:-1], widths[:-1]
    lines = [_markdown_row([column.label for column in columns], columns, widths)]
    rules = [
        "-" * (width - 1) + ":" if column.numeric else "-" * width
        for column, width in zip(columns, widths, strict=True)
    ]
    lines.append("| " + " | ".join(rules) + " |")
    lines += [_markdown_row(row[: len(columns)], columns, widths) for row in view.rows]
    return "\n".join(lines)


def _markdown_row(cells: Sequence[str], columns: Sequence[Column], widths: Sequence[int]) -> str:
    padded = [
        cell.rjust(width) if column.numeric else cell.ljust(width)
        for cell, column, width in zip(cells, columns, widths, strict=True)
    ]
    return "| " + " | ".join(padded) + " |"


def _check_columns_of_summary() -> list[Column]:
    """The summary's `300/300 emulator, cuda skipped` as a column for each executor."""

    def cell(executor: str) -> Callable[[Row], str]:
        def text(row: Row) -> str:
            parts = [part for part in (row["check"] or "").split(", ") if executor in part]
            return parts[0].replace(executor, "").strip() if parts else NOTHING

        return text

    return [Column(executor, cell(executor), numeric=True) for executor in EXECUTORS]


def _wrapped(text: str, indent: str) -> str:
    return textwrap.fill(
        text, SUMMARY_COLUMNS, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


@functools.cache
def _environment() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.PackageLoader("gemmlab", "templates"),
        autoescape=jinja2.select_autoescape(enabled_extensions=("html.j2",), default=False),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )

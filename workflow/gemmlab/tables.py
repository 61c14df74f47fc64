"""The tables: what the stages wrote for each variant, joined into the rows that workflow/schemas describes."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from gemmlab import status
from gemmlab.catalogue import BASELINES, Variant
from gemmlab.files import read_json, sha256_of
from gemmlab.limiter import find_limiter, launch_metrics
from gemmlab.schema import cure, read_table, schema_path, validate

Record = dict[str, Any]
Row = dict[str, Any]
Shape = tuple[int, int, int]

EXECUTORS = ("emulator", "cuda")
TABLES = ("summary", "timings", "checks", "broken", "counters")
# Rows with one of these flags carry figures that must not be compared with others.
UNRANKED_FLAGS = frozenset({"implausible", "other_cubin", "unchecked"})
# A counter of this name stands for all: the variant has none, and the row says why.
ANY_COUNTER = "any"

_WORST_FIRST = (status.FAILED, status.UNAVAILABLE, status.SKIPPED, status.OK)
_CAUGHT_BY_TEST = {
    "exact": "wrong_values",
    "rounded": "wrong_values",
    "repeat": "not_repeatable",
    "guard": "guard_overwritten",
    "input": "input_changed",
    "nonfinite": "nonfinite",
    "refusal": "refusal",
}
_DURATION = "gpu__time_duration.sum"


@dataclass(frozen=True)
class VariantRecords:
    """Everything that the stages wrote about one variant; None and empty where a stage wrote nothing."""

    variant: Variant
    build: Record | None = None
    checks: Mapping[str, Record] = field(default_factory=dict)
    count: Record | None = None
    sanitize: Record | None = None
    probe: Record | None = None
    bench: Sequence[Row] = ()
    profile: Sequence[Row] = ()

    @property
    def broken(self) -> bool:
        """Whether the variant is a mistake that must be caught."""
        return self.variant.kind == "broken"


def read_records(results: Path, catalogue: Mapping[str, Variant]) -> list[VariantRecords]:
    """What lies under `results` about each variant of `catalogue`, in its order.

    Raises:
        GemmlabError: a file is broken or doesn't follow its schema; the message names it.
    """
    return [read_variant(results, variant) for variant in catalogue.values()]


def read_variant(results: Path, variant: Variant) -> VariantRecords:
    """What lies under `results` about one variant; see `read_records`."""
    name = variant.name
    checks = {
        executor: _read_record(results / "check" / executor / f"{name}.json", "check")
        for executor in EXECUTORS
    }
    return VariantRecords(
        variant=variant,
        build=_read_record(results / "build" / f"{name}.json", "compile"),
        checks={executor: record for executor, record in checks.items() if record is not None},
        count=_read_record(results / "count" / f"{name}.json", "count"),
        sanitize=_read_record(results / "sanitize" / f"{name}.json", "sanitize"),
        probe=_read_record(results / "probe" / f"{name}.json", "probe"),
        bench=read_rows(results / "bench" / f"{name}.csv", "timings"),
        profile=read_rows(results / "profile" / f"{name}.csv", "profile"),
    )


def read_refusals(results: Path) -> Record | None:
    """What the driver refused (gemmlab.refusals), or None where nobody asked it."""
    return _read_record(results / "probe" / "refusals.json", "probe")


def read_asked_for(results: Path) -> dict[str, list[Row]]:
    """The tables that are asked for by name: the sweep's (tune) and the static evidence; empty where nobody asked."""
    return {
        "tune": read_rows(results / "tune" / "tune.csv", "tune"),
        "static": read_rows(results / "tables" / "static.csv", "static"),
    }


def sweep_fault(rows: Sequence[Row]) -> str | None:
    """Why these rows of tune.csv, of one variant, are no whole sweep, or None: all sizes hold the same configurations,
    each once, timed on one GPU."""
    by_size: dict[Shape | None, list[tuple]] = {}
    for row in rows:
        configuration = tuple(row[name] for name in ("BM", "BN", "BK", "TM", "TN"))
        by_size.setdefault(_shape_of(row), []).append(configuration)
    every = set().union(*by_size.values())
    for shape, configurations in by_size.items():
        if len(set(configurations)) < len(configurations):
            return f"a configuration stands twice at {shape_text(shape)}"
        if len(configurations) < len(every):
            return f"{len(configurations)} configurations at {shape_text(shape)}, {len(every)} in all"
    gpus = sorted({str(row.get("gpu")) for row in rows})
    return f"its rows are of several GPUs ({', '.join(gpus)})" if len(gpus) > 1 else None


def read_environment(results: Path) -> Record | None:
    """The environment's record of a run, or None where it has none."""
    return _read_record(results / "environment" / "environment.json", "environment")


def _read_record(path: Path, schema: str) -> Record | None:
    if not path.is_file():
        return None
    record = read_json(path)
    validate(record, schema, str(path))
    return record


def read_rows(path: Path, schema: str) -> list[Row]:
    """The rows of a table, each validated; empty where there is no file.

    Raises:
        GemmlabError: the file is no table of this schema; the message names it with row, column and cure.
    """
    if not path.is_file():
        return []
    rows = rows_of(read_table(path, schema), schema)
    for number, row in enumerate(rows, start=1):
        validate(row, schema, f"{path}, row {number}", cure(schema))
    return rows


def rows_of(frame: pd.DataFrame, schema: str) -> list[Row]:
    """The rows of a table read by `schema.read_table` as plain values: null is None and whole numbers are int."""
    whole = _integer_columns(schema)
    columns = {
        column: [_plain(value, column in whole) for value in frame[column].tolist()]
        for column in frame.columns
    }
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


@functools.cache
def _integer_columns(schema: str) -> frozenset[str]:
    properties = read_json(schema_path(schema))["properties"]
    return frozenset(name for name, column in properties.items() if "integer" in column.get("type", []))


def _plain(value: Any, whole: bool) -> Any:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    return int(value) if whole else value


def ranked_row(timing: Row) -> bool:
    """Whether a row of timings.csv may be compared: status ok, plausible, of the cubin that was built and checked."""
    flags = set((timing.get("flags") or "").split())
    return (
        timing["status"] == status.OK
        and timing.get("time_ms_median") is not None
        and not flags & UNRANKED_FLAGS
    )


def ranked(timings: pd.DataFrame) -> pd.DataFrame:
    """The rows of timings.csv that may be compared; see `ranked_row`."""
    chosen = [number for number, row in enumerate(rows_of(timings, "timings")) if ranked_row(row)]
    return timings.iloc[chosen]


def build_tables(
    records: Sequence[VariantRecords], headline_shape: Shape, environment: Record | None
) -> dict[str, list[Row]]:
    """The rows of every table by its name (`TABLES`).

    Args:
        records: as `read_records` gives them.
        headline_shape: m, n, k of summary.csv.
        environment: the run's record; its id is joined to every row, its commit to the timings.
    """
    executors = [executor for executor in EXECUTORS if any(executor in entry.checks for entry in records)]
    checks = check_rows(records, executors)
    timings = timing_rows(records, checks)
    tables = {
        "summary": summary_rows(records, checks, timings, headline_shape),
        "timings": timings,
        "checks": checks,
        "broken": broken_rows(records, executors),
        "counters": counter_rows(records),
    }
    identity = (environment or {}).get("id")
    commit = commit_text(environment)
    for rows in tables.values():
        for row in rows:
            row["environment"] = identity
    for row in timings:
        if row.get("commit") is None and row.get("time_ms_median") is not None:
            row["commit"] = commit
    return tables


def commit_text(environment: Record | None) -> str | None:
    """The commit of a run, with `-dirty` behind it where the working tree differed from it."""
    commit = (environment or {}).get("commit")
    return f"{commit}-dirty" if commit and environment["dirty"] else commit


# ---- checks.csv and broken.csv


def check_rows(records: Sequence[VariantRecords], executors: Sequence[str]) -> list[Row]:
    """checks.csv: a row for each kernel that isn't broken and each of `executors`.

    A check of another cubin or PTX than the one that lies in build counts as none.
    """
    rows = []
    for entry in records:
        if entry.broken:
            continue
        for executor in executors:
            record = entry.checks.get(executor)
            if record is not None:
                rows.append(_check_row(entry, executor, record))
            elif entry.variant.kind == "kernel":
                rows.append(
                    {
                        "variant": entry.variant.name,
                        "executor": executor,
                        "status": status.UNAVAILABLE,
                        "reason": "not run: no record of this check",
                    }
                )
    return rows


def _check_row(entry: VariantRecords, executor: str, record: Record) -> Row:
    findings = record.get("findings") or []
    stale = _other_build(entry.build, record)
    return {
        "variant": entry.variant.name,
        "executor": executor,
        "cubin_sha256": record.get("cubin_sha256"),
        "shapes": _first_known(record.get("shapes_run"), record.get("shapes")),
        "exact_passed": record.get("exact_passed"),
        "rounded_passed": record.get("rounded_passed"),
        "repeats_identical": record.get("repeats_identical"),
        "repeats": record.get("repeats"),
        "worst_fraction_of_bound": record.get("worst_fraction_of_bound"),
        "differs_from_emulator": _differing_problems(entry) if executor == "cuda" else None,
        "findings": len(findings),
        "first_finding": _describe_finding(findings[0]) if findings else None,
        "status": status.UNAVAILABLE if stale else record["status"],
        "reason": stale or record["reason"],
        "digest": record.get("digest"),
    }


def _differing_problems(entry: VariantRecords) -> int | None:
    """In how many problems the two executors' results differ in any bit; None where they can't be compared."""
    records = [entry.checks.get(executor) or {} for executor in ("cuda", "emulator")]
    ours, theirs = (record.get("output_digests") or [] for record in records)
    same_problems = records[0].get("seed") == records[1].get("seed") and len(ours) == len(theirs) > 0
    if not same_problems or any(_other_build(entry.build, record) for record in records):
        return None
    return sum(a != b for a, b in zip(ours, theirs, strict=True) if a and b)


def _other_build(build: Record | None, record: Record) -> str | None:
    """Why `record` says nothing about the files that lie in build, or None if it is about them."""
    if build is None:
        return "not compiled: no record of this build"
    for key, what in (("cubin_sha256", "cubin"), ("ptx_sha256", "PTX")):
        built, used = build.get(key), record.get(key)
        if built and used and built != used:
            return f"of another {what} ({used[:12]}) than is built now ({built[:12]}): run snakemake again"
    return None


def broken_rows(records: Sequence[VariantRecords], executors: Sequence[str]) -> list[Row]:
    """broken.csv: a row for each broken kernel and each of `executors`; status ok means that it was caught.

    On cuda a kernel that passes its check by luck counts as caught if compute-sanitizer reports it, and as
    unavailable if there is no sanitizer to ask.
    """
    rows = []
    for entry in records:
        if entry.broken:
            rows += [_broken_row(entry, executor) for executor in executors]
    return rows


def _broken_row(entry: VariantRecords, executor: str) -> Row:
    record = entry.checks.get(executor)
    row: Row = {
        "variant": entry.variant.name,
        "stands_for": entry.variant.stands_for or "",
        "executor": executor,
        "digest": (record or {}).get("digest"),
    }
    if entry.build is not None and entry.build["status"] == status.FAILED:
        return row | {"status": status.FAILED, "reason": f"compile failed: {entry.build['reason']}"}
    if record is None:
        return row | {"status": status.UNAVAILABLE, "reason": "not run: no record of this check"}
    stale = _other_build(entry.build, record)
    if stale:
        return row | {"status": status.UNAVAILABLE, "reason": stale}
    if record["status"] in (status.SKIPPED, status.UNAVAILABLE):
        return row | {"status": record["status"], "reason": record["reason"]}
    caught_by, findings = _caught(record)
    if executor == "cuda":
        tools, messages, unknown = _sanitizer_errors(entry)
        caught_by, findings = caught_by + tools, findings + messages
    row["caught_by"] = " ".join(dict.fromkeys(caught_by)) or None
    row["finding"] = findings[0] if findings else None
    if caught_by:
        return row | {"status": status.OK, "reason": None}
    if executor == "cuda" and unknown:
        reason = f"passed, as a race may by luck, and the sanitizer doesn't tell: {unknown}"
        return row | {"status": status.UNAVAILABLE, "reason": reason}
    return row | {"status": status.FAILED, "reason": "passed unnoticed"}


def _caught(record: Record) -> tuple[list[str], list[str]]:
    """What caught a broken kernel, and messages about it with what and where; findings say more than wrong values."""
    if record["status"] != status.FAILED:
        return [], []
    failures, findings = record.get("failures") or [], record.get("findings") or []
    caught_by = [_CAUGHT_BY_TEST[failure["test"]] for failure in failures]
    caught_by += [finding["kind"] for finding in findings]
    messages = [_describe_finding(finding) for finding in findings]
    messages += [f"{failure['test']}, {failure['problem']}: {failure['message']}" for failure in failures]
    if not caught_by:
        caught_by, messages = ["fault"], [record["reason"] or "the check failed"]
    return caught_by, messages


def _sanitizer_errors(entry: VariantRecords) -> tuple[list[str], list[str], str | None]:
    """Tools that reported errors, their first messages, and why the sanitizer as a whole can't be believed."""
    record = entry.sanitize
    if record is None:
        return [], [], "it was not run"
    stale = _other_build(entry.build, record)
    if stale:
        return [], [], stale
    tools = record.get("tools") or {}
    found = {name: tool for name, tool in tools.items() if tool["errors"]}
    silent = [f"{name}: {tool.get('reason')}" for name, tool in tools.items() if tool["errors"] is None]
    unknown = record["reason"] or "; ".join(silent) if silent or not tools else None
    return list(found), [f"{name}: {tool.get('first') or 'no text'}" for name, tool in found.items()], unknown


def _describe_finding(finding: Record) -> str:
    """What and where in a line; the message is given only what it doesn't say itself."""
    text = finding["message"]
    kind = finding["kind"].replace("_", " ")
    if not text.startswith(kind):
        text = f"{kind}: {text}"
    if finding.get("file"):
        place = f"{Path(finding['file']).name}:{finding['line']}" if finding.get("line") else finding["file"]
        if place not in text:
            text = f"{text}, {place}"
    return text


# ---- timings.csv


def timing_rows(records: Sequence[VariantRecords], checks: Sequence[Row]) -> list[Row]:
    """timings.csv: the rows of every variant's bench.

    A time taken with another cubin than the one that is built and checked stays visible, but is `skipped` with the
    flag `other_cubin` or `unchecked`, and so is not ranked.
    """
    checked = {row["variant"]: row for row in checks if row["executor"] == "cuda"}
    rows = []
    for entry in records:
        if entry.broken:
            continue
        for timing in entry.bench:
            row = dict(timing)
            flag, reason = _mistrusted(entry, row, checked.get(entry.variant.name))
            if row["status"] == status.OK and flag:
                row |= {"status": status.SKIPPED, "reason": reason}
                row["flags"] = " ".join(filter(None, [row.get("flags"), flag]))
            rows.append(row)
    return rows


def _mistrusted(entry: VariantRecords, timing: Row, check: Row | None) -> tuple[str | None, str | None]:
    """A flag and the reason why a time says nothing about the kernel as built and checked, or two times None."""
    if entry.variant.kind != "kernel":
        return None, None
    timed, built = timing.get("cubin_sha256"), (entry.build or {}).get("cubin_sha256")
    if not timed or timed != built:
        used, now = (str(digest)[:12] if digest else "unknown" for digest in (timed, built))
        return "other_cubin", f"timed with another cubin ({used}) than is built now ({now}): not ranked"
    if check is None or check["status"] != status.OK:
        state = "not run" if check is None else f"{check['status']}: {check['reason']}"
        return "unchecked", f"the check of this cubin on the GPU is not ok ({state}): not ranked"
    return None, None


# ---- counters.csv


def counter_rows(records: Sequence[VariantRecords]) -> list[Row]:
    """counters.csv: each counter of each variant and shape, the emulator's figure beside Nsight Compute's.

    Sums (names that end in `.sum`) are added over a variant's launches; of any other metric the longest launch
    counts. A figure that is missing is null, and the reason says why.
    """
    rows = []
    for entry in records:
        if not entry.broken:
            rows += _variant_counters(entry)
    return rows


def counter_name(name: str) -> str:
    """A counter by Nsight Compute's full name, with its `.sum`; our own `ptx_` names stay as they are."""
    return name if name.startswith("ptx_") or "." in name else f"{name}.sum"


def _variant_counters(entry: VariantRecords) -> list[Row]:
    emulated, emulator_reason = _emulated(entry)
    measured, ncu_reasons = _measured(entry)
    digest = joint_digest([(entry.count or {}).get("digest"), *(row.get("digest") for row in entry.profile)])
    rows: list[Row] = []
    for shape in dict.fromkeys([*emulated, *measured]):
        for counter in dict.fromkeys([*emulated.get(shape, {}), *measured.get(shape, {})]):
            ours = emulated.get(shape, {}).get(counter)
            theirs = measured.get(shape, {}).get(counter, {})
            missing = []
            if ours is None:
                missing.append(f"emulator: {emulator_reason or _why_missing(shape in emulated, 'run')}")
            if theirs.get("value") is None:
                reason = theirs.get("reason") or ncu_reasons.get(shape) or ncu_reasons.get(None)
                missing.append(f"ncu: {reason or _why_missing(shape in measured, 'profiled')}")
            rows.append(
                {
                    "variant": entry.variant.name,
                    **_shape_columns(shape),
                    "counter": counter,
                    "emulator": ours,
                    "ncu": theirs.get("value"),
                    "unit": theirs.get("unit"),
                    "status": status.OK if len(missing) < 2 else status.UNAVAILABLE,
                    "reason": "; ".join(missing) or None,
                    "digest": digest,
                }
            )
    failed = next((row for row in entry.profile if row["status"] == status.FAILED), None)
    if failed:
        rows.append(_no_counters(entry, status.FAILED, f"profile: {failed['reason']}", digest))
    elif not rows and (entry.count or entry.profile):
        reasons = [f"emulator: {emulator_reason}"] if emulator_reason else []
        reasons += [f"ncu: {reason}" for reason in list(ncu_reasons.values())[:1]]
        states = [(entry.count or {}).get("status"), *(row["status"] for row in entry.profile)]
        rows.append(_no_counters(entry, _worst(filter(None, states)), "; ".join(reasons) or None, digest))
    return rows


def _no_counters(entry: VariantRecords, state: str, reason: str | None, digest: str | None) -> Row:
    return {
        "variant": entry.variant.name,
        "counter": ANY_COUNTER,
        "status": state,
        "reason": reason,
        "digest": digest,
    }


def _why_missing(shape_known: bool, verb: str) -> str:
    return "doesn't count this" if shape_known else f"not {verb} at this shape"


def _emulated(entry: VariantRecords) -> tuple[dict[Shape, dict[str, int]], str | None]:
    """Counters by shape and name, or the reason why there are none."""
    record = entry.count
    if record is None:
        return {}, "not counted" if entry.variant.compiled else "a library's kernels have no source here"
    stale = _other_build(entry.build, record)
    if stale or record["status"] != status.OK:
        return {}, stale or record["reason"] or record["status"]
    by_shape = {}
    for shape in record.get("shapes", []):
        counters = {counter_name(name): value for name, value in shape["counters"].items()}
        by_shape[shape["m"], shape["n"], shape["k"]] = counters
    return by_shape, None


def _measured(entry: VariantRecords) -> tuple[dict[Shape, dict[str, Row]], dict[Shape | None, str]]:
    """Value, unit and reason of each metric by shape and name; and why shapes have none (None stands for all)."""
    by_shape: dict[Shape, dict[str, Row]] = {}
    reasons: dict[Shape | None, str] = {} if entry.profile else {None: "not profiled"}
    for shape in dict.fromkeys(_shape_of(row) for row in entry.profile):
        here = [row for row in entry.profile if _shape_of(row) == shape]
        if here[0]["metric"] == ANY_COUNTER:
            reasons[shape] = here[0]["reason"] or here[0]["status"]
            continue
        longest = _longest_launch(here)
        by_shape[shape] = {
            counter_name(name): _over_launches(name, [row for row in here if row["metric"] == name], longest)
            for name in dict.fromkeys(row["metric"] for row in here)
        }
    return by_shape, reasons


def _shape_of(row: Row) -> Shape | None:
    return None if row.get("m") is None else (row["m"], row["n"], row["k"])


def _over_launches(name: str, launches: Sequence[Row], longest: int | None) -> Row:
    if not counter_name(name).endswith(".sum"):
        launches = [row for row in launches if row.get("launch") == longest] or launches[:1]
    values = [row.get("value") for row in launches]
    reason = next((row["reason"] for row in launches if row.get("value") is None), None)
    return {
        "value": None if None in values else sum(values),
        "unit": launches[0].get("unit"),
        "reason": reason,
    }


def _longest_launch(rows: Sequence[Row]) -> int | None:
    durations = {
        row.get("launch"): row["value"]
        for row in rows
        if row["metric"] == _DURATION and row.get("value") is not None
    }
    return max(durations, key=durations.__getitem__) if durations else rows[0].get("launch")


# ---- summary.csv


def summary_rows(
    records: Sequence[VariantRecords], checks: Sequence[Row], timings: Sequence[Row], headline_shape: Shape
) -> list[Row]:
    """summary.csv: a row for each variant that isn't broken, at `headline_shape` with a cold cache.

    The status is the worst of the variant's stages (failed, then unavailable, then skipped). One executor that
    passed is enough for ok, and a machine that can't time or profile takes nothing from a variant that it checked:
    the columns stay empty and the reason says why. A variant that nothing checked is never ok; a baseline, which
    nothing checks here, is ok when it was timed.
    """
    rows = []
    for entry in records:
        if entry.broken:
            continue
        own_checks = [row for row in checks if row["variant"] == entry.variant.name]
        own_timings = [row for row in timings if row["variant"] == entry.variant.name]
        headline = _headline(own_timings, headline_shape)
        state, reason = _summary_status(entry, own_checks, own_timings, headline, headline_shape)
        rows.append(
            {
                "variant": entry.variant.name,
                "kind": entry.variant.kind,
                "article_ids": " ".join(entry.variant.articles) or None,
                "arithmetic": entry.variant.arithmetic,
                **_shape_columns(headline_shape),
                **_speed(entry, headline),
                "limiter": limiter(entry.profile, headline_shape),
                **resources(entry.build),
                "check": check_text(own_checks),
                "status": state,
                "reason": reason,
                "digest": joint_digest(
                    [
                        (entry.build or {}).get("digest"),
                        *(row.get("digest") for row in own_checks),
                        *(row.get("digest") for row in entry.bench),
                        *(row.get("digest") for row in entry.profile),
                    ]
                ),
            }
        )
    return rows


def _headline(timings: Sequence[Row], shape: Shape) -> Row | None:
    """The cold row at `shape`; a row that stands for all shapes (no m) where there is none."""
    fitting = [row for row in timings if _shape_of(row) == shape]
    cold = [row for row in fitting if row.get("cache") in ("cold", None)]
    return next(iter(cold or [row for row in timings if row.get("m") is None]), None)


def _speed(entry: VariantRecords, headline: Row | None) -> Row:
    empty = dict.fromkeys(("time_ms", "tflops", "percent_of_peak", "percent_of_baseline"))
    if headline is None or not ranked_row(headline):
        return empty
    ratio = headline.get("ratio")
    if ratio is None and BASELINES.get(entry.variant.arithmetic) == entry.variant.name:
        ratio = 1.0
    return {
        "time_ms": headline.get("time_ms_median"),
        "tflops": headline.get("tflops"),
        "percent_of_peak": headline.get("percent_of_peak"),
        "percent_of_baseline": None if ratio is None else 100.0 * ratio,
    }


def _summary_status(
    entry: VariantRecords,
    checks: Sequence[Row],
    timings: Sequence[Row],
    headline: Row | None,
    shape: Shape,
) -> tuple[str, str | None]:
    failures = [f"{stage}: {reason}" for stage, reason in failed_stages(entry, checks, timings)]
    if failures:
        return status.FAILED, "; ".join(failures)
    base, reasons = _correctness(entry, checks)
    if base != status.OK:
        return base, "; ".join(reasons)
    if entry.variant.kind == "probe":
        return status.SKIPPED, "a probe measures the device and is no product: nothing to check or rank"
    timing_state, timing_reason = _timing_state(entry, headline, shape)
    if timing_reason:
        reasons.append(timing_reason)
    if entry.profile and timing_state == status.OK:
        lacking = next((row for row in entry.profile if row["status"] != status.OK), None)
        if lacking and not any(row["status"] == status.OK for row in entry.profile):
            reasons.append(f"profile {lacking['status']}: {lacking['reason']}")
    if entry.variant.kind != "kernel":
        return timing_state, "; ".join(reasons) or None
    state = status.SKIPPED if timing_state == status.SKIPPED else status.OK
    return state, "; ".join(reasons) or None


def failed_stages(
    entry: VariantRecords, checks: Sequence[Row], timings: Sequence[Row]
) -> list[tuple[str, str]]:
    """Stage and reason of everything that failed for a variant; one line a stage."""
    found: dict[str, str] = {}
    if entry.build and entry.build["status"] == status.FAILED:
        found["compile"] = entry.build["reason"]
    for row in checks:
        if row["status"] == status.FAILED:
            found[f"check on {row['executor']}"] = row["reason"]
    for stage, rows in (("bench", timings), ("profile", entry.profile)):
        bad = [row for row in rows if row["status"] == status.FAILED]
        if bad:
            more = f" (and {len(bad) - 1} more rows)" if len(bad) > 1 else ""
            found[stage] = f"{bad[0]['reason']}{more}"
    for stage, record in (("count", entry.count), ("sanitize", entry.sanitize), ("probe", entry.probe)):
        if record and record["status"] == status.FAILED:
            found[stage] = record["reason"]
    return [(stage, reason or "no reason given") for stage, reason in found.items()]


def _correctness(entry: VariantRecords, checks: Sequence[Row]) -> tuple[str, list[str]]:
    """Whether anything vouches for the variant's results, with what doesn't."""
    if entry.variant.kind not in ("kernel", "probe"):
        return status.OK, []
    if entry.build is None:
        return status.UNAVAILABLE, ["not run: no record of its build"]
    if entry.build["status"] != status.OK:
        return entry.build["status"], [f"compile: {entry.build['reason']}"]
    if entry.variant.kind == "probe":
        return status.OK, []
    if not checks:
        return status.UNAVAILABLE, ["not checked: no record of a check"]
    lacking = [row for row in checks if row["status"] != status.OK]
    reasons = [f"check on {row['executor']} {row['status']}: {row['reason']}" for row in lacking]
    if len(lacking) < len(checks):
        return status.OK, reasons
    return _worst(row["status"] for row in checks), reasons


def _timing_state(entry: VariantRecords, headline: Row | None, shape: Shape) -> tuple[str, str | None]:
    size = shape_text(shape)
    if headline is None:
        return (
            status.UNAVAILABLE,
            f"not timed at {size}" if entry.bench else "time unavailable: no record of bench",
        )
    if headline["status"] != status.OK:
        return headline["status"], f"time {headline['status']}: {headline['reason']}"
    if not ranked_row(headline):
        return status.OK, f"time at {size} implausible (over the peak): not ranked"
    return status.OK, None


def check_text(checks: Sequence[Row]) -> str | None:
    """`300/300 emulator, cuda unavailable`: shapes that passed with exact and with rounded data, by executor."""
    parts = []
    for row in checks:
        counted = row.get("shapes") and row.get("exact_passed") is not None
        if counted:
            parts.append(f"{passed(row)}/{row['shapes']} {row['executor']}")
        else:
            parts.append(f"{row['executor']} {row['status']}")
    return ", ".join(parts) or None


def passed(row: Row) -> int:
    """Shapes of a row of checks.csv that passed both ways."""
    return min(row.get("exact_passed") or 0, row.get("rounded_passed") or 0)


def resources(build: Record | None) -> Row:
    """Registers, spills, shared memory and occupancy of the launch that takes most registers."""
    entries = list(((build or {}).get("entries") or {}).values())
    if not entries:
        return {}
    widest = max(entries, key=lambda entry: entry["registers"] or 0)
    return {
        "registers": widest["registers"],
        "spill_bytes": _sum_known(widest.get("spill_store_bytes"), widest.get("spill_load_bytes")),
        "shared_bytes": _sum_known(widest.get("shared_static_bytes"), widest.get("shared_dynamic_bytes")),
        "occupancy": widest.get("occupancy"),
        "occupancy_limit": widest.get("occupancy_limit"),
    }


def limiter(profile: Sequence[Row], shape: Shape) -> str | None:
    """What keeps the longest launch at `shape` from being faster (gemmlab.limiter), or None without a profile of it."""
    found = find_limiter(launch_metrics(profile, shape))
    return str(found) if found else None


def shape_text(shape: Sequence[int]) -> str:
    """`4096^3`, or `16 x 11008 x 4096` where the sides differ."""
    m, n, k = (int(side) for side in shape)
    return f"{m}^3" if m == n == k else f"{m} x {n} x {k}"


@dataclass(frozen=True)
class BadResult:
    """A variant and stage that the gate fails for, and why."""

    variant: str
    stage: str
    reason: str

    def __str__(self) -> str:
        return f"{self.variant}, {self.stage}: {self.reason}"


def nothing_timed(asked: str | None, timings: Iterable[Row]) -> list[BadResult]:
    """What is bad about a run that was asked for a GPU by name (`asked`, the configuration's `device`) and has rows of
    bench, but measured in none of them: a name misspelt looks like a machine without a GPU."""
    rows = list(timings)
    lacking = [row["reason"] for row in rows if row["status"] == status.UNAVAILABLE]
    measured = any(row.get("time_ms_median") is not None for row in rows)
    if asked in (None, "auto", "none") or measured or not lacking:
        return []
    reason = f"asked for by name, but not one row was measured: {lacking[0]}"
    return [BadResult(asked, "bench", f"{reason}. Name the GPU that is here, or say device: auto.")]


def bad_results(tables: Mapping[str, pd.DataFrame], asked: str | None = None) -> list[BadResult]:
    """Everything that is bad in the tables (as read back from CSV), one entry for each variant and stage.

    Bad is whatever failed, and a broken kernel that passed; `skipped` and `unavailable` are not, unless nothing was
    measured of the GPU that was `asked` for by name.
    """
    found: dict[str, dict[str, list[str]]] = {name: {} for name in tables["summary"]["variant"]}

    def note(row: Row, stage: str, reason: str | None) -> None:
        found.setdefault(row["variant"], {}).setdefault(stage, []).append(reason or "no reason given")

    for table in ("checks", "broken", "timings", "counters", "summary"):
        for row in rows_of(tables[table], table):
            if row["status"] != status.FAILED:
                continue
            if table == "checks":
                note(row, f"check on {row['executor']}", row["reason"])
            elif table == "broken":
                note(row, f"broken kernel on {row['executor']}", row["reason"])
            elif table == "timings":
                note(row, "bench", row["reason"])
            elif table == "counters" or not found[row["variant"]]:
                stage, _, reason = (row["reason"] or "").partition(": ")
                note(row, stage, reason)
    return nothing_timed(asked, rows_of(tables["timings"], "timings")) + [
        BadResult(
            variant, stage, f"{reasons[0]} (and {len(reasons) - 1} more rows)" if reasons[1:] else reasons[0]
        )
        for variant, stages in found.items()
        for stage, reasons in stages.items()
    ]


def _shape_columns(shape: Shape) -> Row:
    return dict(zip(("m", "n", "k"), shape, strict=True))


def _worst(states: Iterable[str]) -> str:
    return min(states, key=_WORST_FIRST.index)


def joint_digest(digests: Iterable[str | None]) -> str | None:
    """One digest that stands for all known ones among `digests`, whatever their order; None if none is known."""
    known = sorted({digest for digest in digests if digest})
    if len(known) < 2:
        return known[0] if known else None
    return sha256_of(known)[:16]


def _first_known(*values: Any) -> Any:
    return next((value for value in values if value is not None), None)


def _sum_known(*values: int | None) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None

"""Nsight Compute: its command, what its failures mean, and its reports and CSV exports read by name with units."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gemmlab import status
from gemmlab.errors import GemmlabError
from gemmlab.process import run_process

# Caches are flushed and invalidated before each pass, so that passes see the same and a figure can be repeated.
CACHE_CONTROL = "all"
_VERSION_TIMEOUT_S = 30

PERMISSION = (
    "counter permission: the driver shows its performance counters to administrators alone. Cures: (1) run as root or "
    "with the capability CAP_SYS_ADMIN; (2) start a container with --cap-add=SYS_ADMIN; (3) put `options nvidia "
    "NVreg_RestrictProfilingToAdminUsers=0` in a file under /etc/modprobe.d and reload the driver or restart"
)
NOTHING_PROFILED = (
    "ncu profiled no kernel. Likely: the launch failed before it reached the GPU; the kernel's name differs from the "
    "entry in the catalogue; or the target ended before its profiled launch"
)
# What the log of ncu says, and what follows from it. The first that matches counts.
_FAILURES = (
    (r"ERR_NVGPUCTRPERM", status.UNAVAILABLE, PERMISSION),
    (
        r"driver resource was unavailable",
        status.UNAVAILABLE,
        "another profiler holds the performance counters (often DCGM): stop it (dcgmi profile --pause) and run again",
    ),
    (
        r"LibraryNotLoaded|Failed to initialize the profiler",
        status.UNAVAILABLE,
        "ncu could not load the driver's profiling library; some virtual machines and containers hide it",
    ),
    (
        r"(Profiling is not supported|[Uu]nsupported GPU|[Dd]evice not supported)",
        status.UNAVAILABLE,
        "this ncu does not support this GPU or driver; install one that is as new as the driver",
    ),
    (
        r"nsight-compute-lock",
        status.UNAVAILABLE,
        "ncu could not use its lock file, which belongs to another user: remove it or set TMPDIR to a folder of yours",
    ),
)
_TARGET_STATUS = re.compile(r"application returned an error code \((-?\d+)\)")
_UNKNOWN_METRIC = re.compile(r"Failed to find metric (?:regex:\^?)?(\S+)")
_UNKNOWN_METRICS = re.compile(r"(?:Failed|Unable) to access the following \d+ metrics?: (.+)")
# After an error of its own, ncu kills the target, whose status then says nothing.
_KILLED_BY_NCU = "Trying to shutdown target application"


def version(ncu: Path) -> str | None:
    """The version that `ncu --version` prints, such as `2025.3.1.0`, or None if it prints none."""
    found = re.search(
        r"Version (\d[\w.]*)", run_process([ncu, "--version"], timeout_s=_VERSION_TIMEOUT_S).output
    )
    return found[1] if found else None


def command(
    ncu: Path,
    target: Sequence[str],
    *,
    report: Path,
    log: Path,
    metrics: Iterable[str],
    kernels: Iterable[str] = (),
    full: bool = False,
) -> list[str]:
    """The command that profiles what `target` launches between cudaProfilerStart and cudaProfilerStop.

    Args:
        ncu: the program.
        target: the program to profile and its arguments.
        report: the report to write; its name ends in .ncu-rep.
        log: where ncu's own messages go, so that the target's output stays apart.
        metrics: names to collect.
        kernels: entry functions to profile; all if there are none.
        full: collect ncu's full set besides.
    """
    options = ["--clock-control", "none", "--cache-control", CACHE_CONTROL, "--target-processes", "all"]
    options += ["--profile-from-start", "off", "--force-overwrite"]
    options += ["--export", str(report), "--log-file", str(log)]
    names = sorted(set(kernels))
    if names:
        options += ["--kernel-name", f"regex:^({'|'.join(names)})$"]
    if full:
        options += ["--set", "full"]
    options += ["--metrics", ",".join(metrics)]
    return [str(ncu), *options, *target]


@dataclass(frozen=True)
class Failure:
    """Why there is no profile: `failed` or `unavailable`, and a reason for people."""

    status: str
    reason: str


def explain(log: str, returncode: int, target_stderr: str) -> Failure | None:
    """What went wrong in a run of ncu, or None if it profiled something.

    Args:
        log: what ncu wrote to its log file.
        returncode: ncu's exit status.
        target_stderr: the end of the target's standard error, which is shown when the target failed.
    """
    for pattern, word, reason in _FAILURES:
        if re.search(pattern, log):
            return Failure(word, reason)
    errors = [line.strip() for line in re.findall(r"==ERROR== (.+)", log)]
    reasons = [f"ncu: {line}" for line in errors if not _TARGET_STATUS.search(line)][:1]
    target = _TARGET_STATUS.search(log)
    if target and _KILLED_BY_NCU not in log:
        reasons.append(f"the target ended with status {target[1]} under ncu: {_last_lines(target_stderr)}")
    if reasons:
        return Failure(status.FAILED, "; ".join(reasons))
    if "No kernels were profiled" in log:
        return Failure(status.FAILED, NOTHING_PROFILED)
    if returncode != 0:
        return Failure(
            status.FAILED, f"ncu ended with status {returncode}: {_last_lines(target_stderr or log)}"
        )
    return None


def unknown_metrics(log: str, asked: Iterable[str]) -> list[str]:
    """Those of the metrics `asked` for that ncu's log names as unknown or out of reach: one fails the whole run.

    A name that ncu doesn't know with its suffix (imagined.sum) fails nothing: it is n/a in the report.
    """
    named = set(_UNKNOWN_METRIC.findall(log))
    for found in _UNKNOWN_METRICS.findall(log):
        named.update(name.strip() for name in found.split(","))
    # A name without its suffix is echoed as a regular expression over the suffixes: regex:^name\.(sum|min|...)$
    named = {re.split(r"\\\.|\$", name)[0].rstrip(".") for name in named}
    return [name for name in asked if name in named]


def _last_lines(text: str, count: int = 3) -> str:
    return " | ".join(line.strip() for line in text.strip().splitlines()[-count:]) or "no message"


# ---- units

_TIMES = {
    "nsecond": 1.0,
    "ns": 1.0,
    "usecond": 1e3,
    "us": 1e3,
    "msecond": 1e6,
    "ms": 1e6,
    "second": 1e9,
    "s": 1e9,
}
_PREFIXES = {"": 1.0, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_SCALED = re.compile(r"([KMGTP]?)(byte|hz)", re.IGNORECASE)


def base_unit(unit: str) -> tuple[str, float]:
    """The unit that profile.csv uses for `unit`, and the factor to it: ns, byte, hz and their quotients by s.

    ncu's K, M and G are powers of 1000. What it doesn't scale (inst, sector, %, block ...) stays as it is.
    """
    numerator, slash, denominator = unit.partition("/")
    factor = 1.0
    if numerator in _TIMES:
        factor, numerator = _TIMES[numerator], "ns"
    elif scaled := _SCALED.fullmatch(numerator):
        factor, numerator = _PREFIXES[scaled[1].upper()], scaled[2].lower()
    if denominator in _TIMES:
        factor, denominator = factor * 1e9 / _TIMES[denominator], "s"
    return f"{numerator}{slash}{denominator}", factor


# ---- reports


@dataclass(frozen=True)
class Value:
    """A metric of a launch in base units; `value` is None with a `reason` where ncu has none."""

    value: float | None
    unit: str | None
    reason: str | None = None


@dataclass(frozen=True)
class Action:
    """A profiled launch of a report, in the order in which they ran."""

    name: str
    demangled: str
    stream: int | None
    metrics: dict[str, Value] = field(default_factory=dict)


def read_report(path: Path, metrics: Iterable[str]) -> list[Action]:
    """The launches in an .ncu-rep file, with the values of `metrics`.

    Raises:
        GemmlabError: the file isn't a report, or the module that reads them is missing.
    """
    try:
        import ncu_report
    except ImportError as error:
        raise GemmlabError(
            f"{path}: reading it needs the package ncu-report ({error}): pip install -r requirements.lock."
        ) from error
    names = list(metrics)
    try:
        context = ncu_report.load_report(str(path))
    except (RuntimeError, FileNotFoundError, ValueError) as error:
        raise GemmlabError(f"{path}: not a report of Nsight Compute ({error}).") from error
    return [
        _read_action(action, names, ncu_report.IAction.NameBase_DEMANGLED)
        for span in context
        for action in span
    ]


def _read_action(action: Any, names: Sequence[str], demangled: int) -> Action:
    stream = action.metric_by_name("launch__stream_id")
    return Action(
        name=action.name(),
        demangled=action.name(demangled),
        stream=None if stream is None else int(stream.as_uint64()),
        metrics={name: _read_value(action.metric_by_name(name)) for name in names},
    )


def _read_value(metric: Any) -> Value:
    if metric is None:
        return Value(None, None, "ncu recorded no such metric")
    value = metric.value() if metric.has_value() else None
    unit, factor = base_unit(metric.unit() or "")
    if not isinstance(value, (int, float)) or not math.isfinite(value):
        return Value(None, unit, "ncu reports n/a for it on this GPU")
    return Value(value * factor if factor != 1 else value, unit)


# ---- CSV exports (ncu --import FILE --csv --page raw), which the tests hold against the reports

_TRUE_COLUMNS = ("ID", "Kernel Name")


@dataclass(frozen=True)
class Cell:
    """A number as a CSV export prints it: in base units, with half a unit of its last digit as `tolerance`."""

    value: float | None
    unit: str
    tolerance: float = 0.0


def parse_csv(text: str) -> list[dict[str, Cell | str]]:
    """The launches of a raw page: metrics as `Cell`s by name, other columns as text.

    What the target printed before the header is passed over; the line of units, grouped digits, `n/a` and rows that
    are shorter than the header are understood.

    Raises:
        GemmlabError: there is no header.
    """
    lines = text.splitlines()
    start = next((number for number, line in enumerate(lines) if _is_header(line)), None)
    if start is None:
        raise GemmlabError(
            'no line of this CSV has the columns "ID" and "Kernel Name": not a raw page of ncu.'
        )
    header, *rows = csv.reader(io.StringIO("\n".join(lines[start:])))
    # The line of units has no launch, so its first cell is empty.
    units = dict(zip(header, rows.pop(0), strict=False)) if rows and rows[0] and not rows[0][0] else {}
    return [
        {name: _cell(name, cell, units.get(name, "")) for name, cell in zip(header, row, strict=False)}
        for row in rows
        if row and row[0].strip().isdigit()
    ]


def _is_header(line: str) -> bool:
    row = next(csv.reader([line]), [])
    return all(column in row for column in _TRUE_COLUMNS)


def _cell(name: str, text: str, unit: str) -> Cell | str:
    if "__" not in name:
        return text
    base, factor = base_unit(unit)
    digits = text.strip().replace(",", "").replace(" ", "")
    try:
        value = float(digits)
    except ValueError:
        return Cell(None, base)
    if not math.isfinite(value):
        return Cell(None, base)
    decimals = len(digits.partition(".")[2]) if "e" not in digits.lower() else 0
    return Cell(value * factor, base, 0.5 * 10.0**-decimals * factor)


def differences(actions: Sequence[Action], rows: Sequence[dict[str, Cell | str]]) -> list[str]:
    """Where the launches of a report and of a CSV export of it differ by more than the export's rounding.

    Every metric of `actions` that the export has is compared; a null must be null in both.
    """
    if len(actions) != len(rows):
        return [f"{len(actions)} launches in the report, {len(rows)} in the export"]
    found = []
    for number, (action, row) in enumerate(zip(actions, rows, strict=True), start=1):
        for name, ours in action.metrics.items():
            theirs = row.get(name)
            if isinstance(theirs, Cell) and not _agree(ours, theirs):
                found.append(
                    f"launch {number}, {name}: {ours.value} {ours.unit}, export {theirs.value} {theirs.unit}"
                )
    return found


def _agree(ours: Value, theirs: Cell) -> bool:
    if ours.value is None or theirs.value is None:
        return ours.value is theirs.value
    # A little more than half a digit, since the export rounds what was already scaled in floating point.
    return ours.unit == theirs.unit and abs(
        ours.value - theirs.value
    ) <= 1.001 * theirs.tolerance + 1e-9 * abs(ours.value)

"""Stage profile: Nsight Compute's counters of one variant, one launch after warm-up at each shape, by name and unit.

One ncu process a variant covers all shapes; its report is kept beside the table. Only what was checked with this very
cubin is profiled. ncu's durations are taken with cold caches and replayed launches: they never mix with timings.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gemmlab import driver, launch_once, ncu, status, toolchain
from gemmlab.catalogue import Variant, load_catalogue
from gemmlab.errors import GemmlabError
from gemmlab.files import read_json, sha256_file, write_bytes
from gemmlab.launch_once import Shape
from gemmlab.ncu import Action, Failure, Value
from gemmlab.ncu_metrics import COUNTERS, DURATION, NVPROF_ONLY, STANDARD, metric_table
from gemmlab.problem import Problem
from gemmlab.schema import write_table
from gemmlab.sources import inputs_digest
from gemmlab.worker import run_worker

# The row that stands for all metrics where there are none.
ANY = "any"
STREAM = "launch__stream_id"
# ncu names one unknown metric a run at worst; an older or newer card than ours lacks a few.
ATTEMPTS = 6
# In standard a launch that takes longer isn't profiled: ncu repeats it 16 times.
SKIP_OVER_MS = 500.0
_TIME_LIMIT_S = 300
NO_NCU = Failure(
    status.UNAVAILABLE,
    "ncu (Nsight Compute) is not installed: it comes with the CUDA toolkit, or put yours on PATH",
)

Row = dict[str, Any]


@dataclass(frozen=True)
class Plan:
    """What is profiled: the shapes, each with the metrics that its rows keep, and all metrics to ask for."""

    shapes: dict[Shape, tuple[str, ...]]
    metrics: tuple[str, ...]


def plan_shapes(variant: Variant, settings: Mapping[str, Any]) -> Plan:
    """The shapes of `settings`, each once.

    The profile's own and the headline shape keep all metrics; those of the count stage keep what the emulator counts
    as well, so that counters.csv can put the two side by side. A library has no counts.
    """
    metrics = tuple(metric.name for metric in STANDARD)
    if settings["preset"] == "full":
        metrics += NVPROF_ONLY
    shapes: dict[Shape, tuple[str, ...]] = {}
    for m, n, k in [*settings.get("profile", {}).get("shapes", []), settings["headline_shape"]]:
        shapes[m, n, k] = metrics
    counted = variant.count_shapes or settings.get("count", {}).get("shapes", []) if variant.compiled else ()
    for m, n, k in counted:
        shapes.setdefault((m, n, k), (DURATION, *(metric.name for metric in COUNTERS)))
    return Plan(shapes, metrics)


def refusal(
    variant: Variant, build: Mapping[str, Any], check: Mapping[str, Any], cubin: Path
) -> Failure | None:
    """Why a compiled variant must not be profiled, or None: what isn't checked with this very cubin isn't.

    Args:
        variant: from the catalogue.
        build: the record of compile.
        check: the record of check on cuda.
        cubin: the file that would be launched.
    """
    if build["status"] != status.OK:
        return Failure(
            status.SKIPPED, "compile failed" if build["status"] == status.FAILED else build["reason"]
        )
    if check["status"] == status.FAILED:
        return Failure(status.SKIPPED, f"check failed: {check['reason']}")
    if check["status"] != status.OK:
        return Failure(check["status"], f"not checked on a GPU: {check['reason']}")
    if check["cubin_sha256"] != build["cubin_sha256"]:
        return Failure(
            status.SKIPPED, "checked with another cubin than the one built last; run the check again"
        )
    if sha256_file(cubin) != build["cubin_sha256"]:
        return Failure(
            status.SKIPPED, f"{cubin.name} is not the file that its record describes; compile again"
        )
    return None


@dataclass(frozen=True)
class Recorded:
    """What a run of ncu left: launches, what the target says it launched, and metrics that this ncu doesn't know."""

    actions: list[Action]
    launched: dict[str, Any]
    dropped: tuple[str, ...]
    report: bytes | None


def record(
    program: Path,
    variant: Variant,
    shapes: Sequence[Shape],
    metrics: Sequence[str],
    cubin: Path | None,
    settings: Mapping[str, Any],
) -> Recorded | Failure:
    """Run `variant` under ncu; a metric that ncu doesn't know is dropped and the run tried again.

    Args:
        program: ncu.
        variant: what to run.
        shapes: m, n, k of each launch.
        metrics: names to ask for.
        cubin: of a compiled variant.
        settings: preset, seed and the profile's time limit.
    """
    full = settings["preset"] == "full"
    limit_s = settings.get("profile", {}).get("time_limit_s", _TIME_LIMIT_S)
    asked, dropped = list(metrics), []
    kernels = [launch.entry for launch in variant.launches]
    with tempfile.TemporaryDirectory(prefix="gemmlab-profile-") as name:
        folder = Path(name)
        report, log, launches = (folder / file for file in ("run.ncu-rep", "ncu.log", "launches.json"))
        target = launch_once.command(
            variant.name,
            shapes,
            cubin=cubin,
            seed=settings["seed"],
            launches=launches,
            skip_over_ms=None if full else SKIP_OVER_MS,
        )
        for _ in range(ATTEMPTS):
            command = ncu.command(
                program, target, report=report, log=log, metrics=asked, kernels=kernels, full=full
            )
            started = time.monotonic()
            result = run_worker(command, limit_s, None)
            print(f"{variant.name}: ncu took {time.monotonic() - started:.1f} s", file=sys.stderr)
            if result.timed_out:
                return Failure(status.FAILED, f"ncu: {result.death}")
            # Before it opens its log file, ncu complains on its standard output.
            said = "\n".join([log.read_text(errors="replace") if log.is_file() else "", result.stdout_tail])
            unknown = ncu.unknown_metrics(said, asked)
            if not unknown:
                break
            asked = [metric for metric in asked if metric not in unknown]
            dropped += unknown
        launched = read_json(launches) if launches.is_file() else None
        if launched and all(shape["skipped"] for shape in launched["shapes"]):
            return Recorded([], launched, tuple(dropped), None)
        failure = ncu.explain(said, result.returncode, result.stderr_tail)
        if failure:
            return failure
        if launched is None or not report.is_file():
            return Failure(status.FAILED, "ncu ended well but left no report")
        return Recorded(ncu.read_report(report, asked), launched, tuple(dropped), report.read_bytes())


def assign(actions: Sequence[Action], shapes: Sequence[Mapping[str, Any]]) -> list[list[Action]] | Failure:
    """The launches of each of `shapes` (what launch_once says of them, in order; none of them skipped).

    A compiled variant's launches follow from its entries; a library's are told apart by the stream, which each shape
    has of its own.
    """
    if all(shape["entries"] for shape in shapes):
        expected = [entry for shape in shapes for entry in shape["entries"]]
        found = [action.name for action in actions]
        if found != expected:
            return Failure(
                status.FAILED,
                f"the report holds {len(found)} launches ({', '.join(found[:6])}), "
                f"expected {len(expected)} ({', '.join(expected[:6])})",
            )
        remaining = iter(actions)
        return [list(itertools.islice(remaining, len(shape["entries"]))) for shape in shapes]
    if len(shapes) == 1:
        return [list(actions)]
    groups = [list(group) for _, group in itertools.groupby(actions, key=lambda action: action.stream)]
    if len(groups) != len(shapes):
        return Failure(
            status.FAILED, f"the report holds launches of {len(groups)} streams, expected {len(shapes)}"
        )
    return groups


def rows_of(recorded: Recorded, plan: Plan, variant: Variant, base: Row) -> list[Row]:
    """The rows of a recorded run, in the order of its shapes; `base` holds the columns that all share."""
    base = base | {"gpu_uuid": recorded.launched["gpu_uuid"]}
    run = [shape for shape in recorded.launched["shapes"] if not shape["skipped"]]
    groups = assign(recorded.actions, run)
    if isinstance(groups, Failure):
        return [_no_metrics(base, groups)]
    launches = iter(groups)
    rows = []
    for shape in recorded.launched["shapes"]:
        here = base | {side: shape[side] for side in ("m", "n", "k")}
        if shape["skipped"]:
            rows.append(_no_metrics(here, Failure(status.SKIPPED, shape["skipped"])))
            continue
        kept = plan.shapes[shape["m"], shape["n"], shape["k"]]
        for number, action in enumerate(next(launches), start=1):
            named = {"launch": number, "kernel": action.name if variant.compiled else action.demangled}
            rows += _metric_rows(here | named, action, kept, recorded.dropped)
    return rows


def _metric_rows(base: Row, action: Action, kept: Sequence[str], dropped: Sequence[str]) -> Iterator[Row]:
    for name in kept:
        value = action.metrics.get(name, Value(None, None, "ncu recorded no such metric"))
        if name in dropped:
            value = Value(None, None, "this ncu knows no such metric on this GPU: dropped")
        yield base | {
            "metric": name,
            "value": value.value,
            "unit": value.unit,
            "status": status.UNAVAILABLE if value.value is None else status.OK,
            "reason": value.reason,
        }


def _no_metrics(base: Row, failure: Failure) -> Row:
    return base | {"metric": ANY, "status": failure.status, "reason": failure.reason}


def profile_variant(
    variant: Variant, build: Path | None, check: Path | None, report: Path, settings: Mapping[str, Any]
) -> list[Row]:
    """Profile `variant` and keep ncu's report in `report`; returns the rows of its table.

    Args:
        variant: from the catalogue.
        build: the record of compile, with the cubin beside it; None for a baseline.
        check: the record of check on cuda; None for a baseline.
        report: where the report goes; a file that is there goes away first.
        settings: preset, seed, headline_shape, profile and count of the configuration.

    Raises:
        GemmlabError: a record is missing.
    """
    report.unlink(missing_ok=True)
    base: Row = {"variant": variant.name, "digest": inputs_digest("profile", variant, settings)}
    cubin = None
    if variant.compiled:
        if build is None or check is None:
            raise GemmlabError(f"variant {variant.name}: a {variant.kind} needs --build and --check.")
        cubin = build.with_suffix(".cubin")
        built = read_json(build)
        base["cubin_sha256"] = built["cubin_sha256"]
        refused = refusal(variant, built, read_json(check), cubin)
        if refused:
            return [_no_metrics(base, refused)]
    elif variant.kind != "baseline":
        reason = f"a {variant.kind} has no kernel of its own: see the profiles of its candidates"
        return [_no_metrics(base, Failure(status.SKIPPED, reason))]
    program = toolchain.find_ncu()
    if program is None:
        return [_no_metrics(base, _no_gpu() or NO_NCU)]
    base |= {"cache_control": ncu.CACHE_CONTROL, "ncu_version": ncu.version(program)}
    plan = plan_shapes(variant, settings)
    rows = [
        _no_metrics(base | dict(zip(("m", "n", "k"), shape, strict=True)), Failure(status.SKIPPED, reason))
        for shape in plan.shapes
        if (reason := _unsupported(variant, shape))
    ]
    shapes = [shape for shape in plan.shapes if not _unsupported(variant, shape)]
    if not shapes:
        return rows
    metrics = plan.metrics if variant.compiled else (*plan.metrics, STREAM)
    recorded = record(program, variant, shapes, metrics, cubin, settings)
    if isinstance(recorded, Failure):
        # Asked only now: initialising the driver takes a fifth of a second.
        return [*rows, _no_metrics(base, _no_gpu() or recorded)]
    if recorded.report:
        write_bytes(report, recorded.report)
    return [*rows, *rows_of(recorded, plan, variant, base)]


def _no_gpu() -> Failure | None:
    if driver.device_count() == 0:
        return Failure(status.UNAVAILABLE, "the CUDA driver shows no GPU; `gemmlab doctor` says why")
    return None


def _unsupported(variant: Variant, shape: Shape) -> str | None:
    return variant.unsupported(Problem.packed(*shape, transpose_b=variant.transpose_b))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument("--variant")
    parser.add_argument("--build", type=Path, help="the record of compile; the .cubin lies beside it")
    parser.add_argument("--check", type=Path, help="the record of check on cuda")
    parser.add_argument("--output", type=Path, help="the table to write")
    parser.add_argument("--report", type=Path, help="where ncu's report is kept (.ncu-rep)")
    parser.add_argument(
        "--settings",
        type=json.loads,
        help="JSON: preset, seed, headline_shape, profile and count of the configuration",
    )
    parser.add_argument(
        "--list-metrics", action="store_true", help="say what each metric means and what nvprof called it"
    )


def run(options: argparse.Namespace) -> int:
    """Profile a variant and write its table; the exit status is 0 whatever the table says."""
    if options.list_metrics:
        print(metric_table())
        return 0
    lacking = [name for name in ("variant", "output", "report", "settings") if getattr(options, name) is None]
    if lacking:
        raise GemmlabError(
            f"lacks {', '.join(f'--{name}' for name in lacking)} (or give --list-metrics alone)."
        )
    variant = load_catalogue().get(options.variant)
    if variant is None:
        raise GemmlabError(f"variant {options.variant}: not in config/variants.")
    rows = profile_variant(variant, options.build, options.check, options.report, options.settings)
    write_table(options.output, rows, "profile")
    words = dict.fromkeys(row["status"] for row in rows)
    lines = [f"{variant.name}: {len(rows)} rows, {', '.join(words)}"]
    lines += dict.fromkeys(
        f"  {row['metric']}: {row['reason']}" for row in rows if row["status"] != status.OK
    )
    print("\n".join(lines))
    return 0

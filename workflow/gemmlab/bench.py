"""Stage bench: one variant timed against its baseline, in a process of its own for every slice of shapes."""

from __future__ import annotations

import argparse
import csv
import dataclasses
import io
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gemmlab import status
from gemmlab.catalogue import Variant, load_catalogue
from gemmlab.errors import GemmlabError
from gemmlab.files import read_json, sha256_file, sha256_of, write_json, write_text
from gemmlab.schema import write_table
from gemmlab.sources import inputs_digest
from gemmlab.timing.session import SAMPLE_COLUMNS, Result, Row, measure_variant
from gemmlab.timing.settings import Settings, Shape
from gemmlab.worker import MISTAKE, run_forked


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument("--variant", required=True, help="a kernel or a baseline of config/variants")
    parser.add_argument("--build", type=Path, help="the record of compile; the .cubin lies beside it")
    parser.add_argument("--check", type=Path, help="the record of the check on cuda")
    parser.add_argument("--output", required=True, type=Path, help="rows of timings.csv")
    parser.add_argument("--samples", required=True, type=Path, help="every sample, as CSV")
    parser.add_argument(
        "--settings", required=True, help="JSON: preset, seed, headline_shape and bench of the configuration"
    )


def run(options: argparse.Namespace) -> int:
    """Time a variant and write its tables; the exit status is 0 whatever they say.

    Raises:
        GemmlabError: there is no such variant, or the settings or records are unusable.
    """
    catalogue = load_catalogue()
    variant = _timed_variant(catalogue, options)
    settings = Settings.parse(options.settings)
    baseline = _baseline(catalogue, variant)
    digest = inputs_digest(
        "bench", variant, [options.settings, repr(baseline.entry_text) if baseline else None]
    )
    common = {
        "variant": variant.name,
        "arithmetic": variant.arithmetic,
        "preset": settings.preset,
        "digest": digest,
        "cubin_sha256": None,
    }
    obstacle = _obstacle(variant, options)
    if obstacle:
        state, reason = obstacle
        _write(options, [common | {"status": state, "reason": reason}], [])
        return 0
    if variant.compiled:
        common["cubin_sha256"] = sha256_file(_cubin(options))
    name = f"{variant.name}.{sha256_of([digest, str(common['cubin_sha256'])])[:16]}"
    result = _measure_slices(variant, baseline, settings, _cubin(options), options.output.parent / f".{name}")
    _write(options, [common | row for row in result.rows], result.samples)
    return 0


def _timed_variant(catalogue: Mapping[str, Variant], options: argparse.Namespace) -> Variant:
    variant = catalogue.get(options.variant)
    if variant is None:
        raise GemmlabError(
            f"--variant {options.variant}: no such variant; the catalogue is config/variants/*.yaml."
        )
    if variant.kind not in ("kernel", "baseline"):
        raise GemmlabError(
            f"--variant {variant.name}: is a {variant.kind}; bench times kernels and baselines alone."
        )
    if variant.compiled and (options.build is None or options.check is None):
        raise GemmlabError(f"--variant {variant.name}: is a kernel, so bench needs --build and --check.")
    return variant


def _baseline(catalogue: Mapping[str, Variant], variant: Variant) -> Variant | None:
    if variant.baseline is None:
        return None
    baseline = catalogue[variant.baseline]
    if baseline.input_type != variant.input_type:
        raise GemmlabError(
            f"{variant.origin}, variant {variant.name}: takes {variant.input_type}, but its baseline {baseline.name} "
            f"takes {baseline.input_type}. Name a baseline that takes the same inputs."
        )
    return baseline


def _cubin(options: argparse.Namespace) -> Path | None:
    return options.build.with_suffix(".cubin") if options.build else None


def _obstacle(variant: Variant, options: argparse.Namespace) -> tuple[str, str] | None:
    """Status and reason why the variant mustn't be timed: only what was checked with this very cubin is."""
    if not variant.compiled:
        return None
    build, check = read_json(options.build), read_json(options.check)
    if build["status"] != status.OK:
        failed = build["status"] == status.FAILED
        return status.SKIPPED, "compile failed" if failed else build["reason"]
    if check["status"] in (status.UNAVAILABLE, status.SKIPPED):
        return check["status"], f"check: {check['reason']}"
    if check["status"] != status.OK:
        return status.SKIPPED, f"check failed: {check['reason']}"
    present = sha256_file(_cubin(options))
    if check.get("cubin_sha256") != present:
        checked = str(check.get("cubin_sha256"))[:12]
        return status.SKIPPED, f"the check was of another cubin ({checked}, this one is {present[:12]})"
    return None


def _measure_slices(
    variant: Variant, baseline: Variant | None, settings: Settings, cubin: Path | None, parts: Path
) -> Result:
    """The results of all slices, each measured by a worker or taken from a run that was interrupted after it.

    `parts` is how the paths of the slices' results begin.
    """
    rows: list[Row] = []
    samples: list[list[Any]] = []
    for number, shapes in enumerate(settings.slices(variant)):
        part = parts.with_name(f"{parts.name}.{number}.json")
        if not part.is_file():
            failure = _measure_slice(variant, baseline, shapes, settings, cubin, part)
            if failure:
                rows += [_shape_row(shape) | {"status": status.FAILED, "reason": failure} for shape in shapes]
                continue
        result = read_json(part)
        rows += result["rows"]
        samples += result["samples"]
    # Parts of older inputs go as well.
    for part in parts.parent.glob(f".{variant.name}.*.json"):
        part.unlink(missing_ok=True)
    return Result(rows, samples)


def _measure_slice(
    variant: Variant,
    baseline: Variant | None,
    shapes: Sequence[Shape],
    settings: Settings,
    cubin: Path | None,
    part: Path,
) -> str | None:
    """Let a worker measure `shapes` into the file `part`; the reason why it couldn't, or None."""

    def measure() -> None:
        result = measure_variant(variant, baseline, shapes, settings, cubin)
        write_json(part, dataclasses.asdict(result))

    worker = run_forked(measure, settings.time_limit_s)
    if worker.returncode == MISTAKE and not worker.timed_out:
        raise GemmlabError(worker.stderr_tail.strip())
    sys.stderr.write(worker.stderr_tail)
    if worker.death:
        return f"timing: {worker.death}"
    return None if part.is_file() else "timing: the process left no result"


def _shape_row(shape: Shape) -> Row:
    return dict(zip("mnk", shape, strict=True))


def _write(options: argparse.Namespace, rows: list[Row], samples: list[list[Any]]) -> None:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(SAMPLE_COLUMNS)
    writer.writerows(samples)
    write_text(options.samples, text.getvalue())
    write_table(options.output, rows, "timings")
    for row in rows:
        print(_line(row))


def _line(row: Row) -> str:
    """A row for people: what was timed and how fast, or why not."""
    shape = " x ".join(str(row[name]) for name in "mnk") if row.get("m") else "all shapes"
    text = f"{row['variant']} {shape} {row.get('cache') or ''}".rstrip()
    if row["status"] != status.OK:
        return f"{text}: {row['status']}, {row['reason']}"
    ratio = f", {row['ratio']:.3f} x {row['baseline']}" if row.get("ratio") else ""
    flagged = f" [{row['flags']}]" if row.get("flags") else ""
    return f"{text}: {row['time_ms_median']:.4g} ms, {row['tflops']:.4g} TFLOP/s{ratio}{flagged}"

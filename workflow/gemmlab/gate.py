"""Stage gate: the exit status of a run. Stages write what they saw; here a bad result fails."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from gemmlab import status
from gemmlab.catalogue import Variant, load_catalogue
from gemmlab.errors import GemmlabError
from gemmlab.files import write_text
from gemmlab.report import significant
from gemmlab.schema import read_table
from gemmlab.tables import (
    EXECUTORS,
    TABLES,
    BadResult,
    Row,
    VariantRecords,
    bad_results,
    broken_rows,
    check_rows,
    failed_stages,
    nothing_timed,
    passed,
    ranked_row,
    read_variant,
    resources,
    shape_text,
    timing_rows,
)


def variant_gate(results: Path, variant: Variant, asked: str | None = None) -> tuple[str, list[BadResult]]:
    """What a variant's own files say, as text for people, and what is bad about it.

    Args:
        results: the run, results/<device>.
        variant: of the catalogue.
        asked: the configuration's `device`; one that was named must have been measured.

    Raises:
        GemmlabError: nothing was run for the variant.
    """
    entry = read_variant(results, variant)
    if entry.build is None if variant.compiled else not entry.bench:
        raise GemmlabError(
            f"{results}: no record of {variant.name}. `snakemake --cores 1 {variant.name}` makes one."
        )
    executors = [executor for executor in EXECUTORS if executor in entry.checks]
    checks = check_rows([entry], executors)
    timings = timing_rows([entry], checks)
    broken = broken_rows([entry], executors)
    bad = [BadResult(variant.name, stage, reason) for stage, reason in failed_stages(entry, checks, timings)]
    if entry.broken:
        # The records of a broken kernel say failed where it was caught, which is what it is for.
        bad = [
            BadResult(variant.name, f"broken kernel on {row['executor']}", row["reason"])
            for row in broken
            if row["status"] == status.FAILED
        ]
    bad += nothing_timed(asked, timings)
    lines = [f"{variant.name}: {variant.idea}", *_compile_lines(entry)]
    lines += [_line(f"caught, {row['executor']}", row, _caught_text(row)) for row in broken]
    lines += [_line(f"check, {row['executor']}", row, _check_text(row)) for row in checks]
    lines += _count_lines(entry)
    lines += _timing_lines(timings)
    lines += _profile_lines(entry)
    lines += [_line("probe", entry.probe, "")] if entry.probe else []
    lines.append(f"{results}/tables may be older than this: `snakemake --cores all` brings them up to date.")
    return "\n".join(lines), bad


def all_gate(results: Path, asked: str | None = None) -> list[BadResult]:
    """Everything that is bad in a run's tables; `asked` as for `variant_gate`.

    Raises:
        GemmlabError: a table is missing.
    """
    return bad_results({name: read_table(results / "tables" / f"{name}.csv", name) for name in TABLES}, asked)


def never_checked(results: Path) -> list[str]:
    """Kernels that no executor of this run could check; they are neither good nor bad, which is worth saying."""
    statuses = read_table(results / "tables" / "checks.csv", "checks").groupby("variant")["status"]
    return [str(name) for name, values in statuses if set(values) == {status.UNAVAILABLE}]


def _line(stage: str, row: Row, text: str) -> str:
    parts = [part for part in (text, row.get("reason")) if part]
    return f"  {stage:<16} {row['status']:<11} {'; '.join(parts)}".rstrip()


def _compile_lines(entry: VariantRecords) -> list[str]:
    if entry.build is None:
        return []
    used = resources(entry.build)
    text = ""
    if used:
        text = f"{entry.build.get('architecture')}, {used['registers']} registers, {used['spill_bytes'] or 0} B spilled"
        text += f", {used['shared_bytes'] or 0} B shared"
        if used["occupancy"] is not None:
            text += f", occupancy {100 * used['occupancy']:.0f} %"
        if used["occupancy_limit"]:
            text += f" (limited by {used['occupancy_limit']})"
    return [_line("compile", entry.build, text)]


def _check_text(row: Row) -> str:
    if row.get("exact_passed") is None:
        return ""
    text = f"{passed(row)} of {row['shapes']} shapes"
    if row.get("worst_fraction_of_bound") is not None:
        text += f", largest error {significant(row['worst_fraction_of_bound'], 3)} of its bound"
    return text


def _caught_text(row: Row) -> str:
    if not row.get("caught_by"):
        return ""
    return f"by {row['caught_by'].replace(' ', ', ').replace('_', ' ')}; {row['finding']}"


def _count_lines(entry: VariantRecords) -> list[str]:
    if entry.count is None:
        return []
    shapes = ", ".join(
        shape_text((shape["m"], shape["n"], shape["k"])) for shape in entry.count.get("shapes", [])
    )
    return [_line("count", entry.count, shapes)]


def _timing_lines(timings: Sequence[Row]) -> list[str]:
    lines = []
    for row in timings:
        text = ""
        if row.get("m") is not None:
            text = f"{shape_text((row['m'], row['n'], row['k']))} {row.get('cache') or ''}".rstrip()
        if row.get("time_ms_median") is not None:
            text += f": {significant(row['time_ms_median'], 4)} ms, {significant(row['tflops'], 3)} TFLOP/s"
            if row.get("ratio") is not None:
                text += f", {100 * row['ratio']:.1f} % of {row.get('baseline') or 'its baseline'}"
            if not ranked_row(row):
                text += ", not ranked"
        if row.get("flags"):
            text += f" [{row['flags']}]"
        lines.append(_line("bench", row, text))
    return lines


def _profile_lines(entry: VariantRecords) -> list[str]:
    if not entry.profile:
        return []
    known = sum(row["status"] == status.OK for row in entry.profile)
    failed = [row for row in entry.profile if row["status"] == status.FAILED]
    if known and not failed:
        return [_line("profile", {"status": status.OK}, f"{known} metrics")]
    return [_line("profile", (failed or list(entry.profile))[0], "")]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument("--results", required=True, type=Path, help="the run: results/<device>")
    parser.add_argument(
        "--device", help="the configuration's device: a GPU named here must have been measured"
    )
    parser.add_argument("--variant", help="judge this variant by its own files; default: all, by the tables")
    parser.add_argument("--output", type=Path, help="a file that is written only if nothing is bad")


def run(options: argparse.Namespace) -> int:
    """Print the verdict; 1 with the reasons if anything is bad, and then no `--output` is left behind."""
    if options.variant:
        variant = load_catalogue().get(options.variant)
        if variant is None:
            raise GemmlabError(f"--variant {options.variant}: not in the catalogue (config/variants).")
        text, bad = variant_gate(options.results, variant, options.device)
        print(text)
    else:
        bad = all_gate(options.results, options.device)
        text = f"{options.results}: nothing is bad"
        if unchecked := never_checked(options.results):
            text += f"; never checked, since no executor here can run them: {', '.join(unchecked)}"
        print(text if not bad else f"{options.results}: {len(bad)} bad")
    sys.stdout.flush()
    for result in bad:
        print(f"gemmlab gate: {result}", file=sys.stderr)
    if bad:
        if options.output and options.output.is_file():
            options.output.unlink()
        return 1
    if options.output:
        write_text(options.output, text + "\n")
    return 0

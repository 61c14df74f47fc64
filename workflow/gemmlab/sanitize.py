"""Stage sanitize: compute-sanitizer's four tools on one variant at a small odd shape, side by side.

For a kernel any error fails the stage. For a broken kernel errors are what we look for: `ok` says that the tools ran,
and how many errors each found is data.
"""

from __future__ import annotations

import argparse
import json
import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gemmlab import driver, launch_once, status, toolchain
from gemmlab.catalogue import Variant, load_catalogue
from gemmlab.errors import GemmlabError
from gemmlab.files import read_json, sha256_file, write_json
from gemmlab.problem import Problem
from gemmlab.process import run_process
from gemmlab.schema import validate
from gemmlab.sources import inputs_digest
from gemmlab.worker import WorkerResult, run_workers

TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
# What compute-sanitizer returns when a target that ended well had errors.
ERROR_STATUS = 86
TIME_LIMIT_S = 120.0
_PRINT_LIMIT = 10
_CONNECT_TIMEOUT_S = 60
_PORTS = 64
_HELP_TIMEOUT_S = 20
# Newer than 2025.3: without it initcheck looks at global memory alone.
_ADDRESS_SPACE = "--initcheck-address-space"
# memcheck, racecheck and synccheck also see the reading of C; initcheck sees whether beta = 0 reads it.
_BETA = 0.5

_SUMMARY = re.compile(r"^=+ [A-Z]+ SUMMARY: (\d+) errors?\s*$", re.MULTILINE)
_RACE_SUMMARY = re.compile(
    r"^=+ RACECHECK SUMMARY: \d+ hazards? displayed \((\d+) errors?, (\d+) warnings?\)", re.MULTILINE
)
_UNSUPPORTED = re.compile(r"device not supported|no supported (?:gpu|device)", re.IGNORECASE)
_LINE = re.compile(r"^={8,}( *)(.*?)\s*$")
_NOT_A_FINDING = ("COMPUTE-SANITIZER", "Target application", "Program hit", "Process ")
_DETAILS = 4
# Offsets in the machine code say nothing beside a line of the source, and addresses differ in every run.
_OFFSET = re.compile(r"\+0x[0-9a-f]+(?= in )")
_ADDRESS = re.compile(r"(?: (?:at|to))? 0x[0-9a-f]+")
_HAZARDS = re.compile(r" \[[\d,]+ hazards?\]")


@dataclass(frozen=True)
class Report:
    """What a tool printed: its count of errors (None without a summary) and the first in words."""

    errors: int | None
    first: str | None


def parse_report(text: str) -> Report:
    """Read the output of any of the four tools.

    A race that racecheck calls a warning counts as an error: it means that a kernel relies on the lanes of a warp
    moving in step, which they need not since compute capability 7.0.
    """
    summary = _RACE_SUMMARY.search(text) or _SUMMARY.search(text)
    return Report(sum(map(int, summary.groups())) if summary else None, _first_finding(text))


def _first_finding(text: str) -> str | None:
    """The first finding: its headline and the indented lines below that say where."""
    headline = None
    details: list[str] = []
    for line in text.splitlines():
        found = _LINE.match(line)
        if not found:
            continue
        indent, content = len(found[1]), found[2]
        if headline is None:
            first = indent <= 1 and content and "SUMMARY:" not in content
            if first and not content.startswith(_NOT_A_FINDING):
                headline = _plain(re.sub(r"^(Error|Warning|ERROR|WARN): ", "", content))
        elif not content or indent <= 1 or "backtrace" in content:
            break
        elif content.startswith("Address "):
            continue
        elif (detail := _plain(content)) not in details:
            # Of a race each machine instruction is told, of which a line of the source has many.
            details.append(detail)
    if headline is None:
        return None
    return ", ".join([headline, *details[:_DETAILS]]).replace(", and ", " and ")


def _plain(content: str) -> str:
    return _HAZARDS.sub("", _ADDRESS.sub("", _OFFSET.sub("", content)))


def problem_for(variant: Variant, beta: float = 0.0) -> Problem:
    """A small problem with everything in it that goes wrong at edges: over one tile in m and n, several in k, odd.

    Sides are rounded up as little as the variant's constraints need.

    Raises:
        GemmlabError: no such problem meets the constraints.
    """
    bm, bn, bk = variant.tile
    for multiple in (1, 2, 4, 8, 16, 32, 64, 128):
        m, n, k = (-(-side // multiple) * multiple for side in (bm + 1, bn + 3, 3 * bk + 1))
        problem = Problem.packed(m, n, k, beta=beta, transpose_b=variant.transpose_b)
        if variant.unsupported(problem) is None:
            return problem
    raise GemmlabError(
        f"variant {variant.name}: no small problem meets {', '.join(variant.constraints)}; "
        "the sanitizer tries sides that are multiples of up to 128."
    )


def run_tools(
    program: Path, targets: Mapping[str, Sequence[str]], time_limit_s: float = TIME_LIMIT_S
) -> dict[str, dict[str, Any]]:
    """Run each tool over its target, all side by side.

    Args:
        program: compute-sanitizer.
        targets: by tool, the command that it looks into.
        time_limit_s: limit in seconds.

    Returns:
        By tool its errors (None if they aren't known, with a reason) and the first in words.
    """
    shared = _ADDRESS_SPACE in run_process([program, "--help"], timeout_s=_HELP_TIMEOUT_S).output
    with tempfile.TemporaryDirectory(prefix="gemmlab-sanitize-") as folder:
        logs = {tool: Path(folder) / tool for tool in targets}
        commands = [
            [*tool_command(program, tool, logs[tool], shared), *target] for tool, target in targets.items()
        ]
        results = run_workers(commands, time_limit_s)
        return {tool: _tool_result(result, logs[tool]) for tool, result in zip(targets, results, strict=True)}


def _tool_result(result: WorkerResult, log: Path) -> dict[str, Any]:
    said = "\n".join([log.read_text(errors="replace") if log.is_file() else "", result.stdout_tail])
    report = parse_report(said)
    reason = None
    if result.timed_out:
        reason = result.death
    elif _UNSUPPORTED.search(said):
        reason = f"compute-sanitizer does not support this device or machine: {report.first or 'no message'}"
    elif report.errors is None:
        reason = f"compute-sanitizer printed no summary; {result.death or 'the process ended well'}"
    elif report.errors == 0 and result.returncode != 0:
        # An error of the target's own, for example a fault that this tool doesn't look for, ends it too early to tell.
        reason = result.death
    if reason:
        return {"errors": None, "first": None, "reason": reason}
    return {"errors": report.errors, "first": report.first if report.errors else None, "reason": None}


def tool_command(program: Path, tool: str, log: Path, shared: bool) -> list[str]:
    """compute-sanitizer and its options for `tool`; the target comes after.

    `shared` says that this release's initcheck can look at shared memory too.
    """
    command = [str(program), "--tool", tool, "--error-exitcode", str(ERROR_STATUS), "--log-file", str(log)]
    command += ["--print-limit", str(_PRINT_LIMIT), "--launch-timeout", str(_CONNECT_TIMEOUT_S)]
    command += ["--check-exit-code", "no", "--show-backtrace", "device"]
    # Each instance takes a port of its own, by default among ten.
    command += ["--max-connections", str(_PORTS)]
    if tool == "memcheck":
        # CuPy asks the driver for what it may not have; only what kernels do is looked for.
        command += ["--report-api-errors", "no"]
    if tool == "initcheck" and shared:
        command += [_ADDRESS_SPACE, "all"]
    return command


def judge(kind: str, tools: Mapping[str, Mapping[str, Any]]) -> tuple[str, str | None]:
    """Status and reason of a record from what its tools found."""
    found = [
        f"{name}: {tool['errors']} errors, first: {tool['first']}"
        for name, tool in tools.items()
        if tool["errors"]
    ]
    unknown = [f"{name}: {tool['reason']}" for name, tool in tools.items() if tool["errors"] is None]
    if kind == "broken":
        # One tool that ran is a result; what the others couldn't say stands beside it.
        return (status.UNAVAILABLE if len(unknown) == len(tools) else status.OK), "; ".join(unknown) or None
    if found:
        return status.FAILED, "; ".join(found)
    return (status.UNAVAILABLE if unknown else status.OK), "; ".join(unknown) or None


def sanitize_variant(variant: Variant, build: Path, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The record of a compiled variant.

    Args:
        variant: from the catalogue.
        build: the record of compile; the cubin lies beside it.
        settings: preset and seed of the configuration.
    """
    built = read_json(build)
    cubin = build.with_suffix(".cubin")
    record: dict[str, Any] = {
        "variant": variant.name,
        "status": status.OK,
        "reason": None,
        "cubin_sha256": built["cubin_sha256"],
        "problem": None,
        "tools": {},
        "digest": inputs_digest("sanitize", variant, settings),
    }
    if built["status"] != status.OK:
        reason = "compile failed" if built["status"] == status.FAILED else built["reason"]
        return record | {"status": status.SKIPPED, "reason": reason}
    if sha256_file(cubin) != built["cubin_sha256"]:
        reason = f"{cubin.name} is not the file that its record describes; compile again"
        return record | {"status": status.SKIPPED, "reason": reason}
    program = toolchain.find_compute_sanitizer()
    if driver.device_count() == 0:
        reason = "the CUDA driver shows no GPU; `gemmlab doctor` says why"
        return record | {"status": status.UNAVAILABLE, "reason": reason}
    if program is None:
        reason = "compute-sanitizer is not installed: it comes with the CUDA toolkit, or put yours on PATH"
        return record | {"status": status.UNAVAILABLE, "reason": reason}
    record["problem"] = str(problem_for(variant, _BETA))
    targets = {}
    for tool in TOOLS:
        beta = 0.0 if tool == "initcheck" else _BETA
        problem = problem_for(variant, beta)
        targets[tool] = launch_once.command(
            variant.name,
            [(problem.m, problem.n, problem.k)],
            cubin=cubin,
            warmup=0,
            seed=settings["seed"],
            beta=beta,
            share=True,
        )
    record["tools"] = run_tools(program, targets)
    record["status"], record["reason"] = judge(variant.kind, record["tools"])
    return record


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument("--variant", required=True)
    parser.add_argument(
        "--build", required=True, type=Path, help="the record of compile; the .cubin lies beside it"
    )
    parser.add_argument("--output", required=True, type=Path)
    parser.add_argument(
        "--settings", required=True, type=json.loads, help="JSON: preset and seed of the configuration"
    )


def run(options: argparse.Namespace) -> int:
    """Sanitize a variant and write its record; the exit status is 0 whatever the record says."""
    variant = load_catalogue().get(options.variant)
    if variant is None or not variant.compiled:
        raise GemmlabError(f"variant {options.variant}: no kernel of this name in config/variants.")
    record = sanitize_variant(variant, options.build, options.settings)
    validate(record, "sanitize", str(options.output))
    write_json(options.output, record)
    counts = ", ".join(f"{name} {tool['errors']}" for name, tool in record["tools"].items())
    print(f"{variant.name}: {record['status']}{f', errors: {counts}' if counts else ''}")
    if record["reason"]:
        print(f"  {record['reason']}")
    return 0

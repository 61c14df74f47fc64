"""Stage check: one variant over hundreds of random problems against the float64 reference, on either executor."""

from __future__ import annotations

import argparse
import dataclasses
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from gemmlab import oracle, status
from gemmlab.catalogue import Variant, load_catalogue
from gemmlab.errors import GemmlabError
from gemmlab.executors import EXECUTORS, open_executor
from gemmlab.executors.base import Executor, Finding, failure
from gemmlab.files import read_json, sha256_of, write_json
from gemmlab.oracle import Case
from gemmlab.problem import Problem
from gemmlab.schema import validate
from gemmlab.shapes import draw_problems, large_problems
from gemmlab.sources import inputs_digest
from gemmlab.worker import run_forked

ORDERS = (1, 2, 3)
NONFINITE_SHAPES = 10
# A variant that is wrong this often is wrong; running the rest would only take time.
FAILURES_ENOUGH = 20
KEPT_FAILURES = 10
KEPT_FINDINGS = 20
_DIGEST_DIGITS = 12


@dataclasses.dataclass
class Tally:
    """What the check has seen so far."""

    shapes_run: int = 0
    exact_passed: int = 0
    rounded_passed: int = 0
    repeats: int = 0
    repeats_identical: int = 0
    worst_fraction: float | None = None
    worst_problem: str | None = None
    output_digests: list[str | None] = dataclasses.field(default_factory=list)
    failures: list[dict[str, str]] = dataclasses.field(default_factory=list)
    findings: dict[tuple, dict[str, Any]] = dataclasses.field(default_factory=dict)

    def fail(self, test: str, problem: Problem, message: str) -> None:
        """Note a problem that came out wrong."""
        self.failures.append({"test": test, "problem": str(problem), "message": message})

    def note(self, findings: tuple[Finding, ...], problem: Problem) -> None:
        """Note findings, one entry for each kind and line, with the first problem that showed it."""
        for finding in findings:
            key = (finding.kind, finding.file, finding.line)
            if key in self.findings:
                self.findings[key]["count"] += finding.count
            else:
                fields = {
                    name: list(value) if isinstance(value, tuple) else value
                    for name, value in dataclasses.asdict(finding).items()
                }
                self.findings[key] = fields | {"problem": str(problem)}

    def worst(self, fraction: float | None, problem: Problem) -> None:
        """Keep the largest error over its bound."""
        if fraction is not None and (self.worst_fraction is None or fraction > self.worst_fraction):
            self.worst_fraction, self.worst_problem = fraction, str(problem)

    @property
    def enough(self) -> bool:
        """Whether going on would only repeat what is known."""
        return len(self.failures) >= FAILURES_ENOUGH


def check_variant(
    variant: Variant, executor: Executor, *, shapes: int, repeated_shapes: int, seed: int
) -> Tally:
    """Run `variant` on `executor` over `shapes` problems, each once with exact and once with rounded data.

    `repeated_shapes` of them run again in three other orders of blocks and warps and must give the same bits unless
    the entry says otherwise; ten get a NaN and infinities; a GPU gets a few large ones besides.

    Raises:
        Unavailable, NotLaunchable, DeviceFault: see executors.base.
    """
    problems = draw_problems(variant, shapes, seed)
    repeated = set(
        np.linspace(0, len(problems) - 1, min(repeated_shapes, len(problems))).astype(int).tolist()
    )
    finite_alpha = [index for index, problem in enumerate(problems) if problem.alpha]
    nonfinite = {finite_alpha[i] for i in np.linspace(0, len(finite_alpha) - 1, NONFINITE_SHAPES).astype(int)}
    tally = Tally()
    progress = tqdm(problems, desc=f"check {variant.name} on {executor.name}", unit="shape", mininterval=1)
    for index, problem in enumerate(progress):
        tally.shapes_run += 1
        exact = oracle.exact_case(variant, problem, seed)
        output = _run(variant, executor, exact, tally, "exact")
        if output is not None:
            tally.exact_passed += 1
            if index in repeated:
                _repeat(variant, executor, exact, output, tally)
        rounded = oracle.rounded_case(variant, problem, seed)
        # Races don't depend on the data: looking for them once a problem is enough.
        rounded_output = _run(variant, executor, rounded, tally, "rounded", find=False)
        if rounded_output is not None:
            tally.rounded_passed += 1
        if same_bits_everywhere(variant):
            tally.output_digests.append(_digest(output, rounded_output))
        if index in nonfinite:
            _run(
                variant,
                executor,
                oracle.nonfinite_case(variant, problem, seed),
                tally,
                "nonfinite",
                find=False,
            )
        if tally.enough:
            break
    if executor.name == "cuda" and not tally.enough:
        for problem in large_problems(variant, seed):
            for test, case in (("exact", oracle.exact_case), ("rounded", oracle.rounded_case)):
                _run(variant, executor, case(variant, problem, seed), tally, test)
    return tally


def same_bits_everywhere(variant: Variant) -> bool:
    """Whether GPU and emulator must agree in every bit: IEEE arithmetic in a fixed order, as tensor cores' is not."""
    return variant.arithmetic == "fp32" and variant.deterministic


def _digest(*outputs: np.ndarray | None) -> str | None:
    """Twelve digits of the SHA-256 of a problem's outputs, or None if one of them was wrong."""
    if any(output is None for output in outputs):
        return None
    return sha256_of(output.tobytes() for output in outputs)[:_DIGEST_DIGITS]


def _run(
    variant: Variant,
    executor: Executor,
    case: Case,
    tally: Tally,
    test: str,
    *,
    find: bool = True,
    order: int = 0,
) -> np.ndarray | None:
    """The output buffer of one run, or None if anything about it was wrong (which the tally then knows)."""
    buffers = oracle.fresh_buffers(variant, case)
    execution = executor.run(variant.plan(case.problem), buffers, order=order, find=find)
    tally.note(execution.findings, case.problem)
    verdict = oracle.compare(case, buffers[case.output], variant)
    if test == "rounded":
        tally.worst(verdict.fraction, case.problem)
    faults = [(test, verdict.message)] if verdict.message else []
    faults += [
        ("input", f"matrix {name.upper()} was changed, but it is an input")
        for name, before in case.buffers.items()
        if name != case.output and not oracle.unchanged(before, buffers[name])
    ]
    for kind, message in faults:
        tally.fail(kind, case.problem, message)
    return None if faults or execution.findings else buffers[case.output]


def _repeat(variant: Variant, executor: Executor, case: Case, output: np.ndarray, tally: Tally) -> None:
    """Three more runs with rounded data, since exact data hide a changed order of summation."""
    rounded = oracle.rounded_case(variant, case.problem, seed=1)
    first: np.ndarray | None = None
    tally.repeats += 1
    for order in ORDERS:
        again = _run(variant, executor, rounded, tally, "repeat", order=order)
        if again is None:
            return
        if first is None:
            first = again
        elif variant.deterministic and not oracle.unchanged(first, again):
            different = int((first.view(np.uint8) != again.view(np.uint8)).sum())
            tally.fail(
                "repeat",
                case.problem,
                f"{different} bytes differ between two runs whose blocks and warps ran in another order",
            )
            return
    tally.repeats_identical += 1


def _record(variant: Variant, options: argparse.Namespace) -> dict[str, Any]:
    build = read_json(options.build)
    if build["variant"] != variant.name:
        raise GemmlabError(f"{options.build}: built for {build['variant']}, not for {variant.name}.")
    settings = {"shapes": options.shapes, "repeated_shapes": options.repeated_shapes, "seed": options.seed}
    record: dict[str, Any] = {
        "variant": variant.name,
        "executor": options.executor,
        "status": status.OK,
        "reason": None,
        "ptx_sha256": build.get("ptx_sha256"),
        "cubin_sha256": build.get("cubin_sha256"),
        "seed": options.seed,
        "shapes": options.shapes,
        "digest": inputs_digest("check", variant, settings, emulator=options.executor == "emulator"),
    }
    if build["status"] != status.OK:
        reason = "compile failed" if build["status"] == status.FAILED else build.get("reason")
        return record | {"status": status.SKIPPED, "reason": reason}
    if options.executor == "cuda":
        return record | _in_worker(variant, options, settings)
    return record | _checked(variant, options, settings)


def _checked(variant: Variant, options: argparse.Namespace, settings: dict[str, int]) -> dict[str, Any]:
    """What the check itself says, as fields of the record."""
    try:
        executor = open_executor(
            options.executor, options.build.with_suffix(".ptx"), options.build.with_suffix(".cubin")
        )
        tally = check_variant(variant, executor, **settings)
    except GemmlabError as error:
        # A misspelt entry or constraints that nothing meets as well: this variant's own fault, so the others go on.
        return failure(error)
    return _outcome(tally, variant)


def _in_worker(variant: Variant, options: argparse.Namespace, settings: dict[str, int]) -> dict[str, Any]:
    """`_checked` in a process of its own, since a device fault or a hang takes its process along."""
    with tempfile.TemporaryDirectory(prefix="gemmlab-check-") as folder:
        answer = Path(folder) / "answer.json"
        worker = run_forked(
            lambda: write_json(answer, _checked(variant, options, settings)), options.time_limit
        )
        if worker.death is None:
            return read_json(answer)
    return {"status": status.FAILED, "reason": f"check: {worker.death}"}


def _outcome(tally: Tally, variant: Variant) -> dict[str, Any]:
    reasons = []
    if tally.failures:
        first = tally.failures[0]
        reasons.append(f"{first['test']}, {first['problem']}: {first['message']}")
    if tally.findings:
        reasons.append(next(iter(tally.findings.values()))["message"])
    return {
        "status": status.FAILED if reasons else status.OK,
        "reason": "; ".join(reasons) or None,
        "shapes_run": tally.shapes_run,
        "exact_passed": tally.exact_passed,
        "rounded_passed": tally.rounded_passed,
        "repeats": tally.repeats,
        "repeats_identical": tally.repeats_identical if variant.deterministic else None,
        "worst_fraction_of_bound": tally.worst_fraction,
        "worst_problem": tally.worst_problem,
        "output_digests": tally.output_digests or None,
        "failures": tally.failures[:KEPT_FAILURES],
        "findings": list(tally.findings.values())[:KEPT_FINDINGS],
    }


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument("--variant", required=True)
    parser.add_argument("--executor", required=True, choices=EXECUTORS)
    parser.add_argument(
        "--build", required=True, type=Path, help="the record of compile; .ptx and .cubin lie beside it"
    )
    parser.add_argument("--output", required=True, type=Path)
    parser.add_argument("--shapes", type=int, default=300)
    parser.add_argument("--repeated-shapes", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--time-limit", type=float, default=240.0, help="seconds, on a GPU")


def run(options: argparse.Namespace) -> int:
    """Check a variant and write its record; the exit status is 0 whatever the record says."""
    variant = load_catalogue().get(options.variant)
    if variant is None or not variant.compiled:
        raise GemmlabError(f"variant {options.variant}: no kernel of this name in config/variants.")
    started = time.monotonic()
    record = _record(variant, options)
    record["seconds"] = round(time.monotonic() - started, 2)
    validate(record, "check", str(options.output))
    write_json(options.output, record)
    print(
        f"{variant.name} on {options.executor}: {record['status']}"
        + (f", {record['reason']}" if record["reason"] else "")
    )
    return 0

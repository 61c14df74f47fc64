"""Stage count: the memory-system events of one variant at fixed shapes, counted exactly by the emulator."""

from __future__ import annotations

import argparse
import hashlib
import json
from pathlib import Path
from typing import Any

from tqdm import tqdm

from gemmlab import oracle, status
from gemmlab.catalogue import Variant, load_catalogue
from gemmlab.errors import GemmlabError
from gemmlab.executors import open_executor
from gemmlab.executors.base import Executor, NotLaunchable, Unavailable
from gemmlab.files import read_json, write_json
from gemmlab.problem import Problem
from gemmlab.schema import validate
from gemmlab.sources import inputs_digest

SEED = 0


def count_variant(
    variant: Variant, executor: Executor, shapes: list[tuple[int, int, int]]
) -> list[dict[str, Any]]:
    """The counters of `variant` for each of `shapes` (alpha 1, beta 0, rows packed); unsupported ones are left out,
    as are those at which the kernel makes no progress.

    Variants with the same layout get the same inputs at a shape, so that a digest of the output tells whether two of
    them give the same bits.
    """
    counted = []
    for m, n, k in tqdm(shapes, desc=f"count {variant.name}", unit="shape", mininterval=1):
        problem = Problem.packed(m, n, k, transpose_b=variant.transpose_b)
        if variant.unsupported(problem):
            continue
        case = oracle.rounded_case(variant, problem, SEED)
        buffers = oracle.fresh_buffers(variant, case)
        execution = executor.run(variant.plan(problem), buffers, find=False, count=True)
        if any(finding.kind == "no_progress" for finding in execution.findings):
            continue  # Stopped in the middle: its counts are no kernel's.
        output = hashlib.sha256(buffers[case.output].tobytes()).hexdigest()
        counted.append(
            {"m": m, "n": n, "k": k, "counters": dict(execution.counters), "output_sha256": output}
        )
    return counted


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument("--variant", required=True)
    parser.add_argument(
        "--build", required=True, type=Path, help="the record of compile; the .ptx lies beside it"
    )
    parser.add_argument("--output", required=True, type=Path)
    parser.add_argument("--shapes", required=True, type=json.loads, help="JSON: [[m, n, k], ...]")


def run(options: argparse.Namespace) -> int:
    """Count a variant's events and write its record; the exit status is 0 whatever the record says."""
    variant = load_catalogue().get(options.variant)
    if variant is None or not variant.compiled:
        raise GemmlabError(f"variant {options.variant}: no kernel of this name in config/variants.")
    shapes = [tuple(shape) for shape in variant.count_shapes or options.shapes]
    build = read_json(options.build)
    record: dict[str, Any] = {
        "variant": variant.name,
        "status": status.OK,
        "reason": None,
        "ptx_sha256": build.get("ptx_sha256"),
        "shapes": [],
        "digest": inputs_digest("count", variant, shapes, emulator=True),
    }
    if build["status"] != status.OK:
        reason = "compile failed" if build["status"] == status.FAILED else build.get("reason")
        record |= {"status": status.SKIPPED, "reason": reason}
    else:
        try:
            executor = open_executor(
                "emulator",
                options.build.with_suffix(".ptx"),
                options.build.with_suffix(".cubin"),
                variant.ptxas_flags,
            )
            record["shapes"] = count_variant(variant, executor, shapes)
            if not record["shapes"]:
                record |= {
                    "status": status.SKIPPED,
                    "reason": "no shape counted: none meets the constraints, or the kernel makes no progress",
                }
        except (Unavailable, NotLaunchable) as error:
            record |= {"status": status.UNAVAILABLE, "reason": str(error)}
    validate(record, "count", str(options.output))
    write_json(options.output, record)
    print(f"{variant.name}: counted {len(record['shapes'])} shapes, {record['status']}")
    return 0

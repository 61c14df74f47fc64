"""Stage probe: what a probe of the catalogue measures of the GPU, such as cycles of a load or bytes a cycle."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gemmlab import oracle, status
from gemmlab.catalogue import Variant, load_catalogue
from gemmlab.errors import GemmlabError
from gemmlab.executors.base import DeviceFault, Executor, NotLaunchable, Unavailable, failure
from gemmlab.files import read_json, write_json
from gemmlab.problem import Problem
from gemmlab.schema import validate
from gemmlab.sources import inputs_digest
from gemmlab.timing.device import open_device
from gemmlab.worker import end_with_parent, run_worker

# Runs that count; one before them brings code and clocks up.
REPEATS = 5
_TIME_LIMIT_S = 120.0
# A probe has no product: its launches depend on the device alone.
_NO_PROBLEM = Problem.packed(1, 1, 1)


def run_probe(
    variant: Variant, executor: Executor, sm_count: int, repeats: int = REPEATS
) -> dict[str, list[float | None]]:
    """What `variant` measured by the names of its results: the median of `repeats` runs, element by element.

    An element that a run left unwritten is None.

    Raises:
        Unavailable, NotLaunchable, DeviceFault: see executors.base.
    """
    launches = variant.plan(_NO_PROBLEM, sm_count)
    elements = variant.workspace_elements(_NO_PROBLEM, sm_count)
    runs: dict[str, list[np.ndarray]] = {name: [] for name in variant.results}
    for _ in range(1 + repeats):
        buffers = {name: oracle.poison(count, kind) for name, (count, kind) in elements.items()}
        executor.run(launches, buffers, find=False)
        for name, measured in runs.items():
            measured.append(buffers[name].astype(np.float64))
    return {name: _medians(measured[1:]) for name, measured in runs.items()}


def _medians(runs: Sequence[np.ndarray]) -> list[float | None]:
    return [float(value) if np.isfinite(value) else None for value in np.median(runs, axis=0)]


def _measure(variant: Variant, cubin: Path) -> dict[str, Any]:
    """The fields of the record that a run on the GPU gives."""
    try:
        device = open_device(cubin, library=False)
        values = run_probe(variant, device.executor, device.limits.multiprocessors)
    except (Unavailable, NotLaunchable, DeviceFault) as error:
        return failure(error)
    unwritten = [name for name, results in values.items() if None in results]
    reason = f"left {', '.join(unwritten)} unwritten in part" if unwritten else None
    return {
        "status": status.FAILED if unwritten else status.OK,
        "reason": reason,
        "gpu": device.telemetry.name(),
        "gpu_uuid": device.uuid,
        "driver": device.telemetry.driver(),
        "multiprocessors": device.limits.multiprocessors,
        "highest_clock_mhz": device.highest_clock_mhz,
        "repeats": REPEATS,
        "values": values,
    }


def _in_worker(options: argparse.Namespace) -> dict[str, Any]:
    """Measure in a process of its own, since a device fault or a hang takes its process along."""
    options.output.unlink(missing_ok=True)
    command = [sys.executable, "-m", "gemmlab", "probe", "--inside-worker", "--variant", options.variant]
    command += ["--build", str(options.build), "--output", str(options.output)]
    result = run_worker(command, options.time_limit, None)
    if result.death or not options.output.is_file():
        return {"status": status.FAILED, "reason": f"probe: {result.death or 'the process left no result'}"}
    return read_json(options.output)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument("--variant", required=True, help="a probe of config/variants")
    parser.add_argument(
        "--build", required=True, type=Path, help="the record of compile; the .cubin lies beside it"
    )
    parser.add_argument("--output", required=True, type=Path)
    parser.add_argument("--time-limit", type=float, default=_TIME_LIMIT_S, help="seconds")
    parser.add_argument("--inside-worker", action="store_true", help=argparse.SUPPRESS)


def run(options: argparse.Namespace) -> int:
    """Run a probe and write its record; the exit status is 0 whatever the record says."""
    variant = load_catalogue().get(options.variant)
    if variant is None or variant.kind != "probe":
        raise GemmlabError(f"--variant {options.variant}: no probe of this name in config/variants.")
    build = read_json(options.build)
    record: dict[str, Any] = {
        "probe": variant.name,
        "status": status.OK,
        "reason": None,
        "cubin_sha256": build.get("cubin_sha256"),
        "digest": inputs_digest("probe", variant, REPEATS),
    }
    if build["status"] != status.OK:
        reason = "compile failed" if build["status"] == status.FAILED else build.get("reason")
        record |= {"status": status.SKIPPED, "reason": reason}
    elif options.inside_worker:
        end_with_parent()
        record |= _measure(variant, options.build.with_suffix(".cubin"))
    else:
        record |= _in_worker(options)
    validate(record, "probe", str(options.output))
    write_json(options.output, record)
    if not options.inside_worker:
        print(f"{variant.name}: {record['status']}" + (f", {record['reason']}" if record["reason"] else ""))
    return 0

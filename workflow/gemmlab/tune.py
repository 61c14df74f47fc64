"""`gemmlab tune`: sweep the 2D block tile on this GPU; every configuration's time, the best of each size, a figure."""

from __future__ import annotations

import argparse
import itertools
import os
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import yaml

from gemmlab import driver, status
from gemmlab.catalogue import Variant, load_catalogue
from gemmlab.compile import compile_variant
from gemmlab.errors import GemmlabError
from gemmlab.expression import evaluate
from gemmlab.files import read_yaml, repository_root, write_text
from gemmlab.schema import read_table, validate, write_table
from gemmlab.sources import inputs_digest
from gemmlab.toolchain import Nvcc, find_nvcc

Configuration = dict[str, int]
Row = dict[str, Any]

PROPOSED_NAME = "tuned_block_tile"
# The sweep among the articles' kernels.
_SWEEP = "S23"
SETTINGS = Path("config") / "tune.yaml"


@dataclass(frozen=True)
class Space:
    """What is swept; workflow/schemas/tune_settings.schema.json says what each field means."""

    variant: str
    parameters: Mapping[str, tuple[int, ...]]
    restrictions: tuple[str, ...]
    sizes: tuple[int, ...]
    iterations: int

    def configurations(self) -> list[Configuration]:
        """All combinations of values that fulfil every restriction, in the order in which the file lists the values.

        Raises:
            GemmlabError: a restriction can't be evaluated, or nothing fulfils them all.
        """
        names = list(self.parameters)
        every = (
            dict(zip(names, values, strict=True)) for values in itertools.product(*self.parameters.values())
        )
        legal = [one for one in every if all(evaluate(rule, one) for rule in self.restrictions)]
        if not legal:
            raise GemmlabError(f"{SETTINGS}: no combination of parameters fulfils all restrictions.")
        return legal


@dataclass(frozen=True)
class Candidate:
    """A configuration as a variant, with the record of its build (schema compile); `cubin` is None if that failed."""

    configuration: Configuration
    variant: Variant
    build: Mapping[str, Any]
    cubin: Path | None


@dataclass(frozen=True)
class Timing:
    """Times of one launch in ms, a sample each, and the launches in a sample; `fault` says why there are none."""

    times_ms: tuple[float, ...] = ()
    launches: int | None = None
    fault: str | None = None


@dataclass(frozen=True)
class Sweep:
    """A size's timings, in the order of the candidates, and the baseline's time in ms."""

    timings: Sequence[Timing]
    baseline_ms: float | None


class Tuner(Protocol):
    """What times candidates: `tune_session.KernelTunerSession` on a GPU."""

    identity: Mapping[str, Any]

    def sweep(self, candidates: Sequence[Candidate], size: int) -> Sweep:
        """Time all candidates at a square problem of edge `size`."""
        ...


def load_space(path: Path) -> Space:
    """The sweep that `path` describes.

    Raises:
        GemmlabError: the file is missing or a key is wrong.
    """
    settings = read_yaml(path)
    validate(settings, "tune_settings", str(path))
    return Space(
        variant=settings["variant"],
        parameters={name: tuple(values) for name, values in settings["parameters"].items()},
        restrictions=tuple(settings["restrictions"]),
        sizes=tuple(settings["sizes"]),
        iterations=settings["iterations"],
    )


def variant_of(base: Variant, configuration: Configuration) -> Variant:
    """`base` with the macros of `configuration`, under a name that says which."""
    name = "_".join([base.name, *(f"{macro}{value}" for macro, value in configuration.items())])
    return replace(base, name=name, macros={**base.macros, **configuration})


def build_candidates(
    base: Variant, configurations: Sequence[Configuration], architecture: str, nvcc: Nvcc, folder: Path
) -> list[Candidate]:
    """Compile every configuration, several at a time, with the cubins in `folder`."""

    def build(configuration: Configuration) -> Candidate:
        variant = variant_of(base, configuration)
        built = compile_variant(variant, architecture, nvcc)
        if built.record["status"] != status.OK:
            return Candidate(configuration, variant, built.record, None)
        cubin = folder / f"{variant.name}.cubin"
        cubin.write_bytes(built.cubin)
        return Candidate(configuration, variant, built.record, cubin)

    with ThreadPoolExecutor(max_workers=len(os.sched_getaffinity(0))) as pool:
        return list(pool.map(build, configurations))


def size_rows(base: Variant, candidates: Sequence[Candidate], size: int, sweep: Sweep) -> list[Row]:
    """The rows of one size (schema tune), the fastest marked."""
    rows = [
        _row(base, candidate, size, timing, sweep.baseline_ms)
        for candidate, timing in zip(candidates, sweep.timings, strict=True)
    ]
    fastest = best_row(rows)
    for row in rows:
        row["best"] = row is fastest
    return rows


def best_row(rows: Sequence[Row]) -> Row | None:
    """The fastest row that is ok; of equal times fewer registers win, then less shared memory, then the first."""
    timed = [row for row in rows if row["status"] == status.OK]
    if not timed:
        return None
    return min(timed, key=lambda row: (row["time_ms"], row["registers"] or 0, row["shared_bytes"] or 0))


def _row(base: Variant, candidate: Candidate, size: int, timing: Timing, baseline_ms: float | None) -> Row:
    row: Row = {"variant": base.name, "m": size, "n": size, "k": size, **candidate.configuration}
    row |= _resources(candidate.build) | {"cubin_sha256": candidate.build.get("cubin_sha256")}
    row |= {"baseline": base.baseline if baseline_ms else None, "baseline_ms": baseline_ms}
    if candidate.cubin is None:
        return row | {"status": status.FAILED, "reason": f"compile failed: {candidate.build['reason']}"}
    if timing.fault or not timing.times_ms:
        return row | {"status": status.FAILED, "reason": timing.fault or "Kernel Tuner left it out"}
    time_ms = float(np.median(timing.times_ms))
    return row | {
        "status": status.OK,
        "reason": f"spills {row['spill_bytes']} bytes" if row["spill_bytes"] else None,
        "time_ms": time_ms,
        "time_ms_least": min(timing.times_ms),
        "time_ms_most": max(timing.times_ms),
        "samples": len(timing.times_ms),
        "launches": timing.launches,
        "tflops": 2 * size**3 / (time_ms * 1e9),
        "percent_of_baseline": 100 * baseline_ms / time_ms if baseline_ms else None,
    }


def _resources(build: Mapping[str, Any]) -> Row:
    entry = next(iter(build.get("entries", {}).values()), {})
    names = ("threads", "registers", "blocks_per_sm", "occupancy", "occupancy_limit")
    spills = [entry.get("spill_store_bytes"), entry.get("spill_load_bytes")]
    shared = [entry.get("shared_static_bytes"), entry.get("shared_dynamic_bytes")]
    return {name: entry.get(name) for name in names} | {
        "spill_bytes": None if None in spills else sum(spills),
        "shared_bytes": None if None in shared else sum(shared),
    }


def proposed_entry(base: Variant, best: Row, gpu: str | None) -> str:
    """A catalogue entry (YAML) of the configuration in `best`, to be put into a file of config/variants."""
    macros = {name: best[name] for name in base.macros if name in best}
    entry = dict(base.entry_text) | {
        "idea": f"the fastest block tile of the sweep at {best['m']}: {best['BM']}x{best['BN']}x{best['BK']}, "
        f"{best['TM']}x{best['TN']} outputs per thread",
        "macros": {**base.macros, **macros},
        "compared_with": base.name,
        "articles": list(dict.fromkeys([*base.articles, _SWEEP])),
    }
    entry.pop("bench_shapes", None)
    text = yaml.safe_dump({PROPOSED_NAME: entry}, sort_keys=False, default_flow_style=None, width=100)
    return (
        f"# Chosen by `snakemake tune` on {gpu or 'a GPU that NVML does not name'}: {best['time_ms']:.4g} ms, "
        f"{best['tflops']:.3g} TFLOP/s with a warm cache.\n{text}"
    )


def tune(space: Space, base: Variant, candidates: Sequence[Candidate], tuner: Tuner) -> list[Row]:
    """The rows of all sizes (schema tune)."""
    rows = []
    for size in space.sizes:
        present = size_rows(base, candidates, size, tuner.sweep(candidates, size))
        rows += [row | dict(tuner.identity) for row in present]
    return rows


def write_results(space: Space, base: Variant, rows: Sequence[Row], output: Path, tuned: Path) -> None:
    """Write tune.csv, best.yaml and the figure into `output` and the best of each size into `tuned`.

    Raises:
        GemmlabError: at the last size no configuration has a time.
    """
    from gemmlab import figures
    from gemmlab.tune_figure import sweep_drawing

    write_table(output / "tune.csv", list(rows), "tune")
    figures.save(sweep_drawing(read_table(output / "tune.csv", "tune")), output)
    best = {row["m"]: row for row in rows if row["best"]}
    last = space.sizes[-1]
    if last not in best:
        reason = next((row["reason"] for row in rows if row["m"] == last), None)
        raise GemmlabError(f"{output}/tune.csv: no configuration was timed at {last} ({reason}).")
    write_table(tuned, [best[size] for size in space.sizes if size in best], "tune")
    write_text(output / "best.yaml", proposed_entry(base, best[last], best[last].get("gpu")))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument("--settings", type=Path, default=repository_root() / SETTINGS, help="what is swept")
    parser.add_argument("--architecture", required=True, help="the GPU's, such as sm_90")
    parser.add_argument("--nvcc", default="auto", help="auto, wheel or the path of an nvcc")
    parser.add_argument("--seed", type=int, default=0, help="of the matrices' elements")
    parser.add_argument(
        "--output-dir", required=True, type=Path, help="for tune.csv, the figure and best.yaml"
    )
    parser.add_argument("--tuned", required=True, type=Path, help="the table of the best of each size")


def run(options: argparse.Namespace) -> int:
    """Sweep and write; needs a GPU.

    Raises:
        GemmlabError: the settings are wrong, there is no GPU or no Kernel Tuner, or nothing could be timed.
    """
    from gemmlab.executors.base import Unavailable
    from gemmlab.tune_session import KernelTunerSession

    space = load_space(options.settings)
    catalogue = load_catalogue()
    base = catalogue.get(space.variant)
    if base is None or base.kind != "kernel" or len(base.launches) != 1:
        raise GemmlabError(
            f"{options.settings}: variant is {space.variant!r}, expected a kernel of config/variants with one launch."
        )
    if missing := [name for name in space.parameters if name not in base.macros]:
        raise GemmlabError(f"{options.settings}: variant {base.name} has no macro {', '.join(missing)}.")
    configurations = space.configurations()
    if driver.cuda_version() is None:
        raise GemmlabError(
            "the sweep needs a GPU, and this machine has no CUDA driver. `gemmlab doctor` says more."
        )
    try:
        tuner = KernelTunerSession(space, base, options.seed)
    except Unavailable as error:
        raise GemmlabError(f"the sweep needs a GPU and Kernel Tuner: {error}") from error
    nvcc = find_nvcc(options.nvcc, driver_cuda=driver.cuda_version())
    print(
        f"{len(configurations)} configurations of {base.name} at {', '.join(map(str, space.sizes))}",
        flush=True,
    )
    # What was timed with which nvcc and for which architecture each row's cubin_sha256 says.
    digest = inputs_digest("tune", base, [repr(space), options.seed])
    with tempfile.TemporaryDirectory(prefix="gemmlab-tune-") as folder:
        candidates = build_candidates(base, configurations, options.architecture, nvcc, Path(folder))
        rows = [row | {"digest": digest} for row in tune(space, base, candidates, tuner)]
    write_results(space, base, rows, options.output_dir, options.tuned)
    for row in rows:
        if row["best"]:
            print(f"{row['m']}: {_text(row)}, {row['time_ms']:.4g} ms, {row['tflops']:.3g} TFLOP/s")
    return 0


def _text(row: Row) -> str:
    return f"{row['BM']}x{row['BN']}x{row['BK']} with {row['TM']}x{row['TN']} a thread"

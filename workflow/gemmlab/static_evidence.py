"""`gemmlab static-evidence`: what kernels take of an SM on several architectures, each compiled for natively.

Registers, spills and shared memory are ptxas's own words for that architecture; occupancy follows from them and the
SM's limits. No GPU is needed.
"""

from __future__ import annotations

import argparse
import itertools
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from gemmlab import driver, status
from gemmlab.catalogue import Variant, load_catalogue
from gemmlab.compile import check_architecture, compile_variant
from gemmlab.errors import GemmlabError
from gemmlab.schema import write_table
from gemmlab.sources import inputs_digest
from gemmlab.toolchain import Nvcc, find_nvcc

Row = dict[str, Any]

ARCHITECTURES = ("sm_80", "sm_86", "sm_90", "sm_100")
# The tiles and thread tiles that the articles argue about.
VARIANTS = (
    *("tile8", "tile16", "tile32", "register2x2", "register4x4", "register8x8", "register16x16"),
    *("two_accumulators", "vector_loads", "warp_tile"),
    *("block_tile8", "block_tile16", "block_tile", "block_tile64", "block_tile128"),
)
_COPIED = ("threads", "registers", "shared_static_bytes", "shared_dynamic_bytes")
_FIT = ("blocks_per_sm", "occupancy", "occupancy_limit")


def evidence_rows(variant: Variant, architecture: str, nvcc: Nvcc) -> list[Row]:
    """A row (schema static) for each kernel of `variant`, compiled natively for `architecture`.

    Raises:
        GemmlabError: nvcc doesn't know the architecture, or a flag is refused. A kernel that doesn't compile is a row.
    """
    record = compile_variant(variant, architecture, nvcc).record
    common: Row = {
        "variant": variant.name,
        "architecture": architecture,
        "status": record["status"],
        "reason": record["reason"],
        "nvcc": f"{nvcc.release[0]}.{nvcc.release[1]}",
        "digest": inputs_digest("static_evidence", variant, [architecture]),
    }
    if record["status"] != status.OK:
        return [common]
    return [common | {"entry": name} | _resources(entry) for name, entry in record["entries"].items()]


def _resources(entry: Mapping[str, Any]) -> Row:
    spills = [entry["spill_store_bytes"], entry["spill_load_bytes"]]
    fields = {name: entry.get(name) for name in (*_COPIED, *_FIT)}
    return fields | {"spill_bytes": None if None in spills else sum(spills)}


def evidence(variants: Sequence[Variant], architectures: Sequence[str], nvcc: Nvcc) -> list[Row]:
    """The rows of all variants on all architectures, in this order, several compiled at a time."""
    for architecture in architectures:
        check_architecture(architecture, nvcc)
    jobs = list(itertools.product(variants, architectures))
    with ThreadPoolExecutor(max_workers=len(os.sched_getaffinity(0))) as pool:
        return list(itertools.chain(*pool.map(lambda job: evidence_rows(*job, nvcc), jobs)))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument("--variants", nargs="+", default=list(VARIANTS), help="kernels of config/variants")
    parser.add_argument("--architectures", nargs="+", default=list(ARCHITECTURES), help="such as sm_80 sm_90")
    parser.add_argument("--nvcc", default="auto", help="auto, wheel or the path of an nvcc")
    parser.add_argument("--output", required=True, type=Path)


def run(options: argparse.Namespace) -> int:
    """Compile and write the table.

    Raises:
        GemmlabError: a variant or an architecture is unknown.
    """
    catalogue = load_catalogue()
    unknown = [name for name in options.variants if name not in catalogue or not catalogue[name].compiled]
    if unknown:
        raise GemmlabError(f"--variants: {', '.join(unknown)}: no kernel of this name in config/variants.")
    nvcc = find_nvcc(options.nvcc, driver_cuda=driver.cuda_version())
    rows = evidence([catalogue[name] for name in options.variants], options.architectures, nvcc)
    write_table(options.output, rows, "static")
    print(f"{len(rows)} rows in {options.output}")
    return 0

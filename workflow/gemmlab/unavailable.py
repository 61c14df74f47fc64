"""Rows of bench and profile for a machine that can't run them: one job says so for every variant."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from gemmlab import status
from gemmlab.catalogue import Variant, load_catalogue
from gemmlab.errors import GemmlabError
from gemmlab.schema import write_table

# A stage that can be unavailable, and the schema of its rows.
STAGES = {"bench": "timings", "profile": "profile"}
# The metric of a row that stands for all metrics, as in profile.
_ANY_METRIC = "any"


def unavailable_row(variant: Variant, stage: str, reason: str) -> dict[str, Any]:
    """The one row that stands for all shapes (and metrics) of a variant in a stage that wasn't run."""
    row = {"variant": variant.name, "status": status.UNAVAILABLE, "reason": reason}
    return row | ({"arithmetic": variant.arithmetic} if stage == "bench" else {"metric": _ANY_METRIC})


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument("--device", required=True, help="slug of the results, for the message")
    parser.add_argument("--stage", required=True, choices=STAGES)
    parser.add_argument("--reason", required=True, help="what this machine lacks")
    parser.add_argument("--output-dir", required=True, type=Path, help="results/<device>")
    parser.add_argument("--variants", nargs="+", help="names; default: all that aren't broken")


def run(options: argparse.Namespace) -> int:
    """Write STAGE/VARIANT.csv for each variant; raises GemmlabError for a name that isn't in the catalogue."""
    catalogue = load_catalogue()
    names = options.variants or [name for name, variant in catalogue.items() if variant.kind != "broken"]
    unknown = [name for name in names if name not in catalogue]
    if unknown:
        raise GemmlabError(
            f"--variants: {', '.join(unknown)} not in the catalogue; known are {', '.join(catalogue)}."
        )
    for name in names:
        row = unavailable_row(catalogue[name], options.stage, options.reason)
        write_table(options.output_dir / options.stage / f"{name}.csv", [row], STAGES[options.stage])
    print(f"{options.stage} on {options.device}: unavailable for {len(names)} variants, {options.reason}")
    return 0

"""`gemmlab headline`: the last run's headline table and where its report lies, also after a run that failed."""

from __future__ import annotations

import argparse

from gemmlab import device
from gemmlab.config import load_config
from gemmlab.errors import GemmlabError
from gemmlab.files import repository_root


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument("--device", help="slug of the results to show; default: this machine's")


def run(options: argparse.Namespace) -> int:
    """Print results/<device>/summary.md, which ends with the report's path; raises GemmlabError if there is none."""
    config = load_config()
    if options.device:
        config["device"] = options.device
    results = repository_root() / "results" / device.resolve(config).slug
    summary = results / "summary.md"
    if not summary.is_file():
        raise GemmlabError(f"{summary}: no run has been published here yet. Run: make reproduce")
    print(summary.read_text().rstrip())
    return 0

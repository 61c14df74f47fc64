"""Whether timings on one GPU ever ran at the same time, from the raw samples that bench writes.

Run as `python3 -m gemmlab.timing.overlap results/nvidia-h200/bench/*.samples.csv`; it ends with 1 if any did.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from gemmlab.errors import GemmlabError

# CLOCK_MONOTONIC counts from the machine's start: spans of two starts can't be compared. The start is known as well as
# the clock of the day is kept.
_SAME_START_S = 60.0


@dataclass(frozen=True)
class Measured:
    """The span of one measurement.

    Attributes:
        gpu: uuid of the card.
        start_s: CLOCK_MONOTONIC at its start, seconds.
        end_s: the same at its end.
        machine_start_s: when CLOCK_MONOTONIC was 0, seconds since 1970.
        what: variant, shape, cache, block and position, for people.
    """

    gpu: str
    start_s: float
    end_s: float
    machine_start_s: float
    what: str


def read_samples(path: Path) -> list[Measured]:
    """The measurements in a file of samples, each once.

    Raises:
        GemmlabError: it isn't such a file.
    """
    try:
        with path.open(newline="") as file:
            return list(dict.fromkeys(_measured(row) for row in csv.DictReader(file)))
    except OSError as error:
        raise GemmlabError(f"{path}: {error.strerror}.") from error
    except (KeyError, ValueError, TypeError) as error:
        raise GemmlabError(f"{path}: not a file of samples that bench wrote ({error}).") from error


def _measured(row: dict[str, str]) -> Measured:
    start_s = float(row["start_s"])
    shape = " x ".join(row[side] for side in "mnk")
    return Measured(
        gpu=row["gpu_uuid"],
        start_s=start_s,
        end_s=float(row["end_s"]),
        machine_start_s=datetime.fromisoformat(row["utc"]).timestamp() - start_s,
        what=f"{row['variant']} {shape} {row['cache']}, block {row['block']}, position {row['position']}",
    )


def overlaps(measured: Iterable[Measured]) -> list[tuple[Measured, Measured]]:
    """All pairs of measurements on one card that ran at the same time, the earlier first; touching is no overlap."""
    found = []
    running: list[Measured] = []
    for later in sorted(measured, key=lambda each: (each.start_s, each.end_s)):
        running = [earlier for earlier in running if earlier.end_s > later.start_s]
        found += [(earlier, later) for earlier in running if _comparable(earlier, later)]
        running.append(later)
    return found


def _comparable(first: Measured, second: Measured) -> bool:
    same_start = abs(first.machine_start_s - second.machine_start_s) < _SAME_START_S
    return first.gpu == second.gpu and same_start


def main(arguments: Sequence[str] | None = None) -> int:
    """Print what overlaps; the exit status is 1 if anything does and 2 for a file that can't be read."""
    parser = argparse.ArgumentParser(prog="gemmlab.timing.overlap", description=__doc__)
    parser.add_argument("samples", nargs="+", type=Path, help="files that bench wrote (.samples.csv)")
    options = parser.parse_args(arguments)
    try:
        measured = [each for path in options.samples for each in read_samples(path)]
    except GemmlabError as error:
        print(error, file=sys.stderr)
        return 2
    found = overlaps(measured)
    for earlier, later in found:
        print(f"{earlier.what}, and {later.what}: {earlier.end_s - later.start_s:.6f} s at the same time")
    print(f"{len(measured)} measurements in {len(options.samples)} files, {len(found)} overlaps")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

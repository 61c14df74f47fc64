"""When a measurement began and ended, so that two of them can be shown never to overlap."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime


@dataclass
class Span:
    """Start and end by CLOCK_MONOTONIC (seconds, the same for all processes of a machine) and the date of the start."""

    start_s: float
    utc: str
    end_s: float = 0.0

    def fields(self) -> tuple[float, float, str]:
        """start_s, end_s, utc."""
        return self.start_s, self.end_s, self.utc


@contextlib.contextmanager
def measured() -> Iterator[Span]:
    """The span of the block inside, complete when it is left."""
    span = Span(
        time.clock_gettime(time.CLOCK_MONOTONIC), datetime.now(UTC).isoformat(timespec="milliseconds")
    )
    try:
        yield span
    finally:
        span.end_s = time.clock_gettime(time.CLOCK_MONOTONIC)

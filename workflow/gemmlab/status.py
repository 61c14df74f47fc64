"""The four words that every result carries."""

from __future__ import annotations

OK = "ok"
FAILED = "failed"
SKIPPED = "skipped"
UNAVAILABLE = "unavailable"
STATUSES = (OK, FAILED, SKIPPED, UNAVAILABLE)

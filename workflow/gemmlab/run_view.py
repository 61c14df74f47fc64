"""A run as those ask for it who judge it: times, counters, builds and probes by name, or a word on what is missing."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gemmlab import status
from gemmlab.catalogue import Variant
from gemmlab.tables import (
    ANY_COUNTER,
    Record,
    Row,
    Shape,
    VariantRecords,
    counter_name,
    joint_digest,
    ranked_row,
    shape_text,
    sweep_fault,
)

NEEDS_GPU = "needs a GPU"
_AGAIN = "delete tune.csv and run `snakemake tune` again"


class Missing(Exception):
    """This run can't decide: the message says what it lacks."""


@dataclass(frozen=True)
class Figure:
    """One number, or word, that a measure found.

    `label` tells it from the measure's others, `details` are the numbers behind it, `low` and `high` its interval.
    """

    label: str
    value: float | str
    details: str = ""
    low: float | None = None
    high: float | None = None

    def __str__(self) -> str:
        where = f" {self.label}" if self.label else ""
        return f"{number(self.value)}{where}" + (f" ({self.details})" if self.details else "")


@dataclass(frozen=True)
class Run:
    """What a run wrote, as the measures ask for it.

    Attributes:
        catalogue: the variants of the run.
        records: their records by name.
        tables: rows by table's name, as `tables.build_tables` makes them;
            `tune` and `static` where somebody asked.
        probes: records of the stage probe by name.
    """

    catalogue: Mapping[str, Variant]
    records: Mapping[str, VariantRecords]
    tables: Mapping[str, Sequence[Row]]
    probes: Mapping[str, Record] = field(default_factory=dict)

    @functools.cached_property
    def has_gpu(self) -> bool:
        """Whether anything of this run was executed on a GPU."""
        return any(
            "cuda" in entry.checks or any(row.get("time_ms_median") is not None for row in entry.bench)
            for entry in self.records.values()
        )

    @functools.cached_property
    def _timings(self) -> dict[tuple[str, Shape | None, str | None], Row]:
        return {
            (row["variant"], _shape_of(row), row.get("cache")): row
            for row in reversed(self.tables["timings"])
        }

    @functools.cached_property
    def _counters(self) -> dict[tuple[str, Shape | None], dict[str, Row]]:
        found: dict[tuple[str, Shape | None], dict[str, Row]] = {}
        for row in self.tables["counters"]:
            found.setdefault((row["variant"], _shape_of(row)), {})[row["counter"]] = row
        return found

    def variant(self, name: str) -> Variant:
        """The variant called `name`; Missing if the run hasn't got it."""
        if name not in self.catalogue:
            raise Missing(f"{name} is not in this run")
        return self.catalogue[name]

    def digest(self, names: Iterable[str]) -> str | None:
        """One digest over all records of these variants that the run has."""
        digests: list[str | None] = []
        for entry in (self.records[name] for name in names if name in self.records):
            records = (entry.build, entry.count, entry.probe, *entry.checks.values())
            digests += [record.get("digest") for record in records if record]
            digests += [row.get("digest") for row in (*entry.bench, *entry.profile)]
            asked_for = (*self.tables.get("tune", ()), *self.tables.get("static", ()))
            digests += [row.get("digest") for row in asked_for if row["variant"] == entry.variant.name]
        return joint_digest(digests)

    def timing(self, name: str, shape: Shape, cache: str = "cold") -> Row:
        """The row of timings.csv that may be compared; Missing says why there is none."""
        self.variant(name)
        if not self.has_gpu:
            raise Missing(NEEDS_GPU)
        here = (name, shape)
        row = next(
            (
                row
                for key in ((*here, cache), (*here, None), (name, None, None))
                if (row := self._timings.get(key))
            ),
            None,
        )
        if row is None:
            raise Missing(f"{name} was not timed at {shape_text(shape)} with a {cache} cache")
        if row["status"] != status.OK:
            raise Missing(f"{name} at {shape_text(shape)}: {row['status']}, {row['reason']}")
        if not ranked_row(row):
            raise Missing(f"the time of {name} at {shape_text(shape)} is not ranked ({row.get('flags')})")
        return row

    def swept(self, name: str, shape: Shape) -> list[Row]:
        """The sweep's configurations of a variant at `shape` that have a time.

        Missing says why there is none, or that the sweep is incomplete or of another GPU than the run's times.
        """
        if not self.has_gpu:
            raise Missing(NEEDS_GPU)
        sweep = [row for row in self.tables.get("tune", ()) if row["variant"] == name]
        rows = [row for row in sweep if _shape_of(row) == shape and row["status"] == status.OK]
        if not rows:
            raise Missing(f"no sweep of {name} at {shape_text(shape)}: `snakemake tune` makes one")
        if fault := sweep_fault(sweep):
            raise Missing(f"the sweep of {name} is incomplete or mixed ({fault}): {_AGAIN}")
        timed = {row.get("gpu") for row in self.tables["timings"] if row.get("time_ms_median") is not None}
        if timed and rows[0].get("gpu") not in timed:
            gpus = ", ".join(sorted(map(str, timed)))
            raise Missing(
                f"the sweep of {name} is of {rows[0].get('gpu')}, the run's times are of {gpus}: {_AGAIN}"
            )
        return rows

    def native(self, name: str, architecture: str) -> Row | None:
        """What a variant takes when compiled for `architecture` alone, if `snakemake static_evidence` was asked."""
        rows = [
            row
            for row in self.tables.get("static", ())
            if row["variant"] == name and row["architecture"] == architecture and row["status"] == status.OK
        ]
        return max(rows, key=lambda row: row["registers"] or 0, default=None)

    def count(self, name: str, shape: Shape, counter: str, source: str) -> float:
        """A counter (`source` emulator) or a metric (`source` ncu) of counters.csv; Missing says why there is none."""
        self.variant(name)
        if source == "ncu" and not self.has_gpu:
            raise Missing(NEEDS_GPU)
        rows = self._counters.get((name, shape), {})
        row = rows.get(counter_name(counter))
        if row is not None and row.get(source) is not None:
            return row[source]
        if row is None:
            row = self._counters.get((name, None), {}).get(ANY_COUNTER)
        what = f"{counter} of {name} at {shape_text(shape)}"
        raise Missing(f"{what}: {row['reason']}" if row and row.get("reason") else f"no {what} by {source}")

    def metrics(self, name: str, shape: Shape) -> dict[str, float]:
        """Everything that Nsight Compute said of a variant at `shape`; Missing without a profile."""
        self.count(name, shape, "sm__throughput.avg.pct_of_peak_sustained_elapsed", "ncu")
        rows = self._counters[name, shape]
        return {counter: row["ncu"] for counter, row in rows.items() if row.get("ncu") is not None}

    def build(self, name: str) -> dict[str, Any]:
        """Resources of the entry function that takes most registers, with spills, shared memory and code size added."""
        self.variant(name)
        record = self.records[name].build
        if record is None or record["status"] != status.OK:
            why = f"{record['status']}, {record['reason']}" if record else "it was not compiled"
            raise Missing(f"no build of {name}: {why}")
        entries = list((record.get("entries") or {}).values())
        if not entries:
            raise Missing(f"ptxas said nothing of {name}")
        entry = max(entries, key=lambda entry: entry["registers"] or 0)
        sizes = {
            "spill_bytes": ("spill_store_bytes", "spill_load_bytes"),
            "shared_bytes": ("shared_static_bytes", "shared_dynamic_bytes"),
        }
        sums = {
            key: sum(known)
            if (known := [entry[part] for part in parts if entry.get(part) is not None])
            else None
            for key, parts in sizes.items()
        }
        code = entry.get("sass")
        return entry | sums | {"instructions": sum(code.values()) if code else None}

    def probe(self, name: str) -> Record:
        """The record of a probe that worked; Missing says why there is none."""
        record = self.probes.get(name)
        if record is None:
            raise Missing(f"{name} was not run" if self.has_gpu else NEEDS_GPU)
        if record["status"] != status.OK:
            raise Missing(f"{name}: {record['status']}, {record['reason']}")
        return record


def _shape_of(row: Row) -> Shape | None:
    return None if row.get("m") is None else (row["m"], row["n"], row["k"])


def number(value: float | str) -> str:
    """A figure for people: three significant digits, no trailing zeros and never an exponent; a word as it is."""
    if isinstance(value, str):
        return value
    if value == 0 or float(value).is_integer() or abs(value) >= 1000:
        return f"{value:,.0f}"
    text = f"{value:.{max(0, 2 - math.floor(math.log10(abs(value))))}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def as_shape(shape: int | Sequence[int]) -> Shape:
    """An edge as the square problem that it means; m, n, k as they are."""
    m, n, k = (shape, shape, shape) if isinstance(shape, int) else shape
    return m, n, k

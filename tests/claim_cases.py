"""Runs of hand-written rows for the tests of claims, stories and the articles' tables. Nothing here was measured."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import publish_cases as cases

from gemmlab.catalogue import Variant
from gemmlab.run_view import Run
from gemmlab.tables import VariantRecords, build_tables

HEADLINE = (4096, 4096, 4096)
SMALL = (128, 128, 128)
SQUARE = (1024, 1024, 1024)


def cube(edge: int) -> tuple[int, int, int]:
    return edge, edge, edge


def profile(name: str, values: Mapping[tuple[int, int, int], Mapping[str, float]]) -> list[dict[str, Any]]:
    """Rows of profile for one launch at each shape."""
    return [
        cases.metric(name, shape, metric, value)
        for shape, metrics in values.items()
        for metric, value in metrics.items()
    ]


def count(
    name: str, values: Mapping[tuple[int, int, int], Mapping[str, int]], output: str = "0" * 64
) -> dict[str, Any]:
    """A record of count."""
    shapes = [
        {"m": m, "n": n, "k": k, "counters": dict(counters), "output_sha256": output}
        for (m, n, k), counters in values.items()
    ]
    return {"variant": name, "status": "ok", "reason": None, "shapes": shapes, "digest": f"{name} count"}


def entry(variant: Variant, *, gpu: bool = True, **fields: Any) -> VariantRecords:
    """Records of a variant that was built and passed its checks; `fields` add or replace others."""
    plain: dict[str, Any] = {}
    if variant.compiled:
        plain["build"] = cases.build_record(variant.name)
        plain["checks"] = {
            executor: cases.check_record(variant.name, executor)
            for executor in (("emulator", "cuda") if gpu else ("emulator",))
        }
    return VariantRecords(variant=variant, **(plain | fields))


def make_run(
    entries: list[VariantRecords],
    probes: Mapping[str, dict[str, Any]] | None = None,
    tables: Mapping[str, list[dict[str, Any]]] | None = None,
) -> Run:
    """The run that has these records, and `tables` that were asked for besides."""
    return Run(
        catalogue={each.variant.name: each.variant for each in entries},
        records={each.variant.name: each for each in entries},
        tables=build_tables(entries, HEADLINE, None) | (tables or {}),
        probes=probes or {},
    )


def swept_row(edge: int, tile: str, thread_tile: str, time_ms: float | None, **fields: Any) -> dict[str, Any]:
    """A row of a sweep of block_tile: `tile` and `thread_tile` such as 64x32; without a time it failed."""
    bm, bn = map(int, tile.split("x"))
    tm, tn = map(int, thread_tile.split("x"))
    row = {"variant": "block_tile", "m": edge, "n": edge, "k": edge}
    row |= {"BM": bm, "BN": bn, "BK": 8, "TM": tm, "TN": tn, "time_ms": time_ms}
    row |= {"status": "ok" if time_ms else "failed", "reason": None if time_ms else "wrong result"}
    row["gpu"] = cases.GPU
    return row | {"digest": f"{edge} {tile} {thread_tile} {time_ms}"} | fields


def timed_run(times_ms: Mapping[str, Mapping[int, float]], **variants: Variant) -> Run:
    """Kernels by name with their times in ms by edge, cold, each with an interval of 1 % on both sides."""
    entries = []
    for name, by_edge in times_ms.items():
        variant = variants.get(name) or cases.kernel(name)
        rows = [
            cases.timing(name, cube(edge), "cold", 2e-9 * edge**3 / time_ms)
            | {"time_ms_median": time_ms, "time_ms_low": 0.99 * time_ms, "time_ms_high": 1.01 * time_ms}
            for edge, time_ms in by_edge.items()
        ]
        entries.append(entry(variant, bench=rows))
    return make_run(entries)


def probe_record(name: str, **values: list[float | None]) -> dict[str, Any]:
    """A record of probe."""
    return {
        "probe": name,
        "status": "ok",
        "reason": None,
        "highest_clock_mhz": 2000.0,
        "values": values,
        "digest": name,
    }

"""The articles' tables on the device at hand, with the reported figures beside: A's ladder, B's sizes, C's traffic.

What an article doesn't give stays blank, and so does what this run has not measured.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gemmlab import status
from gemmlab.expression import evaluate
from gemmlab.limiter import find_limiter
from gemmlab.problem import Problem
from gemmlab.run_view import Missing, Run, as_shape
from gemmlab.tables import Row, Shape

# A's ladder and C's table stand at this edge; the emulator's counts of C's at the first of its shapes.
EDGE = 1024
TRAFFIC_SHAPES = ((128, 128, 128), (1024, 1024, 1024), (4096, 4096, 4096))

_NAIVE, _UNCOALESCED, _B_TILE = "naive", "uncoalesced", "tile16_padded_a"
_REPORTED_A = (
    "time_ms",
    "tflops",
    "speed_up",
    "percent_of_peak",
    "dram_percent",
    "sm_percent",
    "warps_percent",
)
_PERCENT_METRICS = {
    "dram_percent": "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    "sm_percent": "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    "warps_percent": "sm__warps_active.avg.pct_of_peak_sustained_active",
}
_ELEMENTS_A_SECTOR = 8
_BYTES_AN_ELEMENT = 4


def article_rows(run: Run, tables: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, list[Row]]:
    """The rows of article_a.csv, article_b.csv and article_c.csv by the tables' names.

    Args:
        run: what was measured.
        tables: the part `tables` of config/claims.yaml.
    """
    return {
        "article_a": [_ladder_row(run, step) for step in tables["a"]],
        "article_b": [_size_row(run, entry) for entry in tables["b"]],
        "article_c": [
            _traffic_row(run, entry, shape)
            for shape in TRAFFIC_SHAPES
            for entry in tables["c"]
            if entry["variant"] in run.catalogue
        ],
    }


def _or_none(value: Callable[[], Any], reasons: list[str]) -> Any:
    """The value, or None with the reason noted."""
    try:
        return value()
    except Missing as missing:
        reasons.append(str(missing))
        return None


def _state(row: Row, measured: Sequence[str], reasons: Sequence[str]) -> Row:
    """The row with its status: ok if any of the columns `measured` has a figure; the reason says what is missing."""
    known = any(row.get(column) is not None for column in measured)
    return row | {
        "status": status.OK if known else status.UNAVAILABLE,
        "reason": "; ".join(dict.fromkeys(reasons)) or None,
    }


def _ladder_row(run: Run, step: Mapping[str, Any]) -> Row:
    name, shape = step["variant"], as_shape(EDGE)
    reasons: list[str] = []
    row: Row = {"step": step["step"], "variant": name, **_columns(shape)}
    row |= {f"reported_{key}": step.get(key) for key in _REPORTED_A}
    timing = _or_none(lambda: run.timing(name, shape), reasons)
    if timing:
        row |= {"time_ms": timing["time_ms_median"], "tflops": timing["tflops"]}
        row["percent_of_peak"] = timing.get("percent_of_peak")
        row["percent_of_cublas"] = None if timing.get("ratio") is None else 100 * timing["ratio"]
        naive = _or_none(lambda: run.timing(_NAIVE, shape), reasons)
        row["speed_up"] = naive["time_ms_median"] / timing["time_ms_median"] if naive else None
    for column, metric in _PERCENT_METRICS.items():
        row[column] = _or_none(lambda metric=metric: run.count(name, shape, metric, "ncu"), reasons)
    found = _or_none(lambda: find_limiter(run.metrics(name, shape)), reasons)
    row["limiter"] = str(found) if found else None
    row["digest"] = run.digest([name])
    return _state(row, ("time_ms", *_PERCENT_METRICS), reasons)


def _size_row(run: Run, entry: Mapping[str, Any]) -> Row:
    shape = as_shape(entry["size"])
    reasons: list[str] = []
    row: Row = _columns(shape) | {
        f"reported_{key}": entry.get(key) for key in ("naive_ms", "tile_ms", "speed_up")
    }
    times = {
        column: _or_none(lambda name=name: run.timing(name, shape), reasons)
        for column, name in (("naive", _NAIVE), ("uncoalesced", _UNCOALESCED), ("tile", _B_TILE))
    }
    row |= {f"{column}_ms": timing and timing["time_ms_median"] for column, timing in times.items()}
    tile = times["tile"]
    if tile:
        row["tile_percent_of_peak"] = tile.get("percent_of_peak")
        for column, before in (("speed_up", "naive"), ("speed_up_over_uncoalesced", "uncoalesced")):
            if times[before]:
                row[column] = times[before]["time_ms_median"] / tile["time_ms_median"]
    row["digest"] = run.digest([_NAIVE, _UNCOALESCED, _B_TILE])
    return _state(row, ("naive_ms", "uncoalesced_ms", "tile_ms"), reasons)


def _traffic_row(run: Run, entry: Mapping[str, Any], shape: Shape) -> Row:
    """Elements read by a kernel of C's, from what the article claims down to what device memory gave."""
    name = entry["variant"]
    variant = run.catalogue[name]
    macros = {macro: value for macro, value in variant.macros.items() if isinstance(value, int)}
    names = macros | dict(zip("mnk", shape, strict=True))
    reasons: list[str] = []

    def counted(counter: str, source: str, elements: float) -> float | None:
        return _or_none(lambda: elements * run.count(name, shape, counter, source), reasons)

    m, n, k = shape
    row: Row = {
        "variant": name,
        **_columns(shape),
        "claimed_elements": evaluate(entry["claimed"], names),
        "modelled_elements": evaluate(entry["modelled"], names),
        "requested_elements": counted("ptx_thread_global_loads", "emulator", 1),
    }
    sectors = "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"
    row |= {
        "emulated_l1_elements": counted(sectors, "emulator", _ELEMENTS_A_SECTOR),
        "l1_elements": counted(sectors, "ncu", _ELEMENTS_A_SECTOR),
        "l2_elements": counted("lts__t_sectors_srcunit_tex_op_read.sum", "ncu", _ELEMENTS_A_SECTOR),
        "dram_elements": counted("dram__bytes_read.sum", "ncu", 1 / _BYTES_AN_ELEMENT),
    }
    barriers = _or_none(lambda: run.count(name, shape, "ptx_block_barriers", "emulator"), reasons)
    launches = variant.plan(Problem.packed(m, n, k, transpose_b=variant.transpose_b))
    blocks = sum(math.prod(launch.grid) for launch in launches)
    row |= {"blocks": blocks, "barriers_of_a_block": None if barriers is None else barriers / blocks}
    build = _or_none(lambda: run.build(name), reasons) or {}
    for column in ("shared_bytes", "registers", "blocks_per_sm"):
        row[column] = build.get(column)
    timing = _or_none(lambda: run.timing(name, shape), reasons)
    row["time_ms"] = timing and timing["time_ms_median"]
    row["digest"] = run.digest([name])
    measured = ("requested_elements", "l1_elements", "l2_elements", "dram_elements", "time_ms")
    return _state(row, measured, reasons)


def _columns(shape: Shape) -> Row:
    return dict(zip(("m", "n", "k"), shape, strict=True))

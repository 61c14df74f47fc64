"""The roofline: ceilings that the probes measured on this device, and where each variant stands below them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from gemmlab import status
from gemmlab.catalogue import Variant
from gemmlab.tables import Record, Row, Shape, ranked_row

_PROBES = ("probe_bandwidth", "probe_multiply_add")
_SECTOR_BYTES = 32
_WAVEFRONT_BYTES = 128
_DRAM_BYTES = ("dram__bytes_read.sum", "dram__bytes_write.sum")
_L1_SECTORS = (
    "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum",
)
_SHARED_WAVEFRONTS = (
    "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum",
)


@dataclass(frozen=True)
class Ceilings:
    """TFLOP/s of FP32, TB/s of device memory and of shared memory, at `clock_mhz`."""

    tflops: float
    dram_tb_per_s: float
    shared_tb_per_s: float
    clock_mhz: float


@dataclass(frozen=True)
class Point:
    """A variant: its speed in TFLOP/s, and its FLOPs for each byte of device memory and of L1 and shared memory."""

    variant: str
    tflops: float
    dram_intensity: float | None
    l1_intensity: float | None


def ceilings(probes: Mapping[str, Record], timings: Sequence[Row]) -> Ceilings | str:
    """The ceilings, or in words why there are none.

    The probes count in cycles. The clock is the median of those read beside the timings, or without any the highest.
    """
    for name in _PROBES:
        record = probes.get(name)
        if record is None:
            return f"{name} was not run."
        if record["status"] != status.OK:
            return f"{name}: {record['status']}, {record['reason']}."
    clocks = [row["sm_clock_mhz"] for row in timings if ranked_row(row) and row.get("sm_clock_mhz")]
    clock_mhz = median(clocks) if clocks else probes[_PROBES[0]].get("highest_clock_mhz")
    if not clock_mhz:
        return "no SM clock is known, which would turn the probes' cycles into seconds."
    rates = probes["probe_bandwidth"]["values"]
    per_second = clock_mhz * 1e6 / 1e12
    return Ceilings(
        tflops=2 * sum(probes["probe_multiply_add"]["values"]["rate"]) * per_second,
        dram_tb_per_s=sum(rates["global_rate"]) * per_second,
        shared_tb_per_s=sum(rates["shared_rate"]) * per_second,
        clock_mhz=clock_mhz,
    )


def points(
    timings: Sequence[Row], counters: Sequence[Row], catalogue: Mapping[str, Variant], shape: Shape
) -> list[Point]:
    """The FP32 variants that were timed and profiled at `shape`, with a cold cache."""
    profiled: dict[str, dict[str, float]] = {}
    for row in counters:
        if (row["m"], row["n"], row["k"]) == shape and row["ncu"] is not None:
            profiled.setdefault(row["variant"], {})[row["counter"]] = row["ncu"]
    flops = 2 * math.prod(shape)
    found = []
    for row in timings:
        name = row["variant"]
        here = (row["m"], row["n"], row["k"]) == shape and row["cache"] == "cold" and ranked_row(row)
        if not here or name not in catalogue or catalogue[name].arithmetic != "fp32":
            continue
        known = profiled.get(name, {})
        dram = _sum(known, _DRAM_BYTES)
        sectors, wavefronts = _sum(known, _L1_SECTORS), _sum(known, _SHARED_WAVEFRONTS)
        inside = None
        if sectors is not None and wavefronts is not None:
            inside = sectors * _SECTOR_BYTES + wavefronts * _WAVEFRONT_BYTES
        if dram or inside:
            found.append(
                Point(name, row["tflops"], flops / dram if dram else None, flops / inside if inside else None)
            )
    return found


def _sum(known: Mapping[str, float], names: Sequence[str]) -> float | None:
    values = [known.get(name) for name in names]
    return None if None in values else sum(values)

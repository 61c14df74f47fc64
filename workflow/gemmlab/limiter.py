"""What limits a launch, from ncu's metrics: the articles' rule (traffic, then the SM, then warps), refined."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gemmlab.ncu_metrics import DURATION, stall_metric

DRAM = "DRAM"
L2 = "L2"
L1 = "L1 and shared memory"
FMA = "FMA issue"
TENSOR = "tensor cores"
INSTRUCTIONS = "instruction issue"
TAIL = "tail"
OCCUPANCY = "occupancy"
LATENCY = "latency"
KINDS = (DRAM, L2, L1, FMA, TENSOR, INSTRUCTIONS, TAIL, OCCUPANCY, LATENCY)

# ---- The thresholds, all in per cent, each with its reason.
# Nsight Compute's own speed-of-light rule: below 60 % of its peak a resource leaves room, and latency is to blame.
SATURATED = 60.0
# Issue slots serve every pipe; a scheduler that issues in four cycles of five is full, as one slot in ten goes to
# dispatch and fetch even in cuBLAS.
ISSUE_FULL = 80.0
# More than a quarter of all SM cycles without a block is more than any single change of the code would bring.
SMS_AT_WORK = 75.0
# A quarter of an SM's 64 warps are four to a scheduler. Arithmetic takes four cycles, so fewer warps can't hide even
# that, let alone a load.
FEW_WARPS = 25.0

_UTILISATION = {
    DRAM: ("dram__throughput.avg.pct_of_peak_sustained_elapsed",),
    L2: ("lts__throughput.avg.pct_of_peak_sustained_elapsed",),
    # The load-store pipe and the banks behind it are one road, whichever of the two is the fuller.
    L1: (
        "l1tex__throughput.avg.pct_of_peak_sustained_active",
        "sm__inst_executed_pipe_lsu.avg.pct_of_peak_sustained_active",
        "l1tex__data_pipe_lsu_wavefronts_mem_shared.avg.pct_of_peak_sustained_elapsed",
    ),
    FMA: ("sm__pipe_fma_cycles_active.avg.pct_of_peak_sustained_active",),
    TENSOR: ("sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",),
}
_ISSUE = "smsp__issue_active.avg.pct_of_peak_sustained_active"
_AT_WORK = "sm__cycles_active.avg.pct_of_peak_sustained_elapsed"
_WARPS = "sm__warps_active.avg.pct_of_peak_sustained_active"

# A warp that is ready but isn't chosen waits for nothing, so `not_selected` is no stall here.
_WAITS = {
    "long_scoreboard": "global or local memory",
    "short_scoreboard": "shared memory",
    "mio_throttle": "the queue of shared memory",
    "lg_throttle": "the queue of global memory",
    "barrier": "a barrier",
    "wait": "the instruction before",
    "dispatch_stall": "the dispatcher",
    "no_instruction": "instructions to be fetched",
    "math_pipe_throttle": "an arithmetic pipe",
    "gmma": "the tensor cores",
}

Metrics = Mapping[str, float | None]


@dataclass(frozen=True)
class Limiter:
    """One of `KINDS`, how full it is (of warps or of SMs at work for those two), and what the warps wait for."""

    kind: str
    percent: float | None = None
    wait: str | None = None

    def __str__(self) -> str:
        if self.kind == TAIL:
            return f"tail (SMs at work {self.percent:.0f} %)"
        if self.kind == OCCUPANCY:
            return f"occupancy (warps active {self.percent:.0f} %)"
        if self.kind == LATENCY:
            return f"latency (waits for {self.wait})" if self.wait else "latency"
        return f"{self.kind} ({self.percent:.0f} %)"


def find_limiter(metrics: Metrics) -> Limiter | None:
    """What limits a launch, or None where no throughput is known.

    In this order: device memory and L2 where saturated, since they serve all SMs at once; a tail, where SMs have no
    block to work on; the fullest part of the SM where saturated; the issue of instructions; too few warps; latency.

    Args:
        metrics: values by Nsight Compute's name, in per cent.
    """
    filled = {
        kind: max(known)
        for kind, names in _UTILISATION.items()
        if (known := [metrics[name] for name in names if metrics.get(name) is not None])
    }
    if not filled:
        return None
    memory = {kind: filled[kind] for kind in (DRAM, L2) if filled.get(kind, 0.0) >= SATURATED}
    inside = {kind: filled[kind] for kind in (L1, FMA, TENSOR) if filled.get(kind, 0.0) >= SATURATED}
    at_work, warps, issue = metrics.get(_AT_WORK), metrics.get(_WARPS), metrics.get(_ISSUE)
    if at_work is not None and at_work < SMS_AT_WORK and not memory:
        return Limiter(TAIL, at_work)
    if saturated := memory | inside:
        kind = max(saturated, key=saturated.__getitem__)
        return Limiter(kind, saturated[kind])
    if issue is not None and issue >= ISSUE_FULL:
        return Limiter(INSTRUCTIONS, issue)
    if warps is not None and warps < FEW_WARPS:
        return Limiter(OCCUPANCY, warps)
    return Limiter(LATENCY, wait=longest_wait(metrics))


def longest_wait(metrics: Metrics) -> str | None:
    """What most warps wait for when an instruction is issued, in words, or None where no stall is known."""
    known = {
        words: metrics[stall_metric(reason)]
        for reason, words in _WAITS.items()
        if metrics.get(stall_metric(reason)) is not None
    }
    return max(known, key=known.__getitem__) if known else None


def launch_metrics(profile: Sequence[Mapping[str, Any]], shape: tuple[int, int, int]) -> dict[str, float]:
    """The metrics of a variant's longest launch at `shape`, by name, from rows of profile.csv; empty without them."""
    here = [
        row
        for row in profile
        if (row.get("m"), row.get("n"), row.get("k")) == shape and row.get("value") is not None
    ]
    durations = {row.get("launch"): row["value"] for row in here if row["metric"] == DURATION}
    longest = (
        max(durations, key=durations.__getitem__) if durations else here[0].get("launch") if here else None
    )
    return {row["metric"]: row["value"] for row in here if row.get("launch") == longest}

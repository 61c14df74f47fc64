"""The metrics that a profile asks of Nsight Compute, what each means, and what nvprof called the same thing.

All names were looked up for GH100 in the metrics library that ncu uses (NVPW_MetricsEvaluator of CUDA 13.0), except
the `launch__` ones, which are ncu's own. GA100, GA102, AD102 and GB100 know the same names but for the stall of
Hopper's tensor cores (gmma); a name that a card doesn't know is dropped and listed. The list takes 16 passes of a
kernel on GH100, five of them for sm__throughput alone: most of the others share passes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gemmlab.errors import GemmlabError

DURATION = "gpu__time_duration.sum"
_GLOBAL_LOAD_SECTORS = "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"
_GLOBAL_STORE_SECTORS = "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum"
_GLOBAL_LOAD_REQUESTS = "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum"
_GLOBAL_STORE_REQUESTS = "l1tex__t_requests_pipe_lsu_mem_global_op_st.sum"
_SHARED_LOAD_WAVEFRONTS = "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum"
_SHARED_STORE_WAVEFRONTS = "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum"
_SHARED_LOADS = "smsp__inst_executed_op_shared_ld.sum"
_SHARED_STORES = "smsp__inst_executed_op_shared_st.sum"
_L2_READ_SECTORS = "lts__t_sectors_srcunit_tex_op_read.sum"
_L2_WRITE_SECTORS = "lts__t_sectors_srcunit_tex_op_write.sum"
_FFMA = "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum"
_ISSUE = "smsp__issue_active.avg.pct_of_peak_sustained_active"
_WARPS = "sm__warps_active.avg.pct_of_peak_sustained_active"
_SECTOR_BYTES = 32
_NS_PER_S = 1e9


@dataclass(frozen=True)
class Metric:
    """A metric by Nsight Compute's name, and what it tells."""

    name: str
    meaning: str


# What the emulator counts as well; counters.csv puts the two side by side.
COUNTERS = (
    Metric(_GLOBAL_LOAD_REQUESTS, "global load instructions of warps that reached L1 (without cp.async)"),
    Metric(_GLOBAL_STORE_REQUESTS, "global store instructions of warps that reached L1"),
    Metric(_GLOBAL_LOAD_SECTORS, "32-byte sectors that global loads asked of L1"),
    Metric(_GLOBAL_STORE_SECTORS, "32-byte sectors that global stores sent to L1"),
    Metric(_SHARED_LOAD_WAVEFRONTS, "passes through the shared-memory banks for loads (LDS and LDSM)"),
    Metric(_SHARED_STORE_WAVEFRONTS, "passes through the shared-memory banks for stores (STS and STSM)"),
    Metric(
        "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum",
        "wavefronts of shared loads above the least needed",
    ),
    Metric(
        "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum",
        "wavefronts of shared stores above the least needed",
    ),
    Metric(_SHARED_LOADS, "shared load instructions (LDS), counted once a warp"),
    Metric(_SHARED_STORES, "shared store instructions (STS), counted once a warp"),
    Metric("smsp__inst_executed_op_global_ld.sum", "global load instructions (LDG), counted once a warp"),
    Metric("smsp__inst_executed_op_global_st.sum", "global store instructions (STG), counted once a warp"),
    Metric(_FFMA, "single-precision fused multiply-adds, counted once a thread"),
)

_TIME_AND_THROUGHPUT = (
    Metric(DURATION, "time on the GPU under the profiler, caches cold; never mixed with timings"),
    Metric(
        "sm__throughput.avg.pct_of_peak_sustained_elapsed",
        "busiest part of the SM, of its peak (articles: SM busy)",
    ),
    Metric(
        "l1tex__throughput.avg.pct_of_peak_sustained_active",
        "busiest part of L1 and shared memory, of its peak",
    ),
    Metric("lts__throughput.avg.pct_of_peak_sustained_elapsed", "busiest part of L2, of its peak"),
    Metric(
        "dram__throughput.avg.pct_of_peak_sustained_elapsed",
        "device memory, of its peak (articles: DRAM busy)",
    ),
    Metric("dram__bytes_read.sum", "bytes read from device memory"),
    Metric("dram__bytes_write.sum", "bytes written to device memory"),
    Metric(_L2_READ_SECTORS, "32-byte sectors that the SMs read from L2"),
    Metric(_L2_WRITE_SECTORS, "32-byte sectors that the SMs wrote to L2"),
    Metric("l1tex__t_sector_hit_rate.pct", "sectors found in L1"),
    Metric("lts__t_sector_hit_rate.pct", "sectors found in L2"),
)

_PIPES_AND_ISSUE = (
    Metric(_WARPS, "achieved occupancy: resident warps, of the most (articles: warps active)"),
    Metric(
        "sm__cycles_active.avg.pct_of_peak_sustained_elapsed",
        "cycles in which an SM had work: the rest is start, tail and uneven tiles",
    ),
    Metric(_ISSUE, "cycles in which a scheduler issued an instruction"),
    Metric("sm__pipe_fma_cycles_active.avg.pct_of_peak_sustained_active", "FP32 pipe busy"),
    Metric("sm__inst_executed_pipe_lsu.avg.pct_of_peak_sustained_active", "load-store pipe busy"),
    Metric(
        "l1tex__data_pipe_lsu_wavefronts_mem_shared.avg.pct_of_peak_sustained_elapsed",
        "shared-memory bandwidth used, of its peak",
    ),
    Metric("sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active", "tensor pipe busy"),
    Metric("smsp__inst_executed.sum", "all instructions, counted once a warp"),
    Metric(
        "smsp__inst_executed_op_ldgsts.sum", "asynchronous copies from global to shared memory (cp.async)"
    ),
    Metric("smsp__inst_executed_op_local_ld.sum", "loads of local memory: spilled registers read back"),
    Metric("smsp__inst_executed_op_local_st.sum", "stores to local memory: registers spilled"),
)

_STALLS = {
    "long_scoreboard": "a value from global or local memory",
    "short_scoreboard": "a value from shared memory or the special functions",
    "mio_throttle": "a place in the queue of shared memory and the special functions",
    "lg_throttle": "a place in the queue of global and local memory",
    "barrier": "the other warps of their block at a barrier",
    "not_selected": "their turn: another warp was ready too",
    "wait": "the fixed latency of the instruction before",
    "dispatch_stall": "the dispatcher, for example because of register banks",
    "no_instruction": "instructions to be fetched",
    "math_pipe_throttle": "a busy arithmetic pipe",
    "gmma": "the tensor cores' asynchronous multiply-adds (Hopper)",
}


def stall_metric(reason: str) -> str:
    """The metric of a stall reason: warps that wait for it at each issued instruction, on average."""
    return f"smsp__average_warps_issue_stalled_{reason}_per_issue_active.ratio"


_LAUNCH = (
    Metric("launch__registers_per_thread", "registers of a thread"),
    Metric(
        "launch__waves_per_multiprocessor",
        "blocks over those that fit at once: at 1.1 most SMs idle in the second wave",
    ),
    Metric("launch__occupancy_limit_registers", "blocks an SM holds as far as registers go"),
    Metric("launch__occupancy_limit_shared_mem", "blocks an SM holds as far as shared memory goes"),
    Metric("launch__occupancy_limit_warps", "blocks an SM holds as far as warps go"),
    Metric("launch__occupancy_limit_blocks", "blocks an SM holds at most"),
)

STANDARD = (
    *_TIME_AND_THROUGHPUT,
    *_PIPES_AND_ISSUE,
    *COUNTERS,
    *(Metric(stall_metric(reason), f"warps that wait for {what}") for reason, what in _STALLS.items()),
    *_LAUNCH,
)


@dataclass(frozen=True)
class NvprofMetric:
    """A metric of nvprof's in ncu's: the sum of factor x metric over `terms`, divided by the metric `per`."""

    name: str
    unit: str
    terms: tuple[tuple[float, str], ...]
    per: str | None = None

    @property
    def expression(self) -> str:
        """The expression as text, such as `32e9 * a.sum / b.sum`."""
        parts = [metric if factor == 1 else f"{_factor(factor)} * {metric}" for factor, metric in self.terms]
        text = " + ".join(parts)
        if self.per is None:
            return text
        return f"({text}) / {self.per}" if len(parts) > 1 else f"{text} / {self.per}"

    @property
    def metrics(self) -> tuple[str, ...]:
        """The metrics that must be known."""
        return (*(metric for _, metric in self.terms), *((self.per,) if self.per else ()))


def _factor(factor: float) -> str:
    if factor >= _NS_PER_S:
        return f"{factor / _NS_PER_S:g}e9"
    return f"1/{1 / factor:g}" if 0 < factor < 1 else f"{factor:g}"


def _same(name: str, unit: str, metric: str) -> NvprofMetric:
    return NvprofMetric(name, unit, ((1, metric),))


def _ratio(name: str, unit: str, factor: float, metric: str, per: str) -> NvprofMetric:
    return NvprofMetric(name, unit, ((factor, metric),), per)


_SECTORS_PER_NS = _SECTOR_BYTES * _NS_PER_S
_PER_WARP_ACTIVE = "smsp__warp_issue_stalled_{}_per_warp_active.pct"

# ncu's times are in ns, so a rate per second has a factor of 1e9. nvprof's "transactions" of global memory are sectors
# since Volta, and those of shared memory are wavefronts.
NVPROF = (
    _ratio("gld_throughput", "byte/s", _SECTORS_PER_NS, _GLOBAL_LOAD_SECTORS, DURATION),
    _ratio("gst_throughput", "byte/s", _SECTORS_PER_NS, _GLOBAL_STORE_SECTORS, DURATION),
    _same("gld_transactions", "sector", _GLOBAL_LOAD_SECTORS),
    _same("gst_transactions", "sector", _GLOBAL_STORE_SECTORS),
    _ratio("gld_transactions_per_request", "sector/request", 1, _GLOBAL_LOAD_SECTORS, _GLOBAL_LOAD_REQUESTS),
    _ratio(
        "gst_transactions_per_request", "sector/request", 1, _GLOBAL_STORE_SECTORS, _GLOBAL_STORE_REQUESTS
    ),
    _same("gld_efficiency", "%", "smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.pct"),
    _same("gst_efficiency", "%", "smsp__sass_average_data_bytes_per_sector_mem_global_op_st.pct"),
    _same("shared_load_transactions", "wavefront", _SHARED_LOAD_WAVEFRONTS),
    _same("shared_store_transactions", "wavefront", _SHARED_STORE_WAVEFRONTS),
    _ratio(
        "shared_load_transactions_per_request", "wavefront/inst", 1, _SHARED_LOAD_WAVEFRONTS, _SHARED_LOADS
    ),
    _ratio(
        "shared_store_transactions_per_request", "wavefront/inst", 1, _SHARED_STORE_WAVEFRONTS, _SHARED_STORES
    ),
    _same("shared_efficiency", "%", "smsp__sass_average_data_bytes_per_wavefront_mem_shared.pct"),
    _same(
        "shared_utilization",
        "%",
        "l1tex__data_pipe_lsu_wavefronts_mem_shared.avg.pct_of_peak_sustained_elapsed",
    ),
    _ratio("dram_read_throughput", "byte/s", _NS_PER_S, "dram__bytes_read.sum", DURATION),
    _ratio("dram_write_throughput", "byte/s", _NS_PER_S, "dram__bytes_write.sum", DURATION),
    NvprofMetric("dram_read_transactions", "sector", ((1 / _SECTOR_BYTES, "dram__bytes_read.sum"),)),
    NvprofMetric("dram_write_transactions", "sector", ((1 / _SECTOR_BYTES, "dram__bytes_write.sum"),)),
    _same("dram_utilization", "%", "dram__throughput.avg.pct_of_peak_sustained_elapsed"),
    _same("l2_tex_read_transactions", "sector", _L2_READ_SECTORS),
    _same("l2_tex_write_transactions", "sector", _L2_WRITE_SECTORS),
    _ratio("l2_tex_read_throughput", "byte/s", _SECTORS_PER_NS, _L2_READ_SECTORS, DURATION),
    _ratio("l2_tex_write_throughput", "byte/s", _SECTORS_PER_NS, _L2_WRITE_SECTORS, DURATION),
    _same("tex_cache_hit_rate", "%", "l1tex__t_sector_hit_rate.pct"),
    _same("l2_tex_hit_rate", "%", "lts__t_sector_hit_rate.pct"),
    NvprofMetric("achieved_occupancy", "", ((0.01, _WARPS),)),
    _same("sm_efficiency", "%", "sm__cycles_active.avg.pct_of_peak_sustained_elapsed"),
    _same("issue_slot_utilization", "%", _ISSUE),
    _same("ipc", "inst/cycle", "sm__inst_executed.avg.per_cycle_active"),
    _same("eligible_warps_per_cycle", "warp/cycle", "smsp__warps_eligible.sum.per_cycle_active"),
    _same("inst_executed", "inst", "smsp__inst_executed.sum"),
    _same("inst_executed_shared_loads", "inst", _SHARED_LOADS),
    _same("inst_executed_shared_stores", "inst", _SHARED_STORES),
    _same("inst_executed_global_loads", "inst", "smsp__inst_executed_op_global_ld.sum"),
    _same("inst_executed_global_stores", "inst", "smsp__inst_executed_op_global_st.sum"),
    _same("flop_count_sp_fma", "inst", _FFMA),
    NvprofMetric(
        "flop_count_sp",
        "flop",
        (
            (1, "smsp__sass_thread_inst_executed_op_fadd_pred_on.sum"),
            (1, "smsp__sass_thread_inst_executed_op_fmul_pred_on.sum"),
            (2, _FFMA),
        ),
    ),
    _same(
        "single_precision_fu_utilization", "%", "sm__pipe_fma_cycles_active.avg.pct_of_peak_sustained_active"
    ),
    _same(
        "tensor_precision_fu_utilization",
        "%",
        "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
    ),
    _same("ldst_fu_utilization", "%", "sm__inst_executed_pipe_lsu.avg.pct_of_peak_sustained_active"),
    NvprofMetric(
        "warp_execution_efficiency", "%", ((100 / 32, "smsp__thread_inst_executed_per_inst_executed.ratio"),)
    ),
    _same("branch_efficiency", "%", "smsp__sass_average_branch_targets_threads_uniform.pct"),
    _same("stall_memory_dependency", "%", _PER_WARP_ACTIVE.format("long_scoreboard")),
    _same("stall_sync", "%", _PER_WARP_ACTIVE.format("barrier")),
    NvprofMetric(
        "stall_exec_dependency",
        "%",
        ((1, _PER_WARP_ACTIVE.format("short_scoreboard")), (1, _PER_WARP_ACTIVE.format("wait"))),
    ),
    _same("stall_not_selected", "%", _PER_WARP_ACTIVE.format("not_selected")),
)


# What the preset full asks for besides its set, so that every row of the table has a value there.
NVPROF_ONLY = tuple(
    dict.fromkeys(
        needed
        for metric in NVPROF
        for needed in metric.metrics
        if needed not in {standard.name for standard in STANDARD}
    )
)


def nvprof_value(name: str, values: Mapping[str, float | None]) -> float | None:
    """What nvprof would have called `name`, from ncu's metrics of one launch.

    Args:
        name: nvprof's name, such as `gld_throughput`.
        values: metrics of a launch by ncu's name, in base units (ns, byte, %), as profile.csv has them.

    Returns:
        The value in the unit of the table, or None if a metric that it needs is missing or the divisor is zero.

    Raises:
        GemmlabError: the table has no such name.
    """
    metric = next((metric for metric in NVPROF if metric.name == name), None)
    if metric is None:
        raise GemmlabError(
            f"nvprof metric {name}: not in the table; `gemmlab profile --list-metrics` prints it."
        )
    if any(values.get(needed) is None for needed in metric.metrics):
        return None
    total = sum(factor * values[needed] for factor, needed in metric.terms)
    if metric.per is None:
        return total
    return total / values[metric.per] if values[metric.per] else None


def metric_table() -> str:
    """What each metric means and what nvprof called it, as Markdown tables."""
    lines = ["| Metric | Meaning |", "|---|---|"]
    lines += [f"| `{metric.name}` | {metric.meaning} |" for metric in STANDARD]
    lines += ["", "| nvprof | Unit | The same in ncu's metrics | Collected |", "|---|---|---|---|"]
    for metric in NVPROF:
        collected = "preset full" if set(metric.metrics) & set(NVPROF_ONLY) else "always"
        lines.append(f"| `{metric.name}` | {metric.unit} | `{metric.expression}` | {collected} |")
    return "\n".join(lines)

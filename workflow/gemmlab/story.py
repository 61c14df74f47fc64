"""The story of each variant: what changed against its partner, and in a sentence where the bottleneck moved.

Time, instructions, traffic, waits and occupancy come from counters, and every word follows from them by the rules here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gemmlab import status
from gemmlab.catalogue import Variant
from gemmlab.limiter import Limiter, find_limiter, longest_wait
from gemmlab.run_view import Missing, Run, number
from gemmlab.tables import Row, Shape

EMULATOR = "emulator"
GPU = "gpu"
# A change that a story mentions: below it, times are within what two measurements differ by and counts are edges.
NOTABLE = 0.05

_LANES = 32
_SCHEDULERS = 4
_SECTORS_A_WAVEFRONT = 4

_REQUESTS = "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum"
_SECTORS = "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"
_STORED_SECTORS = "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum"
_WAVEFRONTS = (
    "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum",
)
_CONFLICTS = (
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum",
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum",
)


@dataclass(frozen=True)
class Quantity:
    """What story.csv compares: its column, what a sentence calls it, and the counters that are added up for it.

    Without counters it is a figure of the build. With `percent_of` the sum is that share of those counters' sum.
    `absolute` ones stand in the table as before and after, the others as the quotient; the former have to change by
    more than `least` besides.
    """

    column: str
    words: str
    counters: tuple[str, ...] = ()
    percent_of: tuple[str, ...] = ()
    absolute: bool = False
    least: float = 0.0


# Under a per cent of all wavefronts, conflicts are chance meetings of warps on a GPU.
_CONFLICT_SHARE = Quantity(
    "conflicts_percent",
    "bank conflicts in % of the wavefronts",
    _CONFLICTS,
    _WAVEFRONTS,
    absolute=True,
    least=1.0,
)
_COUNTED = (
    Quantity("instructions", "PTX instructions", ("ptx_instructions",)),
    Quantity("requests", "global load requests", (_REQUESTS,)),
    Quantity("l1_sectors", "sectors asked of L1", (_SECTORS, _STORED_SECTORS)),
    Quantity("shared_wavefronts", "shared-memory wavefronts", _WAVEFRONTS),
    _CONFLICT_SHARE,
    Quantity("barriers", "barriers", ("ptx_block_barriers",)),
)
_PROFILED = (
    Quantity("instructions", "instructions", ("smsp__inst_executed.sum",)),
    Quantity("requests", "global load requests", (_REQUESTS,)),
    Quantity("l1_sectors", "sectors asked of L1", (_SECTORS, _STORED_SECTORS)),
    Quantity("shared_wavefronts", "shared-memory wavefronts", _WAVEFRONTS),
    _CONFLICT_SHARE,
    Quantity(
        "l2_sectors",
        "sectors asked of L2",
        ("lts__t_sectors_srcunit_tex_op_read.sum", "lts__t_sectors_srcunit_tex_op_write.sum"),
    ),
    Quantity("dram_bytes", "bytes of device memory", ("dram__bytes_read.sum", "dram__bytes_write.sum")),
)
_BUILT = (
    Quantity("registers", "registers", absolute=True),
    Quantity("spill_bytes", "bytes of spills in the code", absolute=True),
)
_WARPS = "sm__warps_active.avg.pct_of_peak_sustained_active"

# Before and after, by column; what isn't known lacks.
Changes = Mapping[str, tuple[float, float]]


def story_rows(run: Run, headline_shape: Shape) -> list[Row]:
    """story.csv: a row by the emulator's counts for each variant with a partner, and on a GPU one by ncu and times."""
    rows = []
    for variant in run.catalogue.values():
        if variant.kind != "kernel" or variant.compared_with not in run.catalogue:
            continue
        rows.append(_emulated(run, variant))
        if run.has_gpu:
            rows.append(_measured(run, variant, headline_shape))
    return rows


def _emulated(run: Run, variant: Variant) -> Row:
    pair = (variant.compared_with, variant.name)
    shape = _common_shape(run, *pair)
    row = _row(run, variant, EMULATOR, shape)
    if shape is None:
        return row | _lacking("the emulator counted the two at no common shape")
    quantities = (*_COUNTED, *_BUILT)
    changes = _changes(run, quantities, pair, shape, EMULATOR)
    try:
        demands = [heaviest_demand(_demands(run, name, shape)) for name in pair]
    except Missing as missing:
        return row | _lacking(str(missing))
    occupancy = [_theoretical_occupancy(run, name) for name in pair]
    return (
        row
        | _columns(quantities, changes)
        | _before_and_after("occupancy", occupancy)
        | _before_and_after("limiter", demands)
        | {"story": emulator_sentence(pair[0], changes_in_words(quantities, changes), demands)}
    )


def _measured(run: Run, variant: Variant, shape: Shape) -> Row:
    pair = (variant.compared_with, variant.name)
    row = _row(run, variant, GPU, shape)
    try:
        times = [run.timing(name, shape)["time_ms_median"] for name in pair]
    except Missing as missing:
        return row | _lacking(str(missing))
    quantities = (*_PROFILED, *_BUILT)
    changes = _changes(run, quantities, pair, shape, "ncu")
    metrics = [_metrics(run, name, shape) for name in pair]
    waits = [longest_wait(known) for known in metrics]
    limiters = [find_limiter(known) for known in metrics]
    ratio = times[1] / times[0]
    return (
        row
        | _columns(quantities, changes)
        | {"time_ratio": ratio}
        | _before_and_after("occupancy", [known.get(_WARPS) for known in metrics])
        | _before_and_after("wait", waits)
        | _before_and_after("limiter", [found and str(found) for found in limiters])
        | {"story": gpu_sentence(pair[0], ratio, changes_in_words(quantities, changes), waits, limiters)}
    )


def _theoretical_occupancy(run: Run, name: str) -> float | None:
    try:
        fraction = run.build(name)["occupancy"]
    except Missing:
        return None
    return None if fraction is None else 100 * fraction


def _metrics(run: Run, name: str, shape: Shape) -> dict[str, float]:
    try:
        return run.metrics(name, shape)
    except Missing:
        return {}


def _before_and_after(column: str, values: Sequence[object]) -> Row:
    return {f"{column}_before": values[0], f"{column}_after": values[1]}


def _row(run: Run, variant: Variant, source: str, shape: Shape | None) -> Row:
    m, n, k = shape or (None, None, None)
    return {
        "variant": variant.name,
        "compared_with": variant.compared_with,
        "source": source,
        "m": m,
        "n": n,
        "k": k,
        "status": status.OK,
        "reason": None,
        "digest": run.digest([variant.compared_with, variant.name]),
    }


def _lacking(reason: str) -> Row:
    return {"status": status.UNAVAILABLE, "reason": reason}


def _common_shape(run: Run, before: str, after: str) -> Shape | None:
    """The largest shape at which the emulator counted both."""
    shapes = [
        {(each["m"], each["n"], each["k"]) for each in (run.records[name].count or {}).get("shapes", [])}
        for name in (before, after)
    ]
    return max(shapes[0] & shapes[1], key=math.prod, default=None)


def _changes(
    run: Run, quantities: Sequence[Quantity], pair: tuple[str, str], shape: Shape, source: str
) -> dict[str, tuple[float, float]]:
    def value_of(quantity: Quantity, name: str) -> float | None:
        if not quantity.counters:
            return run.build(name)[quantity.column]
        total = sum(run.count(name, shape, each, source) for each in quantity.counters)
        if not quantity.percent_of:
            return total
        whole = sum(run.count(name, shape, each, source) for each in quantity.percent_of)
        return 100 * total / whole if whole else 0.0

    changes = {}
    for quantity in quantities:
        try:
            before, after = (value_of(quantity, name) for name in pair)
        except Missing:
            continue
        if before is not None and after is not None:
            changes[quantity.column] = before, after
    return changes


def _columns(quantities: Sequence[Quantity], changes: Changes) -> Row:
    row: Row = {}
    for quantity in quantities:
        before, after = changes.get(quantity.column, (None, None))
        if quantity.absolute:
            row |= _before_and_after(quantity.column, (before, after))
        else:
            row[f"{quantity.column}_ratio"] = after / before if before and after is not None else None
    return row


def _demands(run: Run, name: str, shape: Shape) -> dict[str, float]:
    """Cycles of an SM that the counted work takes at least, by what does it."""
    requests, sectors = (run.count(name, shape, counter, EMULATOR) for counter in (_REQUESTS, _SECTORS))
    multiply_adds = run.count(name, shape, "ptx_thread_fma", EMULATOR)
    return {
        "global loads": max(requests, sectors / _SECTORS_A_WAVEFRONT),
        "shared memory": sum(run.count(name, shape, counter, EMULATOR) for counter in _WAVEFRONTS),
        "multiply-adds": multiply_adds / _LANES / _SCHEDULERS,
    }


def heaviest_demand(demands: Mapping[str, float]) -> str:
    """What takes most of an SM's cycles, a warp's request or a wavefront taking one and four multiply-adds another."""
    return max(demands, key=demands.__getitem__)


def changes_in_words(quantities: Sequence[Quantity], changes: Changes) -> list[str]:
    """`sectors asked of L1 x 0.0625` or `registers 31 to 40`, for what changed by more than NOTABLE."""
    words = []
    for quantity in quantities:
        before, after = changes.get(quantity.column, (0, 0))
        if abs(after - before) <= max(quantity.least, NOTABLE * abs(before)):
            continue
        if quantity.absolute or not before:
            words.append(f"{quantity.words} {number(before)} to {number(after)}")
        else:
            words.append(f"{quantity.words} x {number(after / before)}")
    return words


def emulator_sentence(before: str, changed: Sequence[str], demands: Sequence[str]) -> str:
    """What changed by the emulator's counts, and what the two kernels ask most of an SM."""
    told = (
        f"Against {before}: {', '.join(changed)}"
        if changed
        else f"Nothing that is counted differs from {before}"
    )
    if demands[0] == demands[1]:
        return f"{told}; most of an SM's cycles still go to {demands[1]}."
    return f"{told}; most of an SM's cycles went to {demands[0]} and go to {demands[1]} now."


def gpu_sentence(
    before: str,
    time_ratio: float,
    changed: Sequence[str],
    waits: Sequence[str | None],
    limiters: Sequence[Limiter | None],
) -> str:
    """How much faster, what changed with it, and where the bottleneck moved."""
    if time_ratio < 1 / (1 + NOTABLE):
        told = f"{number(1 / time_ratio)} times as fast as {before}"
    elif time_ratio > 1 + NOTABLE:
        told = f"{number(time_ratio)} times as slow as {before}"
    else:
        told = f"As fast as {before} (time x {number(time_ratio)})"
    told += f": {', '.join(changed)}" if changed else ": nothing that is counted changed"
    if None not in waits and waits[0] != waits[1]:
        told += f"; warps waited most for {waits[0]} and wait for {waits[1]} now"
    old, new = limiters
    if old is None or new is None:
        return f"{told}."
    if old.kind == new.kind:
        return f"{told}; the bottleneck stays: {old} before, {new} after."
    return f"{told}; the bottleneck moved from {old} to {new}."

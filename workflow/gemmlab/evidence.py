"""The measures that decide a claim, and nothing else can stand behind `measure:` in config/claims.yaml.

Each takes a run and the parameters that stand there, and gives figures or raises Missing with what the run lacks.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gemmlab import doctor, limiter, status
from gemmlab.catalogue import Variant, architecture_number
from gemmlab.errors import GemmlabError
from gemmlab.expression import cdiv, evaluate
from gemmlab.occupancy import MULTIPROCESSORS, occupancy
from gemmlab.problem import Problem
from gemmlab.run_view import Figure, Missing, Run, as_shape, number
from gemmlab.tables import Shape, shape_text

_LANES = 32
_SECTOR_BYTES = 32
_FLOAT_BYTES = 4

Names = str | Sequence[str]
Shapes = Sequence[int | Sequence[int]]


def as_names(names: Names) -> list[str]:
    """One name or several, as a list."""
    return [names] if isinstance(names, str) else list(names)


def pairs(of: Names, over: Names) -> list[tuple[str, str]]:
    """Each of `of` with its partner in `over`; one name on either side goes with all of the other.

    Raises:
        GemmlabError: the two lists differ in length.
    """
    first, second = as_names(of), as_names(over)
    longest = max(len(first), len(second))
    first, second = (names * longest if len(names) == 1 else names for names in (first, second))
    if len(first) != len(second):
        raise GemmlabError(f"of has {len(first)} names and over {len(second)}; expected as many, or one.")
    return list(zip(first, second, strict=True))


def _at(shape: Shape, name: str = "") -> str:
    return (f"for {name} " if name else "") + f"at {shape_text(shape)}"


def _if_several(name: str, names: Names) -> str:
    return name if len(as_names(names)) > 1 else ""


# ---- Times


def speed_up(
    run: Run, *, of: Names, over: Names, shapes: Shapes, cache: str = "cold", across: str | None = None
) -> list[Figure]:
    """Time of `over` over time of `of`: over 1 where `of` is faster.

    `across` sums up the shapes of a pair: `growth` is the last speed-up over the first, `spread` the largest over the
    smallest. The interval is the widest that both times' intervals allow.
    """
    figures = []
    for new, old in pairs(of, over):
        name = _told_apart(new, old, of, over)
        own = [_speed_up(run, new, old, as_shape(shape), cache, name) for shape in shapes]
        if across is None:
            figures += own
            continue
        values = [figure.value for figure in own]
        value = values[-1] / values[0] if across == "growth" else max(values) / min(values)
        details = ", ".join(
            f"{number(value)} {_at(as_shape(shape))}" for value, shape in zip(values, shapes, strict=True)
        )
        figures.append(Figure(f"for {name}" if name else "", value, f"speed-ups {details}"))
    return figures


def _told_apart(new: str, old: str, of: Names, over: Names) -> str:
    """What tells a pair from the measure's others; empty if it is the only one."""
    return new if len(as_names(of)) > 1 else old if len(as_names(over)) > 1 else ""


def _speed_up(run: Run, new: str, old: str, shape: Shape, cache: str, name: str) -> Figure:
    before, after = run.timing(old, shape, cache), run.timing(new, shape, cache)
    value = before["time_ms_median"] / after["time_ms_median"]
    low = high = None
    if None not in (row.get(key) for row in (before, after) for key in ("time_ms_low", "time_ms_high")):
        low = before["time_ms_low"] / after["time_ms_high"]
        high = before["time_ms_high"] / after["time_ms_low"]
    details = f"{old} {number(before['time_ms_median'])} ms, {new} {number(after['time_ms_median'])} ms"
    return Figure(_at(shape, name), value, details, low, high)


def speed(
    run: Run,
    *,
    quantity: str,
    shapes: Shapes,
    of: Names | None = None,
    cache: str = "cold",
    best: bool = False,
) -> list[Figure]:
    """`percent_of_peak` or `percent_of_baseline` of each variant, or with `best` of the fastest among them.

    Without `of` every FP32 kernel of the run takes part. Among several, those without a time are passed over.
    """
    names = as_names(of) if of is not None else _fp32_kernels(run)
    figures = []
    for shape in map(as_shape, shapes):
        found, lacking = [], None
        for name in names:
            try:
                found.append(_speed(run, name, quantity, shape, cache, _if_several(name, names)))
            except Missing as missing:
                if not best:
                    raise
                lacking = missing
        if not found:
            raise lacking or Missing("this run has no FP32 kernel")
        if best:
            top = max(found, key=lambda figure: figure.value)
            top = Figure(_at(shape), top.value, f"{top.details}, fastest of {len(found)}", top.low, top.high)
            found = [top]
        figures += found
    return figures


def _fp32_kernels(run: Run) -> list[str]:
    return [
        name
        for name, variant in run.catalogue.items()
        if variant.kind == "kernel" and variant.arithmetic == "fp32"
    ]


def _speed(run: Run, name: str, quantity: str, shape: Shape, cache: str, shown: str) -> Figure:
    row = run.timing(name, shape, cache)
    time = f"{name} {number(row['time_ms_median'])} ms, {number(row['tflops'])} TFLOP/s"
    label = _at(shape, shown)
    if quantity == "percent_of_baseline":
        if row.get("ratio") is None:
            raise Missing(f"{name} has no ratio to a baseline at {shape_text(shape)}")
        low, high = (None if row.get(key) is None else 100 * row[key] for key in ("ratio_low", "ratio_high"))
        return Figure(label, 100 * row["ratio"], f"{time}, against {row['baseline']}", low, high)
    if row.get("percent_of_peak") is None:
        raise Missing(f"the peak of this card for {name} isn't known")
    return Figure(label, row["percent_of_peak"], time)


def speed_ratio(
    run: Run, *, of: str, shapes: Shapes, over_shape: int | Sequence[int], cache: str = "cold"
) -> list[Figure]:
    """TFLOP/s of a variant at each of `shapes` over its TFLOP/s at `over_shape`."""
    reference = run.timing(of, as_shape(over_shape), cache)
    figures = []
    for shape in map(as_shape, shapes):
        row = run.timing(of, shape, cache)
        details = (
            f"{number(row['tflops'])} TFLOP/s, {number(reference['tflops'])} {_at(as_shape(over_shape))}"
        )
        figures.append(Figure(_at(shape), row["tflops"] / reference["tflops"], details))
    return figures


def fastest(run: Run, *, among: Sequence[str], shapes: Shapes, cache: str = "cold") -> list[Figure]:
    """The name of the fastest variant at each shape."""
    figures = []
    for shape in map(as_shape, shapes):
        times: dict[str, float] = {}
        lacking = None
        for name in among:
            try:
                times[name] = run.timing(name, shape, cache)["time_ms_median"]
            except Missing as missing:
                lacking = missing
        if len(times) < 2:
            raise lacking or Missing("one variant alone is no comparison")
        ordered = sorted(times, key=times.__getitem__)
        details = ", ".join(f"{name} {number(times[name])} ms" for name in ordered)
        figures.append(Figure(_at(shape), ordered[0], details))
    return figures


def different_winners(run: Run, *, among: Sequence[str], shapes: Shapes, cache: str = "cold") -> list[Figure]:
    """How many different variants are the fastest at one of `shapes`."""
    return _different(fastest(run, among=among, shapes=shapes, cache=cache))


def _different(winners: Sequence[Figure]) -> list[Figure]:
    details = ", ".join(f"{figure.value} {figure.label}" for figure in winners)
    return [Figure("", len({figure.value for figure in winners}), details)]


def swept(run: Run, *, of: str, field: str, shapes: Shapes) -> list[Figure]:
    """The `tile` of a block or the `thread_tile` of the fastest configuration of the sweep of `of`, such as 64x32."""
    columns = {"tile": ("BM", "BN"), "thread_tile": ("TM", "TN")}[field]
    figures = []
    for shape in map(as_shape, shapes):
        rows = run.swept(of, shape)
        best = min(rows, key=lambda row: row["time_ms"])
        details = (
            f"{best['BM']}x{best['BN']}x{best['BK']} with {best['TM']}x{best['TN']} a thread, "
            f"{number(best['time_ms'])} ms, of {len(rows)} configurations"
        )
        figures.append(Figure(_at(shape), "x".join(str(best[column]) for column in columns), details))
    return figures


def different_swept(run: Run, *, of: str, field: str, shapes: Shapes) -> list[Figure]:
    """How many different ones `swept` finds at `shapes`."""
    return _different(swept(run, of=of, field=field, shapes=shapes))


def baseline_kernels(run: Run, *, of: Sequence[str], shapes: Shapes) -> list[Figure]:
    """How many different kernels the library dispatched to, as the baseline of `of` at `shapes`."""
    chosen: dict[str, list[str]] = {}
    for name in of:
        for shape in map(as_shape, shapes):
            kernel = run.timing(name, shape).get("baseline_kernel")
            if not kernel:
                raise Missing(f"the library's kernel beside {name} at {shape_text(shape)} isn't known")
            chosen.setdefault(kernel, []).append(_at(shape, _if_several(name, of)))
    details = ", ".join(f"{kernel} {' and '.join(where)}" for kernel, where in chosen.items())
    return [Figure("", len(chosen), details)]


# ---- Counters


def counter(
    run: Run,
    *,
    counters: Sequence[str],
    of: Names,
    shapes: Shapes,
    source: str,
    per: Sequence[str] | str | None = None,
    times: float = 1.0,
    over: Names | None = None,
    relation: str = "ratio",
) -> list[Figure]:
    """The sum of `counters`, times `times`, over the sum of the counters `per` or the formula `per`.

    With `over` the same of another variant: their `ratio`, or what is `saved` (that of `over` less that of `of`).
    `source` is `emulator` or `ncu`.
    """
    compared = [(name, None) for name in as_names(of)] if over is None else pairs(of, over)

    def value_of(name: str, shape: Shape) -> float:
        total = times * sum(run.count(name, shape, each, source) for each in counters)
        divisor = _divisor(run, name, shape, per, source)
        if divisor == 0:
            raise Missing(f"{name} at {shape_text(shape)} has none of {per}")
        return total / divisor

    figures = []
    for new, old in compared:
        for shape in map(as_shape, shapes):
            value, details = value_of(new, shape), ""
            label = _at(shape, _told_apart(new, old, of, over) if over is not None else _if_several(new, of))
            if old is not None:
                other = value_of(old, shape)
                details = f"{old} {number(other)}, {new} {number(value)}"
                if relation == "ratio" and other == 0:
                    raise Missing(f"{old} at {shape_text(shape)} has none of {', '.join(counters)}")
                value = other - value if relation == "saved" else value / other
            figures.append(Figure(label, value, details))
    return figures


def _divisor(run: Run, name: str, shape: Shape, per: Sequence[str] | str | None, source: str) -> float:
    if per is None:
        return 1
    if isinstance(per, str):
        return evaluate(per, _formula_names(run.variant(name), shape))
    return sum(run.count(name, shape, each, source) for each in per)


def _formula_names(variant: Variant, shape: Shape) -> dict[str, int]:
    macros = {name: value for name, value in variant.macros.items() if isinstance(value, int)}
    return macros | dict(zip("mnk", shape, strict=True))


def warp_span(run: Run, *, of: str, along: str, shape: Sequence[int]) -> list[Figure]:
    """Rows or columns of the output that a warp covers, for a kernel whose threads take a row by y and a column by x.

    They follow from the block's shape; the sectors that the emulator counted for each request have to confirm them:
    one sector a row of A, and as many of B as the columns fill.
    """
    m, n, k = as_shape(shape)
    variant = run.variant(of)
    launch = variant.plan(Problem.packed(m, n, k, transpose_b=variant.transpose_b))[0]
    width = launch.block[0]
    lanes = [(lane % width, lane // width) for lane in range(_LANES)]
    columns, rows = (len({lane[axis] for lane in lanes}) for axis in (0, 1))
    expected = (rows + cdiv(columns * _FLOAT_BYTES, _SECTOR_BYTES)) / 2
    sectors = run.count(of, (m, n, k), "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum", "emulator")
    requests = run.count(of, (m, n, k), "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum", "emulator")
    counted = sectors / requests
    if not math.isclose(counted, expected):
        raise Missing(
            f"a block of {width} columns means {number(expected)} sectors a request of {of}, but {number(counted)} "
            "were counted"
        )
    details = (
        f"a warp of {of} spans {rows} rows and {columns} columns, and {number(counted)} sectors a load request "
        f"were counted at {shape_text((m, n, k))}, as that means"
    )
    return [Figure("", rows if along == "rows" else columns, details)]


def barriers(run: Run, *, of: Names, shapes: Shapes, steps: bool = False) -> list[Figure]:
    """Barriers that each block passes, by the emulator; with `steps` for each of its tiles along k."""
    figures = []
    names = as_names(of)
    for name in names:
        variant = run.variant(name)
        for m, n, k in map(as_shape, shapes):
            passed = run.count(name, (m, n, k), "ptx_block_barriers", "emulator")
            launches = variant.plan(Problem.packed(m, n, k, transpose_b=variant.transpose_b))
            blocks = sum(math.prod(launch.grid) for launch in launches)
            tiles = cdiv(k, variant.tile[2])
            details = f"{passed:,.0f} in {blocks:,} blocks" + (f" of {tiles} tiles along k" if steps else "")
            value = passed / blocks / (tiles if steps else 1)
            figures.append(Figure(_at((m, n, k), _if_several(name, names)), value, details))
    return figures


def wavefronts_without_conflicts(
    run: Run, *, among: Sequence[str], shapes: Shapes, source: str
) -> list[Figure]:
    """Wavefronts for each shared load instruction, of those variants whose shared loads have no bank conflict."""
    figures = []
    for shape in map(as_shape, shapes):
        for name in among:
            if run.count(name, shape, "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum", source):
                continue
            wavefronts = run.count(
                name, shape, "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum", source
            )
            loads = run.count(name, shape, "smsp__inst_executed_op_shared_ld.sum", source)
            if loads:
                figures.append(Figure(_at(shape, name), wavefronts / loads))
    if not figures:
        raise Missing(f"each of {', '.join(among)} has bank conflicts")
    return figures


def same_output(run: Run, *, of: str, over: str, shapes: Shapes) -> list[Figure]:
    """`same` where two variants gave the same bits for the same random inputs on the emulator, else `different`."""
    figures = []
    for shape in map(as_shape, shapes):
        digests = [_output(run, name, shape) for name in (of, over)]
        figures.append(Figure(_at(shape), "same" if digests[0] == digests[1] else "different"))
    return figures


def _output(run: Run, name: str, shape: Shape) -> str:
    run.variant(name)
    record = run.records[name].count
    counted = record and next(
        (each for each in record.get("shapes", []) if (each["m"], each["n"], each["k"]) == shape), None
    )
    if not counted or not counted.get("output_sha256"):
        why = record["reason"] if record and record["reason"] else "not counted"
        raise Missing(f"no output of {name} at {shape_text(shape)}: {why}")
    return counted["output_sha256"]


def find_limiter(run: Run, *, of: Names, shapes: Shapes) -> list[Figure]:
    """What limits a variant, by gemmlab.limiter."""
    figures = []
    names = as_names(of)
    for name in names:
        for shape in map(as_shape, shapes):
            found = limiter.find_limiter(run.metrics(name, shape))
            if found is None:
                raise Missing(f"no throughput of {name} at {shape_text(shape)} is known")
            figures.append(Figure(_at(shape, _if_several(name, names)), found.kind, str(found)))
    return figures


# ---- Resources


def resource(
    run: Run, *, field: str, of: Names, over: Names | None = None, relation: str = "ratio"
) -> list[Figure]:
    """A figure of the build (registers, spill_bytes, shared_bytes, blocks_per_sm, instructions, ...).

    With `over` its `ratio` to, or `difference` from, that of another variant.
    """

    def value_of(name: str) -> float:
        value = run.build(name).get(field)
        if value is None:
            raise Missing(f"{field} of {name} isn't known")
        return value

    if over is None:
        return [Figure(f"for {name}", value_of(name)) for name in as_names(of)]
    figures = []
    compared = pairs(of, over)
    for new, old in compared:
        after, before = value_of(new), value_of(old)
        if relation == "ratio" and before == 0:
            raise Missing(f"{field} of {old} is 0")
        details = f"{old} {number(before)}, {new} {number(after)}"
        value = after / before if relation == "ratio" else after - before
        figures.append(Figure(f"for {new}" if len(compared) > 1 else "", value, details))
    return figures


def theoretical_occupancy(run: Run, *, field: str, of: Names, architectures: Sequence[str]) -> list[Figure]:
    """What an SM of each architecture can hold of a variant, with the registers of a build for that architecture where
    `snakemake static_evidence` was asked, else with those of the present build.

    `fraction` of its warps, `blocks`, `slots` (threads of one block over the threads of the SM), or `lanes` (threads
    of a block over the lanes of its warps, the same on every architecture).
    """
    figures = []
    for name in as_names(of):
        present = run.build(name)
        if present["registers"] is None or present.get("threads") is None:
            raise Missing(f"registers or threads of {name} aren't known")
        for architecture in architectures:
            compute_capability = architecture_number(architecture)
            native = run.native(name, architecture)
            entry = present | ({"registers": native["registers"]} if native else {})
            fit = occupancy(
                compute_capability,
                threads=entry["threads"],
                registers=entry["registers"],
                shared_bytes=entry["shared_bytes"] or 0,
                barriers=entry.get("barriers") or 0,
            )
            if fit is None:
                raise Missing(f"the limits of {architecture} aren't known")
            most = MULTIPROCESSORS[compute_capability].warps * _LANES
            compiled = f"; compiled for it, {native['registers']} registers" if native else ""
            # An occupancy that spilling paid for is no merit, so the figure doesn't stand without it.
            spills = (
                f", spilling {native['spill_bytes']:,} bytes," if native and native["spill_bytes"] else ""
            )
            value, details = {
                "fraction": (fit.fraction, f"limited by {fit.limit}{compiled}"),
                "blocks": (fit.blocks_per_sm, f"limited by {fit.limit}{compiled}"),
                "slots": (entry["threads"] / most, f"{entry['threads']} of {most} threads"),
                "lanes": (
                    entry["threads"] / (_LANES * cdiv(entry["threads"], _LANES)),
                    f"{entry['threads']} threads in {cdiv(entry['threads'], _LANES)} warps",
                ),
            }[field]
            figures.append(Figure(f"for {name}{spills} on {architecture}", value, details))
    return figures


def multiprocessor(run: Run, *, field: str, architecture: str) -> list[Figure]:
    """`shared_kib`: shared memory of an SM by NVIDIA's table of compute capabilities."""
    sm = MULTIPROCESSORS.get(architecture_number(architecture))
    if sm is None:
        raise Missing(f"the limits of {architecture} aren't known")
    return [Figure(f"on {architecture}", {"shared_kib": sm.shared_bytes / 1024}[field])]


def share_within(run: Run, *, field: str, least: float, most: float) -> list[Figure]:
    """The share of the kernels that use a resource at all whose use lies between `least` and `most`."""
    known = []
    for name, variant in run.catalogue.items():
        if variant.kind == "kernel":
            try:
                value = run.build(name).get(field)
            except Missing:
                continue
            known += [value] if value else []
    if not known:
        raise Missing(f"no kernel of this run has {field}")
    inside = [value for value in known if least <= value <= most]
    details = f"{len(inside)} of {len(known)} kernels; the median is {number(sorted(known)[len(known) // 2])}"
    return [Figure("", len(inside) / len(known), details)]


# ---- Checks, probes and what the driver refuses


def caught(run: Run, *, of: Sequence[str]) -> list[Figure]:
    """`caught` for each broken kernel that an executor caught and none passed, else `unnoticed`."""
    figures = []
    for name in of:
        run.variant(name)
        rows = [row for row in run.tables["broken"] if row["variant"] == name]
        decided = [row for row in rows if row["status"] in (status.OK, status.FAILED)]
        if not decided:
            why = "; ".join(f"{row['executor']} {row['status']}: {row['reason']}" for row in rows)
            raise Missing(f"{name} was not checked" + (f" ({why})" if why else ""))
        found = [row for row in decided if row["status"] == status.OK]
        details = "; ".join(
            f"{row['executor']}: {row['finding'] or row['caught_by'] or row['reason']}" for row in decided
        )
        verdict = "caught" if len(found) == len(decided) else "unnoticed"
        figures.append(Figure(f"for {name}" if len(of) > 1 else "", verdict, details))
    return figures


def probe(
    run: Run, *, of: Sequence[Any], over: Sequence[Any] | None = None, times: float = 1.0
) -> list[Figure]:
    """What a probe measured, times `times`; with `over` divided by what another did.

    A place is [probe, buffer, index], or [probe, buffer] for the sum over the buffer.
    """
    value = _probed(run, *of)
    if over is None:
        return [Figure("", times * value, f"by {of[0]}")]
    other = _probed(run, *over)
    if other == 0:
        raise Missing(f"{over[1]} of {over[0]} is 0")
    details = f"{of[1]} {number(value)}, {over[1]} {number(other)}"
    return [Figure("", times * value / other, details)]


def _probed(run: Run, name: str, buffer: str, index: int | None = None) -> float:
    values = run.probe(name)["values"].get(buffer)
    if values is None or (index is not None and index >= len(values)):
        raise Missing(f"{name} has no {buffer}" + ("" if index is None else f"[{index}]"))
    chosen = values if index is None else [values[index]]
    if any(value is None for value in chosen):
        raise Missing(f"{name} left {buffer} unwritten")
    return sum(chosen)


def refusal(run: Run, *, case: Names) -> list[Figure]:
    """The name of the driver's answer to something that it may refuse, by gemmlab.refusals."""
    answers = run.probe("refusals")["answers"]
    figures = []
    for name in as_names(case):
        if name not in answers:
            raise Missing(f"the case {name} was not tried")
        answer = answers[name]
        if answer["error"] is None:
            raise Missing(f"{name.replace('_', ' ')}: {answer['message']}")
        figures.append(Figure(f"for {name.replace('_', ' ')}", answer["error"], answer["message"]))
    return figures


def doctor_test(run: Run) -> list[Figure]:
    """What can't be tried on a machine that works: Missing, with what the doctor says where libraries don't match."""
    mismatch = doctor.Facts(cupy=doctor.CupyAnswer("14", runtime=13000, cublas=120900, loaded_cublas=(12,)))
    item = next(item for item in doctor.examine(mismatch) if item.name == "cuBLAS")
    raise Missing(
        "needs a libcublas that doesn't match, and gemmlab doesn't break an installation to have one; where it finds "
        f"one, gemmlab doctor calls it {item.state} ({item.finding})"
    )


def undecidable(run: Run, *, reason: str) -> list[Figure]:
    """Missing, always: for what no run on one machine can decide."""
    raise Missing(reason)


MEASURES: dict[str, Callable[..., list[Figure]]] = {
    "speed_up": speed_up,
    "speed": speed,
    "speed_ratio": speed_ratio,
    "fastest": fastest,
    "different_winners": different_winners,
    "swept": swept,
    "different_swept": different_swept,
    "baseline_kernels": baseline_kernels,
    "counter": counter,
    "warp_span": warp_span,
    "barriers": barriers,
    "wavefronts_without_conflicts": wavefronts_without_conflicts,
    "same_output": same_output,
    "limiter": find_limiter,
    "resource": resource,
    "occupancy": theoretical_occupancy,
    "multiprocessor": multiprocessor,
    "share_within": share_within,
    "caught": caught,
    "probe": probe,
    "refusal": refusal,
    "doctor": doctor_test,
    "undecidable": undecidable,
}
# These give one figure for all their shapes.
_TOGETHER = (different_winners, different_swept, baseline_kernels)


@dataclass(frozen=True)
class Part:
    """What a measurement found at one of its shapes (all of them, where they count together), or what it lacks."""

    figures: Sequence[Figure] = ()
    missing: str | None = None


def measure(run: Run, measurement: Mapping[str, Any]) -> list[Part]:
    """What a measurement of config/claims.yaml finds, in the order of its shapes.

    Raises:
        GemmlabError: there is no such measure, or it takes other parameters.
    """
    function, parameters = bind(measurement)
    parts = []
    for own in _by_shape(function, parameters):
        try:
            parts.append(Part(function(run, **own)))
        except Missing as missing:
            parts.append(Part(missing=str(missing)))
    return parts


def bind(measurement: Mapping[str, Any]) -> tuple[Callable[..., list[Figure]], dict[str, Any]]:
    """The function behind a measurement, and the parameters for it; raises GemmlabError where they don't fit."""
    parameters = {key: value for key, value in measurement.items() if key != "measure"}
    function = MEASURES.get(measurement["measure"])
    if function is None:
        raise GemmlabError(f"measure is {measurement['measure']}, expected one of {', '.join(MEASURES)}.")
    try:
        inspect.signature(function).bind(None, **parameters)
    except TypeError as error:
        raise GemmlabError(f"measure {measurement['measure']}: {error}.") from error
    return function, parameters


def _by_shape(
    function: Callable[..., list[Figure]], parameters: Mapping[str, Any]
) -> list[Mapping[str, Any]]:
    """The parameters for each shape alone, so that one which lacks something doesn't take the others along."""
    if "shapes" not in parameters or function in _TOGETHER or parameters.get("across"):
        return [parameters]
    return [{**parameters, "shapes": [shape]} for shape in parameters["shapes"]]

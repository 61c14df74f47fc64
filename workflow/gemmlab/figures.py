"""The figures: each function takes tables and gives a drawing, or a note that says why there is nothing to draw."""

from __future__ import annotations

import io
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator

from gemmlab import status
from gemmlab.catalogue import BASELINES, Variant
from gemmlab.files import write_bytes
from gemmlab.roofline import ceilings, points
from gemmlab.tables import Record, Row, Shape, ranked, shape_text

DPI = 150
WIDTH_INCHES = 10.0
HIGHLIGHTED_LINES = 10
# From this ratio of largest to smallest value on, a panel has a logarithmic axis, and points instead of bars.
LOG_FROM = 40.0
COLOURS = dict(
    zip(
        ("blue", "orange", "green", "red", "purple", "brown", "pink", "grey", "yellow", "cyan"),
        sns.color_palette("colorblind"),
        strict=True,
    )
)
_QUIET = "0.45"
_STYLE = {
    "font.size": 10,
    "axes.titlesize": 10.5,
    "axes.labelsize": 10,
    "axes.edgecolor": "0.6",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": "0.9",
    "xtick.color": "0.2",
    "ytick.color": "0.2",
    "svg.hashsalt": "gemmlab",
    "svg.fonttype": "path",
}
_COUNTER_PANELS = (
    ("l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum", "Global load requests"),
    ("l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum", "Global load sectors (32 bytes)"),
    ("l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum", "Shared load wavefronts"),
)
_LANES = 32
_UNLIMITED = "nothing: all can be resident"
_LIMIT_COLOURS = ("blue", "orange", "green", "purple", "brown", "pink", "cyan", "yellow")
_PREFERRED_COUNT_SHAPE = (128, 128, 128)


@dataclass(frozen=True)
class Drawing:
    """A figure with its caption, or a note that says why there is none."""

    name: str
    title: str
    caption: str
    figure: Figure | None = None
    note: str | None = None


def save(drawing: Drawing, folder: Path | None) -> dict[str, bytes]:
    """Write a drawing as NAME.png and NAME.svg into `folder`; gives their content by ending, nothing for a note.

    Without a folder only the SVG is made, and nothing written.

    The same figure gives the same bytes: no date, and a fixed salt for the ids of the SVG.
    """
    if drawing.figure is None:
        return {}
    contents = {}
    with matplotlib.rc_context(_STYLE):
        for ending, metadata in (("svg", {"Date": None}), ("png", {"Software": None})):
            if folder is None and ending == "png":
                continue
            buffer = io.BytesIO()
            drawing.figure.savefig(buffer, format=ending, dpi=DPI, metadata=metadata)
            contents[ending] = buffer.getvalue()
            if folder is not None:
                write_bytes(folder / f"{drawing.name}.{ending}", contents[ending])
    return contents


def run_drawings(tables: Mapping[str, pd.DataFrame], catalogue: Mapping[str, Variant]) -> list[Drawing]:
    """The figures that need no GPU: counts, errors and resources."""
    return [
        counts(tables["counters"], catalogue),
        errors(tables["checks"], catalogue),
        resources(tables["summary"], catalogue),
    ]


def timing_drawings(
    timings: pd.DataFrame, catalogue: Mapping[str, Variant], headline_shape: Shape, label: str = ""
) -> list[Drawing]:
    """The figures of a run with timings; `label` names the machine and date of a recorded one."""
    return [
        ladder(timings, catalogue, headline_shape, label),
        speed_by_size(timings, catalogue, label),
        speed_up(timings, catalogue, headline_shape, label),
        ratios(timings, catalogue, label),
    ]


def counts(counters: pd.DataFrame, catalogue: Mapping[str, Variant]) -> Drawing:
    """Requests, sectors and wavefronts of loads by variant, as the emulator counts them at one small shape."""
    about = {"name": "counts", "title": "Memory traffic of the loads"}
    counted = counters[
        counters["emulator"].notna() & counters["counter"].isin([name for name, _ in _COUNTER_PANELS])
    ]
    if counted.empty:
        note = "No variant was counted by the emulator: " + most_given_reason(counters)
        return Drawing(**about, caption="", note=note)
    shapes = list(dict.fromkeys(counted[["m", "n", "k"]].astype(int).itertuples(index=False, name=None)))
    shape = _PREFERRED_COUNT_SHAPE if _PREFERRED_COUNT_SHAPE in shapes else max(shapes, key=math.prod)
    here = counted[(counted[["m", "n", "k"]] == list(shape)).all(axis=1)]
    per_unit = here["emulator"] / (math.prod(shape) / _LANES)
    wide = here.assign(value=per_unit).pivot_table(index="variant", columns="counter", values="value")
    names = [name for name in catalogue if name in wide.index]
    figure, panels = _row_panels(about["title"], len(names), len(_COUNTER_PANELS))
    for axes, (counter, title), colour in zip(
        panels, _COUNTER_PANELS, ("blue", "orange", "green"), strict=True
    ):
        values = wide[counter].reindex(names) if counter in wide else pd.Series(np.nan, index=names)
        _bars(axes, values, COLOURS[colour], missing="not counted")
        axes.set_title(title, loc="left")
        axes.set_xlabel("count per 32 multiply-adds")
    _variant_labels(panels[0], names)
    left_out = [
        name for name, variant in catalogue.items() if variant.kind == "kernel" and name not in wide.index
    ]
    caption = (
        f"What a warp asks of the memory system for 32 multiply-adds at {shape_text(shape)}, counted exactly by the "
        "emulator; shorter is better. A logarithmic axis shows points, since a bar's length would mean nothing there."
        + (f" Not counted: {', '.join(left_out)}." if left_out else "")
    )
    return Drawing(**about, caption=caption, figure=figure)


def errors(checks: pd.DataFrame, catalogue: Mapping[str, Variant]) -> Drawing:
    """The largest error of each variant over its bound, by executor."""
    about = {"name": "errors", "title": "Largest error as a fraction of its bound"}
    known = checks[checks["worst_fraction_of_bound"].notna()]
    if known.empty:
        return Drawing(
            **about, caption="", note="No check got as far as an error: " + most_given_reason(checks)
        )
    names = [name for name in catalogue if name in set(known["variant"])]
    figure, (axes,) = _row_panels(about["title"], len(names), 1)
    looks = {"emulator": ("o", COLOURS["blue"]), "cuda": ("D", COLOURS["orange"])}
    values = known["worst_fraction_of_bound"].astype(float)
    log = values[values > 0].max() / values[values > 0].min() > LOG_FROM if (values > 0).any() else False
    present = [executor for executor in looks if executor in set(known["executor"])]
    for number, executor in enumerate(present):
        marker, colour = looks[executor]
        rows = (
            known[known["executor"] == executor].set_index("variant")["worst_fraction_of_bound"].astype(float)
        )
        shift = (number - (len(present) - 1) / 2) * 0.3
        positions = [names.index(name) + shift for name in rows.index]
        axes.scatter(rows, positions, marker=marker, color=colour, s=34, label=executor, zorder=3)
    axes.axvline(1.0, color=COLOURS["red"], linewidth=1.5)
    axes.annotate(
        "bound",
        (1.0, 1.0),
        xycoords=("data", "axes fraction"),
        xytext=(4, 2),
        textcoords="offset points",
        color=COLOURS["red"],
        fontsize=9,
    )
    if log:
        axes.set_xscale("log")
        _plain_ticks(axes)
    else:
        axes.set_xlim(0, max(1.15, 1.08 * values.max()))
    axes.set_xlabel("largest error over its bound (no unit); right of 1 the check fails")
    _variant_labels(axes, names)
    axes.legend(title="executor", loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
    caption = (
        "The largest error that any element showed in any random shape, divided by Higham's bound for that element: "
        "left of the line every element was within its bound. How near a variant comes to it says how it sums."
    )
    return Drawing(**about, caption=caption, figure=figure)


def resources(summary: pd.DataFrame, catalogue: Mapping[str, Variant]) -> Drawing:
    """Registers, with spills marked, and theoretical occupancy with what limits it."""
    about = {"name": "resources", "title": "Registers and occupancy"}
    known = summary[summary["registers"].notna() & (summary["kind"] != "probe")].set_index("variant")
    if known.empty:
        return Drawing(**about, caption="", note="No variant was compiled: " + most_given_reason(summary))
    names = [name for name in catalogue if name in known.index]
    known = known.loc[names]
    figure, (left, right) = _row_panels(about["title"], len(names), 2, bottom=0.6)
    _bars(left, known["registers"], COLOURS["grey"], linear=True)
    for position, (registers, spilled) in enumerate(
        zip(known["registers"], known["spill_bytes"], strict=True)
    ):
        if pd.notna(spilled) and spilled > 0:
            left.annotate(
                f"spills {int(spilled)} B",
                (registers, position),
                xytext=(30, 0),
                textcoords="offset points",
                va="center",
                fontsize=8.5,
                color=COLOURS["red"],
            )
    left.set_xlim(0, 380 if (known["spill_bytes"].fillna(0) > 0).any() else 300)
    left.set_xticks(range(0, 257, 64))
    left.set_title("Registers", loc="left")
    left.set_xlabel("registers per thread")
    limits = known["occupancy_limit"].fillna("not known").mask(known["occupancy"] >= 1.0, _UNLIMITED)
    told_apart = [limit for limit in dict.fromkeys(limits) if limit != _UNLIMITED]
    colour_of = dict(zip(told_apart, (COLOURS[name] for name in _LIMIT_COLOURS), strict=False))
    colour_of[_UNLIMITED] = "0.7"
    _bars(right, 100.0 * known["occupancy"], [colour_of.get(limit, _QUIET) for limit in limits], linear=True)
    right.set_xlim(0, 118)
    right.set_xticks(range(0, 101, 25))
    right.set_title("Theoretical occupancy", loc="left")
    right.set_xlabel("resident warps, % of the most")
    handles = [
        Patch(color=colour, label=limit) for limit, colour in colour_of.items() if limit in set(limits)
    ]
    figure.legend(
        handles=handles, title="occupancy limited by", loc="outside lower center", ncols=4, frameon=False
    )
    _variant_labels(left, names)
    caption = (
        "Registers of the launch that takes most of them, and how many of an SM's warps can be resident beside each "
        "other. The colour says which resource ends it; few warps are no fault where each of them has enough to do."
    )
    return Drawing(**about, caption=caption, figure=figure)


def ladder(
    timings: pd.DataFrame, catalogue: Mapping[str, Variant], headline_shape: Shape, label: str = ""
) -> Drawing:
    """Per cent of the baseline and of the peak at the headline shape, with intervals."""
    about = {"name": "ladder", "title": _titled(f"The ladder at {shape_text(headline_shape)}", label)}
    here = _at(timings, headline_shape)
    if here.empty:
        return Drawing(**about, caption="", note=_no_timings(timings, f"at {shape_text(headline_shape)}"))
    here = here.set_index("variant")
    names = [name for name in catalogue if name in here.index]
    here = here.loc[names]
    own_baseline = np.array([BASELINES.get(catalogue[name].arithmetic) == name for name in names])
    here["ratio"] = here["ratio"].astype(float).mask(here["ratio"].isna() & own_baseline, 1.0)
    with_ratio = (here["ratio"].notna() & ~own_baseline).any()
    figure, panels = _row_panels(about["title"], len(names), 2 if with_ratio else 1)
    if with_ratio:
        axes = panels[0]
        ratios_percent = 100.0 * here[["ratio", "ratio_low", "ratio_high"]].astype(float)
        _bars(axes, ratios_percent["ratio"], COLOURS["blue"], linear=True, missing="no baseline")
        _intervals(axes, *(ratios_percent[column] for column in ("ratio", "ratio_low", "ratio_high")))
        axes.axvline(100.0, color=COLOURS["red"], linewidth=1.2, zorder=3)
        axes.set_title("Against the baseline of the same arithmetic", loc="left")
        axes.set_xlabel("speed, % of cuBLAS")
    axes = panels[-1]
    peak = here["percent_of_peak"].astype(float)
    slow, fast = (peak * here["time_ms_median"] / here[column] for column in ("time_ms_high", "time_ms_low"))
    _bars(axes, peak, COLOURS["orange"], linear=True, missing="peak not known")
    _intervals(axes, peak, slow, fast)
    axes.set_title("Against the peak of the arithmetic", loc="left")
    axes.set_xlabel("speed, % of peak")
    _variant_labels(panels[0], names)
    caption = (
        "Cold cache. Left: the median ratio to the baseline timed in the same process (the red line is as fast as "
        "that), right: the share of the card's peak; thin lines are 95 % intervals. Longer is better."
    )
    return Drawing(**about, caption=caption, figure=figure)


def speed_by_size(timings: pd.DataFrame, catalogue: Mapping[str, Variant], label: str = "") -> Drawing:
    """TFLOP/s against the edge of square problems; the fastest lines in colour, the others grey."""
    about = {"name": "speed_by_size", "title": _titled("Speed against size", label)}
    rows = ranked(timings)
    square = rows[(rows["m"] == rows["n"]) & (rows["n"] == rows["k"]) & (rows["cache"] == "cold")]
    square = square[square["tflops"].notna() & square["variant"].isin(list(catalogue))]
    sizes = sorted(square["m"].astype(int).unique())
    if len(sizes) < 2:
        return Drawing(**about, caption="", note=_no_timings(timings, "at two square sizes or more"))
    chosen = _highlighted(square, catalogue)
    with sns.axes_style("whitegrid", rc=_STYLE), matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(WIDTH_INCHES, 5.2), layout="constrained")
        axes = figure.add_subplot()
    _title(figure, about["title"])
    others = 0
    styles = _line_styles(chosen, catalogue)
    for name, lines in square.groupby("variant", sort=False):
        lines = lines.sort_values("m")
        if name not in chosen:
            axes.plot(lines["m"], lines["tflops"], color="0.82", linewidth=1.0, zorder=1)
            others += 1
    for name in chosen:
        lines = square[square["variant"] == name].sort_values("m")
        colour, marker = styles[name]
        dashes = "--" if catalogue[name].kind == "baseline" else "-"
        axes.plot(
            lines["m"],
            lines["tflops"],
            dashes,
            color=colour,
            marker=marker,
            markersize=5,
            label=name,
            zorder=3,
        )
        low, high = (
            lines["tflops"] * lines["time_ms_median"] / lines[column]
            for column in ("time_ms_high", "time_ms_low")
        )
        axes.fill_between(lines["m"], low, high, color=colour, alpha=0.2, linewidth=0, zorder=2)
    if others:
        axes.plot([], [], color="0.82", linewidth=1.0, label=f"{others} others")
    axes.set_xscale("log", base=2)
    axes.set_xticks(sizes, [str(size) for size in sizes], rotation=45 if len(sizes) > 8 else 0)
    axes.xaxis.set_minor_locator(NullLocator())
    # FP32 and tensor cores lie a factor of fifteen apart.
    axes.set_yscale("log")
    _plain_log_speeds(axes)
    axes.set_xlabel("M = N = K")
    axes.set_ylabel("TFLOP/s, cold cache")
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
    caption = (
        f"Higher is better; bands are 95 % intervals, dashed lines are baselines. In colour, {HIGHLIGHTED_LINES} at "
        "most: the fastest variant of each kernel file at the largest size; dark: baselines and the first kernel."
    )
    return Drawing(**about, caption=caption, figure=figure)


def speed_up(
    timings: pd.DataFrame, catalogue: Mapping[str, Variant], headline_shape: Shape, label: str = ""
) -> Drawing:
    """How many times as fast as the naive kernel each variant is at the headline shape."""
    about = {
        "name": "speed_up",
        "title": _titled(f"Speed-up over naive at {shape_text(headline_shape)}", label),
    }
    here = _at(timings, headline_shape).set_index("variant")
    here = here.loc[[name for name in catalogue if name in here.index]]
    if here.empty:
        return Drawing(**about, caption="", note=_no_timings(timings, f"at {shape_text(headline_shape)}"))
    naive = next((name for name, variant in catalogue.items() if "S1" in variant.articles), None)
    if naive not in here.index:
        known = f"{naive} was not timed" if naive else "the catalogue has no kernel of the articles' row S1"
        return Drawing(**about, caption="", note=f"No speed-up at {shape_text(headline_shape)}: {known}.")
    if len(here) < 2:
        return Drawing(**about, caption="", note="Only one variant was timed: nothing to compare it with.")
    own = here.loc[naive]
    gain = own["time_ms_median"] / here["time_ms_median"]
    figure, (axes,) = _row_panels(about["title"], len(here), 1)
    _bars(axes, gain.astype(float), COLOURS["green"])
    low, high = own["time_ms_low"] / here["time_ms_high"], own["time_ms_high"] / here["time_ms_low"]
    low[naive] = high[naive] = np.nan
    _intervals(axes, gain, low, high)
    axes.set_xlabel(f"times as fast as {naive}, cold cache")
    _variant_labels(axes, list(here.index))
    caption = (
        f"Time of {naive} over the variant's time, with the widest range that both 95 % intervals allow. "
        f"{naive} itself stands at 1."
    )
    return Drawing(**about, caption=caption, figure=figure)


def ratios(timings: pd.DataFrame, catalogue: Mapping[str, Variant], label: str = "") -> Drawing:
    """A map of the ratio to the baseline: variants down, shapes across."""
    about = {"name": "ratios", "title": _titled("Speed against the baseline, by shape", label)}
    rows = ranked(timings)
    rows = rows[(rows["cache"] == "cold") & rows["ratio"].notna() & rows["variant"].isin(list(catalogue))]
    rows = rows[rows["variant"].map(lambda name: catalogue[name].kind) != "baseline"]
    if rows.empty:
        return Drawing(**about, caption="", note=_no_timings(timings, "beside a baseline"))
    shapes = sorted(
        set(rows[["m", "n", "k"]].astype(int).itertuples(index=False, name=None)),
        key=lambda shape: (len(set(shape)) > 1, math.prod(shape)),
    )
    columns = [shape_text(shape) for shape in shapes]
    wide = rows.assign(shape=[shape_text(shape) for shape in rows[["m", "n", "k"]].to_numpy()]).pivot_table(
        index="variant", columns="shape", values="ratio"
    )
    names = [name for name in catalogue if name in wide.index]
    wide = wide.reindex(index=names, columns=columns).astype(float)
    figure, (axes,) = _row_panels(about["title"], len(names), 1, bottom=0.5 if len(columns) > 6 else 0.0)
    limit = 3.0
    sns.heatmap(
        np.log2(wide),
        annot=wide.map(lambda ratio: "" if math.isnan(ratio) else f"{ratio:.2f}"),
        fmt="",
        cmap="PuOr_r",
        center=0.0,
        vmin=-limit,
        vmax=limit,
        linewidths=0.5,
        annot_kws={"fontsize": 8.5 if len(columns) <= 10 else 7},
        cbar_kws={"label": "ratio", "ticks": range(-3, 4), "aspect": 30, "pad": 0.02},
        ax=axes,
    )
    colour_bar = axes.collections[0].colorbar
    colour_bar.ax.set_yticklabels(["1/8", "1/4", "1/2", "1", "2", "4", "8"])
    colour_bar.outline.set_visible(False)
    axes.grid(False)
    axes.set_facecolor("0.94")
    axes.set_xticklabels(
        columns, rotation=45 if len(columns) > 6 else 0, ha="right" if len(columns) > 6 else "center"
    )
    axes.set_yticklabels(names, rotation=0)
    axes.set_xlabel("M x N x K")
    axes.set_ylabel("")
    axes.tick_params(length=0)
    caption = (
        "Ratio to the baseline timed in the same process, cold cache: over 1 (orange) is faster, under 1 (purple) "
        "slower, grey was not timed. Colours end at 8 times; the numbers don't."
    )
    return Drawing(**about, caption=caption, figure=figure)


def roofline(
    timings: Sequence[Row],
    counters: Sequence[Row],
    probes: Mapping[str, Record],
    catalogue: Mapping[str, Variant],
    shape: Shape,
) -> Drawing:
    """Speed against FLOPs for each byte, under ceilings that the probes measured; see gemmlab.roofline."""
    about = {"name": "roofline", "title": f"Roofline at {shape_text(shape)}, FP32"}
    limits = ceilings(probes, timings)
    if isinstance(limits, str):
        return Drawing(**about, caption="", note=f"No ceilings measured on this device: {limits}")
    found = points(timings, counters, catalogue, shape)
    if not found:
        return Drawing(**about, caption="", note="No FP32 variant was both timed and profiled at this shape.")
    with sns.axes_style("whitegrid", rc=_STYLE), matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(WIDTH_INCHES, 5.0), layout="constrained")
        panels = figure.subplots(1, 2, sharey=True)
    _title(figure, about["title"])
    by_speed = sorted(found, key=lambda point: -point.tflops)
    sources = [catalogue[point.variant].source or point.variant for point in by_speed]
    chosen = [point.variant for i, point in enumerate(by_speed) if sources[i] not in sources[:i]]
    styles = _line_styles(chosen[:HIGHLIGHTED_LINES], catalogue)
    for axes, bandwidth, intensity, title in (
        (panels[0], limits.dram_tb_per_s, "dram_intensity", "Device memory"),
        (panels[1], limits.shared_tb_per_s, "l1_intensity", "L1 and shared memory"),
    ):
        known = [point for point in by_speed if getattr(point, intensity)]
        ridge = limits.tflops / bandwidth
        ends = [getattr(point, intensity) for point in known] + [ridge]
        least, most = min(ends) / 3, max(ends) * 3
        axes.plot(
            [least, ridge, most], [bandwidth * least, limits.tflops, limits.tflops], color="0.3", zorder=2
        )
        for point in reversed(known):
            colour, marker = styles.get(point.variant, ("0.8", "."))
            axes.scatter(getattr(point, intensity), point.tflops, color=colour, marker=marker, s=36, zorder=3)
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_title(f"{title}: {bandwidth:.3g} TB/s", loc="left")
        axes.set_xlabel("FLOP for each byte")
        _plain_ticks(axes)
    panels[0].set_ylabel("TFLOP/s, cold cache")
    _plain_log_speeds(panels[0])
    for name, (colour, marker) in styles.items():
        panels[1].scatter([], [], color=colour, marker=marker, s=36, label=name)
    panels[1].legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
    caption = (
        f"Bytes as Nsight Compute counts them; ceilings ({limits.tflops:.3g} TFLOP/s) as the probes measured them, at "
        f"the {limits.clock_mhz:.0f} MHz of the timings. A point on the slope is limited by the bytes, one under the "
        "flat part by arithmetic, one far below both by neither. In colour the fastest variant of each kernel file."
    )
    return Drawing(**about, caption=caption, figure=figure)


def _plain_log_speeds(axes: Axes) -> None:
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())


def _row_panels(title: str, rows: int, panels: int, bottom: float = 0.0) -> tuple[Figure, list[Axes]]:
    """A figure with `panels` side by side that share `rows` rows, the first row on top."""
    height = 1.45 + 0.235 * max(rows, 3) + bottom
    with sns.axes_style("whitegrid", rc=_STYLE), matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(WIDTH_INCHES, height), layout="constrained")
        axes = figure.subplots(1, panels, sharey=True, squeeze=False)[0]
    figure.get_layout_engine().set(wspace=0.05)
    for panel in axes:
        panel.grid(False, axis="y")
        panel.spines["left"].set_visible(False)
    _title(figure, title)
    return figure, list(axes)


def _title(figure: Figure, title: str) -> None:
    figure.suptitle(title, x=0.01, horizontalalignment="left", fontsize=12, fontweight="bold")


def _variant_labels(axes: Axes, names: Sequence[str]) -> None:
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)


def _bars(
    axes: Axes,
    values: pd.Series,
    colour: object | Sequence[object],
    *,
    linear: bool = False,
    missing: str = "not known",
) -> None:
    """Horizontal bars with their values beside them; points on a logarithmic axis where the values differ much."""
    values = values.astype(float)
    positive = values[values > 0]
    log = not linear and len(positive) > 1 and positive.max() / positive.min() > LOG_FROM
    positions = np.arange(len(values))
    if log:
        least, most = positive.min() / 2, positive.max() * 4
        axes.set_xscale("log")
        axes.set_xlim(least, most)
        axes.hlines(positions, least, values.clip(lower=least), color="0.85", linewidth=1.2, zorder=1)
        axes.scatter(values.where(values > 0), positions, color=colour, s=34, zorder=3)
        _plain_ticks(axes)
    else:
        axes.barh(positions, values.fillna(0.0), color=colour, height=0.68, zorder=2)
        axes.set_xlim(0, 1.22 * positive.max() if len(positive) else 1.0)
    left = axes.get_xlim()[0]
    for position, value in zip(positions, values, strict=True):
        text = missing if math.isnan(value) else f"{value:.3g}" if value < 1000 else f"{value:.0f}"
        axes.annotate(
            text,
            (left if math.isnan(value) else max(value, left), position),
            xytext=(5, 0),
            textcoords="offset points",
            va="center",
            fontsize=8.5,
            color=_QUIET,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.0},
            zorder=4,
        )


def _intervals(axes: Axes, middle: pd.Series, low: pd.Series, high: pd.Series) -> None:
    """Thin lines from `low` to `high` at each row; rows without an interval get none. Values move right of them."""
    middle, low, high = (series.astype(float) for series in (middle, low, high))
    positions = np.arange(len(middle))
    known = low.notna() & high.notna()
    axes.hlines(positions[known], low[known], high[known], color="0.15", linewidth=1.4, zorder=4)
    for text, end in zip(axes.texts, high.where(known, middle), strict=True):
        if not math.isnan(end):
            text.xy = (end, text.xy[1])


def _plain_ticks(axes: Axes) -> None:
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_formatter(FuncFormatter(lambda value, _: ""))


def _highlighted(square: pd.DataFrame, catalogue: Mapping[str, Variant]) -> list[str]:
    """The lines that are told apart, the fastest at the largest size first."""
    largest = (
        square.sort_values("m").groupby("variant", sort=False)["tflops"].last().sort_values(ascending=False)
    )
    present = [name for name in catalogue if name in largest.index]
    chosen = [name for name in present if catalogue[name].kind == "kernel"][:1]
    chosen += [name for name in present if catalogue[name].kind == "baseline"][:3]
    others = [name for name in largest.index if name not in chosen]
    sources = [catalogue[name].source for name in others]
    best_of_file = [name for i, name in enumerate(others) if sources[i] not in sources[:i]]
    chosen += list(dict.fromkeys(best_of_file + others))[: HIGHLIGHTED_LINES - len(chosen)]
    return [name for name in largest.index if name in chosen]


def _line_styles(names: Sequence[str], catalogue: Mapping[str, Variant]) -> dict[str, tuple[object, str]]:
    """Colour and marker by name: dark for baselines and the first kernel, colours for the others."""
    first = next((name for name in catalogue if name in names and catalogue[name].kind == "kernel"), None)
    dark = itertools.cycle([("0.1", ">"), ("0.3", "<"), ("0.5", "h"), ("0.2", "8"), ("0.4", "H")])
    colours = ("blue", "orange", "green", "red", "pink", "brown", "purple", "cyan", "grey", "yellow")
    bright = itertools.cycle(
        [(COLOURS[colour], marker) for colour, marker in zip(colours, "osD^vPX*dp", strict=True)]
    )
    styles: dict[str, tuple[object, str]] = {}
    for name in names:
        if name == first:
            styles[name] = ("0.45", "o")
        else:
            styles[name] = next(dark if catalogue[name].kind == "baseline" else bright)
    return styles


def _at(timings: pd.DataFrame, shape: Shape) -> pd.DataFrame:
    rows = ranked(timings)
    here = rows[(rows[["m", "n", "k"]] == list(shape)).all(axis=1) & (rows["cache"] == "cold")]
    return here.drop_duplicates("variant")


def _no_timings(timings: pd.DataFrame, where: str) -> str:
    return f"No time {where} that may be ranked: {most_given_reason(timings)}"


def most_given_reason(table: pd.DataFrame) -> str:
    """The reason most often given in a table, as a sentence."""
    reasons = (
        table.loc[table["status"] != status.OK, "reason"].dropna() if len(table) else pd.Series(dtype=object)
    )
    if reasons.empty:
        return "there are no such rows."
    return f"{reasons.value_counts().index[0].rstrip('.')}."


def _titled(title: str, label: str) -> str:
    return f"{title} ({label})" if label else title

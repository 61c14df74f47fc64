"""The sweep's figure: a panel for each size, every configuration's speed by its tile, the fastest marked."""

from __future__ import annotations

import matplotlib
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gemmlab import status
from gemmlab.figures import _STYLE, COLOURS, WIDTH_INCHES, Drawing

_PANEL_INCHES = 2.6
_LEGEND = {"patch": "outputs a thread", "depth": "step BK"}


def sweep_drawing(table: pd.DataFrame) -> Drawing:
    """The figure of a sweep.

    Args:
        table: tune.csv.
    """
    about = {"name": "tune", "title": "Sweep of the 2D block tile"}
    timed = table[table["status"] == status.OK]
    if timed.empty:
        reasons = table["reason"].dropna()
        note = "No configuration was timed" + (f": {reasons.iloc[0]}" if len(reasons) else "") + "."
        return Drawing(**about, caption="", note=note)
    timed = timed.assign(
        tile=timed["BM"].astype(int).astype(str) + "x" + timed["BN"].astype(int).astype(str),
        patch=timed["TM"].astype(int).astype(str) + "x" + timed["TN"].astype(int).astype(str),
        depth=timed["BK"].astype(int),
    )
    timed = timed.sort_values(["BM", "BN", "TM", "TN", "BK"])
    sizes = sorted(timed["m"].unique())
    with sns.axes_style("whitegrid", rc=_STYLE), matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(WIDTH_INCHES, 0.9 + _PANEL_INCHES * len(sizes)), layout="constrained")
        panels = figure.subplots(len(sizes), 1, squeeze=False)[:, 0]
        for axes, size in zip(panels, sizes, strict=True):
            _panel(axes, timed[timed["m"] == size], timed, int(size), legend=size == sizes[0])
        panels[-1].set_xlabel("tile of a block, BM x BN")
        gpus = [str(gpu) for gpu in timed["gpu"].dropna().unique()]
        figure.suptitle(", ".join([about["title"], *gpus]), x=0.01, ha="left", fontsize=12)
    untimed = len(table) - len(timed)
    caption = (
        "Each point is one legal configuration, timed with a warm cache: colour is the patch of outputs of a thread, "
        "the marker the depth BK of a step, which is unrolled as a whole. The ring marks the fastest of its size."
        + (" The dashed line is cuBLAS, timed the same way." if timed["baseline_ms"].notna().any() else "")
        + (f" Without a time: {untimed} of {len(table)}; tune.csv says why." if untimed else "")
    )
    return Drawing(**about, caption=caption, figure=figure)


def _panel(axes: Axes, here: pd.DataFrame, everything: pd.DataFrame, size: int, legend: bool) -> None:
    tiles = list(dict.fromkeys(everything["tile"]))
    patches = list(dict.fromkeys(everything.sort_values("TM")["patch"]))
    colours = dict(zip(patches, list(COLOURS.values()) * len(patches), strict=False))
    here = here.assign(place=[tiles.index(tile) for tile in here["tile"]])
    # Patches of one tile stand beside each other.
    here["place"] += (here["patch"].map(patches.index) - (len(patches) - 1) / 2) * 0.7 / max(len(patches), 1)
    sns.scatterplot(
        here,
        x="place",
        y="tflops",
        hue="patch",
        hue_order=patches,
        palette=colours,
        style="depth",
        style_order=sorted(everything["depth"].unique()),
        s=42,
        legend="brief" if legend else False,
        ax=axes,
    )
    best = here[here["best"].astype(bool)]
    axes.scatter(best["place"], best["tflops"], s=170, facecolors="none", edgecolors="0.1", linewidths=1.6)
    for row in best.itertuples():
        axes.annotate(
            f"{row.tile}x{row.depth}, {row.patch}: {row.tflops:.1f}",
            (row.place, row.tflops),
            xytext=(0, 10),
            textcoords="offset points",
            ha="right" if row.place > (len(tiles) - 1) / 2 else "left",
            fontsize=8.5,
        )
    highest = here["tflops"].max()
    baseline = here["baseline_ms"].dropna()
    if len(baseline):
        speed = 2 * size**3 / (float(baseline.iloc[0]) * 1e9)
        axes.axhline(speed, color=COLOURS["grey"], linestyle="--", linewidth=1.2, label="cuBLAS")
        highest = max(highest, speed)
    if legend:
        shown = axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False, fontsize=8.5)
        for text in shown.get_texts():
            text.set_text(_LEGEND.get(text.get_text(), text.get_text()))
    axes.set_ylim(0, 1.25 * highest)
    axes.set_xlim(-0.6, len(tiles) - 0.4)
    axes.set_xticks(range(len(tiles)), tiles)
    axes.set_title(f"{size}x{size}x{size}", loc="left")
    axes.set_xlabel("")
    axes.set_ylabel("TFLOP/s")

from __future__ import annotations

import itertools

import pandas as pd
import publish_cases as cases
import pytest

from gemmlab import figures
from gemmlab.schema import write_table


def read(results, catalogue):
    cases.write_tables(results, catalogue)
    return cases.read_tables(results)


@pytest.fixture(scope="module")
def large_catalogue():
    return cases.large_catalogue(40)


@pytest.fixture(scope="module")
def large(tmp_path_factory, large_catalogue):
    folder = tmp_path_factory.mktemp("large")
    return read(cases.write_run(folder, large_catalogue, gpu=True), large_catalogue)


@pytest.fixture(scope="module")
def small_catalogue():
    return cases.small_catalogue()


@pytest.fixture(scope="module")
def small(tmp_path_factory, small_catalogue):
    folder = tmp_path_factory.mktemp("small")
    cases.write_small_run(folder, gpu=True)
    return cases.read_tables(folder)


def all_drawings(tables, catalogue):
    timed = figures.timing_drawings(tables["timings"], catalogue, cases.HEADLINE)
    return {drawing.name: drawing for drawing in figures.run_drawings(tables, catalogue) + timed}


def boxes(texts):
    return [text.get_window_extent() for text in texts if text.get_visible() and text.get_text()]


def test_a_run_on_a_gpu_draws_everything_with_captions_and_units(small, small_catalogue):
    drawings = all_drawings(small, small_catalogue)
    assert list(drawings) == [
        "counts",
        "errors",
        "resources",
        "ladder",
        "speed_by_size",
        "speed_up",
        "ratios",
    ]
    for drawing in drawings.values():
        assert drawing.figure is not None, drawing.note
        assert len(drawing.caption) > 60
        for axes in drawing.figure.axes[: 1 if drawing.name == "ratios" else None]:
            assert axes.get_xlabel()


def test_forty_variants_have_labels_that_do_not_overlap(large, large_catalogue):
    for drawing in all_drawings(large, large_catalogue).values():
        figure = drawing.figure
        figure.draw_without_rendering()
        for axes in figure.axes:
            for labels in (axes.get_xticklabels(), axes.get_yticklabels()):
                for one, other in itertools.pairwise(boxes(labels)):
                    assert not one.overlaps(other), (drawing.name, axes.get_title())
        names = [label.get_text() for label in figure.axes[0].get_yticklabels()]
        if drawing.name != "speed_by_size":
            assert len(names) >= 40, drawing.name


def test_variants_stand_in_the_catalogue_s_order_from_top_to_bottom(small, small_catalogue):
    axes = figures.counts(small["counters"], small_catalogue).figure.axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == [
        "naive",
        "tile16",
        "tile32",
        "register4x4",
        "wrong_result",
    ]
    low, high = axes.get_ylim()
    assert low > high


def test_counts_are_per_warp_of_multiply_adds(small, small_catalogue):
    axes = figures.counts(small["counters"], small_catalogue).figure.axes[0]
    assert axes.patches[0].get_width() == pytest.approx(1.0)


def test_widely_spread_counts_get_a_logarithmic_axis_and_points(large, large_catalogue):
    requests, sectors, _ = figures.counts(large["counters"], large_catalogue).figure.axes
    assert requests.get_xscale() == "linear"
    assert sectors.get_xscale() == "log"
    assert not sectors.patches


def test_the_error_figure_shows_the_bound_and_both_executors(small, small_catalogue):
    axes = figures.errors(small["checks"], small_catalogue).figure.axes[0]
    assert 1.0 in [line.get_xdata()[0] for line in axes.lines]
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["emulator", "cuda"]
    assert axes.get_xlim()[1] > 3.7


def test_spills_are_marked(large, large_catalogue):
    axes = figures.resources(large["summary"], large_catalogue).figure.axes[0]
    assert sum(text.get_text() == "spills 112 B" for text in axes.texts) == sum(
        large["summary"]["spill_bytes"] > 0
    )


def test_the_ladder_has_intervals_and_the_baseline_at_a_hundred(small, small_catalogue):
    axes = figures.ladder(small["timings"], small_catalogue, cases.HEADLINE).figure.axes[0]
    assert axes.patches[0].get_width() == 100.0
    segments = axes.collections[0].get_segments()
    assert len(segments) == 5  # every variant but the baseline
    for (start, _), (end, _) in segments:
        assert start < end


def test_at_most_ten_lines_are_told_apart(large, large_catalogue):
    axes = figures.speed_by_size(large["timings"], large_catalogue).figure.axes[0]
    labels = [text.get_text() for text in axes.get_legend().get_texts()]
    assert len(labels) == figures.HIGHLIGHTED_LINES + 1
    assert labels[-1] == "31 others"
    assert {"cublas_fp32", "naive_00"} <= set(labels)


def test_a_recorded_run_is_labelled(small, small_catalogue):
    drawing = figures.ladder(small["timings"], small_catalogue, cases.HEADLINE, "Synthetic GPU, 2026-11-29")
    assert drawing.title == "The ladder at 4096^3 (Synthetic GPU, 2026-11-29)"
    assert drawing.figure.get_suptitle() == drawing.title


def test_rows_that_are_not_ranked_are_not_drawn(tmp_path, small_catalogue):
    cases.write_small_run(tmp_path, gpu=True)
    write_table(
        tmp_path / "bench" / "tile16.csv", cases.timings("tile16", 90.0, flags="implausible"), "timings"
    )
    tables = read(tmp_path, small_catalogue)
    axes = figures.ladder(tables["timings"], small_catalogue, cases.HEADLINE).figure.axes[0]
    assert "tile16" not in [label.get_text() for label in axes.get_yticklabels()]


def test_without_a_gpu_the_timing_figures_are_notes_that_say_why(tmp_path, small_catalogue):
    cases.write_small_run(tmp_path, gpu=False)
    tables = cases.read_tables(tmp_path)
    for drawing in figures.timing_drawings(tables["timings"], small_catalogue, cases.HEADLINE):
        assert drawing.figure is None
        assert "this run has no GPU" in drawing.note


def test_a_run_of_failures_alone_gives_notes(tmp_path):
    catalogue = {"a": cases.kernel("a"), "b": cases.kernel("b")}
    for name in catalogue:
        cases.write_record(
            tmp_path / "build" / f"{name}.json", cases.build_record(name, failed=True), "compile"
        )
        skipped = {"variant": name, "status": "skipped", "reason": "compile failed", "executor": "emulator"}
        cases.write_record(tmp_path / "check" / "emulator" / f"{name}.json", skipped, "check")
    for drawing in all_drawings(read(tmp_path, catalogue), catalogue).values():
        assert drawing.figure is None
        assert drawing.note.endswith(".")


def test_one_variant_is_drawn_where_there_is_something_to_compare(tmp_path):
    catalogue = {"naive": cases.kernel("naive", articles=("S1",))}
    drawings = all_drawings(read(cases.write_run(tmp_path, catalogue, gpu=True), catalogue), catalogue)
    assert drawings["speed_up"].note == "Only one variant was timed: nothing to compare it with."
    assert all(drawing.figure is not None for name, drawing in drawings.items() if name != "speed_up")


def test_without_a_baseline_the_peak_is_still_shown(tmp_path):
    catalogue = {"a": cases.kernel("a"), "b": cases.kernel("b")}
    cases.write_run(tmp_path, catalogue, gpu=True)
    for name in catalogue:
        rows = cases.timings(name, 20.0, ratio=None, ratio_low=None, ratio_high=None, baseline=None)
        write_table(tmp_path / "bench" / f"{name}.csv", rows, "timings")
    drawings = all_drawings(read(tmp_path, catalogue), catalogue)
    assert [axes.get_xlabel() for axes in drawings["ladder"].figure.axes] == ["speed, % of peak"]
    assert drawings["ratios"].note.startswith("No time beside a baseline")
    assert "no kernel of the articles' row S1" in drawings["speed_up"].note


def test_empty_tables_give_notes(small, small_catalogue):
    empty = {name: frame.iloc[:0] for name, frame in small.items()}
    for drawing in all_drawings(empty, small_catalogue).values():
        assert drawing.figure is None
        assert drawing.note


def test_the_same_tables_give_the_same_bytes(tmp_path, small, small_catalogue):
    contents = [
        figures.save(figures.resources(small["summary"], small_catalogue), tmp_path / name)
        for name in ("a", "b")
    ]
    assert contents[0] == contents[1]
    assert set(contents[0]) == {"png", "svg"}
    assert b"<dc:date>" not in contents[0]["svg"]
    assert (tmp_path / "a" / "resources.svg").read_bytes() == contents[0]["svg"]


def test_a_note_writes_no_file(tmp_path):
    assert figures.save(figures.Drawing("x", "X", "", note="nothing"), tmp_path) == {}
    assert not list(tmp_path.iterdir())


def test_the_reason_given_most_often_is_told():
    table = pd.DataFrame({"status": ["failed", "skipped", "skipped", "ok"], "reason": ["a", "b", "b", None]})
    assert figures.most_given_reason(table) == "b."
    assert figures.most_given_reason(table.iloc[3:]) == "there are no such rows."

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import publish_cases as cases
import pytest

from gemmlab import report, tables
from gemmlab.report import FigureView, RecordedRun, Run
from gemmlab.tables import rows_of


def make_run(folder: Path, *, gpu: bool, **fields: object) -> Run:
    catalogue = cases.write_small_run(folder, gpu=gpu)
    frames = cases.read_tables(folder)
    plain = {
        "results": Path("results/device"),
        "headline_shape": cases.HEADLINE,
        "catalogue": catalogue,
        "tables": {name: rows_of(frame, name) for name, frame in frames.items()},
        "bad": tables.bad_results(frames),
        "environment": tables.read_environment(folder),
        "figures": [
            FigureView("Counts", "How to read it.", svg=b"<svg/>"),
            FigureView("Ladder", "", note="No GPU."),
        ],
        "settings": {"headline_shape": [4096, 4096, 4096]},
    }
    return Run(**(plain | fields))


@pytest.fixture(scope="module")
def with_gpu(tmp_path_factory):
    return make_run(tmp_path_factory.mktemp("gpu"), gpu=True)


@pytest.fixture(scope="module")
def without_gpu(tmp_path_factory, with_gpu):
    recorded = RecordedRun(
        gpu=cases.GPU,
        date="2026-11-29T12:00:00+00:00",
        folder="results/published/synthetic-gpu",
        summary=with_gpu.tables["summary"],
        headline_shape=cases.HEADLINE,
    )
    return make_run(tmp_path_factory.mktemp("cpu"), gpu=False, recorded=[recorded])


class Page(HTMLParser):
    """Text by section, headings of tables, and everything that refers to something."""

    def __init__(self, html: str):
        super().__init__()
        self.references: list[str] = []
        self.tags: list[str] = []
        self.text: dict[str, str] = {}
        self.section = ""
        self.feed(html)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        values = dict(attributes)
        if tag == "section":
            self.section = values["id"]
        self.references += [value for name, value in attributes if name in ("src", "href", "srcset", "data")]

    def handle_data(self, data):
        self.text[self.section] = self.text.get(self.section, "") + " " + data.strip()


def test_the_report_needs_nothing_but_itself(with_gpu, without_gpu):
    for run in (with_gpu, without_gpu):
        html = report.render_report(run)
        page = Page(html)
        assert all(reference.startswith(("#", "data:image/svg+xml;base64,")) for reference in page.references)
        assert not {"script", "link", "iframe"} & set(page.tags)
        assert not re.search(r"@import|url\(", html)
        ids = re.findall(r'<section id="(\w+)"', html)
        assert {reference[1:] for reference in page.references if reference.startswith("#")} <= set(ids)


def test_every_section_says_what_it_is_for(with_gpu):
    text = Page(report.render_report(with_gpu)).text
    assert "8 variants: 6 ok, 2 failed. Broken kernels caught: 1 of 2." in text[""]
    assert "register4x4" in text["headline"]
    assert "20.29" in text["headline"]
    assert "does_not_compile , compile: kernels/does_not_compile.cu(12)" in text["bad"]
    assert "0.536" in text["checks"]
    assert "race: thread (3, 0, 0) reads" in text["broken"]
    assert "How to read it." in text["figures"]
    assert "Ladder: no figure. No GPU." in text["figures"]
    assert "65,536 (ncu 8,192)" in text["counters"]
    assert "Nsight Compute agrees in" in text["counters"]
    assert cases.GPU in text["environment"]
    assert "snakemake --cores 1 naive" in text["provenance"]
    assert cases.COMMIT in text["provenance"]


def test_without_a_gpu_speeds_are_left_out_and_the_recorded_run_is_labelled(without_gpu):
    text = Page(report.render_report(without_gpu)).text
    assert "this run has no GPU" in text["headline"]
    assert "TFLOP/s" not in text["headline"]
    assert "Not measured by this run" in text["recorded"]
    assert "Synthetic GPU, 2026-11-29" in text["recorded"]
    assert "TFLOP/s" in text["recorded"]
    assert "ncu is not on PATH" in text["environment"]
    assert "gemmlab doctor" in text["environment"]


def test_wide_tables_are_narrow_enough_to_read_without_scrolling(with_gpu):
    html = report.render_report(with_gpu)
    # Headline, checks, broken and counters have six columns or more; the digests have three.
    assert html.count('<table class="dense">') == 4
    assert html.count("<table>") == 1
    assert ">does_<wbr>not_<wbr>compile</th>" in html
    assert re.search(r"\.dense :is\(tbody th, td:not\(\.number\)\) \{ white-space: normal; \}", html)


def test_text_from_results_is_escaped(with_gpu):
    rows = [dict(row) for row in with_gpu.tables["checks"]]
    rows[0] |= {"reason": "<script>alert(1)</script> & <b>"}
    html = report.render_report(
        Run(**(vars(with_gpu) | {"tables": dict(with_gpu.tables) | {"checks": rows}}))
    )
    assert "<script>" not in html
    assert "&lt;script&gt;alert(1)&lt;/script&gt; &amp; &lt;b&gt;" in html


def test_a_good_run_says_that_nothing_is_bad(with_gpu):
    html = report.render_report(Run(**(vars(with_gpu) | {"bad": []})))
    assert "Nothing: no stage failed" in html


def test_a_run_with_nothing_in_it_still_gives_a_report(with_gpu):
    empty = Run(
        results=Path("results/device"),
        headline_shape=cases.HEADLINE,
        catalogue={},
        tables=dict.fromkeys(with_gpu.tables, ()),
    )
    text = Page(report.render_report(empty)).text
    assert "0 variants: none." in text[""]
    assert "No kernel was checked." in text["checks"]
    assert "no record of its environment" in text["environment"]
    assert "0 variants: none." in report.render_summary(empty)


def test_the_summary_fits_a_terminal_and_is_an_aligned_table(with_gpu, without_gpu):
    for run in (with_gpu, without_gpu):
        text = report.render_summary(run)
        assert max(map(len, text.splitlines())) <= report.SUMMARY_COLUMNS
        first_table = text.split("\n\n")[2].splitlines()
        assert len({len(line) for line in first_table}) == 1
        assert len(first_table) == 2 + len(run.tables["summary"])
        assert "results/device/report.html" in text


def test_a_wide_summary_drops_columns_from_the_right(with_gpu):
    rows = [
        row | {"variant": "a" * 60, "limiter": "L1 and shared memory (88 %)"}
        for row in with_gpu.tables["summary"]
    ]
    text = report.render_summary(
        Run(**(vars(with_gpu) | {"tables": dict(with_gpu.tables) | {"summary": rows}}))
    )
    assert max(map(len, text.splitlines())) <= report.SUMMARY_COLUMNS
    assert "TFLOP/s |" in text
    assert "limiter |" not in text


def test_the_summary_names_what_is_bad_and_the_recorded_run(without_gpu):
    text = report.render_summary(without_gpu)
    assert "- broken_unnoticed, broken kernel on emulator: passed unnoticed" in text
    assert "Most variants: time unavailable: this run has no GPU." in text
    assert "- tensor_cores: check on emulator unavailable" in text
    assert "Times of a recorded run (Synthetic GPU, 2026-11-29) stand beside in the report" in text


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [
        (0.000123456, 4, "0.0001235"),
        (12.3456, 4, "12.35"),
        (123456.0, 4, "123456"),
        (0, 3, "0"),
        (0.0999, 2, "0.100"),
    ],
)
def test_significant_digits_have_no_exponent(value, digits, text):
    assert report.significant(value, digits) == text


def test_broken_kernels_that_nothing_ran_are_counted_apart():
    rows = [
        {"variant": "a", "status": "ok"},
        {"variant": "a", "status": "unavailable"},
        {"variant": "b", "status": "ok"},
        {"variant": "b", "status": "failed"},
        {"variant": "c", "status": "unavailable"},
    ]
    assert report.broken_caught(rows) == "1 of 3 (1 unavailable)"
    assert report.broken_caught(rows[:2]) == "1 of 1"

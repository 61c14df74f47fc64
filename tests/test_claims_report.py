from __future__ import annotations

import publish_cases as cases

from gemmlab.claims import claim_rows, load_claims, read_run, write_claims
from gemmlab.claims_report import claims_sections, read_claims_tables
from gemmlab.publish import publish


def written(results):
    """A small run with the tables of the stage claims, all of them but what needs the real kernels."""
    catalogue = cases.write_small_run(results, gpu=False)
    run = read_run(results, catalogue, cases.HEADLINE)
    document = load_claims()
    document["claims"] = {name: document["claims"][name] for name in ("A9b", "A6", "C6b")}
    write_claims(results, run, document, cases.HEADLINE)
    return catalogue, claim_rows(run, document["claims"])


def test_sections_show_what_was_written(tmp_path):
    written(tmp_path)
    sections = {
        section.identity: section for section in claims_sections(read_claims_tables(tmp_path / "tables"))
    }
    assert list(sections) == ["claims", "contradictions", "articles"]
    assert "1 not reproduced, 2 untested" in sections["claims"].text
    (view,) = [view for _, view in sections["claims"].views]
    by_claim = {row[0]: row for row in view.rows}
    headings = [column.label for column in view.columns]
    assert by_claim["A6"][headings.index("reported")] == "0.65 ms, 3.3 TFLOP/s, 2.5x"
    assert by_claim["A6"][headings.index("evidence")] == "needs a GPU"
    assert by_claim["C6b"][headings.index("measured here")] == ""
    captions = [caption.split(":")[0] for caption, _ in sections["articles"].views]
    assert captions == ["Article A", "Article B"]


def test_a_recorded_run_s_verdict_stands_beside(tmp_path):
    _, rows = written(tmp_path)
    recorded = {"Synthetic GPU, 2026-11-29": [{"claim": "A6", "verdict": "opposite"}]}
    section = claims_sections(read_claims_tables(tmp_path / "tables"), recorded)[0]
    ((_, view),) = section.views
    at = [column.label for column in view.columns].index("Synthetic GPU, 2026-11-29")
    assert {row[0]: row[at] for row in view.rows} == {"A9b": "", "A6": "opposite", "C6b": ""}
    assert len(rows) == 3


def test_the_report_has_the_sections_and_does_without_their_tables(tmp_path):
    catalogue, _ = written(tmp_path)
    publish(tmp_path, tmp_path / "published", catalogue, {"headline_shape": [4096, 4096, 4096]})
    html = (tmp_path / "report.html").read_text()
    for identity in ("claims", "contradictions", "articles"):
        assert f'<section id="{identity}">' in html
        assert f'<a href="#{identity}">' in html
    assert '<span class="not_reproduced">not reproduced</span>' in html
    assert "Article A: the ladder at 1024^3" in html
    assert claims_sections(read_claims_tables(tmp_path / "nowhere")) == []

from __future__ import annotations

import json

import publish_cases as cases
import pytest

from gemmlab import cli, figures, publish
from gemmlab.files import write_json
from gemmlab.schema import read_table

SETTINGS = {"headline_shape": [4096, 4096, 4096], "preset": "standard"}


def record(folder) -> None:
    """A recorded run, made of a synthetic one."""
    cases.write_small_run(folder, gpu=True)
    manifest = {"slug": folder.name, "gpu": cases.GPU, "driver": None, "date": "2026-11-29", "commit": None}
    write_json(folder / "manifest.json", manifest | {"environments": [], "files": []})


@pytest.fixture(scope="module", autouse=True)
def coarse():
    """Small images: what they show is the matter of other tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(figures, "DPI", 40)
        yield


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A published run without a GPU beside a recorded one, and that run's Run."""
    root = tmp_path_factory.mktemp("publish")
    record(root / "published" / "synthetic-gpu")
    catalogue = cases.write_small_run(root / "emulator-sm_90", gpu=False)
    return root, publish.publish(root / "emulator-sm_90", root / "published", catalogue, SETTINGS)


def test_everything_is_written(finished):
    root, _ = finished
    results = root / "emulator-sm_90"
    assert {path.name for path in (results / "figures").iterdir()} == {
        f"{name}.{ending}" for name in ("counts", "errors", "resources") for ending in ("png", "svg")
    }
    for name in ("summary", "timings", "checks", "broken", "counters"):
        assert len(read_table(results / "tables" / f"{name}.csv", name))
    assert "Recorded run" in (results / "report.html").read_text()
    assert (results / "summary.md").is_file()


def test_the_recorded_run_brings_its_own_figures(finished):
    _, run = finished
    assert [entry.label for entry in run.recorded] == ["Synthetic GPU, 2026-11-29"]
    titles = [view.title for view in run.recorded[0].figures]
    assert "Speed against size (Synthetic GPU, 2026-11-29)" in titles
    assert all(view.svg for view in run.recorded[0].figures)


def test_publishing_again_gives_the_same_bytes_and_drops_old_figures(finished):
    root, _ = finished
    results = root / "emulator-sm_90"
    before = {path: path.read_bytes() for path in results.rglob("*") if path.is_file()}
    (results / "figures" / "old.png").write_bytes(b"")
    publish.publish(results, root / "published", cases.small_catalogue(), SETTINGS)
    after = {path: path.read_bytes() for path in results.rglob("*") if path.is_file()}
    assert after == before


def test_a_run_with_times_of_its_own_shows_no_recorded_one(tmp_path, monkeypatch):
    labels = []

    def draw(timings, catalogue, shape, label=""):
        labels.append(label)
        return [figures.Drawing("ladder", "The ladder", "", note="not drawn here")]

    monkeypatch.setattr(figures, "run_drawings", lambda tables, catalogue: [])
    monkeypatch.setattr(figures, "timing_drawings", draw)
    record(tmp_path / "published" / "synthetic-gpu")
    catalogue = cases.write_small_run(tmp_path / "gpu", gpu=True)
    run = publish.publish(tmp_path / "gpu", tmp_path / "published", catalogue, SETTINGS)
    assert run.recorded == []
    assert [view.title for view in run.figures] == ["The ladder", "Roofline at 4096^3, FP32"]
    assert labels == [""]


def test_without_any_recorded_run_the_notes_stand_in_the_report(tmp_path, monkeypatch):
    monkeypatch.setattr(figures, "run_drawings", lambda tables, catalogue: [])
    catalogue = cases.write_small_run(tmp_path / "cpu", gpu=False)
    run = publish.publish(tmp_path / "cpu", tmp_path / "nothing", catalogue, SETTINGS)
    assert all("this run has no GPU" in view.note for view in run.figures)
    assert list((tmp_path / "cpu" / "figures").iterdir()) == []


def test_the_command_prints_a_line_and_not_the_summary(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(publish, "load_catalogue", cases.small_catalogue)
    monkeypatch.setattr(figures, "run_drawings", lambda tables, catalogue: [])
    cases.write_small_run(tmp_path, gpu=False)
    chosen = SETTINGS | {"variants": ["naive", "tile16"]}
    arguments = [
        "--results",
        str(tmp_path),
        "--published",
        str(tmp_path / "none"),
        "--settings",
        json.dumps(chosen),
    ]
    assert cli.main(["publish", *arguments]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 1
    assert list(read_table(tmp_path / "tables" / "summary.csv", "summary")["variant"]) == [
        "cublas_fp32",
        "naive",
        "tile16",
    ]


@pytest.mark.parametrize("settings", [{}, {"headline_shape": [4096]}, {"headline_shape": [1, 2, 3.5]}])
def test_a_bad_headline_shape_is_named(tmp_path, settings):
    with pytest.raises(publish.GemmlabError, match="headline_shape is"):
        publish.publish(tmp_path, tmp_path, {}, settings)

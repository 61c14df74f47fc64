from __future__ import annotations

import publish_cases as cases
import pytest

from gemmlab import cli, readme
from gemmlab.errors import GemmlabError
from gemmlab.files import read_json, repository_root, sha256_file, write_json
from gemmlab.schema import write_table
from gemmlab.tables import read_rows

TEXT = f"# Title\n\nbefore\n\n{readme.START}\nold\n{readme.END}\n\nafter\n"


@pytest.fixture
def published(tmp_path, monkeypatch):
    monkeypatch.setattr(readme, "load_catalogue", cases.small_catalogue)
    folder = tmp_path / "published" / "synthetic-gpu"
    cases.write_small_run(folder, gpu=True)
    manifest = {
        "slug": "synthetic-gpu",
        "gpu": cases.GPU,
        "driver": "580.0",
        "date": "2026-11-29T12:00:00+00:00",
    }
    write_json(folder / "manifest.json", manifest | {"commit": None, "environments": [], "files": []})
    return tmp_path / "published"


def call(tmp_path, published, *arguments: str) -> int:
    return cli.main(
        ["readme", "--readme", str(tmp_path / "README.md"), "--published", str(published), *arguments]
    )


def test_the_table_is_rewritten_and_everything_else_kept(tmp_path, published):
    (tmp_path / "README.md").write_text(TEXT)
    assert call(tmp_path, published) == 0
    text = (tmp_path / "README.md").read_text()
    assert text.startswith(f"# Title\n\nbefore\n\n{readme.START}\n{cases.GPU}, driver 580.0, 2026-11-29")
    assert text.endswith(f"{readme.END}\n\nafter\n")
    assert "| `tile16` | the idea of tile16 | 9.0 | 12.4 | 24.9 | 20.7 |" in text
    assert "wrong_result" not in text
    assert call(tmp_path, published, "--check") == 0


def test_check_fails_and_writes_nothing_where_the_table_is_old(tmp_path, published, capsys):
    (tmp_path / "README.md").write_text(TEXT)
    assert call(tmp_path, published, "--check") == 1
    assert "gemmlab readme" in capsys.readouterr().out
    assert (tmp_path / "README.md").read_text() == TEXT


def edit_timings(published, change):
    """Change rows of the recorded timings by `change(row)`, which gives the fields to replace."""
    path = published / "synthetic-gpu" / "tables" / "timings.csv"
    write_table(path, [row | change(row) for row in read_rows(path, "timings")], "timings")


def test_slowed_rows_and_other_baselines_are_marked_and_explained(tmp_path, published):
    (tmp_path / "README.md").write_text(TEXT)
    edit_timings(
        published, lambda row: {"baseline": "cublas_tf32"} if row["variant"] == "tensor_cores" else {}
    )
    assert call(tmp_path, published) == 0
    text = (tmp_path / "README.md").read_text()
    assert "% of cuBLAS is against cuBLAS in the arithmetic of the variant's inputs.\n" in text
    assert "†" not in text

    def change(row):
        if row["variant"] == "tile16" and row["m"] == 1024:
            return {"flags": "throttled drift"}
        if row["variant"] == "tile32" and row["m"] == 4096 and row["cache"] == "cold":
            return {"flags": "low_clock", "baseline": "cublas_tf32"}
        return {"flags": "noisy"}

    edit_timings(published, change)
    assert call(tmp_path, published) == 0
    text = (tmp_path / "README.md").read_text()
    lines = {
        line.split("|")[1].strip(): line.split("|")[3:5] for line in text.splitlines() if line[:3] == "| `"
    }
    marked = {name: ["†" in cell for cell in cells] for name, cells in lines.items() if "†" in "".join(cells)}
    assert marked == {"`tile16`": [True, False], "`tile32`": [False, True]}
    assert "| 9.0† | 12.4 |" in text
    table, baselines, slowed = text.split(readme.END)[0].rsplit("\n\n", 2)
    assert table.count("†") == 2
    assert baselines.endswith("inputs, so for `tile32`, which computes in fp32, against `cublas_tf32`.")
    assert slowed.startswith("† timed while the card held its SM clock down (flag `throttled` or `low_clock`")


def list_files(folder):
    """Let the manifest list the files that lie in `folder`."""
    manifest = read_json(folder / "manifest.json")
    manifest["files"] = [
        {"path": f"tables/{name}.csv", "sha256": sha256_file(folder / "tables" / f"{name}.csv")}
        for name in ("summary", "timings")
    ]
    write_json(folder / "manifest.json", manifest)


@pytest.mark.parametrize("check", [[], ["--check"]])
def test_a_recorded_file_that_is_not_the_listed_one_is_refused(tmp_path, published, capsys, check):
    (tmp_path / "README.md").write_text(TEXT)
    path = published / "synthetic-gpu" / "tables" / "timings.csv"
    list_files(path.parents[1])
    assert call(tmp_path, published) == 0
    before = (tmp_path / "README.md").read_text()
    capsys.readouterr()
    edit_timings(published, lambda row: {"tflops": 99.0})
    assert call(tmp_path, published, *check) == 2
    message = capsys.readouterr().err
    assert f"{path}: listed in {path.parents[1]}/manifest.json, but has another SHA-256 than there" in message
    assert "`git checkout` the folder" in message
    path.unlink()
    assert call(tmp_path, published, *check) == 2
    assert f"{path}: listed in {path.parents[1]}/manifest.json, but is missing" in capsys.readouterr().err
    assert (tmp_path / "README.md").read_text() == before


def test_the_repository_s_recorded_runs_are_those_that_their_manifests_list():
    folders = [path.parent for path in (repository_root() / "results" / "published").glob("*/manifest.json")]
    for folder in folders:
        files = read_json(folder / "manifest.json")["files"]
        readme.verify_files(folder, files)
        lying = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
        assert lying == {"manifest.json", *(file["path"] for file in files)}


def test_without_a_recorded_run_the_readme_says_so(tmp_path):
    assert "No run has been recorded" in readme.recorded_tables(tmp_path, {})


@pytest.mark.parametrize(
    "text",
    [
        "nothing",
        f"{readme.START}\n",
        f"{readme.END}\n{readme.START}\n",
        f"{readme.START}{readme.START}{readme.END}",
    ],
)
def test_markers_that_do_not_fit_are_refused(text):
    with pytest.raises(GemmlabError, match=r"README\.md"):
        readme.rewrite(text, "table", "README.md")


def test_a_missing_readme_is_named(tmp_path, published, capsys):
    assert call(tmp_path, published) == 2
    assert "README.md: no such file" in capsys.readouterr().err

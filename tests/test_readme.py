from __future__ import annotations

import publish_cases as cases
import pytest

from gemmlab import cli, readme
from gemmlab.errors import GemmlabError
from gemmlab.files import write_json

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

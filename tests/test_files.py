from __future__ import annotations

import pytest

from gemmlab.errors import GemmlabError
from gemmlab.files import read_json, read_yaml, sha256_of, write_json, write_text


def test_write_leaves_no_temporary_file(tmp_path):
    path = tmp_path / "new" / "record.json"
    write_json(path, {"b": 1, "a": 2})
    assert read_json(path) == {"b": 1, "a": 2}
    assert [file.name for file in path.parent.iterdir()] == ["record.json"]


def test_failed_write_keeps_the_old_file(tmp_path):
    path = tmp_path / "record.json"
    write_text(path, "old")
    with pytest.raises(ValueError, match="Out of range"):
        write_json(path, {"x": float("nan")})
    assert path.read_text() == "old"
    assert len(list(tmp_path.iterdir())) == 1


def test_duplicate_key_is_named_with_both_lines(tmp_path):
    path = tmp_path / "x.yaml"
    path.write_text("naive:\n  idea: a\ntile16:\n  idea: b\nnaive:\n  idea: c\n")
    with pytest.raises(GemmlabError, match=r"x.yaml:5: key 'naive' stands twice \(first in line 1\)"):
        read_yaml(path)


@pytest.mark.parametrize(("text", "expected"), [("a: [1", "not YAML"), (None, "no such file")])
def test_yaml_that_cannot_be_read(tmp_path, text, expected):
    path = tmp_path / "x.yaml"
    if text is not None:
        path.write_text(text)
    with pytest.raises(GemmlabError, match=expected):
        read_yaml(path)


def test_broken_json_names_the_file(tmp_path):
    path = tmp_path / "x.json"
    path.write_text("{")
    with pytest.raises(GemmlabError, match=r"x\.json: not JSON"):
        read_json(path)


def test_digest_depends_on_the_borders():
    assert sha256_of(["ab", "c"]) != sha256_of(["a", "bc"])

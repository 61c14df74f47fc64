from __future__ import annotations

import pytest

from gemmlab import cli
from gemmlab.errors import GemmlabError
from gemmlab.files import git_head, read_json, read_yaml, sha256_of, write_json, write_text
from gemmlab.schema import validate


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


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("a: 1\nidea: été\n".encode("latin-1"), r"x\.yaml:2: byte 0xe9 is not UTF-8\. Save"),
        ("a: 1\n".encode("utf-16"), r"x\.yaml:1: byte 0xff is not UTF-8\. Save"),
        (b"a: 1\nb: \0c\n", r"x\.yaml:2: not YAML: it holds the character U\+0000\. Delete"),
        (b"a:\n\tb: 1\n", r"x\.yaml:2: not YAML: .* a tab in the indentation\. Replace"),
        (b"a:\n  b: 1\n \tc: 1\n", r"x\.yaml:3: not YAML: .* a tab in the indentation\. Replace"),
        (b"a: b: c\n", r"x\.yaml:1: not YAML: mapping values are not allowed .* \(column 5\)\. Mend"),
        (b"a: [1\n", r"x\.yaml:2: not YAML: .*\. Mend"),
        (b"a: {{b: 1}}\n", r"x\.yaml:1: not YAML: found unhashable key .*\. Mend"),
        (b"a: 2026-13-45\n", r"x\.yaml: not YAML: month .*\. Mend"),
    ],
)
def test_yaml_that_is_none_is_one_line_with_place_and_cure(tmp_path, content, expected):
    path = tmp_path / "x.yaml"
    path.write_bytes(content)
    with pytest.raises(GemmlabError, match=expected) as caught:
        read_yaml(path)
    assert "\n" not in str(caught.value)


def test_a_folder_in_a_yaml_file_s_place_is_named(tmp_path):
    with pytest.raises(GemmlabError, match=r"can't be read \(Is a directory\); expected a YAML file"):
        read_yaml(tmp_path)


def test_yaml_is_utf_8_whatever_the_locale_says(tmp_path, monkeypatch):
    path = tmp_path / "x.yaml"
    path.write_bytes("\ufeffidea: été\tau lac\n".encode())
    monkeypatch.setattr("locale.getpreferredencoding", lambda *_: "latin-1")
    monkeypatch.setattr("locale.getencoding", lambda: "latin-1")
    assert read_yaml(path) == {"idea": "été\tau lac"}


@pytest.mark.parametrize("digits", [40, 64])
def test_a_commit_can_be_named(monkeypatch, digits):
    monkeypatch.setenv("GEMMLAB_COMMIT", "0a" * (digits // 2))
    commit = git_head()
    assert commit == "0a" * (digits // 2)
    manifest = {
        "slug": "x",
        "gpu": "X",
        "driver": "1.0",
        "date": "2026-11-29",
        "environments": [],
        "files": [],
    }
    validate(manifest | {"commit": f"{commit}-dirty"}, "manifest", "manifest.json")


@pytest.mark.parametrize("value", ["main", "93dc73e", "0A" * 20, "0a" * 33, "0a" * 20 + "\n"])
def test_a_commit_that_is_none_is_refused_by_every_command(monkeypatch, capsys, value):
    monkeypatch.setenv("GEMMLAB_COMMIT", value)
    with pytest.raises(GemmlabError, match="expected a whole commit of 40 to 64 hexadecimal digits"):
        git_head()
    for command in (["headline"], ["doctor"], ["gate", "--results", "nowhere"]):
        assert cli.main(command) == 2
        message = capsys.readouterr().err
        assert f"GEMMLAB_COMMIT is {value!r}" in message
        assert "unset GEMMLAB_COMMIT" in message


@pytest.mark.parametrize("content", [b"{", b"\xff\xfe{}", b""])
def test_broken_json_names_the_file(tmp_path, content):
    path = tmp_path / "x.json"
    path.write_bytes(content)
    with pytest.raises(GemmlabError, match=r"x\.json: not JSON"):
        read_json(path)


def test_digest_depends_on_the_borders():
    assert sha256_of(["ab", "c"]) != sha256_of(["a", "bc"])

from __future__ import annotations

import errno
import os

import publish_cases as cases
import pytest

from gemmlab import cli, compare, files
from gemmlab.schema import write_table


@pytest.fixture
def runs(tmp_path):
    """Two equal runs."""
    for name in ("a", "b"):
        write_table(tmp_path / name / "tables" / "timings.csv", cases.timings("tile16", 20.0), "timings")
    return [str(tmp_path / "a"), str(tmp_path / "b")]


def test_a_path_that_can_t_be_written_is_one_line(tmp_path, runs, capsys):
    (tmp_path / "file").write_text("")
    assert cli.main(["compare", *runs, "--output", str(tmp_path / "file" / "comparison.csv")]) == 2
    assert capsys.readouterr().err == f"gemmlab compare: {tmp_path / 'file'}: {os.strerror(errno.EEXIST)}\n"


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (OSError(errno.EACCES, os.strerror(errno.EACCES), "there"), "there: Permission denied"),
        (OSError(errno.EPIPE, os.strerror(errno.EPIPE)), "Broken pipe"),
    ],
)
def test_the_system_s_faults_are_one_line(tmp_path, runs, capsys, monkeypatch, fault, message):
    def write(path, rows, schema):
        raise fault

    monkeypatch.setattr(compare, "write_table", write)
    assert cli.main(["compare", *runs, "--output", str(tmp_path / "comparison.csv")]) == 2
    assert capsys.readouterr().err == f"gemmlab compare: {message}\n"


def test_a_full_disk_names_the_file(tmp_path, runs, capsys, monkeypatch):
    def full(*arguments):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(files.os, "fdopen", full)
    output = tmp_path / "comparison.csv"
    assert cli.main(["compare", *runs, "--output", str(output)]) == 2
    assert capsys.readouterr().err == f"gemmlab compare: {output}: No space left on device\n"
    assert not output.exists()

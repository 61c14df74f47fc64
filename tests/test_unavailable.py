from __future__ import annotations

import publish_cases as cases
import pytest

from gemmlab import cli, unavailable
from gemmlab.schema import read_table


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(unavailable, "load_catalogue", cases.small_catalogue)


def call(folder, *arguments: str) -> int:
    command = ["unavailable", "--device", "emulator-sm_90", "--reason", "this run has no GPU"]
    return cli.main([*command, "--output-dir", str(folder), *arguments])


@pytest.mark.parametrize(("stage", "schema"), [("bench", "timings"), ("profile", "profile")])
def test_every_variant_but_the_broken_ones_gets_one_row_that_says_why(tmp_path, stage, schema):
    assert call(tmp_path, "--stage", stage) == 0
    names = sorted(path.stem for path in (tmp_path / stage).iterdir())
    assert names == sorted(
        name for name, variant in cases.small_catalogue().items() if variant.kind != "broken"
    )
    frame = read_table(tmp_path / stage / "tile16.csv", schema)
    assert len(frame) == 1
    assert (frame.loc[0, "status"], frame.loc[0, "reason"]) == ("unavailable", "this run has no GPU")


def test_only_the_named_variants_are_written(tmp_path):
    assert call(tmp_path, "--stage", "profile", "--variants", "naive", "tile16") == 0
    assert {path.name for path in (tmp_path / "profile").iterdir()} == {"naive.csv", "tile16.csv"}


def test_an_unknown_name_is_refused(tmp_path, capsys):
    assert call(tmp_path, "--stage", "bench", "--variants", "nave") == 2
    assert "nave not in the catalogue" in capsys.readouterr().err
    assert not (tmp_path / "bench").exists()

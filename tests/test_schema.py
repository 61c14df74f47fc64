from __future__ import annotations

import copy

import jsonschema
import pytest

from gemmlab.config import load_config, validate_config
from gemmlab.errors import GemmlabError
from gemmlab.files import read_json, repository_root
from gemmlab.schema import read_table, validate, write_table

SCHEMAS = sorted((repository_root() / "workflow" / "schemas").glob("*.schema.json"))


@pytest.mark.parametrize("path", SCHEMAS, ids=lambda path: path.name)
def test_schema_is_valid_and_closed(path):
    schema = read_json(path)
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["additionalProperties"] is False


@pytest.mark.parametrize(
    ("keys", "value", "expected"),
    [
        (["count", "shapes"], [[8, 8, 8], [0, 8, 8]], r"count.shapes\[1\]\[0\] is 0, expected at least 1"),
        (["count", "shapes"], [[-1, 8, 8]], r"count.shapes\[0\]\[0\] is -1, expected at least 1"),
        (["count", "shapes"], [[8.5, 8, 8]], r"is 8.5, expected an integer"),
        (["count", "shapes"], [["1k", 8, 8]], r'is "1k", expected an integer'),
        (["count", "shapes"], [["08", 8, 8]], r'is "08", expected an integer'),
        (["bench", "sizes"], ["1e3"], r'bench.sizes\[0\] is "1e3", expected an integer'),
        (["bench", "repeats"], 0, "bench.repeats is 0, expected at least 1"),
        (["preset"], "quick", 'preset is "quick", expected one of standard, full'),
        (["architecture"], "90", "architecture is"),
        (["architecture"], "", "architecture is"),
        (["sizes"], [1, 10], "unknown key sizes; known are"),
        (["seed"], True, "seed is true, expected an integer"),
    ],
)
def test_faulty_configuration_names_the_key(keys, value, expected):
    config = copy.deepcopy(load_config())
    target = config
    for key in keys[:-1]:
        target = target[key]
    target[keys[-1]] = value
    with pytest.raises(GemmlabError, match=expected):
        validate_config(config)


def test_whole_numbers_that_came_as_text_in_a_list_become_numbers():
    config = load_config() | {"count": {"shapes": [["8", "16", "8"]]}}
    validate_config(config)
    assert config["count"]["shapes"] == [[8, 16, 8]]
    with pytest.raises(GemmlabError, match=r"count.shapes\[0\]\[0\] is 0, expected at least 1"):
        validate_config(load_config() | {"count": {"shapes": [["0", "8", "8"]]}})


def test_missing_key_is_named():
    config = load_config()
    del config["seed"]
    with pytest.raises(GemmlabError, match="lacks the key seed"):
        validate_config(config)


def test_table_keeps_text_that_looks_like_something_else(tmp_path):
    path = tmp_path / "checks.csv"
    rows = [
        {"variant": name, "executor": "emulator", "status": "ok", "shapes": 300, "digest": digest}
        for name, digest in [("NA", "1e3"), ("nan", "null"), ("e1", None)]
    ]
    write_table(path, rows, "checks")
    table = read_table(path, "checks")
    assert list(table["variant"]) == ["NA", "nan", "e1"]
    assert list(table["digest"])[:2] == ["1e3", "null"]
    assert table["digest"].isna()[2]
    assert table["shapes"].sum() == 900


def test_table_refuses_unknown_columns_and_bad_values(tmp_path):
    good = {"variant": "naive", "executor": "emulator", "status": "ok"}
    for fault in ({"colour": "red"}, {"shapes": "many"}, {"variant": "1e3"}, {"status": "fine"}):
        with pytest.raises(GemmlabError, match=r"checks\.csv, row 1"):
            write_table(tmp_path / "checks.csv", [good | fault], "checks")
    assert not (tmp_path / "checks.csv").exists()


def test_long_values_are_cut():
    with pytest.raises(GemmlabError) as caught:
        validate({"idea": "x", "articles": "S" * 500}, "variant", "here")
    assert len(str(caught.value)) < 200

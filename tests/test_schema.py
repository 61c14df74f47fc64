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


GOOD = "variant,executor,shapes,worst_fraction_of_bound,status\ntile16,cuda,300,0.5,ok\n"


def test_a_column_that_is_not_required_may_be_missing(tmp_path):
    path = tmp_path / "checks.csv"
    path.write_text(GOOD)
    table = read_table(path, "checks")
    assert (table["shapes"][0], table["worst_fraction_of_bound"][0]) == (300, 0.5)
    assert table["reason"].isna().all()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not a table (it is empty, expected a header line)"),
        (bytes(range(256)), "line 2: byte 0x80 is not UTF-8"),
        (GOOD.replace("tile16", "tile\0").encode(), "not a table (it holds NUL characters)"),
        (GOOD.replace("tile16", "t\xefle").encode("latin-1"), "line 2: byte 0xef is not UTF-8"),
        (GOOD.replace("tile16", '"tile16').encode(), "not a table (unexpected end of data)"),
        (GOOD.replace("300", "many").encode(), "row 1: shapes is 'many', expected a whole number"),
        (GOOD.replace("300", "512.5").encode(), "row 1: shapes is '512.5', expected a whole number"),
        (
            GOOD.replace("0.5", "nan").encode(),
            "row 1: worst_fraction_of_bound is 'nan', expected a finite number",
        ),
        (GOOD.replace("0.5", "-inf").encode(), "row 1: worst_fraction_of_bound is '-inf', expected a finite"),
        (
            GOOD.replace(",0.5,ok", "").encode(),
            "row 1: 3 cells (none for worst_fraction_of_bound), expected 5",
        ),
        (GOOD.replace("ok", "ok,,").encode(), "row 1: 7 cells, expected 5 as in the header"),
        (GOOD.replace(",ok", "").replace(",status", "").encode(), "the header lacks the column status"),
        (GOOD.replace("shapes", "colour").encode(), "unknown columns 'colour'; known are variant, executor"),
        (GOOD.replace("shapes", "status").encode(), "the header has twice the column status"),
    ],
)
def test_a_file_that_is_no_table_is_named_in_a_line_with_the_cure(tmp_path, content, message):
    path = tmp_path / "checks.csv"
    path.write_bytes(content)
    with pytest.raises(GemmlabError) as caught:
        read_table(path, "checks")
    text = str(caught.value)
    assert text.startswith(str(path))
    assert message in text
    assert "Delete it and run `snakemake --cores all` again" in text
    assert "\n" not in text


def test_a_word_in_a_column_of_true_and_false_is_refused(tmp_path):
    path = tmp_path / "comparison.csv"
    row = {"variant": "v", "m": 1, "n": 1, "k": 1, "compared": "time", "before": 1.0, "after": 1.0}
    row |= {"change_percent": 0.0, "tolerance_percent": 1.0, "over_tolerance": False, "verdict": "same"}
    write_table(path, [row], "comparison")
    assert not read_table(path, "comparison")["over_tolerance"][0]
    path.write_text(path.read_text().replace("False", "perhaps"))
    with pytest.raises(GemmlabError, match="over_tolerance is 'perhaps', expected True or False"):
        read_table(path, "comparison")


def test_long_values_are_cut():
    with pytest.raises(GemmlabError) as caught:
        validate({"idea": "x", "articles": "S" * 500}, "variant", "here")
    assert len(str(caught.value)) < 200

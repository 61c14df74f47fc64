"""Validation by the JSON Schemas in workflow/schemas, with messages that name file, key, value and expectation."""

from __future__ import annotations

import csv
import functools
import io
import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema

from gemmlab.errors import GemmlabError
from gemmlab.files import read_json, repository_root, write_text

if TYPE_CHECKING:
    import pandas as pd


def schema_path(name: str) -> Path:
    """The file of the schema called `name` (`variant`, `config`, `check`, `summary`, ...)."""
    return repository_root() / "workflow" / "schemas" / f"{name}.schema.json"


@functools.cache
def _load_schema(name: str) -> dict[str, Any]:
    return read_json(schema_path(name))


@functools.cache
def _validator(name: str) -> jsonschema.protocols.Validator:
    # The schemas themselves are checked by a test, not by every job.
    return jsonschema.Draft202012Validator(_load_schema(name))


def validate(document: Any, name: str, where: str) -> None:
    """Check `document` against the schema `name`.

    Args:
        document: plain JSON types.
        name: the schema's name without its ending.
        where: what the message calls the document: a file, or a file and an entry.

    Raises:
        GemmlabError: one line for each fault (ten at most) with the key, the value and what was expected.
    """
    errors = sorted(
        _validator(name).iter_errors(document), key=lambda error: list(map(str, error.absolute_path))
    )
    if errors:
        lines = [f"{where}: {_explain(error)}" for error in errors[:10]]
        raise GemmlabError("\n".join(lines))


def _explain(error: jsonschema.ValidationError) -> str:
    key = ""
    for part in error.absolute_path:
        key += f"[{part}]" if isinstance(part, int) else f".{part}" if key else str(part)
    key = key or "(top level)"
    value = json.dumps(error.instance, default=str)
    value = value if len(value) <= 80 else value[:77] + "..."
    match error.validator:
        case "type":
            expected = error.validator_value
            expected = expected if isinstance(expected, str) else " or ".join(expected)
            return f"{key} is {value}, expected {_article(expected)}"
        case "enum":
            return f"{key} is {value}, expected one of {', '.join(map(str, error.validator_value))}"
        case "additionalProperties":
            known = ", ".join(sorted(error.schema.get("properties", {})))
            unknown = ", ".join(sorted(set(error.instance) - set(error.schema.get("properties", {}))))
            return f"{key} has the unknown key {unknown}; known are: {known}"
        case "required":
            missing = [name for name in error.validator_value if name not in error.instance]
            return f"{key} lacks the key {', '.join(missing)}"
        case "pattern":
            return f"{key} is {value}, expected text that matches {error.validator_value}"
        case "minimum" | "exclusiveMinimum" | "maximum" | "exclusiveMaximum":
            word = {"minimum": "at least", "exclusiveMinimum": "more than", "maximum": "at most"}
            return (
                f"{key} is {value}, expected {word.get(error.validator, 'less than')} {error.validator_value}"
            )
        case _:
            return f"{key}: {error.message}"


def _article(type_name: str) -> str:
    return f"an {type_name}" if type_name[0] in "aeio" else f"a {type_name}"


def columns(name: str) -> list[str]:
    """The columns of the table whose rows the schema `name` describes, in the schema's order."""
    return list(_load_schema(name)["properties"])


def write_table(path: Path, rows: list[dict[str, Any]], name: str) -> None:
    """Write `rows` as tidy CSV after validating each against the schema `name`; None becomes an empty cell.

    A column that a row lacks is null; a key that the schema doesn't know is an error.
    """
    names = columns(name)
    complete = [{column: row.get(column) for column in names} | row for row in rows]
    for number, row in enumerate(complete, start=1):
        validate(row, name, f"{path.name}, row {number}")
    # Without pandas, whose import would take longer than many a job that writes a table.
    text = io.StringIO()
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(
        {column: "" if _is_nan(value) else value for column, value in row.items()} for row in complete
    )
    write_text(path, text.getvalue())


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


def read_table(path: Path, name: str) -> pd.DataFrame:
    """Read a table written by `write_table`: text stays text ("NA", "1e3"), numbers become numbers, empty is null."""
    import pandas as pd

    if not path.is_file():
        raise GemmlabError(f"{path}: no such table. `snakemake --cores all` writes it.")
    frame = pd.read_csv(path, dtype=str, keep_default_na=False)
    properties = _load_schema(name)["properties"]
    unknown = [column for column in frame.columns if column not in properties]
    if unknown:
        raise GemmlabError(f"{path}: unknown columns {', '.join(unknown)}; known are {', '.join(properties)}")
    for column in frame.columns:
        types = properties[column].get("type", [])
        types = [types] if isinstance(types, str) else types
        if "integer" in types or "number" in types:
            frame[column] = pd.to_numeric(frame[column].replace("", None))
        elif "boolean" in types:
            frame[column] = frame[column].map({"True": True, "False": False, "true": True, "false": False})
        else:
            frame[column] = (
                frame[column].where(frame[column] != "", None) if "null" in types else frame[column]
            )
    return frame

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
    from collections.abc import Mapping

    import pandas as pd

# The targets that write a table which a plain `snakemake` doesn't.
_TARGETS = {"tune": " tune", "static": " static_evidence"}


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


def validate(document: Any, name: str, where: str, cure: str = "") -> None:
    """Check `document` against the schema `name`.

    Args:
        document: plain JSON types.
        name: the schema's name without its ending.
        where: what the message calls the document: a file, or a file and an entry.
        cure: the sentence that ends the message.

    Raises:
        GemmlabError: one line for each fault (ten at most) with the key, the value and what was expected.
    """
    errors = sorted(
        _validator(name).iter_errors(document), key=lambda error: list(map(str, error.absolute_path))
    )
    if errors:
        lines = [f"{where}: {_explain(error)}" for error in errors[:10]]
        raise GemmlabError("\n".join(lines) + (f". {cure}" if cure else ""))


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
    """Read a table written by `write_table`: text stays text ("NA", "1e3"), numbers become numbers, empty is null.

    A column that the file lacks and that the schema doesn't require is null. Values are of their column's type;
    whether they fulfil the rest of the schema is for `validate` to say.

    Raises:
        GemmlabError: the file is missing, empty, cut short or no UTF-8 text, a column is unknown or missing, or a cell
            isn't what its column holds; one line with file, row, column and cure.
    """
    import pandas as pd

    if not path.is_file():
        raise GemmlabError(
            f"{path}: no such table. `snakemake --cores all{_TARGETS.get(name, '')}` writes it."
        )
    header, *rows = _read_cells(path, name)
    schema = _load_schema(name)
    properties = schema["properties"]
    unknown = [column for column in header if column not in properties]
    if unknown:
        names = ", ".join(map(repr, unknown))
        raise GemmlabError(
            f"{path}: unknown columns {names}; known are {', '.join(properties)}. {cure(name)}"
        )
    faults = {
        "lacks the column": [column for column in schema["required"] if column not in header],
        "has twice the column": [column for column in properties if header.count(column) > 1],
    }
    for fault, names in faults.items():
        if names:
            raise GemmlabError(f"{path}: the header {fault} {', '.join(names)}. {cure(name)}")
    for number, cells in enumerate(rows, start=1):
        if len(cells) != len(header):
            short = f" (none for {header[len(cells)]})" if len(cells) < len(header) else ""
            raise GemmlabError(
                f"{path}, row {number}: {len(cells)} cells{short}, expected {len(header)} as in the header. "
                f"{cure(name)}"
            )
    frame = pd.DataFrame(rows, columns=header, dtype=str)
    for column in header:
        frame[column] = _typed(frame[column], properties[column], path, name)
    for column in properties:
        if column not in header:
            frame[column] = None
    return frame


def _read_cells(path: Path, name: str) -> list[list[str]]:
    """The header and the rows of a CSV file as text; raises GemmlabError where it isn't one."""
    content = path.read_bytes()
    try:
        text = content.decode("utf-8-sig")
        cells = [row for row in csv.reader(io.StringIO(text, newline=""), strict=True) if row]
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        byte = content[error.start]
        raise GemmlabError(f"{path}, line {line}: byte 0x{byte:02x} is not UTF-8. {cure(name)}") from error
    except csv.Error as error:
        raise GemmlabError(f"{path}: not a table ({error}). {cure(name)}") from error
    if "\0" in text or not cells:
        what = "it holds NUL characters" if cells else "it is empty, expected a header line"
        raise GemmlabError(f"{path}: not a table ({what}). {cure(name)}")
    return cells


def _typed(cells: pd.Series, column: Mapping[str, Any], path: Path, name: str) -> pd.Series:
    """The text in `cells` as what `column` of the schema holds."""
    import pandas as pd

    types = column.get("type", [])
    types = [types] if isinstance(types, str) else types
    filled = cells != ""
    if "integer" in types or "number" in types:
        values = pd.to_numeric(cells.replace("", None), errors="coerce")
        bad = filled & ~values.abs().lt(math.inf)
        expected = "a finite number"
        if "number" not in types:
            bad |= filled & (values % 1 != 0)
            expected = "a whole number"
    elif "boolean" in types:
        values = cells.map({"True": True, "False": False, "true": True, "false": False})
        bad, expected = filled & values.isna(), "True or False"
    else:
        return cells.where(filled, None) if "null" in types else cells
    if bad.any():
        number = int(bad.idxmax())
        raise GemmlabError(
            f"{path}, row {number + 1}: {cells.name} is {cells[number][:80]!r}, expected {expected}. {cure(name)}"
        )
    return values


def cure(name: str) -> str:
    """What mends a table of the schema `name` that can't be read."""
    target = _TARGETS.get(name, "")
    return f"Delete it and run `snakemake --cores all{target}` again, or `git checkout` it if it is recorded."

"""nvidia-smi asked for fields, with the many ways in which it doesn't answer."""

from __future__ import annotations

import re
from collections.abc import Sequence

from gemmlab.process import run_process
from gemmlab.toolchain import find_nvidia_smi

TIMEOUT_S = 15
_MISMATCH = "Driver/library version mismatch"
_UNKNOWN_FIELD = re.compile(r'Field "([^"]+)" is not a valid field')

Rows = list[dict[str, str]]


def query(fields: Sequence[str]) -> Rows | str:
    """The `fields` of every GPU as nvidia-smi writes them, without units, or why there are none.

    Args:
        fields: names from `nvidia-smi --help-query-gpu`, `uuid` among them. One that this nvidia-smi doesn't know is
            left out of the answer.
    """
    nvidia_smi = find_nvidia_smi()
    if nvidia_smi is None:
        return "nvidia-smi is not installed"
    fields = list(fields)
    while True:
        command = [nvidia_smi, f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"]
        completed = run_process(command, timeout_s=TIMEOUT_S)
        if completed.timed_out:
            return f"nvidia-smi didn't answer within {TIMEOUT_S} s"
        unknown = _UNKNOWN_FIELD.search(completed.output)
        if unknown is None or unknown[1] not in fields or unknown[1] == "uuid":
            break
        fields.remove(unknown[1])
    return parse_rows(completed.output, fields) or complaint(completed.output)


def parse_rows(text: str, fields: Sequence[str]) -> Rows:
    """A mapping from field to text for each line of `text` that describes a GPU.

    nvidia-smi prints its complaints on standard output too, some with exit status 0, so a line counts only if it has
    every field and a UUID in its place.
    """
    rows = []
    for line in text.splitlines():
        values = [value.strip() for value in line.split(", ")]
        if len(values) == len(fields) and values[fields.index("uuid")].startswith("GPU-"):
            rows.append(dict(zip(fields, values, strict=True)))
    return rows


def complaint(text: str) -> str:
    """What nvidia-smi said instead of listing a GPU, with the cure where there is one."""
    line = next((line.strip() for line in text.splitlines() if line.strip()), "it printed nothing")
    if _MISMATCH in line:
        line += " (the driver was updated under a running kernel module; reboot)"
    return f"nvidia-smi lists no GPU: {line}"


def smi_value(text: str | None) -> str | None:
    """A field's text; None for `[N/A]`, `[Not Supported]`, `[Unknown Error]`, `ERR!` and their like."""
    absent = text is None or not text or text.startswith("[") or text in ("N/A", "ERR!", "Unknown Error")
    return None if absent else text

"""What `ptxas -v` prints, field by field: registers, spills, shared memory and so on of each entry function."""

from __future__ import annotations

import re
from dataclasses import dataclass

_ENTRY = re.compile(r"Compiling entry function '([^']+)'")
_PROPERTIES = re.compile(r"Function properties for (\S+)")
_SHARED_LIMIT = re.compile(
    r"Entry function '([^']+)' uses too much shared data \((0x[0-9a-f]+) bytes, (0x[0-9a-f]+) max\)"
)
_FIELDS = {
    "registers": re.compile(r"Used (\d+) registers"),
    "barriers": re.compile(r"used (\d+) barriers"),
    "shared_static_bytes": re.compile(r"(\d+) bytes smem"),
    "stack_bytes": re.compile(r"(\d+) bytes stack frame"),
    "spill_store_bytes": re.compile(r"(\d+) bytes spill stores"),
    "spill_load_bytes": re.compile(r"(\d+) bytes spill loads"),
}
_CONSTANT = re.compile(r"(\d+) bytes cmem\[\d+\]")
_CUMULATIVE_STACK = re.compile(r"(\d+) bytes cumulative stack size")


@dataclass(frozen=True)
class Resources:
    """What one entry function uses; a field that ptxas didn't print is None.

    `stack_bytes` counts the functions that it calls where ptxas says how much they need.
    """

    registers: int | None = None
    barriers: int | None = None
    shared_static_bytes: int | None = None
    stack_bytes: int | None = None
    spill_store_bytes: int | None = None
    spill_load_bytes: int | None = None
    constant_bytes: int | None = None


def parse_resources(log: str) -> dict[str, Resources]:
    """The resources of each entry function, by its name, from the output of `ptxas -v`.

    Lines that aren't known are passed over, so that a later ptxas may print more; properties of device functions that
    aren't inlined don't count for the entry beside them.
    """
    found: dict[str, dict[str, int]] = {}
    entry: str | None = None
    own_properties = False
    for line in log.splitlines():
        if match := _ENTRY.search(line):
            entry = match[1]
            own_properties = True
            found[entry] = {}
            continue
        if match := _PROPERTIES.search(line):
            own_properties = match[1] == entry
            continue
        if entry is None or not own_properties:
            continue
        fields = found[entry]
        for name, pattern in _FIELDS.items():
            if match := pattern.search(line):
                fields[name] = int(match[1])
        if sizes := _CONSTANT.findall(line):
            fields["constant_bytes"] = sum(map(int, sizes))
        if match := _CUMULATIVE_STACK.search(line):
            fields["stack_bytes"] = max(int(match[1]), fields.get("stack_bytes", 0))
    return {name: Resources(**fields) for name, fields in found.items()}


def shared_memory_error(log: str) -> str | None:
    """One sentence with both numbers if ptxas refused a kernel for its static shared memory, else None."""
    match = _SHARED_LIMIT.search(log)
    if not match:
        return None
    return f"{match[1]} needs {int(match[2], 16)} bytes of static shared memory, limit {int(match[3], 16)}"

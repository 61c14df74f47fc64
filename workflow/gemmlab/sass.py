"""The instruction mix of a cubin's functions, from nvdisasm.

Names: the opcode without its modifiers (`FFMA`, `IMAD`, `BAR`), with the width of an access that isn't 32 bits
behind it: `LDS`, `LDS.64`, `LDS.128`, `LDG.128`, `STG.U16`. A count is of instructions in the code, not executed;
those that can't execute (predicate `@!PT`) and the padding behind a function are left out.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from gemmlab.errors import GemmlabError
from gemmlab.process import run_process

_FUNCTION = re.compile(r"^\.text\.(\S+):$")
_LABEL = re.compile(r"^(\.L\S*):$")
_INSTRUCTION = re.compile(r"^\s+/\*[0-9a-f]{4,}\*/\s+(?:\{\s*)?(@!?U?P\w+\s+)?([A-Z][A-Z0-9_.]*)([^;]*)")
_MEMORY = re.compile(r"(LD|ST|LDGSTS|ATOM|RED|UBLKCP|UTMA)[A-Z]*")
_WIDTHS = frozenset({"64", "128", "256", "U8", "S8", "U16", "S16"})
_TIMEOUT_S = 60


def instruction_mix(cubin: Path, nvdisasm: Path) -> dict[str, dict[str, int]]:
    """Instructions of each function of the file `cubin` by name, most frequent first.

    Raises:
        GemmlabError: nvdisasm can't read the file.
    """
    completed = run_process([nvdisasm, "-c", "-ndf", cubin], timeout_s=_TIMEOUT_S)
    if completed.timed_out:
        raise GemmlabError(f"nvdisasm didn't end within {_TIMEOUT_S} s")
    if completed.returncode != 0:
        lines = completed.output.splitlines() or ["no output"]
        raise GemmlabError(f"nvdisasm ended with status {completed.returncode}: {lines[0]}")
    return parse_mix(completed.stdout)


def parse_mix(listing: str) -> dict[str, dict[str, int]]:
    """Instructions of each function by name from the text that `nvdisasm -c` prints, without the padding.

    Padding is a branch to itself and the NOPs after it.
    """
    functions: dict[str, list[str]] = {}
    current: list[str] | None = None
    label = ""
    for line in listing.splitlines():
        if match := _FUNCTION.match(line):
            current = functions.setdefault(match[1], [])
        elif match := _LABEL.match(line):
            label = match[1]
        elif current is not None and (match := _INSTRUCTION.match(line)):
            predicate, opcode, operands = match.groups()
            to_itself = bool(label) and opcode == "BRA" and f"({label})" in operands
            label = ""
            if (predicate or "").strip() != "@!PT":
                current.append("NOP" if to_itself else _name(opcode))
    mixes = {}
    for function, names in functions.items():
        while names and names[-1] == "NOP":
            names.pop()
        mixes[function] = dict(Counter(names).most_common())
    return mixes


def _name(text: str) -> str:
    opcode, *modifiers = text.split(".")
    width = next((modifier for modifier in modifiers if modifier in _WIDTHS), None)
    return f"{opcode}.{width}" if width and _MEMORY.fullmatch(opcode) else opcode

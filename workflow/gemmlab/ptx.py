"""PTX as text: its entries, its target and the source files that it names."""

from __future__ import annotations

import os
import re
from pathlib import Path

_ENTRY = re.compile(rb"^\s*(?:\.(?:visible|weak)\s+)?\.entry\s+([\w$]+)", re.MULTILINE)
_TARGET = re.compile(rb"^\.target\s+(\w+)", re.MULTILINE)
_FILE = re.compile(rb'^(\s*\.file\s+(\d+)\s+")((?:[^"\\\n]|\\.)*)"', re.MULTILINE)
_LOCATION = re.compile(rb"\s*\.loc\s+(\d+)\s+(\d+)")
_ESCAPED = re.compile(rb"\\([0-7]{3}|.)")
_NEEDS_ESCAPE = re.compile(rb'[^\x20-\x7e]|["\\]')


def entry_names(ptx: bytes) -> list[str]:
    """The kernels of `ptx`, in its order."""
    return [name.decode() for name in _ENTRY.findall(ptx)]


def target(ptx: bytes) -> str | None:
    """What `.target` says, such as sm_90a, or None."""
    match = _TARGET.search(ptx)
    return match[1].decode() if match else None


def relative_file_lines(ptx: bytes, root: Path) -> bytes:
    """`ptx` with the paths of its `.file` lines relative to the repository `root`.

    Of a header of the toolkit or the system, what follows its include folder stays: include/crt/mma.hpp.
    """

    def shortened(match: re.Match[bytes]) -> bytes:
        name = os.fsdecode(_ESCAPED.sub(_unescape, match[3]))
        return match[1] + _NEEDS_ESCAPE.sub(_escape, os.fsencode(_public_name(name, root))) + b'"'

    return _FILE.sub(shortened, ptx)


def source_location(ptx: bytes, line: int) -> str | None:
    """`file:line` of the source that line `line` (from 1) of `ptx` was made from, by the `.loc` before it, or None."""
    for text in reversed(ptx.splitlines()[:line]):
        location = _LOCATION.match(text)
        if location:
            files = {int(file[2]): file[3] for file in _FILE.finditer(ptx)}
            name = files.get(int(location[1]))
            return f"{os.fsdecode(name)}:{int(location[2])}" if name else None
    return None


def _public_name(name: str, root: Path) -> str:
    path = Path(os.path.normpath(name))
    if path.is_relative_to(root) and "site-packages" not in path.parts:
        return path.relative_to(root).as_posix()
    if "include" in path.parts:
        after = path.parts[::-1].index("include")
        return Path(*path.parts[len(path.parts) - 1 - after :]).as_posix()
    return path.name if path.is_absolute() else path.as_posix()


def _unescape(match: re.Match[bytes]) -> bytes:
    return bytes([int(match[1], 8)]) if match[1].isdigit() else match[1]


def _escape(match: re.Match[bytes]) -> bytes:
    return b"\\%03o" % match[0][0]

from __future__ import annotations

import struct

import pytest

from gemmlab.cubin import cubin_architecture
from gemmlab.errors import GemmlabError


def header(abi_version: int, flags: int, machine: int = 190) -> bytes:
    content = bytearray(64)
    content[:4] = b"\x7fELF"
    content[8] = abi_version
    struct.pack_into("<H", content, 18, machine)
    struct.pack_into("<I", content, 48, flags)
    return bytes(content)


@pytest.mark.parametrize(
    ("abi_version", "flags", "expected"),
    [
        (8, 0x06005A04, "sm_90"),  # nvcc 13.0
        (8, 0x0A004B04, "sm_75"),
        (8, 0x06007802, "sm_120"),
        (7, 0x005A055A, "sm_90"),  # up to toolkit 12
        (7, 0x00500550, "sm_80"),
    ],
)
def test_the_architecture_is_read_from_the_flags(abi_version: int, flags: int, expected: str) -> None:
    assert cubin_architecture(header(abi_version, flags)) == expected


@pytest.mark.parametrize("content", [b"", b"\x7fELF", b"x" * 64, header(8, 0, machine=62)])
def test_other_bytes_are_refused(content: bytes) -> None:
    with pytest.raises(GemmlabError, match="not a cubin"):
        cubin_architecture(content)

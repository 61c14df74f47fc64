"""What a cubin's ELF headers say: what it was built for and which kernels are in it."""

from __future__ import annotations

import struct

from gemmlab.errors import GemmlabError

_MACHINE_CUDA = 190
_HEADER_BYTES = 64
_SECTION_SYMBOLS = 2
_SYMBOL = struct.Struct("<IBBHQQ")
_TYPE_FUNCTION = 2
_OTHER_ENTRY = 0x10


def cubin_architecture(cubin: bytes) -> str:
    """The real architecture of `cubin`, such as sm_90 (also for sm_90a, which the header doesn't always tell apart).

    e_machine is EM_CUDA (190). The number stands in e_flags: in its lowest byte up to EI_ABIVERSION 7 (toolkits up to
    12), in bits 8 to 15 from 8 on (toolkit 13). Source: EF_CUDA_SM and EF_CUDA_SM_OFFSET in LLVM's
    llvm/include/llvm/BinaryFormat/ELF.h, and cubins of nvcc 13.0 for seven architectures.

    Raises:
        GemmlabError: these bytes are no cubin.
    """
    if len(cubin) < _HEADER_BYTES or cubin[:4] != b"\x7fELF":
        raise GemmlabError("not a cubin: no ELF header.")
    (machine,) = struct.unpack_from("<H", cubin, 18)
    if machine != _MACHINE_CUDA:
        raise GemmlabError(f"not a cubin: its ELF machine is {machine}, expected {_MACHINE_CUDA} (CUDA).")
    (flags,) = struct.unpack_from("<I", cubin, 48)
    abi_version = cubin[8]
    return f"sm_{(flags >> 8 if abi_version >= 8 else flags) & 0xFF}"


def entry_names(cubin: bytes) -> list[str]:
    """The names of the kernels in `cubin`, sorted: function symbols with STO_CUDA_ENTRY (0x10) in st_other.

    Raises:
        GemmlabError: these bytes are no cubin.
    """
    cubin_architecture(cubin)
    (sections_at,) = struct.unpack_from("<Q", cubin, 40)
    section_bytes, section_count = struct.unpack_from("<HH", cubin, 58)
    headers = [
        struct.unpack_from("<IIQQQQI", cubin, sections_at + number * section_bytes)
        for number in range(section_count)
    ]
    names = set()
    for _, kind, _, _, start, size, link in headers:
        if kind != _SECTION_SYMBOLS:
            continue
        texts = headers[link][4]
        for at in range(start, start + size, _SYMBOL.size):
            name, info, other, *_ = _SYMBOL.unpack_from(cubin, at)
            if info & 0xF == _TYPE_FUNCTION and other & _OTHER_ENTRY:
                names.add(cubin[texts + name : cubin.index(b"\0", texts + name)].decode(errors="replace"))
    return sorted(names)

"""Which flags of a catalogue entry are refused: those that choose the architecture, the files or the machine."""

from __future__ import annotations

import re
from collections.abc import Iterable

from gemmlab.errors import GemmlabError

_ARCHITECTURE = "the configuration (or the GPU) and the entry's architecture_suffix choose the architecture"
_OUTPUT = "the stage decides what is compiled to which file"
_MACHINE = "the result must not depend on one machine's folders, host compiler or GPU"
_ASSEMBLER = "nvcc stops at PTX here; give it under ptxas_flags"

_REASONS = {
    _ARCHITECTURE: "arch gpu-architecture gencode generate-code code gpu-code gpu-name",
    _OUTPUT: (
        "o output-file odir output-directory ptx cubin fatbin c compile dc device-c dw device-w E preprocess M MM MD "
        "lib link dlink run keep keep-dir save-temps dryrun compile-only optf options-file rdc lto dlto time"
    ),
    _MACHINE: (
        "ccbin compiler-bindir Xcompiler compiler-options isystem system-include I include-path include pre-include "
        "L library-path l library m machine allow-unsupported-compiler"
    ),
}
_REFUSED = {name: reason for reason, names in _REASONS.items() for name in names.split()}
_FOR_PTXAS_ALONE = frozenset({"Xptxas", "ptxas-options", "maxrregcount", "dlcm", "dscm"})
# These carry their value without a space: -I/usr/include, -L., -lm.
_GLUED = re.compile(r"-([ILl])[^-]")
_ABSOLUTE_PATH = re.compile(r"(^|[=,\s])(~?/|[A-Za-z]:\\)")


def check_flags(flags: Iterable[str], where: str, *, ptxas: bool = False) -> None:
    """Refuse what an entry's flags may not say.

    Args:
        flags: of the entry's compiler_flags or ptxas_flags.
        where: what the message calls them: file, variant and key.
        ptxas: whether they are for ptxas.

    Raises:
        GemmlabError: names the flag and why it is refused.
    """
    for flag in flags:
        reason = _reason(flag, ptxas)
        if reason:
            raise GemmlabError(f"{where}: {flag!r} is refused: {reason}.")


def _reason(flag: str, ptxas: bool) -> str | None:
    name = re.split(r"[=\s]", flag.lstrip("-"), maxsplit=1)[0]
    glued = _GLUED.match(flag)
    if flag.startswith("-") and name in _REFUSED:
        return _REFUSED[name]
    if not ptxas and flag.startswith("-") and name in _FOR_PTXAS_ALONE:
        return _ASSEMBLER
    if "native" in flag or (glued and not flag.startswith("-lineinfo")) or _ABSOLUTE_PATH.search(flag):
        return _MACHINE
    return None

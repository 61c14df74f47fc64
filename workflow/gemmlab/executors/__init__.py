"""The two executors of a compiled variant: `cuda` runs its cubin, `emulator` interprets its PTX."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from gemmlab.executors.base import Executor

EXECUTORS = ("emulator", "cuda")
_LEVEL_0 = re.compile(r"(^|\s)(-O|--opt-level)[=\s]?0(\s|$)")


def open_executor(name: str, ptx: Path, cubin: Path, ptxas_flags: Sequence[str] = ()) -> Executor:
    """The executor called `name`, loaded with a variant.

    Args:
        name: one of EXECUTORS.
        ptx: what nvcc wrote.
        cubin: what ptxas made of it.
        ptxas_flags: with these; the emulator's counters depend on the level of optimisation.

    Raises:
        Unavailable: this machine has no GPU or the emulator lacks an instruction.
        GemmlabError: the file can't be loaded; the message says why.
    """
    if name == "emulator":
        from gemmlab.executors.emulator import EmulatorExecutor

        return EmulatorExecutor(ptx, joins_accesses=not _LEVEL_0.search(" ".join(ptxas_flags)))
    from gemmlab.executors.cuda import CudaExecutor

    return CudaExecutor(cubin)

"""The two executors of a compiled variant: `cuda` runs its cubin, `emulator` interprets its PTX."""

from __future__ import annotations

from pathlib import Path

from gemmlab.executors.base import Executor

EXECUTORS = ("emulator", "cuda")


def open_executor(name: str, ptx: Path, cubin: Path) -> Executor:
    """The executor called `name`, loaded with a variant.

    Raises:
        Unavailable: this machine has no GPU or the emulator lacks an instruction.
        GemmlabError: the file can't be loaded; the message says why.
    """
    if name == "emulator":
        from gemmlab.executors.emulator import EmulatorExecutor

        return EmulatorExecutor(ptx)
    from gemmlab.executors.cuda import CudaExecutor

    return CudaExecutor(cubin)

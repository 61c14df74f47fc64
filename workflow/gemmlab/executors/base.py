"""What every executor takes and gives, so that no stage knows which one it got."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

import numpy as np

from gemmlab import status
from gemmlab.errors import GemmlabError

Dim3 = tuple[int, int, int]


class Unavailable(GemmlabError):
    """This machine or executor lacks something that the variant needs; the message says which."""


class NotLaunchable(GemmlabError):
    """The variant can't be launched as asked (shared memory, registers, threads); the message gives both numbers."""


class DeviceFault(GemmlabError):
    """A kernel died on the device; the context is lost and the process should end."""


def failure(error: GemmlabError) -> dict[str, str]:
    """Status and reason of what an executor raised, as fields of a record."""
    match error:
        case Unavailable():
            return {"status": status.UNAVAILABLE, "reason": str(error)}
        case NotLaunchable():
            return {"status": status.FAILED, "reason": f"not launchable: {error}"}
        case DeviceFault():
            return {"status": status.FAILED, "reason": f"device fault: {error}"}
    return {"status": status.FAILED, "reason": str(error)}


@dataclass(frozen=True)
class Scalar:
    """A kernel argument passed by value, converted to `kind` whatever Python type `value` has."""

    kind: Literal["int32", "int64", "float32"]
    value: int | float


@dataclass(frozen=True)
class Pointer:
    """A kernel argument that points to the first element of the buffer named `buffer`."""

    buffer: str


@dataclass(frozen=True)
class TensorMap:
    """A CUtensorMap over a row-major matrix (rows x columns, `pitch` elements a row) in a buffer.

    `box_rows` x `box_columns` elements are copied at a time; `swizzle` is 0, 32, 64 or 128 bytes.
    """

    buffer: str
    rows: int
    columns: int
    pitch: int
    box_rows: int
    box_columns: int
    swizzle: int = 0


Argument = Scalar | Pointer | TensorMap


@dataclass(frozen=True)
class Launch:
    """One kernel launch: the arguments stand in the order of the entry's parameters."""

    entry: str
    grid: Dim3
    block: Dim3
    shared_bytes: int
    arguments: tuple[Argument, ...]
    cluster: Dim3 = (1, 1, 1)


FINDING_KINDS = (
    "race",
    "out_of_bounds",
    "misaligned",
    "uninitialised_read",
    "divergent_barrier",
    "no_progress",
    "guard_overwritten",
)


@dataclass(frozen=True)
class Finding:
    """Something that a correct kernel never does, seen while it ran.

    `file` and `line` are the .cu line; `block` and `thread` are CUDA indices; `other_thread` is the partner of a
    race. `count` is how often the same instruction did it. `message` is one sentence for people.
    """

    kind: str
    message: str
    file: str | None = None
    line: int | None = None
    block: Dim3 | None = None
    thread: Dim3 | None = None
    other_thread: Dim3 | None = None
    instruction: str | None = None
    count: int = 1


@dataclass(frozen=True)
class Execution:
    """What running a sequence of launches showed, besides the buffers it changed."""

    findings: tuple[Finding, ...] = ()
    counters: Mapping[str, int] = field(default_factory=dict)


class Executor(Protocol):
    """A loaded variant, ready to run launches over host arrays."""

    name: str

    def run(
        self,
        launches: Sequence[Launch],
        buffers: Mapping[str, np.ndarray],
        *,
        order: int = 0,
        find: bool = True,
        count: bool = False,
    ) -> Execution:
        """Run `launches` one after another over `buffers`, which are changed in place.

        Args:
            launches: in order; each sees what the ones before it wrote.
            buffers: contiguous one-dimensional arrays by the names that the arguments use.
            order: 0 is the natural order of blocks and warps; another number shuffles both by that seed where the
                executor can, and is ignored where the hardware decides.
            find: look for races, stray accesses and the like (slower); out-of-bounds accesses never touch memory
                that isn't the buffer's, whatever this says.
            count: fill `Execution.counters`.

        Raises:
            Unavailable: the executor lacks an instruction or a device.
            NotLaunchable: a limit of the device is exceeded.
            DeviceFault: the device reported an error; this process can't go on using it.
        """
        ...

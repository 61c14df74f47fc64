"""The executor that interprets a variant's PTX on the CPU: exact to the last bit, watchful, and never a clock."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath

import numpy as np

from gemmlab import emulator_build
from gemmlab.errors import GemmlabError
from gemmlab.executors.base import (
    Argument,
    Dim3,
    Execution,
    Finding,
    Launch,
    NotLaunchable,
    Pointer,
    Scalar,
    Unavailable,
)

BLOCK_BUDGET = 100_000_000
"""Instructions that the warps of one block may execute before the block counts as making no progress."""

_KINDS = (
    "race",
    "out_of_bounds",
    "misaligned",
    "uninitialised_read",
    "divergent_barrier",
    "no_progress",
)
_LABELS = {
    "race": "race",
    "out_of_bounds": "out of bounds",
    "misaligned": "misaligned",
    "uninitialised_read": "uninitialised read",
    "divergent_barrier": "divergent barrier",
    "no_progress": "no progress",
}
_STATUS_ERRORS = {1: Unavailable, 2: NotLaunchable}
_FIND, _COUNT = 1, 2
_JOIN = 1
_MESSAGE_BYTES = 2048
_WIDTHS = 5
_SCALARS = {"int32": np.int32, "int64": np.int64, "float32": np.float32}


class _Buffer(ctypes.Structure):
    _fields_ = (("name", ctypes.c_char_p), ("data", ctypes.c_void_p), ("bytes", ctypes.c_uint64))


class _Parameter(ctypes.Structure):
    _fields_ = (("bytes", ctypes.c_uint32), ("offset", ctypes.c_uint32))


class _Launch(ctypes.Structure):
    _fields_ = (
        ("entry", ctypes.c_char_p),
        ("grid", ctypes.c_uint32 * 3),
        ("block", ctypes.c_uint32 * 3),
        ("shared_bytes", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        ("order", ctypes.c_uint64),
        ("block_budget", ctypes.c_uint64),
        ("parameters", ctypes.c_char_p),
        ("parameter_bytes", ctypes.c_uint32),
        ("buffer_count", ctypes.c_uint32),
        ("buffers", ctypes.POINTER(_Buffer)),
    )


class _Finding(ctypes.Structure):
    _fields_ = (
        ("kind", ctypes.c_uint32),
        ("line", ctypes.c_uint32),
        ("message", ctypes.c_char_p),
        ("instruction", ctypes.c_char_p),
        ("file", ctypes.c_char_p),
        ("block", ctypes.c_uint32 * 3),
        ("thread", ctypes.c_uint32 * 3),
        ("has_other_thread", ctypes.c_uint32),
        ("other_thread", ctypes.c_uint32 * 3),
        ("count", ctypes.c_uint64),
    )


_libraries: dict[Path, ctypes.CDLL] = {}


def load_library(path: Path | None = None) -> ctypes.CDLL:
    """Load the emulator's library with its functions typed; by default the one for this machine, built if need be."""
    path = path or emulator_build.library()
    known = _libraries.get(path)
    if known is not None:
        return known
    library = ctypes.CDLL(str(path))
    module, text, word, wide = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_uint32, ctypes.c_uint64
    signatures = {
        "ptx_load": (module, [text, wide, word, text, word]),
        "ptx_free": (None, [module]),
        "ptx_buffer_address": (wide, [word]),
        "ptx_entry_count": (word, [module]),
        "ptx_entry_name": (text, [module, word]),
        "ptx_parameter_count": (word, [module, word]),
        "ptx_parameter_at": (None, [module, word, word, ctypes.POINTER(_Parameter)]),
        "ptx_parameter_bytes": (word, [module, word]),
        "ptx_run": (ctypes.c_int, [module, ctypes.POINTER(_Launch), text, word]),
        "ptx_reset": (None, [module]),
        "ptx_finding_count": (word, [module]),
        "ptx_finding_at": (None, [module, word, ctypes.POINTER(_Finding)]),
        "ptx_counter_count": (word, []),
        "ptx_counter_name": (text, [word]),
        "ptx_counters": (None, [module, ctypes.POINTER(wide)]),
        "ptx_shared_cost": (wide, [ctypes.POINTER(word), word, word, word]),
        "ptx_sectors": (word, [ctypes.POINTER(wide), word, word]),
        "ptx_shared_widths": (ctypes.c_int, [module, text, ctypes.POINTER(word), text, word]),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    _libraries[path] = library
    return library


class _Entry:
    """Parameters of a kernel, as its PTX declares them."""

    def __init__(self, name: str, index: int, parameters: list[_Parameter], parameter_bytes: int):
        self.name = name
        self.index = index
        self.parameters = parameters
        self.parameter_bytes = parameter_bytes


class EmulatorExecutor:
    """Runs the kernels of one PTX file on the CPU.

    The file is read and parsed once; kernels are decoded when they are first launched. An instance keeps its memory
    from launch to launch and belongs to one thread.
    """

    name = "emulator"

    def __init__(
        self,
        ptx: Path,
        *,
        library: Path | None = None,
        block_budget: int = BLOCK_BUDGET,
        joins_accesses: bool = True,
    ):
        """Load `ptx`.

        Args:
            ptx: what `nvcc -ptx -lineinfo` wrote; without -lineinfo findings name no source line.
            library: the emulator's shared library; by default the one for this machine, built if need be.
            block_budget: instructions that the warps of one block may execute before the launch is stopped with a
                finding of the kind no_progress.
            joins_accesses: count neighbouring shared accesses as ptxas joins them; at its level 0 it joins none.

        Raises:
            GemmlabError: the file can't be read or isn't PTX, or the library can't be built.
        """
        self._module = None
        self.ptx = Path(ptx)
        self._library = load_library(library)
        self._block_budget = block_budget
        try:
            text = self.ptx.read_bytes()
        except OSError as error:
            raise GemmlabError(f"{self.ptx}: can't be read: {error.strerror}") from error
        message = ctypes.create_string_buffer(_MESSAGE_BYTES)
        flags = _JOIN if joins_accesses else 0
        self._module = self._library.ptx_load(text, len(text), flags, message, _MESSAGE_BYTES)
        if not self._module:
            raise GemmlabError(f"{self.ptx}: {message.value.decode(errors='replace')}")
        self._entries = self._read_entries()
        count = self._library.ptx_counter_count()
        self._counter_names = [self._library.ptx_counter_name(i).decode() for i in range(count)]

    def __del__(self):
        if getattr(self, "_module", None):
            self._library.ptx_free(self._module)
            self._module = None

    @property
    def entries(self) -> tuple[str, ...]:
        """Names of the file's kernels."""
        return tuple(self._entries)

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
            buffers: contiguous arrays by the names that the arguments use; each is an allocation of its own, so that
                any access outside it is found whatever `find` says, reads junk and writes nothing.
            order: 0 is the natural order of blocks and warps; another number shuffles both by that seed.
            find: look for races and uninitialised reads too.
            count: fill `Execution.counters`.

        Raises:
            Unavailable: the kernel holds an instruction that the emulator lacks; the message quotes it.
            NotLaunchable: a limit of the device is exceeded.
            GemmlabError: no such kernel, or arguments or buffers that don't fit it.
        """
        native_buffers, indices = self._native_buffers(buffers)
        self._library.ptx_reset(self._module)
        flags = (_FIND if find else 0) | (_COUNT if count else 0)
        for launch in launches:
            self._run_one(launch, native_buffers, indices, order, flags)
        return Execution(findings=self._findings(), counters=self._counters() if count else {})

    def shared_widths(self, entry: str) -> tuple[dict[int, int], dict[int, int]]:
        """Count the shared loads and stores in a kernel's text by the bytes that ptxas is predicted to give them.

        Raises:
            GemmlabError: no such kernel.
            Unavailable: the kernel holds an instruction that the emulator lacks.
        """
        message = ctypes.create_string_buffer(_MESSAGE_BYTES)
        counts = (ctypes.c_uint32 * (2 * _WIDTHS))()
        self._entry(entry)
        status = self._library.ptx_shared_widths(
            self._module, entry.encode(), counts, message, _MESSAGE_BYTES
        )
        self._raise_for(status, entry, message)
        loads, stores = (
            {1 << i: counts[first + i] for i in range(_WIDTHS) if counts[first + i]} for first in (0, _WIDTHS)
        )
        return loads, stores

    def _read_entries(self) -> dict[str, _Entry]:
        entries = {}
        for index in range(self._library.ptx_entry_count(self._module)):
            name = self._library.ptx_entry_name(self._module, index).decode()
            parameters = []
            for position in range(self._library.ptx_parameter_count(self._module, index)):
                parameter = _Parameter()
                self._library.ptx_parameter_at(self._module, index, position, ctypes.byref(parameter))
                parameters.append(parameter)
            size = self._library.ptx_parameter_bytes(self._module, index)
            entries[name] = _Entry(name, index, parameters, size)
        return entries

    def _entry(self, name: str) -> _Entry:
        entry = self._entries.get(name)
        if entry is None:
            found = ", ".join(self._entries) or "none"
            raise GemmlabError(f"kernel {name} not found in {self.ptx}; found: {found}")
        return entry

    def _native_buffers(self, buffers: Mapping[str, np.ndarray]) -> tuple[ctypes.Array, dict[str, int]]:
        native = (_Buffer * max(1, len(buffers)))()
        indices = {}
        for index, (name, array) in enumerate(buffers.items()):
            if not isinstance(array, np.ndarray):
                raise GemmlabError(f"buffer {name} is a {type(array).__name__}, expected a numpy array")
            if not array.flags.c_contiguous:
                raise GemmlabError(
                    f"buffer {name} isn't contiguous; pass a copy made by numpy.ascontiguousarray"
                )
            if not array.flags.writeable:
                raise GemmlabError(f"buffer {name} is read-only; pass a copy")
            native[index] = _Buffer(name.encode(), array.ctypes.data, array.nbytes)
            indices[name] = index
        return native, indices

    def _run_one(
        self, launch: Launch, buffers: ctypes.Array, indices: dict[str, int], order: int, flags: int
    ) -> None:
        entry = self._entry(launch.entry)
        if launch.cluster != (1, 1, 1):
            raise Unavailable(
                f"{launch.entry}: the emulator has no thread block clusters, asked for {launch.cluster}"
            )
        parameters = self._pack(entry, launch.arguments, indices)
        native = _Launch(
            entry=launch.entry.encode(),
            grid=_dimensions(launch, "grid", launch.grid),
            block=_dimensions(launch, "block", launch.block),
            shared_bytes=launch.shared_bytes,
            flags=flags,
            order=order & 0xFFFF_FFFF_FFFF_FFFF,
            block_budget=self._block_budget,
            parameters=parameters,
            parameter_bytes=len(parameters),
            buffer_count=len(indices),
            buffers=buffers,
        )
        message = ctypes.create_string_buffer(_MESSAGE_BYTES)
        status = self._library.ptx_run(self._module, ctypes.byref(native), message, _MESSAGE_BYTES)
        self._raise_for(status, launch.entry, message)

    def _raise_for(self, status: int, entry: str, message: ctypes.Array) -> None:
        if status == 0:
            return
        error = _STATUS_ERRORS.get(status, GemmlabError)
        raise error(f"{entry} in {self.ptx}: {message.value.decode(errors='replace')}")

    def _pack(self, entry: _Entry, arguments: Sequence[Argument], indices: dict[str, int]) -> bytes:
        if len(arguments) != len(entry.parameters):
            raise GemmlabError(
                f"entry {entry.name} takes {len(entry.parameters)} arguments, given {len(arguments)}"
            )
        block = bytearray(entry.parameter_bytes)
        for position, (argument, parameter) in enumerate(zip(arguments, entry.parameters, strict=True)):
            packed = self._pack_one(entry, position, argument, indices)
            if len(packed) != parameter.bytes:
                raise GemmlabError(
                    f"argument {position} of entry {entry.name} has {len(packed)} bytes ({argument}), "
                    f"the kernel takes {parameter.bytes}"
                )
            block[parameter.offset : parameter.offset + len(packed)] = packed
        return bytes(block)

    def _pack_one(self, entry: _Entry, position: int, argument: Argument, indices: dict[str, int]) -> bytes:
        if isinstance(argument, Scalar):
            try:
                return _SCALARS[argument.kind](argument.value).tobytes()
            except (OverflowError, ValueError, KeyError) as error:
                raise GemmlabError(
                    f"argument {position} of entry {entry.name}: {argument.value!r} is no {argument.kind}: {error}"
                ) from error
        if isinstance(argument, Pointer):
            if argument.buffer not in indices:
                raise GemmlabError(
                    f"argument {position} of entry {entry.name} points to buffer {argument.buffer}; "
                    f"given: {', '.join(indices) or 'none'}"
                )
            return self._library.ptx_buffer_address(indices[argument.buffer]).to_bytes(8, "little")
        raise Unavailable(
            f"argument {position} of entry {entry.name}: the emulator takes no {type(argument).__name__}"
        )

    def _findings(self) -> tuple[Finding, ...]:
        findings = []
        for index in range(self._library.ptx_finding_count(self._module)):
            native = _Finding()
            self._library.ptx_finding_at(self._module, index, ctypes.byref(native))
            findings.append(_to_finding(native))
        return tuple(findings)

    def _counters(self) -> dict[str, int]:
        values = (ctypes.c_uint64 * len(self._counter_names))()
        self._library.ptx_counters(self._module, values)
        return dict(zip(self._counter_names, values, strict=True))


def _dimensions(launch: Launch, what: str, size: Dim3) -> ctypes.Array:
    if len(size) != 3 or any(not 0 <= extent < 2**32 for extent in size):
        raise NotLaunchable(f"{launch.entry}: {what} {size}: three dimensions of 1 or more are needed")
    return (ctypes.c_uint32 * 3)(*size)


def _to_finding(native: _Finding) -> Finding:
    kind = _KINDS[native.kind]
    file = native.file.decode() or None
    message = f"{_LABELS[kind]}: {native.message.decode()}"
    if file and native.line:
        message += f", {PurePosixPath(file).name}:{native.line}"
    return Finding(
        kind=kind,
        message=message,
        file=file,
        line=native.line or None,
        block=tuple(native.block),
        thread=tuple(native.thread),
        other_thread=tuple(native.other_thread) if native.has_other_thread else None,
        instruction=native.instruction.decode(),
        count=native.count,
    )

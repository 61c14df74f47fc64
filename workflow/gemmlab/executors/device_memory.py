"""Buffers on the device between guard bands, and CUDA's errors in words."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from gemmlab.executors.base import DeviceFault, Unavailable

GUARD_BYTES = 4096
# All bits set is a NaN in float32, float16 and bfloat16: what is read from a guard band spoils the result.
_GUARD_BYTE = 0xFF


class MemoryShort(Unavailable):
    """The device hasn't enough memory left; the message gives the numbers."""


def load_cupy() -> Any:
    """The module cupy, with a device behind it.

    Raises:
        Unavailable: CuPy isn't installed or sees no GPU; the message says which.
    """
    try:
        import cupy
    except ImportError as error:
        raise Unavailable(
            f"CuPy can't be imported ({error}). `pip install -r requirements-gpu-cu12.lock` installs it."
        ) from error
    if not cupy.cuda.is_available():
        raise Unavailable("CuPy sees no CUDA device. `gemmlab doctor` says what is wrong with driver or GPU.")
    return cupy


def cuda_errors(cupy: Any) -> tuple[type[Exception], ...]:
    """What CuPy raises for an error of the CUDA driver or runtime."""
    return cupy.cuda.driver.CUDADriverError, cupy.cuda.runtime.CUDARuntimeError


def in_words(error: Exception) -> str:
    """CUDA's words first, then its name: "misaligned address (cudaErrorMisalignedAddress)"."""
    name, separator, words = str(error).partition(": ")
    return f"{words} ({name})" if separator else str(error)


@contextlib.contextmanager
def device_faults(cupy: Any, what: str) -> Iterator[None]:
    """Turn a CUDA error inside into a DeviceFault that names `what`; the context is lost then."""
    try:
        yield
    except cuda_errors(cupy) as error:
        raise DeviceFault(f"{what}: {in_words(error)}") from error


@dataclass(frozen=True)
class DeviceBuffer:
    """One buffer on the device between two guard bands of 4096 bytes.

    `memory` is CuPy's pointer to the first guard; `address` points to the first element.
    """

    memory: Any
    size_bytes: int
    dtype: np.dtype

    @property
    def address(self) -> int:
        """Device address of the first element; as well aligned as CuPy's allocations (to 512 bytes)."""
        return self.memory.ptr + GUARD_BYTES

    def upload(self, array: np.ndarray) -> None:
        """Copy `array` (contiguous, of the buffer's size) to the device."""
        self._refuse_other_size(array)
        (self.memory + GUARD_BYTES).copy_from_host(array.ctypes.data, array.nbytes)

    def download(self, array: np.ndarray) -> None:
        """Copy the buffer into `array` (contiguous, of the buffer's size)."""
        self._refuse_other_size(array)
        (self.memory + GUARD_BYTES).copy_to_host(array.ctypes.data, array.nbytes)

    def poison(self) -> None:
        """Fill the buffer with NaN, so that what a kernel leaves unwritten shows."""
        (self.memory + GUARD_BYTES).memset(_GUARD_BYTE, self.size_bytes)

    def overwritten_guards(self) -> list[str]:
        """What happened to the guard bands, in words; empty if nothing did."""
        faults = []
        for side, at in (("before its start", 0), ("after its end", GUARD_BYTES + self.size_bytes)):
            guard = np.empty(GUARD_BYTES, dtype=np.uint8)
            (self.memory + at).copy_to_host(guard.ctypes.data, GUARD_BYTES)
            changed = np.flatnonzero(guard != _GUARD_BYTE)
            if changed.size:
                nearest = changed[0] if at else GUARD_BYTES - 1 - changed[-1]
                faults.append(f"{changed.size} bytes {side}, the nearest {int(nearest)} bytes away")
        return faults

    def _refuse_other_size(self, array: np.ndarray) -> None:
        if array.nbytes != self.size_bytes or not array.flags.c_contiguous:
            raise ValueError(f"an array of {array.nbytes} bytes for a buffer of {self.size_bytes}")


def allocate(cupy: Any, size_bytes: int, dtype: np.dtype | type) -> DeviceBuffer:
    """A buffer of `size_bytes` between fresh guard bands; its content is undefined.

    Raises:
        MemoryShort: the device hasn't that much memory left.
    """
    try:
        memory = cupy.cuda.alloc(size_bytes + 2 * GUARD_BYTES)
    except cupy.cuda.memory.OutOfMemoryError as error:
        free, total = cupy.cuda.runtime.memGetInfo()
        raise MemoryShort(
            f"a buffer of {size_bytes} bytes doesn't fit: {free} of the device's {total} bytes are free"
        ) from error
    memory.memset(_GUARD_BYTE, GUARD_BYTES)
    (memory + (GUARD_BYTES + size_bytes)).memset(_GUARD_BYTE, GUARD_BYTES)
    return DeviceBuffer(memory, size_bytes, np.dtype(dtype))

"""The CUDA driver library asked directly: no CuPy, no context, and only answers where there is no driver."""

from __future__ import annotations

import ctypes
import functools
import uuid

from gemmlab.device_attributes import NAMES

_SUCCESS = 0


@functools.cache
def _library() -> ctypes.CDLL | None:
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None


def cuda_version() -> tuple[int, int] | None:
    """The newest CUDA that the installed driver supports, such as (13, 0), or None without a driver.

    Needs no GPU and no initialisation, so it is quick enough to ask in every compile job.
    """
    library = _library()
    version = ctypes.c_int()
    if library is None or library.cuDriverGetVersion(ctypes.byref(version)) != _SUCCESS or version.value <= 0:
        return None
    return version.value // 1000, version.value % 1000 // 10


@functools.cache
def _initialised() -> bool:
    library = _library()
    return library is not None and library.cuInit(0) == _SUCCESS


def device_count() -> int:
    """How many devices the driver shows to this process (CUDA_VISIBLE_DEVICES counts)."""
    count = ctypes.c_int()
    if not _initialised() or _library().cuDeviceGetCount(ctypes.byref(count)) != _SUCCESS:
        return 0
    return count.value


def device_uuid(device: int) -> str | None:
    """The UUID of `device` (the driver's number) as nvidia-smi writes it, GPU-..., or None if it can't be had."""
    content = (ctypes.c_ubyte * 16)()
    if device >= device_count() or _library().cuDeviceGetUuid(content, _handle(device)) != _SUCCESS:
        return None
    return f"GPU-{uuid.UUID(bytes=bytes(content))}"


def device_of(gpu_uuid: str) -> int | None:
    """The driver's number of the device that nvidia-smi calls `gpu_uuid`, or None if the driver doesn't show it."""
    return next((device for device in range(device_count()) if device_uuid(device) == gpu_uuid), None)


def device_attributes(device: int) -> dict[str, int]:
    """Every attribute of `device` (the driver's number) by its name in cuda.h; those the driver doesn't know lack."""
    values = {}
    for number, name in enumerate(NAMES, start=1):
        value = ctypes.c_int()
        if _library().cuDeviceGetAttribute(ctypes.byref(value), number, _handle(device)) == _SUCCESS:
            values[name] = value.value
    return values


def compute_capability(gpu_uuid: str) -> tuple[int, int] | None:
    """Major and minor of the card's compute capability, or None if the driver can't be asked."""
    device = device_of(gpu_uuid)
    if device is None:
        return None
    attributes = device_attributes(device)
    return attributes["compute_capability_major"], attributes["compute_capability_minor"]


def _handle(device: int) -> ctypes.c_int:
    handle = ctypes.c_int()
    _library().cuDeviceGet(ctypes.byref(handle), device)
    return handle

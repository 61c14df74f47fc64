"""Tensor maps: the descriptors through which a kernel's TMA copies find a matrix."""

from __future__ import annotations

import numpy as np

from gemmlab.executors.base import NotLaunchable, TensorMap, Unavailable

_ALIGNMENT_BYTES = 16
_BOX_LIMIT = 256
_OPAQUE_TYPE = "V128"
# bfloat16 is kept as uint16 on the host (gemmlab.elements).
_DATA_TYPES = {"float32": "FLOAT32", "float16": "FLOAT16", "uint16": "BFLOAT16"}


def refuse_unmappable(tensor_map: TensorMap, itemsize: int) -> None:
    """Raise NotLaunchable that names value and rule if no tensor map can describe the matrix.

    Rules of cuTensorMapEncodeTiled (CUDA driver API, section Tensor Map Object Management).
    """
    pitch = tensor_map.pitch * itemsize
    row = tensor_map.box_columns * itemsize
    faults = []
    if pitch % _ALIGNMENT_BYTES:
        faults.append(f"rows lie {pitch} bytes apart, TMA needs a multiple of {_ALIGNMENT_BYTES}")
    if row % _ALIGNMENT_BYTES:
        faults.append(f"a box row has {row} bytes, TMA needs a multiple of {_ALIGNMENT_BYTES}")
    if tensor_map.swizzle and row > tensor_map.swizzle:
        faults.append(
            f"a box row has {row} bytes, a swizzle of {tensor_map.swizzle} allows no more than that"
        )
    for name, side in (("box rows", tensor_map.box_rows), ("box columns", tensor_map.box_columns)):
        if not 1 <= side <= _BOX_LIMIT:
            faults.append(f"{name} are {side}, TMA allows 1 to {_BOX_LIMIT}")
    if faults:
        raise NotLaunchable(f"tensor map of {tensor_map.buffer}: {'; '.join(faults)}")


def encode(tensor_map: TensorMap, address: int, dtype: np.dtype) -> np.void:
    """The 128 bytes of a CUtensorMap over device memory, as a value that CuPy passes to a kernel.

    Args:
        tensor_map: the matrix and the box of one copy; dimensions run rows by columns here, innermost first there.
        address: the matrix's first element in device memory.
        dtype: element type on the host.

    Raises:
        NotLaunchable: the matrix can't be described so.
        Unavailable: cuda-bindings is not installed.
    """
    refuse_unmappable(tensor_map, dtype.itemsize)
    try:
        from cuda.bindings import driver as cuda
    except ImportError as error:
        raise Unavailable(f"tensor maps need cuda-bindings, which can't be imported ({error})") from error
    if address % _ALIGNMENT_BYTES:
        raise NotLaunchable(
            f"tensor map of {tensor_map.buffer}: address {address:#x} is no multiple of {_ALIGNMENT_BYTES}"
        )
    swizzle = (
        f"CU_TENSOR_MAP_SWIZZLE_{tensor_map.swizzle}B" if tensor_map.swizzle else "CU_TENSOR_MAP_SWIZZLE_NONE"
    )
    result, opaque = cuda.cuTensorMapEncodeTiled(
        getattr(cuda.CUtensorMapDataType, f"CU_TENSOR_MAP_DATA_TYPE_{_DATA_TYPES[dtype.name]}"),
        2,
        address,
        [cuda.cuuint64_t(tensor_map.columns), cuda.cuuint64_t(tensor_map.rows)],
        [cuda.cuuint64_t(tensor_map.pitch * dtype.itemsize)],
        [cuda.cuuint32_t(tensor_map.box_columns), cuda.cuuint32_t(tensor_map.box_rows)],
        [cuda.cuuint32_t(1), cuda.cuuint32_t(1)],
        cuda.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
        getattr(cuda.CUtensorMapSwizzle, swizzle),
        cuda.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
        cuda.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
    )
    if result != cuda.CUresult.CUDA_SUCCESS:
        raise NotLaunchable(
            f"tensor map of {tensor_map.buffer}: the driver refused {tensor_map.rows} x {tensor_map.columns} elements "
            f"of {dtype.name}, pitch {tensor_map.pitch}, box {tensor_map.box_rows} x {tensor_map.box_columns}, "
            f"swizzle {tensor_map.swizzle} ({result.name})"
        )
    # CuPy passes a scalar of 128 raw bytes by value; an array of them it would pass as a pointer.
    return np.array([int(word) for word in opaque.opaque], dtype=np.uint64).view(_OPAQUE_TYPE)[0]

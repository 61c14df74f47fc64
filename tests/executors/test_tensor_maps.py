from __future__ import annotations

import enum
import sys
import types

import numpy as np
import pytest

from gemmlab.executors.base import NotLaunchable, TensorMap
from gemmlab.executors.tensor_maps import encode, refuse_unmappable

GOOD = {
    "buffer": "b",
    "rows": 100,
    "columns": 64,
    "pitch": 64,
    "box_rows": 64,
    "box_columns": 32,
    "swizzle": 128,
}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"pitch": 65}, "rows lie 260 bytes apart, TMA needs a multiple of 16"),
        ({"box_columns": 3}, "a box row has 12 bytes"),
        ({"box_columns": 64}, "a box row has 256 bytes, a swizzle of 128 allows"),
        ({"box_rows": 257}, "box rows are 257, TMA allows 1 to 256"),
    ],
)
def test_what_tma_cannot_describe_is_refused_with_the_rule(changes: dict, words: str) -> None:
    with pytest.raises(NotLaunchable, match=f"tensor map of b: .*{words}"):
        refuse_unmappable(TensorMap(**(GOOD | changes)), 4)


@pytest.fixture
def bindings(monkeypatch: pytest.MonkeyPatch) -> types.SimpleNamespace:
    """cuda.bindings.driver as far as a tensor map needs it; the call's arguments are kept in `called`."""
    module = types.SimpleNamespace(
        CUresult=enum.Enum("CUresult", ["CUDA_SUCCESS", "CUDA_ERROR_INVALID_VALUE"]),
        cuuint64_t=int,
        cuuint32_t=int,
    )
    for name, prefix, members in (
        ("CUtensorMapDataType", "CU_TENSOR_MAP_DATA_TYPE_", ["FLOAT32", "FLOAT16", "BFLOAT16"]),
        ("CUtensorMapInterleave", "CU_TENSOR_MAP_INTERLEAVE_", ["NONE"]),
        ("CUtensorMapSwizzle", "CU_TENSOR_MAP_SWIZZLE_", ["NONE", "128B"]),
        ("CUtensorMapL2promotion", "CU_TENSOR_MAP_L2_PROMOTION_", ["L2_256B"]),
        ("CUtensorMapFloatOOBfill", "CU_TENSOR_MAP_FLOAT_OOB_FILL_", ["NONE"]),
    ):
        setattr(module, name, enum.Enum(name, [prefix + member for member in members]))

    def encode_tiled(*arguments):
        module.called = arguments
        return module.result, types.SimpleNamespace(opaque=list(range(16)))

    module.result = module.CUresult.CUDA_SUCCESS
    module.cuTensorMapEncodeTiled = encode_tiled
    package = types.ModuleType("cuda.bindings")
    package.driver = module
    monkeypatch.setitem(sys.modules, "cuda", types.ModuleType("cuda"))
    monkeypatch.setitem(sys.modules, "cuda.bindings", package)
    monkeypatch.setitem(sys.modules, "cuda.bindings.driver", module)
    return module


def test_the_descriptor_is_128_bytes_that_cupy_passes_by_value(bindings: types.SimpleNamespace) -> None:
    value = encode(TensorMap(**GOOD), 4096, np.dtype(np.float32))
    assert isinstance(value, np.void)
    assert np.frombuffer(value.tobytes(), np.uint64).tolist() == list(range(16))


@pytest.mark.parametrize(
    ("dtype", "data_type", "pitch_bytes"),
    [("float32", "FLOAT32", 256), ("float16", "FLOAT16", 128), ("uint16", "BFLOAT16", 128)],
)
def test_the_driver_gets_dimensions_innermost_first_and_bytes(
    bindings: types.SimpleNamespace, dtype: str, data_type: str, pitch_bytes: int
) -> None:
    encode(TensorMap(**GOOD), 4096, np.dtype(dtype))
    kind, rank, address, sizes, strides, box, steps, _, swizzle, _, _ = bindings.called
    assert kind.name == f"CU_TENSOR_MAP_DATA_TYPE_{data_type}"
    assert (rank, address, sizes, strides) == (2, 4096, [64, 100], [pitch_bytes])
    assert (box, steps, swizzle.name) == ([32, 64], [1, 1], "CU_TENSOR_MAP_SWIZZLE_128B")


def test_a_refusal_of_the_driver_shows_what_was_asked(bindings: types.SimpleNamespace) -> None:
    bindings.result = bindings.CUresult.CUDA_ERROR_INVALID_VALUE
    with pytest.raises(NotLaunchable, match=r"100 x 64 elements of float32.*CUDA_ERROR_INVALID_VALUE"):
        encode(TensorMap(**GOOD), 4096, np.dtype(np.float32))


def test_an_address_out_of_line_is_refused(bindings: types.SimpleNamespace) -> None:
    with pytest.raises(NotLaunchable, match="address 0x1004 is no multiple of 16"):
        encode(TensorMap(**GOOD), 4100, np.dtype(np.float32))

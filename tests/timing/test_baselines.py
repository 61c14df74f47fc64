from __future__ import annotations

import ctypes
import os
import sys
import types
from typing import Any

import numpy as np
import pytest
from fake_gpu import view

from gemmlab.executors.base import NotLaunchable, Unavailable
from gemmlab.problem import Problem
from gemmlab.timing import baselines
from gemmlab.timing.baselines import Cublas, best

TYPES = {0: np.float32, 2: np.float16, 14: np.uint16}
COMPUTE_32F, COMPUTE_TF32 = 68, 77


def plain(value: Any) -> Any:
    """A ctypes argument as a Python value."""
    value = getattr(value, "_obj", value)
    return getattr(value, "value", value)


def column_major(address: int, rows: int, columns: int, pitch: int, dtype: Any) -> np.ndarray:
    """A matrix as the library sees it."""
    return view(address, pitch * columns, dtype).reshape(columns, pitch)[:, :rows].T


def multiply(op_a, op_b, m, n, k, a, type_a, lda, b, type_b, ldb, c, type_c, ldc) -> None:
    """C = op(A) op(B), column-major, as cublasGemmEx is documented."""
    left = column_major(a, *((k, m) if op_a else (m, k)), lda, TYPES[type_a]).astype(np.float64)
    right = column_major(b, *((n, k) if op_b else (k, n)), ldb, TYPES[type_b]).astype(np.float64)
    product = (left.T if op_a else left) @ (right.T if op_b else right)
    column_major(c, m, n, ldc, TYPES[type_c])[:] = product


class Library:
    """libcublas and libcublasLt, as far as they are called."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.things: dict[int, dict] = {}
        self.offered = 3

    def __getattr__(self, name: str) -> Any:
        def succeed(*arguments: Any) -> int:
            self.calls.append(name)
            return 0

        return succeed

    def _create(self, target: Any, **content: Any) -> int:
        number = len(self.things) + 1
        self.things[number] = content
        target._obj.value = number
        return 0

    def cublasGetProperty(self, part: int, target: Any) -> int:
        target._obj.value = (13, 1, 0)[part]
        return 0

    def cublasGemmEx(self, *arguments: Any) -> int:
        _, op_a, op_b, m, n, k, alpha, a, type_a, lda, b, type_b, ldb, beta, c, type_c, ldc, compute, _ = map(
            plain, arguments
        )
        assert (alpha, beta) == (1.0, 0.0)
        self.compute = compute
        multiply(op_a, op_b, m, n, k, a, type_a, lda, b, type_b, ldb, c, type_c, ldc)
        return 0

    def cublasLtMatmulDescCreate(self, target: Any, compute: int, scale: int) -> int:
        self.compute = compute
        return self._create(target)

    def cublasLtMatmulDescSetAttribute(self, operation: Any, attribute: int, value: Any, size: Any) -> int:
        self.things[plain(operation)][attribute] = plain(value)
        return 0

    def cublasLtMatrixLayoutCreate(self, target: Any, kind: int, rows: Any, columns: Any, pitch: Any) -> int:
        return self._create(target, kind=kind, rows=plain(rows), columns=plain(columns), pitch=plain(pitch))

    def cublasLtMatmulAlgoGetHeuristic(self, *arguments: Any) -> int:
        *_, most, results, returned = arguments
        returned._obj.value = min(most, self.offered)
        for number in range(returned._obj.value):
            results[number].algorithm.data[0] = number
            results[number].state = 0 if number != 1 else 15
        return 0

    def cublasLtMatmul(self, *arguments: Any) -> int:
        _, operation, _, a, layout_a, b, layout_b, _, _, _, d, layout_d, algorithm, *_ = arguments
        self.algorithm = algorithm._obj.data[0]
        descriptor = self.things[plain(operation)]
        first, second, out = (self.things[plain(layout)] for layout in (layout_a, layout_b, layout_d))
        op_a, op_b = descriptor[3], descriptor[4]
        k = first["rows"] if op_a else first["columns"]
        multiply(
            *(op_a, op_b, out["rows"], out["columns"], k),
            *(plain(a), first["kind"], first["pitch"], plain(b), second["kind"], second["pitch"]),
            *(plain(d), out["kind"], out["pitch"]),
        )
        return 0


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Library:
    fake = Library()
    monkeypatch.setattr(baselines, "_load", lambda name: fake)
    return fake


STREAM = types.SimpleNamespace(ptr=7)


@pytest.mark.parametrize("light", [False, True])
@pytest.mark.parametrize("transpose_b", [False, True])
@pytest.mark.parametrize(
    ("arithmetic", "input_type", "compute"),
    [("fp32", "float32", COMPUTE_32F), ("tf32", "float32", COMPUTE_TF32), ("fp16", "float16", COMPUTE_32F)],
)
def test_row_major_products_come_out_right(
    library: Library, light: bool, transpose_b: bool, arithmetic: str, input_type: str, compute: int
) -> None:
    problem = Problem.packed(5, 7, 3, transpose_b=transpose_b)
    generator = np.random.default_rng(1)
    a = generator.integers(-3, 4, (5, 3)).astype(input_type)
    b = generator.integers(-3, 4, problem.b_shape).astype(input_type)
    c = np.zeros((5, 7), np.float32)
    addresses = tuple(array.ctypes.data for array in (a, b, c))
    cublas = Cublas(workspace=4096)
    arguments = (problem, arithmetic, (input_type, "float32"), addresses)
    matmul = cublas.light_matmuls(*arguments)[0] if light else cublas.matmul(*arguments)
    matmul.launch(STREAM)
    expected = a.astype(float) @ (b.T if transpose_b else b).astype(float)
    assert c.tolist() == expected.tolist()
    assert library.compute == compute


def test_a_new_stream_is_set_once_and_gets_the_workspace_again(library: Library) -> None:
    cublas = Cublas(workspace=4096)
    library.calls.clear()
    for pointer in (7, 7, 8):
        cublas.use_stream(pointer)
    assert library.calls == ["cublasSetStream_v2", "cublasSetWorkspace_v2"] * 2


def test_the_heuristics_failed_offers_are_left_out(library: Library) -> None:
    problem = Problem.packed(2, 2, 2)
    matmuls = Cublas(workspace=4096).light_matmuls(
        problem, "fp32", ("float32", "float32"), (4096, 4096, 4096)
    )
    assert len(matmuls) == 2


def test_the_fastest_offer_is_taken() -> None:
    assert best(["slow", "fast"], {"slow": 2.0, "fast": 1.0}.get) == "fast"
    with pytest.raises(NotLaunchable, match="offer no algorithm"):
        best([], float)


def test_the_version_is_the_library_s(library: Library) -> None:
    assert Cublas(workspace=4096).version == "13.1.0"


def test_a_failed_call_names_function_and_status(library: Library) -> None:
    library.cublasCreate_v2 = lambda handle: 1
    with pytest.raises(Unavailable, match="cublasCreate returned status 1"):
        Cublas(workspace=4096)


def test_variables_that_change_the_arithmetic_are_dropped(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NVIDIA_TF32_OVERRIDE", "1")
    Cublas(workspace=4096)
    assert "NVIDIA_TF32_OVERRIDE" not in os.environ


def test_without_the_library_the_baseline_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cuda.pathfinder", None)
    with pytest.raises(Unavailable, match="libcublas can't be loaded"):
        Cublas(workspace=4096)


def test_the_heuristic_s_result_has_the_library_s_layout() -> None:
    assert ctypes.sizeof(baselines._HeuristicResult) == 96

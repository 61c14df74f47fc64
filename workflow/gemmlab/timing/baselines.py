"""The baselines: cuBLAS and the best of cublasLt's heuristics, called by ctypes.

CuPy refuses cuBLAS inside a graph capture; the library itself doesn't. Calls here take no memory and don't wait, so
they can be captured and repeated. Matrices are row-major: since a row-major matrix is a column-major one transposed,
C^T = B^T A^T is what the library is asked for.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Sequence
from typing import Any

from gemmlab.errors import GemmlabError
from gemmlab.executors.base import NotLaunchable, Unavailable
from gemmlab.problem import Problem

WORKSPACE_BYTES = 64 * 2**20
HEURISTICS = 8
# Variables that change what the library computes behind our back.
_FOREIGN_SETTINGS = ("NVIDIA_TF32_OVERRIDE", "CUBLAS_EMULATE_SINGLE_PRECISION", "CUBLAS_EMULATION_STRATEGY")

# Values from library_types.h, cublas_api.h and cublasLt.h.
_DATA_TYPES = {"float32": 0, "float16": 2, "bfloat16": 14}
_COMPUTE_32F, _COMPUTE_32F_FAST_TF32 = 68, 77
_COMPUTE_TYPES = {
    "fp32": _COMPUTE_32F,
    "tf32": _COMPUTE_32F_FAST_TF32,
    "fp16": _COMPUTE_32F,
    "bf16": _COMPUTE_32F,
}
_GEMM_DEFAULT = -1
_DEFAULT_MATH = 0
_AS_IT_IS, _TRANSPOSED = 0, 1
_LT_DESCRIPTOR_TRANSA, _LT_DESCRIPTOR_TRANSB = 3, 4
_LT_PREFERENCE_MAX_WORKSPACE_BYTES = 1
_VERSION_PARTS = 3

_pointer = ctypes.c_void_p


class Matmul:
    """One product on fixed device memory, ready to be launched again and again."""

    def launch(self, stream: Any) -> None:
        """Queue the product on `stream` (CuPy's, or any object with `ptr`)."""
        raise NotImplementedError


class Cublas:
    """libcublas and libcublasLt with a handle and a workspace of 64 MiB on the present device."""

    def __init__(self, workspace: int) -> None:
        """Load the libraries and create the handles, which the first product would otherwise pay for.

        Args:
            workspace: device address of WORKSPACE_BYTES bytes.

        Raises:
            Unavailable: there is no cuBLAS, or it can't be initialised.
        """
        for name in _FOREIGN_SETTINGS:
            os.environ.pop(name, None)
        self.library = _load("cublas")
        self.light_library = _load("cublasLt")
        self.workspace = workspace
        self._stream: int | None = None
        self.handle = _pointer()
        self.light_handle = _pointer()
        _succeed("cublasCreate", self.library.cublasCreate_v2(ctypes.byref(self.handle)), Unavailable)
        _succeed(
            "cublasLtCreate", self.light_library.cublasLtCreate(ctypes.byref(self.light_handle)), Unavailable
        )
        _succeed("cublasSetMathMode", self.library.cublasSetMathMode(self.handle, _DEFAULT_MATH))

    @property
    def version(self) -> str:
        """The library's version, such as 13.1.0."""
        parts = []
        for part in range(_VERSION_PARTS):
            value = ctypes.c_int()
            _succeed("cublasGetProperty", self.library.cublasGetProperty(part, ctypes.byref(value)))
            parts.append(str(value.value))
        return ".".join(parts)

    def matmul(
        self,
        problem: Problem,
        arithmetic: str,
        types: tuple[str, str],
        addresses: tuple[int, int, int],
    ) -> Matmul:
        """C = alpha A B + beta C by cublasGemmEx with its default algorithm.

        Args:
            problem: shape, leading dimensions and scalars.
            arithmetic: fp32 (TF32 off), tf32, fp16 or bf16.
            types: element types of A and B, and of C.
            addresses: of A, B and C on the device.
        """
        return _GemmEx(self, problem, arithmetic, types, addresses)

    def light_matmuls(
        self,
        problem: Problem,
        arithmetic: str,
        types: tuple[str, str],
        addresses: tuple[int, int, int],
    ) -> list[Matmul]:
        """What cublasLt's heuristics offer for the same product, its first choice first, at most 8."""
        return _LightPlan(self, problem, arithmetic, types, addresses).algorithms(HEURISTICS)

    def use_stream(self, stream: int) -> None:
        """Let the handle's next calls run on `stream`; setting a stream drops the workspace, so it is given again."""
        if stream != self._stream:
            _succeed("cublasSetStream", self.library.cublasSetStream_v2(self.handle, _pointer(stream)))
            _succeed(
                "cublasSetWorkspace",
                self.library.cublasSetWorkspace_v2(
                    self.handle, _pointer(self.workspace), ctypes.c_size_t(WORKSPACE_BYTES)
                ),
            )
            self._stream = stream


def best(matmuls: Sequence[Matmul], time_ms: Callable[[Matmul], float]) -> Matmul:
    """The fastest of `matmuls` by `time_ms`.

    Raises:
        NotLaunchable: there is none.
    """
    if not matmuls:
        raise NotLaunchable("cublasLt's heuristics offer no algorithm for this problem")
    return min(matmuls, key=time_ms)


class _GemmEx(Matmul):
    def __init__(
        self,
        cublas: Cublas,
        problem: Problem,
        arithmetic: str,
        types: tuple[str, str],
        addresses: tuple[int, int, int],
    ) -> None:
        self._cublas = cublas
        self._call = cublas.library.cublasGemmEx
        self._alpha, self._beta = ctypes.c_float(problem.alpha), ctypes.c_float(problem.beta)
        a, b, c = addresses
        input_type, output_type = (ctypes.c_int(_DATA_TYPES[name]) for name in types)
        self._arguments = (
            cublas.handle,
            ctypes.c_int(_TRANSPOSED if problem.transpose_b else _AS_IT_IS),
            ctypes.c_int(_AS_IT_IS),
            ctypes.c_int(problem.n),
            ctypes.c_int(problem.m),
            ctypes.c_int(problem.k),
            ctypes.byref(self._alpha),
            _pointer(b),
            input_type,
            ctypes.c_int(problem.ldb),
            _pointer(a),
            input_type,
            ctypes.c_int(problem.lda),
            ctypes.byref(self._beta),
            _pointer(c),
            output_type,
            ctypes.c_int(problem.ldc),
            ctypes.c_int(_COMPUTE_TYPES[arithmetic]),
            ctypes.c_int(_GEMM_DEFAULT),
        )

    def launch(self, stream: Any) -> None:
        self._cublas.use_stream(stream.ptr)
        _succeed("cublasGemmEx", self._call(*self._arguments))


class _Algorithm(ctypes.Structure):
    _fields_ = (("data", ctypes.c_uint64 * 8),)


class _HeuristicResult(ctypes.Structure):
    """cublasLtMatmulHeuristicResult_t."""

    _fields_ = (
        ("algorithm", _Algorithm),
        ("workspace_bytes", ctypes.c_size_t),
        ("state", ctypes.c_int),
        ("waves", ctypes.c_float),
        ("reserved", ctypes.c_int * 4),
    )


class _LightPlan:
    """Descriptors of one product for cublasLt; they live as long as the algorithms made from them."""

    def __init__(
        self,
        cublas: Cublas,
        problem: Problem,
        arithmetic: str,
        types: tuple[str, str],
        addresses: tuple[int, int, int],
    ) -> None:
        self.cublas = cublas
        self.library = cublas.light_library
        self.addresses = addresses
        self.alpha, self.beta = ctypes.c_float(problem.alpha), ctypes.c_float(problem.beta)
        input_type, output_type = (_DATA_TYPES[name] for name in types)
        self.operation = _pointer()
        _succeed(
            "cublasLtMatmulDescCreate",
            self.library.cublasLtMatmulDescCreate(
                ctypes.byref(self.operation), _COMPUTE_TYPES[arithmetic], _DATA_TYPES["float32"]
            ),
        )
        first = _TRANSPOSED if problem.transpose_b else _AS_IT_IS
        self._set(_LT_DESCRIPTOR_TRANSA, first)
        self._set(_LT_DESCRIPTOR_TRANSB, _AS_IT_IS)
        b_rows, b_columns = problem.b_shape
        self.layout_a = self._layout(input_type, problem.m, problem.k, problem.lda)
        self.layout_b = self._layout(input_type, b_rows, b_columns, problem.ldb)
        self.layout_c = self._layout(output_type, problem.m, problem.n, problem.ldc)

    def _set(self, attribute: int, value: int) -> None:
        word = ctypes.c_int32(value)
        _succeed(
            "cublasLtMatmulDescSetAttribute",
            self.library.cublasLtMatmulDescSetAttribute(
                self.operation, attribute, ctypes.byref(word), ctypes.c_size_t(ctypes.sizeof(word))
            ),
        )

    def _layout(self, data_type: int, rows: int, columns: int, pitch: int) -> ctypes.c_void_p:
        """The layout of a row-major matrix, seen as the column-major one that it is when transposed."""
        layout = _pointer()
        _succeed(
            "cublasLtMatrixLayoutCreate",
            self.library.cublasLtMatrixLayoutCreate(
                ctypes.byref(layout),
                data_type,
                ctypes.c_uint64(columns),
                ctypes.c_uint64(rows),
                ctypes.c_int64(pitch),
            ),
        )
        return layout

    def algorithms(self, most: int) -> list[Matmul]:
        preference, limit = _pointer(), ctypes.c_uint64(WORKSPACE_BYTES)
        _succeed(
            "cublasLtMatmulPreferenceCreate",
            self.library.cublasLtMatmulPreferenceCreate(ctypes.byref(preference)),
        )
        _succeed(
            "cublasLtMatmulPreferenceSetAttribute",
            self.library.cublasLtMatmulPreferenceSetAttribute(
                preference,
                _LT_PREFERENCE_MAX_WORKSPACE_BYTES,
                ctypes.byref(limit),
                ctypes.c_size_t(ctypes.sizeof(limit)),
            ),
        )
        results, returned = (_HeuristicResult * most)(), ctypes.c_int()
        state = self.library.cublasLtMatmulAlgoGetHeuristic(
            self.cublas.light_handle,
            self.operation,
            self.layout_b,
            self.layout_a,
            self.layout_c,
            self.layout_c,
            preference,
            most,
            results,
            ctypes.byref(returned),
        )
        self.library.cublasLtMatmulPreferenceDestroy(preference)
        offered = returned.value if state == 0 else 0
        return [_LightMatmul(self, result) for result in results[:offered] if result.state == 0]


class _LightMatmul(Matmul):
    def __init__(self, plan: _LightPlan, result: _HeuristicResult) -> None:
        # The plan owns the descriptors that the arguments point to.
        self._plan = plan
        self._call = plan.library.cublasLtMatmul
        self._algorithm = result.algorithm
        a, b, c = plan.addresses
        self._arguments = (
            plan.cublas.light_handle,
            plan.operation,
            ctypes.byref(plan.alpha),
            _pointer(b),
            plan.layout_b,
            _pointer(a),
            plan.layout_a,
            ctypes.byref(plan.beta),
            _pointer(c),
            plan.layout_c,
            _pointer(c),
            plan.layout_c,
            ctypes.byref(self._algorithm),
            _pointer(plan.cublas.workspace),
            ctypes.c_size_t(WORKSPACE_BYTES),
        )

    def launch(self, stream: Any) -> None:
        _succeed("cublasLtMatmul", self._call(*self._arguments, _pointer(stream.ptr)))


def _load(name: str) -> ctypes.CDLL:
    """The library from NVIDIA's wheels, conda, the system or CUDA_HOME, in this order: cuda-pathfinder knows."""
    try:
        from cuda.pathfinder import load_nvidia_dynamic_lib

        return ctypes.CDLL(load_nvidia_dynamic_lib(name).abs_path)
    except (ImportError, OSError, RuntimeError) as error:
        raise Unavailable(
            f"lib{name} can't be loaded ({str(error).strip()}). requirements-gpu-cu12.lock installs it."
        ) from error


def _succeed(function: str, state: int, kind: type[GemmlabError] = NotLaunchable) -> None:
    """Raise `kind` unless a call returned CUBLAS_STATUS_SUCCESS (0)."""
    if state:
        raise kind(f"{function} returned status {state} (cublasStatus_t, see cublas_api.h)")


def kernel_names(launchable: Any, stream: Any) -> str | None:
    """The kernels that a library call dispatches to, in order, joined by " + "; None if the driver can't be asked.

    The call is captured into a CUDA graph and the graph's nodes tell their functions: no profiler is needed.

    Args:
        launchable: anything with `launch(stream)`.
        stream: an object with `ptr` that nothing else captures; not the default stream.
    """
    try:
        from cuda.bindings import driver as cuda
    except ImportError:
        return None
    handle = cuda.CUstream(stream.ptr)
    mode = cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
    if cuda.cuStreamBeginCapture(handle, mode)[0] != cuda.CUresult.CUDA_SUCCESS:
        return None
    try:
        launchable.launch(stream)
    finally:
        result, graph = cuda.cuStreamEndCapture(handle)
    if result != cuda.CUresult.CUDA_SUCCESS:
        return None
    names = [name for name in map(_kernel_name, _nodes(graph)) if name]
    cuda.cuGraphDestroy(graph)
    return " + ".join(names) or None


def _nodes(graph: Any) -> list[Any]:
    from cuda.bindings import driver as cuda

    result, _, count = cuda.cuGraphGetNodes(graph, 0)
    if result != cuda.CUresult.CUDA_SUCCESS or not count:
        return []
    result, nodes, _ = cuda.cuGraphGetNodes(graph, count)
    return list(nodes) if result == cuda.CUresult.CUDA_SUCCESS else []


def _kernel_name(node: Any) -> str | None:
    """The function of a kernel node, None for any other node."""
    from cuda.bindings import driver as cuda

    success = cuda.CUresult.CUDA_SUCCESS
    result, kind = cuda.cuGraphNodeGetType(node)
    if result != success or kind != cuda.CUgraphNodeType.CU_GRAPH_NODE_TYPE_KERNEL:
        return None
    result, parameters = cuda.cuGraphKernelNodeGetParams(node)
    if result != success:
        return None
    # The node holds a function or, for kernels of libraries that load lazily, a kernel handle.
    if int(parameters.func):
        result, name = cuda.cuFuncGetName(parameters.func)
    else:
        result, name = cuda.cuKernelGetName(parameters.kern)
    return name.decode(errors="replace") if result == success else None

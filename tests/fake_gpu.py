"""A GPU made of host memory for tests: CuPy's, NVBench's and cuBLAS's calls as gemmlab uses them, with a virtual clock.

Kernels are Python functions over addresses; a launch moves the clock by what the kernel says it takes.
"""

from __future__ import annotations

import ctypes
import struct
import sys
import types
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gemmlab import driver
from gemmlab.problem import Problem
from gemmlab.timing import device, lock, prepare, session


def make_cubin(number: int, entries: list[str], abi_version: int = 8) -> bytes:
    """A minimal CUDA ELF with a symbol table: entries are kernels; `helper` is a function that is none."""
    names = b"\0" + b"".join(name.encode() + b"\0" for name in [*entries, "helper"])
    symbols = struct.pack("<IBBHQQ", 0, 0, 0, 0, 0, 0)
    at = 1
    for name in [*entries, "helper"]:
        other = 0 if name == "helper" else 0x10
        symbols += struct.pack("<IBBHQQ", at, 0x12, other, 1, 0, 0)
        at += len(name) + 1
    flags = number << 8 if abi_version >= 8 else number
    sections_at = 64 + len(names) + len(symbols)
    header = b"\x7fELF\x02\x01\x01\x33" + bytes([abi_version]) + b"\0" * 7
    header += struct.pack("<HHIQQQIHHHHHH", 2, 190, 1, 0, 0, sections_at, flags, 64, 0, 0, 64, 3, 0)
    table = b"\0" * 64
    table += struct.pack("<IIQQQQIIQQ", 0, 3, 0, 0, 64, len(names), 0, 0, 1, 0)
    table += struct.pack("<IIQQQQIIQQ", 0, 2, 0, 0, 64 + len(names), len(symbols), 1, 0, 8, 24)
    return header + names + symbols + table


def view(address: int, elements: int, dtype: Any = np.float32) -> np.ndarray:
    """Memory at `address` as an array."""
    raw = (ctypes.c_char * (elements * np.dtype(dtype).itemsize)).from_address(int(address))
    return np.frombuffer(raw, dtype=dtype)


def gemm(
    m: int, n: int, k: int, alpha: float, a: int, lda: int, b: int, ldb: int, beta: float, c: int, ldc: int
) -> None:
    """The product as a right kernel computes it, rows packed, beta 0."""
    product = view(a, m * k).reshape(m, k) @ view(b, k * n).reshape(k, n)
    view(c, m * n).reshape(m, n)[:] = alpha * product


H200 = {
    "max_threads_per_block": 1024,
    "max_registers_per_block": 65536,
    "max_shared_memory_per_block_optin": 232448,
    "max_block_dim_x": 1024,
    "max_block_dim_y": 1024,
    "max_block_dim_z": 64,
    "max_grid_dim_x": 2**31 - 1,
    "max_grid_dim_y": 65535,
    "max_grid_dim_z": 65535,
    "multiprocessor_count": 132,
    "compute_capability_major": 9,
    "compute_capability_minor": 0,
    "clock_rate": 1980000,
}


class CudaError(RuntimeError):
    """Stands for CUDADriverError and CUDARuntimeError."""


class OutOfMemory(Exception):
    """Stands for CuPy's OutOfMemoryError."""


@dataclass
class Kernel:
    """A kernel of the fake cubin: what it does, how long it takes, what it uses."""

    function: Callable[..., None]
    milliseconds: Callable[[], float] = lambda: 0.1
    num_regs: int = 32
    shared_size_bytes: int = 0
    max_threads_per_block: int = 1024
    max_dynamic_shared_size_bytes: int = 0
    fault: str | None = None
    refusal: str | None = None


@dataclass
class Gpu:
    """The state behind the fake module."""

    kernels: dict[str, Kernel] = field(default_factory=dict)
    now_ms: float = 0.0
    clock_mhz: float = 1980.0
    free_bytes: int = 2**34
    pending_fault: str | None = None
    capturing: list | None = None
    replaying: bool = False
    launches: int = 0
    launched: list[tuple] = field(default_factory=list)

    def do(self, work: Callable[[], None]) -> None:
        """Run `work` now, or note it down while a graph is captured."""
        if self.capturing is not None:
            self.capturing.append(work)
        else:
            self.launches += 1
            work()

    def launch(self, kernel: Kernel, arguments: tuple) -> None:
        """One launch of a kernel."""
        if kernel.refusal:
            raise CudaError(kernel.refusal)

        def work() -> None:
            self.now_ms += kernel.milliseconds()
            if kernel.fault:
                self.pending_fault = kernel.fault
            else:
                kernel.function(*arguments)

        self.do(work)

    def synchronize(self) -> None:
        """Wait; a fault shows now and for ever after."""
        if self.pending_fault:
            raise CudaError(self.pending_fault)


class Pointer:
    """CuPy's MemoryPointer."""

    def __init__(self, owner: Any, ptr: int) -> None:
        self.owner, self.ptr = owner, ptr

    def __add__(self, offset: int) -> Pointer:
        return Pointer(self.owner, self.ptr + offset)

    def memset(self, value: int, size: int) -> None:
        ctypes.memset(self.ptr, value, size)

    def copy_from_host(self, source: int, size: int) -> None:
        ctypes.memmove(self.ptr, source, size)

    def copy_to_host(self, target: int, size: int) -> None:
        ctypes.memmove(target, self.ptr, size)


def make_cupy(gpu: Gpu) -> types.SimpleNamespace:
    """The module."""

    def alloc(size: int) -> Pointer:
        if size > gpu.free_bytes:
            raise OutOfMemory
        owner = ctypes.create_string_buffer(size + 512)
        start = ctypes.addressof(owner)
        return Pointer(owner, start + -start % 512)

    class Graph:
        def __init__(self, work: list) -> None:
            self.work = work

        def launch(self, stream: Any = None) -> None:
            gpu.replaying = True
            for work in self.work:
                gpu.do(work)
            gpu.replaying = False

        def upload(self, stream: Any = None) -> None:
            pass

    class Stream:
        def __init__(self, non_blocking: bool = False) -> None:
            self.ptr = id(self)

        @staticmethod
        def from_external(stream: Any) -> Stream:
            return Stream()

        def synchronize(self) -> None:
            gpu.synchronize()

        def begin_capture(self) -> None:
            gpu.capturing = []

        def end_capture(self) -> Graph:
            work, gpu.capturing = gpu.capturing, None
            return Graph(work)

    class Event:
        def record(self, stream: Any = None) -> None:
            self.at_ms = gpu.now_ms

        def synchronize(self) -> None:
            gpu.synchronize()

    class RawKernel:
        def __init__(self, kernel: Kernel) -> None:
            self._kernel = kernel

        def __getattr__(self, name: str) -> Any:
            return getattr(self._kernel, name)

        def __setattr__(self, name: str, value: Any) -> None:
            if name == "_kernel":
                object.__setattr__(self, name, value)
            else:
                setattr(self._kernel, name, value)

        @property
        def kernel(self) -> Callable:
            def call(grid, block, arguments, shared_mem=0, stream=None):
                gpu.launched.append((grid, block, arguments, shared_mem))
                gpu.launch(self._kernel, arguments)

            return call

    class RawModule:
        def __init__(self, path: str) -> None:
            self.path = path

        def get_function(self, name: str) -> RawKernel:
            return RawKernel(gpu.kernels[name])

    return types.SimpleNamespace(
        RawModule=RawModule,
        cuda=types.SimpleNamespace(
            is_available=lambda: True,
            alloc=alloc,
            memory=types.SimpleNamespace(OutOfMemoryError=OutOfMemory),
            driver=types.SimpleNamespace(CUDADriverError=CudaError),
            runtime=types.SimpleNamespace(
                CUDARuntimeError=CudaError,
                deviceSynchronize=gpu.synchronize,
                memGetInfo=lambda: (gpu.free_bytes, 2**34),
            ),
            Device=lambda number: types.SimpleNamespace(use=lambda: None),
            Stream=Stream,
            Event=Event,
            get_elapsed_time=lambda before, after: after.at_ms - before.at_ms,
        ),
    )


class FakeCublas:
    """The library with one speed for everything; `wrong` makes it forget the last row."""

    version = "13.1.0"
    milliseconds = 0.2
    wrong = False
    gpu: Gpu

    def __init__(self, workspace: int) -> None:
        pass

    def matmul(self, problem: Problem, arithmetic: str, types_: tuple, addresses: tuple) -> Any:
        kernel = Kernel(lambda: self._compute(problem, addresses), lambda: self.milliseconds)
        return types.SimpleNamespace(launch=lambda stream: self.gpu.launch(kernel, ()))

    def light_matmuls(self, problem: Problem, arithmetic: str, types_: tuple, addresses: tuple) -> list:
        return [self.matmul(problem, arithmetic, types_, addresses)]

    def _compute(self, problem: Problem, addresses: tuple) -> None:
        m, n, k = problem.m, problem.n, problem.k
        a, b, c = addresses
        if self.wrong:
            m -= 1
        gemm(m, n, k, 1.0, a, k, b, n, 0.0, c, n)


def make_nvbench(gpu: Gpu) -> tuple[types.ModuleType, types.ModuleType]:
    """The modules cuda.bench and cuda.bench.results: states run in the order of the axis, once in a process."""
    module, results = types.ModuleType("cuda.bench"), types.ModuleType("cuda.bench.results")
    registered: list[Any] = []
    report: list[Any] = []

    class Benchmark:
        def __init__(self, function: Callable) -> None:
            self.function, self.settings = function, {}

        def add_int64_axis(self, name: str, values: list[int]) -> None:
            self.axis, self.values = name, values

        def __getattr__(self, name: str) -> Callable:
            if not name.startswith("set_"):
                raise AttributeError(name)
            return lambda *values: self.settings.__setitem__(name, values)

    class State:
        def __init__(self, value: int, axis: str) -> None:
            self.value, self.point = value, {axis: str(value)}
            self.samples: Any = None
            self.frequencies: Any = None
            self.skipped = False

        def get_int64(self, name: str) -> int:
            return self.value

        def get_stream(self) -> Any:
            return object()

        def set_min_samples(self, count: int) -> None:
            self.count = count

        def skip(self, reason: str) -> None:
            self.skipped = True

        def exec(self, launcher: Callable, *, batched: bool) -> None:
            assert batched is False
            launcher(None)
            times = []
            for _ in range(self.count):
                before = gpu.now_ms
                launcher(None)
                times.append((gpu.now_ms - before) / 1e3)
            self.samples, self.frequencies = (
                np.array(times, np.float32),
                np.full(len(times), gpu.clock_mhz * 1e6),
            )

    class BenchmarkResult(dict):
        @classmethod
        def from_json(cls, path: Path) -> BenchmarkResult:
            return cls(dict(report))

    def run_all_benchmarks(arguments: list[str]) -> None:
        assert not report, "Benchmarks were already executed"
        assert arguments[arguments.index("--devices") + 1] == "0"
        for benchmark in registered:
            states = [State(value, benchmark.axis) for value in benchmark.values]
            for state in states:
                try:
                    benchmark.function(state)
                except Exception:
                    state.skipped = True
            report.append((benchmark.function.__name__, [state for state in states if not state.skipped]))

    def register(function: Callable) -> Benchmark:
        registered.append(Benchmark(function))
        return registered[-1]

    module.State, module.register, module.run_all_benchmarks = State, register, run_all_benchmarks
    module.registered = registered
    results.BenchmarkResult = BenchmarkResult
    return module, results


def renew_nvbench(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """An NVBench that hasn't run yet, as in a new process."""
    nvbench, results = make_nvbench(gpu)
    monkeypatch.setattr(sys.modules["cuda"], "bench", nvbench)
    monkeypatch.setitem(sys.modules, "cuda.bench", nvbench)
    monkeypatch.setitem(sys.modules, "cuda.bench.results", results)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Gpu:
    """A fake GPU of compute capability 9.0 behind CuPy, NVBench, cuBLAS and the driver."""
    state = Gpu()
    monkeypatch.setitem(sys.modules, "cupy", make_cupy(state))
    nvbench, results = make_nvbench(state)
    parent = types.ModuleType("cuda")
    parent.bench = nvbench
    for name, module in {"cuda": parent, "cuda.bench": nvbench, "cuda.bench.results": results}.items():
        monkeypatch.setitem(sys.modules, name, module)
    # No real driver, NVML or cuda-bindings may answer for the fake.
    for name in ("cuda.bindings", "pynvml"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setattr(driver, "device_attributes", lambda device=0: H200)
    monkeypatch.setattr(driver, "device_uuid", lambda device=0: "GPU-fake")
    monkeypatch.setattr(lock, "lock_path", lambda uuid: tmp_path / f"{uuid}.lock")
    monkeypatch.setattr(lock, "_held", {})
    fake = type("FakeCublas", (FakeCublas,), {"gpu": state})
    monkeypatch.setattr(device, "Cublas", fake)
    state.cublas = fake
    monkeypatch.setattr(prepare, "kernel_names", lambda launchable, stream: "sgemm_fake")
    monkeypatch.setattr(session, "_SETTLING_S", 0.0)
    return state

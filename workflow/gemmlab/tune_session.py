"""Kernel Tuner on this GPU: it walks the space, checks and times; kernels, memory and launches are gemmlab's own.

Kernel Tuner compiles with NVRTC by itself. Here a backend of ours hands it the cubins that nvcc and ptxas made, so that
what is tuned is what the pipeline builds and counts, and runs a graph of many launches as one: alone, a launch of some
microseconds would be timed together with Python.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from gemmlab.catalogue import Variant
from gemmlab.errors import GemmlabError
from gemmlab.executors.base import NotLaunchable, Pointer, Scalar, Unavailable
from gemmlab.executors.cuda import CudaExecutor
from gemmlab.executors.device_memory import DeviceBuffer, allocate, device_faults
from gemmlab.files import repository_root
from gemmlab.problem import Problem
from gemmlab.timing.device import Device, open_device
from gemmlab.timing.hot import capture, launches_per_sample, replay_ms
from gemmlab.timing.prepare import uniform
from gemmlab.timing.verify import Product
from gemmlab.tune import Candidate, Space, Sweep, Timing

# Launches in a sample are counted for a kernel of this speed: a faster one gives shorter samples, a slower one longer.
_ASSUMED_TFLOPS = 20.0
_SCALARS = {"int32": np.int32, "int64": np.int64, "float32": np.float32}


def load_kernel_tuner() -> Any:
    """The module kernel_tuner.

    Raises:
        Unavailable: it isn't installed.
    """
    try:
        import kernel_tuner
    except ImportError as error:
        raise Unavailable(
            f"Kernel Tuner can't be imported ({error}). requirements-gpu-cu12.lock installs it."
        ) from error
    return kernel_tuner


def launches_in_sample(size: int) -> int:
    """Launches at a square problem of edge `size` that make a sample of about a millisecond."""
    return launches_per_sample([2 * size**3 / (_ASSUMED_TFLOPS * 1e9)])


class KernelTunerSession:
    """The GPU held for a sweep; see `tune.Tuner`."""

    def __init__(self, space: Space, base: Variant, seed: int) -> None:
        """Open the GPU and cuBLAS.

        Raises:
            Unavailable: there is no Kernel Tuner, CuPy, cuBLAS or GPU.
        """
        # The GPU first: a machine without one is told so, whatever else it lacks.
        self.device: Device = open_device(None, library=True)
        self._kernel_tuner = load_kernel_tuner()
        self.space, self.base, self.seed = space, base, seed
        self.identity: Mapping[str, Any] = {
            "gpu": self.device.telemetry.name(),
            "driver": self.device.telemetry.driver(),
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
        }

    def sweep(self, candidates: Sequence[Candidate], size: int) -> Sweep:
        """Time all candidates and the baseline at `size`, each result verified before.

        Raises:
            DeviceFault: a kernel died; the context is lost.
        """
        problem = Problem.packed(size, size, size, transpose_b=self.base.transpose_b)
        at = _AtSize(self, problem, {self._key(one.configuration): one for one in candidates})
        from kernel_tuner.backends import cupy as backend_module

        with (
            mock.patch.object(backend_module, "CupyFunctions", at.backend_class()),
            warnings.catch_warnings(),
            device_faults(self.device.cupy, f"tuning {self.base.name} at {size}"),
        ):
            # Our parameters aren't named block_size_x and so on: the catalogue's entry makes the block of them.
            warnings.filterwarnings(
                "ignore", "None of the tunable parameters specify thread block dimensions"
            )
            results, _ = self._kernel_tuner.tune_kernel(
                self.base.launches[0].entry,
                str(repository_root() / self.base.source),
                (size, size),
                at.arguments,
                {name: list(values) for name, values in self.space.parameters.items()},
                restrictions=list(self.space.restrictions),
                # One entry an argument: None is not compared, the output goes to the observer.
                answer=[None if name != at.output else np.zeros(0) for name in at.names],
                observers=[at.observer()],
                iterations=self.space.iterations,
                lang="CUPY",
                quiet=True,
            )
            baseline_ms = at.baseline_ms()
        found = {self._key(result): result for result in results if result}
        timings = [at.timing(one, found.get(self._key(one.configuration))) for one in candidates]
        return Sweep(timings, baseline_ms)

    def _key(self, values: Mapping[str, Any]) -> tuple[int, ...]:
        return tuple(int(values[name]) for name in self.space.parameters)


class _AtSize:
    """One problem: its arguments, its right answer, and the backend and observer that Kernel Tuner works with."""

    def __init__(
        self, session: KernelTunerSession, problem: Problem, candidates: Mapping[tuple[int, ...], Candidate]
    ) -> None:
        self.session, self.device, self.problem, self.candidates = (
            session,
            session.device,
            problem,
            candidates,
        )
        base = session.base
        self.output = "d" if base.separate_output else "c"
        self.launches = launches_in_sample(problem.m)
        self.refused: dict[tuple[int, ...], str] = {}
        self.buffers: dict[str, DeviceBuffer] = {}
        generator = np.random.default_rng([session.seed, problem.m])
        a = uniform(generator, problem.m * problem.k).reshape(problem.m, problem.k)
        b = uniform(generator, problem.n * problem.k).reshape(problem.b_shape)
        self.product = Product(
            a, b, base.input_type, base.transpose_b, (base.arithmetic, "fp32"), session.seed
        )
        # NaN: what a kernel leaves unwritten, or reads of C though beta is 0, shows.
        unwritten = np.full(problem.m * problem.n, np.nan, dtype=np.float32)
        host = {"a": a.ravel(), "b": b.ravel(), "c": unwritten, "d": unwritten}
        self.names: list[str | None] = []
        self.arguments: list[Any] = []
        for argument in base.plan(problem)[0].arguments:
            match argument:
                case Pointer(buffer):
                    self.names.append(buffer)
                    self.arguments.append(host[buffer])
                case Scalar(kind, value):
                    self.names.append(None)
                    self.arguments.append(_SCALARS[kind](value))

    def timing(self, candidate: Candidate, result: Mapping[str, Any] | None) -> Timing:
        """What Kernel Tuner found of `candidate`."""
        refused = self.refused.get(self.session._key(candidate.configuration))
        if refused or result is None or "times" not in result:
            return Timing(fault=refused)
        if result["fault"]:
            return Timing(fault=f"wrong result, so not timed: {result['fault']}")
        return Timing(tuple(float(time) for time in result["times"]), self.launches)

    def baseline_ms(self) -> float | None:
        """cuBLAS at the same buffers, timed the same way; None if it computes something else."""
        matmul = self.device.cublas.matmul(
            self.problem,
            "fp32",
            ("float32", "float32"),
            tuple(self.buffers[name].address for name in ("a", "b", self.output)),
        )
        self.buffers[self.output].poison()
        self.device.launch_ms(matmul, "cuBLAS")
        result = np.empty((self.problem.m, self.problem.n), dtype=np.float32)
        self.buffers[self.output].download(result)
        if self.product.fault(result, "fp32", "float32"):
            return None
        graph = capture(matmul, self.launches, self.device.stream)
        times = replay_ms(self.device.cupy, graph, self.device.stream, self.session.space.iterations)
        return float(np.median(times)) / self.launches

    def prepare(self, key: tuple[int, ...]) -> Any | None:
        """The graph of a configuration's launches, after one that was checked; None if it can't be launched."""
        candidate = self.candidates[key]
        if candidate.cubin is None:
            return None
        try:
            executor = CudaExecutor(Path(candidate.cubin))
            prepared = executor.prepare(
                candidate.variant.plan(self.problem, self.device.limits.multiprocessors), self.buffers
            )
            prepared.run_checked()
        except NotLaunchable as error:
            self.refused[key] = f"not launchable: {error}"
            return None
        graph = capture(prepared, self.launches, self.device.stream)
        # The executor owns the module that the graph's kernels come from.
        return executor, graph

    def observer(self) -> Any:
        """Kernel Tuner's way to judge a configuration's output: the fault becomes a field of its result."""
        from kernel_tuner.observers import OutputObserver

        at = self

        class Verified(OutputObserver):
            def process_output(self, answer: Any, output: Sequence[np.ndarray | None]) -> None:
                result = output[at.names.index(at.output)].reshape(at.problem.m, at.problem.n)
                self.fault = at.product.fault(result, at.session.base.arithmetic, at.session.base.output_type)

            def get_results(self) -> dict[str, Any]:
                return {"fault": self.fault}

        return Verified()

    def backend_class(self) -> type:
        """A backend of Kernel Tuner over gemmlab's buffers, executor and graphs."""
        from kernel_tuner.backends.backend import GPUBackend
        from kernel_tuner.observers import BenchmarkObserver

        at, cupy, stream = self, self.device.cupy, self.device.stream

        class Times(BenchmarkObserver):
            def __init__(self) -> None:
                self.times: list[float] = []

            def after_finish(self) -> None:
                self.times.append(cupy.cuda.get_elapsed_time(self.dev.start, self.dev.end) / at.launches)

            def get_results(self) -> dict[str, Any]:
                times, self.times = self.times, []
                return {"time": float(np.median(times)), "times": times}

        class Backend(GPUBackend):
            units = {"time": "ms"}  # noqa: RUF012 - Kernel Tuner's convention

            def __init__(self, device: int, iterations: int, compiler_options: Any, observers: Any) -> None:
                self.start, self.end = cupy.cuda.Event(), cupy.cuda.Event()
                self.name = at.session.identity["gpu"] or "GPU"
                self.max_threads = 1024
                self.env = {"device_name": self.name, "iterations": iterations}
                self.observers = [*(observers or []), Times()]
                for observer in self.observers:
                    observer.register_device(self)

            def ready_argument_list(self, arguments: Sequence[Any]) -> list[Any]:
                for name, argument in zip(at.names, arguments, strict=True):
                    if name is not None:
                        at.buffers[name] = allocate(cupy, argument.nbytes, argument.dtype)
                        at.buffers[name].upload(argument)
                self.synchronize()
                return [
                    argument if name is None else at.buffers[name]
                    for name, argument in zip(at.names, arguments, strict=True)
                ]

            def compile(self, kernel_instance: Any) -> Any | None:
                return at.prepare(at.session._key(kernel_instance.params))

            def run_kernel(
                self, func: Any, gpu_args: Any, threads: Any, grid: Any, _stream: Any = None
            ) -> None:
                # The catalogue's entry decides grid and block; Kernel Tuner's own guess of them is not used.
                func[1].launch(stream=stream)

            def start_event(self) -> None:
                self.start.record(stream)

            def stop_event(self) -> None:
                self.end.record(stream)

            def kernel_finished(self) -> bool:
                self.end.synchronize()
                return True

            def synchronize(self) -> None:
                cupy.cuda.runtime.deviceSynchronize()

            def memcpy_dtoh(self, dest: np.ndarray, src: DeviceBuffer) -> None:
                self.synchronize()
                src.download(dest)

            def memcpy_htod(self, dest: DeviceBuffer, src: np.ndarray) -> None:
                dest.upload(src)
                self.synchronize()

            def refuse(self, *arguments: Any) -> None:
                raise GemmlabError(
                    "the block tile has no constant, textured or dynamic memory, and none is set."
                )

            # Kernel Tuner's interface asks for them; the sweep's one kernel has no use for any.
            memset = copy_constant_memory_args = copy_shared_memory_args = copy_texture_memory_args = refuse

        return Backend

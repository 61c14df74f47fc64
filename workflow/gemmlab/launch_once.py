"""The process that ncu and compute-sanitizer look into: it launches one variant a few times and ends.

Run as `python -m gemmlab.launch_once`. Buffers are single allocations of exactly their size, so that memcheck sees the
first byte beyond them. What the problem doesn't define (C with beta 0, D, workspace) is left uninitialised, so that
initcheck sees a kernel that reads it. Profiled launches stand between cudaProfilerStart and cudaProfilerStop.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gemmlab import driver
from gemmlab.catalogue import Variant, load_catalogue
from gemmlab.elements import STORAGE, from_float
from gemmlab.errors import GemmlabError
from gemmlab.executors.base import NotLaunchable
from gemmlab.executors.cuda import CudaExecutor
from gemmlab.executors.device_memory import cuda_errors, device_faults, in_words, load_cupy
from gemmlab.files import write_json
from gemmlab.problem import Problem
from gemmlab.timing import baselines
from gemmlab.timing.lock import hold_gpu

MISTAKE = 2
NOTHING_LAUNCHED = 3
# Random elements drawn; larger matrices repeat them. A prime, so that no row length divides the period.
_DRAWN = 1_048_583

Shape = tuple[int, int, int]


def command(
    variant: str,
    shapes: Iterable[Shape],
    *,
    cubin: Path | None,
    warmup: int = 1,
    repeat: int = 1,
    seed: int = 0,
    beta: float = 0.0,
    launches: Path | None = None,
    skip_over_ms: float | None = None,
    share: bool = False,
) -> list[str]:
    """The command that launches `variant` at each of `shapes`; `cubin` is None for a baseline.

    Args:
        variant: its name in the catalogue.
        shapes: m, n, k of each problem.
        cubin: what the compile stage built.
        warmup: launches before the profiled ones.
        repeat: profiled launches.
        seed: of the inputs.
        beta: other than 0 makes the kernel read C.
        launches: where to write what was launched, in order (see `main`).
        skip_over_ms: a shape whose launch takes longer isn't profiled.
        share: let checks and other sharing launches use the GPU at the same time.
    """
    words = [sys.executable, "-m", "gemmlab.launch_once", "--variant", variant]
    for shape in shapes:
        words += ["--shape", ",".join(map(str, shape))]
    words += ["--kind", "baseline"] if cubin is None else ["--kind", "kernel", "--cubin", str(cubin)]
    words += ["--warmup", str(warmup), "--repeat", str(repeat), "--seed", str(seed), "--beta", repr(beta)]
    if launches is not None:
        words += ["--launches", str(launches)]
    if skip_over_ms is not None:
        words += ["--skip-over-ms", repr(skip_over_ms)]
    if share:
        words.append("--share")
    return words


@dataclass(frozen=True)
class ExactBuffer:
    """A device allocation of its own, with nothing around it."""

    memory: Any
    dtype: np.dtype

    @property
    def address(self) -> int:
        """Device address of the first element."""
        return self.memory.ptr


def allocate_buffers(
    cupy: Any, variant: Variant, problem: Problem, seed: int, sm_count: int
) -> dict[str, ExactBuffer]:
    """The buffers of `problem` on the device: A, B (and C if beta isn't 0) uniform in [-1, 1], the rest uninitialised.

    Raises:
        NotLaunchable: the device hasn't that much memory.
    """
    generator = np.random.default_rng([seed, problem.m, problem.n, problem.k])
    elements = problem.elements()
    wanted = {
        "a": (elements["a"], variant.input_type, True),
        "b": (elements["b"], variant.input_type, True),
        "c": (elements["c"], variant.output_type, problem.beta != 0),
    }
    if variant.separate_output:
        wanted["d"] = (elements["d"], variant.output_type, False)
    for name, (count, element_type) in variant.workspace_elements(problem, sm_count).items():
        wanted[name] = (count, element_type, False)
    buffers = {}
    for name, (count, element_type, filled) in wanted.items():
        dtype = STORAGE[element_type]
        try:
            memory = cupy.cuda.alloc(count * dtype.itemsize)
        except cuda_errors(cupy) as error:
            raise NotLaunchable(f"buffer {name} of {count} elements: {in_words(error)}") from error
        if filled:
            drawn = from_float(generator.uniform(-1, 1, min(count, _DRAWN)), element_type)
            values = np.resize(drawn, count)
            memory.copy_from_host(values.ctypes.data, values.nbytes)
        buffers[name] = ExactBuffer(memory, dtype)
    return buffers


@dataclass(frozen=True)
class Prepared:
    """A product ready to run.

    `entries` are the entry functions that it launches, in order, or None where a library chooses its kernels. `run`
    launches it and waits. `buffers` live as long as this does, since what `run` calls holds bare addresses.
    """

    entries: list[str] | None
    run: Callable[[], None]
    buffers: dict[str, ExactBuffer]


class _Kernel:
    """A compiled variant on the GPU."""

    def __init__(self, cupy: Any, variant: Variant, cubin: Path) -> None:
        self._cupy, self._variant = cupy, variant
        self._executor = CudaExecutor(cubin)
        self._sm_count = self._executor.limits.multiprocessors

    def prepare(self, problem: Problem, seed: int) -> Prepared:
        """A product of the variant."""
        buffers = allocate_buffers(self._cupy, self._variant, problem, seed, self._sm_count)
        plan = self._variant.plan(problem, self._sm_count)
        launches = self._executor.prepare(plan, buffers)
        return Prepared([launch.entry for launch in plan], launches.run_checked, buffers)


class _Baseline:
    """A library's product on the GPU."""

    def __init__(self, cupy: Any, variant: Variant) -> None:
        self._cupy, self._variant = cupy, variant
        self._workspace = cupy.cuda.alloc(baselines.WORKSPACE_BYTES)
        self._cublas = baselines.Cublas(self._workspace.ptr)

    def prepare(self, problem: Problem, seed: int) -> Prepared:
        """A product of the library, on the current stream."""
        variant, stream = self._variant, self._cupy.cuda.get_current_stream()
        buffers = allocate_buffers(self._cupy, variant, problem, seed, 0)
        addresses = tuple(buffers[name].address for name in "abc")
        arguments = (problem, variant.arithmetic, (variant.input_type, variant.output_type), addresses)
        if variant.library == "cublaslt":
            matmul = baselines.best(self._cublas.light_matmuls(*arguments), self._time_ms)
        else:
            matmul = self._cublas.matmul(*arguments)

        def run() -> None:
            with device_faults(self._cupy, variant.name):
                matmul.launch(stream)
                stream.synchronize()

        return Prepared(None, run, buffers)

    def _time_ms(self, matmul: baselines.Matmul) -> float:
        """The time of one launch after another, in ms."""
        stream = self._cupy.cuda.get_current_stream()
        before, after = self._cupy.cuda.Event(), self._cupy.cuda.Event()
        matmul.launch(stream)
        before.record(stream)
        matmul.launch(stream)
        after.record(stream)
        after.synchronize()
        return self._cupy.cuda.get_elapsed_time(before, after)


def launch_shapes(
    cupy: Any,
    variant: Variant,
    launcher: Any,
    shapes: Sequence[Shape],
    *,
    warmup: int,
    repeat: int,
    seed: int,
    beta: float,
    skip_over_ms: float | None,
) -> list[dict[str, Any]]:
    """Launch each of `shapes` on a stream of its own and say what was launched.

    Returns:
        For each shape m, n, k, the entries of one product in order (None for a library's call) and, under `skipped`,
        why nothing was profiled, or None.

    Raises:
        DeviceFault: a kernel died; this process can't go on.
    """
    # Each shape has its stream, by which a report tells the launches of a library apart.
    streams = [cupy.cuda.Stream() for _ in shapes]
    done: list[dict[str, Any]] = []
    for (m, n, k), stream in zip(shapes, streams, strict=True):
        problem = Problem.packed(m, n, k, beta=beta, transpose_b=variant.transpose_b)
        report: dict[str, Any] = {
            "m": m,
            "n": n,
            "k": k,
            "entries": None,
            "skipped": variant.unsupported(problem),
        }
        done.append(report)
        if report["skipped"]:
            continue
        try:
            with stream:
                product = launcher.prepare(problem, seed)
                report["entries"] = product.entries
                for _ in range(warmup):
                    taken_ms = _milliseconds(product.run)
                if warmup and skip_over_ms is not None and taken_ms > skip_over_ms:
                    # The first launch also loads the kernel, which says nothing about the next.
                    taken_ms = _milliseconds(product.run)
                    if taken_ms > skip_over_ms:
                        report["skipped"] = (
                            f"a launch takes {taken_ms:.0f} ms, over the limit of {skip_over_ms:g} ms"
                        )
                        continue
                with _profiled(cupy):
                    for _ in range(repeat):
                        product.run()
        except NotLaunchable as error:
            report["skipped"] = f"not launchable: {error}"
    return done


@contextlib.contextmanager
def _profiled(cupy: Any) -> Iterator[None]:
    """cudaProfilerStart and cudaProfilerStop round the block inside."""
    # As cupyx.profiler.profile does, whose import takes a tenth of a second.
    cupy.cuda.runtime.profilerStart()
    try:
        yield
    finally:
        cupy.cuda.runtime.profilerStop()


def _milliseconds(run: Callable[[], None]) -> float:
    start = time.perf_counter()
    run()
    return (time.perf_counter() - start) * 1e3


def _parse_shape(text: str) -> Shape:
    sides = text.split(",")
    if len(sides) != 3 or not all(side.isdigit() for side in sides):
        raise argparse.ArgumentTypeError(f"{text!r} is no shape; expected m,n,k")
    m, n, k = map(int, sides)
    return m, n, k


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="gemmlab.launch_once", description=__doc__)
    parser.add_argument("--variant", required=True)
    parser.add_argument("--kind", choices=("kernel", "baseline"), default="kernel")
    parser.add_argument("--cubin", type=Path, help="of a kernel")
    parser.add_argument(
        "--shape", required=True, type=_parse_shape, action="append", help="m,n,k; may be repeated"
    )
    parser.add_argument("--warmup", type=int, default=1)
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--beta", type=float, default=0.0, help="other than 0 makes the kernel read C")
    parser.add_argument("--launches", type=Path, help="where to write what was launched")
    parser.add_argument("--skip-over-ms", type=float, help="a slower shape isn't profiled")
    parser.add_argument("--share", action="store_true", help="the GPU with checks and other sharing launches")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Launch as asked; returns 0, 2 after a message, or 3 if every shape was skipped.

    The file of `--launches` gets the GPU's uuid and what `launch_shapes` says.
    """
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.kind == "kernel" and options.cubin is None:
        parser.error("a kernel needs --cubin")
    try:
        variant = load_catalogue().get(options.variant)
        if variant is None:
            raise GemmlabError(f"variant {options.variant}: not in config/variants.")
        cupy = load_cupy()
        uuid = driver.device_uuid(0)
        if uuid:
            hold_gpu(uuid, shared=options.share)
        # Without CuPy's memory pool, which rounds sizes up and so hides stray accesses from memcheck.
        cupy.cuda.set_allocator(None)
        launcher = (
            _Baseline(cupy, variant) if options.kind == "baseline" else _Kernel(cupy, variant, options.cubin)
        )
        done = launch_shapes(
            cupy,
            variant,
            launcher,
            options.shape,
            warmup=options.warmup,
            repeat=options.repeat,
            seed=options.seed,
            beta=options.beta,
            skip_over_ms=options.skip_over_ms,
        )
        if options.launches:
            write_json(options.launches, {"gpu_uuid": uuid, "shapes": done})
        if all(shape["skipped"] for shape in done):
            print(done[-1]["skipped"], file=sys.stderr)
            return NOTHING_LAUNCHED
    except GemmlabError as error:
        print(error, file=sys.stderr)
        return MISTAKE
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""One shape made ready for timing: data on the device, both sides verified, their speed known roughly."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gemmlab import status
from gemmlab.catalogue import Variant
from gemmlab.elements import STORAGE, from_float
from gemmlab.executors.base import NotLaunchable
from gemmlab.executors.device_memory import DeviceBuffer, MemoryShort, allocate, device_faults
from gemmlab.problem import Problem
from gemmlab.timing.baselines import best, kernel_names
from gemmlab.timing.device import Device
from gemmlab.timing.hot import Launchable, capture
from gemmlab.timing.settings import Settings, Shape
from gemmlab.timing.verify import Product

# Random elements drawn; larger matrices repeat them. A prime, so that no two rows of a matrix are alike.
_DRAWN = 1_048_583

Fill = Callable[[np.random.Generator, int], np.ndarray]


def uniform(generator: np.random.Generator, count: int) -> np.ndarray:
    """`count` reals uniform in [-1, 1], float32."""
    values = generator.random(count, dtype=np.float32)
    values *= 2
    values -= 1
    return values


class NotTimed(Exception):
    """A shape gets no times: `skipped` where card, variant or preset forbid it, `failed` where a result is wrong."""

    def __init__(self, state: str, reason: str) -> None:
        super().__init__(reason)
        self.state = state
        self.reason = reason


@dataclass
class ReadyShape:
    """A shape whose sides may be timed.

    `launchables` and `launch_ms` hold "variant" and, if there is one, "baseline". The buffers are kept alive here.
    """

    shape: Shape
    problem: Problem
    launchables: dict[str, Launchable] = field(default_factory=dict)
    launch_ms: dict[str, float] = field(default_factory=dict)
    baseline_kernel: str | None = None
    buffers: dict[str, DeviceBuffer] = field(default_factory=dict)


def prepare_shape(
    device: Device,
    variant: Variant,
    baseline: Variant | None,
    shape: Shape,
    settings: Settings,
    fill: Fill = uniform,
) -> ReadyShape:
    """Fill A and B, run and verify each side, and find out roughly how fast it is.

    Args:
        device: where.
        variant: what is timed.
        baseline: what it is timed against, if anything.
        shape: m, n, k.
        settings: the configuration's.
        fill: makes the elements of a matrix; uniform in [-1, 1] unless an experiment wants others.

    Raises:
        NotTimed: the shape can't, needn't or mustn't be timed.
        DeviceFault: a kernel died.
    """
    problem = Problem.packed(*shape, transpose_b=variant.transpose_b)
    unsupported = variant.unsupported(problem)
    if unsupported:
        raise NotTimed(status.SKIPPED, unsupported)
    a, b = _inputs(variant, problem, settings.seed, fill)
    ready = ReadyShape(shape, problem)
    try:
        ready.buffers = _buffers(device, variant, baseline, problem)
    except MemoryShort as error:
        raise NotTimed(status.SKIPPED, str(error)) from error
    with device_faults(device.cupy, "copying inputs"):
        ready.buffers["a"].upload(a)
        ready.buffers["b"].upload(b)
        device.cupy.cuda.runtime.deviceSynchronize()
    arithmetics = {side.arithmetic for side in (variant, baseline) if side is not None}
    product = Product(a, b, variant.input_type, variant.transpose_b, arithmetics, settings.seed)
    output = "d" if variant.separate_output else "c"
    try:
        _add_side(device, ready, "variant", variant, variant, output, product, settings)
        if baseline is not None:
            _add_side(device, ready, "baseline", baseline, variant, "baseline_c", product, settings)
    except NotLaunchable as error:
        raise NotTimed(status.FAILED, f"not launchable: {error}") from error
    library_side = "baseline" if baseline is not None else "variant" if variant.library else None
    if library_side:
        ready.baseline_kernel = kernel_names(ready.launchables[library_side], device.stream)
    return ready


def _inputs(variant: Variant, problem: Problem, seed: int, fill: Fill) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng([seed, problem.m, problem.n, problem.k, 3])

    def matrix(rows: int, columns: int) -> np.ndarray:
        drawn = from_float(fill(generator, min(rows * columns, _DRAWN)), variant.input_type)
        return np.resize(drawn, (rows, columns))

    return matrix(problem.m, problem.k), matrix(*problem.b_shape)


def _buffers(
    device: Device, variant: Variant, baseline: Variant | None, problem: Problem
) -> dict[str, DeviceBuffer]:
    elements = problem.elements()
    wanted: dict[str, tuple[int, str]] = {
        "a": (elements["a"], variant.input_type),
        "b": (elements["b"], variant.input_type),
        "c": (elements["c"], variant.output_type),
    }
    if variant.separate_output:
        wanted["d"] = (elements["d"], variant.output_type)
    wanted |= variant.workspace_elements(problem, device.limits.multiprocessors)
    if baseline is not None:
        wanted["baseline_c"] = (elements["c"], variant.output_type)
    buffers = {}
    for name, (count, element_type) in wanted.items():
        storage = STORAGE[element_type]
        buffers[name] = allocate(device.cupy, count * storage.itemsize, storage)
        buffers[name].poison()
    return buffers


def _add_side(
    device: Device,
    ready: ReadyShape,
    role: str,
    side: Variant,
    variant: Variant,
    output: str,
    product: Product,
    settings: Settings,
) -> None:
    """Make one side launchable, take its time roughly and verify its last result.

    `side` is what computes; element types are those of `variant`, so that both sides do the same work.
    """
    launchable = _launchable(device, side, variant, ready, output)
    launch_ms = device.pilot_ms(launchable, side.name)
    if launch_ms > settings.skip_over_ms and not settings.full:
        slow = f"a launch of {side.name} takes {launch_ms:.0f} ms, over {settings.skip_over_ms:g} ms"
        raise NotTimed(status.SKIPPED, f"{slow}: preset full times it")
    result = np.empty((ready.problem.m, ready.problem.n), dtype=STORAGE[variant.output_type])
    with device_faults(device.cupy, f"copying the result of {side.name}"):
        ready.buffers[output].download(result)
    fault = product.fault(result, side.arithmetic, variant.output_type)
    if fault:
        raise NotTimed(status.FAILED, f"wrong result of {side.name}, so not timed: {fault}")
    ready.launchables[role] = launchable
    ready.launch_ms[role] = launch_ms


def _launchable(
    device: Device, side: Variant, variant: Variant, ready: ReadyShape, output: str
) -> Launchable:
    buffers = ready.buffers
    if side.library is None:
        return device.executor.prepare(side.plan(ready.problem, device.limits.multiprocessors), buffers)
    types = (variant.input_type, variant.output_type)
    addresses = (buffers["a"].address, buffers["b"].address, buffers[output].address)
    if side.library == "cublas":
        return device.cublas.matmul(ready.problem, side.arithmetic, types, addresses)
    offered = device.cublas.light_matmuls(ready.problem, side.arithmetic, types, addresses)

    def pilot(matmul: Launchable) -> float:
        try:
            return device.pilot_ms(matmul, side.name)
        except NotLaunchable:
            # The heuristics may offer what the library then refuses.
            return math.inf

    return best(offered, pilot)


def graphs_of(device: Device, ready: ReadyShape, launches: int) -> dict[str, Any]:
    """For each role of a shape a graph of `launches` launches, uploaded to the device."""
    graphs = {}
    for role, launchable in ready.launchables.items():
        graphs[role] = capture(launchable, launches, device.stream)
        graphs[role].upload(stream=device.stream)
    return graphs

"""The GPU as the timings use it: held by lock, watched by NVML, with a stream, a variant's kernels and the library."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gemmlab import driver
from gemmlab.executors.cuda import CudaExecutor
from gemmlab.executors.device_memory import DeviceBuffer, allocate, device_faults, load_cupy
from gemmlab.executors.limits import DeviceLimits
from gemmlab.timing.baselines import WORKSPACE_BYTES, Cublas
from gemmlab.timing.hot import SAMPLE_MS, Launchable, capture, launches_per_sample, replay_ms
from gemmlab.timing.lock import hold_gpu
from gemmlab.timing.settings import LONG_MS
from gemmlab.timing.telemetry import Telemetry

# CUDA's number of the GPU; CUDA_VISIBLE_DEVICES chooses which card that is.
NUMBER = 0
_PILOT_SAMPLES = 2


@dataclass(frozen=True)
class Device:
    """An open GPU. `executor` is None without a cubin, `cublas` and its workspace where no library is needed."""

    cupy: Any
    stream: Any
    telemetry: Telemetry
    uuid: str | None
    limits: DeviceLimits
    executor: CudaExecutor | None
    cublas: Cublas | None
    workspace: DeviceBuffer | None

    @property
    def highest_clock_mhz(self) -> float | None:
        """The highest SM clock, by NVML or else by the driver."""
        return self.telemetry.max_sm_clock_mhz() or self.limits.clock_mhz

    def launch_ms(self, launchable: Launchable, what: str) -> float:
        """The time of one launch by CUDA events, ms; a fault names `what`.

        A first launch also loads the kernel's code, which took 90 ms for cuBLAS on an H200.
        """
        start, end = self.cupy.cuda.Event(), self.cupy.cuda.Event()
        with device_faults(self.cupy, what):
            start.record(self.stream)
            launchable.launch(self.stream)
            end.record(self.stream)
            end.synchronize()
            return self.cupy.cuda.get_elapsed_time(start, end)

    def pilot_ms(self, launchable: Launchable, what: str) -> float:
        """The time of a launch among many, ms, found after an untimed one.

        A short launch is timed within a graph: alone it would seem to take as long as Python takes to launch it, tens
        of microseconds.
        """
        self.launch_ms(launchable, what)
        alone = self.launch_ms(launchable, what)
        if alone > LONG_MS:
            return alone
        if alone > SAMPLE_MS:
            return min(alone, self.launch_ms(launchable, what))
        launches = launches_per_sample([alone])
        with device_faults(self.cupy, what):
            graph = capture(launchable, launches, self.stream)
            return float(replay_ms(self.cupy, graph, self.stream, _PILOT_SAMPLES).min()) / launches


def open_device(cubin: Path | None, library: bool) -> Device:
    """Hold the GPU, create its context, load the kernels and create the library's handles: none of it is timed.

    Args:
        cubin: a variant's kernels, if it has any.
        library: whether cuBLAS is needed.

    Raises:
        Unavailable: this machine lacks CuPy, cuBLAS or a GPU, or another process keeps the GPU.
        NotLaunchable: the cubin is not for this GPU.
    """
    cupy = load_cupy()
    uuid = driver.device_uuid(NUMBER)
    if uuid:
        hold_gpu(uuid)
    # NVML is asked before the context exists, so that its list of processes holds the others alone.
    telemetry = Telemetry(uuid)
    cupy.cuda.Device(NUMBER).use()
    cupy.cuda.runtime.deviceSynchronize()
    telemetry.own_context_created()
    workspace = allocate(cupy, WORKSPACE_BYTES, np.uint8) if library else None
    return Device(
        cupy=cupy,
        stream=cupy.cuda.Stream(non_blocking=True),
        telemetry=telemetry,
        uuid=uuid,
        limits=DeviceLimits.of_device(NUMBER),
        executor=None if cubin is None else CudaExecutor(cubin, NUMBER),
        cublas=None if workspace is None else Cublas(workspace.address),
        workspace=workspace,
    )

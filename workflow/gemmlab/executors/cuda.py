"""The cuda executor: CuPy loads a variant's cubin and launches it on the GPU."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gemmlab import driver
from gemmlab.catalogue import architecture_number
from gemmlab.cubin import cubin_architecture, entry_names
from gemmlab.executors.base import (
    Argument,
    DeviceFault,
    Dim3,
    Execution,
    Finding,
    Launch,
    NotLaunchable,
    Pointer,
    Scalar,
    TensorMap,
)
from gemmlab.executors.device_memory import (
    DeviceBuffer,
    allocate,
    cuda_errors,
    device_faults,
    in_words,
    load_cupy,
)
from gemmlab.executors.limits import (
    SHARED_BYTES_WITHOUT_OPT_IN,
    DeviceLimits,
    KernelResources,
    refuse_unlaunchable,
)
from gemmlab.executors.tensor_maps import encode
from gemmlab.timing.lock import hold_gpu

_SCALARS = {"int32": np.int32, "int64": np.int64, "float32": np.float32}


@dataclass(frozen=True)
class _Call:
    """A launch as CuPy takes it."""

    entry: str
    function: Any
    grid: Dim3
    block: Dim3
    arguments: tuple[np.generic, ...]
    shared_bytes: int

    def queue(self, stream: Any) -> None:
        """Launch on `stream`; None is CuPy's current one."""
        self.function(self.grid, self.block, self.arguments, shared_mem=self.shared_bytes, stream=stream)


class PreparedLaunches:
    """Launches with everything looked up: ready to be repeated on any stream, also inside a graph capture."""

    def __init__(self, executor: CudaExecutor, calls: Sequence[_Call]) -> None:
        self._executor = executor
        self._calls = calls

    def launch(self, stream: Any) -> None:
        """Queue all launches on `stream` (CuPy's, or any object with `ptr`); takes no memory, waits for nothing."""
        for call in self._calls:
            call.queue(stream)

    def run_checked(self) -> None:
        """Run the launches one by one on the current stream, so that a fault is blamed on the right entry.

        Raises:
            NotLaunchable: the driver refused a launch.
            DeviceFault: a kernel died.
        """
        for call in self._calls:
            self._executor.run_call(call)


class CudaExecutor:
    """A variant's cubin on the GPU.

    The process holds the GPU from here on, shared with others that check; whoever times or profiles takes it for
    itself before (gemmlab.timing.lock). Nothing here needs NVRTC: no array operation of CuPy's is used, only its
    memory, modules and streams.
    """

    name = "cuda"

    def __init__(self, cubin: Path, device: int = 0) -> None:
        """Load `cubin`.

        Args:
            cubin: the file that the compile stage wrote.
            device: CUDA's number of the GPU.

        Raises:
            Unavailable: no CuPy, no GPU, or another process keeps it.
            NotLaunchable: the cubin was built for other GPUs.
            GemmlabError: the file is no cubin.
        """
        self._cupy = load_cupy()
        self._cubin = cubin
        content = cubin.read_bytes()
        self.limits = DeviceLimits.of_device(device)
        self._refuse_other_architecture(content)
        self._entries = entry_names(content)
        uuid = driver.device_uuid(device)
        if uuid:
            hold_gpu(uuid, shared=True)
        self._cupy.cuda.Device(device).use()
        self._module = self._cupy.RawModule(path=str(cubin))
        self._kernels: dict[str, Any] = {}
        self._opted_in: dict[str, int] = {}
        self._lost: str | None = None

    def _refuse_other_architecture(self, content: bytes) -> None:
        built_for = cubin_architecture(content)
        major, minor = divmod(architecture_number(built_for), 10)
        present_major, present_minor = self.limits.capability
        if major != present_major or minor > present_minor:
            raise NotLaunchable(
                f"{self._cubin}: built for {built_for}, device is {present_major}.{present_minor}; "
                f"compile for sm_{present_major}{present_minor}."
            )

    def run(
        self,
        launches: Sequence[Launch],
        buffers: Mapping[str, np.ndarray],
        *,
        order: int = 0,
        find: bool = True,
        count: bool = False,
    ) -> Execution:
        """Run `launches` over `buffers`, which are changed in place; see `base.Executor.run`.

        The hardware decides the order of blocks, and stray accesses only show where they meet a guard band, whatever
        `find` says. There are no counters. Launches run one by one, so that a fault is blamed on the right entry.
        """
        if self._lost:
            raise DeviceFault(f"the CUDA context was lost before: {self._lost}")
        device = {name: allocate(self._cupy, array.nbytes, array.dtype) for name, array in buffers.items()}
        for name, array in buffers.items():
            device[name].upload(array)
        self.prepare(launches, device).run_checked()
        findings = []
        with self._faults("copying results"):
            for name, array in buffers.items():
                device[name].download(array)
                findings += [
                    Finding("guard_overwritten", f"buffer {name}: {fault}")
                    for fault in device[name].overwritten_guards()
                ]
        return Execution(findings=tuple(findings))

    def prepare(self, launches: Sequence[Launch], buffers: Mapping[str, DeviceBuffer]) -> PreparedLaunches:
        """Look up kernels, convert arguments, encode tensor maps and opt in to shared memory, once for many launches.

        Raises:
            NotLaunchable: there is no such entry, or a limit of the device is exceeded.
        """
        calls = []
        for launch in launches:
            kernel = self._kernel(launch.entry)
            resources = _resources(kernel, launch)
            refuse_unlaunchable(launch, resources, self.limits)
            self._opt_in(kernel, launch, resources)
            arguments = tuple(_convert(argument, buffers) for argument in launch.arguments)
            calls.append(
                _Call(launch.entry, kernel.kernel, launch.grid, launch.block, arguments, launch.shared_bytes)
            )
        return PreparedLaunches(self, calls)

    def run_call(self, call: _Call) -> None:
        """Launch on the current stream and wait; see `PreparedLaunches.run_checked`."""
        try:
            call.queue(None)
        except cuda_errors(self._cupy) as error:
            raise NotLaunchable(f"{call.entry}: the driver refused the launch: {in_words(error)}") from error
        with self._faults(call.entry):
            self._cupy.cuda.runtime.deviceSynchronize()

    @contextlib.contextmanager
    def _faults(self, what: str) -> Iterator[None]:
        try:
            with device_faults(self._cupy, what):
                yield
        except DeviceFault as fault:
            self._lost = str(fault)
            raise

    def _kernel(self, entry: str) -> Any:
        if entry not in self._kernels:
            if entry not in self._entries:
                found = ", ".join(self._entries) or "no kernel"
                raise NotLaunchable(f"kernel {entry} not found in {self._cubin}; found: {found}.")
            try:
                kernel = self._module.get_function(entry)
                # CuPy loads the file when its first kernel is asked for.
                _ = kernel.kernel
            except cuda_errors(self._cupy) as error:
                raise NotLaunchable(f"{self._cubin} can't be loaded: {in_words(error)}") from error
            self._kernels[entry] = kernel
        return self._kernels[entry]

    def _opt_in(self, kernel: Any, launch: Launch, resources: KernelResources) -> None:
        """Ask for more than 48 KiB of shared memory; what an earlier launch asked for is never taken back."""
        whole = resources.static_shared_bytes + launch.shared_bytes
        if whole > SHARED_BYTES_WITHOUT_OPT_IN and launch.shared_bytes > self._opted_in.get(launch.entry, 0):
            kernel.max_dynamic_shared_size_bytes = launch.shared_bytes
            self._opted_in[launch.entry] = launch.shared_bytes


def _resources(kernel: Any, launch: Launch) -> KernelResources:
    return KernelResources(
        registers=kernel.num_regs,
        static_shared_bytes=kernel.shared_size_bytes,
        threads_per_block=kernel.max_threads_per_block,
        cluster=(0, 0, 0) if launch.cluster == (1, 1, 1) else _compiled_cluster(kernel.kernel.ptr),
    )


def _compiled_cluster(function: int) -> Dim3:
    from cuda.bindings import driver as cuda

    sizes = []
    for axis in ("WIDTH", "HEIGHT", "DEPTH"):
        attribute = getattr(cuda.CUfunction_attribute, f"CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_{axis}")
        result, size = cuda.cuFuncGetAttribute(attribute, cuda.CUfunction(function))
        sizes.append(size if result == cuda.CUresult.CUDA_SUCCESS else 0)
    return sizes[0], sizes[1], sizes[2]


def _convert(argument: Argument, buffers: Mapping[str, DeviceBuffer]) -> np.generic:
    match argument:
        case Scalar(kind, value):
            return _SCALARS[kind](value)
        case Pointer(buffer):
            return np.uint64(buffers[buffer].address)
        case TensorMap(buffer):
            return encode(argument, buffers[buffer].address, buffers[buffer].dtype)
    raise TypeError(f"no such argument: {argument!r}")

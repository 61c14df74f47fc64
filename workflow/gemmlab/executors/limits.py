"""What a device allows a launch, and the refusals that name both numbers before the driver's bare error would."""

from __future__ import annotations

from dataclasses import dataclass

from gemmlab import driver
from gemmlab.executors.base import Launch, NotLaunchable

# A kernel gets this much without asking; more needs its attribute set.
SHARED_BYTES_WITHOUT_OPT_IN = 48 * 1024
_AXES = "xyz"


@dataclass(frozen=True)
class DeviceLimits:
    """What a block and a grid may have on one device; left out, it is an H200's.

    Shared memory is the most that a kernel can opt in to, `clock_mhz` the highest SM clock that the driver states.
    """

    threads_per_block: int = 1024
    registers_per_block: int = 65536
    shared_bytes_per_block: int = 232448
    block: tuple[int, int, int] = (1024, 1024, 64)
    grid: tuple[int, int, int] = (2**31 - 1, 65535, 65535)
    multiprocessors: int = 132
    capability: tuple[int, int] = (9, 0)
    clock_mhz: float | None = None

    @classmethod
    def of_device(cls, device: int = 0) -> DeviceLimits:
        """The limits of a device (CUDA's number) as its driver states them."""
        attributes = driver.device_attributes(device)
        kilohertz = attributes.get("clock_rate")
        return cls(
            threads_per_block=attributes["max_threads_per_block"],
            registers_per_block=attributes["max_registers_per_block"],
            shared_bytes_per_block=attributes["max_shared_memory_per_block_optin"],
            block=tuple(attributes[f"max_block_dim_{axis}"] for axis in _AXES),
            grid=tuple(attributes[f"max_grid_dim_{axis}"] for axis in _AXES),
            multiprocessors=attributes["multiprocessor_count"],
            capability=(attributes["compute_capability_major"], attributes["compute_capability_minor"]),
            clock_mhz=kilohertz / 1000 if kilohertz else None,
        )


@dataclass(frozen=True)
class KernelResources:
    """What a loaded kernel uses. `threads_per_block` is the driver's answer for this kernel on this device.

    `cluster` is what `__cluster_dims__` asked for, zeros if nothing.
    """

    registers: int
    static_shared_bytes: int
    threads_per_block: int
    cluster: tuple[int, int, int] = (0, 0, 0)


def refuse_unlaunchable(launch: Launch, kernel: KernelResources, limits: DeviceLimits) -> None:
    """Raise NotLaunchable with what is needed and what is allowed if `launch` can't work on the device."""
    faults = (
        _dimensions_fault(launch, limits)
        or _threads_fault(launch, kernel, limits)
        or _shared_fault(launch, kernel, limits)
        or _cluster_fault(launch, kernel)
    )
    if faults:
        raise NotLaunchable(f"{launch.entry}: {faults}")


def _dimensions_fault(launch: Launch, limits: DeviceLimits) -> str | None:
    for what, sizes, allowed in (("grid", launch.grid, limits.grid), ("block", launch.block, limits.block)):
        for axis, size, most in zip(_AXES, sizes, allowed, strict=True):
            if size < 1:
                return f"{what}.{axis} is {size}, expected at least 1"
            if size > most:
                return f"{what}.{axis} is {size}, the device allows {most}"
    return None


def _threads_fault(launch: Launch, kernel: KernelResources, limits: DeviceLimits) -> str | None:
    threads = launch.block[0] * launch.block[1] * launch.block[2]
    if threads > limits.threads_per_block:
        return f"a block of {threads} threads, the device allows {limits.threads_per_block}"
    registers = kernel.registers * threads
    if registers > limits.registers_per_block:
        return (
            f"{kernel.registers} registers x {threads} threads = {registers} registers a block, the device has "
            f"{limits.registers_per_block}; __launch_bounds__({threads}) makes the compiler keep within that"
        )
    if threads > kernel.threads_per_block:
        return (
            f"a block of {threads} threads, the kernel was compiled for at most {kernel.threads_per_block} "
            f"(its __launch_bounds__, or its {kernel.registers} registers a thread)"
        )
    return None


def _shared_fault(launch: Launch, kernel: KernelResources, limits: DeviceLimits) -> str | None:
    needed = kernel.static_shared_bytes + launch.shared_bytes
    if needed > limits.shared_bytes_per_block:
        return (
            f"needs {needed} bytes of shared memory a block ({kernel.static_shared_bytes} static, "
            f"{launch.shared_bytes} dynamic), the device allows {limits.shared_bytes_per_block}"
        )
    return None


def _cluster_fault(launch: Launch, kernel: KernelResources) -> str | None:
    if launch.cluster == (1, 1, 1):
        return None
    if kernel.cluster != launch.cluster:
        compiled = " x ".join(map(str, kernel.cluster)) if any(kernel.cluster) else "none"
        wanted = " x ".join(map(str, launch.cluster))
        return f"the catalogue says a cluster of {wanted}, the kernel's __cluster_dims__ say {compiled}"
    for axis, blocks, cluster in zip(_AXES, launch.grid, launch.cluster, strict=True):
        if blocks % cluster:
            return f"grid.{axis} is {blocks}, no multiple of the cluster's {cluster}"
    return None

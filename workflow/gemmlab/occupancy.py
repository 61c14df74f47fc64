"""Theoretical occupancy: how many blocks of a launch an SM can hold, and which resource sets the limit."""

from __future__ import annotations

from dataclasses import dataclass

from gemmlab.expression import cdiv

_WARP = 32
_REGISTERS = 65536
_REGISTERS_PER_THREAD = 255
_REGISTER_GRANULARITY = 256
_SUB_PARTITIONS = 4
_THREADS_PER_BLOCK = 1024
_KIB = 1024


@dataclass(frozen=True)
class Multiprocessor:
    """Limits of one SM.

    `block_shared_bytes` is the most that a block may ask for after opting in; `barriers` are those of all its blocks
    together, None where they never limit.
    """

    warps: int
    blocks: int
    shared_bytes: int
    block_shared_bytes: int
    barriers: int | None = None
    shared_granularity: int = 128
    reserved_shared_bytes: int = 1 * _KIB


# Warps, blocks and shared memory: the tables of section 5.1, Compute Capabilities, of the CUDA Programming Guide, which
# cuda::arch_traits of CCCL repeats. Granularities, the shared memory that the system keeps of each block and the
# barriers: what cuda_occupancy.h of CUDA 13.0 computes with.
MULTIPROCESSORS = {
    75: Multiprocessor(32, 16, 64 * _KIB, 64 * _KIB, shared_granularity=256, reserved_shared_bytes=0),
    80: Multiprocessor(64, 32, 164 * _KIB, 163 * _KIB),
    86: Multiprocessor(48, 16, 100 * _KIB, 99 * _KIB),
    87: Multiprocessor(48, 16, 164 * _KIB, 163 * _KIB),
    88: Multiprocessor(48, 16, 100 * _KIB, 99 * _KIB),
    89: Multiprocessor(48, 24, 100 * _KIB, 99 * _KIB),
    90: Multiprocessor(64, 32, 228 * _KIB, 227 * _KIB, 64),
    100: Multiprocessor(64, 32, 228 * _KIB, 227 * _KIB, 64),
    103: Multiprocessor(64, 32, 228 * _KIB, 227 * _KIB, 64),
    110: Multiprocessor(48, 24, 228 * _KIB, 227 * _KIB, 24),
    120: Multiprocessor(48, 24, 100 * _KIB, 99 * _KIB, 24),
    121: Multiprocessor(48, 24, 100 * _KIB, 99 * _KIB, 24),
}


@dataclass(frozen=True)
class Occupancy:
    """`fraction` is resident warps over the most that the SM holds; `limit` names the resources that stop more."""

    blocks_per_sm: int
    fraction: float
    limit: str


def occupancy(
    compute_capability: int,
    threads: int,
    registers: int,
    shared_bytes: int,
    barriers: int = 1,
) -> Occupancy | None:
    """The theoretical occupancy of a launch.

    Args:
        compute_capability: 90 for 9.0.
        threads: of a block.
        registers: of a thread.
        shared_bytes: static and dynamic shared memory of a block.
        barriers: named barriers that the kernel uses.

    Returns:
        Blocks, fraction and limit; a launch that doesn't fit at all has 0 blocks and the limit says why in numbers.
        None for a compute capability that the table lacks.
    """
    sm = MULTIPROCESSORS.get(compute_capability)
    if sm is None:
        return None
    warps = cdiv(threads, _WARP)
    registers_per_warp = cdiv(registers * _WARP, _REGISTER_GRANULARITY) * _REGISTER_GRANULARITY
    reason = _not_launchable(sm, threads, registers, registers_per_warp, shared_bytes)
    if reason:
        return Occupancy(0, 0.0, f"not launchable: {reason}")
    limits = {"threads": sm.warps // warps, "blocks": sm.blocks}
    if registers_per_warp:
        resident_warps = _REGISTERS // _SUB_PARTITIONS // registers_per_warp * _SUB_PARTITIONS
        limits["registers"] = resident_warps // warps
    shared = shared_bytes + sm.reserved_shared_bytes
    if shared:
        limits["shared memory"] = sm.shared_bytes // (
            cdiv(shared, sm.shared_granularity) * sm.shared_granularity
        )
    if barriers and sm.barriers:
        limits["barriers"] = sm.barriers // barriers
    blocks = min(limits.values())
    limit = ", ".join(name for name, most in limits.items() if most == blocks)
    return Occupancy(blocks, blocks * warps / sm.warps, limit)


def _not_launchable(
    sm: Multiprocessor, threads: int, registers: int, registers_per_warp: int, shared_bytes: int
) -> str | None:
    if threads > _THREADS_PER_BLOCK:
        return f"{threads} threads a block, limit {_THREADS_PER_BLOCK}"
    # The hardware's check takes registers for all sub-partitions at once, so the warps are rounded up to them.
    needed = registers_per_warp * cdiv(cdiv(threads, _WARP), _SUB_PARTITIONS) * _SUB_PARTITIONS
    if registers > _REGISTERS_PER_THREAD or needed > _REGISTERS:
        return f"{needed} registers a block, limit {_REGISTERS}"
    if shared_bytes > sm.block_shared_bytes:
        return f"{shared_bytes} bytes of shared memory a block, limit {sm.block_shared_bytes}"
    return None

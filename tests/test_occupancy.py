from __future__ import annotations

import random
import subprocess
from pathlib import Path

import pytest

from gemmlab.occupancy import MULTIPROCESSORS, occupancy
from gemmlab.toolchain import find_nvcc, toolkit_binaries, wheel_folder

# Counted by hand from the tables: a block of 256 threads is 8 warps, an SM of 9.0 holds 64.
HAND_COUNTED = [
    # cc, threads, registers, shared bytes, blocks, fraction, limit
    (90, 1024, 32, 0, 2, 1.0, "threads, registers"),
    (90, 1024, 33, 0, 1, 0.5, "registers"),  # 33 x 32 rounds to 1280 a warp: 48 warps, one block of 32
    (90, 1024, 64, 0, 1, 0.5, "registers"),
    (90, 256, 128, 0, 2, 0.25, "registers"),
    (90, 256, 255, 0, 1, 0.125, "registers"),
    (90, 256, 32, 16384, 8, 1.0, "threads, registers"),
    (90, 256, 32, 49152, 4, 0.5, "shared memory"),  # 49152 + 1024 of 233472
    (90, 128, 64, 232448, 1, 0.0625, "shared memory"),  # the most that a block may have
    (90, 32, 16, 0, 32, 0.5, "blocks"),
    (90, 33, 16, 0, 32, 1.0, "threads, blocks"),  # a warp of one thread is a warp
    (
        90,
        96,
        168,
        0,
        4,
        0.1875,
        "registers",
    ),  # 5376 a warp: 3 in each of 4 sub-partitions, 12 for blocks of 3
    (80, 256, 32, 32768, 4, 0.5, "shared memory"),
    (86, 1024, 32, 0, 1, 32 / 48, "threads"),
    (89, 768, 40, 0, 2, 1.0, "threads, registers"),
    (75, 256, 64, 16384, 4, 1.0, "threads, registers, shared memory"),
    (120, 256, 64, 32768, 3, 0.5, "shared memory"),
]


@pytest.mark.parametrize(
    ("capability", "threads", "registers", "shared", "blocks", "fraction", "limit"), HAND_COUNTED
)
def test_hand_counted_launches(
    capability: int, threads: int, registers: int, shared: int, blocks: int, fraction: float, limit: str
) -> None:
    found = occupancy(capability, threads, registers, shared)
    assert (found.blocks_per_sm, found.limit) == (blocks, limit)
    assert found.fraction == pytest.approx(fraction)


def test_barriers_limit_too() -> None:
    found = occupancy(90, 64, 32, 0, barriers=16)
    assert (found.blocks_per_sm, found.limit) == (4, "barriers")


@pytest.mark.parametrize(
    ("threads", "registers", "shared", "words"),
    [
        (2048, 32, 0, "2048 threads a block, limit 1024"),
        (1024, 128, 0, "131072 registers a block, limit 65536"),
        (256, 32, 232449, "232449 bytes of shared memory a block, limit 232448"),
    ],
)
def test_a_launch_that_does_not_fit_is_told_in_numbers(
    threads: int, registers: int, shared: int, words: str
) -> None:
    found = occupancy(90, threads, registers, shared)
    assert (found.blocks_per_sm, found.fraction) == (0, 0.0)
    assert found.limit == f"not launchable: {words}"


def test_an_unknown_compute_capability_has_no_guess() -> None:
    assert occupancy(42, 256, 32, 0) is None


PROGRAM = """
#include <cstdio>
#include <climits>
#include "cuda_occupancy.h"
int main() {
    int major, minor, threads_of_sm, shared_of_sm, shared_of_block, reserved, threads, registers, barriers;
    int fixed_shared, dynamic_shared;
    while (std::scanf("%d %d %d %d %d %d %d %d %d %d %d", &major, &minor, &threads_of_sm, &shared_of_sm,
                      &shared_of_block, &reserved, &threads, &registers, &fixed_shared, &dynamic_shared,
                      &barriers) == 11) {
        cudaOccDeviceProp device;
        device.computeMajor = major;
        device.computeMinor = minor;
        device.maxThreadsPerBlock = 1024;
        device.maxThreadsPerMultiprocessor = threads_of_sm;
        device.regsPerBlock = device.regsPerMultiprocessor = 65536;
        device.warpSize = 32;
        device.sharedMemPerBlock = 49152;
        device.sharedMemPerMultiprocessor = shared_of_sm;
        device.sharedMemPerBlockOptin = shared_of_block;
        device.reservedSharedMemPerBlock = reserved;
        device.numSms = 1;
        cudaOccFuncAttributes function;
        function.maxThreadsPerBlock = INT_MAX;
        function.numRegs = registers;
        function.sharedSizeBytes = fixed_shared;
        function.partitionedGCConfig = PARTITIONED_GC_OFF;
        function.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN;
        function.maxDynamicSharedSizeBytes = dynamic_shared;
        function.numBlockBarriers = barriers;
        cudaOccDeviceState state;
        cudaOccResult result;
        cudaOccError error = cudaOccMaxActiveBlocksPerMultiprocessor(&result, &device, &function, &state, threads,
                                                                     dynamic_shared);
        std::printf("%d\\n", error == CUDA_OCC_SUCCESS ? result.activeBlocksPerMultiprocessor : -error);
    }
}
"""


def occupancy_header() -> Path:
    folders = [toolkit_binaries(find_nvcc()).parent / "include"]
    wheel = wheel_folder()
    folders += [wheel.parent / "include"] if wheel else []
    return next(folder for folder in folders if (folder / "cuda_occupancy.h").is_file())


def test_nvidias_own_calculator_agrees(tmp_path: Path) -> None:
    """cuda_occupancy.h, which comes with the toolkit, over 4,000 random launches on every capability of the table."""
    source, program = tmp_path / "occupancy.cpp", tmp_path / "occupancy"
    source.write_text(PROGRAM)
    subprocess.run(["g++", f"-I{occupancy_header()}", "-o", program, source], check=True, capture_output=True)
    choose = random.Random(20261129)
    launches = []
    for _ in range(4000):
        capability = choose.choice([number for number in MULTIPROCESSORS if number != 75])
        threads = choose.choice([choose.randint(1, 1024), 32 * choose.randint(1, 32)])
        registers = choose.choice([choose.randint(16, 255), 32, 64, 128, 255])
        fixed = choose.choice([0, choose.randint(0, 49152)])
        dynamic = choose.choice([0, choose.randint(0, 120_000)])
        launches.append((capability, threads, registers, fixed, dynamic, choose.randint(0, 16)))
    text = ""
    for capability, threads, registers, fixed, dynamic, barriers in launches:
        sm = MULTIPROCESSORS[capability]
        device = (*divmod(capability, 10), sm.warps * 32, sm.shared_bytes, sm.block_shared_bytes, 1024)
        text += " ".join(map(str, (*device, threads, registers, fixed, dynamic, barriers))) + "\n"
    answer = subprocess.run([program], input=text, text=True, check=True, capture_output=True).stdout
    expected = list(map(int, answer.split()))
    found = [
        occupancy(capability, threads, registers, fixed + dynamic, barriers).blocks_per_sm
        for capability, threads, registers, fixed, dynamic, barriers in launches
    ]
    different = [
        (launch, mine, theirs)
        for launch, mine, theirs in zip(launches, found, expected, strict=True)
        if mine != theirs
    ]
    assert different == []

from __future__ import annotations

import pytest

from gemmlab.executors.base import Launch, NotLaunchable
from gemmlab.executors.limits import DeviceLimits, KernelResources, refuse_unlaunchable

PLENTY = KernelResources(registers=32, static_shared_bytes=0, threads_per_block=1024)


def launch(**changes) -> Launch:
    plain = {"entry": "gemm", "grid": (1, 1, 1), "block": (32, 1, 1), "shared_bytes": 0, "arguments": ()}
    return Launch(**(plain | changes))


@pytest.mark.parametrize(
    ("changes", "kernel", "words"),
    [
        ({"block": (2048, 1, 1)}, PLENTY, "block.x is 2048, the device allows 1024"),
        ({"block": (64, 32, 1)}, PLENTY, "a block of 2048 threads, the device allows 1024"),
        ({"grid": (1, 65536, 1)}, PLENTY, "grid.y is 65536, the device allows 65535"),
        ({"grid": (1, 0, 1)}, PLENTY, "grid.y is 0, expected at least 1"),
        (
            {"block": (512, 1, 1)},
            KernelResources(255, 0, 256),
            "255 registers x 512 threads = 130560 registers a block, the device has 65536",
        ),
        (
            {"block": (512, 1, 1)},
            KernelResources(32, 0, 256),
            "a block of 512 threads, the kernel was compiled for at most 256",
        ),
        (
            {"shared_bytes": 232000},
            KernelResources(32, 1024, 1024),
            r"needs 233024 bytes .*\(1024 static, 232000 dynamic\), the device allows 232448",
        ),
        ({"cluster": (2, 1, 1), "grid": (2, 1, 1)}, PLENTY, "cluster of 2 x 1 x 1, .* say none"),
        (
            {"cluster": (2, 1, 1), "grid": (3, 1, 1)},
            KernelResources(32, 0, 1024, (2, 1, 1)),
            "grid.x is 3, no multiple of the cluster's 2",
        ),
    ],
)
def test_refusals_give_both_numbers(changes: dict, kernel: KernelResources, words: str) -> None:
    with pytest.raises(NotLaunchable, match=f"gemm: .*{words}"):
        refuse_unlaunchable(launch(**changes), kernel, DeviceLimits())


@pytest.mark.parametrize(
    ("changes", "kernel"),
    [
        ({"block": (1024, 1, 1)}, KernelResources(64, 0, 1024)),
        ({"shared_bytes": 232448}, PLENTY),
        ({"grid": (2**31 - 1, 65535, 65535)}, PLENTY),
        ({"cluster": (2, 1, 1), "grid": (4, 3, 1)}, KernelResources(32, 0, 1024, (2, 1, 1))),
    ],
)
def test_what_just_fits_passes(changes: dict, kernel: KernelResources) -> None:
    refuse_unlaunchable(launch(**changes), kernel, DeviceLimits())

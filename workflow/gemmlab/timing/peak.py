"""The most that a device can compute: multiply-adds a clock and SM by compute capability, times SMs and clock."""

from __future__ import annotations

from gemmlab.arithmetic import ARITHMETICS

# FP32 lanes of an SM. Source: CUDA C++ Programming Guide, table "Throughput of Native Arithmetic Instructions".
_FP32_LANES = {
    (7, 0): 64,
    (7, 5): 64,
    (8, 0): 64,
    (8, 6): 128,
    (8, 7): 128,
    (8, 9): 128,
    (9, 0): 128,
    (10, 0): 128,
    (10, 3): 128,
    (11, 0): 128,
    (12, 0): 128,
    (12, 1): 128,
}
# Dense FP16 and BF16 tensor-core multiply-adds of an SM and clock; TF32 is half of it. Source: the vendor's
# architecture white papers (Volta, Turing, Ampere GA100 and GA102, Ada, Hopper, Blackwell). Boards that halve the
# rate of FP32 accumulation are not told apart, so that the peak is never too low.
_FP16_TENSOR = {
    (7, 0): 512,
    (7, 5): 512,
    (8, 0): 1024,
    (8, 6): 512,
    (8, 7): 1024,
    (8, 9): 512,
    (9, 0): 2048,
    (10, 0): 4096,
    (10, 3): 4096,
    (12, 0): 512,
    (12, 1): 512,
}
_TENSOR_BASE = {
    "tf32": "tf32",
    "3xtf32": "tf32",
    "fp16": "fp16",
    "fp16x3": "fp16",
    "bf16": "bf16",
    "bf16x6": "bf16",
    "bf16x9": "bf16",
}
_WITHOUT_TF32_AND_BF16 = ((7, 0), (7, 5))


def fmas_per_clock(arithmetic: str, capability: tuple[int, int]) -> float | None:
    """Multiply-adds of results that one SM finishes in a clock, or None where the device's rate isn't known.

    An arithmetic that needs several tensor-core products for one product of the result gets that share of the rate.
    """
    if arithmetic == "fp32":
        return _FP32_LANES.get(capability)
    base = _TENSOR_BASE[arithmetic]
    if base != "fp16" and capability in _WITHOUT_TF32_AND_BF16:
        return None
    rate = _FP16_TENSOR.get(capability)
    if rate is None:
        return None
    return rate * (0.5 if base == "tf32" else 1.0) / ARITHMETICS[arithmetic].products


def peak_tflops(
    arithmetic: str,
    capability: tuple[int, int] | None,
    multiprocessors: int | None,
    sm_clock_mhz: float | None,
) -> float | None:
    """The peak in TFLOP/s (a multiply-add is two operations) at the highest SM clock, or None if it isn't known."""
    fmas = fmas_per_clock(arithmetic, capability)
    return (
        None if fmas is None or not sm_clock_mhz else 2 * fmas * multiprocessors * sm_clock_mhz * 1e6 / 1e12
    )

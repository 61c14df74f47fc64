"""Float16 and bfloat16 arithmetic, single and packed."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from ptx_pieces import assert_same_bits


@pytest.fixture(autouse=True)
def quiet():
    with np.errstate(all="ignore"):
        yield


def halves(seed: int, count: int = 512) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 2**16, count, np.uint16).view(np.float16)


def moderate(seed: int, count: int = 512) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(count).astype(np.float16)


def bfloat_bits(values: np.ndarray) -> np.ndarray:
    """Round float32 to bfloat16, ties to even."""
    bits = values.astype(np.float32).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def bfloat_values(bits: np.ndarray) -> np.ndarray:
    return (bits.astype(np.uint32) << 16).view(np.float32)


def nearest_half(exact: Fraction) -> np.float16:
    guess = np.float16(float(exact))
    candidates = [guess, np.nextafter(guess, np.float16(np.inf)), np.nextafter(guess, np.float16(-np.inf))]
    distance = [abs(Fraction(float(c)) - exact) if np.isfinite(c) else Fraction(10**9) for c in candidates]
    best = [c for c, d in zip(candidates, distance, strict=True) if d == min(distance)]
    return min(best, key=lambda c: int(c.view(np.uint16)) & 1)


@pytest.mark.parametrize(
    ("operation", "reference"), [("add", np.add), ("sub", np.subtract), ("mul", np.multiply)]
)
def test_float16_arithmetic(piece, operation, reference):
    a, b = halves(1), halves(2)
    assert_same_bits(piece(f"{operation}.f16 %out, %a, %b;", np.float16, a=a, b=b), reference(a, b))


def test_float16_fma_rounds_once(piece):
    rng = np.random.default_rng(3)
    a, b = moderate(4), moderate(5)
    c = (-(a.astype(np.float64) * b)).astype(np.float16)
    c[::2] = rng.standard_normal(256).astype(np.float16)
    # A product just above halfway between two float16, of which float32 loses the excess.
    a[0], b[0], c[0] = np.float16(2.0**-14), np.float16(2.0**-12), np.float16(1 + 2.0**-10)
    a[1], b[1], c[1] = np.float16(1 + 2.0**-10), np.float16(2.0**-11 + 2.0**-21), np.float16(1)
    wanted = np.array(
        [
            nearest_half(Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z)))
            for x, y, z in zip(a, b, c, strict=True)
        ],
        np.float16,
    )
    assert_same_bits(piece("fma.rn.f16 %out, %a, %b, %c;", np.float16, a=a, b=b, c=c), wanted)


def test_fma_where_rounding_twice_goes_wrong(piece):
    # Just below a tie whose even neighbour lies above: float32 can't tell it from the tie.
    a = np.full(32, 2.0**-11 * (1 + 2.0**-10), np.float16)
    b = np.full(32, 1 - 2.0**-10, np.float16)
    c = np.full(32, 1 + 2.0**-10, np.float16)
    assert np.float16(np.float32(np.float64(a[0]) * b[0] + c[0])) == 1 + 2.0**-9
    got = piece("fma.rn.f16 %out, %a, %b, %c;", np.float16, a=a, b=b, c=c)
    np.testing.assert_array_equal(got, np.float16(1 + 2.0**-10))
    packed = [x.view(np.uint32) for x in (a, b, c)]
    got = piece("fma.rn.f16x2 %out, %a, %b, %c;", np.uint32, a=packed[0], b=packed[1], c=packed[2])
    np.testing.assert_array_equal(got.view(np.float16), np.float16(1 + 2.0**-10))


def test_packed_float16(piece):
    a, b = halves(6), halves(7)
    packed_a, packed_b = a.view(np.uint32), b.view(np.uint32)
    got = piece("add.f16x2 %out, %a, %b;", np.uint32, a=packed_a, b=packed_b)
    assert_same_bits(got.view(np.float16), a + b)
    c = moderate(8)
    fused = piece(
        "fma.rn.f16x2 %out, %a, %b, %c;",
        np.uint32,
        a=moderate(9).view(np.uint32),
        b=moderate(10).view(np.uint32),
        c=c.view(np.uint32),
    )
    wanted = (moderate(9).astype(np.float64) * moderate(10) + c).astype(np.float16)
    assert_same_bits(fused.view(np.float16), wanted)


def test_float16_extremes_and_signs(piece):
    a, b = moderate(11), moderate(12)
    assert_same_bits(piece("min.f16 %out, %a, %b;", np.float16, a=a, b=b), np.minimum(a, b))
    assert_same_bits(piece("max.f16 %out, %a, %b;", np.float16, a=a, b=b), np.maximum(a, b))
    assert_same_bits(piece("neg.f16 %out, %a;", np.float16, a=a), -a)
    packed = a.view(np.uint32)
    assert_same_bits(piece("abs.f16x2 %out, %a;", np.uint32, a=packed).view(np.float16), np.abs(a))


def test_bfloat16_arithmetic(piece):
    rng = np.random.default_rng(13)
    a, b = (bfloat_bits(rng.standard_normal(256).astype(np.float32)) for _ in range(2))
    x, y = bfloat_values(a), bfloat_values(b)
    for operation, wanted in (("add.rn", x + y), ("sub.rn", x - y), ("mul.rn", x * y)):
        got = piece(f"{operation}.bf16 %out, %a, %b;", np.uint16, a=a, b=b)
        np.testing.assert_array_equal(got, bfloat_bits(wanted))
    fused = piece("fma.rn.bf16 %out, %a, %b, %a;", np.uint16, a=a, b=b)
    exact = x.astype(np.float64) * y + x
    difference = np.abs(bfloat_values(fused) - exact)
    assert (difference <= np.abs(exact) * 2.0**-8).all()


def test_comparison(piece):
    a, b = halves(14), halves(15)
    got = piece("setp.lt.f16 %p0, %a, %b;\nselp.u32 %out, 1, 0, %p0;", np.uint32, a=a, b=b)
    np.testing.assert_array_equal(got, (a < b).astype(np.uint32))

"""Float arithmetic: IEEE to the last bit where PTX says so."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from ptx_pieces import assert_same_bits, awkward_floats, nearest_float32


def pair() -> tuple[np.ndarray, np.ndarray]:
    a, b = awkward_floats(1), awkward_floats(2)
    return a, np.roll(b, 37)


@pytest.fixture(autouse=True)
def quiet():
    with np.errstate(all="ignore"):
        yield


@pytest.mark.parametrize(
    ("operation", "reference"),
    [
        ("add", np.add),
        ("sub", np.subtract),
        ("mul", np.multiply),
        ("add.rn", np.add),
        ("mul.rn", np.multiply),
        ("div.rn", np.divide),
    ],
)
@pytest.mark.parametrize(("kind", "dtype"), [("f32", np.float32), ("f64", np.float64)])
def test_arithmetic(piece, operation, reference, kind, dtype):
    a, b = (x.astype(dtype) for x in pair())
    assert_same_bits(piece(f"{operation}.{kind} %out, %a, %b;", dtype, a=a, b=b), reference(a, b))


def test_square_root_and_reciprocal(piece):
    a = awkward_floats(3)
    assert_same_bits(piece("sqrt.rn.f32 %out, %a;", np.float32, a=a), np.sqrt(a))
    assert_same_bits(piece("rcp.rn.f32 %out, %a;", np.float32, a=a), np.float32(1) / a)
    wide = a.astype(np.float64)
    assert_same_bits(piece("sqrt.rn.f64 %out, %a;", np.float64, a=wide), np.sqrt(wide))


def test_fma_rounds_once(piece):
    rng = np.random.default_rng(4)
    a = rng.standard_normal(512).astype(np.float32)
    b = rng.standard_normal(512).astype(np.float32)
    c = (-(a * b)).astype(np.float32)  # cancels, so that only the product's low half is left
    c[::3] = rng.standard_normal(len(c[::3])).astype(np.float32)
    wanted = np.array(
        [
            nearest_float32(Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z)))
            for x, y, z in zip(a, b, c, strict=True)
        ],
        np.float32,
    )
    got = piece("fma.rn.f32 %out, %a, %b, %c;", np.float32, a=a, b=b, c=c)
    assert_same_bits(got, wanted)
    assert not np.array_equal(got, a * b + c)  # which rounds twice


def test_fma_of_specials(piece):
    a = np.array([np.inf, 0, 1, np.nan, 3e38, -0.0] * 6, np.float32)[:32]
    b = np.array([0, np.inf, np.inf, 1, 10, 5] * 6, np.float32)[:32]
    c = np.array([1, 1, -np.inf, 1, 0, -0.0] * 6, np.float32)[:32]
    wanted = np.array([np.nan, np.nan, np.nan, np.nan, np.inf, -0.0] * 6, np.float32)[:32]
    assert_same_bits(piece("fma.rn.f32 %out, %a, %b, %c;", np.float32, a=a, b=b, c=c), wanted)


def test_fma_of_float64(piece):
    a = np.array([1 + 2.0**-52] * 32)
    c = np.array([-1 - 2.0**-51] * 32)
    got = piece("fma.rn.f64 %out, %a, %a, %c;", np.float64, a=a, c=c)
    np.testing.assert_array_equal(got, 2.0**-104)


@pytest.mark.parametrize("mode", ["rz", "rm", "rp"])
def test_directed_rounding(piece, mode):
    a, b = np.float32([1, -1, 1, -1] * 8), np.float32([2.0**-40, -(2.0**-40), -(2.0**-40), 2.0**-40] * 8)
    got = piece(f"add.{mode}.f32 %out, %a, %b;", np.float32, a=a, b=b)
    above, below = np.nextafter(np.float32(1), np.float32(2)), np.nextafter(np.float32(1), np.float32(0))
    wanted = {
        "rz": [1, -1, below, -below],
        "rm": [1, -above, below, -1],
        "rp": [above, -1, 1, -below],
    }[mode]
    assert_same_bits(got, np.array(wanted * 8, np.float32))
    third = piece(
        f"mul.{mode}.f32 %out, %a, %b;", np.float32, a=np.float32([1 / 3] * 32), b=np.float32([3.3] * 32)
    )
    exact = Fraction(float(np.float32(1 / 3))) * Fraction(float(np.float32(3.3)))
    nearest = nearest_float32(exact)
    assert abs(Fraction(float(third[0])) - exact) < Fraction(1, 2**22)
    assert (Fraction(float(third[0])) > exact) == (mode == "rp")
    assert nearest in (third[0], np.nextafter(third[0], np.float32(0)), np.nextafter(third[0], np.float32(9)))


def test_flush_to_zero_and_saturation(piece):
    tiny = np.float32([1e-40, -1e-40, 1e-38, 2] * 8)
    one = np.ones(32, np.float32)
    assert_same_bits(
        piece("mul.ftz.f32 %out, %a, %b;", np.float32, a=tiny, b=one), np.float32([0, -0.0, 0, 2] * 8)
    )
    a = np.float32([-1, 0.25, 3, np.nan] * 8)
    assert_same_bits(
        piece("add.sat.f32 %out, %a, %z;", np.float32, a=a, z=0 * one), np.float32([0, 0.25, 1, 0] * 8)
    )
    assert_same_bits(
        piece("fma.rn.ftz.sat.f32 %out, %a, %b, %a;", np.float32, a=a, b=one), np.float32([0, 0.5, 1, 0] * 8)
    )


def test_minimum_and_maximum_prefer_numbers_and_know_the_sign_of_zero(piece):
    a = np.float32([1, np.nan, 2, np.nan, -0.0, 0.0, -1, np.inf] * 4)
    b = np.float32([2, 5, np.nan, np.nan, 0.0, -0.0, -2, 1] * 4)
    least = np.float32([1, 5, 2, np.nan, -0.0, -0.0, -2, 1] * 4)
    most = np.float32([2, 5, 2, np.nan, 0.0, 0.0, -1, np.inf] * 4)
    assert_same_bits(piece("min.f32 %out, %a, %b;", np.float32, a=a, b=b), least)
    assert_same_bits(piece("max.f32 %out, %a, %b;", np.float32, a=a, b=b), most)
    propagated = np.where(np.isnan(a) | np.isnan(b), np.float32(np.nan), least)
    assert_same_bits(piece("min.NaN.f32 %out, %a, %b;", np.float32, a=a, b=b), propagated)


def test_signs(piece):
    a, b = pair()
    assert_same_bits(piece("neg.f32 %out, %a;", np.float32, a=a), -a)
    assert_same_bits(piece("abs.f32 %out, %a;", np.float32, a=a), np.abs(a))
    assert_same_bits(piece("copysign.f32 %out, %a, %b;", np.float32, a=a, b=b), np.copysign(b, a))


@pytest.mark.parametrize(
    ("operation", "reference"),
    [
        ("rcp.approx.ftz", lambda x: 1 / x),
        ("sqrt.approx", np.sqrt),
        ("rsqrt.approx", lambda x: 1 / np.sqrt(x)),
        ("ex2.approx.ftz", np.exp2),
        ("lg2.approx", np.log2),
        ("sin.approx", np.sin),
        ("cos.approx", np.cos),
        ("tanh.approx", np.tanh),
    ],
)
def test_approximate_functions_are_close(piece, operation, reference):
    a = np.linspace(0.1, 3, 64, dtype=np.float32)
    got = piece(f"{operation}.f32 %out, %a;", np.float32, a=a)
    np.testing.assert_allclose(got, reference(a.astype(np.float64)), rtol=1e-6, atol=1e-6)


def test_float_literals(piece):
    a = np.float32([3] * 32)
    assert_same_bits(piece("mul.f32 %out, %a, 0f3FC00000;", np.float32, a=a), a * np.float32(1.5))
    assert_same_bits(piece("mov.f32 %out, 0fFF800000;", np.float32, a=a), np.full(32, -np.inf, np.float32))
    assert_same_bits(
        piece("mov.f64 %out, 0d3FF8000000000000;", np.float64, a=a), np.full(32, 1.5, np.float64)
    )

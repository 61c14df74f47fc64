"""cvt: sizes, roundings, saturation, halves."""

from __future__ import annotations

import numpy as np
import pytest
from ptx_pieces import assert_same_bits, awkward_floats
from test_emulator_halves import bfloat_bits, bfloat_values
from test_emulator_integers import DTYPES, values


@pytest.fixture(autouse=True)
def quiet():
    with np.errstate(all="ignore"):
        yield


@pytest.mark.parametrize("source", DTYPES)
@pytest.mark.parametrize("target", DTYPES)
def test_integer_to_integer(piece, source, target):
    a = values(DTYPES[source], 1)
    got = piece(f"cvt.{target}.{source} %out, %a;", DTYPES[target], a=a)
    np.testing.assert_array_equal(got, a.astype(DTYPES[target]))


@pytest.mark.parametrize(
    ("source", "target"), [("s32", "u16"), ("s64", "s32"), ("u32", "s16"), ("s32", "u32")]
)
def test_saturating_integers(piece, source, target):
    a = values(DTYPES[source], 2)
    limits = np.iinfo(DTYPES[target])
    wanted = np.clip(a.astype(object), limits.min, limits.max).astype(DTYPES[target])
    np.testing.assert_array_equal(piece(f"cvt.sat.{target}.{source} %out, %a;", DTYPES[target], a=a), wanted)


@pytest.mark.parametrize("source", ["s16", "u16", "s32", "u32"])
@pytest.mark.parametrize("target", ["s64", "u64"])
def test_low_bits_of_a_wide_register(piece, source, target):
    a = values(np.int64, 7)
    got = piece(f"cvt.{target}.{source} %out, %a;", DTYPES[target], a=a)
    np.testing.assert_array_equal(got, a.astype(DTYPES[source]).astype(DTYPES[target]))


def test_bytes(piece):
    a = values(np.int32, 3)
    np.testing.assert_array_equal(
        piece("cvt.u16.u8 %out, %h;", np.uint16, h=a.astype(np.uint16)), a.astype(np.uint8).astype(np.uint16)
    )
    np.testing.assert_array_equal(
        piece("cvt.s32.s8 %out, %a;", np.int32, a=a), a.astype(np.int8).astype(np.int32)
    )


@pytest.mark.parametrize(
    ("mode", "reference"), [("rni", np.rint), ("rzi", np.trunc), ("rmi", np.floor), ("rpi", np.ceil)]
)
@pytest.mark.parametrize("target", ["s32", "u32", "s64", "u16"])
def test_float_to_integer_rounds_and_clamps(piece, mode, reference, target):
    a = np.concatenate([awkward_floats(4), np.float32([0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 7.999, -7.999])])
    limits = np.iinfo(DTYPES[target])
    wide = target == "s64"

    def convert(value: float) -> int:
        if np.isnan(value):
            return limits.min if wide else 0
        if np.isinf(value):
            return limits.max if value > 0 else limits.min
        return min(max(int(reference(value)), limits.min), limits.max)

    wanted = np.array([convert(float(x)) for x in a], DTYPES[target])
    np.testing.assert_array_equal(piece(f"cvt.{mode}.{target}.f32 %out, %a;", DTYPES[target], a=a), wanted)


@pytest.mark.parametrize("source", DTYPES)
def test_integer_to_float(piece, source):
    a = values(DTYPES[source], 5)
    assert_same_bits(piece(f"cvt.rn.f32.{source} %out, %a;", np.float32, a=a), a.astype(np.float32))
    assert_same_bits(piece(f"cvt.rn.f64.{source} %out, %a;", np.float64, a=a), a.astype(np.float64))


@pytest.mark.parametrize("mode", ["rz", "rm", "rp"])
def test_integer_to_float_directed(piece, mode):
    a = values(np.int64, 6)
    got = piece(f"cvt.{mode}.f32.s64 %out, %a;", np.float32, a=a)
    for value, result in zip(a.tolist(), got.tolist(), strict=True):
        if mode == "rm":
            assert int(result) <= value
        elif mode == "rp":
            assert int(result) >= value
        else:
            assert abs(int(result)) <= abs(value)
        assert abs(int(result) - value) <= max(1, abs(value)) * 2.0**-23
    double = piece(f"cvt.{mode}.f64.s64 %out, %a;", np.float64, a=a)
    for value, result in zip(a.tolist(), double.tolist(), strict=True):
        assert (
            (int(result) <= value) if mode == "rm" or (mode == "rz" and value > 0) else (int(result) >= value)
        )


def test_between_floats(piece):
    a = awkward_floats(7)
    assert_same_bits(piece("cvt.f64.f32 %out, %a;", np.float64, a=a), a.astype(np.float64))
    wide = np.random.default_rng(8).standard_normal(64) * 10.0 ** np.random.default_rng(9).integers(
        -44, 39, 64
    )
    assert_same_bits(piece("cvt.rn.f32.f64 %out, %a;", np.float32, a=wide), wide.astype(np.float32))
    down = piece("cvt.rm.f32.f64 %out, %a;", np.float32, a=wide).astype(np.float64)
    up = piece("cvt.rp.f32.f64 %out, %a;", np.float32, a=wide).astype(np.float64)
    assert ((down <= wide) & (wide <= up)).all()
    for mode, reference in (("rni", np.rint), ("rzi", np.trunc), ("rmi", np.floor), ("rpi", np.ceil)):
        assert_same_bits(piece(f"cvt.{mode}.f32.f32 %out, %a;", np.float32, a=a), reference(a))


def test_float16_both_ways(piece):
    every = np.arange(2**16, dtype=np.uint32).astype(np.uint16).view(np.float16)
    for part in np.split(every, 64):
        assert_same_bits(piece("cvt.f32.f16 %out, %a;", np.float32, a=part), part.astype(np.float32))
        break_points = part.astype(np.float32)
        assert_same_bits(piece("cvt.rn.f16.f32 %out, %a;", np.float16, a=break_points), part)


def test_float_to_float16_at_ties_and_limits(piece):
    rng = np.random.default_rng(10)
    halves = rng.integers(0, 0x7C00, 512).astype(np.uint16).view(np.float16)
    above = np.nextafter(halves, np.float16(np.inf))
    ties = ((halves.astype(np.float64) + above.astype(np.float64)) / 2).astype(np.float32)
    a = np.concatenate([awkward_floats(11), np.nextafter(ties, np.float32(0)), ties])
    a = a[: len(a) // 32 * 32][:1024]
    assert_same_bits(piece("cvt.rn.f16.f32 %out, %a;", np.float16, a=a), a.astype(np.float16))
    toward_zero = piece("cvt.rz.f16.f32 %out, %a;", np.float16, a=a)
    finite = np.isfinite(a)
    assert (np.abs(toward_zero[finite].astype(np.float64)) <= np.abs(a[finite].astype(np.float64))).all()
    assert (np.abs(toward_zero[finite]) <= 65504).all()


def test_nan_becomes_the_canonical_one(piece):
    nan = np.array([0x7FC00001, 0xFFC00000] * 16, np.uint32).view(np.float32)
    assert (piece("cvt.rn.f16.f32 %out, %a;", np.uint16, a=nan) == 0x7FFF).all()
    assert (piece("cvt.rn.bf16.f32 %out, %a;", np.uint16, a=nan) == 0x7FFF).all()


def test_bfloat16(piece):
    a = awkward_floats(12)
    a = a[~np.isnan(a)][:224]
    np.testing.assert_array_equal(piece("cvt.rn.bf16.f32 %out, %a;", np.uint16, a=a), bfloat_bits(a))
    np.testing.assert_array_equal(
        piece("cvt.rz.bf16.f32 %out, %a;", np.uint16, a=a), (a.view(np.uint32) >> 16).astype(np.uint16)
    )
    bits = bfloat_bits(a)
    assert_same_bits(piece("cvt.f32.bf16 %out, %a;", np.float32, a=bits), bfloat_values(bits))
    relu = piece("cvt.rn.relu.bf16.f32 %out, %a;", np.uint16, a=a)
    np.testing.assert_array_equal(relu, np.where(a > 0, bfloat_bits(a), 0))


def test_packing_two_floats(piece):
    a, b = (np.random.default_rng(seed).standard_normal(64).astype(np.float32) for seed in (13, 14))
    got = piece("cvt.rn.f16x2.f32 %out, %a, %b;", np.uint32, a=a, b=b)
    wanted = a.astype(np.float16).view(np.uint16).astype(np.uint32) << 16 | b.astype(np.float16).view(
        np.uint16
    )
    np.testing.assert_array_equal(got, wanted)
    got = piece("cvt.rn.bf16x2.f32 %out, %a, %b;", np.uint32, a=a, b=b)
    np.testing.assert_array_equal(got, bfloat_bits(a).astype(np.uint32) << 16 | bfloat_bits(b))


@pytest.mark.parametrize("mode", ["rna", "rn", "rz"])
def test_tf32(piece, mode):
    a = awkward_floats(15)
    a = a[np.isfinite(a)][:192]
    bits = a.view(np.uint32).astype(np.uint64)
    added = {"rna": 0x1000, "rn": 0xFFF + (bits >> 13 & 1), "rz": 0}[mode]
    wanted = ((bits + added) & 0xFFFFE000).astype(np.uint32)
    np.testing.assert_array_equal(piece(f"cvt.{mode}.tf32.f32 %out, %a;", np.uint32, a=a), wanted)


def test_integer_to_float16(piece):
    a = np.random.default_rng(16).integers(-70000, 70000, 128).astype(np.int32)
    assert_same_bits(piece("cvt.rn.f16.s32 %out, %a;", np.float16, a=a), a.astype(np.float16))

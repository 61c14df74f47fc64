"""Comparisons, selections and predicate logic."""

from __future__ import annotations

import operator

import numpy as np
import pytest
from ptx_pieces import awkward_floats
from test_emulator_integers import DTYPES, values

COMPARISONS = {
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
}


@pytest.mark.parametrize("kind", DTYPES)
def test_integers(piece, kind):
    a, b = values(DTYPES[kind], 1), values(DTYPES[kind], 2)
    b[::3] = a[::3]
    for name, reference in COMPARISONS.items():
        got = piece(f"setp.{name}.{kind} %p0, %a, %b;\nselp.u32 %out, 1, 0, %p0;", np.uint32, a=a, b=b)
        np.testing.assert_array_equal(got, reference(a, b).astype(np.uint32))


@pytest.mark.parametrize(("name", "plain"), [("lo", "lt"), ("ls", "le"), ("hi", "gt"), ("hs", "ge")])
def test_unsigned_names(piece, name, plain):
    a, b = values(np.uint32, 3), values(np.uint32, 4)
    got = piece(f"setp.{name}.u32 %p0, %a, %b;\nselp.u32 %out, 1, 0, %p0;", np.uint32, a=a, b=b)
    np.testing.assert_array_equal(got, COMPARISONS[plain](a, b).astype(np.uint32))


@pytest.mark.parametrize(("kind", "dtype"), [("f32", np.float32), ("f64", np.float64)])
def test_floats_ordered_and_unordered(piece, kind, dtype):
    a = awkward_floats(5).astype(dtype)
    b = np.roll(a, 11)
    b[::5] = a[::5]
    unordered = np.isnan(a) | np.isnan(b)
    for name, reference in COMPARISONS.items():
        holds = reference(a, b)
        for suffix, wanted in (("", holds & ~unordered), ("u", holds | unordered)):
            got = piece(
                f"setp.{name}{suffix}.{kind} %p0, %a, %b;\nselp.u32 %out, 1, 0, %p0;", np.uint32, a=a, b=b
            )
            np.testing.assert_array_equal(got, wanted.astype(np.uint32), err_msg=name + suffix)
    got = piece(f"setp.nan.{kind} %p0, %a, %b;\nselp.u32 %out, 1, 0, %p0;", np.uint32, a=a, b=b)
    np.testing.assert_array_equal(got, unordered.astype(np.uint32))
    got = piece(f"setp.num.{kind} %p0, %a, %b;\nselp.u32 %out, 1, 0, %p0;", np.uint32, a=a, b=b)
    np.testing.assert_array_equal(got, (~unordered).astype(np.uint32))


def test_flush_to_zero_in_comparison(piece):
    a = np.float32([1e-40, -1e-40, 1e-30, 0] * 8)
    got = piece("setp.eq.ftz.f32 %p0, %a, 0f00000000;\nselp.u32 %out, 1, 0, %p0;", np.uint32, a=a)
    np.testing.assert_array_equal(got, [1, 1, 0, 1] * 8)


@pytest.mark.parametrize(
    ("word", "combine"), [("and", operator.and_), ("or", operator.or_), ("xor", operator.xor)]
)
def test_combination_with_a_predicate_and_the_opposite(piece, word, combine):
    rng = np.random.default_rng(6)
    a, b = rng.integers(0, 9, 64).astype(np.int32), rng.integers(0, 9, 64).astype(np.int32)
    c = rng.integers(0, 2, 64).astype(bool)
    body = (
        f"setp.lt.{word}.s32 %p0|%p1, %a, %b, %c;\nselp.u32 %r5, 1, 0, %p0;\nselp.u32 %r6, 2, 0, %p1;\n"
        "add.u32 %out, %r5, %r6;"
    )
    got = piece(body, np.uint32, a=a, b=b, c=c)
    np.testing.assert_array_equal(got, combine(a < b, c) * 1 + combine(a >= b, c) * 2)
    negated = piece(
        f"setp.lt.{word}.s32 %p0, %a, %b, !%c;\nselp.u32 %out, 1, 0, %p0;", np.uint32, a=a, b=b, c=c
    )
    np.testing.assert_array_equal(negated, combine(a < b, ~c).astype(np.uint32))


def test_predicate_logic(piece):
    rng = np.random.default_rng(7)
    a, b = (rng.integers(0, 2, 64).astype(bool) for _ in range(2))
    for name, wanted in (("and", a & b), ("or", a | b), ("xor", a ^ b)):
        got = piece(f"{name}.pred %p0, %a, %b;\nselp.u32 %out, 1, 0, %p0;", np.uint32, a=a, b=b)
        np.testing.assert_array_equal(got, wanted.astype(np.uint32))
    got = piece("not.pred %p0, %a;\nmov.pred %p1, %p0;\nselp.u32 %out, 1, 0, %p1;", np.uint32, a=a)
    np.testing.assert_array_equal(got, (~a).astype(np.uint32))


def test_selection(piece):
    a, b = values(np.int64, 8), values(np.int64, 9)
    c = np.random.default_rng(10).integers(0, 2, 128).astype(bool)
    np.testing.assert_array_equal(
        piece("selp.b64 %out, %a, %b, %c;", np.int64, a=a, b=b, c=c), np.where(c, a, b)
    )
    sign = values(np.int32, 11)
    narrow_a, narrow_b = values(np.int32, 12), values(np.int32, 13)
    got = piece("slct.s32.s32 %out, %a, %b, %c;", np.int32, a=narrow_a, b=narrow_b, c=sign)
    np.testing.assert_array_equal(got, np.where(sign >= 0, narrow_a, narrow_b))


def test_float_classes(piece):
    a = awkward_floats(14)
    tiny = np.finfo(np.float32).tiny
    for name, wanted in (
        ("finite", np.isfinite(a)),
        ("infinite", np.isinf(a)),
        ("number", ~np.isnan(a)),
        ("notanumber", np.isnan(a)),
        ("subnormal", (a != 0) & (np.abs(a) < tiny)),
    ):
        got = piece(f"testp.{name}.f32 %p0, %a;\nselp.u32 %out, 1, 0, %p0;", np.uint32, a=a)
        np.testing.assert_array_equal(got, wanted.astype(np.uint32), err_msg=name)

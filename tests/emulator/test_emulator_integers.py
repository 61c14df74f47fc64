"""Integer arithmetic, logic, shifts and bit fields against numpy."""

from __future__ import annotations

import numpy as np
import pytest

DTYPES = {
    "s16": np.int16,
    "u16": np.uint16,
    "s32": np.int32,
    "u32": np.uint32,
    "s64": np.int64,
    "u64": np.uint64,
}


def values(dtype, seed: int, count: int = 128) -> np.ndarray:
    limits = np.iinfo(dtype)
    random = np.random.default_rng(seed).integers(limits.min, limits.max, count - 6, dtype, endpoint=True)
    edges = np.array([limits.min, limits.max, 0, 1, limits.min + 1, limits.max - 1], dtype)
    return np.concatenate([edges, random])


def wide(array: np.ndarray) -> np.ndarray:
    return array.astype(object)


def wrap(exact, dtype) -> np.ndarray:
    """Cut Python integers to a dtype's bits."""
    bits = 8 * np.dtype(dtype).itemsize
    unsigned = np.array([int(v) & ((1 << bits) - 1) for v in exact], np.dtype(f"u{bits // 8}"))
    return unsigned.view(dtype)


@pytest.mark.parametrize("kind", DTYPES)
@pytest.mark.parametrize(
    ("operation", "reference"),
    [
        ("add", lambda a, b: a + b),
        ("sub", lambda a, b: a - b),
        ("mul.lo", lambda a, b: a * b),
        ("min", np.minimum),
        ("max", np.maximum),
    ],
)
def test_binary(piece, kind, operation, reference):
    a, b = values(DTYPES[kind], 1), values(DTYPES[kind], 2)[::-1].copy()
    got = piece(f"{operation}.{kind} %out, %a, %b;", DTYPES[kind], a=a, b=b)
    np.testing.assert_array_equal(got, wrap(reference(wide(a), wide(b)), DTYPES[kind]))


@pytest.mark.parametrize("kind", DTYPES)
def test_multiply_high(piece, kind):
    a, b = values(DTYPES[kind], 3), values(DTYPES[kind], 4)
    bits = 8 * np.dtype(DTYPES[kind]).itemsize
    got = piece(f"mul.hi.{kind} %out, %a, %b;", DTYPES[kind], a=a, b=b)
    np.testing.assert_array_equal(got, wrap((wide(a) * wide(b)) >> bits, DTYPES[kind]))


@pytest.mark.parametrize(("kind", "target"), [("s16", "s32"), ("u16", "u32"), ("s32", "s64"), ("u32", "u64")])
def test_multiply_wide_and_add(piece, kind, target):
    a, b, c = values(DTYPES[kind], 5), values(DTYPES[kind], 6), values(DTYPES[target], 7)
    product = piece(f"mul.wide.{kind} %out, %a, %b;", DTYPES[target], a=a, b=b)
    np.testing.assert_array_equal(product, wrap(wide(a) * wide(b), DTYPES[target]))
    total = piece(f"mad.wide.{kind} %out, %a, %b, %c;", DTYPES[target], a=a, b=b, c=c)
    np.testing.assert_array_equal(total, wrap(wide(a) * wide(b) + wide(c), DTYPES[target]))


@pytest.mark.parametrize("kind", DTYPES)
def test_multiply_add(piece, kind):
    a, b, c = (values(DTYPES[kind], seed) for seed in (8, 9, 10))
    got = piece(f"mad.lo.{kind} %out, %a, %b, %c;", DTYPES[kind], a=a, b=b, c=c)
    np.testing.assert_array_equal(got, wrap(wide(a) * wide(b) + wide(c), DTYPES[kind]))


@pytest.mark.parametrize("kind", DTYPES)
def test_division_truncates_and_zero_divides_to_ones(piece, kind):
    a, b = values(DTYPES[kind], 11), values(DTYPES[kind], 12)[::-1].copy()
    b[10:40] = np.arange(30) % 7  # with zeroes
    if np.iinfo(DTYPES[kind]).min < 0:
        a[50], b[50] = np.iinfo(DTYPES[kind]).min, -1
    quotient = [
        abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1) if y else -1
        for x, y in zip(wide(a), wide(b), strict=True)
    ]
    remainder = [x - q * y if y else x for x, y, q in zip(wide(a), wide(b), quotient, strict=True)]
    np.testing.assert_array_equal(
        piece(f"div.{kind} %out, %a, %b;", DTYPES[kind], a=a, b=b), wrap(quotient, DTYPES[kind])
    )
    np.testing.assert_array_equal(
        piece(f"rem.{kind} %out, %a, %b;", DTYPES[kind], a=a, b=b), wrap(remainder, DTYPES[kind])
    )


@pytest.mark.parametrize("kind", ["s16", "s32", "s64"])
def test_negate_and_absolute(piece, kind):
    a = values(DTYPES[kind], 13)
    np.testing.assert_array_equal(
        piece(f"neg.{kind} %out, %a;", DTYPES[kind], a=a), wrap(-wide(a), DTYPES[kind])
    )
    np.testing.assert_array_equal(
        piece(f"abs.{kind} %out, %a;", DTYPES[kind], a=a), wrap(np.abs(wide(a)), DTYPES[kind])
    )


def test_saturating_add_and_subtract(piece):
    a, b = values(np.int32, 14), values(np.int32, 15)
    np.testing.assert_array_equal(
        piece("add.sat.s32 %out, %a, %b;", np.int32, a=a, b=b),
        np.clip(a.astype(np.int64) + b, -(2**31), 2**31 - 1).astype(np.int32),
    )
    np.testing.assert_array_equal(
        piece("sub.sat.s32 %out, %a, %b;", np.int32, a=a, b=b),
        np.clip(a.astype(np.int64) - b, -(2**31), 2**31 - 1).astype(np.int32),
    )


@pytest.mark.parametrize("bits", [16, 32, 64])
def test_logic(piece, bits):
    dtype = np.dtype(f"u{bits // 8}")
    a, b = values(dtype, 16), values(dtype, 17)
    for name, reference in (("and", a & b), ("or", a | b), ("xor", a ^ b)):
        np.testing.assert_array_equal(piece(f"{name}.b{bits} %out, %a, %b;", dtype, a=a, b=b), reference)
    np.testing.assert_array_equal(piece(f"not.b{bits} %out, %a;", dtype, a=a), ~a)


@pytest.mark.parametrize("kind", DTYPES)
def test_shifts_past_the_width(piece, kind):
    dtype = DTYPES[kind]
    bits = 8 * np.dtype(dtype).itemsize
    a, amount = values(dtype, 18), (np.arange(128) % 70).astype(np.uint32)
    left = [int(x) << int(s) if s < bits else 0 for x, s in zip(a, amount, strict=True)]
    right = [int(x) >> min(int(s), bits) for x, s in zip(a, amount, strict=True)]
    np.testing.assert_array_equal(
        piece(f"shl.b{bits} %out, %a, %s;", dtype, a=a, s=amount), wrap(left, dtype)
    )
    np.testing.assert_array_equal(
        piece(f"shr.{kind} %out, %a, %s;", dtype, a=a, s=amount), wrap(right, dtype)
    )


@pytest.mark.parametrize("mode", ["wrap", "clamp"])
def test_funnel_shift(piece, mode):
    low, high = values(np.uint32, 19), values(np.uint32, 20)
    amount = (np.arange(128) % 40).astype(np.uint32)
    shift = amount % 32 if mode == "wrap" else np.minimum(amount, 32)
    both = high.astype(object) << 32 | low.astype(object)
    left = [(int(x) << int(s)) >> 32 & 0xFFFFFFFF for x, s in zip(both, shift, strict=True)]
    right = [int(x) >> int(s) & 0xFFFFFFFF for x, s in zip(both, shift, strict=True)]
    inputs = {"a": low, "b": high, "s": amount}
    assert piece(f"shf.l.{mode}.b32 %out, %a, %b, %s;", np.uint32, **inputs).tolist() == left
    assert piece(f"shf.r.{mode}.b32 %out, %a, %b, %s;", np.uint32, **inputs).tolist() == right


@pytest.mark.parametrize("table", [0x96, 0xE8, 0xCA, 0x80, 0x01])
def test_three_input_logic(piece, table):
    a, b, c = (values(np.uint32, seed) for seed in (21, 22, 23))
    wanted = np.zeros_like(a)
    for bit in range(32):
        row = (a >> bit & 1) << 2 | (b >> bit & 1) << 1 | (c >> bit & 1)
        wanted |= (np.uint32(table) >> row & 1) << bit
    got = piece(f"lop3.b32 %out, %a, %b, %c, {table};", np.uint32, a=a, b=b, c=c)
    np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("kind", ["u32", "s32", "u64", "s64"])
def test_bit_field_extract(piece, kind):
    dtype = DTYPES[kind]
    bits = 8 * np.dtype(dtype).itemsize
    rng = np.random.default_rng(24)
    a = values(dtype, 25)
    position, length = (rng.integers(0, bits + 6, 128).astype(np.uint32) for _ in range(2))
    length[:8] = 0

    def extract(value: int, start: int, count: int) -> int:
        if count == 0:
            return 0
        field = value >> start & ((1 << count) - 1)
        if kind[0] == "u":
            return (value & ((1 << bits) - 1)) >> start & ((1 << count) - 1)
        top = min(start + count - 1, bits - 1)
        negative = value >> top & 1
        return field - (1 << count) if negative and field >> (count - 1) & 1 else field

    wanted = wrap(
        [extract(int(x), int(p), int(n)) for x, p, n in zip(a, position, length, strict=True)], dtype
    )
    got = piece(f"bfe.{kind} %out, %a, %p_, %n;", dtype, a=a, p_=position, n=length)
    np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("bits", [32, 64])
def test_bit_field_insert(piece, bits):
    dtype = np.dtype(f"u{bits // 8}")
    a, b = values(dtype, 26), values(dtype, 27)
    rng = np.random.default_rng(28)
    position, length = (rng.integers(0, bits + 6, 128).astype(np.uint32) for _ in range(2))

    def insert(field: int, base: int, start: int, count: int) -> int:
        mask = ((1 << count) - 1) << start & ((1 << bits) - 1)
        return base & ~mask | field << start & mask

    wanted = [insert(*map(int, row)) for row in zip(a, b, position, length, strict=True)]
    got = piece(f"bfi.b{bits} %out, %a, %b, %p_, %n;", dtype, a=a, b=b, p_=position, n=length)
    np.testing.assert_array_equal(got, np.array(wanted, dtype))


@pytest.mark.parametrize("bits", [32, 64])
def test_counting_bits(piece, bits):
    dtype = np.dtype(f"u{bits // 8}")
    a = values(dtype, 29) >> (np.arange(128) % bits).astype(dtype)
    assert piece(f"popc.b{bits} %out, %a;", np.uint32, a=a).tolist() == [int(x).bit_count() for x in a]
    zeros = [bits - int(x).bit_length() for x in a]
    assert piece(f"clz.b{bits} %out, %a;", np.uint32, a=a).tolist() == zeros
    highest = [int(x).bit_length() - 1 & 0xFFFFFFFF for x in a]
    assert piece(f"bfind.u{bits} %out, %a;", np.uint32, a=a).tolist() == highest
    reversed_bits = [int(f"{int(x):0{bits}b}"[::-1], 2) for x in a]
    assert piece(f"brev.b{bits} %out, %a;", dtype, a=a).tolist() == reversed_bits


def test_find_highest_of_signed_ignores_sign_bits(piece):
    a = np.array([-1, 0, 1, -2, 5, -8, 2**31 - 1, -(2**31)] * 4, np.int32)
    wanted = [(int(x) if x >= 0 else ~int(x)).bit_length() - 1 & 0xFFFFFFFF for x in a]
    assert piece("bfind.s32 %out, %a;", np.uint32, a=a).tolist() == wanted


def test_permute_bytes(piece):
    a, b = values(np.uint32, 30), values(np.uint32, 31)
    selector = np.random.default_rng(32).integers(0, 2**16, 128).astype(np.uint32)

    def permute(low: int, high: int, choose: int) -> int:
        source = (high << 32 | low).to_bytes(8, "little")
        result = 0
        for i in range(4):
            choice = choose >> 4 * i & 15
            byte = source[choice & 7]
            result |= (
                (0xFF if byte & 0x80 else 0 if choice & 8 else byte) << 8 * i if choice & 8 else byte << 8 * i
            )
        return result

    wanted = [permute(*map(int, row)) for row in zip(a, b, selector, strict=True)]
    assert piece("prmt.b32 %out, %a, %b, %s;", np.uint32, a=a, b=b, s=selector).tolist() == wanted


def test_absolute_difference(piece):
    a, b, c = (values(np.int32, seed) for seed in (33, 34, 35))
    wanted = wrap(np.abs(wide(a) - wide(b)) + wide(c), np.int32)
    np.testing.assert_array_equal(piece("sad.s32 %out, %a, %b, %c;", np.int32, a=a, b=b, c=c), wanted)


def test_immediates_in_every_notation(piece):
    a = np.arange(32, dtype=np.int32)
    for literal, value in (("-7", -7), ("0x1F", 31), ("010", 8), ("0b101", 5), ("3U", 3)):
        got = piece(f"add.s32 %out, %a, {literal};", np.int32, a=a)
        np.testing.assert_array_equal(got, a + np.int32(value))

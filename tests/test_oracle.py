"""The oracle must accept every right answer and no wrong one."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from gemmlab import oracle
from gemmlab.arithmetic import error_bound, gamma, magnitude
from gemmlab.elements import from_float, to_double
from gemmlab.problem import Problem

PROBLEM = Problem(33, 20, 47, 50, 23, 29, 29, 1.5, -0.5)


@pytest.fixture
def variant(catalogue):
    return catalogue["tile16"]


def answer(case, dtype=np.float64):
    """What a right kernel leaves in the output buffer, computed in `dtype` in k order."""
    problem = case.problem
    buffers = {name: buffer.copy() for name, buffer in case.buffers.items()}
    a = np.lib.stride_tricks.as_strided(buffers["a"], (problem.m, problem.k), (problem.lda * 4, 4)).astype(
        dtype
    )
    b = np.lib.stride_tricks.as_strided(buffers["b"], (problem.k, problem.n), (problem.ldb * 4, 4)).astype(
        dtype
    )
    c = np.lib.stride_tricks.as_strided(buffers["c"], (problem.m, problem.n), (problem.ldc * 4, 4))
    total = np.zeros((problem.m, problem.n), dtype)
    with np.errstate(invalid="ignore", over="ignore"):
        for p in range(problem.k):
            total += a[:, p : p + 1] * b[p : p + 1, :]
        result = dtype(problem.alpha) * total
        if problem.beta:
            result = result + dtype(problem.beta) * c.astype(dtype)
    c[:] = result
    return buffers["c"]


@pytest.mark.parametrize("make", [oracle.exact_case, oracle.rounded_case, oracle.nonfinite_case])
@pytest.mark.parametrize("beta", [0.0, -0.5])
def test_right_answers_pass(variant, make, beta):
    case = make(variant, dataclasses.replace(PROBLEM, beta=beta), seed=3)
    verdict = oracle.compare(case, answer(case, np.float32), variant)
    assert verdict.message is None
    if make is oracle.rounded_case:
        assert 0 < verdict.fraction < 1


@pytest.mark.parametrize("k", [1, 2, 3, 1000])
def test_float32_sums_stay_within_the_bound_at_every_length(variant, k):
    for seed in range(20):
        case = oracle.rounded_case(variant, Problem.packed(9, 8, k, alpha=1.5, beta=1.5), seed)
        assert oracle.compare(case, answer(case, np.float32), variant).message is None


def test_unwritten_output_is_recognised(variant):
    case = oracle.rounded_case(variant, dataclasses.replace(PROBLEM, beta=0.0), seed=3)
    output = answer(case)
    output[29 + 3] = case.buffers["c"][29 + 3]
    message = oracle.compare(case, output, variant).message
    assert "1 of 660 cells wrong; first row 1, column 3: got nothing (left unwritten)" in message


@pytest.mark.parametrize("make", [oracle.exact_case, oracle.rounded_case])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_one_cell_that_is_not_finite_fails(variant, make, value):
    case = make(variant, PROBLEM, seed=3)
    output = answer(case)
    output[0] = value
    assert "first row 0, column 0" in oracle.compare(case, output, variant).message


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_an_error_that_is_not_finite_is_no_fraction(variant, value):
    case = oracle.rounded_case(variant, PROBLEM, seed=3)
    output = answer(case)
    output[7] = value
    verdict = oracle.compare(case, output, variant)
    assert verdict.message is not None
    assert verdict.fraction is None


def rounded_to(bits, values):
    """float32 values with `bits` bits of mantissa kept, the leading one included."""
    mantissas, exponents = np.frexp(values)
    return np.ldexp(np.round(np.ldexp(mantissas, bits)), exponents - bits).astype(np.float32)


@pytest.mark.parametrize("k", [16, 128, 600, 900])
@pytest.mark.parametrize("name", ["a", "b"])
def test_an_input_rounded_to_tf32_fails_at_every_length(variant, k, name):
    caught = 0
    for seed in range(20):
        case = oracle.exact_case(variant, Problem.packed(5, 6, k), seed)
        short = dict(case.buffers)
        short[name] = rounded_to(11, short[name])
        output = answer(dataclasses.replace(case, buffers=short), np.float32)
        caught += oracle.compare(case, output, variant).message is not None
        right = answer(case, np.float32)
        assert oracle.compare(case, right, variant).message is None
    assert caught >= 2


def test_scalars_have_all_their_bits(variant):
    case = oracle.rounded_case(variant, PROBLEM, seed=3)
    for scalar in ("alpha", "beta"):
        value = getattr(case.problem, scalar)
        assert value == np.float32(value)
        rounded = dataclasses.replace(case.problem, **{scalar: float(rounded_to(8, np.float32(value)))})
        output = answer(dataclasses.replace(case, problem=rounded))
        assert oracle.compare(case, output, variant).message is not None
    plain = dataclasses.replace(PROBLEM, alpha=1.0, beta=0.0)
    assert oracle.rounded_case(variant, plain, seed=3).problem == plain


@pytest.mark.parametrize("name", ["a", "b", "c"])
def test_a_nan_that_is_cleaned_away_fails(variant, name):
    verdicts = []
    for seed in range(20):
        case = oracle.nonfinite_case(variant, PROBLEM, seed)
        clean = dict(case.buffers)
        inside = np.isnan(clean[name]) & (clean[name].view(np.uint32) != 0x7FC5A5A5)
        clean[name] = np.where(inside, np.float32(0), clean[name])
        output = answer(dataclasses.replace(case, buffers=clean), np.float32)
        verdicts.append(oracle.compare(case, output, variant).message)
    assert sum(verdict is not None for verdict in verdicts) >= 5


def test_a_product_with_zero_may_not_be_skipped(variant):
    caught = 0
    for seed in range(20):
        case = oracle.nonfinite_case(variant, PROBLEM, seed)
        skipped = dict(case.buffers)
        # What a kernel computes that skips zeros of B: their partners count as zeros.
        a = np.lib.stride_tricks.as_strided(skipped["a"].copy(), (33, 47), (200, 4))
        b = np.lib.stride_tricks.as_strided(skipped["b"].copy(), (47, 20), (92, 4))
        with np.errstate(invalid="ignore", over="ignore"):
            products = np.where(b[None] == 0, 0, a[:, :, None] * b[None])
            total = products.sum(axis=1) * case.problem.alpha
            c = np.lib.stride_tricks.as_strided(skipped["c"], (33, 20), (116, 4))
            result = total + case.problem.beta * c
        output = skipped["c"].copy()
        np.lib.stride_tricks.as_strided(output, (33, 20), (116, 4))[:] = result
        caught += oracle.compare(case, output, variant).message is not None
    assert caught >= 10


def test_one_bit_off_fails_an_exact_case(variant):
    case = oracle.exact_case(variant, PROBLEM, seed=3)
    output = answer(case)
    output[5] = np.nextafter(output[5], np.float32(1e9))
    assert "first row 0, column 5" in oracle.compare(case, output, variant).message


def test_sign_of_zero_does_not_count(variant):
    problem = dataclasses.replace(PROBLEM, alpha=0.0, beta=0.0)
    case = oracle.exact_case(variant, problem, seed=3)
    output = answer(case)
    assert (output[:20] == 0).all()
    output[:20] = -0.0
    assert oracle.compare(case, output, variant).message is None


def test_dropped_last_product_fails(variant):
    case = oracle.rounded_case(variant, PROBLEM, seed=3)
    short = dataclasses.replace(PROBLEM, k=PROBLEM.k - 1)
    output = answer(dataclasses.replace(case, problem=short))
    assert "cells wrong" in oracle.compare(case, output, variant).message


def test_writing_between_rows_fails(variant):
    case = oracle.exact_case(variant, PROBLEM, seed=3)
    output = answer(case)
    output[29 * 2 + 20] = 0
    expected = "wrote between rows: row 2, column 20, but rows have 20 columns (leading dimension 29)"
    assert oracle.compare(case, output, variant).message == expected


def test_nan_must_not_spread(variant):
    case = oracle.nonfinite_case(variant, PROBLEM, seed=3)
    output = answer(case)
    finite = np.argwhere(np.isfinite(case.reference))[0]
    output[finite[0] * 29 + finite[1]] = np.nan
    assert "cells wrong" in oracle.compare(case, output, variant).message


def test_c_is_poisoned_where_beta_is_zero(variant):
    case = oracle.rounded_case(variant, dataclasses.replace(PROBLEM, beta=0.0), seed=3)
    assert np.isnan(case.buffers["c"]).all()
    case = oracle.rounded_case(variant, PROBLEM, seed=3)
    assert np.isnan(case.buffers["c"]).sum() == (PROBLEM.m - 1) * 9


def test_rows_are_padded_with_nan(variant):
    case = oracle.rounded_case(variant, PROBLEM, seed=3)
    assert np.isnan(case.buffers["a"]).sum() == (PROBLEM.m - 1) * 3
    assert case.buffers["a"].size == (PROBLEM.m - 1) * PROBLEM.lda + PROBLEM.k


def test_separate_output_leaves_c_an_input(catalogue):
    variant = catalogue["block_per_output"]
    problem = Problem(5, 6, 7, 7, 8, 6, 9, 1.0, 0.0, transpose_b=True)
    case = oracle.exact_case(variant, problem, seed=0)
    assert case.output == "d"
    assert case.buffers["b"].size == 5 * 8 + 7
    assert case.buffers["d"].size == 4 * 9 + 6


def test_gamma_and_bound():
    assert gamma(1, 2.0**-24) == pytest.approx(2.0**-24, rel=1e-6)
    with pytest.raises(ValueError, match="has no meaning"):
        gamma(2**24, 2.0**-24)
    one = np.ones((1, 1))
    fp32 = error_bound("fp32", 10, one, one)
    assert fp32[0, 0] == pytest.approx(gamma(12, 2.0**-24) + gamma(2, 2.0**-24))
    assert error_bound("tf32", 10, one, 0 * one)[0, 0] > 2.0**-10
    assert error_bound("fp16", 10, one, one, "float16")[0, 0] > 2.0**-10


def test_float32_inputs_of_fp16_arithmetic_are_rounded():
    one = np.ones((1, 1))
    given = error_bound("fp16", 10, one, 0 * one, input_type="float16")
    rounded = error_bound("fp16", 10, one, 0 * one, input_type="float32")
    assert rounded[0, 0] - given[0, 0] == pytest.approx((1 + 2.0**-11) ** 2 - 1)
    assert error_bound("fp32", 10, one, one, input_type="float32") == error_bound("fp32", 10, one, one)
    tiny = np.array([2.0**-20, 0.5])
    assert list(magnitude(tiny, "fp16", "float32")) == [2.0**-14, 0.5]
    assert list(magnitude(tiny, "fp16", "float16")) == [2.0**-20, 0.5]


def test_bfloat16_rounds_to_nearest_even():
    values = np.array([1.0, 1.0 + 2.0**-8, 1.0 + 3 * 2.0**-8, -2.5, np.nan, np.inf, 3.3895314e38])
    stored = from_float(values, "bfloat16")
    back = to_double(stored, "bfloat16")
    assert list(back[:4]) == [1.0, 1.0, 1.0 + 2.0**-6, -2.5]
    assert np.isnan(back[4])
    assert back[5] == np.inf
    assert np.isfinite(back[6])

"""The correctness oracle: data for a problem, the float64 answer, and the comparison that no wrong kernel passes."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np

from gemmlab.arithmetic import error_bound, magnitude
from gemmlab.catalogue import Variant
from gemmlab.elements import STORAGE, from_float, to_double
from gemmlab.problem import Problem

# A quiet NaN with a payload of our own: unwritten output is recognised, and arithmetic on it stays NaN.
_POISON_BITS = {"float32": 0x7FC5A5A5, "float16": 0x7E5A, "bfloat16": 0x7FDA}
# Exact sums stay below this, which leaves 24 bits room for alpha, beta C and halves.
_SUM_LIMIT = 2**21
_WIDEST = 2**16 - 1
# The share of zeros among the factors of infinities.
_ZEROS = 0.1
# Makes scalars that aren't 0 or 1 as rough as their type allows: 1.5 survives a rounding to half the bits unseen.
_ROUGH = 1.2345679


@dataclass(frozen=True)
class Case:
    """A problem with data: buffers as the kernel gets them and what must come out.

    `reference` and `bound` are float64, m x n; `bound` is None where the answer is exact.
    """

    problem: Problem
    buffers: dict[str, np.ndarray]
    output: str
    reference: np.ndarray
    bound: np.ndarray | None


def exact_case(variant: Variant, problem: Problem, seed: int) -> Case:
    """Integers whose answer every order of summation gives without rounding.

    Small ones, but in half of the FP32 problems A or B has as many bits as the sums allow (up to 16) and the other
    is -1, 0 or 1: an input that is rounded to a shorter type on its way changes the answer, whatever K is, while
    Higham's bound grows with K and lets it pass.
    """
    generator = np.random.default_rng([seed, problem.m, problem.n, problem.k, 0])
    largest = max(1, min(4, int(np.sqrt(_SUM_LIMIT / problem.k))))
    limits = {"a": largest, "b": largest, "c": largest}
    wide = str(generator.choice(["a", "b", "neither", "neither"]))
    if wide in limits and variant.arithmetic == "fp32":
        limits |= {"a": 1, "b": 1} | {wide: min(_WIDEST, _SUM_LIMIT // problem.k)}
    a, b, c = (
        generator.integers(-limit, limit + 1, size).astype(np.float64)
        for limit, size in zip(limits.values(), _matrix_sizes(problem), strict=True)
    )
    return _build(variant, problem, a, b, c, exact=True)


def rounded_case(variant: Variant, problem: Problem, seed: int) -> Case:
    """Reals uniform in [-1, 1], compared within Higham's bound; scalars other than 0 and 1 get all bits."""
    generator = np.random.default_rng([seed, problem.m, problem.n, problem.k, 1])
    a, b, c = (generator.uniform(-1, 1, size) for size in _matrix_sizes(problem))
    rough = dataclasses.replace(problem, alpha=_roughened(problem.alpha), beta=_roughened(problem.beta))
    return _build(variant, rough, a, b, c, exact=False)


def _roughened(scalar: float) -> float:
    return scalar if scalar in (0.0, 1.0) else float(np.float32(scalar * _ROUGH))


def nonfinite_case(variant: Variant, problem: Problem, seed: int) -> Case:
    """As `rounded_case`, with NaN and infinities in A, B and C: they must reach their cells and no others.

    Half of them stand in the last row or column, where tiles end. Zeros stand among the numbers that they are
    multiplied by, since 0 times infinity is a NaN that a kernel may not skip. The problem's alpha must not be 0: then
    A and B need not be read.
    """
    generator = np.random.default_rng([seed, problem.m, problem.n, problem.k, 2])
    a, b, c = (generator.uniform(-1, 1, size) for size in _matrix_sizes(problem))
    for matrix in (a, b):
        matrix[generator.random(matrix.shape) < _ZEROS] = 0
    # One NaN in A or B is enough: it fills a row or a column of the result, in which nothing else can be seen.
    first, second = (a, b) if generator.integers(2) else (b, a)
    infinities = generator.choice([np.inf, -np.inf], 3)
    spoilt = [(first, np.nan), (first, infinities[0]), (second, infinities[1])]
    spoilt.append((c, generator.choice([np.nan, infinities[2]])))
    for matrix, value in spoilt:
        row, column = (
            side - 1 if generator.integers(2) else int(generator.integers(side)) for side in matrix.shape
        )
        matrix[row, column] = value
    return _build(variant, problem, a, b, c, exact=False)


def _matrix_sizes(problem: Problem) -> tuple[tuple[int, int], ...]:
    return (problem.m, problem.k), problem.b_shape, (problem.m, problem.n)


def _build(
    variant: Variant, problem: Problem, a: np.ndarray, b: np.ndarray, c: np.ndarray, *, exact: bool
) -> Case:
    inputs = {
        "a": from_float(a, variant.input_type),
        "b": from_float(b, variant.input_type),
        "c": from_float(c, variant.output_type),
    }
    a, b = (to_double(inputs[name], variant.input_type) for name in "ab")
    c = to_double(inputs["c"], variant.output_type)
    if problem.transpose_b:
        b = b.T
    # beta = 0 must not read C and alpha = 0 need not read A and B, so the answer leaves them out as well.
    with np.errstate(invalid="ignore", over="ignore"):
        product = problem.alpha * (a @ b) if problem.alpha else np.zeros((problem.m, problem.n))
        addend = problem.beta * c if problem.beta else np.zeros_like(product)
        reference = product + addend
        bound = None
        if not exact:
            sizes = (magnitude(matrix, variant.arithmetic, variant.input_type) for matrix in (a, b))
            absolute = abs(problem.alpha) * np.matmul(*sizes) if problem.alpha else np.zeros_like(product)
            bound = error_bound(
                variant.arithmetic,
                problem.k,
                absolute,
                abs(addend),
                variant.output_type,
                variant.input_type,
            )
    elements = problem.elements()
    poisoned = {name: poison(elements[name], kind) for name, kind in _types(variant).items()}
    rows = {"a": problem.lda, "b": problem.ldb, "c": problem.ldc}
    for name, matrix in inputs.items():
        if name != "c" or problem.beta:
            _write(poisoned[name], matrix, rows[name])
    return Case(problem, poisoned, "d" if variant.separate_output else "c", reference, bound)


def _types(variant: Variant) -> dict[str, str]:
    types = {"a": variant.input_type, "b": variant.input_type, "c": variant.output_type}
    return types | {"d": variant.output_type} if variant.separate_output else types


def poison(elements: int, element_type: str) -> np.ndarray:
    """A one-dimensional buffer of NaNs that can be told from computed ones."""
    storage = STORAGE[element_type]
    bits = np.full(elements, _POISON_BITS[element_type], dtype=np.dtype(f"u{storage.itemsize}"))
    return bits.view(storage)


def _rows_view(buffer: np.ndarray, rows: int, columns: int, pitch: int) -> np.ndarray:
    size = buffer.itemsize
    return np.lib.stride_tricks.as_strided(buffer, (rows, columns), (pitch * size, size))


def _write(buffer: np.ndarray, matrix: np.ndarray, pitch: int) -> None:
    _rows_view(buffer, *matrix.shape, pitch)[:] = matrix


def fresh_buffers(variant: Variant, case: Case) -> dict[str, np.ndarray]:
    """Copies of a case's buffers for one run, with the variant's workspace (filled with NaN) beside them."""
    buffers = {name: buffer.copy() for name, buffer in case.buffers.items()}
    for name, (elements, element_type) in variant.workspace_elements(case.problem).items():
        buffers[name] = poison(elements, element_type)
    return buffers


def unchanged(before: np.ndarray, after: np.ndarray) -> bool:
    """Whether two buffers hold the same bits (NaNs included)."""
    return np.array_equal(before.view(np.uint8), after.view(np.uint8))


@dataclass(frozen=True)
class Verdict:
    """What a comparison found.

    `message` is None for a right result; `fraction` is the largest error over its bound (None for exact answers).
    """

    message: str | None
    fraction: float | None


def compare(case: Case, output: np.ndarray, variant: Variant) -> Verdict:
    """Compare the whole output buffer, padding between rows included, with what must be in it.

    Finite cells must equal the reference (exact answers; the sign of zero doesn't count) or lie within the bound;
    NaN and infinities must stand exactly where the reference has them.
    """
    problem = case.problem
    pitch = problem.ldd if case.output == "d" else problem.ldc
    stored = _rows_view(output, problem.m, problem.n, pitch)
    result = to_double(np.ascontiguousarray(stored), variant.output_type)
    with np.errstate(invalid="ignore"):
        if case.bound is None:
            wrong = ~(result == case.reference)
            fraction = None
        else:
            error = abs(result - case.reference)
            finite = np.isfinite(case.reference)
            same = (result == case.reference) | (np.isnan(result) & np.isnan(case.reference))
            # Written so that a NaN in the error is wrong: every comparison with it is false.
            wrong = np.where(finite, ~(error <= case.bound), ~same)
            ratio = error[finite & (case.bound > 0)] / case.bound[finite & (case.bound > 0)]
            # An infinity or a NaN where a number belongs is no error that could be measured.
            fraction = float(ratio.max()) if ratio.size and np.isfinite(ratio).all() else None
    if wrong.any():
        return Verdict(_describe(case, stored, result, wrong, variant), fraction)
    padding = _padding_written(output, case, pitch)
    return Verdict(padding, fraction)


def _describe(case: Case, stored: np.ndarray, result: np.ndarray, wrong: np.ndarray, variant: Variant) -> str:
    row, column = (int(index) for index in np.argwhere(wrong)[0])
    got = (
        "nothing (left unwritten)"
        if _is_poison(stored[row, column], variant.output_type)
        else f"{result[row, column]:.9g}"
    )
    allowed = "" if case.bound is None else f" within {case.bound[row, column]:.3g}"
    return (
        f"{int(wrong.sum())} of {wrong.size} cells wrong; first row {row}, column {column}: "
        f"got {got}, expected {case.reference[row, column]:.9g}{allowed}"
    )


def _is_poison(element: np.generic, element_type: str) -> bool:
    bits = np.asarray(element).view(np.dtype(f"u{element.itemsize}"))
    return int(bits) == _POISON_BITS[element_type]


def _padding_written(output: np.ndarray, case: Case, pitch: int) -> str | None:
    m, n = case.problem.m, case.problem.n
    if pitch == n or m == 1:
        return None
    bits = np.dtype(f"u{output.itemsize}")
    before, after = (
        _rows_view(buffer[n:].view(bits), m - 1, pitch - n, pitch)
        for buffer in (case.buffers[case.output], output)
    )
    changed = np.argwhere(before != after)
    if not len(changed):
        return None
    row, offset = (int(index) for index in changed[0])
    return f"wrote between rows: row {row}, column {n + offset}, but rows have {n} columns (leading dimension {pitch})"

"""Whether a timed launch computed the product: 16 random rows against float64, and Freivalds' check of all rows.

At the sizes that are timed a whole float64 reference would take longer than the timings. 16 rows are compared cell
by cell within Higham's bound (gemmlab.arithmetic). Freivalds' check compares C x with A (B x) for a vector x of
random signs, which costs one pass over each matrix and sees every row.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from gemmlab.arithmetic import ARITHMETICS, OUTPUT_ROUNDOFF, error_bound, magnitude, product_error
from gemmlab.elements import to_double

ROWS = 16
# Rows that are converted to float64 at a time: few enough to stay in the cache while they are used.
_SLAB = 64
_MARGIN = 4.0


class Product:
    """The right answer to A B for one pair of inputs, as far as the two checks need it.

    alpha is 1 and beta 0, as in every timing.
    """

    def __init__(
        self,
        a: np.ndarray,
        b: np.ndarray,
        input_type: str,
        transpose_b: bool,
        arithmetics: Iterable[str],
        seed: int,
    ) -> None:
        """Choose rows and signs and compute, in one pass over each matrix, all that results are compared with.

        Args:
            a: m x k, stored elements of `input_type`.
            b: k x n, or n x k where `transpose_b`, stored elements.
            input_type: element type of both.
            transpose_b: whether B is stored transposed.
            arithmetics: of the results that will be compared.
            seed: of the rows and the signs.
        """
        self._type = input_type
        self.m, self.k = a.shape
        self.n = b.shape[0] if transpose_b else b.shape[1]
        generator = np.random.default_rng([seed, self.m, self.n, self.k])
        self.rows = np.sort(generator.choice(self.m, size=min(ROWS, self.m), replace=False))
        self.signs = generator.choice([-1.0, 1.0], size=self.n)
        a_rows = to_double(a[self.rows], input_type)
        self._row_reference = np.zeros((len(self.rows), self.n))
        # |A||B| as each arithmetic's bound wants it.
        self._row_magnitudes = {name: np.zeros_like(self._row_reference) for name in arithmetics}
        b_signs, b_squares = np.zeros(self.k), 0.0
        for part in _slabs(len(b)):
            slab = to_double(b[part], input_type)
            b_squares += float(np.vdot(slab, slab))
            if transpose_b:
                b_signs += self.signs[part] @ slab
            else:
                b_signs[part] = slab @ self.signs
            _add_rows(self._row_reference, a_rows, slab, part, transpose_b)
            for name, magnitudes in self._row_magnitudes.items():
                sizes = (magnitude(values, name, input_type) for values in (a_rows, slab))
                _add_rows(magnitudes, *sizes, part, transpose_b)
        # A (B x), and the scale of its rows, |A_i|_2 |B|_F.
        self._signed_sums, self._scales = np.empty(self.m), np.empty(self.m)
        for part in _slabs(self.m):
            slab = to_double(a[part], input_type)
            self._signed_sums[part] = slab @ b_signs
            self._scales[part] = np.sqrt(np.einsum("ij,ij->i", slab, slab) * b_squares)

    def fault(self, c: np.ndarray, arithmetic: str, output_type: str) -> str | None:
        """What is wrong with the result `c` (m x n, stored elements of `output_type`), or None if it is right.

        The bound of Freivalds' check is statistical: with k sums of rounding u_acc and products of relative error
        u_in, a cell of C errs by about (u_in / sqrt(k) + sqrt(k) u_acc) |A_i|_2 |B_j|_2, and random signs add the n
        errors of a row like a random walk. Four times that is allowed: right results stay under a quarter of it, one
        cell of a row that was left out exceeds it in FP32, and a lost tile does in every arithmetic.
        """
        product, absolute = self._row_reference, self._row_magnitudes[arithmetic]
        got = to_double(c[self.rows], output_type)
        bound = error_bound(arithmetic, self.k, absolute, np.zeros_like(absolute), output_type, self._type)
        wrong = ~(abs(got - product) <= bound)
        if wrong.any():
            row, column = (int(index) for index in np.argwhere(wrong)[0])
            return (
                f"{int(wrong.sum())} of {wrong.size} cells in {len(self.rows)} random rows are wrong; first row "
                f"{self.rows[row]}, column {column}: got {got[row, column]:.9g}, expected {product[row, column]:.9g} "
                f"within {bound[row, column]:.3g}"
            )
        return self._freivalds_fault(c, arithmetic, output_type)

    def _freivalds_fault(self, c: np.ndarray, arithmetic: str, output_type: str) -> str | None:
        sums, scales = self._signed_sums, self._scales
        rules = ARITHMETICS[arithmetic]
        root = np.sqrt(self.k)
        relative = product_error(arithmetic, self._type) / root + root * rules.sum_roundoff
        if output_type != "float32":
            relative += OUTPUT_ROUNDOFF[output_type] / root
        allowed = _MARGIN * relative * scales
        got = np.empty(self.m)
        for part in _slabs(self.m):
            got[part] = to_double(c[part], output_type) @ self.signs
        wrong = ~(abs(got - sums) <= allowed)
        if not wrong.any():
            return None
        row = int(np.flatnonzero(wrong)[0])
        return (
            f"Freivalds' check: {int(wrong.sum())} of {self.m} rows are wrong; row {row}: C x is {got[row]:.9g}, "
            f"A (B x) is {sums[row]:.9g}, allowed {allowed[row]:.3g}"
        )


def _add_rows(total: np.ndarray, rows: np.ndarray, slab: np.ndarray, part: slice, transpose_b: bool) -> None:
    """Add to `total` what the rows `part` of the stored B contribute to the product of `rows` and B."""
    if transpose_b:
        total[:, part] = rows @ slab.T
    else:
        total += rows[:, part] @ slab


def _slabs(rows: int) -> list[slice]:
    return [slice(start, min(start + _SLAB, rows)) for start in range(0, rows, _SLAB)]

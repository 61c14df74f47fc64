"""Whether a timed launch computed the product: 16 random rows against float64, and Freivalds' check of all rows.

At the sizes that are timed a whole float64 reference would take longer than the timings. 16 rows are compared cell
by cell within Higham's bound (gemmlab.arithmetic). Freivalds' check compares C x with A (B x) for a vector x of
random signs, which costs one pass over each matrix and sees every row.
"""

from __future__ import annotations

import functools

import numpy as np

from gemmlab.arithmetic import ARITHMETICS, OUTPUT_ROUNDOFF, error_bound, product_error
from gemmlab.elements import to_double

ROWS = 16
# Rows that are converted to float64 at a time, so that the largest problem doesn't need twice its memory at once.
_SLAB = 512
_MARGIN = 4.0


class Product:
    """The right answer to A B for one pair of inputs, as far as the two checks need it.

    alpha is 1 and beta 0, as in every timing.
    """

    def __init__(self, a: np.ndarray, b: np.ndarray, input_type: str, transpose_b: bool, seed: int) -> None:
        """Choose rows and signs.

        Args:
            a: m x k, stored elements of `input_type`.
            b: k x n, or n x k where `transpose_b`, stored elements.
            input_type: element type of both.
            transpose_b: whether B is stored transposed.
            seed: of the rows and the signs.
        """
        self._a, self._b = a, b
        self._type = input_type
        self._transpose_b = transpose_b
        self.m, self.k = a.shape
        self.n = b.shape[0] if transpose_b else b.shape[1]
        generator = np.random.default_rng([seed, self.m, self.n, self.k])
        self.rows = np.sort(generator.choice(self.m, size=min(ROWS, self.m), replace=False))
        self.signs = generator.choice([-1.0, 1.0], size=self.n)

    @functools.cached_property
    def row_reference(self) -> tuple[np.ndarray, np.ndarray]:
        """The chosen rows of A B and of |A||B|, float64, 16 x n each."""
        a_rows = to_double(self._a[self.rows], self._type)
        product = np.zeros((len(self.rows), self.n))
        absolute = np.zeros_like(product)
        for part in _slabs(len(self._b)):
            slab = to_double(self._b[part], self._type)
            if self._transpose_b:
                product[:, part] = a_rows @ slab.T
                absolute[:, part] = abs(a_rows) @ abs(slab).T
            else:
                product += a_rows[:, part] @ slab
                absolute += abs(a_rows[:, part]) @ abs(slab)
        return product, absolute

    @functools.cached_property
    def signed_sums(self) -> tuple[np.ndarray, np.ndarray]:
        """A (B x) and the scale of its rows, |A_i|_2 |B|_F, float64, m each."""
        bx = np.zeros(self.k)
        squares = 0.0
        for part in _slabs(len(self._b)):
            slab = to_double(self._b[part], self._type)
            squares += float(np.vdot(slab, slab))
            if self._transpose_b:
                bx += self.signs[part] @ slab
            else:
                bx[part] = slab @ self.signs
        sums, scales = np.empty(self.m), np.empty(self.m)
        for part in _slabs(self.m):
            slab = to_double(self._a[part], self._type)
            sums[part] = slab @ bx
            scales[part] = np.sqrt(np.einsum("ij,ij->i", slab, slab) * squares)
        return sums, scales

    def fault(self, c: np.ndarray, arithmetic: str, output_type: str) -> str | None:
        """What is wrong with the result `c` (m x n, stored elements of `output_type`), or None if it is right.

        The bound of Freivalds' check is statistical: with k sums of rounding u_acc and products of relative error
        u_in, a cell of C errs by about (u_in / sqrt(k) + sqrt(k) u_acc) |A_i|_2 |B_j|_2, and random signs add the n
        errors of a row like a random walk. Four times that is allowed: right results stay under a quarter of it, one
        cell of a row that was left out exceeds it in FP32, and a lost tile does in every arithmetic.
        """
        product, absolute = self.row_reference
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
        sums, scales = self.signed_sums
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


def _slabs(rows: int) -> list[slice]:
    return [slice(start, min(start + _SLAB, rows)) for start in range(0, rows, _SLAB)]

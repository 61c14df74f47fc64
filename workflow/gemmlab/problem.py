"""One matrix product: its shape, leading dimensions and scalars."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from gemmlab.errors import GemmlabError


@dataclass(frozen=True)
class Problem:
    """D = alpha A B + beta C, row-major; D is C itself unless a variant keeps its output apart.

    A is m x k with rows `lda` elements apart, B is k x n (n x k where `transpose_b`), C and D are m x n.
    """

    m: int
    n: int
    k: int
    lda: int
    ldb: int
    ldc: int
    ldd: int
    alpha: float = 1.0
    beta: float = 0.0
    transpose_b: bool = False

    def __post_init__(self) -> None:
        for name in ("m", "n", "k"):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 1:
                raise GemmlabError(f"{name} is {value!r}, expected a whole number of at least 1.")
        rows = {"lda": self.k, "ldb": self.k if self.transpose_b else self.n, "ldc": self.n, "ldd": self.n}
        for name, least in rows.items():
            if getattr(self, name) < least:
                raise GemmlabError(
                    f"{name} is {getattr(self, name)}, expected at least the row length {least}."
                )

    @classmethod
    def packed(
        cls, m: int, n: int, k: int, *, alpha: float = 1.0, beta: float = 0.0, transpose_b: bool = False
    ) -> Problem:
        """The problem whose rows follow each other without a gap."""
        return cls(m, n, k, k, k if transpose_b else n, n, n, alpha, beta, transpose_b)

    @property
    def b_shape(self) -> tuple[int, int]:
        """Rows and columns of B as stored."""
        return (self.n, self.k) if self.transpose_b else (self.k, self.n)

    @property
    def fmas(self) -> int:
        """Multiply-adds of the product."""
        return self.m * self.n * self.k

    def names(self) -> dict[str, int]:
        """The integers that formulas may use."""
        fields = ("m", "n", "k", "lda", "ldb", "ldc", "ldd")
        return {name: getattr(self, name) for name in fields}

    def elements(self) -> dict[str, int]:
        """Elements from the first of each matrix to its last, padding between rows included."""
        b_rows, b_columns = self.b_shape
        return {
            "a": (self.m - 1) * self.lda + self.k,
            "b": (b_rows - 1) * self.ldb + b_columns,
            "c": (self.m - 1) * self.ldc + self.n,
            "d": (self.m - 1) * self.ldd + self.n,
        }

    def __str__(self) -> str:
        text = f"{self.m} x {self.n} x {self.k}, alpha {self.alpha:g}, beta {self.beta:g}"
        packed = dataclasses.asdict(Problem.packed(self.m, self.n, self.k, transpose_b=self.transpose_b))
        wide = [
            f"{name} {getattr(self, name)}"
            for name in ("lda", "ldb", "ldc")
            if getattr(self, name) != packed[name]
        ]
        return ", ".join([text, *wide])

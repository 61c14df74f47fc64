"""What each arithmetic may err: unit roundoffs of products and sums, and the bound that a result must keep."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Arithmetic:
    """How a variant multiplies and adds.

    Attributes:
        product_error: largest relative error of one product (u_in); 0 where the product is fused or exact.
        sum_roundoff: unit roundoff of the sums (u_acc). Tensor cores truncate, hence 2^-22 rather than 2^-24.
        products: tensor-core products for one product of the result, which divides the peak.
    """

    product_error: float
    sum_roundoff: float
    products: int = 1


ARITHMETICS = {
    "fp32": Arithmetic(0.0, 2.0**-24),
    "tf32": Arithmetic((1 + 2.0**-11) ** 2 - 1, 2.0**-22),
    "fp16": Arithmetic(0.0, 2.0**-22),
    "bf16": Arithmetic(0.0, 2.0**-22),
}
OUTPUT_ROUNDOFF = {"float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
# Inputs wider than the arithmetic are rounded on their way in: unit roundoff, and the least number that keeps it.
_NARROW_INPUTS = {"fp16": (2.0**-11, 2.0**-14), "bf16": (2.0**-8, 2.0**-126)}


def gamma(terms: int, roundoff: float) -> float:
    """Higham's gamma_n = n u / (1 - n u) (Accuracy and Stability of Numerical Algorithms, section 3.1)."""
    product = terms * roundoff
    if product >= 1:
        raise ValueError(f"gamma of {terms} terms at roundoff {roundoff:g} has no meaning: n u = {product:g}")
    return product / (1 - product)


def product_error(arithmetic: str, input_type: str | None = None) -> float:
    """u_in of `arithmetic`, with the rounding of float32 inputs to FP16 or BF16 if there is one.

    `input_type` None means inputs of the arithmetic's own type, which are taken as given.
    """
    if input_type == "float32" and arithmetic in _NARROW_INPUTS:
        roundoff, _ = _NARROW_INPUTS[arithmetic]
        return (1 + roundoff) ** 2 - 1
    return ARITHMETICS[arithmetic].product_error


def magnitude(matrix: np.ndarray, arithmetic: str, input_type: str) -> np.ndarray:
    """|matrix| as `error_bound` wants it: at least the least normal number where inputs are rounded to a narrow type.

    Below that number the rounding error stops shrinking with the number rounded.
    """
    absolute = abs(matrix)
    if input_type == "float32" and arithmetic in _NARROW_INPUTS:
        return np.maximum(absolute, _NARROW_INPUTS[arithmetic][1])
    return absolute


def error_bound(
    arithmetic: str,
    k: int,
    absolute_product: np.ndarray,
    absolute_addend: np.ndarray,
    output_type: str = "float32",
    input_type: str | None = None,
) -> np.ndarray:
    """The componentwise bound |C - ref| <= (u_in + gamma_{K+2}(u_acc)) |alpha||A||B| + gamma_2 |beta C|.

    K sums and K products give gamma_K; the 2 more are alpha's product and beta's sum. Plain gamma_K would reject
    right kernels at small K. An output type narrower than float32 adds its own rounding.

    Args:
        arithmetic: a key of ARITHMETICS.
        k: the length of the sums.
        absolute_product: |alpha| |A| |B|, float64, m x n.
        absolute_addend: |beta C|, float64, m x n.
        output_type: element type of the result.
        input_type: element type of A and B; None for the arithmetic's own.

    Returns:
        float64, m x n.
    """
    rules = ARITHMETICS[arithmetic]
    product_part = product_error(arithmetic, input_type) + gamma(k + 2, rules.sum_roundoff)
    bound = product_part * absolute_product + gamma(2, 2.0**-24) * absolute_addend
    if output_type != "float32":
        bound = bound + OUTPUT_ROUNDOFF[output_type] * (absolute_product + absolute_addend)
    return bound

from __future__ import annotations

import numpy as np
import pytest

from gemmlab.elements import from_float, to_double
from gemmlab.timing.verify import ROWS, Product


def inputs(m: int, n: int, k: int, input_type: str = "float32") -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng([m, n, k])
    return tuple(from_float(generator.uniform(-1, 1, size), input_type) for size in ((m, k), (k, n)))


def product_of(a, b, input_type="float32", transpose_b=False, seed=1) -> Product:
    return Product(a, b, input_type, transpose_b, ("fp32", "tf32", "fp16", "bf16"), seed)


@pytest.mark.parametrize(("m", "n", "k"), [(700, 600, 800), (1, 3, 2), (5, 1, 1), (64, 64, 4096)])
@pytest.mark.parametrize("transpose_b", [False, True])
def test_a_right_product_passes(m: int, n: int, k: int, transpose_b: bool) -> None:
    a, b = inputs(m, n, k)
    stored = np.ascontiguousarray(b.T) if transpose_b else b
    assert product_of(a, stored, transpose_b=transpose_b).fault(a @ b, "fp32", "float32") is None


@pytest.mark.parametrize("input_type", ["float16", "bfloat16"])
def test_half_precision_inputs_are_taken_as_they_are(input_type: str) -> None:
    a, b = inputs(300, 200, 500, input_type)
    c = (to_double(a, input_type) @ to_double(b, input_type)).astype(np.float32)
    arithmetic = {"float16": "fp16", "bfloat16": "bf16"}[input_type]
    product = product_of(a, b, input_type)
    assert product.fault(c, arithmetic, "float32") is None
    assert product.fault(from_float(c, input_type), arithmetic, input_type) is None


def unseen_row(product: Product) -> int:
    return next(row for row in range(product.m) if row not in product.rows)


@pytest.mark.parametrize("value", [0.0, np.nan, np.inf])
def test_one_wrong_cell_in_a_chosen_row_is_found(value: float) -> None:
    a, b = inputs(200, 300, 400)
    product, c = product_of(a, b), a @ b
    row = int(product.rows[3])
    c[row, 7] = value
    assert f"1 of {ROWS * 300} cells in 16 random rows are wrong; first row {row}, column 7" in product.fault(
        c, "fp32", "float32"
    )


@pytest.mark.parametrize("value", [0.0, np.nan])
def test_one_wrong_cell_in_any_other_row_is_found_by_freivalds(value: float) -> None:
    a, b = inputs(1500, 300, 400)
    product, c = product_of(a, b), a @ b
    row = unseen_row(product)
    c[row, 7] = value
    assert f"Freivalds' check: 1 of 1500 rows are wrong; row {row}" in product.fault(c, "fp32", "float32")


def test_a_lost_tile_is_found_even_with_tf32_s_bound() -> None:
    a, b = inputs(512, 512, 512)
    product, c = product_of(a, b), a @ b
    rows = [row for row in range(512) if row not in product.rows][:16]
    c[rows, 100:116] = 0
    assert "Freivalds" in product.fault(c, "tf32", "float32")


def test_the_choice_of_rows_follows_the_seed() -> None:
    a, b = inputs(500, 10, 10)
    first, again, other = (product_of(a, b, seed=seed).rows.tolist() for seed in (1, 1, 2))
    assert first == again != other


def test_float32_inputs_that_a_kernel_rounds_to_half_keep_the_wider_bound() -> None:
    a, b = inputs(200, 150, 300)
    c = a.astype(np.float16).astype(np.float32) @ b.astype(np.float16).astype(np.float32)
    product = product_of(a, b)
    assert product.fault(c, "fp16", "float32") is None
    assert "random rows are wrong" in product.fault(c, "fp32", "float32")

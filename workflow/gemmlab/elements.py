"""Element types of matrices: NumPy has no bfloat16, so it is kept as the upper halves of float32s."""

from __future__ import annotations

import numpy as np

STORAGE = {"float32": np.dtype(np.float32), "float16": np.dtype(np.float16), "bfloat16": np.dtype(np.uint16)}


def from_float(values: np.ndarray, element_type: str) -> np.ndarray:
    """`values` (any shape, float) rounded to nearest even and stored as `element_type`."""
    if element_type != "bfloat16":
        return values.astype(STORAGE[element_type])
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    # Rounding up would turn a NaN with a full mantissa into infinity.
    return np.where(np.isnan(values), 0x7FC0, rounded).astype(np.uint16)


def to_double(stored: np.ndarray, element_type: str) -> np.ndarray:
    """Stored elements as float64, without rounding."""
    if element_type != "bfloat16":
        return stored.astype(np.float64)
    return (stored.astype(np.uint32) << 16).view(np.float32).astype(np.float64)

from __future__ import annotations

import pytest

from gemmlab.errors import GemmlabError
from gemmlab.expression import cdiv, evaluate

NAMES = {"m": 100, "n": 35, "BN": 16}


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        (7, 7),
        ("cdiv(n, BN)", 3),
        ("cdiv(m, BN) * cdiv(n, BN)", 21),
        ("min(m, n) - max(1, 2)", 33),
        ("-m // 3", -34),
        ("m % 4 == 0 and n % 4 == 3", 1),
        ("m < n or n >= 36", 0),
    ],
)
def test_value(expression, value):
    assert evaluate(expression, NAMES) == value


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("__import__('os')", "not allowed"),
        ("m.real", "not allowed"),
        ("[m][0]", "not allowed"),
        ("m ** 9", "not allowed"),
        ("1.5 * m", "not allowed"),
        ("len(m)", "not allowed"),
        ("cdiv(m)", "takes other arguments"),
        ("rows", "unknown name rows"),
        ("m // 0", "divides by zero"),
        ("m +", "can't be read"),
    ],
)
def test_refused(expression, expected):
    with pytest.raises(GemmlabError, match=expected):
        evaluate(expression, NAMES)


@pytest.mark.parametrize(
    ("dividend", "divisor", "quotient"), [(1, 16, 1), (16, 16, 1), (17, 16, 2), (0, 16, 0)]
)
def test_cdiv(dividend, divisor, quotient):
    assert cdiv(dividend, divisor) == quotient

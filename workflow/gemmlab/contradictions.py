"""Contradictions in and between the articles: what their own figures say against each other, by arithmetic alone."""

from __future__ import annotations

import ast
import json
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gemmlab import status
from gemmlab.errors import GemmlabError
from gemmlab.files import sha256_of
from gemmlab.run_view import number
from gemmlab.tables import Row

CONTRADICTION = "contradiction"
CONSISTENT = "consistent"

_OPERATIONS: dict[type, Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
}


def calculate(formula: str, operands: Mapping[str, float]) -> float:
    """The value of `formula`: numbers, the names of `operands`, + - * / ** and brackets.

    Raises:
        GemmlabError: something else stands in it, a name isn't known, or it divides by zero.
    """
    try:
        return float(_value(ast.parse(formula, mode="eval").body, operands))
    except (SyntaxError, ZeroDivisionError, KeyError) as error:
        known = ", ".join(operands)
        raise GemmlabError(
            f"formula {formula!r}: {type(error).__name__}, {error}. Allowed are numbers, + - * / ** and {known}."
        ) from error


def _value(node: ast.expr, operands: Mapping[str, float]) -> float:
    match node:
        case ast.Constant(value=int() | float() as value):
            return value
        case ast.Name(id=name):
            return operands[name]
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATIONS:
            return _OPERATIONS[type(op)](_value(left, operands), _value(right, operands))
    raise SyntaxError(ast.unparse(node))


def contradiction_rows(entries: Sequence[Mapping[str, Any]]) -> list[Row]:
    """contradictions.csv: a row for each entry of config/claims.yaml, judged by the quotient of its two sides."""
    return [_row(entry) for entry in entries]


def _row(entry: Mapping[str, Any]) -> Row:
    left, right = (calculate(entry[side]["formula"], entry["operands"]) for side in ("left", "right"))
    quotient = left / right
    fits = _fits(quotient, entry["agree"])
    wide = max(quotient, 1 / quotient)
    apart = f"{number(wide)} times apart" if wide >= 2 else f"{100 * (wide - 1):.0f} % apart"
    sides = ", ".join(
        f"{entry[side]['name']} {number(value)}" for side, value in (("left", left), ("right", right))
    )
    subject = entry["subject"][0].upper() + entry["subject"][1:]
    return {
        "contradiction": entry["id"],
        "claims": " ".join(entry["claims"]),
        "subject": entry["subject"],
        "operands": ", ".join(f"{name} {value:g}" for name, value in entry["operands"].items()),
        "left": left,
        "right": right,
        "quotient": quotient,
        "verdict": CONSISTENT if fits else CONTRADICTION,
        "sentence": f"{subject}: {sides}; {'they agree' if fits else apart}.",
        "status": status.OK,
        "reason": None,
        "digest": sha256_of([json.dumps(entry, sort_keys=True)])[:16],
    }


def _fits(quotient: float, agree: Mapping[str, float]) -> bool:
    rounding = 1e-9
    if "within" in agree:
        return abs(quotient - 1) <= agree["within"] + rounding
    if "at_least" in agree:
        return quotient >= agree["at_least"] - rounding
    return quotient <= agree["at_most"] + rounding

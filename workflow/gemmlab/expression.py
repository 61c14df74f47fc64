"""The small formulas of the catalogue, such as `cdiv(n, BN)`: integers, names, a whitelist of operations, no eval."""

from __future__ import annotations

import ast
import functools
import operator
from collections.abc import Callable, Mapping

from gemmlab.errors import GemmlabError

_BINARY: dict[type, Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_COMPARE: dict[type, Callable[[int, int], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


def cdiv(dividend: int, divisor: int) -> int:
    """`dividend / divisor` rounded up."""
    return -(-dividend // divisor)


_FUNCTIONS: dict[str, Callable[..., int]] = {"cdiv": cdiv, "min": min, "max": max}
_ALLOWED = "integers, names, + - * // %, comparisons, and, or, cdiv(), min(), max()"


def evaluate(expression: int | str, names: Mapping[str, int]) -> int:
    """The value of `expression` where `names` are known.

    Raises:
        GemmlabError: the formula uses something outside the whitelist or a name that isn't known, or divides by zero.
    """
    if isinstance(expression, int):
        return expression
    tree = _parse(expression)
    try:
        return int(_value(tree.body, names, expression))
    except ZeroDivisionError as error:
        raise GemmlabError(f"formula {expression!r} divides by zero with {dict(names)}.") from error


@functools.cache
def _parse(expression: str) -> ast.Expression:
    """A check evaluates the same few formulas thousands of times."""
    try:
        return ast.parse(expression, mode="eval")
    except (SyntaxError, ValueError) as error:
        raise GemmlabError(
            f"formula {expression!r} can't be read: {error}. Allowed: {_ALLOWED}; "
            "YAML lists want quotes round formulas with commas."
        ) from error


def _value(node: ast.expr, names: Mapping[str, int], expression: str) -> int:
    match node:
        case ast.Constant(value=int() as value):
            return value
        case ast.Name(id=name):
            if name not in names:
                raise GemmlabError(
                    f"formula {expression!r} uses the unknown name {name}; known are {', '.join(sorted(names))}."
                )
            return names[name]
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand, names, expression)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            return _BINARY[type(op)](_value(left, names, expression), _value(right, names, expression))
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _COMPARE:
            return _COMPARE[type(op)](_value(left, names, expression), _value(right, names, expression))
        case ast.BoolOp(op=op, values=values):
            truths = [bool(_value(value, names, expression)) for value in values]
            return all(truths) if isinstance(op, ast.And) else any(truths)
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if name in _FUNCTIONS:
            values = [_value(argument, names, expression) for argument in arguments]
            try:
                return _FUNCTIONS[name](*values)
            except TypeError as error:
                raise GemmlabError(
                    f"formula {expression!r}: {name}() takes other arguments ({error})."
                ) from error
    raise GemmlabError(f"formula {expression!r}: {ast.unparse(node)} is not allowed. Allowed: {_ALLOWED}.")

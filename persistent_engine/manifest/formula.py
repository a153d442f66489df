"""Formulas of sizes and costs: arithmetic text over named numbers, compiled once.

Invariant: a formula is numbers, names, `+ - * / //` and the functions below, and nothing else; its value depends on
the named numbers alone.
"""

import ast
import functools
from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["Formula", "compile_formula", "distinct"]


def distinct(chosen: float, of: float, times: float) -> float:
    """How many of `of` experts are expected to be chosen by at least one of `times` tokens that choose `chosen` each.

    Tokens are taken to choose evenly and apart from one another, which is the most there can be to read on average;
    at one token it is `chosen`, exactly.
    """
    left: float = (1 - chosen / of) ** times
    return of * (1 - left)


_FUNCTIONS: dict[str, Callable[..., Any]] = {"min": min, "max": max, "distinct": distinct}
_ALLOWED = (
    *(ast.Expression, ast.BinOp, ast.UnaryOp, ast.USub, ast.Name, ast.Load),
    *(ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv),
)


def _is_arithmetic(node: ast.AST) -> bool:
    if isinstance(node, ast.Constant):
        return type(node.value) in (int, float)
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id in _FUNCTIONS and not node.keywords
    return isinstance(node, _ALLOWED)


class Formula:
    """Compiled text. names: the numbers it needs, sorted."""

    def __init__(self, text: str) -> None:
        """Raises: ValueError for anything that is not arithmetic."""
        tree = ast.parse(text, mode="eval")
        for node in ast.walk(tree):
            if not _is_arithmetic(node):
                raise ValueError(f"formula {text!r} has a {type(node).__name__}; use numbers, names and + - * / //")
        found = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        self.text = text
        self.names = tuple(sorted(found - _FUNCTIONS.keys()))
        self._code = compile(tree, "<formula>", "eval")

    def __call__(self, values: Mapping[str, float]) -> float:
        """The value. Raises: KeyError for a name that `values` lacks, ZeroDivisionError."""
        known = {name: values[name] for name in self.names}
        return eval(self._code, {"__builtins__": {}, **_FUNCTIONS}, known)  # type: ignore[no-any-return]


@functools.cache
def compile_formula(text: str) -> Formula:
    """The formula of `text`; the same object each time."""
    return Formula(text)

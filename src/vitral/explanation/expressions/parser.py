"""Expressions as text to trees. Python's parser reads them; only the node types below are accepted."""

import ast
import math
import warnings
from collections.abc import Collection
from contextlib import suppress
from functools import lru_cache
from typing import NamedTuple

from vitral.core.config import nearest
from vitral.core.errors import UsageError
from vitral.core.language import N_
from vitral.explanation.expressions.tree import Call, Constant, Reference, Tree

MOST_CHARACTERS = 2000
MOST_DEEP = 60
"""Largest number of functions and operators inside one another."""
MOST_INDEX = 10**6
LARGEST = 1e15
"""A constant is smaller: larger whole numbers are not exact in double precision."""

GRADIENT = "grad"
"""Written as a function of two names: grad(loss, w_q); a step turns it into a quantity of its own."""
NAMES = {"pi": math.pi, "e": math.e, "inf": math.inf}
"""Names of constants."""
FOLDS = {"sum": 1, "mean": 1, "max": 1, "min": 1, "seen": 2}
"""Reductions, and how many of their arguments are trees; the others are settings."""


class Signature(NamedTuple):
    """What an author may write after the name of a function.

    Attributes:
        least: smallest number of arguments.
        most: largest number of arguments.
        settings: largest number of whole numbers after them.
        setting: the keyword of such a number.
    """

    least: int = 1
    most: int = 1
    settings: int = 0
    setting: str = "axis"


FUNCTIONS = {
    **dict.fromkeys(
        ["add", "subtract", "multiply", "divide", "power", "matmul", "maximum", "minimum", "less", "equal"],
        Signature(2, 2),
    ),
    **dict.fromkeys(
        ["negative", "transpose", "exp", "log", "sqrt", "abs", "sin", "cos", "tanh", "sigmoid", "relu", "gelu", "silu"],
        Signature(),
    ),
    **dict.fromkeys(["floor", "causal", "row", "column"], Signature()),
    **dict.fromkeys(["softmax", "log_softmax", "sum", "mean", "var", "max", "min"], Signature(settings=1)),
    "cross_entropy": Signature(2, 2),
    "one_hot": Signature(settings=1, setting="size"),
    "layernorm": Signature(1, 4),
    "rmsnorm": Signature(1, 3),
    "where": Signature(3, 3),
    "concat": Signature(1, 32, settings=1),
}
"""Those of an author. A slice is written as a subscript: x[0], x[:, 1:3]; every axis stays, x[0] has one row."""

OPERATORS: dict[type[ast.AST], str] = {
    ast.Add: "add",
    ast.Sub: "subtract",
    ast.Mult: "multiply",
    ast.Div: "divide",
    ast.Pow: "power",
    ast.MatMult: "matmul",
}
COMPARISONS: dict[type[ast.AST], str] = {ast.Lt: "less", ast.Gt: "less", ast.Eq: "equal"}


def parse(text: str) -> Tree:
    """The tree of an expression.

    Args:
        text: such as "softmax(q @ k.T / sqrt(2)) @ v".

    Raises:
        UsageError: not an expression of this language, or a long one; the message names the part.
    """
    if len(text) > MOST_CHARACTERS:
        raise UsageError("an expression of {n:,} characters; at most {most:,}", n=len(text), most=MOST_CHARACTERS)
    text = " ".join(text.split())
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # as of "1if x else 2"
            parsed = ast.parse(text, mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise UsageError("{text!r} is not an expression", text=_short(text)) from None
    if _depth(parsed) > MOST_DEEP:
        raise UsageError("the expression {text!r} is nested too deep", text=_short(text))
    return _Reader().tree(parsed.body)


@lru_cache
def read(text: str, variables: Collection[str] = ()) -> Tree:
    """The tree of an expression of this package, in which every primitive and definition is known.

    Args:
        text: the expression.
        variables: names that are no constants.
    """
    return _Reader(variables, is_author=False).tree(ast.parse(text.strip(), mode="eval").body)


def _short(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:60]}…"


def _depth(node: ast.AST) -> int:
    level, depth = [node], 0
    while level:
        level, depth = [child for parent in level for child in ast.iter_child_nodes(parent)], depth + 1
    return depth


class _Reader:
    def __init__(self, variables: Collection[str] = (), *, is_author: bool = True) -> None:
        self.variables, self.is_author = variables, is_author

    def tree(self, node: ast.expr) -> Tree:
        match node:
            case ast.Constant(int() | float() as value) if not isinstance(value, bool) and abs(value) < LARGEST:
                return Constant(float(value))
            case ast.Name(name):
                return Constant(NAMES[name]) if name in NAMES and name not in self.variables else Reference(name)
            case ast.Attribute(value, "T"):
                return Call("transpose", (self.tree(value),))
            case ast.Attribute(ast.Name(table), name):
                return Reference(f"{table}.{name}")
            case ast.UnaryOp() | ast.BinOp() | ast.Compare():
                return self.operator(node)
            case ast.Call(ast.Name(function), arguments, keywords):
                return self.call(function, arguments, keywords)
            case ast.Subscript(value, index):
                return self.picked(value, index)
        raise self.foreign(node)

    def foreign(self, node: ast.expr) -> UsageError:
        """The error for what no expression has."""
        return UsageError("{part!r} is not part of the language of expressions", part=_short(ast.unparse(node)))

    def operator(self, node: ast.UnaryOp | ast.BinOp | ast.Compare) -> Tree:
        match node:
            case ast.UnaryOp(ast.UAdd(), operand):
                return self.tree(operand)
            case ast.UnaryOp(ast.USub(), operand):
                return Call("negative", (self.tree(operand),))
            case ast.BinOp(left, sign, right) if type(sign) in OPERATORS:
                return Call(OPERATORS[type(sign)], (self.tree(left), self.tree(right)))
            case ast.Compare(left, [sign], [right]) if type(sign) in COMPARISONS:
                sides = (self.tree(left), self.tree(right))
                return Call(COMPARISONS[type(sign)], sides[::-1] if isinstance(sign, ast.Gt) else sides)
        raise self.foreign(node)

    def call(self, name: str, arguments: list[ast.expr], keywords: list[ast.keyword]) -> Call:
        if not self.is_author:
            count = FOLDS.get(name, len(arguments))
            return Call(name, tuple(map(self.tree, arguments[:count])), tuple(map(self.setting, arguments[count:])))
        if name == GRADIENT:
            return self.gradient(arguments, keywords)
        function = FUNCTIONS.get(name)
        if function is None:
            hint = nearest(name, [*FUNCTIONS, GRADIENT])
            raise UsageError("unknown function {name!r}, {hint}", name=name, hint=hint)
        bare = len(arguments) if function.setting == "axis" else function.most  # max(x, 0) names no axis
        written = [*arguments[bare:], *(keyword.value for keyword in keywords)]
        fits = function.least <= len(arguments[:bare]) <= function.most and len(written) <= function.settings
        if (
            not fits
            or any(keyword.arg != function.setting for keyword in keywords)
            or (name == "one_hot" and not written)
        ):
            complaint = N_("{name}: expected {least} to {most} arguments")
            if function.settings:
                complaint = N_("{name}: expected {least} to {most} arguments, and {setting} = a whole number")
            raise UsageError(complaint, name=name, least=function.least, most=function.most, setting=function.setting)
        return Call(name, tuple(map(self.tree, arguments[:bare])), tuple(map(self.setting, written)))

    def gradient(self, arguments: list[ast.expr], keywords: list[ast.keyword]) -> Call:
        names = [self.tree(argument) for argument in arguments if isinstance(argument, ast.Name | ast.Attribute)]
        if keywords or len(arguments) != 2 or len(names) != 2 or not all(isinstance(name, Reference) for name in names):
            raise UsageError("{name}: expected two names, as {name}(loss, w_q)", name=GRADIENT)
        return Call(GRADIENT, tuple(names))

    def picked(self, value: ast.expr, index: ast.expr) -> Tree:
        """A subscript, one axis after another; every axis stays."""
        tree = self.tree(value)
        for axis, part in enumerate(index.elts if isinstance(index, ast.Tuple) else [index]):
            if isinstance(part, ast.Slice) and part.step is None:
                start, end = (None if bound is None else self.setting(bound) for bound in (part.lower, part.upper))
            else:
                start = self.setting(part)
                end = None if start == -1 else start + 1
            tree = tree if start is None and end is None else Call("pick", (tree,), (axis, start, end))
        return tree

    def setting(self, node: ast.expr) -> int:
        """A whole number."""
        with suppress(ValueError):
            value = ast.literal_eval(node)
            if type(value) is int and abs(value) <= MOST_INDEX:
                return value
        raise UsageError("{part!r}: expected a whole number", part=_short(ast.unparse(node)))

"""Expressions as text to trees. Python's parser reads them; only the node types below are accepted."""

import ast
import math
from collections.abc import Callable

from vitral.core.config import nearest
from vitral.core.errors import UsageError
from vitral.explanation.expressions.functions import FUNCTIONS, NAMES
from vitral.explanation.expressions.tree import Call, Constant, Reference, Tree, nodes

MOST_CHARACTERS = 2000
MOST_NODES = 200

OPERATORS: dict[type[ast.AST], str] = {
    ast.Add: "add",
    ast.Sub: "subtract",
    ast.Mult: "multiply",
    ast.Div: "divide",
    ast.Pow: "power",
    ast.MatMult: "matmul",
}


def parse(text: str, known: Callable[[str], str] = lambda name: name) -> Tree:
    """The tree of an expression.

    Args:
        text: such as "softmax(q @ k.T / sqrt(2)) @ v".
        known: returns the quantity that a name stands for.

    Raises:
        UsageError: not an expression of this language, or a long one; the message names the part.
    """
    if len(text) > MOST_CHARACTERS:
        raise UsageError("an expression of {n:,} characters; at most {most:,}", n=len(text), most=MOST_CHARACTERS)
    try:
        parsed = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise UsageError("{text!r} is not an expression", text=_short(text)) from None
    if sum(1 for _ in ast.walk(parsed)) > 4 * MOST_NODES:
        raise UsageError("the expression {text!r} has more than {most} parts", text=_short(text), most=MOST_NODES)
    tree = _Reader(known).tree(parsed.body)
    if sum(1 for _ in nodes(tree)) > MOST_NODES:
        raise UsageError("the expression {text!r} has more than {most} parts", text=_short(text), most=MOST_NODES)
    return tree


def _short(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:60]}…"


class _Reader:
    def __init__(self, known: Callable[[str], str]) -> None:
        self.known = known

    def tree(self, node: ast.expr) -> Tree:
        match node:
            case ast.Constant(bool() | str() | bytes() | complex()):
                pass
            case ast.Constant(int() | float() as value) if math.isfinite(value) and abs(value) < 1e15:
                return Constant(float(value))
            case ast.Name(name):
                return Constant(NAMES[name]) if name in NAMES and self.known(name) == name else self.reference(name)
            case ast.Attribute(value, "T"):
                return Call("transpose", (self.tree(value),))
            case ast.Attribute():
                return self.reference(ast.unparse(node))
            case ast.UnaryOp(ast.USub(), operand):
                return Call("negative", (self.tree(operand),))
            case ast.BinOp(left, operator, right) if type(operator) in OPERATORS:
                return Call(OPERATORS[type(operator)], (self.tree(left), self.tree(right)))
            case ast.Call(ast.Name(function), arguments, keywords):
                return self.call(function, arguments, keywords)
            case ast.Subscript(value, index):
                return self.picked(value, index)
        raise UsageError("{part!r} is not part of the language of expressions", part=_short(ast.unparse(node)))

    def reference(self, name: str) -> Reference:
        return Reference(self.known(name))

    def call(self, name: str, arguments: list[ast.expr], keywords: list[ast.keyword]) -> Call:
        function = FUNCTIONS.get(name)
        if function is None or name == "pick":
            known = [each for each in FUNCTIONS if each != "pick"]
            raise UsageError("unknown function {name!r}, {hint}", name=name, hint=nearest(name, known))
        settings = [self.setting(keyword.value) for keyword in keywords if keyword.arg == "axis"]
        if len(settings) < len(keywords) or len(settings) > function.settings:
            raise UsageError("{name}: only axis = … may be named, and only where there is one", name=name)
        if not function.least <= len(arguments) <= function.most:
            raise UsageError(
                "{name}: {n} arguments, expected {least} to {most}",
                name=name,
                n=len(arguments),
                least=function.least,
                most=function.most,
            )
        return Call(name, tuple(map(self.tree, arguments)), tuple(settings))

    def picked(self, value: ast.expr, index: ast.expr) -> Tree:
        """A subscript, one axis after another; every axis stays."""
        made = self.tree(value)
        for axis, part in enumerate(index.elts if isinstance(index, ast.Tuple) else [index]):
            if isinstance(part, ast.Slice) and part.step is None:
                start = None if part.lower is None else self.setting(part.lower)
                end = None if part.upper is None else self.setting(part.upper)
                if (start, end) != (None, None):
                    made = Call("pick", (made,), (axis, start, end))
            else:
                start = self.setting(part)
                made = Call("pick", (made,), (axis, start, None if start == -1 else start + 1))
        return made

    def setting(self, node: ast.expr) -> int:
        """A whole number."""
        match node:
            case ast.Constant(int() as value) if not isinstance(value, bool):
                return value
            case ast.UnaryOp(ast.USub(), ast.Constant(int() as value)) if not isinstance(value, bool):
                return -value
        raise UsageError("{part!r}: expected a whole number", part=_short(ast.unparse(node)))

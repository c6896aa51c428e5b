"""Gradients: from the expressions of a sheet to those of its gradients, which are a sheet as any other."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce

from torch import Tensor

from vitral.explanation.expressions import (
    DEFINITIONS,
    PRIMITIVES,
    Call,
    Constant,
    Reference,
    Tree,
    compute,
    expanded,
    read,
    references,
    substituted,
)
from vitral.explanation.expressions.definitions import BACK

_LETTERS = ("d", "y", "a", "b", "c", "e")
OF_SETTINGS = ("grouped", "split", "unpicked", "partner", "gathered", "shaped")
"""Functions of gradients that take their settings from the function that they go back through."""


Close = Callable[[str, Tree], Tree]
"""What stands for the gradient of a quantity, whose tree is now complete, in those of the quantities before it."""


def backward(sheet: Mapping[str, Tree], values: dict[str, Tensor], output: str) -> dict[str, Tree]:
    """The gradients of a number with respect to all that a quantity is made of, from there back: dname of name.

    The gradient of the quantity itself is in `values`; the others are added to them.
    """
    gradients: dict[str, Tree] = {}

    def close(name: str, tree: Tree) -> Tree:
        if name != output:
            gradients[f"d{name}"] = tree
            values[f"d{name}"] = compute(tree, values).expand_as(values[name])
        return Reference(f"d{name}")

    for name, tree in _chained(sheet, values, output, Reference(f"d{output}"), close).items():
        close(name, tree)
    return gradients


def gradient(
    sheet: Mapping[str, Tree], values: Mapping[str, Tensor], output: str, variable: str, known: Mapping[str, str]
) -> Tree:
    """The gradient of one number by one quantity; `known` are the names of gradients that the author has already."""

    def close(name: str, tree: Tree) -> Tree:
        return Reference(known[name]) if name in known else tree

    others = {name: tree for name, tree in sheet.items() if name != variable}
    left = _chained(others, values, output, Constant(1.0), close)
    return (
        close(variable, left[variable]) if variable in left else Call("multiply", (Constant(0.0), Reference(variable)))
    )


def _chained(
    sheet: Mapping[str, Tree], values: Mapping[str, Tensor], output: str, seed: Tree, close: Close
) -> dict[str, Tree]:
    """Go through a sheet from the end; the gradients of what it does not compute."""
    shares: dict[str, list[Tree]] = {output: [seed]}
    for name in reversed(list(sheet)):
        if name in shares:
            d = close(name, _added(shares.pop(name)))
            for leaf, share in _shares(sheet[name], Reference(name), d, values):
                shares.setdefault(leaf, []).append(share)
    return {name: _added(parts) for name, parts in shares.items()}


def _added(parts: Sequence[Tree]) -> Tree:
    return reduce(lambda total, other: Call("add", (total, other)), reversed(parts))


def _shares(tree: Tree, result: Tree, d: Tree, values: Mapping[str, Tensor]) -> list[tuple[str, Tree]]:
    """What a tree with this result and this gradient adds to the gradient of each name in it."""
    if isinstance(tree, Reference):
        return [(tree.name, _summed(d, values[tree.name].shape, values))]
    if not references(tree):
        return []
    if tree.function in DEFINITIONS and tree.function not in BACK:
        return _shares(expanded(tree), result, d, values)
    if tree.function == "concat":
        return [share for part, d_part in _pieces(tree, d, values) for share in _shares(part, part, d_part, values)]
    if tree.function in DEFINITIONS:  # with every parameter
        defaults = [*DEFINITIONS[tree.function].parameters.values()][len(tree.arguments) :]
        tree = Call(
            tree.function, (*tree.arguments, *(default for default in defaults if default is not None)), tree.settings
        )
    rules = BACK.get(tree.function) or PRIMITIVES[tree.function].vjp
    letters = {"d": d, "y": result, **dict(zip("abc", tree.arguments, strict=False)), "e": tree.arguments[-1]}
    filled: dict[Tree, Tree] = {Reference(letter): part for letter, part in letters.items()}
    shares = []
    for argument, rule in zip(tree.arguments, rules, strict=False):
        if references(argument):
            share = simple(substituted(_with_settings(read(rule, _LETTERS), tree, values), filled))
            if argument.function != "rows":
                share = _summed(share, compute(argument, values).shape, values)
            shares += _shares(argument, argument, share, values)
    return shares


def _pieces(tree: Tree, d: Tree, values: Mapping[str, Tensor]) -> Iterator[tuple[Tree, Tree]]:
    """The arguments of `concat`, each with its part of the gradient."""
    axis, start = tree.settings[0] if tree.settings else -1, 0
    for part in tree.arguments:
        size = compute(part, values).shape[axis]
        yield part, Call("pick", (d,), (axis, start, start + size))
        start += size


def _with_settings(rule: Tree, tree: Tree, values: Mapping[str, Tensor]) -> Tree:
    """A rule with the settings of the call that it goes back through."""
    function, settings = rule.function, rule.settings
    if not function:
        return rule
    if function == "folded":
        function, settings = "sum", tree.settings[:1]
    elif function in OF_SETTINGS:
        shape = tuple(compute(tree.arguments[0], values).shape)
        settings = shape if function == "shaped" else tree.settings or shape[-1:]
    elif function.endswith("_back"):
        settings = tree.settings
    return Call(function, tuple(_with_settings(argument, tree, values) for argument in rule.arguments), settings)


def _summed(d: Tree, shape: Sequence[int], values: Mapping[str, Tensor]) -> Tree:
    """A gradient of the shape of what was repeated: summed over heads, rows or columns."""
    d_shape: Sequence[int] = compute(d, values).shape
    while len(d_shape) > len(shape):
        d, d_shape = Call("head", (d,)) if d_shape[0] == 1 else Call("sum", (d,), (-len(d_shape), 1)), d_shape[1:]
    for axis, (size, wanted) in enumerate(zip(d_shape, shape, strict=False)):
        d = Call("sum", (d,), (axis - len(shape),)) if size != wanted and wanted == 1 else d
    return d


def simple(tree: Tree) -> Tree:
    """Transposes of transposes, products with 1 and other detours of the general rules taken out."""
    if not isinstance(tree, Call):
        return tree
    simplified = Call(tree.function, tuple(map(simple, tree.arguments)), tree.settings)
    return (
        _without_numbers(simplified)
        if simplified.function in ("add", "subtract", "power", "multiply")
        else _without_moves(simplified)
    )


def _without_moves(tree: Call) -> Tree:
    match tree.function, tree.arguments:
        case "log", (Constant(math.e),):
            return Constant(1.0)
        case "transpose", (Call("transpose", (inside,)),):
            return inside
        case "head" | "lifted" | "transpose", (Constant(float()) as number,):
            return number

        case "transpose", (Call("matmul", (left, right)),):
            return Call("matmul", (simple(Call("transpose", (right,))), simple(Call("transpose", (left,)))))
    return tree


def _without_numbers(tree: Call) -> Tree:
    match tree.function, tree.arguments:
        case _, (Constant(float(), ""), Constant(float(), "")):
            return Constant(float(compute(tree, {})))
        case "power", (inside, Constant(1.0)):
            return inside

        case "multiply", (Constant(1.0, ""), other) | (other, Constant(1.0, "")):
            return other
    return tree

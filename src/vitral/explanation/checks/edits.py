"""Edits of a computation's tree: an operand, a constant or an axis exchanged; a node dropped, repeated or replaced.

Functions such as softmax and layernorm are edited inside their definitions. An edit is named by the function that
contains it, the function of the edited node and the change.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from vitral.explanation.expressions.tree import Call, Constant, Path, Reference, Tree, nodes, replaced, substituted

ACTIVATIONS = ("relu", "gelu", "silu", "tanh", "sigmoid", "abs")
SOFTMAX = ("softmax", "softmax of scores")
INVERSES = {"divide": "multiply", "multiply": "divide", "add": "subtract", "subtract": "add"}
HIDDEN = Constant(-math.inf)
ZERO, ONE, EPSILON = Constant(0.0), Constant(1.0), Constant(1e-5)


@dataclass(frozen=True)
class Edit:
    """A tree after a slip.

    Attributes:
        kind: of the slip.
        tree: the computation with the slip.
        places: placeholders of its phrase.
    """

    kind: str
    tree: Tree
    places: Mapping[str, object] = field(default_factory=dict)


def _softmax(x: Tree) -> Tree:
    powers = Call("exp", (x,))
    return Call("divide", (powers, Call("sum", (powers,), (-1,))))


def _layernorm(
    x: Tree, gain: Tree = Constant(1.0), shift: Tree = Constant(0.0), epsilon: Tree = Constant(1e-5)
) -> Tree:
    centred = Call("subtract", (x, Call("mean", (x,), (-1,))))
    root = Call("sqrt", (Call("add", (Call("var", (x,), (-1,)), epsilon)),))
    return Call("add", (Call("multiply", (Call("divide", (centred, root)), gain)), shift))


def _rmsnorm(x: Tree, gain: Tree = ONE, epsilon: Tree = EPSILON) -> Tree:
    square = Call("mean", (Call("multiply", (x, x)),), (-1,))
    return Call("multiply", (Call("divide", (x, Call("sqrt", (Call("add", (square, epsilon)),)))), gain))


DEFINITIONS: dict[str, Callable[..., Tree]] = {
    "softmax": _softmax,
    "softmax of scores": _softmax,
    "layernorm": _layernorm,
    "rmsnorm": _rmsnorm,
}
"""Functions in terms of simpler ones."""

NAMES: dict[tuple[str, str, str], tuple[str, dict[str, object]]] = {
    ("softmax", "exp", "dropped 0"): ("not-exponential", {}),
    ("softmax", "divide", "dropped 0"): ("not-divided", {}),
    ("layernorm", "subtract", "dropped 0"): ("norm-other", {"how": "mean"}),
    ("layernorm", "sqrt", "dropped 0"): ("norm-other", {"how": "variance"}),
    ("layernorm", "divide", "dropped 0"): ("norm-other", {"how": "undivided"}),
    ("layernorm", "multiply", "dropped 0"): ("gain-missing", {}),
    ("layernorm", "add", "dropped 0"): ("bias-missing", {}),
    ("rmsnorm", "sqrt", "dropped 0"): ("norm-other", {"how": "variance"}),
    ("rmsnorm", "divide", "dropped 0"): ("norm-other", {"how": "undivided"}),
    ("rmsnorm", "multiply", "dropped 0"): ("gain-missing", {}),
    ("Project", "add", "dropped 0"): ("bias-missing", {}),
    ("Linear", "add", "dropped 0"): ("bias-missing", {}),
    ("Output", "add", "dropped 0"): ("bias-missing", {}),
    ("Project", "add", "repeated"): ("bias-twice", {}),
    ("Linear", "add", "repeated"): ("bias-twice", {}),
    ("Output", "add", "repeated"): ("bias-twice", {}),
    ("Scale", "divide", "dropped 0"): ("scale-missing", {}),
    ("Scale", "multiply", "dropped 0"): ("scale-missing", {}),
    ("Scale", "divide", "repeated"): ("scale-twice", {}),
    ("Scale", "multiply", "repeated"): ("scale-twice", {}),
    ("ApplyMask", "where", "dropped 1"): ("mask-missing", {}),
    ("Normalise", "layernorm", "dropped 0"): ("norm-other", {"how": "none"}),
    ("Normalise", "rmsnorm", "dropped 0"): ("norm-other", {"how": "none"}),
    ("Filtered", "divide", "dropped 0"): ("not-renormalised", {}),
}
"""By function or operation, function of the node, and change: the kind of the slip and its places."""


class Editor:
    """Makes the edits of trees over quantities of known shapes."""

    def __init__(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        """Keep the shapes of all quantities."""
        self.shapes = shapes

    def edits(self, tree: Tree, context: str) -> Iterator[Edit]:
        """Every edit of one node of a tree, or of all nodes that are equal.

        Args:
            tree: the computation.
            context: the operation that it belongs to.
        """
        places: dict[Tree, list[Path]] = {}
        for path, node in nodes(tree):
            places.setdefault(node, []).append(path)
        for node, paths in places.items():
            for edit in self.of_node(node, context):
                made = tree
                for path in paths:
                    made = replaced(made, path, edit.tree)
                yield Edit(edit.kind, made, edit.places)
                if len(paths) > 1:
                    yield from (Edit(edit.kind, replaced(tree, path, edit.tree), edit.places) for path in paths)

    def of_node(self, node: Tree, context: str) -> Iterator[Edit]:
        """The edits of one node, each as the tree that takes its place."""
        match node:
            case Reference(name):
                yield from self.exchanged(name)
            case Constant(float() as value):
                yield from _constants(value)
            case Call():
                yield from self.of_call(node, context)

    def exchanged(self, name: str) -> Iterator[Edit]:
        """Another quantity of the same shape, or the same one transposed."""
        shape = self.shapes.get(name, ())
        for other, its in self.shapes.items():
            if its == shape and other != name and shape:
                yield Edit("operand-other", Reference(other), {"expected": name, "used": other})
        if len(shape) > 1 and shape[-1] == shape[-2]:
            yield Edit("transposed", Call("transpose", (Reference(name),)), {"matrix": name})

    def of_call(self, call: Call, context: str) -> Iterator[Edit]:
        """A call changed: an argument in its place, made twice, another axis, another function."""
        function, arguments = call.function, call.arguments
        for place, argument in enumerate(arguments):
            if not isinstance(argument, Constant):
                yield _named(context, function, f"dropped {place}", argument, {"function": function})
        if function in INVERSES:
            yield _named(context, function, "repeated", Call(function, (call, arguments[1])), {"function": function})
            inverse = Call(INVERSES[function], arguments)
            yield Edit("operation-inverse", inverse, {"expected": function, "used": inverse.function})
        if call.settings == (-1,) and function in ("sum", "mean", "var", "max", "min"):
            yield Edit("wrong-axis", Call(function, arguments, (-2,)), {"how": "other"})
        if function in ACTIVATIONS:
            for other in ACTIVATIONS:
                if other != function:
                    yield Edit("activation-other", Call(other, arguments), {"expected": function, "used": other})
        yield from _functions(call)
        if function in SOFTMAX:
            yield Edit("wrong-axis", Call("transpose", (Call(function, (Call("transpose", arguments),)),)), {})
            yield from self.of_softmax(arguments[0])
        elif function in DEFINITIONS:
            yield from self.inside(call)

    def of_softmax(self, x: Tree) -> Iterator[Edit]:
        """Edits inside a softmax; a hidden score counts 0 where no exponential is taken."""
        finite = Call("where", (Call("less", (x, Constant(-1e300))), Constant(0.0), x))
        yield Edit("not-exponential", Call("divide", (finite, Call("sum", (finite,), (-1,)))), {})
        size = Call("abs", (finite,))
        yield Edit("not-exponential", Call("divide", (size, Call("sum", (size,), (-1,)))), {})
        yield Edit("not-divided", Call("exp", (x,)), {})
        yield Edit("softmax-missing", finite, {})
        for base in (2.0, 10.0, 3.0):
            powers = Call("power", (Constant(base), x))
            yield Edit("base-other", Call("divide", (powers, Call("sum", (powers,), (-1,)))), {"base": f"{base:g}"})
        shifted = Call("exp", (Call("subtract", (x, Call("max", (x,), (-1,)))),))
        plain = Call("exp", (x,))
        yield Edit("maximum-once", Call("divide", (shifted, Call("sum", (plain,), (-1,)))), {})
        yield Edit("not-divided", shifted, {})
        yield Edit("wrong-axis", Call("divide", (plain, Call("sum", (plain,)))), {})

    def inside(self, call: Call) -> Iterator[Edit]:
        """Edits of a function's definition."""
        holes = tuple(Reference(f"argument {place}") for place in range(len(call.arguments)))
        body = DEFINITIONS[call.function](*holes)
        filled: dict[Tree, Tree] = dict(zip(holes, call.arguments, strict=True))
        for edit in Editor({}).edits(body, call.function.removesuffix(" of scores")):
            yield Edit(edit.kind, substituted(edit.tree, filled), edit.places)
        if call.function == "layernorm":
            width = self.width(call.arguments[0])
            if width > 1:
                body = _layernorm(*call.arguments)
                variance = Call("var", (call.arguments[0],), (-1,))
                more = Call("multiply", (variance, Constant(width / (width - 1))))
                yield Edit("norm-other", substituted(body, {variance: more}), {"how": "sample"})

    def width(self, tree: Tree) -> int:
        """The last axis of a quantity; 0 for a tree that is none."""
        shape = self.shapes.get(tree.name, ()) if isinstance(tree, Reference) else ()
        return shape[-1] if shape else 0


def _constants(value: float) -> Iterator[Edit]:
    others = {value * 2, value / 2, value * value, value + 1, value - 1, -value, value * 10, value / 10}
    others |= {1 / value, 1.0} if value else set()
    others |= {math.sqrt(value)} if value > 0 else set()
    for other in sorted(others - {value}):
        yield Edit("constant-other", Constant(other), {"expected": f"{value:g}", "used": f"{other:.4g}"})


def _functions(call: Call) -> Iterator[Edit]:
    """Another function in place of this one: a base, sine for cosine."""
    [x, *_] = call.arguments
    if call.function == "exp":
        for base in (2.0, 10.0):
            yield Edit("base-other", Call("power", (Constant(base), x)), {"base": f"{base:g}"})
    if call.function == "log":
        for base in (2.0, 10.0):
            yield Edit("base-other", Call("divide", (call, Constant(math.log(base)))), {"base": f"{base:g}"})
    for pair in (("sin", "cos"), ("cos", "sin"), ("mean", "sum"), ("max", "min"), ("min", "max"), ("sum", "mean")):
        if call.function == pair[0]:
            other = Call(pair[1], call.arguments, call.settings)
            yield Edit("function-other", other, {"expected": pair[0], "used": pair[1]})


def _named(context: str, function: str, change: str, tree: Tree, places: dict[str, object]) -> Edit:
    """An edit with its name, the general one if it has none of its own."""
    named = NAMES.get((context, function, change))
    if named is not None:
        return Edit(named[0], tree, named[1])
    if change == "repeated":
        return Edit("repeated", tree, places)
    if function in ACTIVATIONS:
        return Edit("activation-missing", tree, {})
    if function == "transpose" and isinstance(tree, Reference):
        return Edit("transposed", tree, {"matrix": tree.name})
    return Edit("function-missing", tree, places)


MAIN = {"where": 1, "add": 1}
"""The argument of a function that its result is a change of; the first one for all others."""
MOVED = {
    ("softmax of scores", "where"): ("mask-late", {}),
    ("softmax of scores", "divide"): ("scale-late", {}),
    ("softmax of scores", "multiply"): ("scale-late", {}),
    ("layernorm", "add"): ("norm-order", {}),
    ("rmsnorm", "add"): ("norm-order", {}),
    ("matmul", "relu"): ("activation-late", {}),
    ("matmul", "gelu"): ("activation-late", {}),
}
"""By the function on top and the one below it: the slip of moving that one to the top."""


def moved(tree: Tree) -> Iterator[Edit]:
    """A function further down taken out and applied last: the mask or the scale after the softmax, a norm in a sum."""
    chain: list[Call] = []
    node = tree
    while isinstance(node, Call):
        chain.append(node)
        node = node.arguments[MAIN.get(node.function, 0)]
    for place in range(1, len(chain)):
        name = MOVED.get((chain[0].function, chain[place].function))
        if name is None or any(call.function not in (*MAIN, "divide", "multiply") for call in chain[1:place]):
            continue
        inner = _main(chain[place])
        for call in reversed(chain[:place]):
            inner = _around(call, inner)
        outer = _around(chain[place], inner)
        if isinstance(outer, Call) and outer.function == "where":
            outer = Call("where", (*outer.arguments[:2], Constant(0.0)))
        yield Edit(name[0], outer, name[1])


def _main(call: Call) -> Tree:
    return call.arguments[MAIN.get(call.function, 0)]


def _around(call: Call, inner: Tree) -> Tree:
    arguments = list(call.arguments)
    arguments[MAIN.get(call.function, 0)] = inner
    return Call(call.function, tuple(arguments), call.settings)

"""Functions that are defined in the language itself.

The steps of a definition are what people write on the side: the letters of its formula, the equations before a cell,
what a hand may round. Those whose names begin with _ are written in their places, those with m and a digit as what
they are.
"""

import ast
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from vitral.explanation.expressions.parser import read
from vitral.explanation.expressions.tree import Call, Constant, Reference, Tree, mapped, nodes, substituted

_NORM = "μ = mean(x, -1); σ2 = mean((x - μ) ** 2, -1)"
_UNIT = f"{_NORM}; u = (x - μ) / root(σ2 + ε)"
_RMS = "m1 = mean(x ** 2, -1)"
_SEEN = "μ = seen(x, M, -1); σ2 = seen((x - μ) ** 2, M, -1)"
_TANH = "_t = tanh(root(2 / pi) * (x + 0.044715 * x ** 3))"
_SOURCE = f"""
softmax(x, base=e) : _power = base ** (x - shift(x)); over(_power, sum(_power, -1))
log_softmax(x) : log(softmax(x))
cross_entropy(x, t) : _t = target(t, x); mean(sum(where(_t, -_t * log_softmax(x), 0), -1))
layernorm(x, g=1, b=0, ε=1e-5) : {_NORM}; _σ = root(σ2 + ε); g * ((x - μ) / _σ) + b
rmsnorm(x, g=1, ε=1e-5) : {_RMS}; _σ = root(m1 + ε); g * (x / _σ)
adaptive(x, M, d) : {_SEEN}; σ_row = root(where(σ2, σ2, d)); x / σ_row
adaptive_back(d, x, M, k) : {_SEEN}; σ_row = root(where(σ2, σ2, k)); \
m1 = seen(d * x, M, -1); d / σ_row - where(M, 0, where(σ2, (x - μ) * m1 / (σ2 * σ_row), 0))
var(x) : μ = mean(x); σ2 = mean((x - μ) ** 2); σ2
sqrt(x) : _root = root(x); _root
relu(x) : maximum(0, x)
squared_relu(x) : maximum(0, x) ** 2
gelu(x) : _Φ = Φ(x); x * _Φ
gelu_tanh(x) : {_TANH}; x / 2 * (1 + _t)
silu(x) : _s = 1 + exp(-x); x / _s
sigmoid(x) : 1 / (1 + exp(-x))
causal(x) : where(ahead(x), -inf, x)
normalised(x) : over(x, sum(x, -1))
softmax_back(d, y) : y * (d - sum(d * y, -1))
unit_back(d, u, s) : m1 = mean(d, -1); m2 = mean(d * u, -1); (d - m1 - u * m2) / s
layernorm_back(d, x, g, ε) : {_UNIT}; du = d * g; unit_back(du, u, root(σ2 + ε))
layernorm_gain(d, x, ε) : {_UNIT}; sum(d * u, -2, 1)
rms_back(d, u, s) : m2 = mean(d * u, -1); (d - u * m2) / s
rmsnorm_back(d, x, g, ε) : {_RMS}; u = x / root(m1 + ε); du = d * g; rms_back(du, u, root(m1 + ε))
rmsnorm_gain(d, x, ε) : {_RMS}; u = x / root(m1 + ε); sum(d * u, -2, 1)
relu_slope(x) : less(0, x)
squared_relu_slope(x) : 2 * maximum(0, x)
gelu_slope(x) : _Φ = Φ(x); _φ = φ(x); _Φ + x * _φ
gelu_tanh_slope(x) : {_TANH}; _c = root(2 / pi) * (1 + 0.134145 * x ** 2); \
(1 + _t) / 2 + x / 2 * (1 - _t ** 2) * _c
silu_slope(x) : _s = 1 / (1 + exp(-x)); _s * (1 + x * (1 - _s))
"""
_ACTIVATIONS = {
    "relu": "ReLU",
    "squared_relu": "ReLU²",
    "gelu": "GELU",
    "gelu_tanh": "TanhGELU",
    "silu": "SiLU",
}
SHOWN = {
    **{"cross_entropy": "cross_entropy", "causal": "causal", "log_softmax": "log_softmax", "sigmoid": "sigmoid"},
    **_ACTIVATIONS,
    **{f"{name}_slope": f"{shown}'" for name, shown in _ACTIVATIONS.items()},
}
"""Functions that formulas write by name; of all others they have the body."""
BACK = {
    "softmax": ("log(b) * softmax_back(d, y)",),
    "layernorm": ("layernorm_back(d, a, b, e)", "layernorm_gain(d, a, e)", "sum(d, -2, 1)"),
    "rmsnorm": ("rmsnorm_back(d, a, b, e)", "rmsnorm_gain(d, a, e)"),
    "adaptive": ("adaptive_back(d, a, b, e)",),
    "cross_entropy": ("d * ((softmax(a) - target(b, a)) / times(a))",),
    **{name: (f"d * {name}_slope(a)",) for name in _ACTIVATIONS},
}
"""As `Primitive.vjp`, where the rules of the primitives would say it at length; e is the last argument."""
RULES = {
    **{"softmax": "softmax", "layernorm": "norm", "rmsnorm": "norm", "lookup": "lookup", "matmul": "product"},
    **{"divide": "scale", "multiply": "scale", "adaptive": "scale"},
}
"""The sentence of the rule by which a gradient goes back through a function; a copy passes it on."""
SHARES = ("softmax", "normalised")
"""Functions whose rows add up to 1."""
NEUTRAL = {"g": 1.0, "b": 0.0}
"""Parameters that are not written where they change nothing."""


@dataclass(frozen=True)
class Definition:
    """A function as text.

    Attributes:
        parameters: with their usual values.
        steps: named numbers on the side, in order.
        body: the result.
    """

    parameters: dict[str, Tree | None]
    steps: tuple[tuple[str, Tree], ...]
    body: Tree


def _defined(line: str) -> tuple[str, Definition]:
    head, _, text = line.partition(" : ")
    call = ast.parse(head, mode="eval").body
    assert isinstance(call, ast.Call)
    parameters: dict[str, Tree | None] = {argument.id: None for argument in call.args if isinstance(argument, ast.Name)}
    parameters |= {keyword.arg: read(ast.unparse(keyword.value)) for keyword in call.keywords if keyword.arg}
    *steps, body = text.split("; ")
    pairs = [(name, step) for name, _, step in (line.partition(" = ") for line in steps)]
    variables = (*parameters, *(name for name, _ in pairs))
    definition = Definition(
        parameters, tuple((name, read(step, variables)) for name, step in pairs), read(body, variables)
    )
    return ast.unparse(call.func), definition


DEFINITIONS = dict(map(_defined, _SOURCE.strip().splitlines()))
DIRECT: dict[str, Callable[..., Tensor]] = {"log_softmax": lambda x, axis=-1: torch.log_softmax(x, axis)}
"""Definitions that are computed at once, because the probabilities may be too small to have a logarithm."""


def _calls(name: str) -> list[Call]:
    trees = (DEFINITIONS[name].body, *(step for _, step in DEFINITIONS[name].steps))
    return [node for tree in trees for node in nodes(tree) if isinstance(node, Call)]


BY_ROWS = {name for name in DEFINITIONS if any(call.settings == (-1,) for call in _calls(name))} - {"cross_entropy"}
BY_ROWS |= {"log_softmax"}
"""Functions that go through each row, or along another axis if one is said."""
OF_CELLS = {name for name in BY_ROWS if any(call.function == "sum" and call.settings == (-1,) for call in _calls(name))}
OF_CELLS |= {"layernorm_gain", "rmsnorm_gain"}
"""Those whose formula is that of one cell, with a letter for the others of its row."""


@lru_cache(maxsize=4096)
def expanded(call: Tree) -> Tree:
    """A call of a defined function as its body, with the arguments and the steps in their places."""
    definition = DEFINITIONS[call.function]
    filled: dict[Tree, Tree] = {}
    for index, (name, default) in enumerate(definition.parameters.items()):
        argument = call.arguments[index] if index < len(call.arguments) else default
        assert argument is not None
        if name in NEUTRAL and default is not None:
            argument = Call("plain", (argument,), (NEUTRAL[name],))
        filled[Reference(name)] = Call("aside", (argument,), (name,)) if name == "ε" else argument
    for name, step in definition.steps:
        step = substituted(_along(step, call.settings), filled)
        filled[Reference(name)] = Call("aside", (step,), (name,))
    return mapped(substituted(_along(definition.body, call.settings), filled), _natural)


def _natural(tree: Tree) -> Tree | None:
    """A power of e is an exponential."""
    if tree.function == "power" and tree.arguments[0] == Constant(math.e):
        return Call("exp", (mapped(tree.arguments[1], _natural),))
    return None


def _along(tree: Tree, axis: tuple[int | None, ...]) -> Tree:
    """A definition's tree with its reductions along another axis, if there is one."""
    if not axis or not tree.function:
        return tree
    is_usual = tree.function in ("shift", "mean", *BY_ROWS) and not tree.settings
    settings = axis if is_usual or tree.settings == (-1,) else tree.settings
    return Call(tree.function, tuple(_along(argument, axis) for argument in tree.arguments), settings)

"""The recipe of a computation as text: embedding, attention, the block around it, the head after it.

Each line names a quantity and the expression that computes it. `follow` goes through the lines and adds every quantity
whose inputs are known. In worked examples the values are computed; a traced pass has recorded them.
"""

import math
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from vitral.attention.masks import Mask
from vitral.core.errors import UsageError
from vitral.core.language import _
from vitral.decoding import Sampling
from vitral.explanation.examples.schema import AXES, WORDS
from vitral.explanation.expressions import Call, Constant, Reference, Tree, compute, mapped, read, references
from vitral.explanation.expressions.definitions import SHARES
from vitral.explanation.expressions.evaluation import Values
from vitral.explanation.rows import Beam, Row, rotary, rule_of, sinusoids
from vitral.model.settings import ROTARY, RotaryConfig

RECIPE = """
token_embedding = lookup(embedding)                         # rows
position_embedding = sinusoids(token_embedding)             # sinusoidal
stream = token_embedding + position_embedding               # positions
attn_norm = norm(stream, attn_norm_gain, attn_norm_bias)    # attn pre
q_pre = source @ w_q + rows(b_q)                            # attn
q = rotate(q_pre)                                           # attn rotary
k_pre = memory @ w_k + rows(b_k)                            # attn
k = rotate(k_pre)                                           # attn rotary
v = memory @ w_v + rows(b_v)                                # attn
scores = q @ share(k).T                                     # attn
scaled = scale                                              # attn
masked = scaled + bias + mask                               # attn
weights = softmax(masked, base)                             # attn
z = weights @ share(v)                                      # attn
out = merge(z) @ w_o + b_o                                  # attn
attn_sum = stream + out                                     # attn post
resid_mid = norm(attn_sum, attn_norm_gain, attn_norm_bias)  # attn post
resid_mid = stream + out                                    # attn unnormed
mlp_norm = norm(read, mlp_norm_gain, mlp_norm_bias)         # mlp pre
mlp.gate = mlp_source @ w_gate + b_gate                     # mlp gated
mlp.pre = mlp_source @ w_up + b_up                          # mlp
mlp.hidden = activation(mlp.pre)                            # mlp
mlp.out = mlp.hidden @ w_down + b_down                      # mlp
mlp_sum = resid_mid + mlp.out                               # mlp post
resid_post = norm(mlp_sum, mlp_norm_gain, mlp_norm_bias)    # mlp post
resid_post = resid_mid + mlp.out                            # mlp unnormed
final_norm = norm(resid_post, final_norm_gain, final_norm_bias)  # final
logits = last @ unembedding + b_u
probabilities = softmax(logits, base)
"""
"""After #: the parts that a line belongs to; all of them must be there. Without rotary positions q_pre is q itself."""
SCALES = {
    None: "scores * scale",
    "none": "scores",
    "sqrt": "scores / sqrt(d_k())",
    "linear": "scores / d_k()",
    "adaptive": "adaptive(scores, mask, d_k())",
}
"""The scaled scores by the name of the scale; those of any other are multiplied by its factor s."""
RESIDUAL = ("attn_sum", "resid_mid", "mlp_sum", "resid_post")
"""Sums of the residual stream and the output of a sublayer."""


@dataclass(frozen=True)
class SheetQuantity:
    """One named quantity.

    Attributes:
        name: as in `vitral.core.names`, without the block's prefix and "attn.".
        axes: names of its axes, as ("heads", "time", "source").
        tree: computes it from other quantities.
        row: its own words, where the tree does not say them.
        is_free: whether it is a step of the author's.
        derivative: of a gradient, the names of the number and of the quantity.
    """

    name: str
    axes: tuple[str, ...]
    tree: Tree
    row: Row | None = None
    is_free: bool = False
    derivative: tuple[str, str] | None = None

    @cached_property
    def inputs(self) -> tuple[str, ...]:
        """The quantities that it is computed from, in order."""
        return references(self.tree)

    @property
    def chooses(self) -> bool:
        """Whether its numbers are indices of words."""
        return self.name in WORDS and not self.is_free

    @property
    def outer(self) -> Tree:
        """The tree below what only changes the places of its numbers."""
        tree = self.tree
        while tree.function in ("lifted", "transpose"):
            tree = tree.arguments[0]
        return tree

    @property
    def is_share(self) -> bool:
        """Whether each row of its numbers adds up to 1."""
        return self.outer.function in SHARES

    def make(self, values: Values) -> Tensor:
        """Compute the quantity from the values of its inputs."""
        return compute(self.tree, values)


@dataclass(frozen=True)
class Architecture:
    """The parts of a computation, without its numbers.

    Attributes:
        stream: name of the first quantity of the stream: "x" (attention alone), "resid_pre" (a block) or "embed".
        norm: "pre", "post" or "none"; None for attention alone.
        sublayers: of the block; "attn" and "mlp".
        residual: whether the block has residual connections.
        parallel: whether the feed-forward reads the stream before attention.
        mask: None if unknown.
        scale: its name, or a number; None if unknown.
        num_heads: query heads.
        d_k: width of a head, for computations that begin after q and k.
        bias: position bias of the scores, [heads, time, source].
        frequencies: of rotary positions, radians per position, one for each pair.
        rotation: of rotary positions.
        activation: of the feed-forward.
        norm_type: "layernorm" or "rmsnorm".
        epsilon: of the norms.
        final_norm: whether a norm follows the last block.
        tied: whether the head's matrix is the embedding.
        rows: the row of the embedding for each position.
        sinusoidal: whether the position embedding is sinusoidal.
        position_base: of the rates of its angles.
        position_halves: whether its sines stand before its cosines.
        first_position: number of its first position.
        softmax_base: of the exponentials in the weights of attention and in the probabilities.
        memory: whether keys and values are projected from `memory`, the states of an encoder.
    """

    stream: str = "x"
    norm: str | None = None
    sublayers: tuple[str, ...] = ("attn", "mlp")
    residual: bool = True
    parallel: bool = False
    mask: Mask | None = None
    scale: str | float | None = None
    num_heads: int = 1
    d_k: int | None = None
    bias: Tensor | None = None
    frequencies: Tensor | None = None
    rotation: RotaryConfig = ROTARY
    activation: str = "relu"
    norm_type: str = "layernorm"
    epsilon: float = 1e-5
    final_norm: bool = False
    tied: bool = False
    rows: tuple[int, ...] = ()
    sinusoidal: bool = False
    position_base: float = 10_000.0
    position_halves: bool = False
    first_position: int = 0
    softmax_base: float = math.e
    memory: bool = False

    @classmethod
    def of(cls, settings: Any, **others: Any) -> "Architecture":
        """The parts that settings name alike, and others."""
        alike = {field.name: getattr(settings, field.name) for field in fields(cls) if hasattr(settings, field.name)}
        return cls(**{**alike, **others})


def decided(name: str) -> Tree:
    """The choice of this name from the last position's probabilities.

    "greedy" is the most probable word, [1], as its index; ties go to the lowest. A rule gives the distribution to
    sample from, [vocab].

    Raises:
        UsageError: a number that the rule does not allow.
    """
    shares, (rule, number) = read("last(probabilities)"), rule_of(name)
    if number is None:
        return Call("largest", (shares,))
    Sampling.parse({rule: int(number) if rule == "top_k" and number == int(number) else number}, rule)
    if rule == "temperature" and number > 0:
        logarithms = Call("log", (shares,))
        return Call("softmax", (logarithms if number == 1 else Call("divide", (logarithms, Constant(number, "T"))),))
    rule, number = ("top_k", 1.0) if rule == "temperature" else (rule, number)
    return Call("normalised", (Call(f"keep {rule.replace('_', ' ')}", (shares, Constant(number))),))


def choice_of(name: str, beam: Beam | None = None) -> SheetQuantity:
    """A choice of the next token, by its name as `schema.CHOICES` or a rule with its number; `beam` is its search."""
    if beam is None:
        return SheetQuantity(name, ("choice",) if name in WORDS else ("vocab",), decided(name))
    beam = replace(beam, probability=name not in WORDS)
    return SheetQuantity(name, ("choice",), beam.tree(), beam)


def follow(
    lines: Iterator[SheetQuantity], values: dict[str, Tensor], recorded: Values | None = None
) -> tuple[SheetQuantity, ...]:
    """Add to `values` every quantity that the recipe can compute from them, and return these quantities.

    Args:
        lines: a recipe over the same `values`, in order.
        values: the given ones.
        recorded: values that are used instead of computing the quantity.

    Raises:
        UsageError: shapes that do not fit, a result that is not a number, or an unknown part of the architecture.
    """
    quantities: list[SheetQuantity] = []
    for quantity in lines:
        name = quantity.name
        if name not in values and all(operand in values for operand in quantity.inputs):
            values[name] = recorded[name] if recorded and name in recorded else _computed(quantity, values)
            quantities.append(quantity)
    return tuple(quantities)


def _computed(quantity: SheetQuantity, values: Values) -> Tensor:
    name = quantity.name
    try:
        value = quantity.make(values)
    except UsageError:
        raise
    except (RuntimeError, ValueError):
        shapes = _(" and ").join(f"{operand} {_shape(values[operand])}" for operand in quantity.inputs)
        raise UsageError(
            "{name} cannot be computed from {shapes}: the shapes do not fit", name=name, shapes=shapes
        ) from None
    if bool(value.isnan().any()):
        raise UsageError("{name}: a cell is not a number, as a norm of equal numbers with epsilon = 0", name=name)
    return value.clone() if isinstance(quantity.tree, Reference) else value  # two names of a tensor are an alias


def _shape(value: Tensor) -> str:
    return "[" + ", ".join(map(str, value.shape)) + "]"


def missing_for(name: str, lines: Mapping[str, SheetQuantity], values: Values) -> str:
    """The first quantity that is not known on the way to `name`; empty if there is none."""
    if name in values:
        return ""
    if name not in lines:
        return name
    return next((missing for operand in lines[name].inputs if (missing := missing_for(operand, lines, values))), "")


def recipe(
    architecture: Architecture, values: dict[str, Tensor], author_steps: Container[str] = ()
) -> Iterator[SheetQuantity]:
    """The lines of a computation.

    Some lines depend on which quantities are known, so `values` is read again before each line. A quantity that is
    another one unchanged is added to it: a token embedding without position embedding as the stream.

    Args:
        architecture: the parts.
        values: what is known.
        author_steps: names of quantities that the author computes in another way.
    """
    return _Recipe(architecture, values, author_steps).lines()


class _Recipe:
    def __init__(self, parts: Architecture, values: dict[str, Tensor], author_steps: Container[str]) -> None:
        self.parts, self.values, self.author_steps = parts, values, author_steps

    def lines(self) -> Iterator[SheetQuantity]:
        for line in RECIPE.strip().splitlines():
            text, _hash, marks = line.partition("#")
            self.continued()
            if not all(self.kinds[mark] for mark in marks.split()):
                continue
            name, expression = text.split(" = ")
            name = name.removesuffix("_pre") if self.parts.frequencies is None else name
            name, tree = self.parts.stream if name == "stream" else name, mapped(read(expression), self.named)
            if name in self.author_steps:
                continue
            if name not in self.values and all(operand in self.values for operand in references(tree)):
                tree = mapped(tree, self.filled)
            yield SheetQuantity(name, self.axes(name), tree)
            if name == "z" and "b_o" in self.values and "w_o" not in self.values:
                raise UsageError('b_o: is added after w_o; give w_o too (w_o = "identity" changes nothing)')

    def axes(self, name: str) -> tuple[str, ...]:
        """The axes of a line's quantity; where keys and values are of the stream itself, their positions are its."""
        names = {"kv_heads": "heads", "d_value": "d_head"} | ({} if self.parts.memory else {"source": "time"})
        axes: tuple[str, ...] = AXES.get(name.removesuffix("_pre"), AXES["x"])
        return axes if axes[-1] == "source" else tuple(names.get(axis, axis) for axis in axes)

    def continued(self) -> None:
        """Name the stream again where a part of the recipe is left out."""
        values, parts = self.values, self.parts
        if "token_embedding" in values and "position_embedding" not in values and not parts.sinusoidal:
            values.setdefault(parts.stream, values["token_embedding"])
        if parts.norm and "attn" not in parts.sublayers and parts.stream in values:
            values.setdefault("resid_mid", values[parts.stream])

    @property
    def kinds(self) -> dict[str, bool]:
        """The parts that this computation has, and those that it has not."""
        parts = self.parts
        return {
            "rows": bool(parts.rows),
            "sinusoidal": parts.sinusoidal,
            "positions": "position_embedding" in self.values,
            "attn": parts.norm is None or "attn" in parts.sublayers,
            "mlp": parts.norm is not None and "mlp" in parts.sublayers,
            "pre": parts.norm == "pre",
            "post": parts.norm == "post",
            "unnormed": parts.norm in ("pre", "none"),
            "rotary": parts.frequencies is not None,
            "gated": parts.activation == "swiglu",
            "final": parts.norm is not None and parts.final_norm,
        }

    def named(self, tree: Tree) -> Tree | None:
        """The quantities that a part of a line stands for."""
        parts, is_pre = self.parts, self.parts.norm == "pre"
        source = "attn_norm" if is_pre else parts.stream
        read_ = parts.stream if parts.parallel else "resid_mid"
        last = "out" if parts.norm is None else "final_norm" if "final_norm" in self.values else "resid_post"
        names = {
            **{"stream": parts.stream, "source": source, "memory": "memory" if parts.memory else source},
            **{"read": read_, "mlp_source": "mlp_norm" if is_pre else read_},
            "last": last if last in self.values else parts.stream,
        }
        letters: dict[str, Tree] = {name: Reference(other) for name, other in names.items()}
        letters |= {} if parts.mask is None else {"mask": Call("mask", ())}
        letters["unembedding"] = read("embedding.T" if parts.tied else "w_u")
        match tree:
            case Reference("scale"):
                scaled = read(SCALES.get(parts.scale, "scores * s()"))
                return scaled if parts.scale is None else mapped(scaled, self.named)
            case Reference(name):
                return letters.get(name)
            case Call("lookup", arguments):
                return Call("lookup", arguments, parts.rows)
            case Call("softmax", (x, _)):
                return Call("softmax", (x,) if parts.softmax_base == math.e else (x, Constant(parts.softmax_base)))
            case Call("add", (scaled, Reference("bias"))):
                return scaled if parts.bias is None else Call("add", (scaled, Constant.of(parts.bias, "bias")))
            case Call("activation", (pre,)):
                gated = parts.activation == "swiglu"
                return read("silu(mlp.gate) * mlp.pre") if gated else Call(parts.activation, (pre,))
            case Call("add", (Reference(), Reference("out" | "mlp.out") as output)) if not parts.residual:
                return output
            case Call("add" | "matmul", (left, right)) if self.lacks(right):
                return mapped(left, self.named)
            case Call("norm", (x, *others)):
                defaults = (Constant(1.0), Constant(0.0))
                others = [
                    default if self.lacks(parameter) else parameter
                    for default, parameter in zip(defaults, others, strict=True)
                ]
                used = others[:1] if parts.norm_type == "rmsnorm" else others
                return Call(parts.norm_type, (mapped(x, self.named), *used, Constant(parts.epsilon)))
        return None

    def lacks(self, tree: Tree) -> bool:
        """Whether a term, a factor, a gain or a bias may be missing and is."""
        inside = tree.arguments[0] if tree.function == "rows" else tree
        if not isinstance(inside, Reference) or inside.name in self.values:
            return False
        return inside.name == "w_o" or inside.name.startswith("b_") or inside.name.endswith(("norm_gain", "norm_bias"))

    def filled(self, tree: Tree) -> Tree | None:
        """The parts of a line that depend on the sizes of the values."""
        values, parts = self.values, self.parts
        match tree:
            case Call("sinusoids"):
                time, width = values["token_embedding"].shape
                return sinusoids(time, width, parts.position_base, parts.first_position, halves=parts.position_halves)
            case Call("rotate", (Reference(name) as x,)):
                assert parts.frequencies is not None
                time, width = values[name].shape[-2:]
                return rotary(x, time, width, parts.frequencies, parts.rotation)
            case Call("share", (Reference(shared) as x,), ()):
                groups = len(values["q" if shared == "k" else "weights"]) // len(values[shared])
                return x if groups == 1 else Call("share", (x,), (groups,))
            case Call("mask"):
                return Constant.of(self.mask(), "M")
            case Call("d_k"):
                return Constant(self.width(), "d_k")
            case Call("s"):
                return Constant.of(self.factor(), "s")
        return None

    def width(self) -> float:
        """The width of a head.

        Raises:
            UsageError: it is unknown.
        """
        d_k = next((self.values[name].shape[-1] for name in ("q", "k") if name in self.values), self.parts.d_k)
        if d_k is None:
            raise UsageError(
                "d_k: the scale {kind!r} needs the width of a head; give q and k, or d_k under [given]",
                kind=self.parts.scale,
            )
        return float(d_k)

    def factor(self) -> Tensor:
        """The factor of the scores, or those of the heads.

        Raises:
            UsageError: a learned factor is unknown.
        """
        values, kind = self.values, self.parts.scale
        if not isinstance(kind, str):
            return torch.tensor(kind, dtype=torch.float64)
        if "factor" not in values:
            raise UsageError(
                "factor: the scale {kind!r} needs the learned factor; give factor under [given]", kind=kind
            )
        factor, wanted = values["factor"], len(values["scores"]) if kind == "learned-per-head" else 1
        if len(factor) != wanted:
            raise UsageError(
                "factor: the scale {kind!r} needs {expected} of them, not {given}",
                kind=kind,
                expected=wanted,
                given=len(factor),
            )
        return factor.reshape(-1, 1, 1)

    def mask(self) -> Tensor:
        """0 where attention is allowed, −∞ elsewhere, [heads or 1, time, source]."""
        assert self.parts.mask is not None
        scores = self.values["scaled" if "scaled" in self.values else "scores"]
        time, source = scores.shape[-2:]
        allowed = self.parts.mask.allowed(time, source).reshape(-1, time, source)[-len(scores) :]
        return torch.where(allowed, 0.0, -math.inf).double()

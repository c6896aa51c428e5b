"""The recipe of a computation as text: embedding, attention, the block around it, the head after it.

Each line names a quantity and the expression that computes it. `follow` goes through the lines and adds every quantity
whose inputs are known. In worked examples the values are computed; a traced pass has recorded them.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from vitral.core.errors import UsageError
from vitral.core.language import N_, _
from vitral.explanation.expressions import Call, Constant, Reference, Tree, mapped, read, references
from vitral.explanation.rows import Beam, Filtered, Greedy, Rotary, Row, Sinusoids
from vitral.explanation.sheet import Architecture, SheetQuantity, Values

RECIPE = """
T token_embedding = lookup(embedding)                         # rows
T position_embedding = sinusoids(token_embedding)             # sinusoidal
T stream = token_embedding + position_embedding               # positions
T attn_norm = norm(stream, attn_norm_gain, attn_norm_bias)    # attn pre
Q q_pre = source @ w_q + rows(b_q)                            # attn rotary
Q q = rotate(q_pre)                                           # attn rotary
Q q = source @ w_q + rows(b_q)                                # attn plain
K k_pre = memory @ w_k + rows(b_k)                            # attn rotary
K k = rotate(k_pre)                                           # attn rotary
K k = memory @ w_k + rows(b_k)                                # attn plain
K v = memory @ w_v + rows(b_v)                                # attn
S scores = q @ share(k).T                                     # attn
S scaled = scale(scores)                                      # attn
S masked = scaled + bias + mask                               # attn
S weights = softmax(masked, base)                             # attn
Q z = weights @ share(v)                                      # attn
T out = merge(z) @ w_o + b_o                                  # attn
T attn_sum = stream + out                                     # attn post
T resid_mid = norm(attn_sum, attn_norm_gain, attn_norm_bias)  # attn post
T resid_mid = stream + out                                    # attn unnormed
T mlp_norm = norm(read, mlp_norm_gain, mlp_norm_bias)         # mlp pre
F mlp.gate = mlp_source @ w_gate + b_gate                     # mlp gated
F mlp.pre = mlp_source @ w_up + b_up                          # mlp
F mlp.hidden = activation(mlp.pre)                            # mlp
T mlp.out = mlp.hidden @ w_down + b_down                      # mlp
T mlp_sum = resid_mid + mlp.out                               # mlp post
T resid_post = norm(mlp_sum, mlp_norm_gain, mlp_norm_bias)    # mlp post
T resid_post = resid_mid + mlp.out                            # mlp unnormed
T final_norm = norm(resid_post, final_norm_gain, final_norm_bias)  # final
L logits = last @ embedding.T + b_u                           # tied
L logits = last @ w_u + b_u                                   # untied
L probabilities = softmax(logits, base)
"""
"""After #: the parts that a line belongs to; all of them must be there."""
_AXES = {
    "T": ("time", "d_model"),
    "Q": ("heads", "time", "d_head"),
    "K": ("heads", "time", "d_head"),
    "S": ("heads", "time", "source"),
    "F": ("time", "d_ff"),
    "L": ("time", "vocab"),
}
OPTIONAL = ("b_q", "b_k", "b_v", "w_o", "b_o", "b_u", "b_gate", "b_up", "b_down")
"""What a line does without; so do norms without gain and bias."""


def _as_it_is(tree: Tree, values: Values) -> tuple[Tree, Row | None]:
    return tree, None


@dataclass(frozen=True)
class RecipeLine:
    """One line of a recipe.

    Attributes:
        name: the quantity.
        axes: names of its axes.
        tree: the expression, with names of parts as functions.
        fill: puts the parts in their places, once everything is known; and the words of steps with their own.
    """

    name: str
    axes: tuple[str, ...]
    tree: Tree
    fill: Callable[[Tree, Values], tuple[Tree, Row | None]] = _as_it_is

    @property
    def needs(self) -> list[str]:
        """The quantities without which it cannot be computed."""
        return [each for each in references(self.tree) if not _is_optional(each)]


def chosen(name: str, row: Filtered | Greedy | Beam) -> RecipeLine:
    """The line of a choice of the next token."""
    axes = ("vocab",) if isinstance(row, Filtered) else ("choice",)
    return RecipeLine(name, axes, row.tree(), lambda tree, _: (tree, row))


def _is_optional(name: str) -> bool:
    return name in OPTIONAL or name.endswith(("norm_gain", "norm_bias"))


def follow(
    lines: Iterator[RecipeLine], values: dict[str, Tensor], recorded: Values | None = None
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
    for line in lines:
        if line.name in values or not all(name in values for name in line.needs):
            continue
        tree, row = line.fill(_without(line.tree, values), values)
        quantity = SheetQuantity(line.name, line.axes, tree, row)
        known = recorded is not None and line.name in recorded
        values[line.name] = recorded[line.name] if recorded and known else _computed(quantity, values)
        quantities.append(quantity)
    return tuple(quantities)


def _computed(quantity: SheetQuantity, values: Values) -> Tensor:
    name = quantity.name
    try:
        value = quantity.make(values)
    except UsageError:
        raise
    except (RuntimeError, ValueError):
        shapes = _(" and ").join(f"{each} {_shape(values[each])}" for each in quantity.inputs)
        raise UsageError(
            "{name} cannot be computed from {shapes}: the shapes do not fit", name=name, shapes=shapes
        ) from None
    if bool(value.isnan().any()):
        raise UsageError("{name}: a cell is not a number, as a norm of equal numbers with epsilon = 0", name=name)
    return value.clone() if isinstance(quantity.tree, Reference) else value  # two names of a tensor are an alias


def _shape(value: Tensor) -> str:
    return "[" + ", ".join(map(str, value.shape)) + "]"


def _without(tree: Tree, values: Values) -> Tree:
    """A tree without the terms and factors that may be missing and are."""

    def is_gone(part: Tree) -> bool:
        inside = part.arguments[0] if isinstance(part, Call) and part.function == "rows" else part
        return isinstance(inside, Reference) and _is_optional(inside.name) and inside.name not in values

    def change(part: Tree) -> Tree | None:
        if isinstance(part, Call) and part.function == "norm":
            usual = (Constant(0.0), Constant(1.0), Constant(0.0))
            made = (usual[at] if is_gone(each) else each for at, each in enumerate(part.arguments))
            return Call("norm", tuple(made))
        if isinstance(part, Call) and part.function in ("add", "matmul") and is_gone(part.arguments[1]):
            return mapped(part.arguments[0], change)
        return None

    return mapped(tree, change)


def missing_for(name: str, lines: Mapping[str, RecipeLine], values: Values) -> str:
    """The first quantity that is not known on the way to `name`; empty if there is none."""
    if name in values:
        return ""
    if name not in lines:
        return name
    return next((missing for each in lines[name].needs if (missing := missing_for(each, lines, values))), "")


def recipe(architecture: Architecture, values: dict[str, Tensor]) -> Iterator[RecipeLine]:
    """The lines of a computation.

    Some lines depend on which quantities are known, so `values` is read again before each line. A quantity that is
    another one unchanged is added to it: a token embedding without position embedding as the stream.
    """
    return _Recipe(architecture, values).lines()


class _Recipe:
    def __init__(self, parts: Architecture, values: dict[str, Tensor]) -> None:
        self.parts, self.values = parts, values

    def lines(self) -> Iterator[RecipeLine]:
        for line in RECIPE.strip().splitlines():
            text, _hash, marks = line.partition("#")
            self.continued()
            if not all(self.kinds[mark] for mark in marks.split()):
                continue
            axes, name, expression = text[0], *text[2:].split(" = ")
            of = ("heads", "source", "d_head") if axes == "K" and self.parts.memory else _AXES[axes]
            tree = mapped(read(expression), self.named)
            yield RecipeLine(self.parts.stream if name == "stream" else name, of, tree, self.filled)
            if name == "z" and "b_o" in self.values and "w_o" not in self.values:
                raise UsageError('b_o: is added after w_o; give w_o too (w_o = "identity" changes nothing)')

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
            "plain": parts.frequencies is None,
            "gated": parts.activation == "swiglu",
            "final": parts.norm is not None and parts.final_norm,
            "tied": parts.tied,
            "untied": not parts.tied,
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
        match tree:
            case Reference(name) if name in names:
                return Reference(names[name])
            case Reference("mask") if parts.mask is not None:
                return Call("mask", ())
            case Reference("base"):
                return Constant(parts.softmax_base)
            case Call("add", (scaled, Reference("bias"))):
                return scaled if parts.bias is None else Call("add", (scaled, Constant.of(parts.bias, "bias")))
            case Call("scale", (scores,)) if parts.scale is None:
                return Call("multiply", (scores, Reference("scale")))
            case Call("activation", (pre,)):
                gated = parts.activation == "swiglu"
                return read("silu(mlp.gate) * mlp.pre") if gated else Call(parts.activation, (pre,))
            case Call("add", (sum_, Reference("out" | "mlp.out") as output)) if not parts.residual:
                return output if isinstance(sum_, Reference) else None
        return None

    def filled(self, tree: Tree, values: Values) -> tuple[Tree, Row | None]:
        """The line with its parts, of the sizes of the values."""
        parts, rows = self.parts, []

        def change(node: Tree) -> Tree | None:
            match node:
                case Call("lookup", arguments, ()):
                    return Call("lookup", arguments, parts.rows)
                case Call("sinusoids"):
                    time, width = values["token_embedding"].shape
                    rows.append(
                        Sinusoids(time, width, parts.position_base, parts.position_halves, parts.first_position)
                    )
                    return rows[0].tree()
                case Call("rotate", (Reference(name) as x,)):
                    assert parts.frequencies is not None
                    rows.append(Rotary(parts.frequencies, parts.rotation))
                    return rows[0].tree(x, *values[name].shape[-2:])
                case Call("share", (Reference(few) as x,), ()):
                    groups = len(values["q" if few == "k" else "weights"]) // len(values[few])
                    return x if groups == 1 else Call("share", (x,), (groups,))
                case Call("mask"):
                    return Constant.of(self.mask(values["scaled"]), "M")
                case Call("scale", (scores,)):
                    return self.scaled(scores, values)
                case Call("softmax", (x, Constant(math.e))):
                    return Call("softmax", (x,))
                case Call("norm", (x, gain, shift)):
                    epsilon = Constant(parts.epsilon)
                    is_rms = parts.norm_type == "rmsnorm"
                    return Call(parts.norm_type, (x, gain, epsilon) if is_rms else (x, gain, shift, epsilon))
            return None

        return mapped(tree, change), next(iter(rows), None)

    def scaled(self, scores: Tree, values: Values) -> Tree:
        """The scaled scores.

        Raises:
            UsageError: the width of a head or a learned factor is unknown.
        """
        kind, heads = self.parts.scale, len(values["scores"])
        if kind in ("learned", "learned-per-head"):
            if "factor" not in values:
                complaint = N_("factor: the scale {kind!r} needs the learned factor; give factor under [given]")
                raise UsageError(complaint, kind=kind)
            factor, wanted = values["factor"].reshape(-1, 1, 1), heads if kind == "learned-per-head" else 1
            if len(factor) != wanted:
                complaint = N_("factor: the scale {kind!r} needs {expected} of them, not {given}")
                raise UsageError(complaint, kind=kind, expected=wanted, given=len(factor))
            return Call("multiply", (scores, Constant.of(factor, "s")))
        if kind == "none":
            return scores
        if not isinstance(kind, str):
            assert kind is not None
            return Call("multiply", (scores, Constant(float(kind), "s")))
        widths = [values[name].shape[-1] for name in ("q", "k") if name in values]
        d_k = widths[0] if widths else self.parts.d_k
        if d_k is None:
            raise UsageError(
                "d_k: the scale {kind!r} needs the width of a head; give q and k, or d_k under [given]", kind=kind
            )
        width = Constant(float(d_k), "d_k")
        if kind == "adaptive":
            return Call("adaptive", (scores, Constant.of(self.mask(values["scores"]), "M"), width))
        return Call("divide", (scores, width if kind == "linear" else Call("sqrt", (width,))))

    def mask(self, scores: Tensor) -> Tensor:
        """0 where attention is allowed, −∞ elsewhere, [heads or 1, time, source]."""
        if self.parts.mask is None:
            raise UsageError('mask: is needed after the scaled scores; add mask = "causal" or "bidirectional"')
        time, source = scores.shape[-2:]
        allowed = self.parts.mask.allowed(time, source).reshape(-1, time, source)[-len(scores) :]
        return torch.where(allowed, 0.0, -math.inf).double()

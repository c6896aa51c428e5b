"""Which quantities follow from what is given: attention, a block around it, the head after it.

A recipe is begun with what is given and grows as long as the next quantity's inputs are there.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from vitral.attention.masks import Mask
from vitral.core.errors import UsageError
from vitral.explain.operations import (
    Activate,
    Add,
    Linear,
    Lookup,
    Masking,
    Normalise,
    Operation,
    Output,
    Project,
    Scale,
    Score,
    Softmax,
    Weigh,
)
from vitral.explain.sheet import Quantity

HEADS = ("heads", "time", "d_head")
SQUARE = ("heads", "time", "source")
STREAM = ("time", "d_model")


@dataclass(frozen=True)
class Setting:
    """What a computation is, beside its numbers.

    Attributes:
        mask: how queries see keys; None where it was not said.
        scale: the scale's name, a number, or None where it was not said.
        num_heads: query heads.
        d_k: width of a head where neither q nor k says it.
        block: "pre", "post", or None for attention alone.
        activation: the feed-forward's.
        norm_type: "layernorm" or "rmsnorm".
        epsilon: the norms'.
        final_norm: whether a norm follows the block.
        tied: whether the head's matrix is the embedding.
        rows: which row of the embedding each position has.
    """

    mask: Mask | None = None
    scale: str | float | None = None
    num_heads: int = 1
    d_k: int | None = None
    block: str | None = None
    activation: str = "relu"
    norm_type: str = "layernorm"
    epsilon: float = 1e-5
    final_norm: bool = False
    tied: bool = False
    rows: tuple[int, ...] = ()


class Recipe:
    """Quantities in the order they are computed, grown from what is given.

    Attributes:
        known: names that have a value so far, given or to be computed, with their shapes' source.
        quantities: what is to be computed.
        values: of all of them.
    """

    def __init__(self, given: Mapping[str, Tensor]) -> None:
        """Begin with what is given."""
        self.values = dict(given)
        self.quantities: list[Quantity] = []

    def add(self, name: str, axes: tuple[str, ...], operation: Operation, *inputs: str) -> None:
        """Make a quantity, unless it is given.

        Raises:
            UsageError: shapes that do not fit.
        """
        if name in self.values:
            return
        quantity = Quantity(name, axes, operation, inputs)
        try:
            self.values[name] = quantity.make(self.values)
        except UsageError:
            raise
        except (RuntimeError, ValueError):
            shapes = " and ".join(f"{each} {_shape(self.values[each])}" for each in inputs)
            raise UsageError(f"{name} cannot be made of {shapes}: the shapes do not fit") from None
        if bool(self.values[name].isnan().any()):
            raise UsageError(f"{name}: a cell is not a number, as a norm of equal numbers with epsilon = 0")
        self.quantities.append(quantity)

    def has(self, *names: str) -> bool:
        """Whether all of these have a value."""
        return all(name in self.values for name in names)

    def present(self, *names: str) -> tuple[str, ...]:
        """Those that have a value."""
        return tuple(name for name in names if name in self.values)


def grow(recipe: Recipe, setting: Setting) -> Recipe:
    """Add all quantities that follow from what is given.

    Raises:
        UsageError: shapes that do not fit, or a mask or scale that is needed and was not said.
    """
    _embedding(recipe, setting)
    if setting.block is None:
        _attention(recipe, setting, "x")
        last = "out"
    else:
        _block(recipe, setting)
        last = "final_norm" if recipe.has("final_norm") else "resid_post"
    if not recipe.has(last):
        last = "x"
    _head(recipe, setting, last)
    return recipe


def _embedding(recipe: Recipe, setting: Setting) -> None:
    if recipe.has("embedding") and setting.rows:
        recipe.add("token_embedding", STREAM, Lookup(setting.rows), "embedding")
    if recipe.has("token_embedding", "position_embedding"):
        recipe.add("x", STREAM, Add("token_embedding", "position_embedding"), "token_embedding", "position_embedding")
    elif recipe.has("token_embedding"):
        recipe.values.setdefault("x", recipe.values["token_embedding"])


def _attention(recipe: Recipe, setting: Setting, source: str) -> None:
    for name in ("q", "k", "v"):
        if recipe.has(source, f"w_{name}"):
            inputs = recipe.present(source, f"w_{name}", f"b_{name}")
            recipe.add(name, HEADS, Project(name.upper(), source), *inputs)
    if recipe.has("q", "k"):
        recipe.add("scores", SQUARE, Score(), "q", "k")
    if recipe.has("scores"):
        recipe.add("scaled", SQUARE, _scale(recipe, setting), "scores")
    if recipe.has("scaled") and not recipe.has("masked"):
        recipe.add("masked", SQUARE, Masking(_allowed(recipe.values["scaled"], setting)), "scaled")
    if recipe.has("masked"):
        recipe.add("weights", SQUARE, Softmax("masked"), "masked")
    if recipe.has("weights", "v"):
        recipe.add("z", HEADS, Weigh(), "weights", "v")
    if recipe.has("b_o") and not recipe.has("w_o"):
        raise UsageError('b_o: is added after w_o; give w_o too (w_o = "identity" changes nothing)')
    if recipe.has("z"):
        inputs = recipe.present("z", "w_o", "b_o")
        recipe.add("out", STREAM, Output(len(recipe.values["z"]), "w_o" in inputs), *inputs)


def _scale(recipe: Recipe, setting: Setting) -> Scale:
    """The scale, with its number worked out."""
    kind, scores = setting.scale, recipe.values["scores"]
    if kind is None:
        raise UsageError('scale: is needed to go on from the scores; say scale = "none", "sqrt", "linear" or a number')
    known = [recipe.values[name].shape[-1] for name in ("q", "k") if recipe.has(name)]
    d_head = known[0] if known else setting.d_k
    if not isinstance(kind, str):
        return Scale("number", torch.tensor(float(kind), dtype=torch.float64), d_head=d_head)
    if kind in ("learned", "learned-per-head"):
        return Scale(kind, _factor(recipe, kind, len(scores)), d_head=d_head)
    if kind == "none":
        return Scale(kind, torch.tensor(1.0, dtype=torch.float64), d_head=d_head)
    if d_head is None:
        raise UsageError(f"d_k: the scale {kind!r} needs the width of a head; give q and k, or d_k under [given]")
    usual = 1 / d_head if kind == "linear" else 1 / math.sqrt(d_head)
    allowed = _allowed(scores, setting) if kind == "adaptive" else None
    return Scale(kind, torch.tensor(usual, dtype=torch.float64), allowed, d_head)


def _factor(recipe: Recipe, kind: str, num_heads: int) -> Tensor:
    if not recipe.has("factor"):
        raise UsageError(f"factor: the scale {kind!r} is learned; give what was learned as factor under [given]")
    factor = recipe.values["factor"].reshape(-1, 1, 1)
    expected = num_heads if kind == "learned-per-head" else 1
    if len(factor) != expected:
        raise UsageError(f"factor: the scale {kind!r} needs {expected} of them, not {len(factor)}")
    return factor


def _allowed(scores: Tensor, setting: Setting) -> Tensor:
    if setting.mask is None:
        raise UsageError('mask: is needed to go on from the scaled scores; say mask = "causal" or "bidirectional"')
    time, source = scores.shape[-2:]
    return setting.mask.allowed(time, source).reshape(-1, time, source)[-len(scores) :]


def _block(recipe: Recipe, setting: Setting) -> None:
    """One block in pre- or post-norm; a norm's gain is ones where it is not given."""
    if recipe.has("x"):
        for name in ("norm_1", "norm_2", "final_norm"):
            recipe.values.setdefault(f"{name}_gain", torch.ones_like(recipe.values["x"][0]))
    if setting.block == "pre":
        _norm(recipe, setting, "norm_1", "x", "norm_1")
        _attention(recipe, setting, "norm_1")
        _add(recipe, "resid_mid", "x", "out")
        _norm(recipe, setting, "norm_2", "resid_mid", "norm_2")
        _feed_forward(recipe, setting, "norm_2")
        _add(recipe, "resid_post", "resid_mid", "mlp_out")
    else:
        _attention(recipe, setting, "x")
        _add(recipe, "sum_1", "x", "out")
        _norm(recipe, setting, "resid_mid", "sum_1", "norm_1")
        _feed_forward(recipe, setting, "resid_mid")
        _add(recipe, "sum_2", "resid_mid", "mlp_out")
        _norm(recipe, setting, "resid_post", "sum_2", "norm_2")
    if setting.final_norm:
        _norm(recipe, setting, "final_norm", "resid_post", "final_norm")


def _norm(recipe: Recipe, setting: Setting, name: str, made_of: str, norm: str) -> None:
    """A norm, if what it is made of is there."""
    if recipe.has(made_of):
        operation = Normalise(setting.norm_type, setting.epsilon, made_of)
        recipe.add(name, STREAM, operation, *recipe.present(made_of, f"{norm}_gain", f"{norm}_bias"))


def _add(recipe: Recipe, name: str, left: str, right: str) -> None:
    """A sum, if both its terms are there."""
    if recipe.has(left, right):
        recipe.add(name, STREAM, Add(left, right), left, right)


def _feed_forward(recipe: Recipe, setting: Setting, source: str) -> None:
    if recipe.has(source, "w_1"):
        inputs = recipe.present(source, "w_1", "b_1")
        recipe.add("pre_activation", ("time", "d_ff"), Linear("(1)", source), *inputs)
    if recipe.has("pre_activation"):
        recipe.add("hidden", ("time", "d_ff"), Activate(setting.activation), "pre_activation")
    if recipe.has("hidden", "w_2"):
        recipe.add("mlp_out", STREAM, Linear("(2)", "hidden"), *recipe.present("hidden", "w_2", "b_2"))


def _head(recipe: Recipe, setting: Setting, last: str) -> None:
    axes = ("time", "vocab")
    if setting.tied and recipe.has(last, "embedding"):
        recipe.add("logits", axes, Linear("E", last, tied=True), last, "embedding")
    elif recipe.has(last, "w_u"):
        recipe.add("logits", axes, Linear("U", last), last, "w_u")
    if recipe.has("logits"):
        recipe.add("probabilities", axes, Softmax("logits"), "logits")


def _shape(value: Tensor) -> str:
    return "[" + ", ".join(map(str, value.shape)) + "]"

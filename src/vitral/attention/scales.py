"""Scales: the factor that multiplies the scores before the softmax.

Every scale is constant along a row of scores (one query of one head), so it can be folded into the query,
s (q·k) = (s q)·k; the fused execution uses it in this form.

    none      1
    sqrt      1/√d_k           Vaswani et al. 2017, eq. 1: keeps Var(q·k) = 1 for independent unit-variance q, k
    linear    1/d_k            Yang et al. 2022 (μP): Var = 1/d_k
    constant  any number
    learned   one parameter, or one per head, starting at 1/√d_k
    adaptive  per query, 1/σ of its scores over its visible keys
"""

import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal, get_args

import torch
from jaxtyping import Bool, Float
from pydantic import BeforeValidator, InstanceOf
from torch import Tensor, nn

from vitral.attention import steps
from vitral.core.config import nearest
from vitral.core.errors import UsageError
from vitral.core.language import _
from vitral.core.parts import OwnPart, own_module

ScaleName = Literal["none", "sqrt", "linear", "adaptive", "learned", "learned-per-head"]


class OwnScale(OwnPart):
    """A registered scale: a number, or a module that returns a number or a tensor [heads, 1, 1]."""

    kinds = ("scale",)
    built_in = get_args(ScaleName)


def _choose(scale: Any) -> Any:
    return OwnScale.choose(scale) if isinstance(scale, str | Mapping) else scale


ScaleConfig = Annotated[ScaleName | float | InstanceOf[OwnScale], BeforeValidator(_choose)]

ADAPTIVE_EPSILON = 1e-6
"""Scores with a standard deviation below this count as equal and are scaled by 1/√d_k."""


def adaptive_factor(
    q: Float[Tensor, "*batch time d_head"],
    k: Float[Tensor, "*batch source d_head"],
    allowed: Bool[Tensor, "..."],
) -> Float[Tensor, "*batch time 1"]:
    """Per query, 1/σ of its scores over its visible keys, so that the future has no influence.

    σ is the population standard deviation. Where fewer than two keys are visible, or σ is below
    `ADAPTIVE_EPSILON`, the factor is 1/√d_k.
    """
    return spread_factor(steps.score(q, k), allowed, 1 / math.sqrt(q.shape[-1]))


def spread_factor(
    scores: Float[Tensor, "*batch time source"], allowed: Bool[Tensor, "..."], usual: float
) -> Float[Tensor, "*batch time 1"]:
    """The adaptive factor of rows of scores: 1/σ of the allowed ones, or `usual` where it is undefined."""
    seen = allowed.expand(scores.shape)
    count = seen.sum(dim=-1, keepdim=True)
    visible = scores.masked_fill(~seen, 0.0)
    mean = visible.sum(dim=-1, keepdim=True) / count.clamp(min=1)
    variance = (scores - mean).square().masked_fill(~seen, 0.0).sum(dim=-1, keepdim=True) / count.clamp(min=1)
    spread = variance >= ADAPTIVE_EPSILON**2  # a single key has zero variance
    # Take the root of 1 where it is unused: the gradient at zero is not finite.
    return torch.where(spread, variance.masked_fill(~spread, 1.0).rsqrt(), torch.full_like(variance, usual))


def factor_of(
    scale: "str | float | Tensor",
    q: Float[Tensor, "*batch time d_head"],
    k: Float[Tensor, "*batch source d_head"],
    allowed: Bool[Tensor, "..."] | None,
) -> "float | Tensor":
    """The factor of the scores, for a scale given as a name, a number or a tensor.

    Args:
        scale: "none", "sqrt", "linear", "adaptive", a number, or a tensor that broadcasts to [..., time, 1].
        q: queries.
        k: keys.
        allowed: visible keys of each query, None for all; used by the adaptive scale only.

    Raises:
        UsageError: the name is unknown, the number is not finite, or the tensor does not broadcast.
    """
    if isinstance(scale, Tensor):
        if not broadcasts(scale, (*q.shape[:-1], 1)):
            raise UsageError(
                "scale: shape {shape} does not broadcast to {wanted}",
                shape=tuple(scale.shape),
                wanted=(*q.shape[:-1], 1),
            )
        return scale.to(q.dtype)
    if not isinstance(scale, str):
        if not math.isfinite(scale):
            raise UsageError("scale: {scale} is not finite", scale=scale)
        return float(scale)
    d_head = q.shape[-1]
    if scale == "adaptive":
        everything = torch.ones((), dtype=torch.bool, device=q.device)
        return adaptive_factor(q, k, everything if allowed is None else allowed)
    fixed = {"none": 1.0, "sqrt": 1 / math.sqrt(d_head), "linear": 1 / d_head}
    if scale in fixed:
        return fixed[scale]
    if scale in ("learned", "learned-per-head"):
        raise UsageError("scale {scale!r} has parameters: give it to a model, or pass its tensor here", scale=scale)
    raise UsageError("scale {scale!r}: {hint}", scale=scale, hint=nearest(scale, [*fixed, "adaptive"]))


def broadcasts(tensor: Tensor, shape: tuple[int, ...]) -> bool:
    """Whether a tensor broadcasts to `shape` without enlarging it.

    >>> broadcasts(torch.ones(3, 1), (2, 3, 5)), broadcasts(torch.ones(7, 3, 1), (1, 3, 5))
    (True, False)
    """
    trailing = zip(reversed(tensor.shape), reversed(shape), strict=False)
    return tensor.dim() <= len(shape) and all(size in (1, wanted) for size, wanted in trailing)


class LearnedScale(nn.Module):
    """One learned factor, or one per head, starting at 1/√d_k."""

    def __init__(self, num_factors: int, d_head: int) -> None:
        """Make `num_factors` (1 or the number of heads) parameters."""
        super().__init__()
        self.factor = nn.Parameter(torch.full((num_factors, 1, 1), 1 / math.sqrt(d_head)))

    def forward(self) -> Float[Tensor, "factors 1 1"]:
        """The factors, shaped to multiply scores [batch, heads, time, source]."""
        return self.factor


class GivenScale(nn.Module):
    """A scale without parameters, given by name or value."""

    def __init__(self, scale: str | float) -> None:
        """Store the name or value."""
        super().__init__()
        self.scale = scale

    def forward(self) -> str | float:
        """The name or value."""
        return self.scale


def build_scale(scale: ScaleConfig, num_heads: int, d_head: int) -> nn.Module:
    """The module of a configured scale; calling it returns the `scale` argument of `attend`."""
    if isinstance(scale, OwnScale):
        return _own_scale(scale, num_heads, d_head)
    learned = {"learned": 1, "learned-per-head": num_heads}
    if scale in learned:
        return LearnedScale(learned[scale], d_head)
    return GivenScale(scale)


def _own_scale(own: OwnScale, num_heads: int, d_head: int) -> nn.Module:
    """The module of a registered scale.

    Raises:
        UsageError: it is neither a finite number nor a tensor that broadcasts to [heads, 1, 1].
    """
    made = own.make(num_heads, d_head)
    module = GivenScale(float(made)) if _is_number(made) else own_module(own, made)
    with own.tried():
        factor = module()
    fits = isinstance(factor, Tensor) and broadcasts(factor, (num_heads, 1, 1)) and bool(factor.isfinite().all())
    if not fits and not (_is_number(factor) and math.isfinite(factor)):
        given = tuple(factor.shape) if isinstance(factor, Tensor) else repr(factor)
        raise own.wrong(
            _(
                "it gives {given}, not a finite number or a tensor of finite numbers [{heads}, 1, 1]",
                given=given,
                heads=num_heads,
            )
        )
    return module


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)

"""The functions of expressions: one table for parsing, shapes, cost and values."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

Settings = Sequence[int | None]


@dataclass(frozen=True)
class Function:
    """A function of tensors.

    Attributes:
        compute: the value, of the arguments and the settings; called with tensors of the meta device for the shape.
        least: smallest number of arguments that are tensors.
        most: largest number of arguments that are tensors.
        settings: largest number of whole numbers after them.
    """

    compute: Callable[[Sequence[Tensor], Settings], Tensor]
    least: int = 1
    most: int = 1
    settings: int = 0


def _axis(settings: Settings) -> int:
    return -1 if not settings or settings[0] is None else settings[0]


def _whole(reduce: Callable[..., Tensor]) -> Callable[[Sequence[Tensor], Settings], Tensor]:
    """A reduction over one axis, which stays with size 1, or over everything."""

    def compute(arguments: Sequence[Tensor], settings: Settings) -> Tensor:
        [x] = arguments
        return reduce(x, dim=settings[0], keepdim=True) if settings else reduce(x)

    return compute


def _elementwise(function: Callable[[Tensor], Tensor]) -> Function:
    return Function(lambda arguments, _: function(arguments[0]))


def _two(function: Callable[[Tensor, Tensor], Tensor]) -> Function:
    return Function(lambda arguments, _: function(arguments[0], arguments[1]), 2, 2)


def _pick(arguments: Sequence[Tensor], settings: Settings) -> Tensor:
    """Settings: the axis, the first index and the end, None for an open one."""
    [x] = arguments
    axis, start, end = settings
    return x[(slice(None),) * ((axis or 0) % x.dim()) + (slice(start, end),)]


def _norm(arguments: Sequence[Tensor], _: Settings) -> Tensor:
    x, *rest = arguments
    epsilon = 1e-5 if len(rest) < 3 else rest[2]
    centred = x - x.mean(dim=-1, keepdim=True)
    made = centred / (centred.square().mean(dim=-1, keepdim=True) + epsilon).sqrt()
    return made * (rest[0] if rest else 1.0) + (rest[1] if len(rest) > 1 else 0.0)


def _rms_norm(arguments: Sequence[Tensor], _: Settings) -> Tensor:
    x, *rest = arguments
    epsilon = 1e-5 if len(rest) < 2 else rest[1]
    return x / (x.square().mean(dim=-1, keepdim=True) + epsilon).sqrt() * (rest[0] if rest else 1.0)


FUNCTIONS: dict[str, Function] = {
    "add": _two(torch.add),
    "subtract": _two(torch.sub),
    "multiply": _two(torch.mul),
    "divide": _two(torch.div),
    "power": _two(torch.pow),
    "matmul": _two(torch.matmul),
    "negative": _elementwise(torch.neg),
    "transpose": _elementwise(lambda x: x.mT if x.dim() > 1 else x),
    "exp": _elementwise(torch.exp),
    "log": _elementwise(torch.log),
    "sqrt": _elementwise(torch.sqrt),
    "abs": _elementwise(torch.abs),
    "sin": _elementwise(torch.sin),
    "cos": _elementwise(torch.cos),
    "tanh": _elementwise(torch.tanh),
    "sigmoid": _elementwise(torch.sigmoid),
    "relu": _elementwise(torch.relu),
    "gelu": _elementwise(functional.gelu),
    "silu": _elementwise(functional.silu),
    "softmax": Function(lambda arguments, settings: torch.softmax(arguments[0], dim=_axis(settings)), settings=1),
    "sum": Function(_whole(torch.sum), settings=1),
    "mean": Function(_whole(torch.mean), settings=1),
    "var": Function(_whole(lambda x, **axis: torch.var(x, correction=0, **axis)), settings=1),
    "max": Function(_whole(lambda x, **axis: torch.amax(x, **axis)), settings=1),
    "min": Function(_whole(lambda x, **axis: torch.amin(x, **axis)), settings=1),
    "layernorm": Function(_norm, 1, 4),
    "rmsnorm": Function(_rms_norm, 1, 3),
    "where": Function(lambda arguments, _: torch.where(arguments[0] != 0, arguments[1], arguments[2]), 3, 3),
    "less": _two(lambda left, right: (left < right).double()),
    "concat": Function(lambda arguments, settings: torch.cat(tuple(arguments), dim=_axis(settings)), 1, 32, settings=1),
    "pick": Function(_pick, settings=3),
}
"""By name. "pick" is written as a subscript: x[0], x[:, 1:3]; every axis stays, so x[0] is a matrix of one row."""

NAMES = {"pi": math.pi, "e": math.e, "inf": math.inf}
"""Names of constants."""

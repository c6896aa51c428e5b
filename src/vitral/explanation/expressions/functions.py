"""The functions of expressions: one table for parsing, shapes, cost and values."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from vitral.core.errors import UsageError

Settings = Sequence[int | None]


@dataclass(frozen=True)
class Function:
    """A function of tensors.

    Attributes:
        compute: the value, of the arguments and the settings; called with tensors of the meta device for the shape.
        least: smallest number of arguments that are tensors.
        most: largest number of arguments that are tensors.
        settings: largest number of whole numbers after them.
        setting: the keyword of such a number.
        cells: whether each number of the result is the function of the numbers at the same place.
    """

    compute: Callable[[Sequence[Tensor], Settings], Tensor]
    least: int = 1
    most: int = 1
    settings: int = 0
    setting: str = "axis"
    cells: bool = False


def _axis(settings: Settings) -> int:
    return -1 if not settings or settings[0] is None else settings[0]


def _whole(reduce: Callable[..., Tensor]) -> Callable[[Sequence[Tensor], Settings], Tensor]:
    """A reduction over one axis, which stays with size 1, or over everything."""

    def compute(arguments: Sequence[Tensor], settings: Settings) -> Tensor:
        [x] = arguments
        return reduce(x, dim=settings[0], keepdim=True) if settings else reduce(x)

    return compute


def _elementwise(function: Callable[[Tensor], Tensor]) -> Function:
    return Function(lambda arguments, _: function(arguments[0]), cells=True)


def _two(function: Callable[[Tensor, Tensor], Tensor]) -> Function:
    return Function(lambda arguments, _: function(arguments[0], arguments[1]), 2, 2, cells=True)


def _pick(arguments: Sequence[Tensor], settings: Settings) -> Tensor:
    """Settings: the axis, the first index and the end, None for an open one."""
    [x] = arguments
    axis, start, end = settings
    made = x[(slice(None),) * ((axis or 0) % x.dim()) + (slice(start, end),)]
    if made.numel() == 0:
        raise IndexError(start)
    return made


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


def _causal(arguments: Sequence[Tensor], _: Settings) -> Tensor:
    [x] = arguments
    above = torch.ones(x.shape[-2:], dtype=torch.bool, device=x.device).triu(1 + x.shape[-1] - x.shape[-2])
    return x.masked_fill(above, -math.inf)


def _normalised(arguments: Sequence[Tensor], settings: Settings) -> Tensor:
    """Zeros where everything is −∞, as in attention."""
    [x] = arguments
    empty = (x == -math.inf).all(dim=_axis(settings), keepdim=True)
    return torch.softmax(x.masked_fill(empty, 0.0), dim=_axis(settings)).masked_fill(empty, 0.0)


def _one_hot(arguments: Sequence[Tensor], settings: Settings) -> Tensor:
    """One row of zeros and a one for each index, counted from 0.

    Raises:
        UsageError: an index that is no whole number, or out of range.
    """
    [indices] = arguments
    [count] = settings
    count = count or 0
    if not 1 <= count <= MOST_CLASSES or indices.dim() != 1:
        raise ValueError(count)
    places = torch.arange(count, dtype=indices.dtype, device=indices.device)
    made = (indices[:, None] == places).double()
    if indices.device.type != "meta" and not bool((made.sum(dim=-1) == 1).all()):
        wrong = float(indices[made.sum(dim=-1) != 1][0])
        raise UsageError(
            "{index}: expected a whole number from 0 to {last}; indices are counted from 0",
            index=f"{wrong:g}",
            last=count - 1,
        )
    return made


def _cross_entropy(arguments: Sequence[Tensor], _: Settings) -> Tensor:
    """The mean over rows of −Σ t log softmax(logits), t a row of shares or the one-hot row of an index."""
    logits, targets = arguments
    rows = logits.numel() // logits.shape[-1]
    if targets.dim() <= 1 and targets.numel() == rows and targets.shape != logits.shape:
        targets = _one_hot([targets.reshape(-1)], [logits.shape[-1]])
    shares = targets.reshape(logits.shape)
    logs = logits - torch.logsumexp(logits, dim=-1, keepdim=True)
    terms = torch.where(shares != 0, shares * torch.where(shares != 0, logs, 0.0), 0.0)
    return -terms.sum() / rows


MOST_CLASSES = 10**4

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
    "floor": _elementwise(torch.floor),
    "maximum": _two(torch.maximum),
    "minimum": _two(torch.minimum),
    "softmax": Function(_normalised, settings=1),
    "log_softmax": Function(lambda arguments, settings: torch.log_softmax(arguments[0], _axis(settings)), settings=1),
    "causal": Function(_causal),
    "cross_entropy": Function(_cross_entropy, 2, 2),
    "one_hot": Function(_one_hot, settings=1, setting="size"),
    "row": Function(lambda arguments, _: arguments[0].reshape(1, -1)),
    "column": Function(lambda arguments, _: arguments[0].reshape(-1, 1)),
    "sum": Function(_whole(torch.sum), settings=1),
    "mean": Function(_whole(torch.mean), settings=1),
    "var": Function(_whole(lambda x, **axis: torch.var(x, correction=0, **axis)), settings=1),
    "max": Function(_whole(lambda x, **axis: torch.amax(x, **axis)), settings=1),
    "min": Function(_whole(lambda x, **axis: torch.amin(x, **axis)), settings=1),
    "layernorm": Function(_norm, 1, 4),
    "rmsnorm": Function(_rms_norm, 1, 3),
    "where": Function(
        lambda arguments, _: torch.where(arguments[0] != 0, arguments[1], arguments[2]), 3, 3, cells=True
    ),
    "less": _two(lambda left, right: (left < right).double()),
    "equal": _two(lambda left, right: (left == right).double()),
    "concat": Function(lambda arguments, settings: torch.cat(tuple(arguments), dim=_axis(settings)), 1, 32, settings=1),
    "pick": Function(_pick, settings=3),
}
"""By name. "pick" is written as a subscript: x[0], x[:, 1:3]; every axis stays, so x[0] is a matrix of one row."""

GRADIENT = "grad"
"""Written as a function of two names: grad(loss, w_q); a step turns it into a quantity of its own."""

NAMES = {"pi": math.pi, "e": math.e, "inf": math.inf}
"""Names of constants."""

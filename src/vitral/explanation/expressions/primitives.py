"""The table of primitives: what each computes, its derivative, and where its numbers come from.

Every reading of a tree (its value, its formula, the arithmetic of a cell, its gradient, the slips of an author) looks
at the kind of a primitive and seldom at its name.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import chain
from typing import Any

import torch
from torch import Tensor

from vitral.core.errors import UsageError
from vitral.core.graphs import is_tracing
from vitral.decoding.sampling import check_top_k, keep_min_p, keep_top_k, keep_top_p

Index = tuple[Any, ...]
"""For each axis the number of a cell, a letter (any cell) or None (the whole axis)."""
MOST_EXPONENT = 20.0
"""If an exponent is larger, the largest of its row is subtracted first: e^20 is already 485,165,195."""
LEAST_EXPONENT = -5.0
"""If all exponents of a row are smaller, too: e^−5 is already 0.007."""
MOST_ONES = 10**6
"""Numbers of one `one_hot`."""


@dataclass(frozen=True)
class Primitive:
    """One row of the table.

    Attributes:
        kind: "cell" (number by number), "dot", "fold" (a reduction), "move" (numbers change places), "silent" (not
            written) or "named" (written as a function of its arguments).
        value: of tensors and settings; called with tensors of the meta device for the shape.
        vjp: for each argument its share of the gradient, as an expression of d, the result y and the arguments a, b, c.
        moved: of a move, the index in its argument of a cell of the result, given the argument's shape.
    """

    kind: str
    value: Callable[..., Tensor]
    vjp: tuple[str, ...] = ()
    moved: Callable[..., Index] = lambda index, shape, *settings: index


@lru_cache(maxsize=4096)
def _origin(value: Callable[..., Tensor], index: Index, shape: Sequence[int], *settings: Any) -> Index:
    """The index in a move's argument of a cell of its result: coordinates move as numbers do.

    A letter, or a whole axis, stays one where it is that of a single axis of the argument.
    """
    letters = [entry for entry in index if not isinstance(entry, int)]
    cells = tuple(entry if isinstance(entry, int) else slice(None) for entry in index)
    # Along an axis of a single number, no coordinate would change.
    sizes = [max(2, size) for size in shape] if letters else shape
    grids = torch.meshgrid(*map(torch.arange, sizes), indexing="ij") if shape else ()
    coordinates = [value(grid, *settings)[cells] for grid in grids]
    changing = [[axis for axis in range(x.dim()) if bool(x.diff(dim=axis).any())] for x in coordinates]
    uses = Counter(chain(*changing))
    origin: list[Any] = []
    for x, size, axes in zip(coordinates, shape, changing, strict=True):
        is_one = len(axes) == 1 and uses[axes[0]] == 1
        number = None if axes else min(int(x.reshape(-1)[0]), size - 1)
        origin.append(letters[axes[0]] if is_one else number)
    return tuple(origin)


def _move(value: Callable[..., Tensor], *vjp: str, moved: Callable[..., Index] | None = None) -> Primitive:
    return Primitive("move", value, vjp, moved or partial(_origin, value))


def _fold(reduce: Callable[..., Tensor], *vjp: str) -> Primitive:
    """A reduction over everything or one axis, which stays with size 1 unless there is a further setting."""
    return Primitive("fold", lambda x, *s: reduce(x, dim=s[0], keepdim=len(s) < 2) if s else reduce(x), vjp)


def _shift(x: Tensor, axis: int = -1) -> Tensor:
    """The largest entry of a row if its exponential is too large or too small to write, else 0."""
    size = torch.where(x == -math.inf, 0.0, x).abs().amax(axis, keepdim=True)
    most = torch.where(x == -math.inf, -1e300, x).amax(axis, keepdim=True)
    return torch.where((size > MOST_EXPONENT) | ((most < LEAST_EXPONENT) & (most > -1e299)), most, 0.0)


def _seen(x: Tensor, mask: Tensor, axis: int) -> Tensor:
    """The mean of the scores that a mask does not hide."""
    seen = (mask == 0).double().expand_as(x)
    mean = torch.where(seen != 0, x, 0.0).sum(axis, keepdim=True) / seen.sum(axis, keepdim=True).clamp(min=1)
    return torch.where(mean.abs() > 1e-12, mean, 0.0)


def _one_hot(indices: Tensor, count: int) -> Tensor:
    """One row of zeros and a one for each index, counted from 0.

    Raises:
        UsageError: an index that is no whole number, or out of range.
    """
    if indices.dim() != 1 or not 1 <= count * len(indices) <= MOST_ONES:
        raise ValueError(count)
    rows = (indices[:, None] == torch.arange(count, dtype=indices.dtype, device=indices.device)).double()
    count_of_ones = rows.sum(dim=-1, keepdim=True)
    if is_tracing():  # other numbers may come: not a number where there is no such row
        return rows / count_of_ones
    try:
        is_wrong = not bool((count_of_ones == 1).all())
    except RuntimeError:  # of many sheets at once
        return rows / count_of_ones
    if is_wrong:
        wrong = float(indices[rows.sum(dim=-1) != 1][0])
        raise UsageError(
            "{index}: expected a whole number from 0 to {last}; indices are counted from 0",
            index=f"{wrong:g}",
            last=count - 1,
        )
    return rows


def _target(targets: Tensor, logits: Tensor) -> Tensor:
    """Rows of shares in the shape of the logits: of indices those with a single one."""
    rows = logits.numel() // logits.shape[-1]
    if targets.dim() <= 1 and targets.numel() == rows and targets.shape != logits.shape:
        targets = _one_hot(targets.reshape(-1), logits.shape[-1])
    return targets.reshape(logits.shape)


def _pick(x: Tensor, axis: int, start: int | None, end: int | None) -> Tensor:
    part = x[(slice(None),) * (axis % x.dim()) + (slice(start, end),)]
    if part.numel() == 0:
        raise IndexError(start)
    return part


def _unpicked(d: Tensor, x: Tensor, axis: int, start: int | None, end: int | None) -> Tensor:
    dim, chosen = axis % x.dim(), range(x.shape[axis])[start:end]
    room = (chosen[0], x.shape[axis] - chosen[-1] - 1)
    return torch.nn.functional.pad(d, (*(0, 0) * (x.dim() - 1 - dim), *room))


def _gathered(d: Tensor, table: Tensor, *rows: int) -> Tensor:
    """The rows of a gradient, each added to the row of the table that it was copied from."""
    return torch.zeros_like(table).index_add(-2, torch.tensor(rows, device=d.device), d)


def _concat(*parts: Any) -> Tensor:
    """Tensors side by side, along an axis if one is said."""
    tensors = [part for part in parts if isinstance(part, Tensor)]
    return torch.cat(tensors, *parts[len(tensors) :] or (-1,))


def _looked_up(index: Index, shape: Sequence[int], *rows: int) -> Index:
    return (rows[index[-2]] if isinstance(index[-2], int) else None, index[-1])


def _partner(index: Index, shape: Sequence[int], *order: int) -> Index:
    """The other feature of a pair; of feature i that which is as far as the first one's."""
    column = index[-1]
    if isinstance(column, str):
        return (*index[:-1], column.partition("+")[0] if "+" in column else f"{column}+{order[0]}")
    return (*index[:-1], order[column])


def _filter(keep: Callable[[Tensor, float], Tensor]) -> Primitive:
    """Probabilities, zero where a filter drops the word; the filter's number is the second argument."""

    def value(shares: Tensor, number: Tensor) -> Tensor:
        filtered = keep(shares.log().reshape(-1, shares.shape[-1]), float(number)).reshape(shares.shape)
        return shares.masked_fill(filtered == -math.inf, 0.0)

    return Primitive("named", value)


def _keep_top_k(logits: Tensor, k: float) -> Tensor:
    check_top_k(int(k), logits.shape[-1])
    return keep_top_k(logits, int(k))


def hypotheses_of(table: Tensor, start: int, num_beams: int, length: int) -> tuple[Tensor, Tensor]:
    """The last hypotheses of beam search in a bigram table, best first: words, [n, length], and log-probabilities.

    Nothing is decided in Python, so that it has a graph. The hypotheses stay in the order of their words, so that of
    equal ones the first by index is kept, as in `beam_search`.
    """
    steps = (table / table.sum(dim=-1, keepdim=True)).log()
    words, scores, last = torch.zeros(1, 0).long(), steps.new_zeros(1), torch.tensor([start])
    for _ in range(length):
        grown = (scores[:, None] + steps[last]).flatten()
        best = grown.sort(descending=True, stable=True).indices[:num_beams].sort().values
        before, last, scores = best // len(table), best % len(table), grown[best]
        words = torch.cat((words[before], last[:, None]), dim=1)
    order = scores.sort(descending=True, stable=True).indices
    return words[order], scores[order]


_CELLS = """
add: d | d
subtract: d | -d
multiply: d * b | d * a
divide: d / b | -(d * y / b)
over: d / b | -(d * y / b)
power: d * (b * a ** (b - 1)) | d * (y * log(a))
negative: -d
exp: d * y
log: d / a
sin: d * cos(a)
cos: -(d * sin(a))
tanh: d * (1 - y ** 2)
root: d / (2 * y)
abs: d * (1 - 2 * less(a, 0))
floor: 0 * d
Φ: d * φ(a)
φ: -(d * a * y)
maximum: where(equal(a, b), d / 2, d * less(b, a)) | where(equal(a, b), d / 2, d * less(a, b))
minimum: where(equal(a, b), d / 2, d * less(a, b)) | where(equal(a, b), d / 2, d * less(b, a))
where: 0 | where(a, d, 0) | where(a, 0, d)
less: 0 | 0
equal: 0 | 0
"""
_VALUES: dict[str, Callable[..., Tensor]] = {
    "power": torch.pow,
    "root": torch.sqrt,
    "less": lambda a, b: (a < b).double(),
    "equal": lambda a, b: (a == b).double(),
    "where": lambda c, a, b: torch.where(c != 0, a, b),
    "over": lambda a, b: torch.where(b == 0, 0.0, a / torch.where(b == 0, 1.0, b)),  # 0 for a row that sees nothing
    "Φ": lambda x: 0.5 * (1 + torch.erf(x / math.sqrt(2))),
    "φ": lambda x: torch.exp(-x * x / 2) / math.sqrt(2 * math.pi),
}


def _cells() -> Iterator[tuple[str, Primitive]]:
    for row in _CELLS.strip().splitlines():
        name, _, rules = row.partition(": ")
        yield name, Primitive("cell", _VALUES.get(name) or getattr(torch, name), tuple(rules.split(" | ")))


PRIMITIVES: dict[str, Primitive] = {
    **dict(_cells()),
    "matmul": Primitive("dot", torch.matmul, ("d @ b.T", "a.T @ d")),
    "sum": _fold(torch.sum, "spread(d, a)"),
    "mean": _fold(torch.mean, "spread(d, a) * (count(y) / count(a))"),
    "max": _fold(torch.amax, "d * equal(a, y) / folded(equal(a, y))"),
    "min": _fold(torch.amin, "d * equal(a, y) / folded(equal(a, y))"),
    "seen": Primitive("fold", _seen),
    "shift": Primitive("silent", _shift),
    "count": Primitive("silent", lambda x: torch.tensor(float(x.numel()), dtype=x.dtype)),
    "times": Primitive("silent", lambda x: torch.tensor(x.numel() / x.shape[-1], dtype=x.dtype)),
    # 1 above the diagonal of a causal mask, 0 elsewhere.
    "ahead": Primitive(
        "silent",
        lambda x: torch.ones(x.shape[-2:], dtype=x.dtype, device=x.device).triu(1 + x.shape[-1] - x.shape[-2]),
    ),
    "target": Primitive("named", _target),
    "one_hot": Primitive("named", _one_hot),
    "unpicked": Primitive("named", _unpicked),
    "gathered": Primitive("named", _gathered),
    "concat": Primitive("named", _concat),
    "aside": _move(lambda x, _: x, "d"),  # a number that people write on the side, by name
    "plain": _move(lambda x, _: x, "d"),  # not written where it has this value
    "spread": _move(
        lambda d, a: d.expand(a.shape), moved=lambda index, *_: index
    ),  # a gradient of a sum, at each of its terms
    "transpose": _move(lambda x: x.mT if x.dim() > 1 else x, "d.T"),
    "rows": _move(lambda x: x.unsqueeze(-2), "sum(d, -2, 1)"),
    "head": _move(lambda x: x[0], "lifted(d)"),
    "lifted": _move(lambda x: x[None], "head(d)"),
    "last": _move(lambda x: x[..., -1, :]),
    "merge": _move(lambda z: z.movedim(-3, -2).flatten(-2), "split(d)"),
    "stack": _move(lambda z: z.flatten(-3, -2)),
    "split": _move(lambda d, width: d.unflatten(-1, (-1, width)).movedim(-2, -3)),
    # One head of keys serves a group of heads.
    "share": _move(lambda k, n: k.repeat_interleave(n, -3), "sum(grouped(d), -3, 1)"),
    "grouped": _move(lambda d, n: d.unflatten(-3, (-1, n))),
    "lookup": _move(lambda e, *rows: e[..., list(rows), :], "gathered(d, a)", moved=_looked_up),
    "partner": _move(lambda x, *order: x[..., list(order)], "partner(d)", moved=_partner),
    "pick": _move(_pick, "unpicked(d, a)"),
    "row": _move(lambda x: x.reshape(1, -1), "shaped(d)"),
    "column": _move(lambda x: x.reshape(-1, 1), "shaped(d)"),
    "upright": _move(lambda x: x[:, None]),  # a vector of an author who writes columns
    "shaped": _move(lambda d, *shape: d.reshape(shape)),
    # Choices of the next token are searches in Python; `rows` writes them.
    "largest": Primitive(
        "named", lambda x: (x == x.amax(dim=-1, keepdim=True)).double().argmax(dim=-1, keepdim=True).double()
    ),
    "keep top k": _filter(_keep_top_k),
    "keep top p": _filter(keep_top_p),
    "keep min p": _filter(keep_min_p),
    "best path": Primitive("named", lambda table, *s: hypotheses_of(table, *s)[0][0].double()),
    "best path probability": Primitive("named", lambda table, *s: hypotheses_of(table, *s)[1][:1].exp()),
}
"""By name. Those with spaces can be in no expression of a user."""

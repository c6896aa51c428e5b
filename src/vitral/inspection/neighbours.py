"""Which vectors lie near which: cosine similarity and nearest neighbours."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from vitral.core.errors import UsageError


@dataclass(frozen=True)
class Neighbour:
    """One of the nearest.

    Attributes:
        index: of its row.
        cosine: similarity, -1 to 1.
    """

    index: int
    cosine: float


def cosines(one: Float[Tensor, "rows width"], other: Float[Tensor, "columns width"]) -> Float[Tensor, "rows columns"]:
    """cos(a, b) = a·b / (|a| |b|) of every row with every row, in float64; 0 where a vector is zero."""
    unit, other_unit = (torch.nn.functional.normalize(rows.detach().double(), dim=-1) for rows in (one, other))
    return unit @ other_unit.T


def nearest(vectors: Float[Tensor, "rows width"], row: int, among: Sequence[int], num: int) -> list[Neighbour]:
    """The rows of `among` most like one row, itself left out, the nearest first; of equals the earlier in `among`.

    Raises:
        UsageError: `among` holds no other row.
    """
    others = [other for other in among if other != row]
    if not others:
        raise UsageError("there is no other vector to be a neighbour")
    similar = cosines(vectors[row : row + 1], vectors[others])[0]
    order = torch.argsort(similar, descending=True, stable=True)[:num].tolist()
    return [Neighbour(others[place], float(similar[place])) for place in order]

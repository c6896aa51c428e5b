"""The gradients and the loss of a step, summed over its batches in one order, on any number of ranks."""

from collections.abc import Iterable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vitral.runs.config import TrainingConfig
from vitral.training import ranks


class CanonicalSum:
    """Adds tensors, given one after another, in one binary tree.

    Neighbours are added in pairs, the sums again in pairs, and an odd last one is carried upward: of five
    ((0 + 1) + (2 + 3)) + 4. Of n tensors at most ⌊log₂ n⌋ + 1 are kept at a time.

    >>> summed = CanonicalSum()
    >>> for number in (1.0, 2.0, 4.0):
    ...     summed.add(torch.tensor(number))
    >>> summed.total()
    tensor(7.)
    """

    def __init__(self) -> None:
        """Begin with nothing."""
        self._kept: list[tuple[int, Tensor]] = []

    def add(self, leaf: Tensor) -> None:
        """Add the next tensor; it belongs to the sum from now on, and is changed."""
        height = 0
        while self._kept and self._kept[-1][0] == height:
            leaf, height = self._kept.pop()[1].add_(leaf), height + 1
        self._kept.append((height, leaf))

    def total(self) -> Tensor:
        """The sum of all tensors."""
        _, leaf = self._kept.pop()
        while self._kept:
            leaf = self._kept.pop()[1].add_(leaf)
        return leaf


class StepSum:
    """Loss and gradients of one step's batches, summed over the batches of this rank and over the ranks.

    Ranks that have all weights exchange the gradients after each round of batches: each has one piece of all of them,
    and adds the pieces in the order of the batches. Without `TrainingConfig.is_canonical` gradients are added one after
    another, as the engine does; so are those of ranks that share the weights out, by `fully_shard`.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], training: TrainingConfig) -> None:
        """Begin a step; the parameters have no gradients."""
        self._is_sharded = ranks.size() > 1 and training.sharding == "sharded"
        self._parameters, self._canonical = parameters, training.is_canonical and not self._is_sharded
        self._loss, self._tree = torch.zeros(()), CanonicalSum()

    def add(self, loss: Tensor) -> None:
        """Count a batch whose backward pass has added to the gradients; all ranks do so at the same time."""
        if not self._canonical:
            self._loss = self._loss + loss
            return
        for piece in ranks.all_to_all(self._flat(loss)):
            self._tree.add(piece)

    def total(self) -> Tensor:
        """Leave the sums in the parameters' gradients, and return the loss."""
        if self._is_sharded or (not self._canonical and ranks.size() == 1):
            return ranks.all_reduce(self._loss)
        flat = ranks.all_gather(self._tree.total()) if self._canonical else ranks.all_reduce(self._flat(self._loss))
        lengths = [one.numel() for one in self._parameters]
        *gradients, rest = flat.split([*lengths, len(flat) - sum(lengths)])
        for one, gradient, times in zip(self._parameters, gradients, rest[1:].tolist(), strict=False):
            one.grad = gradient.view_as(one).to(one, copy=True) if times else None
        return rest[0].clone()

    def _flat(self, loss: Tensor) -> Tensor:
        """The gradients, which the parameters have no longer, the loss, and for each parameter 1 if it had one."""
        there = torch.tensor([float(one.grad is not None) for one in self._parameters], device=loss.device)
        gradients = [torch.zeros_like(one) if one.grad is None else one.grad for one in self._parameters]
        for one in self._parameters:
            one.grad = None
        return torch.cat([part.reshape(-1) for part in (*gradients, loss, there)])

    def norm(self) -> Float[Tensor, ""]:
        """The norm of the sums that `total` has left."""
        gradients = [parameter.grad for parameter in self._parameters if parameter.grad is not None]
        if not self._canonical:
            return ranks.full_tensor(nn.utils.get_total_norm(gradients))
        return norm_of(map(squares, gradients)).to(gradients[0].dtype)


def squares(gradient: Tensor) -> Float[Tensor, " rows"]:
    """The sum of squares of each row, whose bits do not depend on which rows are there."""
    rows = gradient.flatten(1) if gradient.dim() > 1 else gradient.reshape(-1, 1)
    return _folded(rows.double().square())


def norm_of(rows: Iterable[Float[Tensor, " rows"]]) -> Float[Tensor, ""]:
    """The norm of gradients, from the sums of squares of their rows, added in one order."""
    return _folded(torch.cat(list(rows))[None])[0].sqrt()


def _folded(rows: Float[Tensor, "rows columns"]) -> Float[Tensor, " rows"]:
    """The sum of each row, by additions of the right half of the columns to the left one, in place."""
    while rows.shape[1] > 1:
        left, right = rows.split((rows.shape[1] + 1) // 2, dim=1)
        left[:, : right.shape[1]] += right
        rows = left
    return rows[:, 0]

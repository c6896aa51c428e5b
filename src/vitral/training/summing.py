"""The gradients and the loss of a step, summed over its batches; on one rank, and the order that every rank keeps."""

from collections.abc import Iterable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vitral.runs.config import TrainingConfig


class CanonicalSum:
    """Adds lists of tensors, given one after another, in one binary tree.

    Neighbours are added in pairs, the sums again in pairs, and an odd last one is carried upward: of five
    ((0 + 1) + (2 + 3)) + 4. Of n lists at most ⌊log₂ n⌋ + 1 are kept at a time.

    >>> summed = CanonicalSum()
    >>> for number in (1.0, 2.0, 4.0):
    ...     summed.add([torch.tensor(number)])
    >>> summed.total()
    [tensor(7.)]
    """

    def __init__(self) -> None:
        """Begin with nothing."""
        self._kept: list[tuple[int, list[Tensor]]] = []

    def add(self, leaf: list[Tensor]) -> None:
        """Add the next list; its tensors belong to the sum from now on, and are changed."""
        height = 0
        while self._kept and self._kept[-1][0] == height:
            leaf = _into(self._kept.pop()[1], leaf)
            height += 1
        self._kept.append((height, leaf))

    def total(self) -> list[Tensor]:
        """The sum of all lists."""
        _, leaf = self._kept.pop()
        while self._kept:
            leaf = _into(self._kept.pop()[1], leaf)
        return leaf


def _into(left: list[Tensor], right: list[Tensor]) -> list[Tensor]:
    for one, other in zip(left, right, strict=True):
        one.add_(other)
    return left


class StepSum:
    """Loss and gradients of one step's batches, summed on one rank.

    Without `TrainingConfig.is_canonical` they are added one after another, as the engine does.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], training: TrainingConfig) -> None:
        """Begin a step; the parameters have no gradients."""
        self._parameters, self._canonical = parameters, training.is_canonical
        self._loss, self._tree, self._moved = torch.zeros(()), CanonicalSum(), set[int]()

    def add(self, loss: Tensor) -> None:
        """Count a batch whose backward pass has added to the gradients."""
        if self._canonical:
            self._moved |= present(self._parameters)
            self._tree.add([loss, *taken(self._parameters)])
        else:
            self._loss = self._loss + loss

    def total(self) -> Tensor:
        """Leave the sums in the parameters' gradients, and return the loss."""
        if not self._canonical:
            return self._loss
        loss, *gradients = self._tree.total()
        for place, (parameter, gradient) in enumerate(zip(self._parameters, gradients, strict=True)):
            parameter.grad = gradient if place in self._moved else None
        return loss

    def norm(self) -> Float[Tensor, ""]:
        """The norm of the sums that `total` has left."""
        gradients = [parameter.grad for parameter in self._parameters if parameter.grad is not None]
        if not self._canonical:
            return nn.utils.get_total_norm(gradients)
        return norm_of(map(squares, gradients)).to(gradients[0].dtype)


def squares(gradient: Tensor) -> Float[Tensor, " rows"]:
    """The sum of squares of each row, whose bits do not depend on which rows are there."""
    rows = gradient.flatten(1) if gradient.dim() > 1 else gradient.reshape(-1, 1)
    return _folded(rows.double().square())


def norm_of(rows: Iterable[Float[Tensor, " rows"]]) -> Float[Tensor, ""]:
    """The norm of gradients, from the sums of squares of their rows, added in one order."""
    return _folded(torch.cat(list(rows))[None])[0].sqrt()


def _folded(found: Float[Tensor, "rows columns"]) -> Float[Tensor, " rows"]:
    """The sum of each row, by additions of the right half of the columns to the left one, in place."""
    while found.shape[1] > 1:
        left, right = found.split((found.shape[1] + 1) // 2, dim=1)
        left[:, : right.shape[1]] += right
        found = left
    return found[:, 0]


def present(parameters: Sequence[nn.Parameter]) -> set[int]:
    """The places of the parameters that have a gradient."""
    return {place for place, parameter in enumerate(parameters) if parameter.grad is not None}


def taken(parameters: Sequence[nn.Parameter]) -> list[Tensor]:
    """The gradients, zeros where there is none; the parameters have none any more."""
    gradients = [torch.zeros_like(one) if one.grad is None else one.grad for one in parameters]
    for parameter in parameters:
        parameter.grad = None
    return gradients

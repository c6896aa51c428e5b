"""Muon: momentum, orthogonalised, for the matrices inside the blocks (Jordan et al. 2024).

For a matrix W with gradient G, at every step:

    B ← μ B + (1 - μ) G,   N = (1 - μ) G + μ B          momentum, Nesterov's form
    O = U Vᵀ of N = U Σ Vᵀ, nearly                      all singular values to about 1
    W ← W - η √max(1, rows / columns) O

The singular values are driven to 1 by odd polynomials σ ← a σ + b σ³ + c σ⁵, which need matrix products alone. All
matrices of one shape are orthogonalised together, so that a model of many small ones costs few large products.
"""

from collections.abc import Iterable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vitral.training.adamw import Group, Part

POLYNOMIALS = (
    (8.38367, -24.76591, 18.35708),
    (4.04342, -3.01141, 0.56951),
    (3.50557, -2.62665, 0.52572),
    (2.49012, -1.83428, 0.43683),
)
"""(a, b, c) of each iteration: nearest to 1 on what the ones before leave of [0.003, 1] (Amsel et al. 2025)."""
MARGIN = 1.01
"""Rounding must not carry a singular value above 1, where the polynomials are not meant to be used."""


def orthogonalise(
    matrices: Float[Tensor, "count rows columns"],
) -> Float[Tensor, "count rows columns"]:
    """Nearly U Vᵀ of every matrix U Σ Vᵀ; no matrix may have more rows than columns.

    For X of n rows, A = X Xᵀ and p(A) = a + b A + c A², one iteration is X ← p(A) X. Where columns outnumber rows
    the factors p are multiplied with each other first, all of them n × n, and with X once at the end.

    Args:
        matrices: of one shape.
    """
    x = matrices / (matrices.norm(dim=(1, 2), keepdim=True) * MARGIN + 1e-7)
    if x.shape[2] == x.shape[1]:
        for a, b, c in POLYNOMIALS:
            gram = x @ x.mT
            x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
        return x
    gram = x @ x.mT
    product: Tensor | None = None
    for place, (a, b, c) in enumerate(POLYNOMIALS):
        factor = torch.baddbmm(gram, gram, gram, beta=b, alpha=c)
        factor.diagonal(dim1=1, dim2=2).add_(a)
        product = factor if product is None else factor @ product
        if place < len(POLYNOMIALS) - 1:
            gram = factor @ gram @ factor
    return x if product is None else product @ x


class Muon(Part):
    """The optimizer of this module's beginning, over parameters that hold one matrix or several stacked ones.

    The group needs "lr", "momentum" and "weight_decay".
    """

    def __init__(self, stacked: Iterable[tuple[nn.Parameter, Sequence[int]]], **numbers: float) -> None:
        """Keep what is to be optimised.

        Args:
            stacked: each parameter, with the numbers of rows of the matrices it stacks.
            numbers: the group's. A step moves a square matrix by about "lr" in every direction.
        """
        self._rows = {parameter: tuple(rows) for parameter, rows in stacked}
        super().__init__([{"params": list(self._rows), **numbers}])

    def apply(self, parameters: Sequence[nn.Parameter], group: Group) -> None:
        """Step these parameters of a group."""
        by_shape: dict[tuple[int, ...], list[tuple[Tensor, Tensor, float]]] = {}
        for parameter in parameters:
            update = self._averaged(parameter, group["momentum"])
            parameter.mul_(1 - group["lr"] * group["weight_decay"])
            pieces = (whole.split(self._rows[parameter]) for whole in (parameter, update))
            for weight, piece in zip(*pieces, strict=True):
                ratio = max(1.0, weight.shape[0] / weight.shape[1])
                lying = (weight, piece) if ratio == 1 else (weight.mT, piece.mT)
                by_shape.setdefault(tuple(lying[0].shape), []).append((*lying, ratio**0.5))
        for same in by_shape.values():
            directions = orthogonalise(torch.stack([piece for _, piece, _ in same]))
            for (weight, _, factor), direction in zip(same, directions, strict=True):
                weight.sub_(direction, alpha=group["lr"] * factor)

    def _averaged(self, parameter: nn.Parameter, momentum: float) -> Tensor:
        """The gradient, averaged with those before it."""
        state, gradient = self.state[parameter], parameter.grad
        assert gradient is not None
        if not state:
            state["momentum_buffer"] = torch.zeros_like(parameter)
        average = state["momentum_buffer"].lerp_(gradient, 1 - momentum)
        return gradient.lerp(average, momentum)

"""Vitral's optimizers, each one class: its configuration, what it keeps, what its step costs, sentences that say so.

The kernels are in `vitral.training.optimizers`. Costs follow from the configuration: Muon's products of matrices are
counted exactly, as those of the model are; everything else acts on each number alone and is counted by its formula.
"""

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import BeforeValidator, Field, InstanceOf, model_validator

from vitral.core.config import Config
from vitral.core.language import N_, _
from vitral.core.parts import OwnPart
from vitral.model.config import ModelConfig
from vitral.model.counts import ParameterRow, is_block_matrix, single_matrices

Rate = Annotated[float, Field(gt=0)]
Decay = Annotated[float, Field(ge=0)]
Momentum = Annotated[float, Field(ge=0, lt=1)]
POLYNOMIALS = (
    (8.38367, -24.76591, 18.35708),
    (4.04342, -3.01141, 0.56951),
    (3.50557, -2.62665, 0.52572),
    (2.49012, -1.83428, 0.43683),
)
"""Of Muon: (a, b, c) of each iteration, optimal for what the previous ones leave of [0.003, 1] (Amsel et al. 2025)."""


class AdamWCost:
    """What AdamW keeps and computes; an own optimizer is taken to cost as much."""

    keeps: ClassVar[str] = N_("AdamW: two averages of 4 bytes each")
    """How its memory is counted; beside it, its operations."""
    computes: ClassVar[str] = N_("14 per parameter")

    def keeps_of(self, row: ParameterRow) -> int:
        """Numbers that it keeps from step to step for each parameter of a tensor, those of steps aside."""
        return 2

    def operations_of(self, row: ParameterRow) -> int:
        """Operations on each parameter of a tensor, without products of matrices.

        Decay 1; mean of gradients 3, of squares 4; root, bias and epsilon 3; division and step 3.
        """
        return 14

    def kept_numbers(self, rows: Sequence[ParameterRow]) -> int:
        """Numbers that it keeps from step to step for these tensors, those of steps aside."""
        return sum(self.keeps_of(row) * row.count for row in rows)

    def flops(self, rows: Sequence[ParameterRow], model: ModelConfig, *, in_bfloat16: bool = False) -> int:
        """Floating-point operations of one step.

        Args:
            rows: every learned tensor.
            model: the configuration of the model.
            in_bfloat16: whether products of matrices are computed in bfloat16.
        """
        moved = single_matrices(model, self.orthogonalised(rows))
        products = (orthogonalisation_flops(*shape, in_bfloat16=in_bfloat16) for shape in moved)
        return sum(products) + sum(self.operations_of(row) * row.count for row in rows)

    def orthogonalised(self, rows: Sequence[ParameterRow]) -> list[ParameterRow]:
        """The tensors of the matrices that it orthogonalises, each of which it needs whole."""
        return []


class AdamWConfig(AdamWCost, Config):
    """AdamW (Loshchilov & Hutter 2019).

    Attributes:
        name: "adamw".
        learning_rate: the peak rate.
        weight_decay: for matrices and embeddings; biases, norms and scales are not decayed.
        beta1: decay of the mean of gradients.
        beta2: decay of the mean of squared gradients.
        epsilon: added to the root of the latter.
    """

    name: Literal["adamw"] = "adamw"
    learning_rate: Rate = 3e-3
    weight_decay: Decay = 0.1
    beta1: Momentum = 0.9
    beta2: Momentum = 0.99
    epsilon: Rate = 1e-8


class MuonConfig(AdamWCost, Config):
    """Muon for the matrices inside the blocks, AdamW for the rest (see `Muon`).

    Attributes:
        name: "muon".
        learning_rate: the peak rate of the matrices.
        momentum: decay of the average of gradients.
        weight_decay: of the matrices.
        rest: AdamW for embeddings, head, biases, norms and scales; its rate follows the same schedule.
    """

    keeps: ClassVar[str] = N_(
        "Muon: one average of 4 bytes for each matrix entry in a block; AdamW: two for every other parameter"
    )
    computes: ClassVar[str] = N_(
        "the products of matrices that orthogonalise, 12 per matrix entry in a block, 14 per other parameter"
    )
    name: Literal["muon"] = "muon"
    learning_rate: Rate = 0.05
    momentum: Momentum = 0.85
    weight_decay: Decay = 0.0
    rest: AdamWConfig = AdamWConfig(learning_rate=0.01, weight_decay=0.0)

    def keeps_of(self, row: ParameterRow) -> int:
        """One average of a matrix in a block, and what AdamW keeps of the rest."""
        return 1 if is_block_matrix(row) else self.rest.keeps_of(row)

    def operations_of(self, row: ParameterRow) -> int:
        """Besides the products: two averages 3 each; decay 1; norm and division 3; step 2."""
        return 12 if is_block_matrix(row) else self.rest.operations_of(row)

    def orthogonalised(self, rows: Sequence[ParameterRow]) -> list[ParameterRow]:
        """The matrices inside the blocks."""
        return [row for row in rows if is_block_matrix(row)]


class SGDConfig(AdamWCost, Config):
    """Stochastic gradient descent with momentum (Polyak 1964; Sutskever et al. 2013), as PyTorch defines it.

    Attributes:
        name: "sgd".
        learning_rate: the peak rate.
        momentum: decay of the sum of gradients; 0: none, and nothing is kept from step to step.
        nesterov: whether a step looks ahead (Nesterov 1983); it needs momentum.
        weight_decay: for matrices and embeddings; added to the gradient, so that momentum keeps it too.
    """

    keeps: ClassVar[str] = N_("SGD: one sum of 4 bytes with momentum, none without")
    computes: ClassVar[str] = N_("2 per parameter, and as many for each of momentum, Nesterov's form and weight decay")

    name: Literal["sgd"] = "sgd"
    learning_rate: Rate = 0.1
    momentum: Momentum = 0.9
    nesterov: bool = False
    weight_decay: Decay = 0.0

    @model_validator(mode="after")
    def _looks_ahead_with_momentum(self) -> "SGDConfig":
        if self.nesterov and self.momentum == 0:
            raise ValueError(_("nesterov needs momentum; give momentum > 0 or leave nesterov out"))
        return self

    def keeps_of(self, row: ParameterRow) -> int:
        """One sum, if there is momentum."""
        return int(self.momentum > 0)

    def operations_of(self, row: ParameterRow) -> int:
        """Two for each term: the gradient, momentum, Nesterov's form, weight decay."""
        return 2 * (1 + (self.momentum > 0) + self.nesterov + (self.weight_decay > 0 and len(row.shape) == 2))


BuiltIn = AdamWConfig | MuonConfig | SGDConfig
OPTIMIZERS: dict[str, type[AdamWCost]] = {kind.model_fields["name"].default: kind for kind in get_args(BuiltIn)}
"""Vitral's optimizers by the name that configurations give them."""


class OwnOptimizer(AdamWCost, OwnPart):
    """A registered optimizer.

    Attributes:
        learning_rate: the peak rate.
    """

    kinds = ("optimizer",)
    built_in = tuple(OPTIMIZERS)

    learning_rate: Rate = 1e-3


def _optimizer(data: Any) -> Any:
    """A table without a name configures AdamW."""
    return OwnOptimizer.read({"name": "adamw", **data} if isinstance(data, dict) else data)


OptimizerConfig = Annotated[
    Annotated[BuiltIn, Field(discriminator="name")] | InstanceOf[OwnOptimizer], BeforeValidator(_optimizer)
]


def orthogonalisation_flops(rows: int, columns: int, *, in_bfloat16: bool = False) -> int:
    """Floating-point operations of the products in `vitral.training.optimizers.orthogonalise` of one matrix.

    With n the smaller side, m the larger one and K iterations: K (4 n² m + 2 n³) if n = m or in bfloat16; else
    4 n² m + (8 K - 6) n³.
    """
    n, m, iterations = min(rows, columns), max(rows, columns), len(POLYNOMIALS)
    if in_bfloat16 or n == m:
        return iterations * (4 * n**2 * m + 2 * n**3)
    return 4 * n**2 * m + (8 * iterations - 6) * n**3

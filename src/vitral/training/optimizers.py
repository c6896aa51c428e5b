"""Optimizers: AdamW, SGD and Muon, and their state as named tensors.

PyTorch's optimizer classes import its compiler when created, which takes as long as a hundred steps of a small model.
The kernels of AdamW and SGD are therefore called as functions, and the state is kept in dictionaries. The fused kernels
are faster, but their bits depend on where a tensor begins and ends.
"""

import os
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.optim.adamw import adamw
from torch.optim.sgd import sgd

from vitral.core.errors import UsageError
from vitral.core.machine import has_matrix_unit
from vitral.model import Transformer, parameter_table
from vitral.model.counts import single_matrices
from vitral.model.parametrisation import INSIDE, rate_factor
from vitral.runs.config import TrainingConfig
from vitral.runs.environment import DISPATCH
from vitral.runs.optimizers import POLYNOMIALS, AdamWConfig, MuonConfig, OptimizerConfig, OwnOptimizer, SGDConfig
from vitral.training import ranks
from vitral.training.own_optimizer import AdoptedOptimizer, adopt

Numbers = Mapping[str, Any]
"""Hyperparameters of a group of parameters, as PyTorch's kernels call them."""


class Optimizer(ABC):
    """Base class: an optimizer of some of the parameters.

    Attributes:
        param_groups: parameters ("params") with their hyperparameters, among them "lr", the current learning rate, and
            "peak", the highest.
        state: the state tensors of each parameter, by name.
    """

    def __init__(self, groups: Iterable[Mapping[str, Any]], *, fused: bool = True) -> None:
        """Store the groups; their initial learning rates are the peaks. `fused` chooses PyTorch's kernel."""
        self.fused = fused
        self.param_groups: list[dict[str, Any]] = [{**group, "peak": group["lr"]} for group in groups]
        self.state: defaultdict[nn.Parameter, dict[str, Tensor]] = defaultdict(dict)

    def step(self) -> None:
        """Apply the gradients; parameters without a gradient do not change."""
        with torch.no_grad():
            for group in self.param_groups:
                parameters = [parameter for parameter in group["params"] if parameter.grad is not None]
                if parameters:
                    self.apply(parameters, {key: group[key] for key in group.keys() - {"params", "peak"}})

    @abstractmethod
    def apply(self, parameters: Sequence[nn.Parameter], numbers: Numbers) -> None:
        """Update these parameters of a group by its hyperparameters."""

    def tensors(self, parameter: nn.Parameter) -> dict[str, Tensor]:
        """The state of a parameter."""
        return self.state[parameter]

    def load(self, parameter: nn.Parameter, quantity: str, value: Tensor) -> bool:
        """Restore a tensor of a parameter's state; False if its shape is wrong."""
        if quantity != "step" and value.shape != parameter.shape:
            return False
        self.state[parameter][quantity] = value.to(parameter.device)
        return True


class AdamW(Optimizer):
    """AdamW (Loshchilov & Hutter 2019) by PyTorch's kernels.

    Groups need "lr", "weight_decay", "beta1", "beta2" and "eps".
    """

    def apply(self, parameters: Sequence[nn.Parameter], numbers: Numbers) -> None:
        """Update these parameters of a group by its hyperparameters."""
        for parameter in parameters:
            if not self.state[parameter]:
                self.state[parameter] |= {
                    "step": torch.zeros((), dtype=torch.float32, device=parameter.device),
                    "exp_avg": torch.zeros_like(parameter),
                    "exp_avg_sq": torch.zeros_like(parameter),
                }
        averages, squares, steps = (
            [self.state[parameter][name] for parameter in parameters] for name in ("exp_avg", "exp_avg_sq", "step")
        )
        adamw(
            list(parameters),
            [parameter.grad for parameter in parameters if parameter.grad is not None],
            averages,
            squares,
            [],
            steps,
            foreach=False,
            fused=self.fused,
            amsgrad=False,
            maximize=False,
            **numbers,
        )


class SGD(Optimizer):
    """SGD with momentum by PyTorch's kernels; groups need "lr", "momentum", "nesterov" and "weight_decay".

    For a parameter W with gradient G, at every step, with B = 0 at first:

        G ← G + λ W,   B ← μ B + G                          weight decay λ, momentum μ
        W ← W - η B,   or  W ← W - η (G + μ B)               Nesterov's form
    """

    def apply(self, parameters: Sequence[nn.Parameter], numbers: Numbers) -> None:
        """Update these parameters of a group by its hyperparameters."""
        buffers: list[Tensor | None] = [None] * len(parameters)
        if numbers["momentum"]:
            for parameter in parameters:
                if not self.state[parameter]:
                    self.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
            buffers = [self.state[parameter]["momentum_buffer"] for parameter in parameters]
        sgd(
            list(parameters),
            [parameter.grad for parameter in parameters if parameter.grad is not None],
            buffers,
            foreach=False,
            fused=self.fused,
            dampening=0.0,
            maximize=False,
            **numbers,
        )


MARGIN = 1.01
"""Keeps singular values at most 1 despite rounding: the polynomials are not valid above 1."""


def orthogonalise(
    matrices: Float[Tensor, "count rows columns"], *, in_bfloat16: bool = False
) -> Float[Tensor, "count rows columns"]:
    """Approximately U Vᵀ of every matrix U Σ Vᵀ; no matrix may have more rows than columns.

    For X with n rows, A = X Xᵀ and p(A) = a + b A + c A², one iteration is X ← p(A) X. For wide matrices the n × n
    factors p are multiplied first, and with X once at the end, except in bfloat16, where the product of the factors
    would be too inexact: its largest singular value was up to 3.

    Args:
        matrices: matrices of one shape.
        in_bfloat16: whether the products are computed in bfloat16; then the result is too.
    """
    x = matrices / (matrices.norm(dim=(1, 2), keepdim=True) * MARGIN + 1e-7)
    if in_bfloat16:
        x = x.to(torch.bfloat16)
    if in_bfloat16 or x.shape[2] == x.shape[1]:
        for a, b, c in POLYNOMIALS:
            gram = x @ x.mT
            x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
        return x
    gram = x @ x.mT
    product: Tensor | None = None
    for iteration, (a, b, c) in enumerate(POLYNOMIALS):
        factor = torch.baddbmm(gram, gram, gram, beta=b, alpha=c)
        factor.diagonal(dim1=1, dim2=2).add_(a)
        product = factor if product is None else factor @ product
        if iteration < len(POLYNOMIALS) - 1:
            gram = factor @ gram @ factor
    return x if product is None else product @ x


class Muon(Optimizer):
    """Muon: orthogonalised momentum for the matrices inside the blocks (Jordan et al. 2024).

    For a matrix W with gradient G, at every step:

        B ← μ B + (1 - μ) G,   N = (1 - μ) G + μ B          momentum, Nesterov's form
        O ≈ U Vᵀ of N = U Σ Vᵀ                              all singular values about 1
        W ← W - η √max(1, rows / columns) O

    Odd polynomials σ ← a σ + b σ³ + c σ⁵ drive the singular values to 1 with matrix products alone. All matrices of one
    shape are orthogonalised together, so that a model of many small matrices costs a few large products. A parameter
    contains one matrix or several stacked ones. The group needs "lr", "momentum" and "weight_decay".
    """

    def __init__(
        self,
        stacked: Iterable[tuple[nn.Parameter, Sequence[int]]],
        *,
        in_bfloat16: bool = False,
        **numbers: float,
    ) -> None:
        """Store the parameters.

        Args:
            stacked: each parameter, with the numbers of rows of its stacked matrices.
            in_bfloat16: whether the products that orthogonalise are computed in bfloat16.
            numbers: the hyperparameters. A step moves a square matrix by about "lr" in every direction.
        """
        self._rows, self._in_bfloat16 = dict(stacked), in_bfloat16
        super().__init__([{"params": list(self._rows), **numbers}])

    def apply(self, parameters: Sequence[nn.Parameter], numbers: Numbers) -> None:
        """Update these parameters of a group by its hyperparameters."""
        alike: defaultdict[tuple[int, ...], list[tuple[nn.Parameter, int, Tensor]]] = defaultdict(list)
        for parameter in parameters:
            begin, update = 0, ranks.full_tensor(self._averaged(parameter, numbers["momentum"]))
            for matrix in update.split(self._rows[parameter]):
                alike[tuple(sorted(matrix.shape))].append((parameter, begin, matrix))
                begin += len(matrix)
            if numbers["weight_decay"]:
                parameter.mul_(1 - numbers["lr"] * numbers["weight_decay"])
        for pieces in alike.values():
            wide = [matrix.mT if len(matrix) > matrix.shape[1] else matrix for _parameter, _begin, matrix in pieces]
            directions = orthogonalise(torch.stack(wide), in_bfloat16=self._in_bfloat16)
            for (parameter, begin, matrix), direction in zip(pieces, directions, strict=True):
                rows, width = matrix.shape
                upright = direction.mT if rows > width else direction
                first, here = ranks.first_row(parameter), ranks.local_rows(parameter)
                top, bottom = max(begin, first), min(begin + rows, first + len(here))
                if top < bottom:
                    moved = here[top - first : bottom - first]
                    rate = numbers["lr"] * max(1.0, rows / width) ** 0.5
                    moved.sub_(upright[top - begin : bottom - begin], alpha=rate)

    def _averaged(self, parameter: nn.Parameter, momentum: float) -> Tensor:
        """The gradient with Nesterov momentum."""
        state, gradient = self.state[parameter], parameter.grad
        assert gradient is not None
        if not state:
            state["momentum_buffer"] = torch.zeros_like(parameter)
        average = state["momentum_buffer"].lerp_(gradient, 1 - momentum)
        return gradient.lerp(average, momentum)


class Optimizers:
    """Several optimizers of disjoint parameters, used as one."""

    def __init__(self, *members: Optimizer | AdoptedOptimizer) -> None:
        """Combine these optimizers."""
        self.members = members
        self._of = {parameter: one for one in members for group in one.param_groups for parameter in group["params"]}

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """The groups of all optimizers."""
        return [group for one in self.members for group in one.param_groups]

    def member_of(self, parameter: nn.Parameter) -> Optimizer | AdoptedOptimizer:
        """The optimizer of a parameter."""
        return self._of[parameter]

    def step(self) -> None:
        """Apply the gradients."""
        for one in self.members:
            one.step()

    def zero_grad(self) -> None:
        """Remove the gradients."""
        for parameter in self._of:
            parameter.grad = None


def optimizer_of(model: Transformer, training: TrainingConfig) -> Optimizers:
    """The optimizer that trains the model's parameters as configured.

    Args:
        model: the model, on its device.
        training: the optimizer, and the arithmetic of its steps.
    """
    device = model.token_embedding.weight.device
    in_bfloat16 = training.dtype == "bfloat16" and _is_faster_in_bfloat16(device)
    fused = not training.is_canonical and training.sharding == "replicated"
    return build_optimizer(model, training.optimizer, fused=fused, in_bfloat16=in_bfloat16)


def _is_faster_in_bfloat16(device: torch.device) -> bool:
    """Whether matrices are orthogonalised faster in bfloat16: on a GPU, and on a CPU with a unit for matrices.

    Variables of the environment that choose kernels may turn that unit off.
    """
    if device.type != "cpu":
        return device.type == "cuda"
    return has_matrix_unit() and not any(os.environ.get(name) for name in DISPATCH)


def build_optimizer(
    model: Transformer,
    config: OptimizerConfig,
    *,
    fused: bool = True,
    in_bfloat16: bool = False,
) -> Optimizers:
    """The optimizer of the model's parameters, with fused or plain kernels.

    Args:
        model: the model.
        config: the optimizer's kind and hyperparameters.
        fused: whether to use fused kernels.
        in_bfloat16: whether Muon's products are computed in bfloat16.
    """
    match config:
        case AdamWConfig():
            return Optimizers(_adamw(model, config, (), fused=fused))
        case SGDConfig():
            numbers = {"lr": config.learning_rate, "momentum": config.momentum, "nesterov": config.nesterov}
            return Optimizers(SGD(_decayed(model, config.weight_decay, (), numbers), fused=fused))
        case MuonConfig():
            matrices = stacked_matrices(model)
            rest = _adamw(model, config.rest, matrices, fused=fused)
            moved = [(model.get_parameter(name), rows) for name, rows in matrices.items()]
            muon = Muon(
                moved,
                in_bfloat16=in_bfloat16,
                lr=config.learning_rate,
                momentum=config.momentum,
                weight_decay=config.weight_decay,
            )
            return Optimizers(muon, rest) if moved else Optimizers(rest)
        case OwnOptimizer():
            return Optimizers(adopt(config, list(model.parameters())))


def stacked_matrices(model: Transformer) -> dict[str, tuple[int, ...]]:
    """Names of the matrices inside the blocks, with the numbers of rows of stacked matrices."""
    matrices: dict[str, tuple[int, ...]] = {}
    for row in parameter_table(model.config, model.vocab_size):
        module = model.get_submodule(row.name.rpartition(".")[0])
        if row.name.startswith(INSIDE) and len(row.shape) == 2 and isinstance(module, nn.Linear | nn.LSTM):
            matrices[row.name] = tuple(height for height, _width in single_matrices(model.config, [row]))
    return matrices


def _adamw(model: Transformer, config: AdamWConfig, without: Collection[str], *, fused: bool) -> AdamW:
    """AdamW for all parameters except some."""
    numbers = {"lr": config.learning_rate, "beta1": config.beta1, "beta2": config.beta2, "eps": config.epsilon}
    return AdamW(_decayed(model, config.weight_decay, without, numbers), fused=fused)


def _decayed(
    model: Transformer, weight_decay: float, without: Collection[str], numbers: Numbers
) -> list[dict[str, Any]]:
    """Groups of parameters: matrices and embeddings, which decay, then the rest; by the parametrisation's rates."""
    groups: dict[tuple[bool, float], list[nn.Parameter]] = {}
    for name, parameter in model.named_parameters():
        if name not in without:
            key = parameter.dim() == 2, rate_factor(model.config, name, parameter.dim())
            groups.setdefault(key, []).append(parameter)
    return [
        {**numbers, "lr": numbers["lr"] * factor, "params": parameters, "weight_decay": weight_decay * decays}
        for (decays, factor), parameters in sorted(groups.items(), key=lambda item: not item[0][0])
    ]


def optimizer_tensors(model: nn.Module, optimizer: Optimizers) -> dict[str, Tensor]:
    """The optimizer's state as `parameter/quantity` → tensor."""
    return {
        f"{name}/{quantity}": value
        for name, parameter in model.named_parameters()
        for quantity, value in optimizer.member_of(parameter).tensors(parameter).items()
    }


def load_optimizer_tensors(model: nn.Module, optimizer: Optimizers, tensors: Mapping[str, Tensor], where: str) -> None:
    """Restore the state from `optimizer_tensors`.

    Raises:
        UsageError: a tensor belongs to no parameter of the model, or has another shape.
    """
    parameters = dict(model.named_parameters())
    for key, value in tensors.items():
        name, _, quantity = key.partition("/")
        parameter = parameters.get(name)
        if parameter is None or not optimizer.member_of(parameter).load(parameter, quantity, value):
            raise UsageError(
                "{where}: optimizer state {key} of shape {shape} does not fit this model",
                where=where,
                key=key,
                shape=tuple(value.shape),
            )

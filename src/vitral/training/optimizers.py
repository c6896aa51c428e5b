"""Optimizers: PyTorch's and Muon, with the groups of weight decay stated, and their state as plain named tensors."""

from collections.abc import Mapping, Sequence, Set
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field
from torch import Tensor, nn

from vitral.attention import MultiHeadAttention
from vitral.core.config import Config
from vitral.core.errors import UsageError
from vitral.model import Transformer
from vitral.training.adamw import AdamW, Part
from vitral.training.muon import Muon


class AdamWConfig(Config):
    """AdamW (Loshchilov & Hutter 2019).

    Attributes:
        name: "adamw".
        learning_rate: the peak rate.
        weight_decay: for matrices and embeddings; biases, norms and scales are never decayed.
        beta1: decay of the average of gradients.
        beta2: decay of the average of their squares.
        epsilon: added to the root of the latter.
    """

    name: Literal["adamw"] = "adamw"
    learning_rate: Annotated[float, Field(gt=0)] = 3e-3
    weight_decay: Annotated[float, Field(ge=0)] = 0.1
    beta1: Annotated[float, Field(ge=0, lt=1)] = 0.9
    beta2: Annotated[float, Field(ge=0, lt=1)] = 0.99
    epsilon: Annotated[float, Field(gt=0)] = 1e-8


class MuonConfig(Config):
    """Muon for the matrices inside the blocks, AdamW for the rest (see `vitral.training.muon`).

    Attributes:
        name: "muon".
        learning_rate: the peak rate of the matrices.
        momentum: decay of the average of gradients.
        weight_decay: of the matrices.
        rest: AdamW for embeddings, head, biases, norms and scales; its rate follows the same schedule.
    """

    name: Literal["muon"] = "muon"
    learning_rate: Annotated[float, Field(gt=0)] = 0.05
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.85
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    rest: AdamWConfig = AdamWConfig(learning_rate=0.01, weight_decay=0.0)


def _named(data: Any) -> Any:
    """A table that names no optimizer is about AdamW."""
    return {"name": "adamw", **data} if isinstance(data, dict) else data


OptimizerConfig = Annotated[Annotated[AdamWConfig | MuonConfig, Field(discriminator="name")], BeforeValidator(_named)]


class Optimizers:
    """One or several optimizers, each for parameters of its own, used as one."""

    def __init__(self, *parts: Part) -> None:
        """Use these as one."""
        self.parts = parts

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """All parts' groups."""
        return [group for part in self.parts for group in part.param_groups]

    def part_of(self, parameter: nn.Parameter) -> Part:
        """The optimizer of a parameter."""
        return next(part for part in self.parts for group in part.param_groups if _is_in(parameter, group["params"]))

    def step(self) -> None:
        """Apply the gradients."""
        for part in self.parts:
            part.step()

    def zero_grad(self) -> None:
        """Forget the gradients."""
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.grad = None


def decay_groups(model: nn.Module) -> tuple[list[str], list[str]]:
    """Names of parameters that are decayed (two axes: matrices, embeddings) and those that are not (the rest)."""
    named = list(model.named_parameters())
    return [name for name, p in named if p.dim() == 2], [name for name, p in named if p.dim() != 2]


def build_optimizer(model: Transformer, config: OptimizerConfig) -> Optimizers:
    """The optimizer of all of the model's parameters."""
    if isinstance(config, AdamWConfig):
        return Optimizers(_adamw(model, config, frozenset()))
    matrices = stacked_matrices(model)
    rest = _adamw(model, config.rest, frozenset(matrices))
    parameters = dict(model.named_parameters())
    if not matrices:
        return Optimizers(rest)
    muon = Muon(
        [(parameters[name], rows) for name, rows in matrices.items()],
        lr=config.learning_rate,
        momentum=config.momentum,
        weight_decay=config.weight_decay,
    )
    return Optimizers(muon, rest)


def stacked_matrices(model: Transformer) -> dict[str, tuple[int, ...]]:
    """Names of the matrices inside the blocks, with the rows of each where several lie in one parameter."""
    found: dict[str, tuple[int, ...]] = {}
    for name, module in model.blocks.named_modules(prefix="blocks"):
        if isinstance(module, MultiHeadAttention):
            found[f"{name}.in_proj.weight"] = module.widths
        elif isinstance(module, nn.Linear):
            found.setdefault(f"{name}.weight", (module.out_features,))
    return found


def _adamw(model: nn.Module, config: AdamWConfig, without: Set[str]) -> AdamW:
    """AdamW over all parameters but some, in the two groups of `decay_groups`."""
    parameters = dict(model.named_parameters())
    decayed, rest = ([parameters[name] for name in names if name not in without] for names in decay_groups(model))
    numbers = {"lr": config.learning_rate, "betas": (config.beta1, config.beta2), "eps": config.epsilon}
    groups = ({"params": decayed, "weight_decay": config.weight_decay}, {"params": rest, "weight_decay": 0.0})
    return AdamW({**numbers, **group} for group in groups if group["params"])


def _is_in(parameter: nn.Parameter, group: Sequence[nn.Parameter]) -> bool:
    return any(parameter is other for other in group)


def optimizer_tensors(model: nn.Module, optimizer: Optimizers) -> dict[str, Tensor]:
    """The optimizer's state as `parameter/quantity` → tensor."""
    return {
        f"{name}/{quantity}": value
        for name, parameter in model.named_parameters()
        for quantity, value in optimizer.part_of(parameter).state[parameter].items()
    }


def load_optimizer_tensors(model: nn.Module, optimizer: Optimizers, tensors: Mapping[str, Tensor], where: str) -> None:
    """Put back what `optimizer_tensors` gave.

    Raises:
        UsageError: a tensor for a parameter the model lacks, or of another shape.
    """
    parameters = dict(model.named_parameters())
    for key, value in tensors.items():
        name, _, quantity = key.partition("/")
        if name not in parameters:
            raise UsageError(f"{where}: optimizer state for {name}, which this model does not have")
        parameter = parameters[name]
        if quantity != "step" and value.shape != parameter.shape:
            raise UsageError(
                f"{where}: optimizer state {key} has shape {tuple(value.shape)}, not {tuple(parameter.shape)}"
            )
        optimizer.part_of(parameter).state[parameter][quantity] = value.to(parameter.device)

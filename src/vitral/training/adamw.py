"""AdamW (Loshchilov & Hutter 2019) by PyTorch's fused kernel, and what optimizers have in common here.

PyTorch's optimizer classes import its compiler when they are made, which takes as long as a hundred steps of a small
model. The kernels are called as functions instead; the state beside them is two dictionaries.
"""

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.adamw import adamw

Group = Mapping[str, Any]


class Part(ABC):
    """An optimizer of some parameters.

    Attributes:
        param_groups: parameters ("params") with the numbers they are stepped by, among them "lr", the rate now, and
            "peak", the highest.
        state: what is kept for each parameter, by name.
    """

    def __init__(self, groups: Iterable[Group]) -> None:
        """Keep the groups; the rates they begin with are their peaks."""
        self.param_groups: list[dict[str, Any]] = [{**group, "peak": group["lr"]} for group in groups]
        self.state: defaultdict[nn.Parameter, dict[str, Tensor]] = defaultdict(dict)

    def step(self) -> None:
        """One step from the gradients as they are; parameters without one stay."""
        with torch.no_grad():
            for group in self.param_groups:
                parameters = [parameter for parameter in group["params"] if parameter.grad is not None]
                if parameters:
                    self.apply(parameters, group)

    @abstractmethod
    def apply(self, parameters: Sequence[nn.Parameter], group: Group) -> None:
        """Step these parameters of a group."""


class AdamW(Part):
    """All groups need "lr", "weight_decay", "betas" and "eps"."""

    def apply(self, parameters: Sequence[nn.Parameter], group: Group) -> None:
        """Step these parameters of a group."""
        for parameter in parameters:
            if not self.state[parameter]:
                self.state[parameter] |= {
                    "step": torch.zeros((), dtype=torch.float32, device=parameter.device),
                    "exp_avg": torch.zeros_like(parameter),
                    "exp_avg_sq": torch.zeros_like(parameter),
                }
        kept = {name: [self.state[parameter][name] for parameter in parameters] for name in ("exp_avg", "exp_avg_sq")}
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        adamw(
            list(parameters),
            gradients,
            kept["exp_avg"],
            kept["exp_avg_sq"],
            [],
            [self.state[parameter]["step"] for parameter in parameters],
            fused=True,
            amsgrad=False,
            beta1=group["betas"][0],
            beta2=group["betas"][1],
            lr=group["lr"],
            weight_decay=group["weight_decay"],
            eps=group["eps"],
            maximize=False,
        )

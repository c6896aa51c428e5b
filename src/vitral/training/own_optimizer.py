"""Optimizers of the user's: a `torch.optim.Optimizer` whose memory is saved as named tensors."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from vitral.core.language import _
from vitral.core.streams import torch_stream
from vitral.runs.optimizers import OwnOptimizer

SAVED = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
"""Types of tensors that a checkpoint contains."""
STEPS = 3
"""Steps of the trial of an optimizer, the last of them after a resume."""


class AdoptedOptimizer:
    """A registered optimizer, with the interface of `vitral.training.optimizers.Optimizer`.

    Numbers, and tensors that are not floating-point, are saved as float64 under a key that ends in their type.
    """

    def __init__(self, own: OwnOptimizer, parameters: Sequence[nn.Parameter]) -> None:
        """Make the optimizer of these parameters; their learning rates at the beginning are the peaks.

        Raises:
            UsageError: it is no optimizer, or not of every parameter once.
        """
        made = own.make(list(parameters), learning_rate=own.learning_rate)
        if not isinstance(made, torch.optim.Optimizer):
            raise own.wrong(_("its factory returns {kind}, not a torch.optim.Optimizer", kind=type(made).__name__))
        self.own, self.inner = own, made
        self.param_groups: list[dict[str, Any]] = made.param_groups
        grouped = sorted(id(parameter) for group in self.param_groups for parameter in group["params"])
        if grouped != sorted(map(id, parameters)):
            raise own.wrong(
                _(
                    "it moves {some} of {all} parameters; give all to its groups, once",
                    some=len(set(grouped)),
                    all=len(parameters),
                )
            )
        for group in self.param_groups:
            group["peak"] = float(group["lr"])

    def step(self) -> None:
        """Apply the gradients."""
        self.inner.step()

    def tensors(self, parameter: nn.Parameter) -> dict[str, Tensor]:
        """The state of a parameter, as a checkpoint contains it.

        Raises:
            UsageError: it is something that cannot be saved.
        """
        return dict(self._saved(key, value) for key, value in self.inner.state.get(parameter, {}).items())

    def load(self, parameter: nn.Parameter, quantity: str, value: Tensor) -> bool:
        """Restore an entry of a parameter's state."""
        key, _mark, kind = quantity.partition("#")
        numbers: dict[str, Any] = {"none": lambda _: None, "bool": bool, "int": int, "float": float}
        if kind in numbers:
            restored = numbers[kind](value.item())
        elif kind:
            restored = value.to(device=parameter.device, dtype=getattr(torch, kind))
        else:
            restored = value.to(parameter.device)
        self.inner.state[parameter][key] = restored
        return True

    def _saved(self, key: Any, value: Any) -> tuple[str, Tensor]:
        if isinstance(key, str) and "#" not in key and "/" not in key:
            if isinstance(value, Tensor) and value.dtype in SAVED:
                return key, value
            if isinstance(value, Tensor) and not value.is_complex() and not value.is_floating_point():
                return f"{key}#{str(value.dtype).removeprefix('torch.')}", value.double()
            if value is None or isinstance(value, bool | int | float):
                kind = "none" if value is None else type(value).__name__
                return f"{key}#{kind}", torch.tensor(float(value or 0), dtype=torch.float64)
        raise self.own.wrong(
            _(
                "its state contains {key}, a {kind}; only tensors and numbers can be saved",
                key=repr(key)[:60],
                kind=type(value).__name__,
            )
        )


def adopt(own: OwnOptimizer, parameters: Sequence[nn.Parameter]) -> AdoptedOptimizer:
    """The registered optimizer of these parameters, after a trial on a few numbers.

    Raises:
        UsageError: it fails, moves nothing, gives numbers that are not finite, or goes on otherwise after a resume.
    """
    with own.tried(), torch.random.fork_rng(devices=[]):
        _try(own)
    return AdoptedOptimizer(own, parameters)


def _try(own: OwnOptimizer) -> None:
    begun = [_drawn("matrix", (16, 12)), _drawn("vector", (16,))]
    half, saved = _moved(own, begun, range(STEPS - 1))
    straight, _state = _moved(own, begun, range(STEPS))
    resumed, _state = _moved(own, half, [STEPS - 1], saved)
    if not all(value.isfinite().all() for value in straight):
        raise own.wrong(_("its steps give numbers that are not finite"))
    if all(torch.equal(value, before) for value, before in zip(straight, begun, strict=True)):
        raise own.wrong(_("its steps move no parameter"))
    if not all(torch.equal(one, other) for one, other in zip(straight, resumed, strict=True)):
        raise own.wrong(
            _(
                "its step after a resume is another; it must draw no random numbers, and keep all that it remembers as "
                "tensors and numbers in self.state[parameter]"
            )
        )


def _moved(
    own: OwnOptimizer, values: Sequence[Tensor], steps: Iterable[int], saved: Sequence[Mapping[str, Tensor]] = ()
) -> tuple[list[Tensor], list[dict[str, Tensor]]]:
    """Parameters of these values after some steps, begun with a saved state, and the state after them."""
    parameters = [nn.Parameter(value.clone()) for value in values]
    optimizer = AdoptedOptimizer(own, parameters)
    for parameter, state in zip(parameters, saved, strict=False):
        for quantity, value in state.items():
            optimizer.load(parameter, quantity, value)
    for step in steps:
        for parameter in parameters:
            parameter.grad = _drawn(f"gradient {step}", tuple(parameter.shape))
        optimizer.step()
    return [parameter.detach() for parameter in parameters], [optimizer.tensors(parameter) for parameter in parameters]


def _drawn(name: str, shape: tuple[int, ...]) -> Tensor:
    return torch.randn(shape, generator=torch_stream(0, "own parts", name))

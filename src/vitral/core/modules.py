"""Modules that users' own parts make."""

from collections.abc import Iterator
from typing import Any, cast

from torch import Tensor, nn

from vitral.core.language import _
from vitral.core.parts import OwnPart


def own_module(own: OwnPart, made: Any) -> nn.Module:
    """The result of an own part's factory, if it is a module whose numbers are saved and move with the model.

    Raises:
        UsageError: it is no module, or has numbers that are neither parameters nor constants.
    """
    if not isinstance(made, nn.Module):
        raise own.wrong(_("its factory returns {kind}, not an nn.Module", kind=type(made).__name__))
    parameters = dict(made.named_parameters())
    for name, value in parameters.items():
        if isinstance(value, nn.UninitializedParameter) or not value.is_floating_point():
            raise own.wrong(_("its parameter {name} is not a tensor of floating-point numbers", name=name))
    for name in (name for name in made.state_dict() if name not in parameters):
        raise own.wrong(
            _(
                "it would save {name}, which is not a parameter of its own; register a constant with "
                "register_buffer(…, persistent=False)",
                name=name,
            )
        )
    for where, part in cast("Iterator[tuple[str, object]]", made.named_modules()):
        for name, value in vars(part).items():
            held = cast("list[Any]", value) if isinstance(value, list | tuple) else [value]
            if any(isinstance(one, Tensor | nn.Module) for one in held):
                raise own.wrong(
                    _(
                        "its attribute {name} is neither saved nor moved with the model; make it an nn.Parameter, a "
                        "module (in a list: nn.ModuleList), or a buffer",
                        name=f"{where}.{name}".lstrip("."),
                    )
                )
    return made

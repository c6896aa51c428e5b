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
    _require_saved(own, made)
    return made


def _require_saved(own: OwnPart, module: nn.Module) -> None:
    parameters = dict(module.named_parameters())
    for name, value in parameters.items():
        if isinstance(value, nn.UninitializedParameter) or not value.is_floating_point():
            raise own.wrong(_("its parameter {name} is not a tensor of floating-point numbers", name=name))
    for name in module.state_dict():
        if name not in parameters:
            raise own.wrong(
                _(
                    "it would save {name}, which is not a parameter of its own; register a constant with "
                    "register_buffer(…, persistent=False)",
                    name=name,
                )
            )
    for name, value in _attributes(module):
        if isinstance(value, Tensor | nn.Module):
            raise own.wrong(
                _(
                    "its attribute {name} is neither saved nor moved with the model; make it an nn.Parameter, a module "
                    "(in a list: nn.ModuleList), or a buffer",
                    name=name,
                )
            )


def _attributes(module: nn.Module) -> Iterator[tuple[str, Any]]:
    """Attributes of a module and its parts, and the elements of those that are lists or tables."""
    modules = cast("Iterator[tuple[str, object]]", module.named_modules())
    for where, part in modules:
        for name, value in vars(part).items():
            if name.startswith("_") and name in _OF_TORCH:
                continue
            path = f"{where}.{name}".lstrip(".")
            if isinstance(value, dict):
                yield from ((path, each) for each in cast("dict[Any, Any]", value).values())
            elif isinstance(value, list | tuple):
                yield from ((path, each) for each in cast("list[Any]", value))
            else:
                yield path, value


_OF_TORCH = frozenset(vars(nn.Module()))

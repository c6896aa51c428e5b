"""A model with hooks: functions that see and may replace named activations in every forward pass."""

import inspect
from collections.abc import Callable, Mapping
from copy import copy
from typing import Any

import torch
from torch import Tensor

from vitral.core.errors import UsageError
from vitral.core.names import names_of
from vitral.core.taps import SILENT, Editor, InTurn, Tap
from vitral.model.transformer import Transformer

Hook = Callable[[Tensor], Tensor | None] | Callable[[Tensor, str], Tensor | None]
"""A function of an activation, or of it and its name, which returns what to continue with; None: the same."""


class HookedTransformer(Transformer):
    """A model that shares its weights with another one, and calls hooks.

    It generates by its own forward pass, without a cache: a hook sees all positions of a window.
    """

    is_hooked = True
    hooks: Tap

    @classmethod
    def of(cls, model: Transformer, hooks: Mapping[str, Hook]) -> "HookedTransformer":
        """The model with hooks; those that it has already come first.

        Args:
            model: stays as it is.
            hooks: by names as `vitral.core.names.names_of` understands them; those of one activation in their order.

        Raises:
            UsageError: a name that no activation of the model has.
        """
        edits: dict[str, Callable[[Tensor], Tensor]] = {}
        for asked, function in hooks.items():
            for name in names_of(asked, model.activation_names):
                edits[name] = _called(name, function, edits.get(name))
        made: Any = copy(model)
        made.__class__ = cls
        made.hooks = InTurn(made.hooks, Editor(edits)) if model.is_hooked else Editor(edits)
        return made

    def forward(self, tokens: Tensor, *, tap: Tap = SILENT, **how: Any) -> Tensor:
        """As `Transformer.forward`; hooks come before `tap`."""
        return super().forward(tokens, tap=InTurn(self.hooks, tap), **how)


def _called(name: str, function: Any, before: Callable[[Tensor], Tensor] | None) -> Callable[[Tensor], Tensor]:
    try:
        known = inspect.signature(function).parameters.values()
    except ValueError:  # a function in C
        known = ()
    more = (name,) if sum(one.default is one.empty and one.kind < one.VAR_POSITIONAL for one in known) > 1 else ()

    def edit(value: Tensor) -> Tensor:
        value = value if before is None else before(value)
        returned = function(value, *more)
        if returned is None:
            return value
        kinds = value.dtype, torch.promote_types(value.dtype, torch.float32)  # both go on under autocast
        if not isinstance(returned, Tensor) or returned.shape != value.shape or returned.dtype not in kinds:
            raise UsageError(
                "hooked: {name}: the function returned {given}; expected a tensor of the shape {shape} {kind}, or None",
                name=name,
                given=f"{list(returned.shape)} {returned.dtype}"
                if isinstance(returned, Tensor)
                else type(returned).__name__,
                shape=list(value.shape),
                kind=value.dtype,
            )
        return returned

    return edit

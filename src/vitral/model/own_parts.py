"""Own parts of a model: their parameters before it is built, and a trial of each when it is."""

from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn

from vitral.core.language import _
from vitral.core.parts import OwnPart, Part, own_module
from vitral.core.streams import torch_stream
from vitral.model.config import ModelConfig, OwnFeedForward, OwnNorm, OwnPositions
from vitral.model.modes import evaluating
from vitral.model.positions import Positions

ROWS, TIME = 2, 4
"""Sequences and positions on which a part is tried."""
CLOSE = 1e-3
"""Difference of two results, relative to their size, that is attributed to rounding."""


def own_shapes(own: OwnPart, *given: Any) -> dict[str, tuple[int, ...]]:
    """Names and shapes of the parameters of an own part that its factory makes of these arguments; {} if none."""
    return _shapes(own, own.part, *given)


@lru_cache(maxsize=256)
def _shapes(own: OwnPart, part: Part, *given: Any) -> dict[str, tuple[int, ...]]:
    made = None
    with suppress(Exception), torch.device("meta"):  # tensors without memory, if the factory does not look into them
        made = part.factory(*given, **own.settings)
    if made is None:
        with torch.random.fork_rng(devices=[]):
            made = own.make(*given)
    if not isinstance(made, nn.Module):
        return {}
    return {name: tuple(parameter.shape) for name, parameter in own_module(own, made).named_parameters()}


def try_own_parts(
    config: ModelConfig, model: nn.Module, positions: Positions, blocks: nn.ModuleList, final_norm: nn.Module
) -> None:
    """Run every own part of a new model once, on a few random vectors.

    Raises:
        UsageError: a part fails, gives another shape or numbers that are not finite, mixes positions where it must not,
            has no parameters where it needs some, or is one module in several places.
    """
    first: Any = blocks[0] if len(blocks) else None
    if isinstance(config.norm_type, OwnNorm):
        for norm in (None if first is None else first.attn_norm or first.recurrence_norm or first.mlp_norm, final_norm):
            if norm is not None and not isinstance(norm, nn.Identity):
                _try_vectors(config.norm_type, norm, config.d_model)
    if isinstance(config.feed_forward, OwnFeedForward) and first is not None and first.mlp is not None:
        if not any(True for _parameter in first.mlp.parameters()):
            raise config.feed_forward.wrong(_("it has no parameters; make them nn.Parameter, or modules"))
        _try_vectors(config.feed_forward, first.mlp, config.d_model)
    if isinstance(config.positions, OwnPositions):
        _try_positions(config.positions, positions, config)
    parameters = dict(model.named_parameters(remove_duplicate=False))
    if len(parameters) > len({id(parameter) for parameter in parameters.values()}):
        shared = _shared(parameters)
        for own in (config.norm_type, config.feed_forward, config.positions):
            if isinstance(own, OwnPart):
                raise own.wrong(
                    _("{one} and {other} are one parameter; its factory must make a new module at every call", **shared)
                )


def _shared(parameters: dict[str, nn.Parameter]) -> dict[str, str]:
    names: dict[int, str] = {}
    for name, parameter in parameters.items():
        if id(parameter) in names:
            return {"one": names[id(parameter)], "other": name}
        names[id(parameter)] = name
    return {}


def _try_vectors(own: OwnPart, module: nn.Module, width: int) -> None:
    """Try a module that maps the vector of each position alone, [batch, time, d_model] → the same."""
    x = torch.randn(ROWS, TIME, width, generator=torch_stream(0, "own parts"))
    with evaluating(module):
        whole = _ran(own, lambda: module(x))
        parts = [_ran(own, lambda piece=piece: module(piece)) for piece in (x[:, -1:], x[:1])]
    _require(own, whole, x.shape)
    for part, same in zip(parts, (whole[:, -1:], whole[:1]), strict=True):
        if part.shape != same.shape or not torch.allclose(
            part, same, rtol=CLOSE, atol=CLOSE * float(whole.abs().max())
        ):
            raise own.wrong(_("its result for one position depends on other positions or sequences"))


def _try_positions(own: OwnPart, positions: Positions, config: ModelConfig) -> None:
    time = min(TIME, config.context_length)
    heads = config.num_heads
    vectors, bias = _ran(own, lambda: positions.embed(0, time)), _ran(own, lambda: positions.bias(time, time))
    x = torch.randn(1, heads, time, config.d_head, generator=torch_stream(0, "own parts"))
    _require(own, _ran(own, lambda: positions.rotate(x, 0)), x.shape)
    _require(own, vectors, (time, config.d_model)) if vectors is not None else None
    _require(own, bias, (heads, time, time)) if bias is not None else None


def _ran(own: OwnPart, call: Callable[[], Any]) -> Any:
    """The result of code of the user's.

    Raises:
        UsageError: it failed.
    """
    with own.tried(), torch.no_grad():
        return call()


def _require(own: OwnPart, value: Any, shape: Iterable[int]) -> None:
    """Refuse a result that is not a tensor of finite numbers of this shape."""
    shape = tuple(shape)
    given = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
    if given != shape or not value.is_floating_point():
        raise own.wrong(_("it returns {given}, not a tensor of numbers {shape}", given=given, shape=shape))
    if not bool(value.isfinite().all()):
        raise own.wrong(_("its result contains numbers that are not finite"))

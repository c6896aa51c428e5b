"""Gradient of the loss at each block of a model.

For a fixed batch of N positions with mean loss L, and block l = 1 … n:

    stream      √N · ‖∂L/∂x_l‖    x_l: the residual stream before the block, [batch, time, d_model]
    parameters  ‖∂L/∂θ_l‖         θ_l: all parameters of the block

√N makes the first the root mean square over positions of the derivative of the summed loss with respect to one
position's vector, so that it does not depend on the size of the batch. `scale` is the root mean square of ‖x_l‖ over
positions: a gradient with respect to a stream ten times as wide is ten times as small, for the same effect.


The coordinate check: how far training moves each activation of a model (Yang et al. 2022, appendix D.1).

Where initial values and learning rates suit the width, an activation moves by about as much at any width. Where it
moves further the wider the model is, a learning rate that suits a narrow model is too high for a wide one.
"""

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from vitral.core.errors import UsageError
from vitral.core.taps import Recorder
from vitral.inspection.targets import Tokens
from vitral.model import Transformer, next_token_loss


def untrained(model: Transformer, seed: int, initialisation: str | None = None) -> Transformer:
    """A run's model before its first step, in evaluation mode.

    Args:
        model: after training; gives the configuration, device and precision.
        seed: of the run.
        initialisation: instead of the configuration's.
    """
    config = model.config
    if initialisation is not None:
        config = type(config).parse(config.plain() | {"initialisation": initialisation})
    return Transformer(config, model.vocab_size, seed=seed).to(model.token_embedding.weight).eval()


def gradients_by_block(model: Transformer, inputs: Tokens, targets: Tokens) -> dict[str, Any]:
    """Gradient norms of one model on one batch; the model is left unchanged.

    Args:
        model: in evaluation mode.
        inputs: ids, on any device.
        targets: the ids that follow.

    Returns:
        `stream`, `parameters` and `scale`, a number for each block (see the module). None in
        place of a number that is not finite.

    Raises:
        UsageError: the model has no blocks.
    """
    if not len(model.blocks):
        raise UsageError("a model without blocks has no gradient at any of them")
    inputs, targets = (ids.to(model.token_embedding.weight.device) for ids in (inputs, targets))
    names = [f"blocks.{layer}.resid_pre" for layer in range(len(model.blocks))]
    recorder = Recorder(names)
    with torch.enable_grad():
        loss = next_token_loss(model(inputs, tap=recorder), targets, model.mask)
        streams = [recorder.kept[name] for name in names]
        parameters = [list(block.parameters()) for block in model.blocks]
        wanted = [*streams, *(parameter for block in parameters for parameter in block)]
        gradients = torch.autograd.grad(loss, wanted, allow_unused=True, materialize_grads=True)
    of_parameters = iter(gradients[len(streams) :])
    positions = math.sqrt(inputs.numel())
    return {
        "stream": [_finite(positions * _norm([gradient])) for gradient in gradients[: len(streams)]],
        "parameters": [_finite(_norm([next(of_parameters) for _ in block])) for block in parameters],
        "scale": [_finite(_norm([stream.detach()]) / positions) for stream in streams],
    }


def first_over_last(state: Mapping[str, Any], kind: str) -> float | None:
    """Gradient at the first block over that at the last; None where one of them is zero or not finite.

    >>> state = {"stream": [20.0, 1.0], "scale": [0.05, 1.0]}
    >>> first_over_last(state, "stream"), first_over_last(state, "share")
    (20.0, 1.0)

    Args:
        state: as `gradients_by_block` returns it.
        kind: "stream", "parameters", or "share", the gradient of the stream times its scale: the effect of a relative
            change of the stream, which does not depend on how wide the stream is.
    """
    norms = state["stream" if kind == "share" else kind]
    factors = state["scale"] if kind == "share" else [1.0] * len(norms)
    first, last = (norms[at] and factors[at] and norms[at] * factors[at] for at in (0, -1))
    return first / last if first and last else None


def _norm(tensors: list[Tensor]) -> float:
    """The Euclidean norm of all numbers together, summed in float64."""
    return math.sqrt(sum(float(tensor.double().square().sum()) for tensor in tensors))


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None

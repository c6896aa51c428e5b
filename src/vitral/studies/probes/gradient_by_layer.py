"""How much of the loss's gradient arrives at each block, in a fresh and in a trained model.

For a fixed batch of N positions with mean loss L, and block l = 1 … n:

    stream      √N · ‖∂L/∂x_l‖    x_l: the residual stream before the block, [batch, time, d_model]
    parameters  ‖∂L/∂θ_l‖         θ_l: all parameters of the block

√N makes the first the root mean square over positions of what one position's vector does to the summed loss, so that
it does not depend on the size of the batch. `scale` is the root mean square of ‖x_l‖ over positions: a gradient with
respect to a stream ten times as wide is ten times as small, for the same effect.
"""

import math

import torch
from jaxtyping import Int
from torch import Tensor

from vitral.core.errors import UsageError
from vitral.core.taps import Recorder
from vitral.data import Batches
from vitral.model import Transformer, next_token_loss
from vitral.studies.probes.gradient_by_layer_shown import show
from vitral.studies.probes.protocol import Plain, RunProbe, Trained, require_next_tokens

WINDOWS = {"quick": 16, "standard": 32, "full": 64}
"""Windows of the batch."""
BATCH_SEED = 0
"""The batch is the same for all arms and seeds."""


def measure(trained: Trained) -> Plain:
    """The norms by block, `fresh` (the model as it was before its first step) and `trained`.

    Returns:
        `positions` of the batch; for both states `stream`, `parameters` and `scale`, a number for each block, None
        where it is not finite, and the batch's `loss` in nats per token.

    Raises:
        UsageError: the run is not trained to tell next tokens, its model has no blocks, or the training part has no
            window.
    """
    require_next_tokens(trained)
    model = trained.run.model
    if not len(model.blocks):
        raise UsageError("a model without blocks has no gradient at any of them")
    weight = model.token_embedding.weight
    fresh = Transformer(model.config, model.vocab_size, seed=trained.seed).to(weight).eval()
    batches = Batches(
        trained.dataset.splits["train"],
        context_length=model.config.context_length,
        batch_size=WINDOWS[trained.budget],
        seed=BATCH_SEED,
    )
    inputs, targets = (ids.to(weight.device) for ids in batches.batch(0))
    return {
        "positions": inputs.numel(),
        "fresh": gradients(fresh, inputs, targets),
        "trained": gradients(model, inputs, targets),
    }


def gradients(model: Transformer, inputs: Int[Tensor, "batch time"], targets: Int[Tensor, "batch time"]) -> Plain:
    """The norms of one model on one batch, block by block, as plain data; the model is left as it was.

    Args:
        model: in evaluation mode.
        inputs: ids.
        targets: the ids that follow.
    """
    names = [f"blocks.{layer}.resid_pre" for layer in range(len(model.blocks))]
    recorder = Recorder(names)
    with torch.enable_grad():
        loss = next_token_loss(model(inputs, tap=recorder), targets, model.mask)
        streams = [recorder.kept[name] for name in names]
        parameters = [list(block.parameters()) for block in model.blocks]
        wanted = [*streams, *(parameter for block in parameters for parameter in block)]
        found = torch.autograd.grad(loss, wanted, allow_unused=True, materialize_grads=True)
    of_parameters = iter(found[len(streams) :])
    positions = math.sqrt(inputs.numel())
    return {
        "loss": _finite(float(loss.detach())),
        "stream": [_finite(positions * _norm([gradient])) for gradient in found[: len(streams)]],
        "parameters": [_finite(_norm([next(of_parameters) for _ in block])) for block in parameters],
        "scale": [_finite(_norm([stream.detach()]) / positions) for stream in streams],
    }


def _norm(tensors: list[Tensor]) -> float:
    """The Euclidean norm of all numbers together, added up in float64."""
    return math.sqrt(sum(float(tensor.double().square().sum()) for tensor in tensors))


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None


GRADIENTS = RunProbe("gradients", measure, show, seconds={"quick": 1, "standard": 1, "full": 2})

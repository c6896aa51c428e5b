"""Training objectives: next-token, masked, mixed, and labels."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from vitral.core.language import N_
from vitral.core.streams import numpy_stream
from vitral.data.batches import IGNORED as IGNORED
from vitral.data.batches import Pair
from vitral.evaluation.losses import predicted
from vitral.evaluation.masking import Masking
from vitral.model.transformer import Transformer, first_target, mean_cross_entropy

Loss = Callable[[Tensor, Tensor, bool], Tensor]
"""The mean loss of inputs and targets [batch, time], in nats per token, or of labels [batch], in nats per label.

The last argument opens the mask, so that every position sees every other.
"""


def loss_function(model: Transformer, masking: Masking | None) -> Loss:
    """The loss of a batch as `make_inputs` makes it.

    One function holds the model and the cross-entropy, so that a compiler can fuse the head's logits with what follows.
    """
    first = 0 if masking is not None else first_target(model.mask)  # no attention mask reveals a masked token

    def loss(inputs: Tensor, targets: Tensor, bidirectional: bool = False) -> Tensor:
        logits = predicted(model, inputs, bidirectional=bidirectional)
        if targets.dim() == 1:
            return functional.cross_entropy(logits.to(torch.promote_types(logits.dtype, torch.float32)), targets)
        return mean_cross_entropy(logits, targets, 0 if bidirectional else first)

    return loss


def compiled(loss: Loss, warn: Callable[[str], object]) -> Loss:
    """The compiled loss; if compiling fails, the loss itself, with a warning."""
    chosen: Loss = torch.compile(loss)

    def run(inputs: Tensor, targets: Tensor, bidirectional: bool = False) -> Tensor:
        nonlocal chosen
        try:
            return chosen(inputs, targets, bidirectional)
        except Exception as error:  # the compiler and its backends raise many types
            if chosen is loss:
                raise
            warn(no_compiler(error))
            chosen = loss
            return loss(inputs, targets, bidirectional)

    return run


def no_compiler(error: Exception) -> str:
    """A note that the compiler fails here."""
    return N_("plan: cannot compile here ({error}); continuing without it").format(error=type(error).__name__)


def make_inputs(batch: Pair, masking: Masking | None, seed: int, step: int, micro: int) -> Pair:
    """Inputs and targets of the model for an objective.

    For next-token prediction and labels this is the batch itself, and in the other steps of a mixed objective. Else
    some input tokens are hidden, their targets are the original tokens, and all other targets are `IGNORED`.

    Args:
        batch: inputs and next tokens.
        masking: the masking, or None.
        seed: seed of the run.
        step: the optimizer step.
        micro: index of the batch within the step; the masked positions depend only on seed, step and micro.
    """
    if masking is None or not masking.is_due(seed, step):
        return batch
    return masking.asked(batch[0], numpy_stream(seed, "blanks", step, micro))

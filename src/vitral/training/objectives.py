"""Training objectives: next-token and masked."""

from typing import Annotated, Any, Literal

from jaxtyping import Int
from pydantic import BeforeValidator, Field
from torch import Tensor

from vitral.core.config import Config, nearest
from vitral.core.streams import numpy_stream
from vitral.data.batches import Pair
from vitral.data.tokenizers import Tokenizer
from vitral.evaluation.masking import Masking, mask_token

NAMES = ("next-token", "masked")
IGNORED = -100
"""The target value ignored by `torch.nn.functional.cross_entropy`."""


class Masked(Config):
    """Masked language modelling: predict the tokens at masked positions (Devlin et al. 2019, section 3.1).

    Simplified: see `vitral.evaluation.masking.Masking`. The mask token is the tokenizer's first special token, `<PAD>`
    of the character tokenizer.

    Attributes:
        name: "masked".
        rate: share of masked positions in a window; at least one position is masked.
    """

    name: Literal["masked"] = "masked"
    rate: Annotated[float, Field(gt=0, lt=1)] = 0.15

    def masking(self, tokenizer: Tokenizer) -> Masking:
        """The masking for this tokenizer.

        Raises:
            UsageError: the tokenizer has no mask token.
        """
        return Masking(self.rate, mask_token(tokenizer))


def _named(objective: Any) -> Any:
    """A bare name means the default rate; an unknown name is refused with the nearest known one."""
    if isinstance(objective, str) and objective not in NAMES:
        raise ValueError(f"{objective!r} is not one of {', '.join(NAMES)}; {nearest(objective, NAMES)}")
    return {"name": "masked"} if objective == "masked" else objective


Objective = Annotated[Literal["next-token"] | Masked, BeforeValidator(_named)]


def masking_of(objective: Literal["next-token"] | Masked, tokenizer: Tokenizer) -> Masking | None:
    """The masking of an objective; None for next-token prediction.

    Raises:
        UsageError: the tokenizer has no mask token.
    """
    return objective.masking(tokenizer) if isinstance(objective, Masked) else None


def make_inputs(batch: Pair, masking: Masking | None, seed: int, step: int, micro: int) -> Pair:
    """Inputs and targets of the model for an objective.

    For next-token prediction this is the batch itself. With masking, some input tokens are replaced by the mask token,
    their targets are the original tokens, and all other targets are `IGNORED`.

    Args:
        batch: inputs and next tokens.
        masking: the masking, or None.
        seed: seed of the run.
        step: the optimizer step.
        micro: index of the batch within the step; the masked positions depend only on seed, step and micro.
    """
    if masking is None:
        return batch
    inputs, hidden = masking.hide(batch[0], numpy_stream(seed, "blanks", step, micro))
    targets: Int[Tensor, "batch time"] = batch[0].masked_fill(~hidden, IGNORED)
    return inputs, targets

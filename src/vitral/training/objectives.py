"""What a model is asked for while it is trained: the next token, or the tokens that were hidden from it."""

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
"""A target that does not count, as `torch.nn.functional.cross_entropy` has it."""


class Masked(Config):
    """Masked language modelling: the tokens that stood where blanks are (Devlin et al. 2019, section 3.1).

    Simplified: see `vitral.evaluation.masking.Masking`. The blank is the tokenizer's first token that stands for no
    text, `<PAD>` of the character tokenizer.

    Attributes:
        name: "masked".
        rate: share of a window's tokens that are hidden; at least one is.
    """

    name: Literal["masked"] = "masked"
    rate: Annotated[float, Field(gt=0, lt=1)] = 0.15

    def masking(self, tokenizer: Tokenizer) -> Masking:
        """The same with the tokenizer's blank.

        Raises:
            UsageError: the tokenizer has no token for it.
        """
        return Masking(self.rate, mask_token(tokenizer))


def _named(objective: Any) -> Any:
    """The bare name means the usual rate; another name is refused with the nearest of both."""
    if isinstance(objective, str) and objective not in NAMES:
        raise ValueError(f"{objective!r} is not one of {', '.join(NAMES)}; {nearest(objective, NAMES)}")
    return {"name": "masked"} if objective == "masked" else objective


Objective = Annotated[Literal["next-token"] | Masked, BeforeValidator(_named)]


def masking_of(objective: Literal["next-token"] | Masked, tokenizer: Tokenizer) -> Masking | None:
    """How tokens are hidden under an objective; None under one that hides none.

    Raises:
        UsageError: the tokenizer has no token for a blank.
    """
    return objective.masking(tokenizer) if isinstance(objective, Masked) else None


def make_inputs(batch: Pair, masking: Masking | None, seed: int, step: int, micro: int) -> Pair:
    """What the model is given, and what it is asked for.

    Without blanks that is the batch as it is: tokens, and the token after each. With blanks it is the batch's inputs
    with some hidden, and as targets the tokens that stood there; all other targets are `IGNORED`.

    Args:
        batch: inputs and next tokens.
        masking: how tokens are hidden.
        seed: of the run.
        step: the optimizer step.
        micro: which of the step's batches; which positions are hidden depends on seed, step and this alone.
    """
    if masking is None:
        return batch
    inputs, hidden = masking.hide(batch[0], numpy_stream(seed, "blanks", step, micro))
    targets: Int[Tensor, "batch time"] = batch[0].masked_fill(~hidden, IGNORED)
    return inputs, targets

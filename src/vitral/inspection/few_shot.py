"""Examples in a prompt: whether a passage is predicted better after examples of it than after controls.

A row of the model's input is several passages of equal length, the last of which is scored. The passages before it are
the same one again (the examples), the same one with its tokens in random order (which gives away the tokens, not their
order), or other passages of the text (which give away its style). All rows are equally long, whatever the number of
examples: further examples take the place of other passages, so that no position is compared with another.

Legend of axes: batch = rows of tokens, time = positions of a passage.
"""

from typing import Any

import numpy as np
import torch
from jaxtyping import Int

from vitral.core.errors import UsageError
from vitral.core.streams import numpy_stream
from vitral.data import Split
from vitral.inspection.ablation import effect
from vitral.inspection.targets import UNSCORED, Scored, loss_by_row
from vitral.inspection.windows import read_windows, window_starts
from vitral.model import Transformer

EXAMPLES = ("same", "shuffled", "other")
"""What precedes the scored passage."""


def few_shot_losses(
    model: Transformer, split: Split, *, length: int, passages: int, most_examples: int
) -> dict[str, Any]:
    """The loss of passages after 0 to `most_examples` examples of each kind.

    Args:
        model: in evaluation mode.
        split: the tokens, of which passages are spread evenly.
        length: tokens of a passage, at least two; its first token is not scored.
        passages: number of scored passages.
        most_examples: most examples before a passage; there are always so many passages before it.

    Returns:
        `length`, `passages`, `examples` (0, 1, …); `losses`: by kind a list over the number of examples, in nats per
        token; `effects`: by kind a list of the change against other passages, {"increase", "error"}, with the standard
        error over passages.

    Raises:
        UsageError: a passage is a single token, the row does not fit into the model's context, or the split has too few
            passages.
    """
    if length < 2:
        raise UsageError("few-shot: a passage of one token leaves nothing to score; give at least two")
    time = length * (most_examples + 1)
    if time > model.config.context_length:
        raise UsageError(
            "few-shot: {number} passages of {length} tokens do not fit into a context of {context}",
            number=most_examples + 1,
            length=length,
            context=model.config.context_length,
        )
    starts = window_starts(split, length, passages * (most_examples + 1), stride=length)
    number = len(starts) // (most_examples + 1)
    if number < 2:
        raise UsageError("few-shot: the test split has too few passages of {length} tokens", length=length)
    stream = numpy_stream(0, "few-shot")
    drawn = stream.permutation(read_windows(split, starts, length).numpy())[: number * (most_examples + 1)]
    others, scored = drawn[number:].reshape(number, most_examples, length), drawn[:number]
    same = np.repeat(scored[:, None], most_examples, axis=1)
    before = {"same": same, "shuffled": stream.permuted(same, axis=2), "other": others}

    def losses(kind: str, examples: int) -> torch.Tensor:
        rows = np.concatenate(
            [others[:, examples:], before[kind][:, :examples], scored[:, None]], axis=1, dtype=np.int64
        ).reshape(number, time)
        return loss_by_row(model, _scored(rows, length, model))

    counts = range(most_examples + 1)
    rows = {kind: [losses(kind, count) for count in counts] for kind in EXAMPLES}
    return {
        "length": length,
        "passages": number,
        "examples": list(counts),
        "losses": {kind: [float(each.mean()) for each in several] for kind, several in rows.items()},
        "effects": {
            kind: [effect(rows["other"][count], rows[kind][count], sampled=True) for count in counts]
            for kind in EXAMPLES[:-1]
        },
    }


def _scored(rows: Int[np.ndarray, "batch time"], length: int, model: Transformer) -> Scored:
    """Rows whose last passage is scored, without its first token, as the model reads them."""
    tokens = torch.from_numpy(rows).to(model.token_embedding.weight.device)
    targets = tokens[:, 1:].clone()
    targets[:, : targets.shape[1] - (length - 1)] = UNSCORED
    return Scored(tokens[:, :-1], targets, sampled=True)

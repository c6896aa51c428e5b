"""Events of training: plain mappings, also written to metrics.jsonl.

    {"event": "start", "steps", "step", "objective", "parameters", "vocab_size", "tokens", "device", "dtype"}
    {"event": "lines", "ngrams"}                            the n-gram baselines, once counted, at the latest before
                                                            the first evaluation
    {"event": "step", "step", "loss", "learning_rate", "gradient_norm", "tokens_per_second"}
    {"event": "evaluation", "step", "train_loss", "validation_loss", "test_loss"}
    {"event": "sample", "step", "text"}
    {"event": "note", "text"}                               a warning, for example of a damaged checkpoint
    {"event": "stopped", "step", "reason"}                  training stopped: a number is not finite
    {"event": "end", "step", "finished", "seconds", "stepped"}

`stepped` is the Unix time after the last step, before the final evaluation. Losses are nats per token. `train_loss` is
the mean over the batches since the previous evaluation, with dropout.
"""

from collections.abc import Callable, Mapping
from typing import Any

Event = Mapping[str, Any]
Callback = Callable[[Event], None]


def silent(event: Event) -> None:
    """Ignore the event."""


def all_of(*callbacks: Callback) -> Callback:
    """One callback that calls several."""

    def emit(event: Event) -> None:
        for callback in callbacks:
            callback(event)

    return emit

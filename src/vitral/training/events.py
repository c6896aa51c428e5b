"""What training says while it runs: plain mappings, the same that go to metrics.jsonl.

    {"event": "start", "steps", "step", "objective", "parameters", "vocab_size", "tokens", "device", "dtype"}
    {"event": "lines", "ngrams"}                            as soon as they are counted, at the latest before the first
                                                            evaluation
    {"event": "step", "step", "loss", "learning_rate", "gradient_norm", "tokens_per_second"}
    {"event": "evaluation", "step", "train_loss", "validation_loss", "test_loss"}
    {"event": "sample", "step", "text"}
    {"event": "note", "text"}                               before a resumed run's start: a damaged checkpoint
    {"event": "stopped", "step", "reason"}                  a study's run that met a number that is not finite
    {"event": "end", "step", "finished", "seconds", "stepped"}

`stepped` is the Unix time after the last step, before what it has come to is measured. Losses are nats per token.
`train_loss` is the mean over the batches since the evaluation before, dropout on.
"""

from collections.abc import Callable, Mapping
from typing import Any

Event = Mapping[str, Any]
Callback = Callable[[Event], None]


def silent(event: Event) -> None:
    """Say nothing."""


def all_of(*reporters: Callback) -> Callback:
    """Tell several reporters."""

    def emit(event: Event) -> None:
        for callback in reporters:
            callback(event)

    return emit

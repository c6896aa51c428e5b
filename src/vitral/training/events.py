"""Events of training: plain mappings, also written to metrics.jsonl.

    {"event": "start", "steps", "step", "objective", "parameters", "vocab_size", "tokens", "device", "dtype"}
    {"event": "lines", "ngrams", "problems"}                the n-gram baselines, as soon as they are counted, at the
                                                            latest before the first evaluation, and problems of the
                                                            text that make them void; not in metrics.jsonl
    {"event": "early", "step", "validation_loss", "tokens"} in a run that somebody watches, once in a session, after the
                                                            first seconds: the loss on a few tokens of the validation
                                                            split, and then a sample
    {"event": "step", "step", "loss", "learning_rate", "gradient_norm", "tokens_per_second"}
    {"event": "evaluation", "step", "train_loss", "validation_loss", "test_loss"}
    {"event": "sample", "step", "text", "copied"}           copied: [begin, end] of each passage of eight or more words
                                                            in a row that stands in the training text; absent if that
                                                            text is too long to be searched
    {"event": "frame", "step", "sha256"}                    the weights of a frame of the film; in metrics.jsonl only
    {"event": "note", "text"}                               a warning, for example of a damaged checkpoint
    {"event": "decision", "step", "steps", "schedule", "threads", "evaluate_every"}
                                                            a change of the configuration from this step on
    {"event": "stopped", "step", "reason"}                  training stopped: a number is not finite
    {"event": "end", "step", "finished", "seconds", "stepped"}

`stepped` is the Unix time after the last step, before the final evaluation. Losses are nats per token. `train_loss` is
the mean over the batches since the previous evaluation, with dropout. A study adds keys and events of its own
(`vitral.studies.run_study`). `start` and `lines` are not in metrics.jsonl; runs of earlier versions have no `early` and
no `copied`.
"""

from collections.abc import Callable, Mapping
from typing import Any

Event = Mapping[str, Any]
Callback = Callable[[Event], object]
"""Receives every event. A line of text that it returns is noted in metrics.jsonl, for example that it can no longer
print. An exception stops training; everything trained so far is saved before the exception is raised again."""


def silent(event: Event) -> None:
    """Ignore the event."""


def noting(callback: Callback) -> Callable[[str], object]:
    """A function that tells a line, for example of a damaged checkpoint."""
    return lambda line: callback({"event": "note", "text": line})


def all_of(*callbacks: Callback) -> Callback:
    """One callback that calls several, and returns the lines of text that they return."""

    def emit(event: Event) -> str | None:
        lines = [line for callback in callbacks if isinstance(line := callback(event), str)]
        return "; ".join(lines) or None

    return emit

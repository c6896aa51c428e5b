"""Views of a model in training, for the person who watches: samples, and an early evaluation.

They change nothing of the run: no number, no checkpoint and no decision depends on them.
"""

import math
import time
from typing import Any

from vitral.core.errors import UsageError
from vitral.decoding import Sampling, answered, generate
from vitral.evaluation import copied_spans
from vitral.runs.objectives import predicts_next
from vitral.training import ranks
from vitral.training.trainer import Trainer

SAMPLE_TEMPERATURE = 0.8
EARLY_AFTER = 6.0
"""Seconds before the early evaluation, so that it is seen within ten seconds of the program's start."""
EARLY_STEPPING = 2.0
"""Seconds of training before it, also where the program started slowly."""
EARLY_TOKENS = 1 << 13


def early_is_due(trainer: Trainer) -> bool:
    """Whether rank 0 has trained for long enough to show an early evaluation."""
    waited = time.perf_counter() - trainer.began
    if not trainer.clock.pause or trainer.looked or waited < EARLY_AFTER or trainer.clock.seconds() < EARLY_STEPPING:
        return False
    return ranks.leads() and bool(trainer.config.training.watch)


def evaluate_early(trainer: Trainer) -> None:
    """Emit the loss on a few tokens of the validation split, and a sample.

    Raises:
        StopAsked: a stop was requested meanwhile.
    """
    trainer.looked = True
    try:
        found = trainer.measured("validation", EARLY_TOKENS)
    except UsageError:
        return  # so few tokens may have no target, under the mask of a long prefix
    if math.isfinite(found.loss):
        losses = {"validation_loss": found.loss, "tokens": found.num_targets}
        trainer.emit({"event": "early", "step": trainer.state.step, **losses})
        if predicts_next(trainer.config.training.objective):
            trainer.emit(sample_event(trainer))


def write_sample(trainer: Trainer) -> None:
    """Generate and save a text with the current weights, from a random stream of its own."""
    event = sample_event(trainer)
    trainer.folder.write_sample(event["step"], event["text"])
    trainer.emit(event)


def sample_event(trainer: Trainer) -> dict[str, Any]:
    """A text by the current weights, and the passages in it that stand in the training text.

    Of records it is the answers to the first questions of the validation split.
    """
    if trainer.dataset.answers is not None:
        split, how = trainer.dataset.splits["validation"], trainer.batches.reading
        shown = answered(trainer.model, trainer.dataset.tokenizer, split, how, trainer.config.training.sample_tokens)
        return {"event": "sample", "step": trainer.state.step, "text": "\n".join(shown)}
    sample = generate(
        trainer.model,
        trainer.dataset.tokenizer,
        [""],
        max_tokens=trainer.config.training.sample_tokens,
        sampling=Sampling(temperature=SAMPLE_TEMPERATURE),
        seed=trainer.config.seed,
    )[0]
    event = {"event": "sample", "step": trainer.state.step, "text": sample.text}
    text = trainer.searched
    return event if text is None else {**event, "copied": [list(span) for span in copied_spans(sample.text, text)]}

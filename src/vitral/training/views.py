"""Views of a model in training, for the person who watches: samples, an early evaluation, frames of a film.

They change nothing of the run: no number, no checkpoint and no decision depends on them.
"""

import math
import os
import time
from typing import Any

from vitral.core.errors import UsageError
from vitral.core.files import insist, names, storage
from vitral.core.language import N_, Message
from vitral.decoding import Sampling, answered, generate
from vitral.evaluation import copied_spans
from vitral.model import count_parameters
from vitral.runs.checkpoint import as_tensors
from vitral.runs.objectives import predicts_next
from vitral.training import ranks
from vitral.training.events import noting
from vitral.training.trainer import Trainer

SAMPLE_TEMPERATURE = 0.8
EARLY_AFTER = 6.0
"""Seconds before the early evaluation, so that it is seen within ten seconds of the program's start."""
EARLY_STEPPING = 2.0
"""Seconds of training before it, also where the program started slowly."""
EARLY_TOKENS = 1 << 13
MOST_LATER = 13
"""Frames besides the first one; of more, the newest remain."""
BYTES_FLOAT16 = 2


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
        result = trainer.measured("validation", EARLY_TOKENS)
    except UsageError:
        return  # so few tokens may have no target, under the mask of a long prefix
    if math.isfinite(result.loss):
        losses = {"validation_loss": result.loss, "tokens": result.num_targets}
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
    most = trainer.config.training.sample_tokens
    if trainer.dataset.answers is not None:
        split, how = trainer.dataset.splits["validation"], trainer.batches.reading
        text = "\n".join(answered(trainer.model, trainer.dataset.tokenizer, split, how, most))
    else:
        sampling = Sampling(temperature=SAMPLE_TEMPERATURE)
        made = generate(
            trainer.model,
            trainer.dataset.tokenizer,
            [""],
            max_tokens=most,
            sampling=sampling,
            seed=trainer.config.seed,
        )
        text = made[0].text
    event, searched = {"event": "sample", "step": trainer.state.step, "text": text}, trainer.searched
    return event if searched is None else {**event, "copied": [list(span) for span in copied_spans(text, searched)]}


def is_frame(trainer: Trainer) -> bool:
    """Whether a film is kept that has the weights of this step: where the run begins and ends, and at powers of two."""
    step, training = trainer.state.step, trainer.config.training
    return bool(training.film) and (step in (training.schedule.begin, training.steps) or step & (step - 1) == 0)


def film_note(trainer: Trainer) -> Message:
    """How many frames the film of a run will have, and how large they will be."""
    steps, begin = trainer.config.training.steps, trainer.config.training.schedule.begin or 0
    powers = steps.bit_length() - begin.bit_length()  # of two, behind where it begins
    frames = 1 + min(MOST_LATER, powers + (steps & (steps - 1) > 0))
    size = frames * BYTES_FLOAT16 * count_parameters(trainer.config.model, trainer.model.vocab_size)
    return N_("film: {frames} frames, {size:.1f} MB").format(frames=frames, size=size / 1e6)


def keep_frame(trainer: Trainer) -> None:
    """Keep the weights of this step if the film has them; all ranks come here.

    Raises:
        StorageError: they could not be written.
    """
    if not is_frame(trainer):
        return
    step, folder = trainer.state.step, trainer.folder
    weights = ranks.gathered(trainer.model.state_dict())
    # A session that is stopped at a frame has it already, and the next one begins there.
    if not ranks.leads() or any(event.get("step") == step for event in folder.log.events("frame")):
        return
    halves = {name: weight.half() for name, weight in weights.items()}
    if not all(half.isfinite().all() for half in halves.values()):
        noting(trainer.notify)(N_("film: step {step} is left out: float16 cannot hold its weights").format(step=step))
        return
    folder.write_frame(step, as_tensors(halves))
    film = folder.path / "film"
    for name in [each for each in names(film) if each.startswith("step-")][1:-MOST_LATER]:
        with storage(film / name):
            insist(os.unlink, film / name)

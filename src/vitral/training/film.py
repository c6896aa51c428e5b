"""The film of a run: its weights after a few steps in float16, with which a page shows how the model learned."""

import math
import os
from collections.abc import Mapping

from vitral.core.errors import UsageError
from vitral.core.files import insist, names, storage
from vitral.core.language import N_, Message
from vitral.model import Transformer, count_parameters
from vitral.runs import RunFolder, SealedRun
from vitral.runs.checkpoint import MOST_BYTES, as_tensors, of_tensors, understood
from vitral.runs.folder import frame_name
from vitral.runs.loading import load_weights
from vitral.training import ranks
from vitral.training.events import noting
from vitral.training.trainer import Trainer

MOST_LATER = 13
"""Frames besides the first one; of more, the newest remain."""
BYTES_FLOAT16 = 2
APART = 1.05
"""A curve has losses of steps that are at least so many times the step before."""


def is_frame(trainer: Trainer) -> bool:
    """Whether a film is kept that has the weights of this step: where the run begins and ends, and at powers of two."""
    step, training = trainer.state.step, trainer.config.training
    return bool(training.film) and (step in (training.schedule.begin, training.steps) or step & (step - 1) == 0)


def film_note(trainer: Trainer) -> Message:
    """How many frames the film of a run will have, and how large they will be."""
    steps, begin = trainer.config.training.steps, trainer.config.training.schedule.begin or 0
    powers = steps.bit_length() - begin.bit_length()  # of two, behind where it begins
    frames = 1 + min(MOST_LATER, powers + (steps & (steps - 1) > 0))
    size = frames * BYTES_FLOAT16 * count_parameters(trainer.config.model, trainer.dataset.tokenizer.vocab_size)
    return N_("film: {frames} frames, {size:.1f} MB").format(frames=frames, size=size / 1e6)


def keep_frame(trainer: Trainer) -> None:
    """Keep the weights of this step if the film has them; all ranks come here.

    Raises:
        StorageError: they could not be written.
    """
    if not is_frame(trainer):
        return
    step, folder = trainer.state.step, trainer.folder
    weights = trainer.model.state_dict()
    weights = ranks.gathered(weights) if trainer.is_sharded else weights
    # A session that is stopped at a frame has it already, and the next one begins there.
    if not ranks.leads() or any(event.get("step") == step for event in folder.log.events("frame")):
        return
    halves = {name: weight.half() for name, weight in weights.items()}
    if not all(half.isfinite().all() for half in halves.values()):
        noting(trainer.tell)(N_("film: step {step} is left out: float16 cannot hold its weights").format(step=step))
        return
    folder.write_frame(step, as_tensors(halves))
    film = folder.path / "film"
    for name in [each for each in names(film) if each.startswith("step-")][1:-MOST_LATER]:
        with storage(film / name):
            insist(os.unlink, film / name)


def load_frame(sealed: SealedRun, like: Transformer, step: int, film: Mapping[int, str]) -> Transformer:
    """A frame of a run's film in evaluation mode: numbers of float16, in the precision and on the device of its model.

    Args:
        sealed: the run.
        like: its model.
        step: of the frame.
        film: `sealed.film()`.

    Raises:
        UsageError: there is no such frame, or it is damaged.
    """
    name, hashed = frame_name(step), film.get(step)
    path = sealed.path / name
    if hashed is None:
        raise UsageError("{path}: the run's film has no such frame", path=path)
    model = Transformer(like.config, like.vocab_size).to(like.token_embedding.weight).eval()
    with understood(path):
        load_weights(model, of_tensors(sealed.as_sealed(name, hashed, MOST_BYTES)), str(path))
    return model


def curve(run: RunFolder, event: str, key: str) -> list[list[float]]:
    """The [step, loss] of a run's events of a kind, as close as a logarithmic axis shows them.

    The last event and those at frames of the film always have a point. The loss of an event "step" is that of the
    weights before the update, so its point is at the step before.

    Raises:
        UsageError: the log is damaged.
    """
    points, events, frames = list[list[float]](), run.metrics(event), run.film()
    with understood(run.log.path):
        for each in events:
            step, loss = each["step"] - (event == "step"), round(each[key], 4)
            is_wanted = not points or each is events[-1] or each["step"] in frames or step >= APART * points[-1][0]
            if is_wanted and math.isfinite(step + loss):
                points.append([step, loss])
    return points

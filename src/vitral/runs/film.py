"""The film of a run: its weights after a few steps in float16, with which a page shows how the model learned."""

import math
from collections.abc import Mapping

from vitral.core.errors import UsageError
from vitral.model import Transformer
from vitral.runs.checkpoint import MOST_BYTES, of_tensors, understood
from vitral.runs.folder import RunFolder, frame_name
from vitral.runs.loading import load_weights
from vitral.runs.sealed import SealedRun

APART = 1.05
"""A curve has losses of steps that are at least so many times the step before."""


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

"""The probe `in-context`: how near a model's predictions of new Markov chains are to the exact predictors, by step."""

from collections.abc import Mapping
from functools import partial
from statistics import fmean
from typing import Any

import torch

from vitral.core.language import N_
from vitral.data.tasks import MarkovChains
from vitral.inspection import chain_distances
from vitral.inspection.predictors import PREDICTORS
from vitral.studies.claims import Read
from vitral.studies.probe import (
    Against,
    Axis,
    Course,
    Plain,
    Probe,
    Quantity,
    Trained,
    Within,
    require_causal_lm,
)
from vitral.studies.trajectories import along_training, task_rows

ROWS = ((128, 256), (200, 1000), (500, 4000))
"""Test sequences at every checkpoint, and at the end."""
NATS = "nats per token"


def measure(trained: Trained) -> Plain:
    """Losses and divergences along training, and the losses by position at its end."""
    require_causal_lm(trained)
    few, most = trained.size(*ROWS)
    task, rows = task_rows(trained, MarkovChains, most)
    states = torch.from_numpy(trained.run.tokenizer.encode(task.alphabet))
    look = partial(chain_distances, states=states, concentration=task.concentration)
    steps = along_training(trained, lambda model: _without_positions(look(model, rows[:few])))
    return {"steps": steps, "last": look(trained.model, rows)}


def _without_positions(found: Plain) -> Plain:
    return {key: found[key] for key in ("losses", "divergence")}


def _plateau(run: Mapping[str, Any]) -> float | None:
    """The share of the checkpoints at which the model is nearer to counting symbols than to the other predictors."""
    nearest = [min(PREDICTORS, key=lambda name: one["divergence"][name]) for one in run["steps"]]
    return nearest.count("unigram") / len(nearest)


def _quarter(who: str, *, last: bool) -> Read:
    def read(run: Mapping[str, Any]) -> float:
        nats = run["last"]["nats"][who]
        size = max(1, len(nats) // 4)
        return fmean(nats[-size:] if last else nats[:size])

    return read


LOSS = Quantity(N_("loss on new chains"), "last/losses/model", NATS, "lower")
BAYES = Quantity(N_("loss of the Bayes predictor"), "last/losses/bigram", NATS)
COUNTING = Quantity(N_("loss of counting symbols"), "last/losses/unigram", NATS)
EVEN = Quantity(N_("loss of the uniform predictor"), "last/losses/uniform", NATS)
FAR = Quantity(N_("KL from the Bayes predictor"), "last/divergence/bigram", NATS, "lower")
FAR_COUNTING = Quantity(N_("KL from counting symbols"), "last/divergence/unigram", NATS, "lower")
PLATEAU = Quantity(N_("share of the checkpoints nearest to counting symbols"), _plateau, digits=2)
EARLY = Quantity(N_("loss in the first quarter of the window"), _quarter("model", last=False), NATS, "lower")
LATE = Quantity(N_("loss in the last quarter of the window"), _quarter("model", last=True), NATS, "lower")
LATE_BAYES = Quantity(N_("loss of the Bayes predictor in the last quarter"), _quarter("bigram", last=True), NATS)

PROBE = Probe(
    "in-context",
    N_("Learning a chain in its window"),
    measure,
    about=N_(
        "Every window is of a Markov chain of its own, so what is known of its transitions comes from the window. The "
        "Bayes predictor counts pairs of symbols, with the prior by which the chains are drawn: nothing can be better "
        "on average. Counting symbols ignores the order. The uniform predictor has learned nothing."
    ),
    tables=[(LOSS, BAYES, COUNTING, EVEN, FAR, FAR_COUNTING, PLATEAU), (EARLY, LATE, LATE_BAYES)],
    contrasts=[Within(LOSS, BAYES), Within(LOSS, COUNTING), Against([LOSS])],
    figure=Course(
        N_("Loss on new chains along training"),
        Axis(N_("step")),
        Axis(N_("loss on new chains")),
        lambda run: [(one["step"], one["losses"]["model"]) for one in run["steps"]],
    ),
    seconds=(3, 6, 20),
)

"""The probe `in-context`: how near a model's predictions of new Markov chains are to the exact predictors, by step."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from statistics import fmean
from typing import Any

import torch

from vitral.core.language import N_, _
from vitral.data.tasks import MarkovChains
from vitral.figures.lines import Axis
from vitral.figures.sections import Heading
from vitral.inspection import chain_distances
from vitral.inspection.predictors import PREDICTORS
from vitral.studies import probe
from vitral.studies.claims import Read
from vitral.studies.probe import ArmMeasures, Arms, Plain, Quantity, StudyResult, Trained, View
from vitral.studies.trajectories import along_plot, along_training, curve, task_rows

ROWS = ((128, 256), (200, 1000), (500, 4000))
"""Test sequences at every checkpoint, and at the end."""
NATS = "nats per token"
LABELS = {"bigram": N_("Bayes predictor"), "unigram": N_("counting symbols"), "uniform": N_("uniform")}


def measure(trained: Trained) -> Plain:
    """Losses and divergences along training, and the losses by position at its end."""
    probe.require_causal_lm(trained)
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
FROM_EACH = Quantity(N_("KL from each predictor"), "value", "nats")
PLATEAU = Quantity(N_("share of the checkpoints nearest to counting symbols"), _plateau, digits=2)
EARLY = Quantity(N_("loss in the first quarter of the window"), _quarter("model", last=False), NATS, "lower")
LATE = Quantity(N_("loss in the last quarter of the window"), _quarter("model", last=True), NATS, "lower")
LATE_BAYES = Quantity(N_("loss of the Bayes predictor in the last quarter"), _quarter("bigram", last=True), NATS)


def view(result: StudyResult, arms: Arms) -> View:
    """Losses beside the exact predictors', by position and along training."""
    how = _(
        "Every window is of a Markov chain of its own, so what is known of its transitions comes from the window. The "
        "Bayes predictor counts pairs of symbols, with the prior by which the chains are drawn: nothing can be better "
        "on average. Counting symbols ignores the order. The uniform predictor has learned nothing."
    )
    means, kl = _("Means over seeds."), _("Kullback-Leibler divergence in nats, means over seeds.")
    losses = [curve(arm, arm.title, "losses/model") for arm in arms]
    losses += [curve(arms[0], _(LABELS[name]), f"losses/{name}") for name in PREDICTORS]
    divergences = [curve(arms[0], _(LABELS[name]), f"divergence/{name}") for name in PREDICTORS]
    phases = _("{arm}: how far from each predictor", arm=arms[0].title)
    position = Axis(_("position in the window"), log=True, ticks=(1, 2, 4, 8, 16, 32, 64))
    sections = (
        Heading(_("Learning a chain in its window")),
        how,
        probe.mean_table(means, arms, LOSS, BAYES, COUNTING, EVEN, FAR, FAR_COUNTING, PLATEAU),
        *_by_position(arms, position),
        probe.mean_table(means, arms, EARLY, LATE, LATE_BAYES),
        Heading(_("Along training"), 3),
        *along_plot("in-context-loss", _("Loss on new chains along training"), losses, LOSS, means),
        *along_plot("in-context-phases", phases, divergences, FROM_EACH, kl),
    )
    comparisons = (
        *probe.within(arms, LOSS, BAYES),
        *probe.within(arms, LOSS, COUNTING),
        *probe.against_base(arms, LOSS),
    )
    return View(sections, comparisons)


def _by_position(arms: Arms, axis: Axis) -> tuple[probe.Plot, ...]:
    """The loss at groups of positions, two to each doubling, of every arm and of the exact predictors."""
    length = min(len(arm.first["last"]["nats"]["model"]) for arm in arms)
    points = {
        (begin + 1 + end) / 2: replace(LOSS, source=lambda run, begin=begin, end=end: fmean(run["nats"][begin:end]))
        for begin, end in probe.halves(length)
    }

    def line(arm: ArmMeasures, title: str, who: str) -> ArmMeasures:
        runs = {seed: {"nats": run["last"]["nats"][who]} for seed, run in arm.runs.items()}
        return replace(arm, title=title, runs=runs)

    lines = [line(arm, arm.title, "model") for arm in arms]
    lines += [line(arms[0], _(LABELS[name]), name) for name in PREDICTORS]
    caption = _("Mean over seeds of the loss at groups of positions, two to each doubling.")
    return probe.mean_lines("in-context-positions", _("Loss by position"), lines, points, axis, caption)

"""The probe `induction`: how a model learns to complete a repeated string, and which heads do it."""

from collections.abc import Mapping
from typing import Any

import torch

from vitral.core.language import N_
from vitral.data.tasks import RepeatedStrings
from vitral.inspection import count_nats, induction_ablation, induction_scores, periods_of, repetition_nats
from vitral.inspection.induction import OCCURRENCES, occurrences
from vitral.model import Transformer
from vitral.studies.claims import Read, at, every
from vitral.studies.probe import Axis, Course, Plain, Probe, Quantity, Range, Trained, Within, require_causal_lm
from vitral.studies.trajectories import along_training, half_way, task_rows

ROWS = (64, 96, 256)
"""Test sequences at every checkpoint; four times as many for the ablation."""
LEAST_FALL, LEAST_RISE = 1.5, 0.2
"""Nats of the loss, and weight of a score, below which no step of change is named."""
ABRUPT, WITHIN = 0.5, 0.1
"""A change is abrupt if this share of it happens within this share of the training."""
CONCENTRATIONS = tuple(2.0**power for power in range(-8, 3))
"""Pseudocounts of counting symbols; the best of them for the test sequences is taken."""
NATS = "nats per token"


def measure(trained: Trained) -> Plain:
    """Losses and head scores along training, the ablation at its end, and the least possible losses."""
    require_causal_lm(trained)
    task, rows = task_rows(trained, RepeatedStrings, 4 * trained.size(*ROWS))
    limits = {"shortest": task.shortest, "longest": task.longest}
    periods, few, model = periods_of(rows, **limits), trained.size(*ROWS), trained.model
    exact = torch.from_numpy(repetition_nats(rows.numpy(), symbols=task.symbols, **limits)[:, 1:])
    second = occurrences(periods, rows.shape[1] - 1)["second"]
    states = _states(trained, task)[rows].numpy()
    counted = [count_nats(states, symbols=task.symbols, concentration=one) for one in CONCENTRATIONS]
    return {
        "exact": float(exact[second].mean()),
        "counted": min(float(nats[second.numpy()].mean()) for nats in counted),
        "steps": along_training(trained, lambda one: induction_scores(one, rows[:few], periods[:few])),
        "last": induction_scores(model, rows, periods),
        "ablation": induction_ablation(model, rows, periods) if _composes(model) else None,
    }


def _states(trained: Trained, task: RepeatedStrings) -> torch.Tensor:
    """The symbol of each token."""
    tokens = torch.from_numpy(trained.run.tokenizer.encode(task.alphabet))
    return torch.zeros(trained.model.vocab_size, dtype=torch.int64).scatter(0, tokens, torch.arange(task.symbols))


def _composes(model: Transformer) -> bool:
    """Whether a head of a later layer can read what one of an earlier layer has written."""
    return model.mask is not None and model.config.num_layers > 1


def _best(found: Mapping[str, Any], score: str) -> float | None:
    """The highest score of a head."""
    return max(every(found, f"layers/*/heads/*/{score}"), default=None)


def _curve(run: Mapping[str, Any], read: Read) -> list[tuple[float, float | None]]:
    return [(one["step"], read(one)) for one in run["steps"]]


def _change(read: Read, least: float) -> Read:
    return lambda run: half_way(_curve(run, read), least)


def _abruptness(run: Mapping[str, Any]) -> float | None:
    """The largest share of the fall of the loss that happens within a tenth of the steps."""
    curve = [(step, value) for step, value in _curve(run, REPEATED) if value is not None]
    (first, begin), (last, end) = curve[0], curve[-1]
    if begin - end < LEAST_FALL:
        return None
    reach = WITHIN * (last - first)
    falls = [one - other for left, one in curve for right, other in curve if left < right <= left + reach]
    return max(falls, default=0.0) / (begin - end)


REPEATED, PREFIX, PREVIOUS = (
    at("losses/second"),
    lambda one: _best(one, "prefix"),
    lambda one: _best(one, "previous"),
)
LOSSES = {
    name: Quantity(title, f"last/losses/{name}", NATS, "lower")
    for name, title in zip(
        OCCURRENCES,
        (N_("loss in the first occurrence"), N_("loss in the second occurrence"), N_("loss in later occurrences")),
        strict=True,
    )
}
EXACT = Quantity(N_("least possible loss in the second occurrence"), "exact", NATS)
COUNTED = Quantity(N_("loss in the second occurrence of counting symbols"), "counted", NATS)
BEST_PREFIX = Quantity(N_("highest prefix-matching score"), lambda run: PREFIX(run["last"]))
BEST_PREVIOUS = Quantity(N_("highest previous-token score"), lambda run: PREVIOUS(run["last"]))
EVEN_PREFIX = Quantity(N_("prefix-matching score of uniform attention"), "last/uniform/prefix")
EVEN_PREVIOUS = Quantity(N_("previous-token score of uniform attention"), "last/uniform/previous")
STEP_OF_LOSS = Quantity(N_("step at which the loss is half-way"), _change(REPEATED, LEAST_FALL), digits=0)
STEP_OF_PREFIX = Quantity(N_("step at which prefix matching is half-way"), _change(PREFIX, LEAST_RISE), digits=0)
STEP_OF_PREVIOUS = Quantity(
    N_("step at which attention to the token before is half-way"), _change(PREVIOUS, LEAST_RISE), digits=0
)
ABRUPTNESS = Quantity(N_("largest share of the fall within a tenth of the steps"), _abruptness, digits=2)
_WITHOUT = "ablation/without"
WITHOUT_PREVIOUS = Quantity(N_("loss increase without the previous-token head"), f"{_WITHOUT}/previous/increase", NATS)
WITHOUT_OTHERS = Quantity(N_("loss increase without another head of its layer"), f"{_WITHOUT}/others/increase", NATS)
WITHOUT_INDUCTION = Quantity(N_("loss increase without the induction head"), f"{_WITHOUT}/induction/increase", NATS)
KEPT = Quantity(N_("prefix-matching score of the induction head"), "ablation/prefix")
LEFT = Quantity(N_("this score without the previous-token head"), f"{_WITHOUT}/previous/prefix")
LEFT_BY_OTHERS = Quantity(N_("this score without another head of its layer"), f"{_WITHOUT}/others/prefix")


PROBE = Probe(
    "induction",
    N_("Completing a repeated string"),
    measure,
    about=N_(
        "Each test sequence is a random string that is repeated. The least possible loss is that of the exact Bayes "
        "predictor, which knows the law by which the sequences are drawn. The first token of the second occurrence "
        "counts nowhere, since nothing tells that the string ends. Counting symbols predicts each symbol by how often "
        "it came so far, whatever came before it: it can be done without finding the earlier occurrence. "
        "Previous-token score: the weight of a head on the position before. Prefix-matching score: its weight on the "
        "positions right after the places, whole periods back, of the current token. The highest of all heads. "
        "Loss at repeated tokens when one head is replaced by its mean output: the previous-token head has "
        "the highest score in a layer before the last, chosen on other sequences than it is measured on. The control "
        "is the mean over the other heads of its layer."
    ),
    tables=[
        (LOSSES["first"], LOSSES["second"], LOSSES["later"], EXACT, COUNTED),
        (BEST_PREVIOUS, EVEN_PREVIOUS, BEST_PREFIX, EVEN_PREFIX),
        (STEP_OF_LOSS, STEP_OF_PREFIX, STEP_OF_PREVIOUS, ABRUPTNESS),
        (WITHOUT_PREVIOUS, WITHOUT_OTHERS, WITHOUT_INDUCTION, KEPT, LEFT, LEFT_BY_OTHERS),
    ],
    contrasts=[
        Within(LOSSES["second"], COUNTED),
        Within(BEST_PREFIX, EVEN_PREFIX, given=WITHOUT_PREVIOUS),
        Within(STEP_OF_PREFIX, STEP_OF_LOSS, given=WITHOUT_PREVIOUS),
        Within(STEP_OF_PREVIOUS, STEP_OF_LOSS, given=WITHOUT_PREVIOUS),
        Within(WITHOUT_PREVIOUS, WITHOUT_OTHERS),
        Within(LEFT, LEFT_BY_OTHERS, given=WITHOUT_PREVIOUS),
    ],
    ranges=[Range(ABRUPTNESS, low=ABRUPT, expected=N_("at least {low:g}: an abrupt change"))],
    figure=Course(
        N_("Loss in the second occurrence along training"),
        Axis(N_("step")),
        Axis(N_("loss in the second occurrence")),
        lambda run: _curve(run, REPEATED),
    ),
    seconds=(3, 5, 15),
)

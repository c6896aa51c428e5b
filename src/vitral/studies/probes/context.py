"""The probe `context`: the loss on the same targets from ever more tokens of context."""

from dataclasses import replace

from vitral.core.language import N_
from vitral.inspection import loss_by_context
from vitral.studies.probe import (
    Against,
    Axis,
    Course,
    Plain,
    Probe,
    Quantity,
    Trained,
    difference,
    require_causal_lm,
)

TARGETS = (20_000, 50_000, 200_000)
NEAR = 16
"""Tokens of context that count as near."""
NATS = "nats per token"
NEARBY = Quantity(
    N_("loss from {n} tokens of context").format(n=NEAR),
    lambda run: dict(zip(run["context"], run["nats"], strict=True)).get(NEAR),
    NATS,
)
ALL = Quantity(N_("loss from the whole context"), lambda run: run["nats"][-1], NATS)
GAIN = replace(
    difference(N_("gain from context beyond {n} tokens").format(n=NEAR), NEARBY, ALL), better="higher", digits=4
)
EFFECTIVE = Quantity(N_("effective context (tokens)"), "effective", digits=1)


def measure(trained: Trained) -> Plain:
    """The loss by the amount of context on the test split."""
    require_causal_lm(trained)
    return loss_by_context(trained.model, trained.test, most_targets=trained.size(*TARGETS))


PROBE = Probe(
    "context",
    N_("Loss by the amount of context"),
    measure,
    about=N_(
        "Every target is predicted from the tokens just before it, and from no others; the targets are the same at "
        "every amount. The effective context is the amount beyond which the loss falls by at most 1% more (after "
        "Khandelwal et al. 2018)."
    ),
    tables=[(NEARBY, ALL, GAIN, EFFECTIVE)],
    contrasts=[Against((GAIN, EFFECTIVE))],
    figure=Course(
        N_("Loss by context"),
        Axis(N_("tokens of context, at most"), log=True),
        Axis(N_("loss")),
        lambda run: zip(run["context"], run["nats"], strict=True),
    ),
    seconds=(2, 4, 20),
)

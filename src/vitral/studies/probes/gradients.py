"""The probe `gradients`: gradient of the loss at each block, before the first step and after training."""

import math
from collections.abc import Mapping
from typing import Any

from vitral.core.language import N_, _
from vitral.core.text import capital
from vitral.data import Batches
from vitral.inspection import first_over_last, gradients_by_block, untrained
from vitral.studies.probe import (
    Arms,
    Axis,
    Check,
    Course,
    Note,
    Plain,
    Points,
    Probe,
    Quantity,
    StudyResult,
    Trained,
    View,
    require_causal_lm,
)

WINDOWS = (16, 32, 64)
"""Training windows of the batch, the same for all arms and seeds."""
STATES = {"fresh": N_("before the first step"), "trained": N_("after training")}
VANISHES, EXPLODES = 0.1, 10.0
"""Limits of the share at the first block over that at the last."""
RATIOS = {
    (state, kind): Quantity(name, lambda run, s=state, kind=kind: first_over_last(run[s], kind) if s in run else None)
    for state, kind, name in (
        ("fresh", "stream", N_("stream, fresh")),
        ("trained", "stream", N_("stream, trained")),
        ("fresh", "share", N_("share, fresh")),
        ("trained", "share", N_("share, trained")),
        ("fresh", "parameters", N_("parameters, fresh")),
        ("trained", "parameters", N_("parameters, trained")),
        ("small", "share", N_("share, fresh with GPT-2's matrices")),
    )
}
BLOCKS = Quantity(N_("blocks"), lambda run: len(run["fresh"]["stream"]), digits=0)


def measure(trained: Trained) -> Plain:
    """Gradient norms by block, `fresh` (the model before its first step) and `trained`.

    A model with another initialisation than GPT-2's is also measured fresh with that one, as `small`: its matrices that
    write to the stream are so small that a fresh pre-norm model is nearly the identity.
    """
    require_causal_lm(trained)
    model, size = trained.model, trained.size(*WINDOWS)
    time = model.config.context_length
    batch = Batches(trained.dataset.splits["train"], context_length=time, batch_size=size, seed=0).batch(0)
    states = {"fresh": untrained(model, trained.seed), "trained": model}
    if model.config.initialisation == "pytorch":
        states["small"] = untrained(model, trained.seed, "gpt2")
    return {"positions": batch[0].numel()} | {name: gradients_by_block(one, *batch) for name, one in states.items()}


def _by_block(run: Mapping[str, Any]) -> Points:
    norms = run["trained"]["stream"]
    return [(block, norm and norm / norms[-1]) for block, norm in enumerate(norms, start=1)] if norms[-1] else []


def _judged(result: StudyResult, arms: Arms) -> View:
    """Whether the gradient vanishes or explodes, in the seed that is furthest from an equal share."""
    checks, notes = [], []
    for arm, state in ((arm, state) for arm in arms if arm.config["model"]["num_layers"] > 1 for state in STATES):
        when, shares = _(STATES[state]), list(arm.values(RATIOS[state, "share"]).values())
        if len(shares) < len(arm.runs):
            text = _("{arm}: {when} a gradient is zero or not finite.", arm=capital(arm.title), when=when)
            notes.append(Note(text, arm.name, shown=False))
            continue
        furthest = max(shares, key=lambda ratio: abs(math.log(ratio)))
        expected = _("{low:g} to {high:g}", low=VANISHES, high=EXPLODES)
        what = _("{when}, gradient share at the first block over the last, seed furthest from 1", when=when)
        checks.append(Check(arm.title, what, furthest, VANISHES, EXPLODES, expected, arm=arm.name))
    return View(checks=checks, notes=notes)


PROBE = Probe(
    "gradients",
    N_("Gradients by block"),
    measure,
    about=N_(
        "Norm of the gradient at the first block over that at the last: with respect to the residual stream; the same "
        "times the stream's scale (share), the effect of a relative change of the stream; with respect to the block's "
        "parameters. The figure has the norm of the stream's gradient after training over that at the last block."
    ),
    tables=[(BLOCKS, *RATIOS.values())],
    figure=Course(
        N_("gradient of the stream"),
        Axis(N_("block")),
        Axis(N_("gradient norm over that of the last block"), log=True),
        _by_block,
    ),
    more=_judged,
    seconds=(1, 1, 2),
)

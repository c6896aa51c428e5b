"""Probes of the course of training: passes over a text, forgetting of an earlier one, gradients by block."""

import math
from collections.abc import Mapping
from typing import Any

from vitral.core.language import N_, _
from vitral.core.text import capital
from vitral.data import Batches
from vitral.data.batches import thinned
from vitral.evaluation import evaluate_split
from vitral.inspection.gradients import first_over_last, gradients_by_block, untrained
from vitral.studies.probe import (
    Against,
    Arms,
    Axis,
    Check,
    Course,
    Dots,
    Note,
    Plain,
    Points,
    Probe,
    Quantity,
    StudyResult,
    Trained,
    View,
    baseline,
    parent,
    require_causal_lm,
)

NATS = "nats per token"

# ---------------------------------------------------------------- passes over a text

LOWEST = Quantity(N_("lowest test loss"), "lowest", NATS, better="lower")


def passes(trained: Trained) -> Plain:
    """Size of the training text, passes over it, and the losses on the way, from the run's own evaluations.

    Returns:
        "tokens", "passes"; "curve", (passes, test loss) of each evaluation; "lowest", the test loss where the
        validation loss is lowest, so that the test part chooses nothing; "after", the passes there; "last", the last
        test loss.
    """
    tokens = len(trained.dataset.splits["train"].tokens)
    per_step = trained.num_tokens / trained.run.config["training"]["steps"] / tokens
    evaluations = [
        (one["step"] * per_step, one["validation_loss"], one["test_loss"])
        for one in trained.run.folder.metrics("evaluation")
    ]
    after, _validation, lowest = min(evaluations, key=lambda one: one[1])
    return {
        "tokens": tokens,
        "passes": trained.num_tokens / tokens,
        "curve": [[passes, test] for passes, _, test in evaluations],
        "lowest": lowest,
        "after": after,
        "last": evaluations[-1][2],
    }


PASSES = Probe(
    "passes",
    N_("How often a text is read"),
    passes,
    about=N_(
        "All arms read equally many tokens, so a smaller text is read more often. The lowest loss is the test loss at "
        "the evaluation with the lowest validation loss, which one would keep. Losses are of the part of the test text "
        "that is measured while training."
    ),
    tables=[
        (
            Quantity(N_("training text"), "tokens", "tokens", digits=0),
            Quantity(N_("passes"), "passes", digits=1),
            LOWEST,
            Quantity(N_("passes at the lowest"), "after", digits=1),
            Quantity(N_("last test loss"), "last", NATS, better="lower"),
        )
    ],
    contrasts=[Against([LOWEST], baseline)],
    figure=Course(
        N_("Test loss over passes"),
        Axis(N_("passes over the training text"), log=True),
        Axis(N_("test loss (nats per token)")),
        lambda run: run["curve"],
    ),
)

# ---------------------------------------------------------------- forgetting

MEASURED = (50_000, 100_000, 500_000)
"""Tokens of the first text."""
FIRST = Quantity(N_("loss on the first text"), "first_loss", NATS, better="lower")


def forgetting(trained: Trained) -> Plain:
    """Loss on the training text of the arm whose weights the run began from; on its own text without such an arm.

    The training text, and not a held-out part of it, since the test part of all arms is that of the second text. A part
    of it that is spread over all of it is read, the same before and after.
    """
    require_causal_lm(trained)
    text = trained.first or trained.dataset
    part = thinned(text.splits["train"], trained.size(*MEASURED))
    return {"first_loss": evaluate_split(trained.model, part, text.tokenizer).loss}


FORGETTING = Probe(
    "forgetting",
    N_("Forgetting"),
    forgetting,
    about=N_(
        "A run that begins from another's weights goes on with another text. The loss on the first text is measured "
        "with the weights that the second training begins from and with those it ends with, on the same part of the "
        "text that the first training read."
    ),
    tables=[[FIRST]],
    contrasts=[Against([FIRST], parent)],
    figure=Dots(N_("Loss on the first text"), [FIRST]),
)

# ---------------------------------------------------------------- gradients by block

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


def gradients(trained: Trained) -> Plain:
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
    return {name: gradients_by_block(one, *batch) for name, one in states.items()}


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


GRADIENTS = Probe(
    "gradients",
    N_("Gradients by block"),
    gradients,
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
)
PROBES = (PASSES, FORGETTING, GRADIENTS)

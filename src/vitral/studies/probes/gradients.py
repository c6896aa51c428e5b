"""The probe `gradients`: gradient of the loss at each block, before the first step and after training."""

import math
from statistics import geometric_mean

from vitral.core.language import N_, _, number
from vitral.data import Batches
from vitral.figures.lines import Axis, Line
from vitral.figures.panels import MOST_PANELS, Panel, panel_plot, panels_left_out
from vitral.figures.sections import Heading, Table
from vitral.figures.text import NONE, capital
from vitral.inspection import first_over_last, gradients_by_block, untrained
from vitral.studies.probe import (
    ArmMeasures,
    Arms,
    Check,
    Note,
    Plain,
    Plot,
    Quantity,
    StudyResult,
    Trained,
    View,
    require_causal_lm,
)

WINDOWS = (16, 32, 64)
"""Training windows of the batch, the same for all arms and seeds."""
STATES = {"fresh": N_("before the first step"), "trained": N_("after training")}
KINDS = {"stream": N_("gradient of the stream"), "parameters": N_("gradient of the block's parameters")}
FINDINGS = {
    ("stream", "fresh"): N_("Before the first step the gradient of the stream at the first block is {ends}."),
    ("stream", "trained"): N_("After training the gradient of the stream at the first block is {ends}."),
    ("parameters", "fresh"): N_("Before the first step the gradient of the parameters of the first block is {ends}."),
    ("parameters", "trained"): N_("After training the gradient of the parameters of the first block is {ends}."),
}
DEEP = 3
"""Blocks from which on a curve over blocks is drawn."""
VANISHES, EXPLODES = 0.1, 10.0
"""Limits of the share at the first block over that at the last."""
_NAMES = {
    ("fresh", "stream"): N_("stream, fresh"),
    ("trained", "stream"): N_("stream, trained"),
    ("fresh", "share"): N_("share, fresh"),
    ("trained", "share"): N_("share, trained"),
    ("fresh", "parameters"): N_("parameters, fresh"),
    ("trained", "parameters"): N_("parameters, trained"),
    ("small", "share"): N_("share, fresh with GPT-2's matrices"),
}
RATIOS = {
    (state, kind): Quantity(name, lambda run, s=state, kind=kind: first_over_last(run[s], kind) if s in run else None)
    for (state, kind), name in _NAMES.items()
}


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


def view(result: StudyResult, arms: Arms) -> View:
    """Curves over the blocks of deep arms, the ratio of first to last block, and whether it vanishes or explodes."""
    depths = {arm.name: int(arm.config["model"]["num_layers"]) for arm in arms}
    drawn = sorted({depth for depth in depths.values() if depth >= DEEP}) or [max(depths.values())]
    same = [[arm for arm in arms if depths[arm.name] == depth] for depth in drawn]
    plots = [plot for group in same for kind in KINDS for state in STATES for plot in _plot(group, kind, state)]
    ratios = [one for one in RATIOS.values() if any(arm.values(one) for arm in arms)]
    cells = [
        [number(geometric_mean(found.values()), ".3g") if (found := arm.values(one)) else NONE for one in ratios]
        for arm in arms
    ]
    caption = _(
        "Norm of the gradient at the first block over that at the last, geometric mean over seeds: with respect to the "
        "residual stream; the same times the stream's scale (share), the effect of a relative change of the stream; "
        "with respect to the block's parameters."
    )
    columns = (_("arm"), _("blocks"), *(one.told for one in ratios))
    rows = tuple((arm.title, str(depths[arm.name]), *row) for arm, row in zip(arms, cells, strict=True))
    checks, notes = [], []
    for arm, state in ((arm, state) for arm in arms if depths[arm.name] > 1 for state in STATES):
        shares = list(arm.values(RATIOS[state, "share"]).values())
        if len(shares) < len(arm.runs):
            notes.append(
                Note(
                    _("{arm}: {when} a gradient is zero or not finite.", arm=capital(arm.title), when=_(STATES[state])),
                    arm.name,
                    shown=False,
                )
            )
            continue
        furthest = max(shares, key=lambda ratio: abs(math.log(ratio)))
        expected = _("{low:g} to {high:g}", low=VANISHES, high=EXPLODES)
        what = _("{when}, gradient share at the first block over the last, seed furthest from 1", when=_(STATES[state]))
        checks.append(Check(arm.title, what, furthest, VANISHES, EXPLODES, expected, arm=arm.name))
    sections = (Heading(_("Gradients by block")), *plots, Table(caption, columns, rows))
    return View(sections, (), checks, notes)


def _plot(arms: list[ArmMeasures], kind: str, state: str) -> tuple[Plot, ...]:
    """Norms by block as shares of the last block's, a panel for each arm; before the first step, for each model."""
    panels, blocks = dict[str, Panel](), len(arms[0].first[state][kind])
    for arm in arms:
        panel = _panel(arm, kind, state)
        if panel is not None:
            panels.setdefault(str(arm.config["model"]) if state == "fresh" else arm.name, panel)
    if not panels:
        return ()
    shown = [*panels.values()]
    ticks = range(1, blocks + 1, max(1, -(-blocks // 4)))
    figure = panel_plot(
        shown[:MOST_PANELS],
        Axis(_("block"), ticks=ticks),
        Axis(_("gradient norm over that of the last block"), log=True),
        zero=1.0,
        title=_("{n} blocks, {when}: {name}", n=blocks, when=_(STATES[state]), name=_(KINDS[kind])),
    )
    shares = {panel.title: panel.lines[0].y[0] or 0.0 for panel in shown}
    low, high = (choose(shares, key=lambda title: shares[title]) for choose in (min, max))
    ends = _(
        "between {low:.2g} ({least}) and {high:.2g} ({most}) times that at the last block",
        low=shares[low],
        least=low,
        high=shares[high],
        most=high,
    )
    name = f"gradient-of-the-{kind}-{blocks}-blocks-{state}"
    caption = _(
        "Norm of the {gradient} {when}, as a share of that at the last block: thin lines are seeds, the thick line "
        "their geometric mean.",
        gradient=_(KINDS[kind]),
        when=_(STATES[state]),
    )
    return (Plot(figure, name, caption + panels_left_out(shown), _(FINDINGS[kind, state], ends=ends)),)


def _panel(arm: ArmMeasures, kind: str, state: str) -> Panel | None:
    """The norms of each seed and their geometric mean; None where a gradient at the last block is zero."""
    runs = [run[state][kind] for run in arm.runs.values()]
    if any(not norms[-1] for norms in runs):
        return None
    seeds = [[norm / norms[-1] if norm else None for norm in norms] for norms in runs]
    blocks = range(1, len(seeds[0]) + 1)
    mean = [geometric_mean(known) if all(known) else None for known in zip(*seeds, strict=True)]
    thin = [Line("", blocks, seed) for seed in seeds] if len(seeds) > 1 else []
    return Panel(arm.title, [Line("", blocks, mean)], thin)

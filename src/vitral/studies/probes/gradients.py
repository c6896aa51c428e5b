"""The probe `gradients`: gradient of the loss at each block, before the first step and after training."""

import math
from statistics import geometric_mean

from vitral.core.language import N_, _, number
from vitral.data import Batches
from vitral.figures.lines import MOST_LINES, Axis, Line, left_out, line_plot
from vitral.figures.sections import Heading, Table
from vitral.figures.text import capital
from vitral.inspection import first_over_last, gradients_by_block, untrained
from vitral.studies.claims import Check, Note, Plain, Quantity
from vitral.studies.probe import ArmMeasures, Arms, Plot, RunProbe, Trained, View, require_causal_lm
from vitral.studies.results import StudyResult

WINDOWS = {"quick": 16, "standard": 32, "full": 64}
"""Training windows of the batch, the same for all arms and seeds."""
STATES = {"fresh": N_("before the first step"), "trained": N_("after training")}
KINDS = {"stream": N_("gradient of the stream"), "parameters": N_("gradient of the block's parameters")}
CAPTIONS = {
    ("stream", "fresh"): N_("Norm of the gradient of the stream before the first step, geometric mean over seeds."),
    ("stream", "trained"): N_("Norm of the gradient of the stream after training, geometric mean over seeds."),
    ("parameters", "fresh"): N_(
        "Norm of the gradient of the block's parameters before the first step, geometric mean over seeds."
    ),
    ("parameters", "trained"): N_(
        "Norm of the gradient of the block's parameters after training, geometric mean over seeds."
    ),
}
FINDINGS = {
    ("stream", "fresh"): N_("The gradient of the stream before the first step, first to last block: {ends}."),
    ("stream", "trained"): N_("The gradient of the stream after training, first to last block: {ends}."),
    ("parameters", "fresh"): N_(
        "The gradient of the block's parameters before the first step, first to last block: {ends}."
    ),
    ("parameters", "trained"): N_(
        "The gradient of the block's parameters after training, first to last block: {ends}."
    ),
}
UNDEFINED = {
    "fresh": N_("{arm}: before the first step a gradient is zero or not finite."),
    "trained": N_("{arm}: after training a gradient is zero or not finite."),
}
SHARES = {
    "fresh": N_("before the first step, gradient share at the first block over the last, seed furthest from 1"),
    "trained": N_("after training, gradient share at the first block over the last, seed furthest from 1"),
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
}
RATIOS = {
    (state, kind): Quantity(name, lambda run, s=state, kind=kind: first_over_last(run[s], kind))
    for (state, kind), name in _NAMES.items()
}


def measure(trained: Trained) -> Plain:
    """Gradient norms by block, `fresh` (the model before its first step) and `trained`."""
    require_causal_lm(trained)
    model, size = trained.run.model, WINDOWS[trained.budget]
    time = model.config.context_length
    batch = Batches(trained.dataset.splits["train"], context_length=time, batch_size=size, seed=0).batch(0)
    states = {"fresh": untrained(model, trained.seed), "trained": model}
    return {"positions": batch[0].numel()} | {name: gradients_by_block(one, *batch) for name, one in states.items()}


def view(result: StudyResult, arms: Arms) -> View:
    """Curves over the blocks of deep arms, the ratio of first to last block, and whether it vanishes or explodes."""
    depths = {arm.name: int(arm.config["model"]["num_layers"]) for arm in arms}
    drawn = sorted({depth for depth in depths.values() if depth >= DEEP}) or [max(depths.values())]
    same = [[arm for arm in arms if depths[arm.name] == depth] for depth in drawn]
    plots = [plot for group in same for kind in KINDS for state in STATES for plot in _plot(group, kind, state)]
    means = [[list(arm.values(one).values()) for one in RATIOS.values()] for arm in arms]
    cells = [[number(geometric_mean(seeds), ".3g") if seeds else "\N{EN DASH}" for seeds in row] for row in means]
    caption = _(
        "Norm of the gradient at the first block over that at the last, geometric mean over seeds: with respect to the "
        "residual stream; the same times the stream's scale (share), the effect of a relative change of the stream; "
        "with respect to the block's parameters."
    )
    columns = (_("arm"), _("blocks"), *(one.told for one in RATIOS.values()))
    rows = tuple((arm.title, str(depths[arm.name]), *row) for arm, row in zip(arms, cells, strict=True))
    checks, notes = [], []
    for arm, state in ((arm, state) for arm in arms if depths[arm.name] > 1 for state in STATES):
        ratios = list(arm.values(RATIOS[state, "share"]).values())
        if len(ratios) < len(arm.runs):
            notes.append(Note(_(UNDEFINED[state], arm=capital(arm.title)), arm.name, shown=False))
            continue
        furthest = max(ratios, key=lambda ratio: abs(math.log(ratio)))
        expected = _("{low:g} to {high:g}", low=VANISHES, high=EXPLODES)
        checks.append(Check(arm.title, _(SHARES[state]), furthest, VANISHES, EXPLODES, expected, arm=arm.name))
    sections = (Heading(_("Gradients by block")), *plots, Table(caption, columns, rows))
    return View(sections, (), tuple(checks), tuple(notes))


def _plot(arms: list[ArmMeasures], kind: str, state: str) -> tuple[Plot, ...]:
    """Norms by block, geometric mean over seeds; arms with equal models are one line before the first step."""
    lines: dict[str, Line] = {}
    blocks = len(arms[0].first[state][kind])
    for arm in arms:
        norms = zip(*(run[state][kind] for run in arm.runs.values()), strict=True)
        y = [geometric_mean(seeds) if all(seeds) else None for seeds in norms]
        key = str(arm.config["model"]) if state == "fresh" else arm.name
        if any(y):
            lines.setdefault(key, Line(arm.title, range(1, blocks + 1), y))
    if not lines:
        return ()
    shown = list(lines.values())
    ticks = range(1, blocks + 1, max(1, blocks // 12))
    axes = Axis(_("block"), ticks=ticks), Axis(_("{name} (nats per unit)", name=_(KINDS[kind])), log=True)
    title = _("{n} blocks, {when}", n=blocks, when=_(STATES[state]))
    figure = line_plot(shown[:MOST_LINES], *axes, title=title)
    caption = f"{_(CAPTIONS[kind, state])}{left_out([line.label for line in shown])}"
    ends = "; ".join(
        _("{label} {first:.2g} to {last:.2g}", label=line.label, first=line.y[0] or 0.0, last=line.y[-1] or 0.0)
        for line in shown
    )
    name = f"gradient-of-the-{kind}-{blocks}-blocks-{state}"
    return (Plot(figure, name, caption, _(FINDINGS[kind, state], ends=ends)),)


GRADIENTS = RunProbe("gradients", measure, view, {"quick": 1, "standard": 1, "full": 2})

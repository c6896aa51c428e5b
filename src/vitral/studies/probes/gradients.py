"""The probe `gradients`: gradient of the loss at each block, before the first step and after training."""

import math
from statistics import geometric_mean

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
STATES = {"fresh": "before the first step", "trained": "after training"}
KINDS = {"stream": "gradient of the stream", "parameters": "gradient of the block's parameters"}
DEEP = 3
"""Blocks from which on a curve over blocks is drawn."""
VANISHES, EXPLODES = 0.1, 10.0
"""Limits of the share at the first block over that at the last."""
RATIOS = {
    (state, kind): Quantity(f"{kind}, {state}", lambda run, s=state, kind=kind: first_over_last(run[s], kind))
    for kind in ("stream", "share", "parameters")
    for state in STATES
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
    cells = [[f"{geometric_mean(seeds):.3g}" if seeds else "\N{EN DASH}" for seeds in row] for row in means]
    caption = (
        "Norm of the gradient at the first block over that at the last, geometric mean over seeds: with respect to the "
        "residual stream; the same times the stream's scale (share), the effect of a relative change of the stream; "
        "with respect to the block's parameters."
    )
    columns = ("arm", "blocks", *(one.name for one in RATIOS.values()))
    rows = tuple((arm.title, str(depths[arm.name]), *row) for arm, row in zip(arms, cells, strict=True))
    checks, notes = [], []
    for arm, state in ((arm, state) for arm in arms if depths[arm.name] > 1 for state in STATES):
        ratios, when = list(arm.values(RATIOS[state, "share"]).values()), STATES[state]
        if len(ratios) < len(arm.runs):
            notes.append(Note(f"{capital(arm.title)}: {when} a gradient is zero or not finite.", arm.name, shown=False))
            continue
        what = f"{when}, gradient share at the first block over the last, seed furthest from 1"
        furthest = max(ratios, key=lambda ratio: abs(math.log(ratio)))
        checks.append(Check(arm.title, what, furthest, VANISHES, EXPLODES, "0.1 to 10", arm=arm.name))
    sections = (Heading("Gradients by block"), *plots, Table(caption, columns, rows))
    return View(sections, (), tuple(checks), tuple(notes))


def _plot(arms: list[ArmMeasures], kind: str, state: str) -> tuple[Plot, ...]:
    """Norms by block, geometric mean over seeds; arms with equal models are one line before the first step."""
    lines: dict[str, Line] = {}
    number = len(arms[0].first[state][kind])
    for arm in arms:
        blocks = zip(*(run[state][kind] for run in arm.runs.values()), strict=True)
        y = [geometric_mean(seeds) if all(seeds) else None for seeds in blocks]
        key = str(arm.config["model"]) if state == "fresh" else arm.name
        if any(y):
            lines.setdefault(key, Line(arm.title, range(1, number + 1), y))
    if not lines:
        return ()
    shown, what, when = list(lines.values()), KINDS[kind], STATES[state]
    ticks = range(1, number + 1, max(1, number // 12))
    axes = Axis("block", ticks=ticks), Axis(f"{what} (nats per unit)", log=True)
    figure = line_plot(shown[:MOST_LINES], *axes, title=f"{number} blocks, {when}")
    caption = f"Norm of the {what} {when}, geometric mean over seeds.{left_out([line.label for line in shown])}"
    ends = "; ".join(f"{line.label} {line.y[0] or 0:.2g} to {line.y[-1] or 0:.2g}" for line in shown)
    name = f"gradient-of-the-{kind}-{number}-blocks-{state}"
    return (Plot(figure, name, caption, f"The {what} {when}, first to last block: {ends}."),)


GRADIENTS = RunProbe("gradients", measure, view, {"quick": 1, "standard": 1, "full": 2})

"""Copying over a distance: the accuracy of a small model under each mask, against the reach of the mask."""

from statistics import NormalDist

from vitral.core.language import N_, _, number
from vitral.figures.lines import Axis, Line
from vitral.figures.margin import Reference
from vitral.figures.sections import Heading, Table
from vitral.inspection import retrieval_by_distance
from vitral.inspection.classification import wilson
from vitral.inspection.retrieval import BATCH, CHANCE, LAYERS, LENGTH, SYMBOLS, WINDOW
from vitral.studies.probe import LEVEL, Check, Plain, Setting, StudyResult, View, lined

BUDGETS = (
    ((8, 16, 32, 96), 150),
    ((8, 16, 32, 64, 128, 256), 250),
    ((8, 16, 32, 64, 128, 256, 512), 600),
)
"""Distances and steps of training."""
COPIES = 0.9
"""A model copies where its accuracy is at least this."""
TITLES = {
    "causal": N_("causal"),
    "bidirectional": N_("bidirectional (predicts masked positions)"),
    "prefix": N_("prefix"),
    "window": N_("causal, window of {n}").format(n=WINDOW),
}


def measure(setting: Setting) -> Plain:
    """Accuracy of every mask at every distance, see `vitral.inspection.retrieval_by_distance`."""
    distances, steps = setting.size(*BUDGETS)
    return retrieval_by_distance(distances, steps=steps, seed=setting.seed)


def view(result: StudyResult, measured: Plain) -> View:
    """Accuracy against distance, a table, and for each mask a check within its reach and beyond it."""
    distances, answers, reach = measured["distances"], measured["answers"], measured["reach"]
    lines, rows, points, checks = [], [], [], []
    for mask, values in measured["accuracy"].items():
        title, shares = _(TITLES[mask]), dict(zip(distances, values, strict=True))
        ends = [wilson(value, answers) for value in values]
        lines.append(Line(title, distances, values, [low for low, _ in ends], [high for _, high in ends]))
        cells = (
            _("{value:.3f} ({low:.3f} to {high:.3f})", value=value, low=low, high=high)
            for value, (low, high) in zip(values, ends, strict=True)
        )
        rows.append((title, *cells))
        points.append(f"{title} {', '.join(number(value, '.3f') for value in values)}")
        near = {at: value for at, value in shares.items() if mask != "window" or at <= reach}
        far = {at: value for at, value in shares.items() if at not in near}
        if near:
            at = min(near, key=lambda one: near[one])
            what = _("lowest accuracy at the {n} distances that the mask can see, {at} tokens back", n=len(near), at=at)
            checks.append(Check(title, what, near[at], low=COPIES, expected=_("at least {least:g}", least=COPIES)))
        if far:
            at = max(far, key=lambda one: far[one])
            z = NormalDist().inv_cdf(1 - LEVEL / 2 / len(far))
            most = CHANCE + z * (CHANCE * (1 - CHANCE) / answers) ** 0.5
            what = _("highest accuracy beyond its reach of {reach} tokens, {at} tokens back", reach=reach, at=at)
            expected = _("chance, so at most {most:.3f}", most=most)
            checks.append(Check(title, what, far[at], high=most, expected=expected))
    heading = _("Copying by distance")
    x, y = _("distance of the answer (tokens back)"), _("correct answers (share)")
    axes = Axis(x, log=True, ticks=distances), Axis(y)
    about = _(
        "A random string of {length} of {symbols} symbols, random filler, and the same string to be predicted. For "
        "each mask and distance one model of {layers} layers (d_model 32, rotary positions) is trained once, from "
        "seed {seed}, for {steps} steps of {batch} sequences, and measured on {answers:,} answers in new sequences. "
        "The window of {window} reaches {reach} tokens back through {layers} layers: it is the control. Low accuracy "
        "within reach means too little training; high accuracy beyond it means a leak.",
        length=LENGTH,
        symbols=SYMBOLS,
        layers=LAYERS,
        seed=measured["seed"],
        steps=measured["steps"],
        batch=BATCH,
        answers=answers,
        window=WINDOW,
        reach=reach,
    )
    caption = _(
        "Share of correct answers against the distance of the answer, for a small model trained at each distance. "
        "Bands are 95% Wilson intervals over answers; there is one training each, and another might end elsewhere."
    )
    alt = _("Share of correct answers at {distances} tokens: {shares}.", distances=distances, shares="; ".join(points))
    heads = (_("mask"), *(_("{n} back", n=distance) for distance in distances))
    sections = (
        Heading(heading, 3),
        about,
        lined("copying-by-distance", heading, lines, axes, caption, alt, [Reference(_("chance"), CHANCE)]),
        Table(_("Share of correct answers by distance, with 95% Wilson intervals"), heads, tuple(rows)),
    )
    return View(sections, checks=checks)

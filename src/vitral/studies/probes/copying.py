"""Copying over a distance: the accuracy of a small model under each mask, against the reach of the mask."""

from statistics import NormalDist

from vitral.figures.lines import Axis, Line, line_plot
from vitral.figures.margin import Reference
from vitral.figures.sections import Heading, Paragraph, Table
from vitral.inspection import retrieval_by_distance
from vitral.inspection.proportions import wilson
from vitral.inspection.retrieval import BATCH, CHANCE, LAYERS, LENGTH, SYMBOLS, WINDOW
from vitral.studies.claims import LEVEL, Check, Plain
from vitral.studies.probe import Plot, Setting, StudyProbe, View
from vitral.studies.results import StudyResult

BUDGETS = {
    "quick": ((8, 16, 32, 96), 150),
    "standard": ((8, 16, 32, 64, 128, 256), 250),
    "full": ((8, 16, 32, 64, 128, 256, 512), 600),
}
"""Distances and steps of training."""
COPIES = 0.9
"""A model copies where its accuracy is at least this."""
TITLES = {
    "causal": "causal",
    "bidirectional": "bidirectional (predicts masked positions)",
    "prefix": "prefix",
    "window": f"causal, window of {WINDOW}",
}


def measure(setting: Setting) -> Plain:
    """Accuracy of every mask at every distance, see `vitral.inspection.retrieval_by_distance`."""
    distances, steps = BUDGETS[setting.budget]
    return retrieval_by_distance(distances, steps=steps, seed=setting.seed)


def view(result: StudyResult, measured: Plain) -> View:
    """Accuracy against distance, a table, and for each mask a check within its reach and beyond it."""
    distances, answers, reach = measured["distances"], measured["answers"], measured["reach"]
    lines, rows, checks = [], [], []
    for mask, values in measured["accuracy"].items():
        title, shares = TITLES[mask], dict(zip(distances, values, strict=True))
        ends = [wilson(value, answers) for value in values]
        lines.append(Line(title, distances, values, [low for low, _ in ends], [high for _, high in ends]))
        rows.append(
            (title, *(f"{v:.3f} ({low:.3f} to {high:.3f})" for v, (low, high) in zip(values, ends, strict=True)))
        )
        near = {at: value for at, value in shares.items() if mask != "window" or at <= reach}
        far = {at: value for at, value in shares.items() if at not in near}
        if near:
            at = min(near, key=lambda one: near[one])
            what = f"lowest accuracy at the {len(near)} distances that the mask can see, {at} tokens back"
            checks.append(Check(title, what, near[at], low=COPIES, expected=f"at least {COPIES}"))
        if far:
            at = max(far, key=lambda one: far[one])
            z = NormalDist().inv_cdf(1 - LEVEL / 2 / len(far))
            most = CHANCE + z * (CHANCE * (1 - CHANCE) / answers) ** 0.5
            what = f"highest accuracy beyond its reach of {reach} tokens, {at} tokens back"
            checks.append(Check(title, what, far[at], high=most, expected=f"chance, so at most {most:.3f}"))
    axis = Axis("distance of the answer (tokens back)", log=True, ticks=distances)
    figure = line_plot(
        lines,
        axis,
        Axis("correct answers (share)"),
        references=[Reference("chance", CHANCE)],
        title="Copying by distance",
    )
    about = (
        f"A random string of {LENGTH} of {SYMBOLS} symbols, random filler, and the same string to be predicted. For "
        f"each mask and distance one model of {LAYERS} layers (d_model 32, rotary positions) is trained once, from "
        f"seed {measured['seed']}, for {measured['steps']} steps of {BATCH} sequences, and measured on {answers:,} "
        f"answers in new sequences. The window of {WINDOW} reaches {reach} tokens back through {LAYERS} layers: it is "
        "the control. Low accuracy within reach means too little training; high accuracy beyond it means a leak."
    )
    caption = (
        "Share of correct answers against the distance of the answer, for a small model trained at each distance. "
        "Bands are 95% Wilson intervals over answers; there is one training each, and another might end elsewhere."
    )
    alt = "; ".join(f"{row[0]} {', '.join(cell.split(' ')[0] for cell in row[1:])}" for row in rows)
    heads = ("mask", *(f"{distance} back" for distance in distances))
    sections = (
        Heading("Copying by distance", 3),
        Paragraph(about),
        Plot(figure, "copying-by-distance", caption, f"Share of correct answers at {distances} tokens: {alt}."),
        Table("Share of correct answers by distance, with 95% Wilson intervals", heads, tuple(rows)),
    )
    return View(sections, checks=tuple(checks))


COPYING = StudyProbe("copying", measure, view, seconds={"quick": 22, "standard": 120, "full": 400})

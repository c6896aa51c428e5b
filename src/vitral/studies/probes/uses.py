"""Capabilities under each mask: next-token leakage, infilling, continuation and classification of passages."""

from statistics import fmean

from vitral.figures.grid import value_grid
from vitral.figures.sections import Heading, Paragraph
from vitral.figures.text import capital
from vitral.inspection import capabilities, classify_passages
from vitral.studies.claims import Check, Note, Plain, Quantity, at
from vitral.studies.probe import ArmMeasures, Arms, Plot, RunProbe, Trained, View, against_base, mean_table, within
from vitral.studies.results import StudyResult
from vitral.training import TrainingConfig
from vitral.training.objectives import masking_of

WINDOWS = {"quick": (1_000, 64), "standard": (4_000, 384), "full": (10_000, 1_000)}  # contexts, gaps
PASSAGES = {"quick": (150, 50, 60), "standard": (400, 80, 120), "full": (1_000, 80, 120)}  # train, validation, test
LEAKS = 1e-3
"""Total variation from which a prediction depends on the swapped token; rounding moves it by less."""
PATHS = {
    "infilling, both sides": ("filling", "both"),
    "infilling, left side": ("filling", "left"),
    "continuation": ("continuing",),
    "probe on activations": ("classifying", "activations"),
    "probe on token counts": ("classifying", "frequencies"),
}
ACCURACY = [Quantity(f"accuracy ({use})", at(*path, "accuracy"), better="higher") for use, path in PATHS.items()]
LOSS = [Quantity(f"loss ({use})", at(*path, "nats"), "nats", "lower") for use, path in PATHS.items()][:3]
LARGEST = Quantity("largest class", at("classifying", "activations", "majority"))
LEAK = {"visible": "visible (1 = yes)", "accuracy": "accuracy", "nats": "loss", "moved": "moved", "follows": "follows"}

METHOD = (
    "Infilling: the token after {gap} tokens and before {right}, at a mask token or by the chain rule, p(c | left) · "
    "p(right | left, c). Continuation: the token after {gap}. Moved: total variation of the prediction when the next "
    "token is swapped for another window's; follows: share of swaps after which the new token is predicted."
)


def measure(trained: Trained) -> Plain:
    """Leakage, infilling and continuation on the test split; classification of passages of the whole text."""
    run, budget, test = trained.run, trained.budget, trained.dataset.splits["test"]
    masking = masking_of(TrainingConfig.parse(run.config["training"]).objective, run.tokenizer)
    found = capabilities(run.model, run.tokenizer, test, *WINDOWS[budget], masking=masking)
    return found | {"classifying": classify_passages(run.model, trained.dataset, *PASSAGES[budget])}


def view(result: StudyResult, arms: Arms) -> View:
    """Each use against the base's, both sides of a gap against one, activations against token counts."""
    grid = [[arm.mean(one) for one in ACCURACY] for arm in arms]
    figure = value_grid(grid, [arm.title for arm in arms], list(PATHS), "accuracy", title="Accuracy by use")
    alt = "; ".join(f"{arm.title} {', '.join(one.show(arm.mean(one)) for one in ACCURACY)}" for arm in arms)
    plot = Plot(figure, "uses-by-mask", "Mean over seeds; empty where the model cannot answer.", f"Accuracy: {alt}.")
    tables = [mean_table("Accuracy, means over seeds", arms, *ACCURACY, LARGEST)]
    tables += [mean_table("Loss of the true token", arms, *LOSS, Quantity("targets", at("targets"), digits=0))]
    for place, leak in arms[0].first["leak"].items():
        columns = [Quantity(name, at("leak", place, key), digits=3 * (key != "visible")) for key, name in LEAK.items()]
        tables.append(mean_table(f"Next token of position {leak['position']}, means over seeds", arms, *columns))
    contrasts = against_base(arms, LOSS[0], LOSS[2], ACCURACY[3]) + within(arms, LOSS[0], LOSS[1])
    unable = (arm for arm in arms if arm.mean(LOSS[0]) is None)
    return View(
        (Heading("Capabilities under each mask", 3), Paragraph(_method(arms[0].first)), plot, *tables),
        contrasts + within(arms, ACCURACY[3], ACCURACY[4]),
        tuple(check for arm in arms for check in _checks(arm)),
        tuple(Note(f"{capital(arm.title)} cannot fill a gap: it sees its target.", arm.name) for arm in unable),
    )


def _checks(arm: ArmMeasures) -> list[Check]:
    checks = []
    for place, leak in arm.first["leak"].items():
        what = f"total variation at position {leak['position']} when the next token is swapped (largest of the seeds)"
        moved = max(run["leak"][place]["moved"] for run in arm.runs.values())
        low, high, expected = (LEAKS, None, "above rounding") if leak["visible"] else (None, LEAKS, "0")
        checks.append(Check(arm.title, what, moved, low, high, f"{expected} under its mask", arm=arm.name))
    if probes := [run["classifying"]["activations"] for run in arm.runs.values() if run["classifying"]]:
        value, low, high, largest = (fmean(run[k] for run in probes) for k in ("accuracy", "low", "high", "majority"))
        what, above = ACCURACY[3].name, f"above the share of the largest class, {largest:.3f}"
        checks.append(Check(arm.title, what, value, largest, None, above, interval=(low, high), arm=arm.name))
    return checks


def _method(first: Plain) -> str:
    text, classes = METHOD.format(**first), first["classifying"]
    if classes is None:
        return f"{text} No linear probe: no two works or segments of the text occur in all its splits."
    kind, sizes = "work" if classes["works"] else "segment", "/".join(map(str, classes["passages"].values()))
    text += f" Linear probe: the {kind} that a passage of {first['context']} tokens is from; {sizes} passages to fit, "
    return f"{text}validate and test; {'; '.join(classes['titles'])}."


USES = RunProbe("uses", measure, view, seconds={"quick": 5, "standard": 12, "full": 40})

"""Capabilities under each mask: next-token leakage, infilling, continuation and classification of passages."""

from dataclasses import replace
from itertools import product
from statistics import fmean

from vitral.core.language import N_, _
from vitral.figures.grid import value_grid
from vitral.figures.sections import Heading, Table
from vitral.figures.text import capital
from vitral.inspection import capabilities, classify_passages, linear_probes, untrained
from vitral.inspection.probing import SPLITS
from vitral.studies.probe import (
    ArmMeasures,
    Arms,
    Check,
    Comparison,
    Note,
    Plain,
    Plot,
    Quantity,
    StudyResult,
    Trained,
    View,
    against_base,
    extremes_told,
    mean_table,
    within,
)
from vitral.training import TrainingConfig
from vitral.training.objectives import masking_of

WINDOWS = ((1_000, 64), (4_000, 384), (10_000, 1_000))  # contexts, gaps
PASSAGES = ((150, 50, 60), (400, 80, 120), (1_000, 80, 120))  # train, validation, test
LEAKS = 1e-3
"""Total variation from which a prediction depends on the swapped token; rounding moves it by less."""
PATHS = {
    N_("infilling, both sides"): "filling/both",
    N_("infilling, left side"): "filling/left",
    N_("continuation"): "continuing",
    N_("probe on activations"): "classifying/activations",
    N_("probe on token counts"): "classifying/frequencies",
}
ACCURACY = [
    Quantity(N_("accuracy ({use})").format(use=use), f"{path}/accuracy", better="higher") for use, path in PATHS.items()
]
LOSS = [Quantity(N_("loss ({use})").format(use=use), f"{path}/nats", "nats", "lower") for use, path in PATHS.items()][
    :3
]
PROBES = ((600, 200, 600), (1_600, 400, 1_200), (6_000, 1_000, 4_000))
"""Windows on which a linear probe is fitted, validated and tested."""
TASKS = {
    "order": N_("words in order or not"),
    "word begin": N_("tokens since the word began"),
    "word end": N_("tokens until the word ends"),
}
"""Of the linear probes, see `vitral.inspection.probing`."""
READ = {
    "trained": N_("trained"),
    "untrained": N_("untrained"),
    "tokens": N_("tokens alone"),
    "control": N_("control task"),
}
LARGEST = Quantity(N_("largest class"), "classifying/activations/majority")
POSITIONS = Quantity(N_("positions computed to fill one gap"), "filling_positions", digits=0)
LEAK = {
    "visible": N_("visible (1 = yes)"),
    "accuracy": N_("accuracy"),
    "nats": N_("loss"),
    "moved": N_("moved"),
    "follows": N_("follows"),
}

METHOD = N_(
    "Infilling: the token after {gap} tokens and before {right}, at a mask token or by the chain rule, p(c | left) · "
    "p(right | left, c). Continuation: the token after {gap}. Moved: total variation of the prediction when the next "
    "token is swapped for another window's; follows: share of swaps after which the new token is predicted."
)


def measure(trained: Trained) -> Plain:
    """Leakage, infilling and continuation on the test split; classification of passages of the whole text."""
    run, test = trained.run, trained.test
    masking = masking_of(TrainingConfig.parse(run.config["training"]).objective, run.tokenizer)
    found = capabilities(run.model, run.tokenizer, test, *trained.size(*WINDOWS), masking=masking)
    classes = classify_passages(run.model, trained.dataset, *trained.size(*PASSAGES))
    sizes, fresh = dict(zip(SPLITS, trained.size(*PROBES), strict=True)), untrained(run.model, trained.seed)
    probes = linear_probes(run.model, fresh, run.tokenizer, trained.dataset.splits, sizes)
    return found | {"classifying": classes, "probes": probes}


def view(result: StudyResult, arms: Arms) -> View:
    """Each use against the base's, both sides of a gap against one, activations against token counts."""
    grid = [[arm.mean(one) for one in ACCURACY] for arm in arms]
    titles, uses = [arm.title for arm in arms], [_(use) for use in PATHS]
    figure = value_grid(grid, titles, uses, _("accuracy"), title=_("Accuracy by use"))
    known = {title: [mean for mean in row if mean is not None] for title, row in zip(titles, grid, strict=True)}
    means = {title: fmean(values) for title, values in known.items() if values}
    alt = extremes_told(_("Mean accuracy over the uses"), means, ACCURACY[0].show)
    caption = _("Mean over seeds; empty where the model cannot answer.")
    targets = Quantity(N_("targets"), "targets", digits=0)
    tables = [
        mean_table(_("Accuracy, means over seeds"), arms, *ACCURACY, LARGEST),
        mean_table(_("Loss of the true token"), arms, *LOSS, targets, POSITIONS),
    ]
    contrasts = [*against_base(arms, LOSS[0], LOSS[2], ACCURACY[3]), *within(arms, LOSS[0], LOSS[1])]
    contrasts += _equal_steps(arms)
    read = [arm for arm in arms if arm.first.get("probes")]
    for task in TASKS if read else ():
        tables.append(_probes(task, read))
        contrasts += _about_probes(task, read)
    for place, leak in arms[0].first["leak"].items():
        columns = [Quantity(name, f"leak/{place}/{key}", digits=3 * (key != "visible")) for key, name in LEAK.items()]
        about = _("Next token of position {position}, means over seeds", position=leak["position"])
        tables.append(mean_table(about, arms, *columns))
    heading, method = Heading(_("Capabilities under each mask"), 3), _method(arms[0].first)
    unable = [arm for arm in arms if arm.mean(LOSS[0]) is None]
    return View(
        (heading, method, Plot(figure, "uses-by-mask", caption, alt), *tables),
        [*contrasts, *within(arms, ACCURACY[3], ACCURACY[4])],
        [check for arm in arms for check in _checks(arm)],
        [Note(_("{arm} cannot fill a gap: it sees its target.", arm=capital(arm.title)), arm.name) for arm in unable],
    )


def _checks(arm: ArmMeasures) -> list[Check]:
    checks = []
    for place, leak in arm.first["leak"].items():
        what = _(
            "total variation at position {position} when the next token is swapped (largest of the seeds)",
            position=leak["position"],
        )
        moved = max(run["leak"][place]["moved"] for run in arm.runs.values())
        limits = (LEAKS, None) if leak["visible"] else (None, LEAKS)
        expected = _("above rounding under its mask") if leak["visible"] else _("0 under its mask")
        checks.append(Check(arm.title, what, moved, *limits, expected, arm=arm.name))
    if probes := [run["classifying"]["activations"] for run in arm.runs.values() if run["classifying"]]:
        value, low, high, largest = (fmean(run[k] for run in probes) for k in ("accuracy", "low", "high", "majority"))
        what = ACCURACY[3].told
        above = _("above the share of the largest class, {share:.3f}", share=largest)
        checks.append(Check(arm.title, what, value, largest, None, above, interval=(low, high), arm=arm.name))
    return checks


def read_by(task: str, reader: str) -> Quantity:
    """The accuracy of a linear probe on a task, as read from the trained model, the untrained one and so on."""
    return Quantity(
        _("{task}: {reader}", task=_(TASKS[task]), reader=_(READ[reader])),
        f"probes/{task}/{reader}/accuracy",
        better="higher",
    )


def _probes(task: str, arms: Arms) -> Table:
    caption = _(
        "Linear probe on {task}: accuracy, means over seeds. Chance is the largest class. Control task: random classes "
        "of pairs of tokens, which a probe can only learn by heart.",
        task=_(TASKS[task]),
    )
    largest = Quantity(N_("largest class"), f"probes/{task}/trained/majority")
    readers = [replace(read_by(task, one), name=_(READ[one])) for one in READ]
    return mean_table(caption, arms, *readers, largest)


def _equal_steps(arms: Arms) -> list[Comparison]:
    """Masked language models against a causal one of as many steps, where that is not the base."""
    trained, found = {arm.name: arm.config.get("training", {}) for arm in arms}, list[Comparison]()
    for arm, rival in product(arms[1:], arms[1:]):
        own, other = trained[arm.name], trained[rival.name]
        if own.get("objective", "next-token") == "next-token" or other.get("objective") != "next-token":
            continue
        if rival.first["filling"]["both"] and other["steps"] == own["steps"] != trained[arms[0].name]["steps"]:
            found += against_base((rival, arm), LOSS[0])
    return found


def _about_probes(task: str, arms: Arms) -> tuple[Comparison, ...]:
    """The trained model against the untrained one and against tokens alone; every arm against the base."""
    trained, fresh, tokens = (read_by(task, one) for one in ("trained", "untrained", "tokens"))
    return (*within(arms, trained, fresh), *within(arms, trained, tokens), *against_base(arms, trained))


def _method(first: Plain) -> str:
    text, classes = _(METHOD, gap=first["gap"], right=first["right"]), first["classifying"]
    if classes is None:
        none = _("No linear probe: no two works or segments of the text occur in all its splits.")
        return f"{text} {none}"
    how = N_(
        "Linear probe: the segment that a passage of {tokens} tokens is from; {sizes} passages to fit, validate and "
        "test; {titles}."
    )
    if classes["works"]:
        how = N_(
            "Linear probe: the work that a passage of {tokens} tokens is from; {sizes} passages to fit, validate and "
            "test; {titles}."
        )
    sizes, titles = "/".join(map(str, classes["passages"].values())), "; ".join(map(_, classes["titles"]))
    return f"{text} {_(how, tokens=first['context'], sizes=sizes, titles=titles)}"

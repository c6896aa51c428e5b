"""Capabilities under each mask: next-token leakage, infilling, continuation and classification of passages."""

from itertools import product
from statistics import fmean

from vitral.core.language import N_, _
from vitral.core.text import capital
from vitral.inspection import capabilities, classify_passages, linear_probes, untrained
from vitral.inspection.probing import SPLITS
from vitral.studies.probe import (
    Against,
    ArmMeasures,
    Arms,
    Check,
    Comparison,
    Dots,
    Means,
    Note,
    Plain,
    Probe,
    Quantity,
    StudyResult,
    Trained,
    View,
    Within,
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
TARGETS = Quantity(N_("targets"), "targets", digits=0)
POSITIONS = Quantity(N_("positions computed to fill one gap"), "filling_positions", digits=0)
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


def _view(result: StudyResult, arms: Arms) -> View:
    """Each use against the base's, both sides of a gap against one, activations against token counts."""
    contrasts = [*Against((LOSS[0], LOSS[2], ACCURACY[3])).of(result, arms), *Within(LOSS[0], LOSS[1]).of(result, arms)]
    contrasts += _equal_steps(result, arms)
    tables = [Means(arms, (*ACCURACY, LARGEST)), Means(arms, (*LOSS, TARGETS, POSITIONS))]
    read = [arm for arm in arms if arm.first.get("probes")]
    for task in TASKS if read else ():
        trained, fresh, tokens, control = (read_by(task, one) for one in READ)
        contrasts += [*Within(trained, fresh).of(result, read), *Within(trained, tokens).of(result, read)]
        contrasts += Against([trained]).of(result, read)
        largest = Quantity(N_("largest class"), f"probes/{task}/trained/majority")
        tables.append(Means(read, (trained, fresh, tokens, control, largest)))
    text = N_("{arm} cannot fill a gap: it sees its target.")
    return View(
        _method(arms[0].first),
        tables,
        Dots(ACCURACY[0].name, ACCURACY[0], arms),
        [*contrasts, *Within(ACCURACY[3], ACCURACY[4]).of(result, arms)],
        [check for arm in arms for check in _checks(arm)],
        [Note(_(text, arm=capital(arm.title)), arm.name) for arm in arms if arm.mean(LOSS[0]) is None],
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


def _equal_steps(result: StudyResult, arms: Arms) -> list[Comparison]:
    """Masked language models against a causal one of as many steps, where that is not the base."""
    trained, found = {arm.name: arm.config.get("training", {}) for arm in arms}, list[Comparison]()
    for arm, rival in product(arms[1:], arms[1:]):
        own, other = trained[arm.name], trained[rival.name]
        if own.get("objective", "next-token") == "next-token" or other.get("objective") != "next-token":
            continue
        if rival.first["filling"]["both"] and other["steps"] == own["steps"] != trained[arms[0].name]["steps"]:
            found += Against([LOSS[0]]).of(result, [rival, arm])
    return found


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


PROBE = Probe("uses", N_("Capabilities under each mask"), measure, more=_view, seconds=(8, 25, 90))

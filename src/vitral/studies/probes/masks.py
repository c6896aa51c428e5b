"""What models under each mask can do: uses of a language model, and retrieval at variable distance by small models."""

from collections.abc import Iterable
from dataclasses import replace
from itertools import compress, product
from statistics import fmean

from vitral.core.language import N_, _, number
from vitral.core.text import NONE, capital, minus
from vitral.evaluation.masking import filling_of
from vitral.inspection.cost import WAYS, cost_by_length
from vitral.inspection.gradients import untrained
from vitral.inspection.mask_capabilities import capabilities
from vitral.inspection.probing import SPLITS, classify_passages, linear_probes
from vitral.inspection.recall import BATCH, BINS, KEYS, LAYERS, VALUES, WINDOW, recall_under_masks
from vitral.studies.probe import (
    Against,
    ArmMeasures,
    Arms,
    Axis,
    Check,
    Comparison,
    Course,
    Dots,
    Fixed,
    Line,
    Lines,
    Means,
    Note,
    Plain,
    Probe,
    Quantity,
    Rows,
    Setting,
    StudyResult,
    Trained,
    View,
    Within,
)

# ---------------------------------------------------------------- uses

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
LOSS = [
    Quantity(N_("loss ({use})").format(use=use), f"{path}/nats", "nats", "lower") for use, path in [*PATHS.items()][:3]
]
PROBING = ((600, 200, 600), (1_600, 400, 1_200), (6_000, 1_000, 4_000))
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
CHAIN = Quantity(N_("loss (infilling, both sides, chain rule)"), "filling/chain/nats", "nats", "lower")
TARGETS = Quantity(N_("targets"), "targets", digits=0)
METHOD = N_(
    "Infilling: the token after {gap} tokens and before {right}, at a mask token or by the chain rule, p(c | left) · "
    "p(right | left, c). Continuation: the token after {gap}."
)


def uses(trained: Trained) -> Plain:
    """Leakage, infilling and continuation on the test split; classification of passages of the whole text."""
    run, test = trained.run, trained.test
    masking = filling_of(run.sealed.config.training.objective, run.tokenizer)
    measured = capabilities(run.model, run.tokenizer, test, *trained.size(*WINDOWS), masking=masking)
    passages, windows = (dict(zip(SPLITS, trained.size(*each), strict=True)) for each in (PASSAGES, PROBING))
    classes, fresh = classify_passages(run.model, trained.dataset, passages), untrained(run.model, trained.seed)
    probes = linear_probes(run.model, fresh, run.tokenizer, trained.dataset.splits, windows)
    return measured | {"classifying": classes, "probes": probes}


def _uses(result: StudyResult, arms: Arms) -> View:
    """Each use against the base's, both sides of a gap against one, activations against token counts."""
    contrasts, tables = list[Comparison](), [Means(arms, (*ACCURACY, LARGEST)), Means(arms, (*LOSS, CHAIN, TARGETS))]
    read = [arm for arm in arms if arm.first["probes"]]
    for task in TASKS if read else ():
        trained, fresh, tokens, control = (
            Quantity(
                _("{task}: {reader}", task=_(TASKS[task]), reader=_(name)),
                f"probes/{task}/{reader}/accuracy",
                better="higher",
            )
            for reader, name in READ.items()
        )
        for contrast in (Within(trained, fresh), Within(trained, tokens), Against([trained])):
            contrasts += contrast.of(result, read)
        largest = Quantity(N_("largest class"), f"probes/{task}/trained/majority")
        tables.append(Means(read, (trained, fresh, tokens, control, largest)))
    text = N_("{arm} cannot fill a gap: it sees its target.")
    return View(
        _method(arms[0].first),
        tables,
        None,
        [*contrasts, *Within(ACCURACY[3], ACCURACY[4]).of(result, arms)],
        [check for arm in arms for check in _checks(arm)],
        [Note(_(text, arm=capital(arm.title)), arm.name) for arm in arms if arm.mean(LOSS[0]) is None],
    )


def _checks(arm: ArmMeasures) -> list[Check]:
    checks = []
    for half, leak in arm.first["leak"].items():
        what = _(
            "total variation at position {position} when the next token is swapped (largest of the seeds)",
            position=leak["position"],
        )
        moved = max(run["leak"][half]["moved"] for run in arm.runs.values())
        expected = (LEAKS, None, _("above rounding under its mask"))
        if not leak["visible"]:
            expected = (None, LEAKS, _("0 under its mask"))
        checks.append(Check(arm.title, what, moved, *expected, arm=arm.name))
    if probes := [run["classifying"]["activations"] for run in arm.runs.values() if run["classifying"]]:
        value, low, high, largest = (fmean(run[k] for run in probes) for k in ("accuracy", "low", "high", "majority"))
        what = ACCURACY[3].title
        above = _("above the share of the largest class, {share:.3f}", share=largest)
        checks.append(Check(arm.title, what, value, largest, None, above, interval=(low, high), arm=arm.name))
    return checks


def equal_steps(result: StudyResult, arms: Arms) -> Iterable[tuple[ArmMeasures, ArmMeasures]]:
    """Masked language models with a causal one of as many steps, where that is not the base; mixed with masked ones."""
    for arm, rival in product(arms[1:], arms[1:]):
        own, other, usual = (one.config.get("training", {}) for one in (arm, rival, arms[0]))
        one, another = (str(training.get("objective", "next-token")) for training in (own, other))
        is_longer = another == "next-token" != one and other["steps"] == own["steps"] != usual["steps"]
        if is_longer or ("mixed" in one and "masked" in another):
            yield arm, rival


def _method(first: Plain) -> str:
    classes = first["classifying"]
    if classes is None:
        return _("No linear probe: no two works of the text occur in all its splits.")
    how = N_(
        "Linear probe: the work that a passage of {tokens} tokens is from; {sizes} passages to fit, validate and test; "
        "{titles}."
    )
    sizes, titles = "/".join(map(str, classes["passages"].values())), "; ".join(classes["titles"])
    return _(how, tokens=first["context"], sizes=sizes, titles=titles)


USES = Probe(
    "uses",
    N_("Capabilities under each mask"),
    uses,
    about=METHOD,
    contrasts=[
        Against((LOSS[0], LOSS[2], ACCURACY[3])),
        Within(LOSS[0], LOSS[1]),
        Within(LOSS[0], CHAIN),
        Against([LOSS[0]], equal_steps),
    ],
    figure=Dots(ACCURACY[0].name, ACCURACY[:1]),
    more=_uses,
    seconds=(8, 25, 90),
)


# ---------------------------------------------------------------- retrieval

BUDGETS = (
    {1: (150, (1, 2, 3)), 4: (150, (1, 2, 3))},
    {1: (200, (1, 2, 3, 4, 5, 6)), 4: (2000, (1, 2, 3))},
    {1: (400, (1, 2, 3, 4, 5, 6)), 4: (4000, (1, 2, 3, 4, 5, 6))},
)
"""Steps of training and seeds, by the number of pairs."""
MASKS = {
    "causal": N_("causal"),
    "bidirectional": N_("bidirectional (predicts masked positions)"),
    "prefix": N_("prefix"),
    "window": N_("causal, window of {n}").format(n=WINDOW),
}
PAIRS = {1: N_("one pair: retrieval"), 4: N_("four pairs: key-value recall")}
RIGHT = Quantity(N_("accuracy"), "accuracy/*", better="higher")


def retrieval(setting: Setting) -> Plain:
    """Accuracy by distance of every mask, with one pair and with four, see `vitral.inspection.recall`."""
    return {
        "tasks": [
            recall_under_masks(pairs, steps=steps, seeds=seeds)
            for pairs, (steps, seeds) in setting.size(*BUDGETS).items()
        ]
    }


HOW = N_(
    "Pairs of a key and a value ({keys} keys, {values} values), filler of a length drawn anew for each sequence, "
    "and the keys again: the model answers with their values. No fixed offset leads to an answer. With one pair "
    "the value only has to be found; with four the right one has to be told from the others. A guess knows the "
    "values shown and, but for masked answers, the earlier answers, and not the keys. For each mask and seed one "
    "model of {layers} layers (d_model 32, rotary positions) is trained on sequences of all distances, {batch} a "
    "step. The window of {window} reaches {reach} tokens back: it is the control. Low accuracy within reach means "
    "too little training, or that the mask is no help; accuracy beyond it a leak."
)


def _name(task: Plain) -> str:
    return _(PAIRS[task["pairs"]])


def _masks(task: Plain) -> dict[str, ArmMeasures]:
    """Every mask as an arm."""
    return {
        mask: ArmMeasures(mask, _(MASKS[mask]), {}, {int(seed): run for seed, run in runs.items()})
        for mask, runs in task["masks"].items()
    }


def _cell(arm: ArmMeasures, bin_index: int) -> str:
    shares = arm.values(replace(RIGHT, source=f"accuracy/{bin_index}")).values()
    return _("{mean:.3f} (from {low:.3f})", mean=fmean(shares), low=min(shares)) if shares else NONE


def _table(task: Plain) -> Rows:
    cells = [(arm.title, *(_cell(arm, bin_index) for bin_index in range(len(BINS)))) for arm in _masks(task).values()]
    if task["pairs"] > 1:
        for name, mask in ((_("guess"), "causal"), (_("guess without earlier answers"), "bidirectional")):
            cells.append((name, *(RIGHT.show(share) for share in task["guess"][mask])))
    caption = _(
        "{task}: share of right answers by distance in tokens, mean over {seeds} seeds and the lowest; trained for "
        "{steps} steps. Answers a model: {answers}.",
        task=_name(task),
        seeds=len(next(iter(task["masks"].values()))),
        steps=task["steps"],
        answers=", ".join(map(str, task["answers"])),
    )
    return Rows(caption, (_("mask"), *(_("{low} to {high} back", low=low, high=high) for low, high in BINS)), cells)


def _comparisons(result: StudyResult, task: Plain) -> list[Comparison]:
    """Beyond the reach of the window: every mask against a guess. Over all distances: every mask against causal."""
    far, comparisons, arms = [low > task["reach"] for low, _high in BINS], list[Comparison](), _masks(task)
    name = _("accuracy beyond {reach} tokens", reach=task["reach"])
    beyond = replace(RIGHT, name=name, source=lambda run: fmean(compress(run["accuracy"], far)))
    for mask, each in arms.items():
        arm, sees = replace(each, title=f"{_name(task)}, {each.title}"), mask != "window" and task["pairs"] > 1
        guess = fmean(compress(task["guess"][mask], far)) if sees else task["chance"]
        meaning = N_("a guess among the values shown") if sees else N_("a guess among all values")
        comparisons += Fixed([beyond], guess, meaning).of(result, [arm])
        if mask not in ("causal", "window"):
            comparisons += Against([RIGHT]).of(result, [arms["causal"], arm])
    return comparisons


def _retrieval(result: StudyResult, measured: Plain) -> View:
    """Both tasks by distance; every mask against a guess, and against the causal one within its reach."""
    tasks, middles = measured["tasks"], [(low + high) / 2 for low, high in BINS]
    axes = Axis(_("distance of the value (tokens back)"), ticks=middles), Axis(_("correct answers (share)"))
    course = Course(_name(tasks[-1]), *axes, lambda run: zip(middles, run["accuracy"], strict=True))
    figure = course.of([*_masks(tasks[-1]).values()])._replace(levels={_("chance"): tasks[-1]["chance"]})
    comparisons = [one for task in tasks for one in _comparisons(result, task)]
    about = _(HOW, keys=KEYS, values=VALUES, layers=LAYERS, batch=BATCH, window=WINDOW, reach=tasks[0]["reach"])
    return View(about, [*map(_table, tasks)], figure, comparisons)


RETRIEVAL = Probe(
    "retrieval",
    N_("Retrieval at variable distance, and key-value recall"),
    retrieval,
    more=_retrieval,
    seconds=(150, 900, 6000),
    of_runs=False,
)
LENGTHS = (
    ((128, 256, 512, 1024, 2048, 3072, 4096, 6144, 8192), 3),
    ((128, 256, 512, 1024, 2048, 4096, 6144, 8192, 12288), 5),
    ((128, 256, 512, 1024, 2048, 4096, 8192, 12288, 16384, 24576), 9),
)
"""Lengths and rounds."""
WITHIN = 0.15
"""Largest difference of a measured exponent and the predicted one that agree."""
MICRO = 1e6
RATIOS = (("recomputed", "cached"), ("bidirectional", "cached"), ("one-by-one", "at-once"))


def cost(setting: Setting) -> Plain:
    """Times and operations by length, see `vitral.inspection.cost_by_length`."""
    lengths, rounds = setting.size(*LENGTHS)
    return cost_by_length(lengths, rounds=rounds)


def _cost(result: StudyResult, measured: Plain) -> View:
    """Time against length with the predicted lines, the exponents, and the checks."""
    model, lengths, fitted = measured["model"], measured["lengths"], measured["fitted"]
    about = _(
        "A model of {layers} layer(s), d_model {d_model} and {heads} heads, so small that attention outweighs the rest "
        "at the longest lengths; {threads} thread(s). One more token with a cache is computed for {batch} texts side "
        "by side and divided by them. Times are medians of {rounds} rounds, summed over threads. A window read token "
        "by token is given every token (forward passes only); training token by token was not timed.",
        **model,
        **measured,
    )
    over = _("{first:,} to {last:,} tokens", first=fitted[0], last=fitted[-1])
    curves, rows, checks = [], [], []
    for way, title in WAYS.items():
        times, flops = measured["processor"][way], measured["flops"][way]
        course = [MICRO * times[-1] * one / flops[-1] for one in flops[-len(fitted) :]]
        curves.append(Line(_(title), lengths, [MICRO * one for one in times]))
        curves.append(Line("", fitted, course, look="theory"))
        own, predicted = measured["exponents"][way]["processor"], measured["exponents"][way]["predicted"]
        numbers = [predicted, own["slope"], own["low"], own["high"], own["slope"] - predicted]
        rows.append((_(title), *(minus(number(one, ".2f")) for one in numbers)))
        what = _("exponent of time over {lengths}", lengths=over)
        expected = _("{exponent:.2f} ± {within:g}, of operations", exponent=predicted, within=WITHIN)
        low, high, ends = predicted - WITHIN, predicted + WITHIN, (own["low"], own["high"])
        checks.append(Check(_(title), what, own["slope"], low, high, expected, digits=2, interval=ends))
    for slow, fast in RATIOS:
        ratio = measured["processor"][slow][-1] / measured["processor"][fast][-1]
        what = _("time of a token at {length:,} tokens over that of {way}", length=lengths[-1], way=_(WAYS[fast]))
        checks.append(Check(_(WAYS[slow]), what, ratio, 1.0, expected=_("above 1"), digits=1))
    heads = (_("way"), _("predicted"), _("measured"), _("95% from"), _("95% to"), _("difference"))
    table = Rows(_("Exponents of the time of one token over {lengths}", lengths=over), heads, rows)
    x = Axis(_("length n (tokens)"), log=True, ticks=[n for n in lengths if n & (n - 1) == 0])
    y = Axis(_("processor time of one token (µs)"), log=True)
    note = _("Dashed lines have the course of the counted operations through the last point.")
    figure = Lines(_("Processor time of one token"), x, y, curves, note=note)
    return View(about, [table], figure, checks=checks)


COST = Probe(
    "cost-by-length",
    N_("Cost of a token by the length of the text"),
    cost,
    more=_cost,
    seconds=(15, 60, 200),
    of_runs=False,
)
PROBES = (USES, RETRIEVAL, COST)

"""Retrieval at variable distance and key-value recall: the accuracy of small models under each mask, by distance.

Seeds are the sample: each mask is compared with the causal one, and with a guess, from seed to seed.
"""

from statistics import fmean

from vitral.core.language import N_, _, number
from vitral.inspection import recall_under_masks
from vitral.inspection.mask_recall import BATCH, BINS, KEYS, LAYERS, VALUES, WINDOW
from vitral.studies.claims import to_fixed
from vitral.studies.probe import (
    Axis,
    Comparison,
    Lines,
    Note,
    Plain,
    Probe,
    Quantity,
    Rows,
    Setting,
    StudyResult,
    View,
    mean_curve,
)

BUDGETS = (
    {1: (150, (1, 2, 3)), 4: (150, (1, 2, 3))},
    {1: (200, (1, 2, 3, 4, 5, 6)), 4: (2000, (1, 2, 3))},
    {1: (400, (1, 2, 3, 4, 5, 6)), 4: (4000, (1, 2, 3, 4, 5, 6))},
)
"""Steps of training and seeds, by the number of pairs."""
TITLES = {
    "causal": N_("causal"),
    "bidirectional": N_("bidirectional (predicts masked positions)"),
    "prefix": N_("prefix"),
    "window": N_("causal, window of {n}").format(n=WINDOW),
}
NAMES = {1: N_("one pair: retrieval"), 4: N_("four pairs: key-value recall")}
ACCURACY = Quantity(N_("accuracy"), "accuracy", better="higher")


def measure(setting: Setting) -> Plain:
    """Accuracy by distance of every mask, with one pair and with four, see `vitral.inspection.mask_recall`."""
    return {
        "tasks": [
            recall_under_masks(pairs, steps=steps, seeds=seeds)
            for pairs, (steps, seeds) in setting.size(*BUDGETS).items()
        ]
    }


def _name(task: Plain) -> str:
    return _(NAMES[task["pairs"]])


def _shares(runs: Plain, place: int) -> list[float]:
    return [share for run in runs.values() if (share := run["accuracy"][place]) is not None]


def _table(task: Plain) -> Rows:
    cells = [
        (_(TITLES[mask]), *(_cell(_shares(runs, place)) for place in range(len(BINS))))
        for mask, runs in task["masks"].items()
    ]
    if task["pairs"] > 1:
        for name, mask in ((_("guess"), "causal"), (_("guess without earlier answers"), "bidirectional")):
            cells.append((name, *(ACCURACY.show(share) for share in task["guess"][mask])))
    columns = [_("{low} to {high} back", low=low, high=high) for low, high in BINS]
    caption = _(
        "{task}: share of right answers by distance in tokens, mean over {seeds} seeds and the lowest; trained for "
        "{steps} steps. Answers a model: {answers}.",
        task=_name(task),
        seeds=len(next(iter(task["masks"].values()))),
        steps=task["steps"],
        answers=", ".join(map(str, task["answers"])),
    )
    return Rows(caption, (_("mask"), *columns), cells)


def _cell(shares: list[float]) -> str:
    if not shares:
        return "\N{EN DASH}"
    return _("{mean:.3f} (from {low:.3f})", mean=fmean(shares), low=min(shares))


def _comparisons(task: Plain) -> list[Comparison]:
    """Beyond the reach of the window: every mask against a guess. Over all distances: every mask against causal."""
    far = [place for place, (low, high) in enumerate(BINS) if low > task["reach"]]
    means = {
        mask: {
            "far": {int(seed): fmean(run["accuracy"][place] for place in far) for seed, run in runs.items()},
            "all": {int(seed): fmean(x for x in run["accuracy"] if x is not None) for seed, run in runs.items()},
        }
        for mask, runs in task["masks"].items()
        if all(run["accuracy"][place] is not None for run in runs.values() for place in far)
    }
    beyond = Quantity(_("accuracy beyond {reach} tokens", reach=task["reach"]), ACCURACY.read, better="higher")
    found = []
    for mask, values in means.items():
        subject = f"{_name(task)}, {_(TITLES[mask])}"
        sees = mask != "window" and task["pairs"] > 1
        guess = fmean(task["guess"][mask][place] for place in far) if sees else task["chance"]
        meaning = _("a guess among the values shown") if sees else _("a guess among all values")
        found.append(to_fixed(subject, guess, meaning, beyond, values["far"], mask))
        if mask not in ("causal", "window"):
            causal = _(TITLES["causal"])
            found.append(Comparison(subject, causal, ACCURACY, values["all"], means["causal"]["all"], mask))
    return found


def _losses(task: Plain) -> Note:
    ends = "; ".join(
        f"{_(TITLES[mask])} {number(fmean(run['loss'] for run in runs.values()), '.3f')}"
        for mask, runs in task["masks"].items()
    )
    return Note(_("{task}, loss at the end of training, nats per answer: {losses}.", task=_name(task), losses=ends))


def _view(result: StudyResult, measured: Plain) -> View:
    """Both tasks by distance; every mask against a guess, and against the causal one within its reach."""
    about = _(
        "Pairs of a key and a value ({keys} keys, {values} values), filler of a length drawn anew for each sequence, "
        "and the keys again: the model answers with their values. No fixed offset leads to an answer. With one pair "
        "the value only has to be found; with four the right one has to be told from the others. A guess knows the "
        "values shown and, but for masked answers, the earlier answers, and not the keys. For each mask and seed one "
        "model of {layers} layers (d_model 32, rotary positions) is trained on sequences of all distances, {batch} a "
        "step. The window of {window} reaches {reach} tokens back: it is the control. Low accuracy within reach means "
        "too little training, or that the mask is no help; accuracy beyond it a leak.",
        keys=KEYS,
        values=VALUES,
        layers=LAYERS,
        batch=BATCH,
        window=WINDOW,
        reach=measured["tasks"][0]["reach"],
    )
    tasks, middles = measured["tasks"], [(low + high) / 2 for low, high in BINS]
    curves = [
        mean_curve(_(TITLES[mask]), {middle: found for i, middle in enumerate(middles) if (found := _shares(runs, i))})
        for mask, runs in tasks[-1]["masks"].items()
    ]
    axes = Axis(_("distance of the value (tokens back)"), ticks=middles), Axis(_("correct answers (share)"))
    figure = Lines(_name(tasks[-1]), *axes, curves, {_("chance"): tasks[-1]["chance"]})
    comparisons = [one for task in tasks for one in _comparisons(task)]
    return View(about, [*map(_table, tasks)], figure, comparisons, notes=[*map(_losses, tasks)])


PROBE = Probe(
    "retrieval",
    N_("Retrieval at variable distance, and key-value recall"),
    measure,
    more=_view,
    seconds=(150, 900, 6000),
    of_runs=False,
)

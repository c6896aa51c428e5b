"""Tasks, and how models learn them: recall, Markov chains in their window, repeated strings, questions and answers."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from statistics import fmean
from typing import Any, TypeVar

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from vitral.core.errors import UsageError
from vitral.core.language import N_, _
from vitral.data.batches import IGNORED
from vitral.data.tasks import KeyValueRecall, MarkovChains, RepeatedStrings, Task
from vitral.evaluation.losses import predicted, reading_of_config
from vitral.inspection.gradients import untrained
from vitral.inspection.induction import (
    OCCURRENCES,
    PREDICTORS,
    chain_distances,
    count_nats,
    induction_ablation,
    induction_scores,
    occurrences,
    periods_of,
    repetition_nats,
)
from vitral.inspection.recall import recall_by_distance
from vitral.inspection.targets import read_windows, window_starts
from vitral.model import Transformer
from vitral.runs import load_run, trajectory
from vitral.studies.claims import Read, at, every
from vitral.studies.probe import (
    Against,
    ArmMeasures,
    Arms,
    Axis,
    Course,
    Lines,
    Plain,
    Probe,
    Quantity,
    Range,
    StudyResult,
    Trained,
    View,
    Within,
    require_causal_lm,
)

TaskKind = TypeVar("TaskKind", bound=Task)
NATS = "nats per token"


def task_rows(trained: Trained, kind: type[TaskKind], most: int) -> tuple[TaskKind, Int[Tensor, "rows span"]]:
    """The generated task of a causal run, and at most so many of its test sequences, evenly spread.

    Raises:
        UsageError: the run is of another task or a text, or its context is shorter than a sequence.
    """
    require_causal_lm(trained)
    task, length = trained.dataset.config.task, trained.model.config.context_length
    if not isinstance(task, kind):
        name = kind.model_fields["name"].default
        raise UsageError("{arm} is not trained on the task {task!r}", arm=trained.arm, task=name)
    if length < task.span - 1:
        raise UsageError(
            "{arm} reads {length} tokens, and a sequence of its task has {span}",
            arm=trained.arm,
            length=length,
            span=task.span,
        )
    return task, read_windows(trained.test, window_starts(trained.test, task.span, most, stride=task.span), task.span)


def along_training(trained: Trained, look: Callable[[Transformer], Plain]) -> list[Plain]:
    """What a function finds in the model before training and at every checkpoint that the run has kept.

    Each has the `step` besides. Before training, a run that began from another's weights has those.

    Raises:
        UsageError: a checkpoint, or the run with the first weights, cannot be loaded.
    """
    model = trained.model
    if trained.parent is None:
        begun = untrained(model, trained.run.config["seed"])
    else:
        begun = load_run(trained.parent, "last").model.to(model.token_embedding.weight).eval()
    first = {"step": 0, **look(begun)}
    return [first, *({"step": step, **look(model)} for step, model in trajectory(trained.run) if step)]


def half_way(curve: Sequence[tuple[float, float | None]], least: float) -> float | None:
    """The first place at which a curve has gone half of its way from its first to its last value.

    It is found by a straight line between two points. None where a value is missing, or where the way is shorter than
    `least`.

    >>> half_way([(0, 4.0), (10, 3.0), (20, 1.0), (30, 0.0)], least=1.0)
    15.0
    """
    known = [(x, value) for x, value in curve if value is not None]
    if len(known) < max(2, len(curve)) or abs(known[-1][1] - known[0][1]) < least:
        return None
    places, values = np.array(known).T
    gone = (values - values[0]) / (values[-1] - values[0])
    after = 1 + int(np.argmax(gone >= 0.5))
    return float(np.interp(0.5, gone[after - 2 : after], places[after - 2 : after]))


# ---------------------------------------------------------------- recall

SEQUENCES = (1000, 2000, 4000)
"""Test sequences."""
ACCURACY = Quantity(N_("share of right values"), "accuracy", better="higher")
CHANCE = Quantity(N_("chance"), "chance")
NEAR = Quantity(N_("right at the smallest distances"), "distances/0/accuracy", better="higher")
FAR = Quantity(N_("right at the largest distances"), "distances/-1/accuracy", better="higher")


def recall(trained: Trained) -> Plain:
    """Right values and their loss by distance."""
    task, rows = task_rows(trained, KeyValueRecall, trained.size(*SEQUENCES))
    return recall_by_distance(trained.model, task, rows)


def first_of_its_task(result: StudyResult, arms: Arms) -> Iterable[tuple[ArmMeasures, ArmMeasures]]:
    """Every arm with the first one of the same task, task by task."""
    tasks: dict[str, list[ArmMeasures]] = {}
    for arm in arms:
        corpus = arm.config.get("corpus", {})
        tasks.setdefault(str((corpus.get("source"), corpus.get("task"))), []).append(arm)
    return ((arm, alike[0]) for alike in tasks.values() for arm in alike[1:])


RECALL = Probe(
    "recall",
    N_("Recall by distance"),
    recall,
    about=N_(
        "The share of values that the model puts first among all tokens, on test sequences. The distance is the number "
        "of tokens from the value in its pair to the place of the answer; all distances are read by the same model."
    ),
    tables=[(ACCURACY, Quantity(N_("loss of the values"), "nats", "nats", "lower"), CHANCE, NEAR, FAR)],
    contrasts=[Against((ACCURACY, FAR), first_of_its_task), Within(FAR, NEAR), Within(ACCURACY, CHANCE)],
    figure=Course(
        N_("Recall by distance"),
        Axis(N_("distance to the value (tokens)")),
        Axis(N_("share of right values")),
        lambda run: [((one["from"] + one["to"]) / 2, one["accuracy"]) for one in run["distances"]],
    ),
)

# ---------------------------------------------------------------- Markov chains

CHAINS = ((128, 256), (200, 1000), (500, 4000))
"""Test sequences at every checkpoint, and at the end."""


def in_context(trained: Trained) -> Plain:
    """Losses and divergences along training, and the losses by position at its end."""
    few, most = trained.size(*CHAINS)
    task, rows = task_rows(trained, MarkovChains, most)
    states = torch.from_numpy(trained.run.tokenizer.encode(task.alphabet))
    look = partial(chain_distances, states=states, concentration=task.concentration)

    def briefly(model: Transformer) -> Plain:
        measured = look(model, rows[:few])
        return {key: measured[key] for key in ("losses", "divergence")}

    return {"steps": along_training(trained, briefly), "last": look(trained.model, rows)}


def _plateau(run: Mapping[str, Any]) -> float | None:
    """The share of the checkpoints at which the model is nearer to counting symbols than to the other predictors."""
    nearest = [min(PREDICTORS, key=lambda name: one["divergence"][name]) for one in run["steps"]]
    return nearest.count("unigram") / len(nearest)


def _quarter(who: str, *, last: bool) -> Read:
    def read(run: Mapping[str, Any]) -> float:
        nats = run["last"]["nats"][who]
        size = max(1, len(nats) // 4)
        return fmean(nats[-size:] if last else nats[:size])

    return read


LOSS = Quantity(N_("loss on new chains"), "last/losses/model", NATS, "lower")
BAYES = Quantity(N_("loss of the Bayes predictor"), "last/losses/bigram", NATS)
COUNTING = Quantity(N_("loss of counting symbols"), "last/losses/unigram", NATS)
IN_CONTEXT = Probe(
    "in-context",
    N_("Learning a chain in its window"),
    in_context,
    about=N_(
        "Every window is of a Markov chain of its own, so what is known of its transitions comes from the window. The "
        "Bayes predictor counts pairs of symbols, with the prior by which the chains are drawn: nothing can be better "
        "on average. Counting symbols ignores the order. The uniform predictor has learned nothing."
    ),
    tables=[
        (
            LOSS,
            BAYES,
            COUNTING,
            Quantity(N_("loss of the uniform predictor"), "last/losses/uniform", NATS),
            Quantity(N_("KL from the Bayes predictor"), "last/divergence/bigram", NATS, "lower"),
            Quantity(N_("KL from counting symbols"), "last/divergence/unigram", NATS, "lower"),
            Quantity(N_("share of the checkpoints nearest to counting symbols"), _plateau, digits=2),
        ),
        (
            Quantity(N_("loss in the first quarter of the window"), _quarter("model", last=False), NATS, "lower"),
            Quantity(N_("loss in the last quarter of the window"), _quarter("model", last=True), NATS, "lower"),
            Quantity(N_("loss of the Bayes predictor in the last quarter"), _quarter("bigram", last=True), NATS),
        ),
    ],
    contrasts=[Within(LOSS, BAYES), Within(LOSS, COUNTING), Against([LOSS])],
    figure=Course(
        N_("Loss on new chains along training"),
        Axis(N_("step")),
        Axis(N_("loss on new chains")),
        lambda run: [(one["step"], one["losses"]["model"]) for one in run["steps"]],
    ),
)

# ---------------------------------------------------------------- repeated strings

STRINGS = (64, 96, 256)
"""Test sequences at every checkpoint; four times as many for the ablation."""
LEAST_FALL, LEAST_RISE = 1.5, 0.2
"""Nats of the loss, and weight of a score, below which no step of change is named."""
ABRUPT, WITHIN = 0.5, 0.1
"""A change is abrupt if this share of it happens within this share of the training."""
CONCENTRATIONS = tuple(2.0**power for power in range(-8, 3))
"""Pseudocounts of counting symbols; the best of them for the test sequences is taken."""


def induction(trained: Trained) -> Plain:
    """Losses and head scores along training, the ablation at its end, and the least possible losses."""
    few, model = trained.size(*STRINGS), trained.model
    task, rows = task_rows(trained, RepeatedStrings, 4 * few)
    limits = {"shortest": task.shortest, "longest": task.longest}
    periods = periods_of(rows, **limits)
    exact = torch.from_numpy(repetition_nats(rows.numpy(), symbols=task.symbols, **limits)[:, 1:])
    second = occurrences(periods, rows.shape[1] - 1)["second"]
    tokens = torch.from_numpy(trained.run.tokenizer.encode(task.alphabet))
    symbol = torch.zeros(model.vocab_size, dtype=torch.int64).scatter(0, tokens, torch.arange(task.symbols))
    states = symbol[rows].numpy()
    counted = [count_nats(states, symbols=task.symbols, concentration=one) for one in CONCENTRATIONS]
    composes = model.mask is not None and model.config.num_layers > 1  # a later head can read an earlier one
    return {
        "exact": float(exact[second].mean()),
        "counted": min(float(nats[second.numpy()].mean()) for nats in counted),
        "steps": along_training(trained, lambda one: induction_scores(one, rows[:few], periods[:few])),
        "last": induction_scores(model, rows, periods),
        "ablation": induction_ablation(model, rows, periods) if composes else None,
    }


def _best(score: str) -> Read:
    """The highest score of a head."""
    return lambda measured: max(every(measured, f"layers/*/heads/*/{score}"), default=None)


def _curve(run: Mapping[str, Any], read: Read) -> list[tuple[float, float | None]]:
    return [(one["step"], read(one)) for one in run["steps"]]


def _abruptness(run: Mapping[str, Any]) -> float | None:
    """The largest share of the fall of the loss that happens within a tenth of the steps."""
    curve = [(step, value) for step, value in _curve(run, REPEATED) if value is not None]
    (first, begin), (last, end) = curve[0], curve[-1]
    if begin - end < LEAST_FALL:
        return None
    reach = WITHIN * (last - first)
    falls = [one - other for left, one in curve for right, other in curve if left < right <= left + reach]
    return max(falls, default=0.0) / (begin - end)


REPEATED, PREFIX, PREVIOUS = at("losses/second"), _best("prefix"), _best("previous")
TITLES = N_("loss in the first occurrence"), N_("loss in the second occurrence"), N_("loss in later occurrences")
LOSSES = [
    Quantity(title, f"last/losses/{name}", NATS, "lower") for name, title in zip(OCCURRENCES, TITLES, strict=True)
]
COUNTED = Quantity(N_("loss in the second occurrence of counting symbols"), "counted", NATS)
BEST_PREFIX = Quantity(N_("highest prefix-matching score"), lambda run: PREFIX(run["last"]))
EVEN_PREFIX = Quantity(N_("prefix-matching score of uniform attention"), "last/uniform/prefix")
STEP_OF_LOSS, STEP_OF_PREFIX, STEP_OF_PREVIOUS = (
    Quantity(title, lambda run, read=read, least=least: half_way(_curve(run, read), least), digits=0)
    for title, read, least in (
        (N_("step at which the loss is half-way"), REPEATED, LEAST_FALL),
        (N_("step at which prefix matching is half-way"), PREFIX, LEAST_RISE),
        (N_("step at which attention to the token before is half-way"), PREVIOUS, LEAST_RISE),
    )
)
ABRUPTNESS = Quantity(N_("largest share of the fall within a tenth of the steps"), _abruptness, digits=2)
WITHOUT_PREVIOUS = Quantity(
    N_("loss increase without the previous-token head"), "ablation/without/previous/increase", NATS
)
WITHOUT_OTHERS = Quantity(
    N_("loss increase without another head of its layer"), "ablation/without/others/increase", NATS
)
LEFT = Quantity(N_("this score without the previous-token head"), "ablation/without/previous/prefix")
LEFT_BY_OTHERS = Quantity(N_("this score without another head of its layer"), "ablation/without/others/prefix")
INDUCTION = Probe(
    "induction",
    N_("Completing a repeated string"),
    induction,
    about=N_(
        "Each test sequence is a random string that is repeated. The least possible loss is that of the exact Bayes "
        "predictor, which knows the law by which the sequences are drawn. The first token of the second occurrence "
        "counts nowhere, since nothing tells that the string ends. Counting symbols predicts each symbol by how often "
        "it came so far, whatever came before it: it can be done without finding the earlier occurrence. "
        "Previous-token score: the weight of a head on the position before. Prefix-matching score: its weight on the "
        "positions right after the places, whole periods back, of the current token. The highest of all heads. "
        "Loss at repeated tokens when one head is replaced by its mean output: the previous-token head has "
        "the highest score in a layer before the last, chosen on other sequences than it is measured on. The control "
        "is the mean over the other heads of its layer."
    ),
    tables=[
        (*LOSSES, Quantity(N_("least possible loss in the second occurrence"), "exact", NATS), COUNTED),
        (
            Quantity(N_("highest previous-token score"), lambda run: PREVIOUS(run["last"])),
            Quantity(N_("previous-token score of uniform attention"), "last/uniform/previous"),
            BEST_PREFIX,
            EVEN_PREFIX,
        ),
        (STEP_OF_LOSS, STEP_OF_PREFIX, STEP_OF_PREVIOUS, ABRUPTNESS),
        (
            WITHOUT_PREVIOUS,
            WITHOUT_OTHERS,
            Quantity(N_("loss increase without the induction head"), "ablation/without/induction/increase", NATS),
            Quantity(N_("prefix-matching score of the induction head"), "ablation/prefix"),
            LEFT,
            LEFT_BY_OTHERS,
        ),
    ],
    contrasts=[
        Within(LOSSES[1], COUNTED),
        Within(BEST_PREFIX, EVEN_PREFIX, given=WITHOUT_PREVIOUS),
        Within(STEP_OF_PREFIX, STEP_OF_LOSS, given=WITHOUT_PREVIOUS),
        Within(STEP_OF_PREVIOUS, STEP_OF_LOSS, given=WITHOUT_PREVIOUS),
        Within(WITHOUT_PREVIOUS, WITHOUT_OTHERS),
        Within(LEFT, LEFT_BY_OTHERS, given=WITHOUT_PREVIOUS),
    ],
    figure=Course(
        N_("Loss in the second occurrence along training"),
        Axis(N_("step")),
        Axis(N_("loss in the second occurrence")),
        lambda run: _curve(run, REPEATED),
    ),
    more=lambda result, arms: View(
        checks=Range(ABRUPTNESS, low=ABRUPT, expected=N_("at least {low:g}: an abrupt change")).of(arms)
    ),
)

# ---------------------------------------------------------------- questions and answers

QUESTIONS = (300, 1000, 4000)
"""Of the test part, about."""
LENGTHS = 4
"""Of answers, at least, for a figure."""


def answers(trained: Trained) -> Plain:
    """Right tokens and whole answers by the number of tokens of the answer, the one that ends it included.

    Returns:
        `lengths`: for each `length` the number of `answers` and their `tokens`; `exact`, the answers that are wholly
        right; the right tokens, `forced` after the true ones and `free` after the model's own; the tokens `later` than
        the first wrong one, and of these `later_forced` and `later_free`.

    Raises:
        UsageError: the run is not trained on questions with answers.
    """
    split, reading = trained.test, reading_of_config(trained.model.config)
    if split.answers is None or split.answers.labels:
        raise UsageError("{arm} is not trained on questions with answers", arm=trained.arm)
    records = split.segments[reading.fits(split)]
    chosen = records[:: max(1, len(records) // trained.size(*QUESTIONS))]
    inputs, targets = reading.pair(split, reading.indices(split, chosen))
    forced, free = right_tokens(trained.model, inputs, targets, split.answers.closes)
    asked = targets != IGNORED
    wrong = (asked & ~forced).long()
    later = asked & (wrong.cumsum(1) > wrong)
    counts = {"answers": asked.any(1), "tokens": asked, "exact": (free | ~asked).all(1), "forced": forced, "free": free}
    counts |= {"later": later, "later_forced": later & forced, "later_free": later & free}
    lengths = asked.sum(1)
    return {
        "lengths": [
            {"length": int(length), **{key: int(each[lengths == length].sum()) for key, each in counts.items()}}
            for length in lengths.unique()
        ]
    }


def right_tokens(
    model: Transformer, inputs: Int[Tensor, "rows read"], targets: Int[Tensor, "rows time"], closes: int
) -> tuple[Bool[Tensor, "rows time"], Bool[Tensor, "rows time"]]:
    """Which tokens of the answers the model gives: after the true tokens, and after its own until it ends.

    Args:
        model: in evaluation mode, causal in the answers.
        inputs: as `vitral.data.batches.pair_of` makes them.
        targets: `IGNORED` where no token of an answer is asked for.
        closes: id of the token that ends an answer.
    """
    asked, own = targets != IGNORED, inputs.clone()
    written = own[:, -targets.shape[1] :]
    with torch.inference_mode():
        forced = predicted(model, inputs).argmax(-1)
        for position in range(1, targets.shape[1]):
            said = predicted(model, own).argmax(-1)
            written[:, position] = torch.where(asked[:, position - 1], said[:, position - 1], written[:, position])
        free = predicted(model, own).argmax(-1)
    ended = ((free == closes) & asked).long()
    return asked & (forced == targets), asked & (free == targets) & (ended.cumsum(1) == ended)


def _share(key: str, of: str = "tokens") -> Read:
    """A reader of the share that one sum over all lengths is of another one; None of nothing."""

    def read(run: Mapping[str, Any]) -> float | None:
        part, whole = (sum(one[name] for one in run["lengths"]) for name in (key, of))
        return part / whole if whole else None

    return read


def _independent(run: Mapping[str, Any]) -> float:
    """The share of whole answers if the tokens of answers of a length were right independently, equally likely."""
    whole = sum(one["answers"] * (one["forced"] / one["tokens"]) ** one["length"] for one in run["lengths"])
    return whole / sum(one["answers"] for one in run["lengths"])


EXACT = Quantity(N_("whole answers"), _share("exact", "answers"), better="higher")
FORCED = Quantity(N_("right tokens, teacher forcing"), _share("forced"), better="higher")
FREE = Quantity(N_("right tokens, free running"), _share("free"), better="higher")
LATER_FORCED = Quantity(
    N_("right tokens after the first error, teacher forcing"), _share("later_forced", "later"), better="higher"
)
LATER_FREE = Quantity(
    N_("right tokens after the first error, free running"), _share("later_free", "later"), better="higher"
)
INDEPENDENT = Quantity(N_("whole answers if errors were independent"), _independent)


def _by_length(result: StudyResult, arms: Arms) -> View:
    """The first arm by the length of the answer, where its answers have enough lengths for a curve."""
    if len(arms[0].first["lengths"]) < LENGTHS:
        return View()
    axes = Axis(N_("tokens of the answer")), Axis(N_("right (share)"))
    curves = [
        curve._replace(label=quantity.title, look=look)
        for quantity, look in ((FORCED, "marked"), (FREE, "marked"), (EXACT, "marked"), (INDEPENDENT, "theory"))
        for curve in Course("", *axes, partial(_points, quantity)).of(arms[:1]).curves
    ]
    return View(figure=Lines(_("By length: {arm}", arm=arms[0].title), *axes, curves))


def _points(quantity: Quantity, run: Mapping[str, Any]) -> list[tuple[float, float | None]]:
    return [(one["length"], quantity.read({"lengths": [one]})) for one in run["lengths"]]


ANSWERS = Probe(
    "answers",
    N_("Whole answers"),
    answers,
    about=N_(
        "Answers to test questions, the likeliest token at a time, to the token that ends them. Teacher forcing: each "
        "token is predicted after the true ones; free running: after those that the model wrote itself. To the first "
        "wrong token both read the same, so the same answers are whole; after it they differ. If errors fell "
        "independently, equally likely at every token of the answers of one length, the share of whole answers would "
        "be a power of the share of right tokens."
    ),
    tables=[(EXACT, INDEPENDENT, FORCED, FREE, LATER_FORCED, LATER_FREE)],
    contrasts=[Against([EXACT], first_of_its_task), Within(LATER_FREE, LATER_FORCED), Within(EXACT, INDEPENDENT)],
    more=_by_length,
)
PROBES = (RECALL, IN_CONTEXT, INDUCTION, ANSWERS)

"""The probe `related-words`: scores and the similarity of words, and the weight of a form on what it agrees with."""

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any

from vitral.core.language import N_, _
from vitral.figures.sections import Heading, Table
from vitral.figures.text import capital, signed
from vitral.inspection import agreeing_weights, similar_word_scores, untrained
from vitral.inspection.word_lists import language_of, word_lists
from vitral.inspection.words import LANGUAGE_TOKENS, SHUFFLES
from vitral.studies import probe
from vitral.studies.probe import ArmMeasures, Arms, Comparison, Plain, Quantity, StudyResult, Trained, View

WINDOWS = (64, 256, 512)
MOST_WORDS = 400
Items = dict[int, list[list[float]]]
"""By subject, one number for each block and head."""
AGREEMENT = N_("weight on the subject where the form agrees, less where it does not")


def measure(trained: Trained) -> Plain:
    """Scores and weights of the model and of the same model before training."""
    probe.require_causal_lm(trained)
    run, splits = trained.run, trained.dataset.splits
    lists = word_lists()[language_of(run.tokenizer.decode(splits["train"].tokens[:LANGUAGE_TOKENS]))]

    def of(model: Any) -> Plain:
        given = {"windows": trained.size(*WINDOWS), "most_words": MOST_WORDS}
        return {
            "scores": similar_word_scores(model, run.tokenizer, splits["train"], splits["test"], **given),
            "weights": agreeing_weights(model, run.tokenizer, lists.pairs),
        }

    return of(run.model) | {"untrained": of(untrained(run.model, trained.seed))}


def correlations(run: Mapping[str, Any]) -> list[tuple[tuple[int, int], float, list[float]]]:
    """Of every head its block and number, its correlation, and those of shuffled words."""
    return [
        ((block, head), each["correlation"], each["shuffled"])
        for block, heads in enumerate((run["scores"] or {}).get("heads", []))
        for head, each in enumerate(heads)
    ]


def agreement_items(run: Mapping[str, Any]) -> Items:
    """The difference of the weights of every head by subject."""
    return {
        index: [
            [one - other for one, other in zip(agree, disagree, strict=True)]
            for agree, disagree in zip(item["agree"], item["disagree"], strict=True)
        ]
        for index, item in enumerate(run["weights"])
    }


def all_heads(items: Items) -> dict[int, float]:
    """The mean over all heads, by item."""
    return {item: fmean(value for block in heads for value in block) for item, heads in items.items()}


def chosen_head(items: Items) -> tuple[tuple[int, int], dict[int, float]] | None:
    """The head with the largest mean over the even items, and its values on the odd ones, which did not choose it."""
    even, odd = ([item for item in items if item % 2 == rest] for rest in (0, 1))
    if not even or not odd:
        return None
    means = {
        (block, head): fmean(items[item][block][head] for item in even)
        for block, heads in enumerate(items[even[0]])
        for head in range(len(heads))
    }
    block, head = max(means, key=means.__getitem__)
    return (block, head), {item: items[item][block][head] for item in odd}


def view(result: StudyResult, arms: Arms) -> View:
    """Scores beside shuffled words; agreement for all heads, and for one that half of the subjects choose."""
    arms = [arm for arm in arms if any(run["scores"] or run["weights"] for run in arm.runs.values())]
    every = [each for arm in arms for each in (arm, probe.untrained_of(arm))]
    agreement, comparisons = _agreement(every)
    return View((*_scores(every), *agreement), tuple(comparisons))


def _scores(arms: Arms) -> tuple[probe.Piece, ...]:
    how = _(
        "The score of a query and a key depends on their distance, on the query alone and on the key alone. What "
        "remains without these is correlated with the similarity of the two words, the cosine of their contexts "
        "counted in the training text. Pairs are different whole words of the test text, two or more tokens apart. Any "
        "weights prefer some pairs of words, so the range of {n} correlations with exchanged words stands beside each "
        "number: of the mean of all heads, and of the largest and the smallest of all heads.",
        n=SHUFFLES,
    )
    rows = [row for arm in arms for row in _score_rows(arm)]
    columns = (_("arm"), _("heads"), _("correlation"), _("with exchanged words"))
    caption = _("Partial correlation of scores and similarity of words, first seed.")
    if not rows:
        return ()
    return Heading(_("Scores of similar words")), how, Table(caption, columns, tuple(rows), (0, 1))


def _score_rows(arm: ArmMeasures) -> list[tuple[str, ...]]:
    heads = correlations(arm.first)
    if not heads:
        return []
    shuffles = list(zip(*(shuffled for _place, _value, shuffled in heads), strict=True))
    rows = [(arm.title, _("mean of all"), *_beside(fmean(value for _, value, _ in heads), map(fmean, shuffles)))]
    for extreme, by in ((max, N_("largest: {head}")), (min, N_("smallest: {head}"))):
        place, value, _shuffled = extreme(heads, key=lambda each: each[1])
        rows.append((arm.title, _(by, head=_head(place)), *_beside(value, map(extreme, shuffles))))
    return rows


def _beside(value: float, shuffled: Iterable[float]) -> tuple[str, str]:
    found = sorted(shuffled)
    return signed(value, 3), _("{low} to {high}", low=signed(found[0], 3), high=signed(found[-1], 3))


def _head(place: tuple[int, int]) -> str:
    return _("block {block}, head {head}", block=place[0], head=place[1])


def _agreement(arms: Arms) -> tuple[tuple[probe.Piece, ...], list[Comparison]]:
    how = _(
        "The two sentences of a minimal pair differ in one form, a verb or a pronoun. Its weight on the subject is "
        "compared between the form that agrees with the subject and the other one, at the same place; each form is "
        "right as often as wrong. Subjects are the units. A head is chosen on one half of them and tested on the other."
    )
    rows, comparisons, quantity = [], [], Quantity(AGREEMENT, unit=N_("of weight"))
    for arm in arms:
        found = _over_seeds(arm)
        if not found:
            continue
        tested = {_("mean of all heads"): all_heads(found)}
        if (chosen := chosen_head(found)) is not None:
            tested[_head(chosen[0])] = chosen[1]
        for which, values in tested.items():
            rows.append((arm.title, which, str(len(values)), signed(fmean(values.values()), 4)))
            subject, none = _("{arm}, {which}", arm=arm.title, which=which), dict.fromkeys(values, 0.0)
            comparisons.append(Comparison(subject, _("none (0)"), quantity, values, none, arm.name, sample="items"))
    columns = (_("arm"), _("heads"), _("subjects"), _("mean"))
    if not rows:
        return (), []
    table = Table(capital(_(AGREEMENT)) + ".", columns, tuple(rows), (0, 1))
    return (Heading(_("Weight on what a form agrees with")), how, table), comparisons


def _over_seeds(arm: ArmMeasures) -> Items:
    """Means over seeds, of the subjects that all seeds have."""
    each = [agreement_items(run) for run in arm.runs.values()]
    return {item: _mean([one[item] for one in each]) for item in each[0] if all(item in one for one in each)}


def _mean(seeds: Sequence[list[list[float]]]) -> list[list[float]]:
    return [[fmean(values) for values in zip(*blocks, strict=True)] for blocks in zip(*seeds, strict=True)]

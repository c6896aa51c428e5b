"""The probe `related-words`: scores and the similarity of words, and the weight of a form on what it agrees with."""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from vitral.core.language import N_, _
from vitral.inspection import agreeing_weights, similar_word_scores, untrained
from vitral.inspection.word_lists import language_of, word_lists
from vitral.inspection.words import LANGUAGE_TOKENS
from vitral.studies.claims import every
from vitral.studies.probe import (
    ArmMeasures,
    Arms,
    Comparison,
    Means,
    Plain,
    Probe,
    Quantity,
    StudyResult,
    Trained,
    View,
    require_causal_lm,
    untrained_of,
)

WINDOWS = (64, 256, 512)
MOST_WORDS = 400
Items = dict[int, list[list[float]]]
"""By subject, one number for each block and head."""
AGREEMENT = N_("weight on the subject where the form agrees, less where it does not")


def measure(trained: Trained) -> Plain:
    """Scores and weights of the model and of the same model before training."""
    require_causal_lm(trained)
    run, splits = trained.run, trained.dataset.splits
    lists = word_lists()[language_of(run.tokenizer.decode(splits["train"].tokens[:LANGUAGE_TOKENS]))]

    def of(model: Any) -> Plain:
        given = {"windows": trained.size(*WINDOWS), "most_words": MOST_WORDS}
        return {
            "scores": similar_word_scores(model, run.tokenizer, splits["train"], splits["test"], **given),
            "weights": agreeing_weights(model, run.tokenizer, lists.pairs),
        }

    return of(run.model) | {"untrained": of(untrained(run.model, trained.seed))}


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


def _over_seeds(arm: ArmMeasures) -> Items:
    """Means over seeds, of the subjects that all seeds have."""
    each = [agreement_items(run) for run in arm.runs.values()]
    return {item: _mean([one[item] for one in each]) for item in each[0] if all(item in one for one in each)}


def _mean(seeds: Sequence[list[list[float]]]) -> list[list[float]]:
    return [[fmean(values) for values in zip(*blocks, strict=True)] for blocks in zip(*seeds, strict=True)]


HEADS = "scores/heads/*/*"
SCORES = (
    Quantity(N_("mean of all heads"), f"{HEADS}/correlation"),
    Quantity(N_("largest of a head"), lambda run: max(every(run, f"{HEADS}/correlation"), default=None)),
    Quantity(
        N_("largest of a head with exchanged words"), lambda run: max(every(run, f"{HEADS}/shuffled/*"), default=None)
    ),
)
ABOUT = N_(
    "The score of a query and a key depends on their distance, on the query alone and on the key alone. What "
    "remains without these is correlated with the similarity of the two words, the cosine of their contexts "
    "counted in the training text. Pairs are different whole words of the test text, two or more tokens apart. Any "
    "weights prefer some pairs of words, so the largest correlation with exchanged words stands beside each number. "
    "The two sentences of a minimal pair differ in one form, a verb or a pronoun. Its weight on the subject is "
    "compared between the form that agrees with the subject and the other one, at the same place; each form is "
    "right as often as wrong. Subjects are the units. A head is chosen on one half of them and tested on the other."
)


def _view(result: StudyResult, arms: Arms) -> View:
    """Scores beside exchanged words; agreement for all heads, and for one that half of the subjects choose."""
    arms = [arm for arm in arms if any(run["scores"] or run["weights"] for run in arm.runs.values())]
    if not arms:
        return View()
    each = [one for arm in arms for one in (arm, untrained_of(arm))]
    caption = _("Partial correlation of scores and similarity of words, means over seeds.")
    return View(_(ABOUT), [Means(each, SCORES, caption)], comparisons=[one for arm in each for one in _agreement(arm)])


def _agreement(arm: ArmMeasures) -> list[Comparison]:
    found = _over_seeds(arm)
    if not found:
        return []
    tested = {_("mean of all heads"): all_heads(found)}
    if (chosen := chosen_head(found)) is not None:
        tested[_("block {block}, head {head}", block=chosen[0][0], head=chosen[0][1])] = chosen[1]
    quantity = Quantity(AGREEMENT, unit=N_("of weight"))
    return [
        Comparison(
            _("{arm}, {which}", arm=arm.title, which=which),
            _("none (0)"),
            quantity,
            values,
            dict.fromkeys(values, 0.0),
            arm.name,
            sample="items",
        )
        for which, values in tested.items()
    ]


PROBE = Probe("related-words", N_("Scores of similar words, and agreement"), measure, more=_view)

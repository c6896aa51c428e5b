"""Words: neighbours against counted contexts, one word in two senses, and minimal pairs against chance."""

from collections.abc import Callable, Mapping
from functools import partial
from statistics import fmean
from typing import Any

from vitral.core.language import N_, _
from vitral.inspection import untrained, word_measures
from vitral.inspection.word_lists import word_lists
from vitral.inspection.words import (
    CHANCE,
    ORDER,
    context_separations,
    counted_pairs,
    item_scores,
    pair_scores,
    separations,
    subject_scores,
)
from vitral.studies.probe import (
    ENOUGH_SEEDS,
    Against,
    ArmMeasures,
    Arms,
    Axis,
    Comparison,
    Course,
    Fixed,
    Means,
    Plain,
    Points,
    Probe,
    Quantity,
    StudyResult,
    Trained,
    View,
    Within,
    require_causal_lm,
    untrained_of,
)

MOST_WORDS = (300, 400, 500)
LEAST_SENSES = 3
"""Words of two senses; with fewer, senses are not compared."""
SAME = 0.001
"""A mean difference of cosines below this is zero: rounding alone gives some."""


def measure(trained: Trained) -> Plain:
    """Neighbours, senses and minimal pairs, see `vitral.inspection.word_measures`."""
    require_causal_lm(trained)
    run, splits = trained.run, trained.dataset.splits
    most, fresh = trained.size(*MOST_WORDS), untrained(run.model, trained.seed)
    found = word_measures(run.model, run.tokenizer, splits, most_words=most)
    lists = word_lists()[found["language"]]
    return found | {
        "untrained": word_measures(fresh, run.tokenizer, splits, most_words=most),
        "counted": {"pairs": counted_pairs(run.tokenizer, splits["train"], lists.pairs)},
        "contexts": context_separations(run.model, run.tokenizer, lists.senses),
    }


def _gain(run: Mapping[str, Any]) -> float | None:
    gains = [places[-1] - places[0] for places in separations(run["senses"])]
    if len(gains) < LEAST_SENSES:
        return None
    return 0.0 if max(map(abs, gains)) < SAME else fmean(gains)


def _share(scores: list[float]) -> float | None:
    return fmean(scores) if scores else None


CORRELATION = Quantity(N_("rank correlation of embedding and counted contexts"), "neighbours/correlation")
SHUFFLED = Quantity(
    N_("the largest with shuffled words"), lambda run: run["neighbours"] and max(run["neighbours"]["shuffled"])
)
GAIN = Quantity(N_("separation of two senses, last block less embedding"), _gain, N_("of cosine"))
RIGHT = Quantity(N_("share of pairs with the right sentence preferred"), lambda run: _share(pair_scores(run["pairs"])))


def _apart(run: Mapping[str, Any]) -> Points:
    """After each block, 100 times the mean separation of two senses."""
    places = zip(*separations(run["senses"]), strict=True)
    return [(block, 100 * fmean(values)) for block, values in enumerate(places)]


def _preferred(kind: str, scores: Callable[..., list[float]]) -> Quantity:
    return Quantity(kind, lambda run: _share(scores(run["pairs"])))


ABOUT = N_(
    "For the most frequent whole words that are one token: cosines in the token embedding, and those of contexts "
    "counted in the training text (positive PMI of the two tokens before and after), which need no model. If similar "
    "words have similar contexts (Harris 1954), the two agree: Spearman's correlation over all pairs of words, beside "
    "the largest of those with the words of the embedding shuffled (Mantel 1967). Sentences use a word in two senses, "
    "decided by the words before it; the word right before it is the same in all of them. The separation is the cosine "
    "of the residual stream at the word's last token within a sense less that across senses. In the embedding it is "
    "zero; only attention to the words before can separate them. It shows that the vector depends on a context that "
    "goes with the sense, not that the sense is known. Minimal pairs: two sentences differ in one word, of which one "
    "form is right; shares are of the pairs in which the right sentence is more probable. Every form is right in half "
    "of the pairs, so a model that only prefers one form is right in 50%, as chance is."
)


def _view(result: StudyResult, arms: Arms) -> View:
    """Neighbours, senses and minimal pairs, by arm; arms in one language side by side."""
    comparisons, tables, drawn = [], [], []
    for language in dict.fromkeys(arm.first["language"] for arm in arms):
        alike = [arm for arm in arms if arm.first["language"] == language]
        fresh, counted = references(alike[0])
        kinds = dict.fromkeys(pair["kind"] for pair in alike[0].first["pairs"])
        preferred = [_preferred(kind, partial(pair_scores, kind=kind)) for kind in kinds]
        preferred.append(_preferred(N_("the subject matters"), subject_scores))
        tables += [Means([*alike, *fresh], (CORRELATION, SHUFFLED, GAIN))]
        tables += [Means([*alike, *fresh, *counted], (RIGHT, *preferred), _("Minimal pairs"))]
        drawn += [*alike, *fresh]
        if len(alike[0].runs) < ENOUGH_SEEDS:
            comparisons += by_items(alike[0], [*alike[1:], *fresh, *counted])
            continue
        comparisons += Against((RIGHT, GAIN)).of(result, [*alike, *fresh, *counted])
        for arm in alike:
            comparisons += Fixed([RIGHT], CHANCE, N_("chance ({value:g})")).of(result, [arm])
            comparisons += Fixed([GAIN], 0.0, N_("none (0)")).of(result, [arm])
            comparisons += Within(CORRELATION, SHUFFLED).of(result, [arm])
    axes = Axis(N_("after block (0: the embedding)")), Axis(N_("100 × cosine, same less other sense"))
    figure = Course(N_("Separation of two senses"), *axes, _apart).of(drawn)
    return View(_(ABOUT), tables, figure, [one for one in comparisons if one.values])


def references(arm: ArmMeasures) -> tuple[list[ArmMeasures], list[ArmMeasures]]:
    """The model before training, and counted n-grams, which have pairs alone, as arms; none where not measured."""
    if any("untrained" not in run for run in arm.runs.values()):
        return [], []
    nothing = {"neighbours": None, "senses": [], "places": arm.first["places"], "language": arm.first["language"]}
    counted = {seed: nothing | run["counted"] for seed, run in arm.runs.items()}
    ngrams = ArmMeasures("counted", _("counted {order}-grams", order=ORDER), arm.config, counted)
    return [untrained_of(arm)], [ngrams]


def by_items(arm: ArmMeasures, others: Arms) -> list[Comparison]:
    """One model from too few seeds to test: subjects of pairs and words of two senses are the units, means over seeds.

    Each kind of pairs against chance and against each reference; the separation of senses against none, against the
    untrained model, and against that of the words before.
    """
    found, chance = [], _("chance ({share:g})", share=CHANCE)

    def against(quantity: Quantity, own: dict[int, float], rivals: Mapping[str, dict[int, float]]) -> None:
        for name, values in rivals.items():
            found.append(Comparison(arm.title, name, quantity, own, values, arm.name, sample="items"))

    for kind in dict.fromkeys(pair["kind"] for pair in arm.first["pairs"]):
        scores = lambda run, kind=kind: item_scores(run["pairs"], kind)  # noqa: E731
        right = Quantity(_("{kind}: right sentence preferred", kind=_(kind)), RIGHT.read, better="higher")
        if own := _over_seeds(arm, scores):
            rivals = {other.title: _over_seeds(other, scores) for other in others}
            against(right, own, {chance: dict.fromkeys(own, CHANCE), **rivals})
    own = _over_seeds(arm, _gains)
    if len(own) >= LEAST_SENSES and max(map(abs, own.values())) >= SAME:
        contexts = arm.first.get("contexts", {})
        words = {index: contexts.get(word["word"]) for index, word in enumerate(arm.first["senses"])}
        before = {index: value for index, value in words.items() if value is not None}
        rivals = {_("none (0)"): dict.fromkeys(own, 0.0), _("the mean of the words before it"): before}
        against(GAIN, own, rivals | {other.title: gains for other in others if (gains := _over_seeds(other, _gains))})
    return found


def _gains(run: Mapping[str, Any]) -> dict[int, float]:
    return {index: places[-1] - places[0] for index, places in enumerate(separations(run["senses"]))}


def _over_seeds(arm: ArmMeasures, read: Callable[[Mapping[str, Any]], Mapping[int, float]]) -> dict[int, float]:
    """By item, the mean over the seeds, of the items that all seeds have."""
    each = [read(run) for run in arm.runs.values()]
    return {item: fmean(one[item] for one in each) for item in each[0] if all(item in one for one in each)}


PROBE = Probe("meaning", N_("Words and their contexts"), measure, more=_view, seconds=(8, 20, 30))

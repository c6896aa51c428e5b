"""Words: neighbours against counted contexts, one word in two senses, and minimal pairs against chance."""

from collections.abc import Callable, Mapping
from functools import partial
from statistics import fmean
from typing import Any

import numpy as np
from jaxtyping import Float

from vitral.core.language import N_, _, listed, number
from vitral.figures.lines import Axis, Line
from vitral.figures.sections import Heading, Table
from vitral.figures.text import NONE, minus, signed
from vitral.inspection import untrained, word_measures
from vitral.inspection.classification import wilson
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
from vitral.studies import probe
from vitral.studies.claims import to_fixed
from vitral.studies.intervals import mean_interval
from vitral.studies.probe import (
    ENOUGH_SEEDS,
    LEVEL,
    ArmMeasures,
    Arms,
    Comparison,
    Piece,
    Plain,
    Quantity,
    StudyResult,
    Trained,
    View,
)

MOST_WORDS = (300, 400, 500)
LEAST_SENSES = 3
"""Words of two senses; with fewer, senses are not compared."""
SAME = 0.001
"""A mean difference of cosines below this is zero: rounding alone gives some."""
NEAREST = (N_("word"), N_("in the embedding"), N_("by counted contexts"))
SENSES = (N_("word"), N_("senses"), N_("same sense"), N_("other sense"), N_("difference"))
LANGUAGES = {"en": N_("English"), "pt": N_("Portuguese")}


def measure(trained: Trained) -> Plain:
    """Neighbours, senses and minimal pairs, see `vitral.inspection.word_measures`."""
    probe.require_causal_lm(trained)
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


def view(result: StudyResult, arms: Arms) -> View:
    """Neighbours, senses by layer and minimal pairs, by arm; arms in one language side by side."""
    sections, comparisons = [], []
    languages = list(dict.fromkeys(arm.first["language"] for arm in arms))
    for language in languages:
        alike = [arm for arm in arms if arm.first["language"] == language]
        which = f": {_(LANGUAGES.get(language, str(language)))}" if len(languages) > 1 else ""
        suffix = "" if language == languages[0] else f"-{language}"
        fresh, counted = references(alike[0])
        sections += [*_neighbours([*alike, *fresh], which, suffix), *_senses([*alike, *fresh], which, suffix)]
        sections += _pairs([*alike, *fresh, *counted], which)
        if len(alike[0].runs) < ENOUGH_SEEDS:
            comparisons += by_items(alike[0], [*alike[1:], *fresh, *counted])
            continue
        comparisons += probe.against_base([*alike, *fresh, *counted], RIGHT, GAIN)
        for arm in alike:
            comparisons += [
                to_fixed(arm.title, CHANCE, _("chance ({share:g})", share=CHANCE), RIGHT, arm.values(RIGHT), arm.name),
                to_fixed(arm.title, 0.0, _("none (0)"), GAIN, arm.values(GAIN), arm.name),
                *probe.within([arm], CORRELATION, SHUFFLED),
            ]
    return View(sections, tuple(one for one in comparisons if one.values))


def references(arm: ArmMeasures) -> tuple[list[ArmMeasures], list[ArmMeasures]]:
    """The model before training, and counted n-grams, which have pairs alone, as arms; none where not measured."""
    if any("untrained" not in run for run in arm.runs.values()):
        return [], []
    nothing = {"neighbours": None, "senses": [], "places": arm.first["places"], "language": arm.first["language"]}
    counted = {seed: nothing | run["counted"] for seed, run in arm.runs.items()}
    ngrams = ArmMeasures("counted", _("counted {order}-grams", order=ORDER), arm.config, counted)
    return [probe.untrained_of(arm)], [ngrams]


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


def _neighbours(arms: Arms, which: str, suffix: str) -> list[Piece]:
    heading, arms = Heading(_("Neighbours of words") + which), [arm for arm in arms if arm.values(CORRELATION)]
    if not arms:
        return [heading, _("Too few whole words are tokens, so there are no neighbours.")]
    found = next(run["neighbours"] for run in arms[0].runs.values() if run["neighbours"])
    about = _(
        "For the {words} most frequent whole words that are one token: the nearest by cosine in the token embedding, "
        "and the nearest by contexts counted in the training text (positive PMI of the two tokens before and after, by "
        "cosine), which needs no model. If similar words have similar contexts (Harris 1954), the two agree: "
        "Spearman's correlation over all pairs of words, beside the largest of {n} correlations with the words of the "
        "embedding shuffled (Mantel 1967).",
        words=found["words"],
        n=len(found["shuffled"]),
    )
    agreement = _("Agreement of embedding and counted contexts, means over seeds.")
    nearest = _("Nearest words with their cosines ({arm}, one seed).", arm=arms[0].title)
    words = tuple((one["word"], _listed(one["embedded"]), _listed(one["counted"])) for one in found["of"])
    return [
        heading,
        about,
        Table(nearest, tuple(map(_, NEAREST)), words, prose=(1, 2)),
        *probe.interval_plot(
            f"neighbours{suffix}", _("Embedding and counted contexts"), arms, CORRELATION, _("Rank correlation.")
        ),
        probe.mean_table(agreement, arms, CORRELATION, SHUFFLED),
    ]


def _senses(arms: Arms, which: str, suffix: str) -> list[Piece]:
    heading, arms = Heading(_("The same word in two contexts") + which), [arm for arm in arms if arm.values(GAIN)]
    if not arms:
        return [heading, _("Too few of the words with two senses fit the tokenizer and the model.")]
    blocks = range(len(arms[0].first["places"]))
    lines, means = [], []
    for arm in arms:
        same, other = (_cosines(arm, key) for key in ("within", "across"))
        apart = [mean_interval(place) for place in (100 * (same - other)).T.tolist()]
        low, high = ([getattr(one, end) for one in apart] for end in ("low", "high"))
        lines.append(Line(arm.title, blocks, [one.mean for one in apart], low, high))
        for title, rows in ((SENSES[2], same), (SENSES[3], other), (SENSES[4], same - other)):
            means.append(
                (f"{arm.title}, {_(title)}", *(minus(number(one, ".3f")) for one in rows.mean(axis=0).tolist()))
            )
    same, other = (_cosines(arms[0], key)[:, -1] for key in ("within", "across"))
    words = tuple(
        (one["word"], f"{_(one['first'])} / {_(one['second'])}", number(a, ".3f"), number(b, ".3f"), signed(a - b))
        for one, a, b in zip(arms[0].first["senses"], same.tolist(), other.tolist(), strict=True)
    )
    axes = Axis(_("after block (0: the embedding)"), ticks=list(blocks)), Axis(_("100 × cosine, same less other sense"))
    caption = _(
        "Cosine within a sense less cosine across senses, in hundredths; mean over words with its 95% interval, not "
        "corrected for other comparisons."
    )
    alt = _("After the last block: {cosines}.", cosines="; ".join(f"{row[0]} {row[-1]}" for row in means))
    about = _(
        "Sentences use a word in two senses, decided by the words before it; the word right before it is the same in "
        "all of them. The cosine of the residual stream at the word's last token is taken between sentences of the "
        "same sense and of different senses, at the same position after the end of one passage of the test text. In "
        "the embedding the vectors are equal; only attention to the words before can separate them. A separation shows "
        "that the vector depends on a context that goes with the sense, not that the sense is known."
    )
    return [
        heading,
        about,
        probe.lined(f"senses-apart{suffix}", _("Separation of two senses"), lines, axes, caption, alt),
        Table(
            _("Mean cosine over {n} words and all seeds.", n=len(words)), (_("arm"), *map(str, blocks)), tuple(means)
        ),
        Table(
            _("Cosines after the last block ({arm}, mean over seeds).", arm=arms[0].title),
            tuple(map(_, SENSES)),
            words,
            prose=(1,),
        ),
    ]


def _pairs(arms: Arms, which: str) -> list[Piece]:
    pairs = arms[0].first["pairs"]
    examples: dict[str, str] = {}
    for pair in pairs:
        examples.setdefault(pair["kind"], f"{pair['good']} / {pair['bad']}")
    kinds = [kind for kind in examples if pair_scores(pairs, kind)]
    if not kinds:
        return [Heading(_("Minimal pairs") + which), _("No sentence fits the tokenizer and the model.")]
    read = {kind: partial(pair_scores, kind=kind) for kind in kinds}
    read |= {N_("all kinds"): pair_scores, N_("the subject matters"): subject_scores}
    rows = []
    for name, scores in read.items():
        family = len(kinds) if name in kinds else 1
        cells = (_right(arm, scores, family) for arm in arms)
        rows.append((_(name), examples.get(name, ""), str(len(scores(pairs))), *cells))
    about = _(
        "Two sentences differ in one word, of which one form is right. The right sentence should have the larger "
        "probability, as a whole and after a line break, whatever its number of tokens. Every form is right in half of "
        "the pairs, so a model that only prefers one form is right in 50%, as chance is. The last row asks less: "
        "whether the two forms of a subject move the preference the right way, by any amount. Intervals (Wilson 1927) "
        "are over pairs, at 95% for all kinds together (Bonferroni); pairs of a kind share words, so they are somewhat "
        "too narrow."
    )
    columns = (_("kind"), _("example (right / wrong)"), _("pairs"), *(arm.title for arm in arms))
    caption = _("Share of pairs in which the right sentence is more probable, mean over seeds.")
    return [Heading(_("Minimal pairs") + which), about, Table(caption, columns, tuple(rows), (1,))]


def _cosines(arm: ArmMeasures, key: str) -> Float[np.ndarray, "words places"]:
    """Means over seeds; every seed has the same words, because they depend on the tokenizer and the sizes alone."""
    return np.mean([[word[key] for word in run["senses"]] for run in arm.runs.values()], axis=0)


def _right(arm: ArmMeasures, scores: Callable[[list[Plain]], list[float]], family: int) -> str:
    shares = [fmean(found) for found in (scores(run["pairs"]) for run in arm.runs.values()) if found]
    if not shares:
        return NONE
    low, high = wilson(fmean(shares), len(scores(arm.first["pairs"])), 1 - LEVEL / family)
    return _("{share:.0%} ({low:.0%} to {high:.0%})", share=fmean(shares), low=low, high=high)


def _listed(neighbours: list[Plain]) -> str:
    return listed(f"{one['word']} " + minus(number(one["cosine"], ".2f")) for one in neighbours)

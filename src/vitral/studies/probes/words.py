"""Words: neighbours, senses, minimal pairs; scores of similar words, weights on a subject; what models write."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import product
from statistics import fmean
from typing import Any, TypeVar

from vitral.core.language import N_, _
from vitral.inspection.gradients import untrained
from vitral.inspection.minimal_pairs import (
    CHANCE,
    PAIR_ORDER,
    agreeing_weights,
    counted_pairs,
    item_scores,
    language_of,
    pair_scores,
    word_lists,
)
from vitral.inspection.strategies import BEAM, NOVEL, ORDER, REPEATED, mean_measures, strategy_measures
from vitral.inspection.text_units import written_words
from vitral.inspection.words import LANGUAGE_TOKENS, separations, similar_word_scores, word_measures
from vitral.studies.claims import every
from vitral.studies.probe import (
    LEAST_SEEDS,
    Against,
    ArmMeasures,
    Arms,
    Axis,
    Comparison,
    Course,
    Dots,
    Fixed,
    Means,
    Plain,
    Probe,
    Quantity,
    StudyResult,
    Trained,
    View,
    Within,
    require_causal_lm,
    to_fixed,
)

Item = TypeVar("Item")


def untrained_of(arm: ArmMeasures) -> ArmMeasures:
    """The model before training as an arm of its own; its measures are in each run under "untrained"."""
    runs = {seed: run["untrained"] for seed, run in arm.runs.items()}
    return replace(arm, name=f"{arm.name}-untrained", title=_("{arm}, untrained", arm=arm.title), runs=runs)


# ---------------------------------------------------------------- meaning

MOST_WORDS = (300, 400, 500)
LEAST_SENSES = 3
"""Words of two senses; with fewer, senses are not compared."""
SAME = 0.001
"""A mean difference of cosines below this is zero: rounding alone gives some."""


def meaning(trained: Trained) -> Plain:
    """Neighbours, senses and minimal pairs, see `vitral.inspection.word_measures`."""
    require_causal_lm(trained)
    run, splits = trained.run, trained.dataset.splits
    most, fresh = trained.size(*MOST_WORDS), untrained(run.model, trained.seed)
    measured = word_measures(run.model, run.tokenizer, splits, most_words=most)
    lists = word_lists()[measured["language"]]
    return measured | {
        "untrained": word_measures(fresh, run.tokenizer, splits, most_words=most),
        "counted": {"pairs": counted_pairs(run.tokenizer, splits["train"], lists.pairs)},
    }


def _gain(run: Mapping[str, Any]) -> float | None:
    gains = [*_gains(run).values()]
    if len(gains) < LEAST_SENSES:
        return None
    return 0.0 if max(map(abs, gains)) < SAME else fmean(gains)


def _preferred(name: str, kind: str | None = None) -> Quantity:
    """The share of the pairs, of one kind if one is given."""

    def read(run: Mapping[str, Any]) -> float | None:
        scores = pair_scores(run["pairs"], kind)
        return fmean(scores) if scores else None

    return Quantity(name, read)


CORRELATION = Quantity(N_("rank correlation of embedding and counted contexts"), "neighbours/correlation")
SHUFFLED = Quantity(
    N_("the largest with shuffled words"), lambda run: run["neighbours"] and max(run["neighbours"]["shuffled"])
)
GAIN = Quantity(N_("separation of two senses, last block less embedding"), _gain, N_("of cosine"))
RIGHT = _preferred(N_("share of pairs with the right sentence preferred"))
ALONE = (
    Fixed([RIGHT], CHANCE, N_("chance ({value:g})")),
    Fixed([GAIN], 0.0, N_("none (0)")),
    Within(CORRELATION, SHUFFLED),
)
"""Contrasts of one arm by itself."""


MEANING = N_(
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


def _meaning(result: StudyResult, arms: Arms) -> View:
    """Neighbours, senses and minimal pairs, by arm; arms in one language side by side."""
    comparisons, tables, drawn = [], [], []
    for language in dict.fromkeys(arm.first["language"] for arm in arms):
        alike = [arm for arm in arms if arm.first["language"] == language]
        fresh, counted = [untrained_of(alike[0])], [_counted(alike[0])]
        kinds = dict.fromkeys(pair["kind"] for pair in alike[0].first["pairs"])
        tables += [
            Means([*alike, *fresh], (CORRELATION, SHUFFLED, GAIN)),
            Means([*alike, *fresh, *counted], (RIGHT, *(_preferred(kind, kind) for kind in kinds)), _("Minimal pairs")),
        ]
        drawn += [*alike, *fresh]
        if len(alike[0].runs) < LEAST_SEEDS:
            comparisons += by_items(alike[0], [*alike[1:], *fresh, *counted])
            continue
        comparisons += Against((RIGHT, GAIN)).of(result, [*alike, *fresh, *counted])
        for arm, contrast in product(alike, ALONE):
            comparisons += contrast.of(result, [arm])
    axes = Axis(N_("after block (0: the embedding)")), Axis(N_("100 × cosine, same less other sense"))
    blocks = lambda run: enumerate(zip(*separations(run["senses"]), strict=True))  # noqa: E731
    apart = lambda run: [(block, 100 * fmean(values)) for block, values in blocks(run)]  # noqa: E731
    figure = Course(N_("Separation of two senses"), *axes, apart).of(drawn)
    return View(_(MEANING), tables, figure, [one for one in comparisons if one.values])


def _counted(arm: ArmMeasures) -> ArmMeasures:
    """Counted n-grams, which have pairs alone, as an arm."""
    nothing = {"neighbours": None, "senses": [], "language": arm.first["language"]}
    counted = {seed: nothing | run["counted"] for seed, run in arm.runs.items()}
    return ArmMeasures("counted", _("counted {order}-grams", order=PAIR_ORDER), arm.config, counted)


def by_items(arm: ArmMeasures, others: Arms) -> list[Comparison]:
    """One model from too few seeds to test: subjects of pairs and words of two senses are the units, means over seeds.

    Each kind of pairs against chance and against each reference; the separation of senses against none and against the
    untrained model.
    """
    comparisons = []

    def against(quantity: Quantity, value: float, meaning: str, read: Callable[..., dict[int, float]]) -> None:
        own = _over_seeds(arm, read)
        comparisons.append(to_fixed(arm.title, value, meaning, quantity, own, arm.name, "items"))
        for other in others:
            if rival := _over_seeds(other, read):
                comparisons.append(Comparison(arm.title, other.title, quantity, own, rival, arm.name, sample="items"))

    for kind in dict.fromkeys(pair["kind"] for pair in arm.first["pairs"]):
        right = Quantity(_("{kind}: right sentence preferred", kind=_(kind)), RIGHT.read, better="higher")
        chance = _("chance ({value:g})", value=CHANCE)
        against(right, CHANCE, chance, lambda run, kind=kind: item_scores(run["pairs"], kind))
    gains = _over_seeds(arm, _gains).values()
    if len(gains) >= LEAST_SENSES and max(map(abs, gains)) >= SAME:
        against(GAIN, 0.0, _("none (0)"), _gains)
    return comparisons


def _gains(run: Mapping[str, Any]) -> dict[int, float]:
    return {index: by_block[-1] - by_block[0] for index, by_block in enumerate(separations(run["senses"]))}


def _over_seeds(arm: ArmMeasures, read: Callable[[Mapping[str, Any]], Mapping[Item, float]]) -> dict[Item, float]:
    """By item, the mean over the seeds, of the items that all seeds have."""
    each = [read(run) for run in arm.runs.values()]
    return {item: fmean(one[item] for one in each) for item in each[0] if all(item in one for one in each)}


WORDS = Probe("meaning", N_("Words and their contexts"), meaning, more=_meaning)


# ---------------------------------------------------------------- related words

WINDOWS = (64, 256, 512)
SIMILAR_WORDS = 400
Head = tuple[int, int]
"""Block and head."""
Items = dict[tuple[int, Head], float]
"""By subject and head."""
AGREEMENT = N_("weight on the subject where the form agrees, less where it does not")


def related_words(trained: Trained) -> Plain:
    """Scores and weights of the model and of the same model before training."""
    require_causal_lm(trained)
    run, splits = trained.run, trained.dataset.splits
    lists = word_lists()[language_of(run.tokenizer.decode(splits["train"].tokens[:LANGUAGE_TOKENS]))]

    def of(model: Any) -> Plain:
        texts = run.tokenizer, splits["train"], splits["test"]
        return {
            "scores": similar_word_scores(model, *texts, windows=trained.size(*WINDOWS), most_words=SIMILAR_WORDS),
            "weights": agreeing_weights(model, run.tokenizer, lists.pairs),
        }

    return of(run.model) | {"untrained": of(untrained(run.model, trained.seed))}


def agreement_items(run: Mapping[str, Any]) -> Items:
    """The difference of the weights of every head by subject."""
    return {
        (index, (block, head)): weight - item["disagree"][block][head]
        for index, item in enumerate(run["weights"])
        for block, heads in enumerate(item["agree"])
        for head, weight in enumerate(heads)
    }


def all_heads(items: Items) -> dict[int, float]:
    """The mean over all heads, by item."""
    subjects = dict.fromkeys(subject for subject, _head in items)
    return {one: fmean(value for (subject, _), value in items.items() if subject == one) for one in subjects}


def chosen_head(items: Items) -> tuple[Head, dict[int, float]] | None:
    """The head with the largest mean over the even items, and its values on the odd ones, which did not choose it."""
    by_head: tuple[dict[Head, dict[int, float]], ...] = {}, {}
    for (subject, head), value in items.items():
        by_head[subject % 2].setdefault(head, {})[subject] = value
    even, odd = by_head
    if not even or not odd:
        return None
    best = max(even, key=lambda head: fmean(even[head].values()))
    return best, odd[best]


HEADS = "scores/heads/*/*"
SCORES = (
    Quantity(N_("mean of all heads"), f"{HEADS}/correlation"),
    Quantity(N_("largest of a head"), lambda run: max(every(run, f"{HEADS}/correlation"), default=None)),
    Quantity(
        N_("largest of a head with exchanged words"), lambda run: max(every(run, f"{HEADS}/shuffled/*"), default=None)
    ),
)
RELATED_WORDS = N_(
    "The score of a query and a key depends on their distance, on the query alone and on the key alone. What "
    "remains without these is correlated with the similarity of the two words, the cosine of their contexts "
    "counted in the training text. Pairs are different whole words of the test text, two or more tokens apart. Any "
    "weights prefer some pairs of words, so the largest correlation with exchanged words stands beside each number. "
    "The two sentences of a minimal pair differ in one form, a verb or a pronoun. Its weight on the subject is "
    "compared between the form that agrees with the subject and the other one, at the same place; each form is "
    "right as often as wrong. Subjects are the units. A head is chosen on one half of them and tested on the other."
)


def _related(result: StudyResult, arms: Arms) -> View:
    """Scores beside exchanged words; agreement for all heads, and for one that half of the subjects choose."""
    arms = [arm for arm in arms if any(run["scores"] or run["weights"] for run in arm.runs.values())]
    if not arms:
        return View()
    each = [one for arm in arms for one in (arm, untrained_of(arm))]
    caption = _("Partial correlation of scores and similarity of words, means over seeds.")
    return View(
        _(RELATED_WORDS), [Means(each, SCORES, caption)], comparisons=[one for arm in each for one in _agreement(arm)]
    )


def _agreement(arm: ArmMeasures) -> list[Comparison]:
    items = _over_seeds(arm, agreement_items)
    if not items:
        return []
    tested = {_("mean of all heads"): all_heads(items)}
    if (chosen := chosen_head(items)) is not None:
        (block, head), values = chosen
        tested[_("block {block}, head {head}", block=block, head=head)] = values
    quantity = Quantity(AGREEMENT, unit=N_("of weight"))
    return [
        to_fixed(
            _("{arm}, {which}", arm=arm.title, which=which), 0.0, _("none (0)"), quantity, values, arm.name, "items"
        )
        for which, values in tested.items()
    ]


RELATED = Probe("related-words", N_("Scores of similar words, and agreement"), related_words, more=_related)


# ---------------------------------------------------------------- words that models write

WRITTEN_WORDS = (200, 400, 2000)
"""Words that are measured of a run."""
COUNT = Quantity(N_("words measured"), "words", digits=0)
REAL = Quantity(N_("real words"), lambda run: 100 * run["real"], "%", "higher", 1)
TEST_REAL = Quantity(N_("real words of the test text"), lambda run: 100 * run["test_real"], "%", digits=1)
DISTINCT = Quantity(N_("distinct words"), lambda run: 100 * run["distinct"], "%", digits=1)
TEST_DISTINCT = Quantity(N_("distinct words of the test text"), lambda run: 100 * run["test_distinct"], "%", digits=1)


def words(trained: Trained) -> Plain:
    """See `vitral.inspection.text_units.written_words`; the run's seed draws the samples."""
    require_causal_lm(trained)
    run, size = trained.run, trained.size(*WRITTEN_WORDS)
    return written_words(run.model, run.tokenizer, trained.dataset, words=size, seed=trained.seed)


WRITTEN = Probe(
    "written-words",
    N_("Words that the models write"),
    words,
    about=N_(
        "Each model writes texts at temperature 1 from the beginning of a line. A word is real if it occurs in the "
        "training text. Distinct words are counted among equally many words of each arm. This measures words, not "
        "coherence: a text of real words may have no sense."
    ),
    tables=[(COUNT, REAL, TEST_REAL, DISTINCT, TEST_DISTINCT)],
    contrasts=[Against((REAL, DISTINCT))],
    figure=Dots(N_("Real words in what the models write"), [REAL]),
)

# ---------------------------------------------------------------- strategies

BUDGETS = ((16, 200), (40, 300), (80, 800))
"""Prompts, and tokens of a continuation."""
NGRAM = Quantity(N_("loss under the {order}-gram model").format(order=ORDER), "ngram", "nats per token")
COMPARED = (
    Quantity(N_("share of tokens in repeated {n}-grams").format(n=REPEATED), "repeated"),
    Quantity(N_("share of tokens in the longest loop"), "looping"),
    Quantity(N_("distinct pairs of words"), "words/1"),
    Quantity(N_("mean length of a word"), "letters", "characters", digits=2),
    Quantity(N_("longest copy of the training text"), "copied", "characters", digits=1),
    Quantity(N_("loss under the model"), "model", "nats per token"),
    NGRAM,
)
"""Compared with the text itself."""
SHOWN = (*COMPARED, Quantity(N_("novel {n}-grams of characters").format(n=NOVEL), "novel"))


def strategies(trained: Trained) -> Plain:
    """Measures of every strategy, see `vitral.inspection.strategy_measures`."""
    require_causal_lm(trained)
    prompts, length = trained.size(*BUDGETS)
    run, dataset = trained.run, trained.dataset
    return strategy_measures(run.model, run.tokenizer, dataset, prompts=prompts, length=length, seed=trained.seed)


ABOUT = N_(
    "{prompts} prompts, drawn from the test text once and for all models, each continued for {tokens} tokens by the "
    "models of {seeds} seed(s). A number of a prompt is its mean over the models. Intervals are over prompts: they are "
    "for other prompts with these models. The last comparisons are of distances from the text itself: every other "
    "strategy against the nearest one. A text without pairs of words has a diversity of 0, and words of length 0."
)


def _view(result: StudyResult, arms: Arms) -> View:
    """For each arm, every strategy beside the text itself, prompt by prompt; samples of the first one."""
    several = len(result.arms) > 1
    each = [by_prompt(arm, f"{arm.title}, " if several else "", arm.name if several else "") for arm in arms]
    comparisons, first = [], arms[0].first
    for one in each:
        comparisons += [*Against(COMPARED, sample="prompts").of(result, one), *against_nearest(one)]
    prompts, written = (
        first["prompts"],
        {_strategy_name(name): rows[0]["text"] for name, rows in first["strategies"].items()},
    )
    return View(
        _(ABOUT, prompts=len(prompts), tokens=first["length"], seeds=len(arms[0].runs)),
        [Means(one, SHOWN, _("Means over prompts and models."), _("strategy")) for one in each],
        Dots(N_("Loss under the counted n-grams"), [NGRAM], each[0], "prompts"),
        comparisons,
        texts={_("the prompt"): prompts[0], **written},
    )


def _strategy_name(name: str) -> str:
    """A strategy as people read it; a measurement has its English name."""
    return _(BEAM if name == BEAM else name)


def by_prompt(arm: ArmMeasures, prefix: str = "", name: str = "") -> list[ArmMeasures]:
    """Each strategy as an arm whose runs are the prompts, the text itself first.

    The numbers of one prompt are averaged over seeds, because models of several seeds continue the same prompts.
    """
    means = mean_measures([run["strategies"] for run in arm.runs.values()])
    return [
        ArmMeasures(name, f"{prefix}{_strategy_name(one)}", arm.config, dict(enumerate(rows)))
        for one, rows in means.items()
    ]


def against_nearest(strategies: Arms) -> list[Comparison]:
    """Every strategy against the one nearest to the text itself, in the distance from it under the counted n-grams.

    A prompt's distance has the sign that makes the strategy's mean distance positive.
    """
    truth, *others = strategies
    distances = {}
    for one in others:
        gaps = {prompt: value - truth.values(NGRAM)[prompt] for prompt, value in one.values(NGRAM).items()}
        sign = -1 if sum(gaps.values()) < 0 else 1
        distances[one.title] = {prompt: sign * gap for prompt, gap in gaps.items()}
    first = min(distances, key=lambda title: (fmean(distances[title].values()), title), default="")
    name = _("distance from the text itself in loss under the {order}-gram model", order=ORDER)
    distance = Quantity(name, NGRAM.read, NGRAM.unit, "lower")
    return [
        Comparison(one.title, first, distance, distances[one.title], distances[first], one.name, sample="prompts")
        for one in others
        if one.title != first
    ]


STRATEGIES = Probe(
    "strategies", N_("The strategies beside the text itself"), strategies, more=_view, seconds=(12, 45, 120)
)
PROBES = (WORDS, RELATED, WRITTEN, STRATEGIES)

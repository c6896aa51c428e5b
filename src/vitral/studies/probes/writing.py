"""What models write: real and distinct words, and decoding strategies beside the text itself."""

from statistics import fmean

from vitral.core.language import N_, _
from vitral.inspection.strategies import BEAM, NOVEL, ORDER, REPEATED, mean_measures, strategy_measures
from vitral.inspection.text_units import written_words
from vitral.studies.probe import (
    Against,
    ArmMeasures,
    Arms,
    Comparison,
    Dots,
    Means,
    Plain,
    Probe,
    Quantity,
    StudyResult,
    Trained,
    View,
    require_causal_lm,
)

# ---------------------------------------------------------------- words

WORDS = (200, 400, 2000)
"""Words that are measured of a run."""
COUNT = Quantity(N_("words measured"), "words", digits=0)
REAL = Quantity(N_("real words"), lambda run: 100 * run["real"], "%", "higher", 1)
TEST_REAL = Quantity(N_("real words of the test text"), lambda run: 100 * run["test_real"], "%", digits=1)
DISTINCT = Quantity(N_("distinct words"), lambda run: 100 * run["distinct"], "%", digits=1)
TEST_DISTINCT = Quantity(N_("distinct words of the test text"), lambda run: 100 * run["test_distinct"], "%", digits=1)


def words(trained: Trained) -> Plain:
    """See `vitral.inspection.text_units.written_words`; the run's seed draws the samples."""
    require_causal_lm(trained)
    run = trained.run
    return written_words(run.model, run.tokenizer, trained.dataset, words=trained.size(*WORDS), seed=trained.seed)


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
    prompts, written = first["prompts"], {_told(name): rows[0]["text"] for name, rows in first["strategies"].items()}
    return View(
        _(ABOUT, prompts=len(prompts), tokens=first["length"], seeds=len(arms[0].runs)),
        [Means(one, SHOWN, _("Means over prompts and models."), _("strategy")) for one in each],
        Dots(N_("Loss under the counted n-grams"), [NGRAM], each[0], "prompts"),
        comparisons,
        texts={_("the prompt"): prompts[0], **written},
    )


def _told(name: str) -> str:
    """A strategy as people read it; a measurement has its English name."""
    return _(BEAM if name == BEAM else name)


def by_prompt(arm: ArmMeasures, prefix: str = "", name: str = "") -> list[ArmMeasures]:
    """Each strategy as an arm whose runs are the prompts, the text itself first.

    The numbers of one prompt are averaged over seeds, because models of several seeds continue the same prompts.
    """
    means = mean_measures(list(arm.runs.values()))
    return [
        ArmMeasures(name, f"{prefix}{_told(one)}", arm.config, dict(enumerate(rows))) for one, rows in means.items()
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
PROBES = (WRITTEN, STRATEGIES)

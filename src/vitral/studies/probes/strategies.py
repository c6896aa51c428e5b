"""Decoding strategies beside the text itself: repetition, loops, variety, copies and nats per token.

The sample is the prompt. The numbers of one prompt are averaged over seeds first, because models of several seeds
continue the same prompts, and each strategy is compared with the text's own continuation prompt by prompt.
"""

from statistics import fmean

from vitral.core.language import N_, _
from vitral.inspection.texts import BEAM, NOVEL, ORDER, REPEATED, mean_measures, strategy_measures
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

BUDGETS = ((16, 200), (40, 300), (80, 800))
"""Prompts, and tokens of a continuation."""
MODEL = Quantity(N_("loss under the model"), "model", "nats per token")
NGRAM = Quantity(N_("loss under the {order}-gram model").format(order=ORDER), "ngram", "nats per token")
COMPARED = {
    "repeated": Quantity(N_("share of tokens in repeated {n}-grams").format(n=REPEATED), "repeated"),
    "in-a-loop": Quantity(N_("share of tokens in the longest loop"), "looping"),
    "distinct-pairs-of-words": Quantity(N_("distinct pairs of words"), "words/1"),
    "word-length": Quantity(N_("mean length of a word"), "letters", "characters", digits=2),
    "longest-copy": Quantity(N_("longest copy of the training text"), "copied", "characters", digits=1),
    "under-the-model": MODEL,
    f"under-the-{ORDER}-gram": NGRAM,
}
"""Compared with the text itself."""
SHOWN = (
    *COMPARED.values(),
    Quantity(N_("novel {n}-grams of characters").format(n=NOVEL), "novel"),
)


def measure(trained: Trained) -> Plain:
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
    """For each arm, every strategy beside the text itself; samples of the first one."""
    several = len(result.arms) > 1
    each = [by_prompt(arm, f"{arm.title}, " if several else "", arm.name if several else "") for arm in arms]
    comparisons, written, means = [], arms[0].first["strategies"], _("Means over prompts and models.")
    for strategies in each:
        comparisons += Against([*COMPARED.values()], sample="prompts").of(result, strategies)
        comparisons += against_nearest(strategies)
    length, prompts = arms[0].first["length"], arms[0].first["prompts"]
    return View(
        _(ABOUT, prompts=len(prompts), tokens=length, seeds=len(arms[0].runs)),
        [Means(strategies, SHOWN, means, _("strategy")) for strategies in each],
        Dots(N_("Loss under the counted n-grams"), NGRAM, each[0], "prompts"),
        comparisons,
        texts={_("the prompt"): prompts[0], **{_told(name): rows[0]["text"] for name, rows in written.items()}},
    )


def _told(name: str) -> str:
    """A strategy as people read it; a measurement has its English name."""
    return _(BEAM if name == BEAM else name)


def by_prompt(arm: ArmMeasures, prefix: str = "", name: str = "") -> list[ArmMeasures]:
    """Each strategy as an arm whose runs are the prompts, means over seeds; the text itself is first."""
    means = mean_measures(list(arm.runs.values()))
    return [
        ArmMeasures(name, f"{prefix}{_told(one)}", arm.config, dict(enumerate(rows))) for one, rows in means.items()
    ]


def against_nearest(strategies: Arms) -> tuple[Comparison, ...]:
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
    return tuple(
        Comparison(one.title, first, distance, distances[one.title], distances[first], one.name, sample="prompts")
        for one in others
        if one.title != first
    )


PROBE = Probe("strategies", N_("The strategies beside the text itself"), measure, more=_view, seconds=(12, 45, 120))

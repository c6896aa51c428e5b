"""Decoding strategies beside the text itself: repetition, variety, copies and nats per token on the same prompts.

The sample is the prompt. The numbers of one prompt are averaged over seeds first, because models of several seeds
continue the same prompts, and each strategy is compared with the text's own continuation prompt by prompt.
"""

import math
from dataclasses import replace
from statistics import fmean

from vitral.core.language import N_, _, retold
from vitral.figures.sections import Columns, Details, Heading, Paragraph, Preformatted
from vitral.figures.text import capital
from vitral.inspection.texts import GRAMS, NOVEL, ORDER, REPEATED, mean_measures, strategy_measures
from vitral.studies import probe
from vitral.studies.claims import Comparison, Plain, Quantity, at
from vitral.studies.probe import ArmMeasures, Arms, RunProbe, Trained, View
from vitral.studies.results import StudyResult

BUDGETS = {"quick": (8, 200), "standard": (24, 400), "full": (48, 800)}
"""Prompts, and tokens of a continuation."""
MODEL = Quantity(N_("loss under the model"), at("model"), "nats per token")
NGRAM = Quantity(N_("loss under the {order}-gram model").format(order=ORDER), at("ngram"), "nats per token")
COMPARED = {
    "repeated": Quantity(N_("share of tokens in repeated {n}-grams").format(n=REPEATED), at("repeated")),
    "distinct-pairs-of-words": Quantity(N_("distinct pairs of words"), at("words", 1)),
    "longest-copy": Quantity(N_("longest copy of the training text"), at("copied"), "characters", digits=1),
    "under-the-model": MODEL,
    f"under-the-{ORDER}-gram": NGRAM,
}
"""Compared with the text itself and drawn, by the name of the figure."""
SHOWN = (
    *COMPARED.values(),
    Quantity(N_("longest loop"), at("loop"), "tokens", digits=1),
    Quantity(N_("novel {n}-grams of characters").format(n=NOVEL), at("novel")),
)
PERPLEXITIES = tuple(
    Quantity(name, lambda one, key=key: math.exp(min(one[key], 700.0)), digits=2)
    for key, name in (
        ("model", N_("perplexity under the model")),
        ("ngram", N_("perplexity under the {order}-gram model").format(order=ORDER)),
    )
)
DISTINCT = tuple(
    Quantity(name.format(n=n + 1), at(kind, n))
    for kind, name in (("words", N_("{n:d} words")), ("characters", N_("{n:d} characters")))
    for n in range(GRAMS)
)


def measure(trained: Trained) -> Plain:
    """Measures of every strategy, see `vitral.inspection.strategy_measures`."""
    probe.require_causal_lm(trained)
    prompts, length = BUDGETS[trained.budget]
    run, dataset = trained.run, trained.dataset
    return strategy_measures(run.model, run.tokenizer, dataset, prompts=prompts, length=length, seed=trained.seed)


def view(result: StudyResult, arms: Arms) -> View:
    """For each arm: figures and tables of every strategy beside the text itself, and samples."""
    views = [_of_arm(arm, several=len(result.arms) > 1) for arm in arms]
    return View(
        tuple(section for one in views for section in one.sections),
        tuple(comparison for one in views for comparison in one.comparisons),
    )


def _of_arm(arm: ArmMeasures, *, several: bool) -> View:
    suffix, which = (f"-{arm.name}", f": {arm.title}") if several else ("", "")
    strategies = by_prompt(arm, f"{arm.title}, " if several else "", arm.name if several else "")
    figures = (
        plot
        for key, one in COMPARED.items()
        for plot in probe.interval_plot(
            f"strategies-{key}{suffix}", capital(one.told), strategies, one, _("By strategy."), dots="prompts"
        )
    )
    whole = [replace(one, runs={0: {"model": one.mean(MODEL), "ngram": one.mean(NGRAM)}}) for one in strategies]
    written, prompts = arm.first["strategies"], arm.first["prompts"]
    samples = tuple(Preformatted(rows[0]["text"], retold(name)) for name, rows in written.items())
    about = _(
        "{prompts} prompts from the test text, each continued for {tokens} tokens by the models of {seeds} seed(s) and "
        "averaged over seeds. Intervals are over prompts: they are for other prompts with these models, not for models "
        "of other seeds. The last comparisons are of distances from the text itself: every other strategy against the "
        "nearest one.",
        prompts=len(prompts),
        tokens=arm.first["length"],
        seeds=len(arm.runs),
    )
    distinct = _(
        "Distinct n-grams of words and characters as a share of all n-grams of a continuation, mean over prompts."
    )
    means, perplexity, rows = (
        _("Means over prompts and seeds."),
        _("Perplexity, exp(mean nats per token)."),
        _("strategy"),
    )
    sections = (
        Heading(_("The strategies beside the text itself") + which),
        Paragraph(about),
        *figures,
        probe.mean_table(means, strategies, *SHOWN, rows=rows),
        probe.mean_table(perplexity, whole, *PERPLEXITIES, rows=rows),
        probe.mean_table(distinct, strategies, *DISTINCT, rows=rows),
        Details(_("One prompt, every strategy"), (Preformatted(prompts[0], _("the prompt")), Columns(samples))),
    )
    return View(sections, (*probe.against_base(strategies, *COMPARED.values()), *against_nearest(strategies)))


def by_prompt(arm: ArmMeasures, prefix: str = "", name: str = "") -> list[ArmMeasures]:
    """Each strategy as an arm whose runs are the prompts, means over seeds; the text itself is first."""
    means = mean_measures(list(arm.runs.values()))
    return [
        ArmMeasures(name, f"{prefix}{retold(one)}", arm.config, dict(enumerate(rows))) for one, rows in means.items()
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


STRATEGIES = RunProbe("strategies", measure, view, seconds={"quick": 12, "standard": 45, "full": 120})

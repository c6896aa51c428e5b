"""Decoding strategies beside the text itself: repetition, loops, variety, copies and nats per token.

The sample is the prompt. The numbers of one prompt are averaged over seeds first, because models of several seeds
continue the same prompts, and each strategy is compared with the text's own continuation prompt by prompt. A table
beside it gives the range of the same differences over models, each a mean over all prompts.
"""

import math
from dataclasses import replace
from statistics import fmean

from vitral.core.language import N_, _
from vitral.figures.sections import Columns, Details, Heading, Preformatted, Table
from vitral.figures.text import capital
from vitral.inspection.texts import BEAM, GRAMS, NOVEL, ORDER, REPEATED, mean_measures, mean_row, strategy_measures
from vitral.studies import probe
from vitral.studies.probe import ArmMeasures, Arms, Comparison, Plain, Quantity, StudyResult, Trained, View

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
"""Compared with the text itself and drawn, by the name of the figure."""
SHOWN = (
    *COMPARED.values(),
    Quantity(N_("novel {n}-grams of characters").format(n=NOVEL), "novel"),
)
PERPLEXITIES = tuple(
    Quantity(name, lambda one, key=key: math.exp(min(one[key], 700.0)), digits=2)
    for key, name in (
        ("model", N_("perplexity under the model")),
        ("ngram", N_("perplexity under the {order}-gram model").format(order=ORDER)),
    )
)
LOOPS = 0.5
"""A text loops where its longest loop has at least this share of its tokens."""
MOST_SHOWN = 24
"""Characters of a repeated piece in a table."""
DISTINCT = tuple(
    Quantity(name.format(n=n + 1), f"{kind}/{n}")
    for kind, name in (("words", N_("{n:d} words")), ("characters", N_("{n:d} characters")))
    for n in range(GRAMS)
)


def measure(trained: Trained) -> Plain:
    """Measures of every strategy, see `vitral.inspection.strategy_measures`."""
    probe.require_causal_lm(trained)
    prompts, length = trained.size(*BUDGETS)
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
    samples = tuple(_marked(rows[0], name) for name, rows in written.items())
    about = _(
        "{prompts} prompts, drawn from the test text once and for all models, each continued for {tokens} tokens by "
        "the models of {seeds} seed(s). A number of a prompt is its mean over the models. Intervals are over prompts: "
        "they are for other prompts with these models; the range over models is in a table of its own. The last "
        "comparisons are of distances from the text itself: every other strategy against the nearest one. A text "
        "without words or without pairs of words has a diversity of 0, and words of length 0.",
        prompts=len(prompts),
        tokens=arm.first["length"],
        seeds=len(arm.runs),
    )
    distinct = _(
        "Distinct n-grams of words and characters as a share of all n-grams of a continuation, mean over prompts."
    )
    means, perplexity, rows, num = (
        _("Means over prompts and models."),
        _("Perplexity, exp(mean nats per token)."),
        _("strategy"),
        _("prompts"),
    )
    sections = (
        Heading(_("The strategies beside the text itself") + which),
        about,
        *figures,
        probe.mean_table(means, strategies, *SHOWN, rows=rows, counted=num),
        loops(arm),
        over_models(arm),
        probe.mean_table(perplexity, whole, *PERPLEXITIES, rows=rows),
        probe.mean_table(distinct, strategies, *DISTINCT, rows=rows, counted=num),
        Details(_("One prompt, every strategy"), (Preformatted(prompts[0], _("the prompt")), Columns(samples))),
        Details(_("The text of each strategy with the longest loop"), (Columns(_worst(written)),)),
    )
    compared = probe.against_base(strategies, *COMPARED.values(), sample="prompts")
    return View(sections, (*compared, *against_nearest(strategies)))


def _told(name: str) -> str:
    """A strategy as people read it; a measurement has its English name."""
    return _(BEAM if name == BEAM else name)


def loops(arm: ArmMeasures) -> Table:
    """How many texts of each strategy are for the larger part a loop, and the piece repeated in the longest one."""
    cells = []
    for name in arm.first["strategies"]:
        texts = [row for run in arm.runs.values() for row in run["strategies"][name]]
        looping = [row for row in texts if (row.get("looping") or 0.0) >= LOOPS]
        longest = max(looping, key=lambda row: row["loop"], default=None)
        piece = "\N{EN DASH}" if longest is None else _visible(longest["looped"])
        cells.append((_told(name), str(len(texts)), str(len(looping)), piece))
    caption = _(
        "Texts of all prompts and models of which at least half is one loop, and the piece that the longest repeats: "
        "␣ is a space, ↵ a new line."
    )
    return Table(caption, (_("strategy"), _("texts"), _("loops"), _("repeated piece")), tuple(cells), prose=(3,))


def _visible(piece: str) -> str:
    shown = piece.replace(" ", "␣").replace("\n", "↵")
    return shown if len(shown) <= MOST_SHOWN else f"{shown[:MOST_SHOWN]}…"


def over_models(arm: ArmMeasures) -> Table:
    """The lowest and the highest difference to the text itself over the models, each a mean over all prompts."""
    runs = {seed: {name: mean_row(rows) for name, rows in run["strategies"].items()} for seed, run in arm.runs.items()}
    truth, *others = arm.first["strategies"]
    cells = []
    for name in others:
        row = []
        for one in COMPARED.values():
            pairs = [(one.read(run[name]), one.read(run[truth])) for run in runs.values()]
            gaps = [value - own for value, own in pairs if value is not None and own is not None]
            row.append(
                _("{low} to {high}", low=one.show(min(gaps)), high=one.show(max(gaps))) if gaps else "\N{EN DASH}"
            )
        cells.append((_told(name), str(len(runs)), *row))
    caption = _("Difference to the text itself, mean over the prompts: lowest and highest of the models.")
    return Table(caption, (_("strategy"), _("models"), *(one.label for one in COMPARED.values())), tuple(cells))


def _worst(written: Plain) -> tuple[Preformatted, ...]:
    worst = {name: max(rows, key=lambda row: row["loop"]) for name, rows in written.items()}
    return tuple(_marked(row, name) for name, row in worst.items())


def _marked(row: Plain, name: str) -> Preformatted:
    """The text with its longest loop marked."""
    begin, end = row.get("marks") or (0, 0)
    return Preformatted(row["text"], _told(name), ((begin, end),) if end > begin else ())


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

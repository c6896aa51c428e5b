"""The attention of a model's heads: weight on the first position, what heads attend to, and whether that matters.

Kinds of keys are counted within a layer: the claim that heads attend to different things at once is about heads of one
layer. Over its layers a model of one head has several kinds too.
"""

from dataclasses import replace
from statistics import fmean

import numpy as np

from vitral.core.errors import UsageError
from vitral.core.language import N_, _
from vitral.data import Batches
from vitral.inspection.ablation import ablations, attention_sinks
from vitral.inspection.attention import (
    BROAD,
    KINDS,
    LEAST_KEYS,
    NAMED_FROM,
    against_other_seeds,
    attention_rows,
    head_patterns,
    rows_of,
)
from vitral.inspection.relevance import weight_relevance
from vitral.inspection.targets import next_token_targets, window_targets
from vitral.studies.claims import every
from vitral.studies.probe import (
    Against,
    ArmMeasures,
    Arms,
    Check,
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
    difference,
    require_causal_lm,
)

HEADS, NATS = "layers/*/heads/*", "nats per token"

# ---------------------------------------------------------------- the first position

SINK_WINDOWS = (32, 64, 256)
"""Test windows, the same for every arm and seed."""
WEIGHT = Quantity(N_("weight on the first position"), f"{HEADS}/weight")
LARGEST = Quantity(N_("largest weight of a head"), lambda run: max(every(run, f"{HEADS}/weight"), default=None))
EVEN = Quantity(N_("uniform attention"), "uniform")
ONE = Quantity(N_("loss increase if hidden from one head"), f"{HEADS}/without/increase", NATS)
LAYER = Quantity(N_("if hidden from one layer"), "layers/*/without/increase", NATS)
ALL = Quantity(N_("loss increase if the first position is hidden from all heads"), "without/increase", NATS)


def sinks(trained: Trained) -> Plain:
    """Weight on the first position of every head, and the loss increase when it may not be attended to."""
    require_causal_lm(trained)
    return attention_sinks(trained.model, window_targets(trained.model, trained.test, trained.size(*SINK_WINDOWS)))


SINKS = Probe(
    "attention-sinks",
    N_("Attention sinks"),
    sinks,
    about=N_(
        "Mean weight of a head on the first position of its window, over queries that see several keys. The loss "
        "increase is that of the trained model when the first position is hidden from a head, from a layer or from all "
        "heads, wherever a query sees another key."
    ),
    tables=[(WEIGHT, LARGEST, EVEN, ONE, LAYER, ALL)],
    contrasts=(Within(WEIGHT, EVEN), Fixed([ALL], 0.0, N_("zero")), Against([WEIGHT])),
    figure=Dots(N_("Weight on the first position"), [WEIGHT]),
)

# ---------------------------------------------------------------- patterns of heads

WINDOWS = ((16, 32), (32, 64), (96, 384))
"""Test windows on which attention is recorded, and on which the loss is measured with and without a head."""
ROWS = (64, 96, 192)
"""Rows of weights that are kept of every head, to compare heads of different models."""
RISE = f"{HEADS}/zero/increase"


def patterns(trained: Trained) -> Plain:
    """Pattern and ablation of every head; no layers for a model without attention."""
    model = trained.model
    if model.mask is None:
        return {"uniform": {}, "layers": []}
    require_causal_lm(trained)
    watched, scored = (
        Batches(trained.test, context_length=model.config.context_length, batch_size=windows, seed=0).batch(0)
        for windows in trained.size(*WINDOWS)
    )
    measured = head_patterns(model, trained.run.tokenizer, watched[0])
    ablated: Plain = ablations(model, next_token_targets(model, *scored)) or {}
    for layer, without in zip(measured["layers"], ablated["blocks"], strict=True):
        layer["heads"] = [head | more for head, more in zip(layer["heads"], without["heads"], strict=True)]
        layer["all"] = without["attention"]
    return {"rows": attention_rows(model, watched[0], trained.size(*ROWS)), **measured}


NAMED = [
    Quantity(kind, lambda run, kind=kind: every(run, f"{HEADS}/name").count(kind), digits=1) for kind in (*KINDS, BROAD)
]
DISTINCT = Quantity(
    N_("different kinds in a layer"),
    lambda run: fmean(len({*every(layer, "heads/*/name")} - {BROAD}) for layer in run["layers"]),
    digits=1,
)
KINDS_APART = Quantity(N_("in a layer of matched heads of other seeds"), "apart/kinds_matched", digits=1)
OVERLAP = Quantity(N_("overlap of the heads of a layer"), "layers/*/overlap")
OWN = Quantity(N_("overlap of the heads of a layer, on the kept rows"), "apart/own")
MATCHED = Quantity(N_("overlap with heads of other seeds, matched for entropy"), "apart/matched")
BEYOND = difference(N_("overlap beyond that of matched heads of other seeds"), OWN, MATCHED)
SEEN = (
    Quantity(N_("distance"), f"{HEADS}/distance", "tokens", digits=1),
    Quantity(N_("distance under uniform attention"), "uniform_distance", "tokens", digits=1),
    Quantity(N_("entropy as a share of its maximum"), f"{HEADS}/entropy", digits=2),
    OVERLAP,
    OWN,
    MATCHED,
    Quantity(N_("entropy between matched heads"), "apart/apart", "nats"),
)
ZERO = Quantity(N_("loss increase without one head (zeros)"), RISE, NATS)
MEAN = Quantity(N_("loss increase without one head (its mean)"), f"{HEADS}/mean/increase", NATS)
MOST = Quantity(N_("loss increase without the most important head"), lambda run: max(every(run, RISE)), NATS)
ADDED = Quantity(N_("sum over its heads one by one"), lambda run: sum(every(run, RISE)) / len(run["layers"]), NATS)
TOGETHER = Quantity(N_("loss increase without a layer's heads"), "layers/*/all/zero/increase", NATS)
ABOUT = N_(
    "{kinds}. A head is named after the kind of key with the largest excess over uniform attention, over queries that "
    "see at least {keys} keys, if that is at least {least:g}; else it is {broad}. "
    "Overlap: 1 - JSD / ln 2 of two heads' weights, with JSD the Jensen-Shannon divergence (Lin 1991). Broad heads "
    "overlap whatever they do, so one head of each pair is exchanged for the head of the same layer of another "
    "seed with the nearest entropy. Below 0: the heads of a layer divide the work. Above 0: they repeat one "
    "another. In the ablation a head's output z is replaced by zeros, or by its mean; by zeros where nothing is said. "
    "For a whole layer it is the output of its attention, the bias of W_O included. "
    "If the sum over the heads of a layer is below the increase without the layer, heads compensate for one another."
)


def _view(result: StudyResult, arms: Arms) -> View:
    """Kinds, overlap and ablation, by arm in order of the number of heads."""
    arms = [beside_other_seeds(arm) for arm in arms if arm.first["layers"]]
    if not arms:
        return View()
    arms.sort(key=lambda arm: arm.config["model"]["num_heads"])
    several = [arm for arm in arms if arm.values(OVERLAP)]
    matched = [arm for arm in several if arm.values(BEYOND)]
    comparisons = [*Within(OWN, MATCHED).of(result, matched), *Within(DISTINCT, KINDS_APART).of(result, matched)]
    for quantity, among in ((BEYOND, matched), (ZERO, arms)):
        comparisons += Against([quantity]).of(result, [among[0], among[-1]]) if len(among) > 1 else ()
    comparisons += Within(TOGETHER, ADDED).of(result, several)
    what, least = _("smallest number of head kinds in a layer, mean over the layers of a run"), _("2 or more")
    kinds = "; ".join(f"{_(kind)}: {_(meaning)}" for kind, meaning in KINDS.items())
    return View(
        _(ABOUT, kinds=kinds, keys=LEAST_KEYS, least=NAMED_FROM, broad=_(BROAD)),
        [
            Means(arms, (DISTINCT, KINDS_APART, *NAMED), _("Heads of a run by name, means over seeds.")),
            Means(arms, SEEN, _("Attention of a head, means over heads and seeds.")),
            Means(arms, (ZERO, MEAN, MOST, ADDED, TOGETHER), _("Ablation, means over seeds.")),
        ],
        Dots(N_("Overlap beyond that of matched heads"), [BEYOND], matched),
        comparisons,
        [
            Check(arm.title, what, min(arm.values(DISTINCT).values()), 2, None, least, digits=1, arm=arm.name)
            for arm in several
        ],
    )


def beside_other_seeds(arm: ArmMeasures) -> ArmMeasures:
    """The arm whose runs have `apart`: their heads beside those of the arm's other runs."""
    runs = {seed: run for seed, run in arm.runs.items() if run["rows"]["layers"]}
    rows = {seed: rows_of(run["rows"]) for seed, run in runs.items()}
    names = {seed: [[head["name"] for head in layer["heads"]] for layer in run["layers"]] for seed, run in runs.items()}
    apart = against_other_seeds(rows, names)
    return replace(arm, runs={seed: run | {"apart": apart.get(seed)} for seed, run in arm.runs.items()})


PATTERNS = Probe("head-patterns", N_("Attention patterns of the heads"), patterns, more=_view)

# ---------------------------------------------------------------- relevance

RELEVANCE_WINDOWS, RELEVANCE_TOKENS = (4, 6, 16), 64
"""Test windows, and their first tokens, each of which is replaced in turn."""
READINGS = {
    N_("nearness"): "distance",
    N_("the attention weight"): "layers/*/weight",
    N_("the best head's weight"): "best_head",
    N_("rollout"): "layers/-1/rollout",
    N_("gradient × input"): "gradient",
}
CORRELATIONS, PARTIAL = (
    [Quantity(name.format(reading=one), f"{path}/{kind}/mean", digits=2) for one, path in READINGS.items()]
    for name, kind in (
        (N_("correlation of {reading}"), "correlation"),
        (N_("partial correlation of {reading}"), "given_distance"),
    )
)
NEARNESS, WEIGHTS = CORRELATIONS[:2]


def relevance(trained: Trained) -> Plain:
    """How well weights and other readings rank earlier tokens by their effect on the predictions."""
    require_causal_lm(trained)
    model, test = trained.model, trained.test
    windows = window_targets(model, test, trained.size(*RELEVANCE_WINDOWS)).inputs[:, :RELEVANCE_TOKENS]
    measured = weight_relevance(model, windows, np.bincount(test.tokens, minlength=model.vocab_size))
    if measured is None:
        raise UsageError("relevance needs a context of three tokens, and a text of two different ones")
    return measured


RELEVANCE = Probe(
    "relevance",
    N_("Is an attention weight relevance?"),
    relevance,
    about=N_(
        "Each earlier token is replaced by {replacements} others, drawn by their frequency in the test text; the "
        "effect is the mean Kullback-Leibler divergence of the prediction, before from after. A reading of the model "
        "ranks the earlier tokens; its correlation with the effect is Spearman's, within each query, mean over "
        "queries and {windows} test windows. The weight is the mean over the heads of a block, and its correlation "
        "the mean over blocks; the best head is chosen on every second window and measured on the others; rollout "
        "(Abnar & Zuidema 2020) reaches to the last block; gradient × input is of the most probable token; nearness "
        "is 1 / distance and needs no model. Near tokens matter more and have more weight, whatever they are: the "
        "partial correlation is that of the ranks given the distance."
    ),
    tables=[(Quantity(N_("effect of a replaced token"), "divergence/mean", "nats"), *CORRELATIONS), PARTIAL[1:]],
    contrasts=(
        *(Within(reading, NEARNESS) for reading in CORRELATIONS[1:]),
        Fixed([PARTIAL[1]], 0.0, N_("zero")),
        Against([WEIGHTS]),
    ),
    figure=Dots(N_("Rank correlation with the effect of replacing an earlier token"), CORRELATIONS),
)
PROBES = (SINKS, PATTERNS, RELEVANCE)

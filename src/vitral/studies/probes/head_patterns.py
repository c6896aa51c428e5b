"""The probe `head-patterns`: the kinds of keys that heads attend to, how similar heads are, and their ablation.

Kinds are counted within a layer: the claim that heads attend to different things at once is about heads of one layer.
Over its layers a model of one head has several kinds too.
"""

from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean

from vitral.core.language import N_, _
from vitral.core.text import capital
from vitral.data import Batches
from vitral.inspection import KINDS, NAMED_FROM, head_ablations, head_patterns
from vitral.inspection.attention import BROAD, LEAST_KEYS
from vitral.inspection.head_overlap import against_other_seeds, attention_rows, rows_of
from vitral.inspection.targets import next_token_targets
from vitral.studies.claims import Claim, every
from vitral.studies.judging import judge
from vitral.studies.probe import (
    Against,
    ArmMeasures,
    Arms,
    Check,
    Dots,
    Means,
    Note,
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

WINDOWS = ((16, 32), (32, 64), (96, 384))
"""Test windows on which attention is recorded, and on which the loss is measured with and without a head."""
ROWS = (64, 96, 192)
"""Rows of weights that are kept of every head, to compare heads of different models."""
HEADS, NATS = "layers/*/heads/*", "nats per token"
RISE = f"{HEADS}/zero/increase"


def measure(trained: Trained) -> Plain:
    """Pattern and ablation of every head; no layers for a model without attention."""
    model, part = trained.model, trained.test
    if model.mask is None:
        return {"loss": None, "uniform": {}, "layers": []}
    require_causal_lm(trained)
    watched, scored = (
        Batches(part, context_length=model.config.context_length, batch_size=windows, seed=0).batch(0)
        for windows in trained.size(*WINDOWS)
    )
    patterns, ablated = (
        head_patterns(model, trained.run.tokenizer, watched[0]),
        head_ablations(model, next_token_targets(model, *scored)),
    )
    for layer, without in zip(patterns["layers"], ablated["layers"], strict=True):
        layer["heads"] = [head | more for head, more in zip(layer["heads"], without["heads"], strict=True)]
        layer["all"] = without["all"]
    return {"loss": ablated["loss"], "rows": attention_rows(model, watched[0], trained.size(*ROWS)), **patterns}


NAMED = [
    Quantity(kind, lambda run, kind=kind: every(run, f"{HEADS}/name").count(kind), digits=1) for kind in (*KINDS, BROAD)
]
DISTINCT = Quantity(
    N_("different kinds in a layer"),
    lambda run: fmean(len({*every(layer, "heads/*/name")} - {BROAD}) for layer in run["layers"]),
    digits=1,
)
KINDS_APART = Quantity(N_("in a layer of matched heads of other seeds"), "apart/kinds_matched", digits=1)
DISTANCE = Quantity(N_("distance"), f"{HEADS}/distance", "tokens", digits=1)
UNIFORM = Quantity(N_("distance under uniform attention"), "uniform_distance", "tokens", digits=1)
ENTROPY = Quantity(N_("entropy as a share of its maximum"), f"{HEADS}/entropy", digits=2)
OVERLAP = Quantity(N_("overlap of the heads of a layer"), "layers/*/overlap")
OWN = Quantity(N_("overlap of the heads of a layer, on the kept rows"), "apart/own")
MATCHED = Quantity(N_("overlap with heads of other seeds, matched for entropy"), "apart/matched")
BEYOND = difference(N_("overlap beyond that of matched heads of other seeds"), OWN, MATCHED)
GAP = Quantity(N_("entropy between matched heads"), "apart/apart", "nats")
ZERO = Quantity(N_("loss increase without one head (zeros)"), RISE, NATS)
MEAN = Quantity(N_("loss increase without one head (its mean)"), f"{HEADS}/mean/increase", NATS)
MOST = Quantity(N_("loss increase without the most important head"), lambda run: max(every(run, RISE)), NATS)
ADDED = Quantity(N_("sum over its heads one by one"), lambda run: sum(every(run, RISE)) / len(run["layers"]), NATS)
SEEN = (DISTANCE, UNIFORM, ENTROPY, OVERLAP, OWN, MATCHED, GAP)
TOGETHER = Quantity(N_("loss increase without a layer's heads"), "layers/*/all/zero/increase", NATS)


ABOUT = N_(
    "{kinds}. A head is named after the kind of key with the largest excess over uniform attention, over queries that "
    "see at least {keys} keys, if that is at least {least:g}; else it is {broad}. "
    "Overlap: 1 - JSD / ln 2 of two heads' weights, with JSD the Jensen-Shannon divergence (Lin 1991). Broad heads "
    "overlap whatever they do, so one head of each pair is exchanged for the head of the same layer of another "
    "seed with the nearest entropy. Below 0: the heads of a layer divide the work. Above 0: they repeat one "
    "another. In the ablation a head's output z is replaced by zeros, or by its mean; by zeros where nothing is said. "
    "If the sum over the heads of a layer is below the increase without the layer, heads compensate for one another."
)


def _view(result: StudyResult, arms: Arms) -> View:
    """Kinds, overlap and ablation, by arm in order of the number of heads."""
    arms = sorted((arm for arm in arms if arm.first["layers"]), key=lambda arm: arm.config["model"]["num_heads"])
    if not arms:
        return View()
    arms = [beside_other_seeds(arm) for arm in arms]
    several = [arm for arm in arms if arm.values(OVERLAP)]
    matched = [arm for arm in several if arm.values(BEYOND)]
    comparisons = [*Within(OWN, MATCHED).of(result, matched), *Within(DISTINCT, KINDS_APART).of(result, matched)]
    for quantity, among in ((BEYOND, matched), (ZERO, arms)):
        comparisons += Against([quantity]).of(result, [among[0], among[-1]]) if len(among) > 1 else ()
    comparisons += Within(TOGETHER, ADDED).of(result, several)
    what, least = _("smallest number of head kinds in a layer, mean over the layers of a run"), _("2 or more")
    lowest = [(arm, min(arm.values(DISTINCT).values())) for arm in several]
    checks = [Check(arm.title, what, low, 2, None, least, digits=1, arm=arm.name) for arm, low in lowest]
    beside = [claim for claim in judge(comparisons) if claim.comparison.quantity is OWN]
    kinds = "; ".join(f"{_(kind)}: {_(meaning)}" for kind, meaning in KINDS.items())
    return View(
        _(ABOUT, kinds=kinds, keys=LEAST_KEYS, least=NAMED_FROM, broad=_(BROAD)),
        [
            Means(arms, (DISTINCT, KINDS_APART, *NAMED), _("Heads of a run by name, means over seeds.")),
            Means(arms, SEEN, _("Attention of a head, means over heads and seeds.")),
            Means(arms, (ZERO, MEAN, MOST, ADDED, TOGETHER), _("Ablation, means over seeds.")),
        ],
        Dots(N_("Overlap beyond that of matched heads"), BEYOND, matched),
        comparisons,
        checks,
        _like_chance(matched, beside),
    )


def _like_chance(arms: Arms, claims: Sequence[Claim]) -> tuple[Note, ...]:
    """Notes about the arms whose overlap is not told from that of matched heads of other seeds, in the same order."""
    return tuple(
        Note(
            _(
                "{arm}: the heads of a layer overlap as much as heads of other seeds with the same entropy ({own} and "
                "{matched}, difference {span}): nothing shows that they divide the work or repeat one another.",
                arm=capital(arm.title),
                own=OWN.show(arm.mean(OWN)),
                matched=MATCHED.show(arm.mean(MATCHED)),
                span=claim.span,
            ),
            arm.name,
        )
        for arm, claim in zip(arms, claims, strict=True)
        if claim.shown is False
    )


def beside_other_seeds(arm: ArmMeasures) -> ArmMeasures:
    """The arm whose runs have `apart`: their heads beside those of the arm's other runs."""
    runs = {seed: run for seed, run in arm.runs.items() if run.get("rows", {}).get("layers")}
    rows = {seed: rows_of(run["rows"]) for seed, run in runs.items()}
    names = {seed: [[head["name"] for head in layer["heads"]] for layer in run["layers"]] for seed, run in runs.items()}
    found = against_other_seeds(rows, names)
    return replace(arm, runs={seed: run | {"apart": found.get(seed)} for seed, run in arm.runs.items()})


PROBE = Probe("head-patterns", N_("Attention patterns of the heads"), measure, more=_view, seconds=(4, 10, 30))

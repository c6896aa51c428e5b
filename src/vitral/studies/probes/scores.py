"""Scores of attention: of independent queries and keys under every scale, and in fresh and trained models."""

import math
from typing import Any

from vitral.core.language import N_, _, listed, number
from vitral.inspection import saturation, softmax
from vitral.inspection.gradients import untrained
from vitral.inspection.saturation import attention_saturation
from vitral.inspection.softmax import FIXED, SURE, change, expected_variance, score_statistics
from vitral.inspection.targets import scored_windows
from vitral.studies.probe import (
    Against,
    ArmMeasures,
    Arms,
    Axis,
    Check,
    Comparison,
    Dots,
    Fixed,
    Line,
    Lines,
    Means,
    Note,
    Plain,
    Probe,
    Quantity,
    Rows,
    Setting,
    StudyResult,
    Trained,
    View,
    exponents,
    require_causal_lm,
    to_fixed,
)

# ---------------------------------------------------------------- independent queries and keys

SIZES = ((200_000, 1_000), (500_000, 4_000), (2_000_000, 20_000))
TITLES = {"none": N_("no scale"), "sqrt": "1/√d_k", "linear": "1/d_k", "adaptive": N_("adaptive")}
THEORY = {"none": "d_k", "sqrt": "1", "linear": "1/d_k"}
LABELS = {
    "variance": N_("variance"),
    "entropy_share": N_("entropy share"),
    "saturated": N_("saturated"),
    "sensitivity": N_("mean sensitivity"),
    "sensitivity_median": N_("median sensitivity, ‖∂a/∂q‖"),
}
INDEPENDENT = N_(
    "Components of q and k are N(0, 1). Variance: over {pairs:,} pairs at each d_k, the same for every scale. Others: "
    "over {rows:,} rows a of one query and {keys} keys, with standard errors; saturated: largest weight above "
    "{saturated}; sensitivity: norm of ∂a/∂q, scale included."
)


def independent_scores(setting: Setting) -> Plain:
    """Statistics of every scale at every d_k."""
    return score_statistics(*setting.size(*SIZES), setting.seed)


def _cell(numbers: Plain, name: str, at: int) -> str:
    value, errors = numbers[name][at], numbers.get(f"{name}_error")
    if value is None:
        return "\N{EN DASH}"
    return number(value, ".5g") + (f" ± {number(errors[at], '.1g')}" if errors else "")


def _variance(measured: Plain, scale: str) -> Check:
    """The measured variance over that of theory, at the d_k where it is furthest from 1."""
    pairs = zip(measured["scales"][scale]["variance"], measured["d_ks"], strict=True)
    furthest = max((value / expected_variance(scale, d_k) for value, d_k in pairs), key=lambda ratio: abs(ratio - 1))
    what = _("variance over {theory}, d_k furthest from 1", theory=THEORY[scale])
    return Check(_(TITLES[scale]), what, furthest, 0.98, 1.02, _("1 within 2%"), digits=4)


def _saturated(measured: Plain, scale: str, *, rises: bool) -> Check:
    shares, errors = (measured["scales"][scale][name] for name in ("saturated", "saturated_error"))
    limit = SURE * math.hypot(errors[0], errors[-1])
    limits = (math.nextafter(limit, math.inf), None) if rises else (-limit, limit)
    expected = N_("more than {n:g} standard errors ({limit:.2g})")
    if not rises:
        expected = N_("within {n:g} standard errors ({limit:.2g})")
    what = _("change of saturated rows with d_k (share)")
    return Check(_(TITLES[scale]), what, shares[-1] - shares[0], *limits, _(expected, n=SURE, limit=limit))


def _independent(result: StudyResult, measured: Plain) -> View:
    """Every statistic by scale and d_k, and the predictions of theory."""
    scales, d_ks = measured["scales"], measured["d_ks"]
    cells = [
        (_(title), str(d_k), *(_cell(scales[scale], name, at) for name in LABELS))
        for scale, title in TITLES.items()
        for at, d_k in enumerate(d_ks)
    ]
    changes = {one: number(change(scales[one]["sensitivity_median"]), ".2g") for one in FIXED}
    text = _(
        "The median sensitivity changes with d_k by: {changes}.",
        changes=listed(f"{_(TITLES[one])} ×{factor}" for one, factor in changes.items()),
    )
    saturation = (_saturated(measured, "none", rises=True), _saturated(measured, "sqrt", rises=False))
    axes = Axis(_("d_k (components of a head)"), log=True, ticks=d_ks), Axis(_(LABELS["sensitivity_median"]), log=True)
    curves = [
        Line(_(title), d_ks, [value if value > 0 else None for value in scales[scale]["sensitivity_median"]])
        for scale, title in TITLES.items()
    ]
    return View(
        _(INDEPENDENT, **measured, saturated=softmax.SATURATED),
        [Rows(_("Scores and rows."), (_("scale"), "d_k", *map(_, LABELS.values())), cells)],
        Lines(_("Sensitivity of the weights"), *axes, curves),
        checks=(*(_variance(measured, one) for one in FIXED), *saturation),
        notes=[Note(text)],
    )


SCORES = Probe(
    "score-statistics",
    N_("Scores of independent queries and keys"),
    independent_scores,
    more=_independent,
    seconds=(12, 30, 120),
    of_runs=False,
)


# ---------------------------------------------------------------- models

WINDOWS = (128, 256, 1024)
STATES = {"fresh": N_("Fresh models."), "trained": N_("Trained models.")}
HEAD_NUMBERS = {
    "score_variance": N_("score variance"),
    "scaled_variance": N_("scaled variance"),
    "entropy_share": N_("entropy share"),
    "saturated": N_("saturated"),
    "query_gradient": N_("query gradient"),
    "query_square": N_("query square"),
    "key_square": N_("key square"),
    "mutual_information": N_("mutual information of positions"),
    "factors": N_("learned scale in units of 1/√d_k"),
}
"""Of the numbers of a head."""


def attention_in_models(trained: Trained) -> Plain:
    """Statistics of attention before the first step and after training."""
    require_causal_lm(trained)
    model, time = trained.model, trained.model.config.context_length
    batch = scored_windows(trained.test, time, trained.size(*WINDOWS))
    return {
        "d_head": model.config.d_head,
        "fresh": attention_saturation(untrained(model, trained.seed), *batch),
        "trained": attention_saturation(model, *batch),
        "uniform_mutual_information": saturation.uniform_mutual_information(time),
    }


def _of(state: str, key: str) -> Quantity:
    name = HEAD_NUMBERS[key]
    digits = 6 if key.endswith(("variance", "gradient", "square")) else 4
    return Quantity(name, f"{state}/layers/*/{key}/*", digits=digits)


ENTROPY, SATURATED, LEARNED = (_of("trained", key) for key in ("entropy_share", "saturated", "factors"))
COMPARED = (ENTROPY, SATURATED, _of("trained", "query_gradient"))
ALIGNED = {
    state: Quantity(
        name,
        lambda run, state=state: saturation.alignment(run[state], run["d_head"]),
        digits=2,
    )
    for state, name in (
        ("fresh", N_("score variance over that of independent q and k, fresh")),
        ("trained", N_("score variance over that of independent q and k, trained")),
    )
}
D_K = Quantity("d_k", "d_head", digits=0)
MODELS = N_(
    "Means over layers, heads and seeds; fresh: before the first step. Variances are over allowed pairs; entropy "
    "share and saturated rows (largest weight above {saturated:g}) over rows of several keys. Query gradient: "
    "‖∂L/∂q‖ of one query, L the summed loss of its window in nats. Squares: of components. "
    "Mutual information of positions: of query and attended position, in bits, corrected for the number of windows; it "
    "is not of contents, so a head that looks for a content wherever it is has the value of uniform attention, "
    "{uniform:.3f}. "
    "If queries and keys are independent, Var(q·k) is d_k times the mean squares of their components: the ratio is 1 "
    "and 1/√d_k the scale. If training aligns them, q·k adds up instead of averaging out: the ratio grows with d_k, up "
    "to d_k itself, and 1/d_k is the scale (Yang et al. 2022)."
)


def _in_models(result: StudyResult, arms: Arms) -> View:
    """Attention in fresh and trained models, learned scales, and every arm against the same model with 1/√d_k."""
    base, d_k = arms[0], arms[0].first["d_head"]
    others, usual = ([arm for arm in arms if (_scale(arm) == "sqrt") == which] for which in (False, True))
    pairs = ((rival, arm) for arm in others for rival in usual if _shape(arm) == _shape(rival))
    comparisons = [one for pair in pairs for one in Against(COMPARED).of(result, pair)]
    comparisons += [slope for name in SLOPES for slope in _slope(name, arms)]
    comparisons += Fixed([LEARNED], 1.0, N_("its initial value")).of(result, arms)
    expected = _("d_k = {d_k} within a factor of 2", d_k=d_k)
    variance, subject = base.mean(_of("fresh", "score_variance")) or 0.0, _("{arm}, fresh", arm=base.title)
    return View(
        _(MODELS, saturated=softmax.SATURATED, uniform=base.first["uniform_mutual_information"]),
        [
            *(
                Means(arms, (D_K, *(_of(state, key) for key in saturation.BY_HEAD)), _(caption))
                for state, caption in STATES.items()
            ),
            Means(arms, (D_K, *ALIGNED.values())),
        ],
        Dots(N_("Entropy after training"), [ENTROPY], arms),
        comparisons,
        [Check(subject, _("score variance"), variance, d_k / 2, 2 * d_k, expected, arm=base.name)],
    )


SLOPES = ("sqrt", "none")
"""Scales whose arms of different d_k are joined by a line."""


def _slope(scale: str, arms: Arms) -> list[Comparison]:
    """The exponent with which the trained ratio grows with d_k, seed by seed, against 0: independence at any d_k.

    Of the arms with this scale, the first of each d_k.
    """
    by_width = {arm.first["d_head"]: arm for arm in reversed(arms) if _scale(arm) == scale}
    fitted = exponents([*by_width.values()], "d_head", ALIGNED["trained"])
    if not fitted:
        return []
    low, high = map(D_K.show, (min(by_width), max(by_width)))
    subject = _("{scale}, trained, d_k {low} to {high}", scale=_(TITLES[scale]), low=low, high=high)
    slope = Quantity(_("exponent of the score variance over that of independent q and k"), digits=2)
    return [to_fixed(subject, 0.0, _("0, independent at every d_k"), slope, fitted)]


def _scale(arm: ArmMeasures) -> Any:
    return arm.config["model"]["attention"]["scale"]


def _shape(arm: ArmMeasures) -> tuple[Plain, Plain]:
    model = arm.config["model"]
    return {**model, "attention": {**model["attention"], "scale": ""}}, arm.config["training"]


SATURATION = Probe(
    "saturation",
    N_("Attention in the models, fresh and trained"),
    attention_in_models,
    more=_in_models,
)
PROBES = (SCORES, SATURATION)

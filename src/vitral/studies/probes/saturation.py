"""The probe `saturation`: attention in fresh and trained models, its scores, sharpness and gradients."""

import math
from statistics import linear_regression
from typing import Any

from vitral.core.language import N_, _
from vitral.inspection import attention_saturation, logged_gradient_norms, saturation, softmax, untrained
from vitral.inspection.windows import scored_windows
from vitral.studies.claims import to_fixed
from vitral.studies.probe import (
    Against,
    ArmMeasures,
    Arms,
    Check,
    Comparison,
    Dots,
    Fixed,
    Means,
    Plain,
    Probe,
    Quantity,
    StudyResult,
    Trained,
    View,
    require_causal_lm,
)

WINDOWS = (128, 256, 1024)
STATES = {"fresh": N_("Fresh models."), "trained": N_("Trained models.")}
NAMES = {
    "score_variance": N_("score variance"),
    "scaled_variance": N_("scaled variance"),
    "row_variance": N_("row variance"),
    "entropy_share": N_("entropy share"),
    "saturated": N_("saturated"),
    "jacobian": N_("jacobian"),
    "query_gradient": N_("query gradient"),
    "query_square": N_("query square"),
    "key_square": N_("key square"),
    "met_at_random": N_("score second moment if queries met keys at random"),
    "mutual_information": N_("mutual information of positions"),
    "factors": N_("learned scale in units of 1/√d_k"),
}
"""Of the numbers of a head."""


def measure(trained: Trained) -> Plain:
    """Statistics of attention before the first step and after training, and the gradient norms in between."""
    require_causal_lm(trained)
    model, run = trained.model, trained.run
    time, log_every = model.config.context_length, run.config["training"]["log_every"]
    batch = scored_windows(trained.test, time, trained.size(*WINDOWS))
    return {
        "d_head": model.config.d_head,
        "windows": len(batch[0]),
        "fresh": attention_saturation(untrained(model, trained.seed), *batch),
        "trained": attention_saturation(model, *batch),
        "uniform_mutual_information": saturation.uniform_mutual_information(time),
        "gradient_norms": logged_gradient_norms(run.folder.metrics("step"), log_every),
    }


def _of(state: str, key: str) -> Quantity:
    name = NAMES[key]
    digits = 6 if key.endswith(("variance", "gradient", "square")) else 4
    return Quantity(name, f"{state}/layers/*/{key}/*", digits=digits)


NORMS = [
    Quantity(N_("mean gradient norm"), "gradient_norms/mean"),
    Quantity(N_("median gradient norm"), "gradient_norms/median"),
    Quantity(N_("largest gradient norm"), "gradient_norms/largest"),
]
ENTROPY, SATURATED, LEARNED = (_of("trained", key) for key in ("entropy_share", "saturated", "factors"))
COMPARED = (ENTROPY, SATURATED, _of("trained", "query_gradient"), NORMS[0])
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
SHARED = Quantity(
    N_("of which from shared directions"),
    lambda run: saturation.shared_directions(run["trained"], run["d_head"]),
    digits=2,
)
D_K = Quantity("d_k", "d_head", digits=0)
MEANING = N_(
    "Means over layers, heads and seeds; fresh: before the first step. Variances are over allowed pairs; entropy "
    "share, saturated rows (largest weight above {saturated:g}) and norm of the softmax Jacobian over rows of several "
    "keys. Query gradient: ‖∂L/∂q‖ of one query, L the summed loss of its window in nats. Squares: of components. "
    "Mutual information of positions: of query and attended position, in bits, corrected for the number of windows; it "
    "is not of contents, so a head that looks for a content wherever it is has the value of uniform attention, "
    "{uniform:.3f}. "
    "If queries and keys are independent, Var(q·k) is d_k times the mean squares of their components: the ratio is 1 "
    "and 1/√d_k the scale. If training aligns them, q·k adds up instead of averaging out: the ratio grows with d_k, up "
    "to d_k itself, and 1/d_k is the scale (Yang et al. 2022). Shared directions: the ratio if queries met keys at "
    "random; the rest is from which query meets which key. Gradient norms are before clipping."
)


def _view(result: StudyResult, arms: Arms) -> View:
    """Attention in fresh and trained models, learned scales, and every arm against the same model with 1/√d_k."""
    base, d_k = arms[0], arms[0].first["d_head"]
    others, usual = ([arm for arm in arms if (_scale(arm) == "sqrt") == which] for which in (False, True))
    pairs = [(one, arm) for arm in others for one in usual if _shape(arm) == _shape(one)]
    bare = [arm for arm in others if _scale(arm) == "none" and _shape(arm, num_heads=0) == _shape(base, num_heads=0)]
    bare.sort(key=lambda arm: arm.first["d_head"])
    comparisons = [one for pair in pairs for one in Against(COMPARED).of(result, pair)]
    comparisons += Against([SATURATED]).of(result, (bare[0], bare[-1])) if len(bare) > 1 else ()
    comparisons += [slope for name in SLOPES for slope in _slope(name, by_width(arms, name))]
    comparisons += Fixed([LEARNED], 1.0, N_("its initial value")).of(result, arms)
    expected = _("d_k = {d_k} within a factor of 2", d_k=d_k)
    variance, subject = base.mean(_of("fresh", "score_variance")) or 0.0, _("{arm}, fresh", arm=base.title)
    by_head = {state: [_of(state, key) for key in saturation.BY_HEAD] for state in STATES}
    return View(
        _(MEANING, saturated=softmax.SATURATED, uniform=base.first["uniform_mutual_information"]),
        [
            *(Means(arms, (D_K, *by_head[state]), _(caption)) for state, caption in STATES.items()),
            Means(arms, (D_K, *ALIGNED.values(), SHARED, *NORMS)),
        ],
        Dots(N_("Entropy after training"), ENTROPY, arms),
        comparisons,
        [Check(subject, _("score variance"), variance, d_k / 2, 2 * d_k, expected, arm=base.name)],
    )


SLOPES = {"sqrt": "1/√d_k", "none": N_("no scale")}
"""Scales whose arms of different d_k are joined by a line."""


def by_width(arms: Arms, scale: str) -> list[ArmMeasures]:
    """The arms with this scale in order of d_k, the first of each d_k; none unless there are two."""
    found = {arm.first["d_head"]: arm for arm in reversed(arms) if _scale(arm) == scale}
    return [found[d_k] for d_k in sorted(found)] if len(found) > 1 else []


def _slope(scale: str, arms: list[ArmMeasures]) -> list[Comparison]:
    """The exponent with which the trained ratio grows with d_k, seed by seed, against 0: independence at any d_k."""
    if not arms:
        return []
    widths, ratios = [math.log(arm.first["d_head"]) for arm in arms], [arm.values(ALIGNED["trained"]) for arm in arms]
    slopes = {
        seed: linear_regression(widths, [math.log(ratio[seed]) for ratio in ratios]).slope
        for seed in arms[0].runs
        if all(seed in arm.runs for arm in arms)
    }
    if not slopes:
        return []
    subject = _(
        "{scale}, trained, d_k {low} to {high}",
        scale=_(SLOPES[scale]),
        low=D_K.show(arms[0].first["d_head"]),
        high=D_K.show(arms[-1].first["d_head"]),
    )
    slope = Quantity(_("exponent of the score variance over that of independent q and k"), digits=2)
    return [to_fixed(subject, 0.0, _("0, independent at every d_k"), slope, slopes)]


def _scale(arm: ArmMeasures) -> Any:
    return arm.config["model"]["attention"]["scale"]


def _shape(arm: ArmMeasures, **same: int) -> tuple[Plain, Plain]:
    model = arm.config["model"]
    return {**model, "attention": {**model["attention"], "scale": ""}, **same}, arm.config["training"]


PROBE = Probe("saturation", N_("Attention in the models, fresh and trained"), measure, more=_view, seconds=(2, 6, 20))

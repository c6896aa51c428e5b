"""The probe `score-statistics`: scores of independent queries and keys under every scale, beside theory."""

import math

from vitral.core.language import N_, _, listed, number
from vitral.inspection import head_costs, score_statistics
from vitral.inspection.random_scores import BY_ROW, FIXED, SURE, change, expected_variance, least_changed
from vitral.inspection.softmax import SATURATED
from vitral.studies.probe import Axis, Check, Curve, Lines, Note, Plain, Probe, Rows, Setting, StudyResult, View

SIZES = ((200_000, 1_000), (500_000, 4_000), (2_000_000, 20_000))
TITLES = {"none": N_("no scale"), "sqrt": "1/√d_k", "linear": "1/d_k", "adaptive": N_("adaptive")}
THEORY = {"none": "d_k", "sqrt": "1", "linear": "1/d_k"}
NAMES = ("variance", *BY_ROW, "sensitivity_median")
LABELS = {
    "variance": N_("variance"),
    "row_variance": N_("row variance"),
    "entropy_share": N_("entropy share"),
    "saturated": N_("saturated"),
    "jacobian": N_("jacobian"),
    "sensitivity": N_("mean sensitivity"),
    "sensitivity_median": N_("median sensitivity, ‖∂a/∂q‖"),
}
MEANING = N_(
    "Components of q and k are N(0, 1). Variance: over {pairs:,} pairs at each d_k, the same for every scale. Others: "
    "over {rows:,} rows a of one query and {keys} keys, with standard errors; saturated: largest weight above "
    "{saturated}; jacobian: norm of diag(a) - a aᵀ; sensitivity: norm of ∂a/∂q, scale included."
)


def measure(setting: Setting) -> Plain:
    """Statistics of every scale at every d_k, and parameters and FLOPs of models like the base by d_k."""
    costs = head_costs(setting.base.model, setting.dataset.tokenizer.vocab_size)
    return score_statistics(*setting.size(*SIZES), setting.seed) | {"costs": costs}


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


def _saturation(measured: Plain, scale: str, *, rises: bool) -> Check:
    shares, errors = (measured["scales"][scale][name] for name in ("saturated", "saturated_error"))
    limit = SURE * math.hypot(errors[0], errors[-1])
    limits = (math.nextafter(limit, math.inf), None) if rises else (-limit, limit)
    expected = (
        _("more than {n:g} standard errors ({limit:.2g})", n=SURE, limit=limit)
        if rises
        else _("within {n:g} standard errors ({limit:.2g})", n=SURE, limit=limit)
    )
    what = _("change of saturated rows with d_k (share)")
    return Check(_(TITLES[scale]), what, shares[-1] - shares[0], *limits, expected)


def _view(result: StudyResult, measured: Plain) -> View:
    """Every statistic by scale and d_k, and the predictions of theory."""
    scales, d_ks = measured["scales"], measured["d_ks"]
    cells = [
        (_(title), str(d_k), *(_cell(scales[scale], name, at) for name in NAMES))
        for scale, title in TITLES.items()
        for at, d_k in enumerate(d_ks)
    ]
    least = [*least_changed(measured)]
    changes = {one: number(change(scales[one]["sensitivity_median"]), ".2g") for one in FIXED}
    text = _(
        "The median sensitivity changes with d_k by: {changes}; least with {least}.",
        changes=listed(f"{_(TITLES[one])} ×{factor}" for one, factor in changes.items()),
        least=", ".join(_(TITLES[one]) for one in least),
    )
    shown = None if len(least) > 1 and "sqrt" in least else "sqrt" in least
    saturation = (_saturation(measured, "none", rises=True), _saturation(measured, "sqrt", rises=False))
    axes = Axis(_("d_k (components of a head)"), log=True, ticks=d_ks), Axis(_(LABELS["sensitivity_median"]), log=True)
    curves = [
        Curve(_(title), d_ks, [value if value > 0 else None for value in scales[scale]["sensitivity_median"]])
        for scale, title in TITLES.items()
    ]
    about = {key: measured[key] for key in ("pairs", "rows", "keys")}
    return View(
        _(MEANING, **about, saturated=SATURATED),
        [Rows(_("Scores and rows."), (_("scale"), "d_k", *(_(LABELS[name]) for name in NAMES)), cells)],
        Lines(_("Sensitivity of the weights"), *axes, curves),
        checks=(*(_variance(measured, one) for one in FIXED), *saturation),
        notes=[Note(text, shown=shown)],
    )


PROBE = Probe(
    "score-statistics",
    N_("Scores of independent queries and keys"),
    measure,
    more=_view,
    seconds=(12, 30, 120),
    of_runs=False,
)

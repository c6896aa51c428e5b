"""The probe `score-statistics`: scores of independent queries and keys under every scale, beside theory."""

import math

from vitral.core.language import N_, _, listed, number
from vitral.figures.lines import Axis, Line
from vitral.figures.sections import Heading, Table
from vitral.inspection import head_costs, score_statistics
from vitral.inspection.random_scores import BY_ROW, FIXED, SURE, change, expected_variance, least_changed
from vitral.inspection.softmax import SATURATED
from vitral.studies.probe import Check, Note, Plain, Plot, Setting, StudyResult, View, extremes_told, lined

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
PLOTS = {"variance": N_("Variance of the scores"), "sensitivity_median": N_("Sensitivity of the weights")}
CAPTIONS = {
    "variance": N_(
        "Variance of the scores of independent queries and keys against d_k, by scale; dashed lines are theory."
    ),
    "sensitivity_median": N_(
        "Sensitivity of the weights a of a row to its query q, median over rows, against d_k, by scale."
    ),
}
COUNTED = {
    "d_k": "d_k",
    "num_heads": "num_heads",
    "d_model": "d_model",
    "parameters": N_("parameters"),
    "flops": "flops",
}
VARIED = {"heads": N_("heads"), "d_model": "d_model"}
MEANING = N_(
    "Components of q and k are N(0, 1). Variance: over {pairs:,} pairs at each d_k, the same for every scale. Others: "
    "over {rows:,} rows a of one query and {keys} keys, with standard errors; saturated: largest weight above "
    "{saturated}; jacobian: norm of diag(a) - a aᵀ; sensitivity: norm of ∂a/∂q, scale included."
)


def measure(setting: Setting) -> Plain:
    """Statistics of every scale at every d_k, and parameters and FLOPs of models like the base by d_k."""
    costs = head_costs(setting.base.model, setting.dataset.tokenizer.vocab_size)
    return score_statistics(*setting.size(*SIZES), setting.seed) | {"costs": costs}


def view(result: StudyResult, measured: Plain) -> View:
    """Every statistic by scale and d_k, costs, and the predictions of theory."""
    cells = [
        (_(title), str(d_k), *(_cell(measured["scales"][scale], name, at) for name in NAMES))
        for scale, title in TITLES.items()
        for at, d_k in enumerate(measured["d_ks"])
    ]
    costs = tuple((_(VARIED[row["varies"]]), *(number(row[key], ",") for key in COUNTED)) for row in measured["costs"])
    columns = (_("scale"), "d_k", *(_(LABELS[name]) for name in NAMES))
    about = {key: measured[key] for key in ("pairs", "rows", "keys")}
    sections = (
        Heading(_("Scores of independent queries and keys")),
        _(MEANING, **about, saturated=SATURATED),
        _plot(measured, "variance", "score-variance"),
        _plot(measured, "sensitivity_median", "score-sensitivity"),
        Table(_("Scores and rows."), columns, tuple(cells)),
        Table(
            _("Models like the base by d_k; FLOPs are of training, per token."),
            (_("varied"), *map(_, COUNTED.values())),
            costs,
        ),
    )
    least = [*least_changed(measured)]
    changes = {one: number(change(measured["scales"][one]["sensitivity_median"]), ".2g") for one in FIXED}
    text = _(
        "The median sensitivity changes with d_k by: {changes}; least with {least}.",
        changes=listed(f"{_(TITLES[one])} ×{factor}" for one, factor in changes.items()),
        least=", ".join(_(TITLES[one]) for one in least),
    )
    shown = None if len(least) > 1 and "sqrt" in least else "sqrt" in least
    saturation = (_saturation(measured, "none", rises=True), _saturation(measured, "sqrt", rises=False))
    checks = (*(_variance(measured, one) for one in FIXED), *saturation)
    return View(sections, checks=checks, notes=[Note(text, shown=shown)])


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


def _plot(measured: Plain, name: str, file: str) -> Plot:
    """One statistic against d_k, a line for each scale; variances as marks with the lines of theory."""
    d_ks, lines = measured["d_ks"], []
    for scale in FIXED if name == "variance" else TITLES:
        values = [value if value > 0 else None for value in measured["scales"][scale][name]]
        lines.append(Line(_(TITLES[scale]), d_ks, values, joined=name != "variance"))
    if name == "variance":
        for scale in FIXED:
            expected = [expected_variance(scale, d_k) for d_k in d_ks]
            lines.append(Line(_("theory: {value}", value=THEORY[scale]), d_ks, expected, theory=True))
    axes = Axis(_("d_k (components of a head)"), log=True, ticks=d_ks), Axis(_(LABELS[name]), log=True)
    ends = {line.label: line.y[-1] or 0.0 for line in lines if not line.theory}
    about = _("{quantity} at d_k {d_k}", quantity=_(LABELS[name]), d_k=d_ks[-1])
    alt = extremes_told(about, ends, lambda value: number(value, ".3g"))
    return lined(file, _(PLOTS[name]), lines, axes, _(CAPTIONS[name]), alt)

"""What each scale does to scores of independent queries and keys: measured directly, no model needed.

Components of q and k are drawn from N(0, 1). Then q·k has mean 0, variance d_k and fourth moment 3 d_k² + 6 d_k, so a
variance measured on n pairs has a relative standard error of √((2 + 6/d_k) / n).
"""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor

from vitral.attention import scales, steps
from vitral.core.streams import torch_stream
from vitral.figures.sections import Heading, Paragraph, Table
from vitral.model import ModelConfig, cost
from vitral.studies.probes.protocol import BudgetName, Exhibit, Plain, Plot, Setting, StudyProbe
from vitral.studies.probes.sharpness import SATURATED, entropy_share, jacobian_norm, query_sensitivity, saturated
from vitral.studies.wording import big, signed

if TYPE_CHECKING:
    from vitral.studies.results import StudyResult
    from vitral.studies.verdict import Finding

NAME = "score-statistics"
PURPOSE = "score-statistics"
D_KS = (16, 64, 256, 1024)
TITLES = {"none": "no scale", "sqrt": "1/√d_k", "linear": "1/d_k", "adaptive": "adaptive"}
FIXED = ("none", "sqrt", "linear")
"""Scales that are one number, so that a single pair has a scaled score; the adaptive one needs a row."""
PAIRS: Mapping[BudgetName, int] = {"quick": 200_000, "standard": 500_000, "full": 2_000_000}
ROWS: Mapping[BudgetName, int] = {"quick": 1_000, "standard": 4_000, "full": 20_000}
KEYS = 64
"""Keys of a row."""
CHUNK = 1 << 22
"""Numbers drawn at once for the keys: 16 MB."""
TOLERANCE = 0.02
"""Share of the theoretical variance within which a measured one counts as agreeing."""
SURE = 3.0
"""Standard errors that two shares or means must differ by to be called different."""
LEAST = 1e-30
BY_ROW = ("row_variance", "entropy_share", "saturated", "jacobian", "sensitivity")


def theory(scale: str, d_k: int) -> float:
    """Variance of the scaled score of an independent N(0, 1) query and key: d_k, 1 or 1/d_k.

    >>> theory("none", 64), theory("sqrt", 64), theory("linear", 64)
    (64.0, 1.0, 0.015625)
    """
    return {"none": float(d_k), "sqrt": 1.0, "linear": 1 / d_k}[scale]


def measure(setting: Setting) -> Plain:
    """Statistics of every scale at every d_k, and what widths of a head cost in models like the base."""
    pairs, rows, seed = PAIRS[setting.budget], ROWS[setting.budget], setting.base.seed
    found: dict[str, dict[str, list[Any]]] = {scale: {} for scale in TITLES}
    for d_k in D_KS:
        by_pair, by_row = pair_variances(d_k, pairs, seed), row_statistics(d_k, rows, seed)
        for scale, numbers in found.items():
            everything = {**by_row[scale], **by_pair.get(scale, {"variance": None, "variance_error": None})}
            for name, value in everything.items():
                numbers.setdefault(name, []).append(value)
    return {
        "pairs": pairs,
        "rows": rows,
        "keys": KEYS,
        "d_ks": list(D_KS),
        "scales": found,
        "costs": head_costs(setting.base.model, setting.dataset.tokenizer.vocab_size),
    }


def pair_variances(d_k: int, pairs: int, seed: int) -> dict[str, dict[str, float]]:
    """Variance of the scaled scores of `pairs` pairs, each query and key used once, with its standard error.

    The standard error is √((m₄ - m₂²) / n), from the scores' own second and fourth central moments.
    """
    stream = torch_stream(seed, PURPOSE, "pairs", d_k)
    pieces: list[Tensor] = []
    for size in _chunks(pairs, CHUNK // d_k):
        q, k = (torch.randn(size, d_k, generator=stream) for _ in range(2))
        pieces.append((q * k).sum(dim=-1).double())
    scores, one = torch.cat(pieces), torch.ones(1, d_k)
    found: dict[str, dict[str, float]] = {}
    for scale in FIXED:
        scaled = steps.scale(scores[None], scales.factor_of(scale, one, one, None))[0]
        centred = scaled - scaled.mean()
        second, fourth = float(centred.square().mean()), float(centred.pow(4).mean())
        error = math.sqrt((fourth - second**2) / pairs)
        found[scale] = {"variance": second * pairs / (pairs - 1), "variance_error": error}
    return found


def row_statistics(d_k: int, rows: int, seed: int) -> dict[str, dict[str, float]]:
    """Means over rows, each of one query and `KEYS` keys of its own, with their standard errors (`NAME_error`)."""
    stream = torch_stream(seed, PURPOSE, "rows", d_k)
    pieces: dict[str, list[dict[str, Tensor]]] = {scale: [] for scale in TITLES}
    for size in _chunks(rows, max(1, CHUNK // (d_k * KEYS))):
        q = torch.randn(size, 1, d_k, generator=stream)
        k = torch.randn(size, KEYS, d_k, generator=stream)
        for scale, kept in pieces.items():
            kept.append(statistics_of_rows(q, k, scale))
    found: dict[str, dict[str, float]] = {}
    for scale, kept in pieces.items():
        numbers = {name: torch.cat([piece[name] for piece in kept]).double() for name in BY_ROW}
        means = {name: float(values.mean()) for name, values in numbers.items()}
        errors = {f"{name}_error": float(values.std()) / math.sqrt(rows) for name, values in numbers.items()}
        median = float(numbers["sensitivity"].median())
        found[scale] = means | errors | {"sensitivity_median": median}
    return found


def statistics_of_rows(
    q: Float[Tensor, "rows 1 d_head"], k: Float[Tensor, "rows source d_head"], scale: str
) -> dict[str, Float[Tensor, " rows"]]:
    """What `BY_ROW` names, of each row, through attention's own steps."""
    factor = scales.factor_of(scale, q, k, None)
    scaled = steps.scale(steps.score(q, k), factor)[:, 0]
    weights = steps.normalise(scaled)
    s = torch.as_tensor(factor, dtype=q.dtype).expand(len(q), 1, 1)[:, 0, 0]
    return {
        "row_variance": scaled.var(dim=-1, unbiased=scale != "adaptive"),
        "entropy_share": entropy_share(weights, float(k.shape[-2])),
        "saturated": saturated(weights).to(q.dtype),
        "jacobian": jacobian_norm(weights),
        "sensitivity": query_sensitivity(q[:, 0], k, weights, s, adaptive=scale == "adaptive"),
    }


def head_costs(base: ModelConfig, vocab_size: int) -> list[Plain]:
    """Parameters and training FLOPs per token at each d_k, by the formulas of `vitral.model.counts`.

    Twice: with the base's d_model, where more d_k is fewer heads, as far as d_k divides it; and with the base's number
    of heads, where more d_k is a wider model.
    """
    plain = base.plain() | {"num_kv_heads": None}
    found: list[Plain] = []
    for varies in ("heads", "d_model"):
        for d_k in D_KS:
            width = base.d_model if varies == "heads" else base.num_heads * d_k
            if width % d_k:
                continue
            shape = {"d_model": width, "num_heads": width // d_k}
            counted = cost(ModelConfig.parse(plain | shape, "the base"), vocab_size)
            flops = counted.forward_flops + counted.backward_flops
            found.append({"d_k": d_k, "varies": varies, **shape, "parameters": counted.parameters, "flops": flops})
    return found


def show(result: "StudyResult", measured: Plain) -> Exhibit:
    """Tables of variances, of rows and of costs; each quantity against d_k; three findings."""
    sections = (
        Heading("Scores of independent queries and keys"),
        Paragraph(_drawn(measured)),
        _variance_table(measured),
        *_variance_plot(measured),
        _row_table(measured),
        *(_row_plot(measured, *what) for what in ROW_PLOTS),
        Heading("What the width of a head costs", 3),
        Paragraph(
            "At fixed d_model a wider head is fewer heads: matrices, and so parameters and counted operations, stay "
            "the same. At a fixed number of heads the model becomes as much wider, and both grow with its square."
        ),
        _cost_table(measured),
    )
    findings = (_variance_finding(measured), *_saturation_findings(measured), _sensitivity_finding(measured))
    return Exhibit(sections, findings)


def _drawn(measured: Plain) -> str:
    return (
        f"Components of q and k are drawn from N(0, 1). Variances are over {measured['pairs']:,} pairs at each d_k, "
        "every query and key used once; the three scales see the same pairs, so their deviations from theory are "
        f"one. What the softmax makes of scores is over {measured['rows']:,} rows of one query and {measured['keys']} "
        "keys of its own. The adaptive scale gives every row a variance of 1 by construction and has no meaning for "
        "a single pair. Learned scales, one a layer or one a head, begin at 1/√d_k: in a new model they are on its "
        "line."
    )


def _variance_table(measured: Plain) -> Table:
    rows: list[tuple[str, ...]] = []
    for index, d_k in enumerate(measured["d_ks"]):
        cells = [str(d_k)]
        for scale in FIXED:
            value, error = (measured["scales"][scale][name][index] for name in ("variance", "variance_error"))
            cells += [f"{value:.5g} ± {error:.1g}", f"{theory(scale, d_k):.5g}"]
        deviation, errors = _deviation(measured, "none", index)
        rows.append((*cells, f"{signed(100 * deviation, 2)}%", signed(errors, 1)))
    headings = [heading for scale in FIXED for heading in (f"{TITLES[scale]}: measured", "theory")]
    return Table(
        "Variance of the scores, with its standard error.",
        ("d_k", *headings, "deviation", "in standard errors"),
        tuple(rows),
    )


def _deviation(measured: Plain, scale: str, index: int) -> tuple[float, float]:
    """Relative deviation of a measured variance from theory, and in standard errors."""
    numbers, expected = measured["scales"][scale], theory(scale, measured["d_ks"][index])
    away = numbers["variance"][index] - expected
    return away / expected, away / numbers["variance_error"][index]


def _row_table(measured: Plain) -> Table:
    def cell(scale: str, name: str, index: int, digits: int) -> str:
        numbers = measured["scales"][scale]
        return f"{numbers[name][index]:.{digits}f} ± {numbers[f'{name}_error'][index]:.{digits}f}"

    rows = tuple(
        (
            TITLES[scale],
            str(d_k),
            f"{measured['scales'][scale]['row_variance'][index]:.4g}",
            cell(scale, "entropy_share", index, 3),
            f"{100 * measured['scales'][scale]['saturated'][index]:.1f}%",
            cell(scale, "jacobian", index, 3),
            cell(scale, "sensitivity", index, 3),
            f"{measured['scales'][scale]['sensitivity_median'][index]:.2g}",
        )
        for scale in TITLES
        for index, d_k in enumerate(measured["d_ks"])
    )
    uniform = math.sqrt(measured["keys"] - 1) / measured["keys"]
    return Table(
        f"Rows of {measured['keys']} keys, means ± standard error. Entropy as a share of ln {measured['keys']}; "
        f"saturated: largest weight above {SATURATED}; Jacobian: Frobenius norm of diag(a) - a aᵀ, {uniform:.3f} for "
        "uniform weights, 0.5 where two keys share everything, 0 for one-hot ones; ∂a/∂q: Frobenius norm of what a "
        "move of the query does to its weights, the scale included.",
        ("scale", "d_k", "variance in a row", "entropy share", "saturated", "Jacobian", "∂a/∂q", "median ∂a/∂q"),
        rows,
    )


def _cost_table(measured: Plain) -> Table:
    rows = tuple(
        (
            "fixed d_model" if row["varies"] == "heads" else "fixed number of heads",
            *(str(row[name]) for name in ("d_k", "num_heads", "d_model")),
            f"{row['parameters']:,}",
            big(row["flops"]),
        )
        for row in measured["costs"]
    )
    return Table(
        "Models like the base, counted: learned numbers, and operations of a training step per token.",
        ("kept", "d_k", "heads", "d_model", "parameters", "FLOPs per token"),
        rows,
    )


def _variance_plot(measured: Plain) -> tuple[Plot, ...]:
    from vitral.figures.lines import Axis, Line, line_plot

    d_ks = measured["d_ks"]
    lines = [Line(TITLES[scale], d_ks, measured["scales"][scale]["variance"], joined=False) for scale in FIXED]
    names = {"none": "theory: d_k", "sqrt": "theory: 1", "linear": "theory: 1/d_k"}
    lines += [Line(names[scale], d_ks, [theory(scale, d_k) for d_k in d_ks], theory=True) for scale in FIXED]
    figure = line_plot(
        lines, Axis("d_k (components of a head)", log=True, ticks=d_ks), Axis("variance of the scaled scores", log=True)
    )
    furthest = max(abs(_deviation(measured, "none", index)[0]) for index in range(len(d_ks)))
    caption = (
        f"Variance of scores of independent N(0, 1) queries and keys, {measured['pairs']:,} pairs at each d_k "
        "(marks), and what theory predicts (dashed lines). Both axes are logarithmic. Standard errors are smaller "
        "than the marks."
    )
    return (
        Plot(figure, "score-variance", caption, f"Marks lie within {100 * furthest:.2f}% of the theoretical lines."),
    )


ROW_PLOTS = (
    ("entropy_share", "entropy of a row (share of ln n)", "score-entropy", "1: uniform weights, 0: one-hot."),
    ("saturated", "saturated rows (share)", "score-saturation", f"Rows whose largest weight is above {SATURATED}."),
    (
        "jacobian",
        "norm of the softmax Jacobian",
        "score-jacobian",
        "Mean Frobenius norm over rows. It is small where weights are uniform over many keys, largest where few share "
        "them, and 0 where one has all.",
    ),
    (
        "sensitivity_median",
        "median norm of ∂weights/∂q",
        "score-sensitivity",
        "What a move of the query does to the weights of a typical (median) row: the Jacobian times the scale times "
        "the keys. The vertical axis is logarithmic.",
    ),
)
"""Quantity, axis, name of the figure, caption."""
LOGARITHMIC = ("sensitivity_median",)


def _row_plot(measured: Plain, quantity: str, axis: str, name: str, caption: str) -> Plot:
    from vitral.figures.lines import Axis, Line, line_plot

    d_ks = measured["d_ks"]
    log = quantity in LOGARITHMIC
    by_scale = {title: measured["scales"][scale][quantity] for scale, title in TITLES.items()}
    lines = [
        Line(title, d_ks, [None if log and value <= 0 else value for value in values])
        for title, values in by_scale.items()
    ]
    figure = line_plot(lines, Axis("d_k (components of a head)", log=True, ticks=d_ks), Axis(axis, log=log))
    ends = "; ".join(f"{title} {values[0]:.2g} to {values[-1]:.2g}" for title, values in by_scale.items())
    where = f"{measured['rows']:,} rows of {measured['keys']} keys at each d_k, independent N(0, 1) queries and keys."
    return Plot(figure, name, f"{caption} {where}", f"From d_k {d_ks[0]} to {d_ks[-1]}: {ends}.")


def _variance_finding(measured: Plain) -> "Finding":
    """Whether every measured variance lies within `TOLERANCE` of theory."""
    from vitral.studies.verdict import Finding

    places = [(scale, index) for scale in FIXED for index in range(len(measured["d_ks"]))]
    scale, index = max(places, key=lambda place: abs(_deviation(measured, *place)[0]))
    deviation, errors = _deviation(measured, scale, index)
    agrees = abs(deviation) <= TOLERANCE
    values = ", ".join(
        f"{measured['scales']['none']['variance'][at]:.4g} at d_k {d_k}" for at, d_k in enumerate(measured["d_ks"])
    )
    where = f"at d_k {measured['d_ks'][index]} ({signed(100 * deviation, 2)}%, {signed(errors, 1)} standard errors)"
    how = (
        f"lies within {TOLERANCE:.0%} of d_k, 1 and 1/d_k for the scales none, 1/√d_k and 1/d_k; it is furthest {where}"
        if agrees
        else f"does not lie within {TOLERANCE:.0%} of theory everywhere: under {TITLES[scale]} it is off {where}"
    )
    text = (
        f"Over {measured['pairs']:,} independent pairs the variance of the scores {how}. Without a scale it is "
        f"{values}."
    )
    return Finding(NAME, "", text, holds=agrees)


def _saturation_findings(measured: Plain) -> "list[Finding]":
    """Whether rows saturate as d_k grows, without a scale and with 1/√d_k, and what the Jacobian does."""
    from vitral.studies.verdict import Finding

    found: list[Finding] = []
    for scale, should in (("none", "rises"), ("sqrt", "stays")):
        first, last, way = _course(measured, scale, "saturated")
        low, high, bend = _course(measured, scale, "jacobian")
        ends = f"from d_k {measured['d_ks'][0]} to {measured['d_ks'][-1]}"
        share = f"{100 * first:.1f}%" if way == "stays" else f"from {100 * first:.1f}% to {100 * last:.1f}%"
        words = {"rises": "rises", "falls": "falls", "stays": "shows no change, at"}
        norm = f"from {low:.3f} to {high:.3f}" if bend != "stays" else f"{low:.3f}"
        text = (
            f"With {TITLES[scale]} the share of saturated rows {words[way]} {share} {ends}, and the mean norm of the "
            f"softmax Jacobian {words[bend]} {norm}."
        )
        found.append(Finding(NAME, "", text, holds=way == should))
    return found


def _course(measured: Plain, scale: str, quantity: str) -> tuple[float, float, str]:
    """The quantity at the least and the largest d_k, and whether it rises, falls or stays within `SURE` errors."""
    values, errors = (measured["scales"][scale][name] for name in (quantity, f"{quantity}_error"))
    spread = math.hypot(errors[0], errors[-1])
    change = values[-1] - values[0]
    way = "stays" if abs(change) <= SURE * spread else "rises" if change > 0 else "falls"
    return values[0], values[-1], way


def _sensitivity_finding(measured: Plain) -> "Finding":
    """Under which fixed scale ∂weights/∂q of the median row changes least with d_k; the claim is 1/√d_k."""
    from vitral.studies.verdict import Finding

    ratios, means = (
        {scale: _ratio(measured["scales"][scale][name]) for scale in FIXED}
        for name in ("sensitivity_median", "sensitivity")
    )
    least = min(FIXED, key=lambda scale: abs(math.log(ratios[scale])))
    each = ", ".join(f"{TITLES[scale]} ×{ratio:.2g} (mean row ×{means[scale]:.2g})" for scale, ratio in ratios.items())
    text = (
        f"From d_k {measured['d_ks'][0]} to {measured['d_ks'][-1]} the norm of ∂weights/∂q, which a gradient must "
        f"pass on its way to the query, changes in the median row by: {each}; least under {TITLES[least]}."
    )
    return Finding(NAME, "", text, holds=least == "sqrt")


def _ratio(values: Sequence[float]) -> float:
    """The last value in units of the first, both kept away from zero."""
    first, last = (max(value, LEAST) for value in (values[0], values[-1]))
    return last / first


def _chunks(total: int, most: int) -> list[int]:
    """Sizes that sum to `total`, none above `most`."""
    whole, rest = divmod(total, most)
    return [most] * whole + ([rest] if rest else [])


SCORE_STATISTICS = StudyProbe(NAME, measure, show)

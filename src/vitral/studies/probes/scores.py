"""What each scale does to scores of independent queries and keys: measured directly, no model needed.

Components of q and k are drawn from N(0, 1). Then q·k has mean 0, variance d_k and fourth moment 3 d_k² + 6 d_k, so a
variance measured on n pairs has a relative standard error of √((2 + 6/d_k) / n).
"""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor

from vitral.attention import scales, steps
from vitral.core.streams import torch_stream
from vitral.figures.sections import Heading, Paragraph, Table
from vitral.model import ModelConfig, cost
from vitral.studies.probes.protocol import BudgetName, Exhibit, Plain, Plot, Setting, StudyProbe
from vitral.studies.probes.scores_found import (
    FIXED,
    NAME,
    TITLES,
    deviation,
    saturation_findings,
    sensitivity_finding,
    theory,
    variance_finding,
)
from vitral.studies.probes.sharpness import SATURATED, entropy_share, jacobian_norm, query_sensitivity, saturated
from vitral.studies.wording import big, signed

if TYPE_CHECKING:
    from vitral.studies.results import StudyResult

PURPOSE = "score-statistics"
D_KS = (16, 64, 256, 1024)
PAIRS: Mapping[BudgetName, int] = {"quick": 200_000, "standard": 500_000, "full": 2_000_000}
ROWS: Mapping[BudgetName, int] = {"quick": 1_000, "standard": 4_000, "full": 20_000}
KEYS = 64
"""Keys of a row."""
CHUNK = 1 << 22
"""Numbers drawn at once for the keys: 16 MB."""
BY_ROW = ("row_variance", "entropy_share", "saturated", "jacobian", "sensitivity")


def measure(setting: Setting) -> Plain:
    """Statistics of every scale at every d_k, and what widths of a head cost in models like the base."""
    pairs, rows, seed = PAIRS[setting.budget], ROWS[setting.budget], setting.seed
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
        median, error = median_of(numbers["sensitivity"])
        found[scale] = means | errors | {"sensitivity_median": median, "sensitivity_median_error": error}
    return found


def median_of(values: Float[Tensor, " rows"]) -> tuple[float, float]:
    """The (lower) median and its standard error, whatever the law of the values.

    How many of n values lie below the true median is binomial with standard deviation √n / 2. So the error is half the
    distance between the order statistics of ranks n/2 - √n/2 and n/2 + √n/2.
    """
    ordered, num = values.sort().values, len(values)
    middle, away = (num - 1) / 2, math.sqrt(num) / 2
    low, high = max(0, math.floor(middle - away)), min(num - 1, math.ceil(middle + away))
    return float(ordered[(num - 1) // 2]), float(ordered[high] - ordered[low]) / 2


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
    findings = (variance_finding(measured), *saturation_findings(measured), sensitivity_finding(measured))
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
        away, errors = deviation(measured, "none", index)
        rows.append((*cells, f"{signed(100 * away, 2)}%", signed(errors, 1)))
    headings = [heading for scale in FIXED for heading in (f"{TITLES[scale]}: measured", "theory")]
    return Table(
        "Variance of the scores, with its standard error.",
        ("d_k", *headings, "deviation", "in standard errors"),
        tuple(rows),
    )


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
    furthest = max(abs(deviation(measured, "none", index)[0]) for index in range(len(d_ks)))
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


def _chunks(total: int, most: int) -> list[int]:
    """Sizes that sum to `total`, none above `most`."""
    whole, rest = divmod(total, most)
    return [most] * whole + ([rest] if rest else [])


SCORE_STATISTICS = StudyProbe(NAME, measure, show, seconds={"quick": 12, "standard": 30, "full": 120})

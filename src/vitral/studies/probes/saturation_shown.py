"""What the probe `saturation` measured, as tables, figures and findings."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from vitral.figures.sections import Details, Heading, Paragraph, Table
from vitral.studies.probes.protocol import ByRun, Exhibit, Plain, Plot
from vitral.studies.probes.saturation_found import (
    COMPARED,
    Pair,
    Value,
    compared_pairs,
    d_k_of,
    fresh_finding,
    growth_findings,
    layers_mean,
    learned_findings,
    mean_of,
    over_seeds,
    pair_finding,
    scale_of,
    training_norm,
)
from vitral.studies.probes.sharpness import SATURATED
from vitral.studies.statistics import mean_interval
from vitral.studies.wording import NONE, SPACE, big, p_text, signed

if TYPE_CHECKING:
    from vitral.studies.results import ArmResult, StudyResult


def show(result: "StudyResult", measured: ByRun) -> Exhibit:
    """Fresh and trained models in numbers, gradient norms, learned scales, what d_k cost; findings."""
    arms = [arm for arm in result.arms if measured.get(arm.arm.name)]
    if not arms:
        return Exhibit()
    pairs = compared_pairs(arms, measured)
    sections = (
        Heading("Attention in the models, fresh and trained"),
        Paragraph(_definitions(measured)),
        *(_state_table(arms, measured, state) for state in ("fresh", "trained")),
        *_arm_plots(arms, measured),
        _gradient_table(arms, measured),
        *([_pair_table(pairs)] if pairs else []),
        Details("Layer by layer", tuple(_layer_table(arms, measured, state) for state in ("fresh", "trained"))),
        *_learned(arms, measured),
        *_costs(arms),
    )
    findings = (fresh_finding(arms, measured), *(pair_finding(pair, measured) for pair in pairs))
    return Exhibit(sections, (*findings, *growth_findings(arms, measured), *learned_findings(arms, measured)))


def _text(number: float | None, spec: str = ".3g") -> str:
    return NONE if number is None else format(number, spec)


def _definitions(measured: ByRun) -> str:
    one = next(iter(next(iter(filter(None, measured.values()))).values()))
    return (
        f"Every number is of {one['windows']} windows of the test part, a mean over layers, heads and seeds. A fresh "
        "model is the same model with its initial numbers, before the first step. Variances are over the pairs of "
        "query and key that the mask allows; if q and k were independent, that of the scores would be d_k times the "
        f"mean squares of their components. Entropy share, saturated rows (largest weight above {SATURATED}) and the "
        "softmax Jacobian's Frobenius norm are means over rows that see at least two keys. ‖∂L/∂q‖ is of a single "
        "query, L the summed loss of its window in nats. The mutual information says how many bits a query's "
        "position and the position it attends to tell about one another; uniform causal attention has "
        f"{one['uniform_mutual_information']:.3f} bits."
    )


def _state_table(arms: "Sequence[ArmResult]", measured: ByRun, state: str) -> Table:
    def expected(run: Plain) -> float:
        products = [
            run["d_head"] * q * k
            for layer in run[state]["layers"]
            for q, k in zip(layer["query_square"], layer["key_square"], strict=True)
        ]
        return math.fsum(products) / len(products)

    rows: list[tuple[str, ...]] = []
    for arm in arms:
        runs = measured[arm.arm.name]

        def cell(quantity: str, spec: str = ".3g", runs: Mapping[int, Plain] = runs) -> str:
            return _text(mean_of(runs, layers_mean(state, quantity)), spec)

        rows.append(
            (
                arm.arm.title,
                str(d_k_of(arm)),
                cell("score_variance"),
                _text(mean_of(runs, expected)),
                cell("scaled_variance"),
                cell("row_variance"),
                cell("entropy_share", ".3f"),
                cell("saturated", ".2%"),
                cell("jacobian", ".3f"),
                cell("query_gradient"),
                cell("mutual_information", ".3f"),
            )
        )
    headings = ("arm", "d_k", "Var scores", "if independent", "Var scaled", "in a row", "entropy share", "saturated")
    return Table(
        f"{state.capitalize()} models.", (*headings, "Jacobian", "‖∂L/∂q‖", "mutual information (bits)"), tuple(rows)
    )


def _layer_table(arms: "Sequence[ArmResult]", measured: ByRun, state: str) -> Table:
    def in_layer(layer: int, quantity: str) -> Value:
        def value(run: Plain) -> float | None:
            numbers = run[state]["layers"][layer][quantity]
            return math.fsum(numbers) / len(numbers)

        return value

    quantities = ("scaled_variance", "entropy_share", "saturated", "jacobian", "query_gradient", "mutual_information")
    rows = tuple(
        (
            arm.arm.title,
            str(layer),
            *(_text(mean_of(measured[arm.arm.name], in_layer(layer, quantity))) for quantity in quantities),
        )
        for arm in arms
        for layer in range(arm.config["model"]["num_layers"])
    )
    headings = ("Var scaled", "entropy share", "saturated (share)", "Jacobian", "‖∂L/∂q‖", "mutual information (bits)")
    return Table(f"{state.capitalize()} models, layer by layer.", ("arm", "layer", *headings), rows)


def _arm_plots(arms: "Sequence[ArmResult]", measured: ByRun) -> list[Plot]:
    figures = (
        (
            COMPARED["entropy share"],
            "trained-entropy",
            "entropy of attention in the trained model (share of ln n; 1: uniform)",
            "Each dot a seed, above it the mean and its 95% interval: entropy of attention's rows after training, mean "
            "over layers and heads.",
        ),
        (
            training_norm,
            "gradient-norms",
            "norm of the gradient, mean over training (nats per unit of parameter)",
            "Each dot a seed, above it the mean and its 95% interval: norm of the gradient of the mean loss (nats "
            "per token) with respect to all parameters together, before clipping; mean over the logged steps.",
        ),
    )
    return [plot for value, *rest in figures if (plot := _interval_plot(arms, measured, value, *rest)) is not None]


def _interval_plot(
    arms: "Sequence[ArmResult]", measured: ByRun, value: Value, name: str, axis: str, caption: str
) -> Plot | None:
    from vitral.figures.intervals import Row, interval_dots

    rows: list[Row] = []
    for arm in arms:
        numbers = over_seeds(measured[arm.arm.name], value)
        if numbers:
            interval = mean_interval(numbers)
            rows.append(Row(arm.arm.title, numbers, interval.mean, interval.low, interval.high))
    if not rows:
        return None
    alt = "; ".join(f"{row.label} {row.mean:.3f}" for row in rows)
    return Plot(interval_dots(rows, x_label=axis), name, caption, f"Means: {alt}.")


def _gradient_table(arms: "Sequence[ArmResult]", measured: ByRun) -> Table:
    rows = tuple(
        (
            arm.arm.title,
            *(
                _text(mean_of(measured[arm.arm.name], lambda run, name=name: run["gradient_norms"][name]))
                for name in ("mean", "median", "largest")
            ),
            *(
                _text(mean_of(measured[arm.arm.name], layers_mean(state, "query_gradient")))
                for state in ("fresh", "trained")
            ),
        )
        for arm in arms
    )
    return Table(
        "Gradients: norm of the whole gradient at the logged steps of training, before clipping, in nats per unit of "
        "parameter; and of a single query, in nats per unit of its components.",
        ("arm", "mean", "median", "largest", "‖∂L/∂q‖ fresh", "‖∂L/∂q‖ trained"),
        rows,
    )


def _pair_table(pairs: Sequence[Pair]) -> Table:
    def cell(pair: Pair, name: str) -> str:
        difference, p = pair.differences[name], pair.adjusted[name]
        if difference is None:
            return NONE
        between = difference.difference
        ends = f" ({_signed(between.low)} to {_signed(between.high)})".replace(" ", SPACE) if p is not None else ""
        return f"{_signed(between.mean)}{ends}" + (f", {p_text(p)}" if p is not None else "")

    rows = tuple((pair.arm.arm.title, pair.usual.arm.title, *(cell(pair, name) for name in COMPARED)) for pair in pairs)
    return Table(
        "After training, against the same model under 1/√d_k: mean difference over seeds (95% interval), p after "
        "Holm's correction down each column.",
        ("arm", "against", *COMPARED),
        rows,
        prose=(1,),
    )


def _signed(number: float | None) -> str:
    if number is None:
        return NONE
    return signed(number, 3 if abs(number) >= 0.01 or number == 0 else 5)


def _learned(arms: "Sequence[ArmResult]", measured: ByRun) -> "list[Heading | Paragraph | Table | Plot]":
    """Every learned scale in a table, and in a figure by layer; nothing where no arm learns one."""
    from vitral.figures.intervals import Row, interval_dots
    from vitral.figures.margin import Reference

    cells: list[tuple[str, ...]] = []
    rows: list[Row] = []
    for arm in arms:
        runs = measured[arm.arm.name]
        for layer in range(arm.config["model"]["num_layers"]):
            by_seed = {seed: runs[seed]["trained"]["layers"][layer]["factors"] for seed in sorted(runs)}
            if not any(by_seed.values()):
                continue
            for seed, factors in by_seed.items():
                cells.append((arm.arm.title, str(layer), str(seed), ", ".join(f"{factor:.3f}" for factor in factors)))
            interval = mean_interval([math.fsum(factors) / len(factors) for factors in by_seed.values()])
            values = [factor for factors in by_seed.values() for factor in factors]
            rows.append(Row(f"{arm.arm.title}, layer {layer}", values, interval.mean, interval.low, interval.high))
    if not rows:
        return []
    figure = interval_dots(
        rows, references=(Reference("at the start", 1.0),), x_label="learned scale (in units of 1/√d_k)"
    )
    alt = "; ".join(f"{row.label}: {row.mean:.2f}" for row in rows)
    return [
        Heading("What the learned scales became", 3),
        Plot(
            figure,
            "learned-scales",
            "Each dot is one learned scale of one seed; above the dots the mean over a seed's scales, its mean and "
            "95% interval over seeds. A model can also make q and k larger, so a scale does not say how sharp "
            "attention is.",
            f"Means: {alt}.",
        ),
        Table(
            "Learned scales in units of 1/√d_k, where all began; head after head where each head has one.",
            ("arm", "layer", "seed", "scales"),
            tuple(cells),
            prose=(3,),
        ),
    ]


def _costs(arms: "Sequence[ArmResult]") -> list[Heading | Table]:
    """What each width of a head cost in this study, of the arms under 1/√d_k."""
    usual = sorted((arm for arm in arms if scale_of(arm) == "sqrt"), key=d_k_of)
    if len(usual) < 2:
        return []
    rows: list[tuple[str, ...]] = []
    for arm in usual:
        model, seconds = arm.config["model"], [run.seconds for run in arm.runs if run.stopped is None]
        losses = list(arm.losses.values())
        rows.append(
            (
                str(d_k_of(arm)),
                str(model["num_heads"]),
                str(model["d_model"]),
                f"{arm.num_parameters:,}",
                big(arm.flops_per_token),
                f"{math.fsum(seconds) / len(seconds):.1f}" if seconds else NONE,
                f"{math.fsum(losses) / len(losses):.3f}" if losses else NONE,
            )
        )
    headings = ("d_k", "heads", "d_model", "parameters", "FLOPs per token", "seconds of training", "loss")
    caption = (
        "What d_k cost here, under 1/√d_k. At equal d_model parameters and counted operations are the same, and only "
        "the time differs: more heads have more rows of weights to make. Where d_model grows everything does."
    )
    return [Heading("What d_k costs in training", 3), Table(caption, headings, tuple(rows))]

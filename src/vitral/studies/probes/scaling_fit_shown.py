"""The tables and figures of fitted scaling laws."""

import math
from collections.abc import Sequence
from statistics import fmean

import numpy as np

from vitral.figures.intervals import Row, interval_dots
from vitral.figures.lines import Axis, Line, line_plot
from vitral.figures.sections import Paragraph, Section, Table
from vitral.studies.optimum import Optimum, cost_law, optimal_exponents, optimum
from vitral.studies.probes.protocol import Plot
from vitral.studies.probes.scaling_runs import PRODUCT, SUM, Laws, Run, averaged, joint_laws
from vitral.studies.scaling import Estimate, Fit
from vitral.studies.wording import MINUS, NONE, big, nats, signed

UNBOUNDED = 30.0
"""Intervals of exponents, losses and decades wider than this are told as none."""
WIDE_BAND = 3.0
"""Decades of an interval of N_opt beyond which it is not drawn."""

HOW = (
    "N: parameters of the blocks, embeddings and head left out. D: tokens trained on. C: counted operations. Losses in "
    "nats per character. L(N) is fitted at the largest D, L(D) at the largest N, L(C) to the places whose means over "
    "seeds none of as little compute beats; that choice of places is not in its interval. Each is (x_c/x)^α without a "
    "floor (Kaplan et al. 2020, equations 1.1 to 1.3), since a grid of few values cannot tell a floor from a small "
    f"exponent. The joint laws have a floor E where the runs show one: {SUM} (Hoffmann et al. 2022, equation 2) and, "
    f"with an interplay, {PRODUCT}. All by least squares on log L; intervals are 95% and Student's, from the Jacobian. "
    "An exponent counts as determined if its interval reaches no further than half of it. Kaplan et al. found α_N "
    "0.076, α_D 0.095, α_C 0.050 for byte pairs of web text."
)


def others_text(tokens: Sequence[str]) -> str:
    """What is compared between these tokens and the base's, and what is not."""
    return (
        f"The same sizes and steps on {', '.join(tokens)}, in nats per character of the same test text. A step on "
        "tokens of another length reads another number of characters, and a head of another size costs other "
        "operations, so equal steps are not equal compute; what is compared is how fast the loss falls, as the "
        "constants of laws fitted to these places alone, with either kind of token. D counts each one's own tokens."
    )


def law_table(laws: Laws) -> Table:
    """Every law with its exponents, constants, floor and misfit."""
    rows = []
    for law in laws.singles:
        fit, name = law.fit, law.name
        misfit = f"{100 * fit.spread:.1f}%"
        rows.append((law.label, f"α_{name}", *told(fit.exponent(name)), powers(fit.constant(name)), "none", misfit))
    for form, law in ((SUM, laws.added), (PRODUCT, laws.multiplied)):
        for symbol, name in (("α", "N"), ("β", "D")):
            if law is not None:
                constant = NONE if law.product else powers(law.coefficient(name))
                rows.append(
                    (form, symbol, *told(law.exponent(name)), constant, _floor(law), f"{100 * law.spread:.1f}%")
                )
    columns = ("law", "exponent", "value", "95% interval", "determined", "constant (interval)", "floor E", "misfit")
    caption = (
        "The fitted laws; the constant is x_c of (x_c/x)^α, or A and B of the sum; misfit is the standard deviation of "
        "the residuals of log L."
    )
    return Table(caption, columns, tuple(rows), prose=(0, 1))


def told(exponent: Estimate) -> tuple[str, str, str]:
    """An exponent, its interval, and whether it is determined, as cells."""
    return nats(exponent.value), ends(exponent), "yes" if exponent.determined else "no"


def ends(estimate: Estimate) -> str:
    """An interval's ends; one wider than UNBOUNDED says nothing, and so is not written out."""
    if not estimate.high - estimate.low < UNBOUNDED:
        return "not bounded"
    return f"{nats(estimate.low)} to {nats(estimate.high)}".replace("-", MINUS)


def powers(constant: Estimate) -> str:
    """A constant with its interval, as powers of ten, since it may lie many decades away."""
    value, low, high = (math.log10(max(number, 1e-300)) for number in (constant.value, constant.low, constant.high))
    if high - low > UNBOUNDED:
        return "not bounded"
    return f"10^{value:.2f} (10^{low:.2f} to 10^{high:.2f})".replace("-", MINUS)


def _floor(law: Fit) -> str:
    floor = law.irreducible
    return "none above 0" if floor is None else f"{nats(floor.value)} ({ends(floor)})"


def size_plot(grid: Sequence[Run], laws: Laws) -> Plot:
    """The loss against N, a line for each D, with the curves of the joint law that fits better."""
    amounts, sizes = sorted({run.amount for run in grid}), sorted({run.size for run in grid})
    lines = [
        _means(f"D = {big(amount)} tokens", [(run.size, run.loss) for run in grid if run.amount == amount])
        for amount in amounts
    ]
    joint, caption = joint_laws(laws), "Marks: runs (means over seeds)."
    if joint:
        form, best = min(joint, key=lambda pair: pair[1].spread)
        caption += f" Dashed: the joint law that misses them less, {form}."
        places = np.geomspace(sizes[0], sizes[-1], 30).tolist()
        lines += [_curve(places, [best.loss({"N": place, "D": amount}) for place in places]) for amount in amounts]
    figure = line_plot(
        lines,
        Axis("parameters in the blocks, N", log=True),
        Axis("test loss (nats per character)"),
        title="Loss against size",
    )
    return Plot(figure, "scaling-size", caption, f"{_span(grid)}")


def compute_plot(grid: Sequence[Run], laws: Laws) -> Plot:
    """The loss against C, a line for each N, with the fitted lower edge."""
    lines = [
        _means(f"N = {big(size)}", [(run.compute, run.loss) for run in grid if run.size == size], joined=True)
        for size in sorted({run.size for run in grid})
    ]
    law = next((law.fit for law in laws.singles if law.name == "C"), None)
    if law is not None:
        ends = [run.compute for run in grid]
        places = np.geomspace(min(ends), max(ends), 30).tolist()
        lines.append(_curve(places, [law.loss({"C": place}) for place in places], "fitted L(C)"))
    figure = line_plot(
        lines,
        Axis("training compute, C (operations)", log=True),
        Axis("test loss (nats per character)"),
        title="Loss against compute",
    )
    caption = "Each line is one size at rising budgets; dashed: the power law of the lower edge, L(C) = (C_c/C)^α."
    return Plot(figure, "scaling-compute", caption, f"{_span(grid)}")


def _means(label: str, points: Sequence[tuple[float, float]], *, joined: bool = False) -> Line:
    places = sorted({x for x, _ in points})
    means = [fmean(loss for x, loss in points if x == place) for place in places]
    return Line(label, places, means, joined=joined)


def _curve(places: list[float], values: list[float | None] | list[float], label: str = "") -> Line:
    return Line(label, places, list(values), theory=True)


def _span(grid: Sequence[Run]) -> str:
    worst, best = max(grid, key=lambda run: run.loss), min(grid, key=lambda run: run.loss)
    return f"Loss falls from {nats(worst.loss)} ({worst.title}) to {nats(best.loss)} ({best.title}) nats per character."


def residual_table(grid: Sequence[Run], laws: Laws) -> Table:
    """What each law leaves, place by place; a dash where it is not fitted to that place."""
    left: list[tuple[str, dict[str, list[float]]]] = []
    fitted = [(law.label, law.points, law.fit) for law in laws.singles]
    for label, points, fit in [*fitted, *((form, tuple(grid), law) for form, law in joint_laws(laws))]:
        by_arm: dict[str, list[float]] = {}
        for run, residual in zip(points, fit.residuals, strict=True):
            by_arm.setdefault(run.arm, []).append(residual)
        left.append((label, by_arm))
    rows = []
    for run in averaged(grid):
        off = [f"{signed(100 * fmean(by_arm[run.arm]), 2)}%" if run.arm in by_arm else NONE for _, by_arm in left]
        rows.append((big(run.size), big(run.amount), big(run.compute), nats(run.loss), *off))
    columns = ("N", "D", "C", "loss", *(f"off {label}" for label, _ in left))
    caption = "What the laws leave: measured above fitted, in per cent; means over seeds."
    return Table(caption, columns, tuple(rows))


def optimum_sections(grid: Sequence[Run], laws: Laws) -> list[Section | Plot]:
    """N and D for a given compute, from the sum; a product has no optimum inside the grid, only a better side."""
    added = laws.added
    if added is None or not (added.exponent("N").determined and added.exponent("D").determined):
        return [Paragraph(_no_optimum(laws.multiplied))]
    price = cost_law([run.size for run in grid], [run.compute / run.amount for run in grid])
    size, amount = optimal_exponents(added, price)
    spent = [run.compute for run in grid]
    places = np.geomspace(min(spent), 10 * max(spent), 6).tolist()
    found = [(compute, optimum(added, compute, price)) for compute in places]
    rows = [
        (
            big(compute),
            "within" if compute <= max(spent) else "beyond",
            f"{big(best.parameters.value)} ({big(best.parameters.low)} to {big(best.parameters.high)})",
            big(best.tokens),
            f"{best.tokens / best.parameters.value:.0f}",
            nats(best.loss),
        )
        for compute, best in found
    ]
    caption = (
        f"The compute-optimal line by {SUM} with {price[0]:.1f} N^{price[1]:.2f} operations per token: N_opt as "
        f"C^{size.value:.2f} ({size.low:.2f} to {size.high:.2f}), D_opt as C^{amount.value:.2f} ({amount.low:.2f} to "
        f"{amount.high:.2f}). Beyond: more compute than any run of the grid had."
    )
    columns = ("C (operations)", "the grid's compute", "N_opt (95% interval)", "D_opt", "tokens per parameter", "loss")
    return [Table(caption, columns, tuple(rows)), _optimum_plot(grid, found)]


def _no_optimum(multiplied: Fit | None) -> str:
    """Why there is no line, and what the product says instead, if these runs determine it."""
    text = (
        f"The compute-optimal line N_opt(C), D_opt(C) follows from {SUM}, whose exponents these runs do not "
        "determine, so none is given."
    )
    if multiplied is None or not (multiplied.exponent("N").determined and multiplied.exponent("D").determined):
        return text
    worth = multiplied.worth("N", "D")
    return f"{text} By {PRODUCT} doubling N is worth as much as multiplying D by {worth.value:.2f} ({ends(worth)})."


def _optimum_plot(grid: Sequence[Run], found: Sequence[tuple[float, Optimum]]) -> Plot:
    """N_opt against C with its interval, among the places of the grid."""
    sizes = [best.parameters for _, best in found]
    wide = any(math.log10(size.high / size.low) > WIDE_BAND for size in sizes)
    band = [] if wide else sizes
    line = Line(
        "N_opt(C)",
        [compute for compute, _ in found],
        [size.value for size in sizes],
        low=[size.low for size in band],
        high=[size.high for size in band],
    )
    places = sorted(averaged(grid), key=lambda run: (run.compute, run.size))
    runs = Line("the grid", [run.compute for run in places], [run.size for run in places], joined=False)
    figure = line_plot(
        [line, runs],
        Axis("training compute, C (operations)", log=True),
        Axis("parameters in the blocks, N", log=True),
        title="The best size for each compute",
    )
    last = max(run.compute for run in grid)
    about = "its 95% interval is too wide to be drawn" if wide else "band: its 95% interval"
    caption = f"N_opt by {SUM}, {about}; marks without a line: the grid, which ends at {big(last)} operations."
    told = f"{big(sizes[0].value)} parameters at {big(found[0][0])} operations, {big(sizes[-1].value)} at"
    return Plot(figure, "scaling-optimum", caption, f"The best size grows: {told} {big(found[-1][0])}.")


def prediction_table(later: Sequence[Run], laws: Laws) -> Table:
    """What the joint laws predict of runs they have not seen, and what came of those."""
    rows = []
    for name in dict.fromkeys(run.arm for run in later):
        runs = [run for run in later if run.arm == name]
        for form, law in joint_laws(laws):
            predicted = law.predict({"N": runs[0].size, "D": runs[0].amount})
            measured = fmean(run.loss for run in runs)
            rows.append(
                (
                    f"{runs[0].title}, {form}",
                    big(runs[0].size),
                    big(runs[0].amount),
                    f"{nats(predicted.value)} ({ends(predicted)})",
                    nats(measured),
                    f"{signed(100 * (measured / predicted.value - 1), 1)}%",
                )
            )
    columns = ("arm and law", "N", "D", "predicted (95% interval of one run)", "trained", "off")
    return Table("Predicted from the grid alone, then trained; nats per character.", columns, tuple(rows))


def prediction_plot(later: Sequence[Run], laws: Laws) -> Plot:
    """The same as intervals and dots."""
    rows, told = [], []
    for name in dict.fromkeys(run.arm for run in later):
        runs = [run for run in later if run.arm == name]
        losses = [run.loss for run in runs]
        for form, law in joint_laws(laws):
            predicted = law.predict({"N": runs[0].size, "D": runs[0].amount})
            label = f"{big(runs[0].amount)} tokens, {'product' if law.product else 'sum'}"
            rows.append(Row(label, losses, predicted.value, predicted.low, predicted.high))
            told.append(f"{runs[0].title} by {form}: {nats(predicted.value)}, trained {nats(fmean(losses))}")
    figure = interval_dots(
        rows, title=f"N = {big(later[0].size)}: predicted and trained", x_label="test loss (nats per character)"
    )
    caption = (
        f"Mark and bar: the prediction with its 95% interval by the sum, {SUM}, and by the product, {PRODUCT}. "
        "Small dots: the models trained then."
    )
    return Plot(figure, "scaling-prediction", caption, f"{'; '.join(told)}.")

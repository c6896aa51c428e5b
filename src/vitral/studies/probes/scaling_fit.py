"""Scaling laws of a study's runs: fits, a prediction of larger models, the compute-optimal line, other tokens."""

from collections.abc import Sequence
from statistics import fmean

import numpy as np

from vitral.core.language import N_, _, listed, number
from vitral.core.text import big, capital, nats, p_clause, p_text, signed
from vitral.inspection.text_units import characters_per_token
from vitral.runs.config import RunConfig
from vitral.studies.law_table import interval, law_columns, law_row, powers, with_interval
from vitral.studies.probe import (
    LEVEL,
    Arms,
    Axis,
    Check,
    Curve,
    Lines,
    Note,
    Plain,
    Probe,
    Rows,
    StudyResult,
    Trained,
    View,
    with_losses,
)
from vitral.studies.scaling import contrast, cost_law, optimal_exponents, optimum, student
from vitral.studies.scaling_grid import (
    PREDICTED,
    PRODUCT,
    SUM,
    TOO_WIDE,
    Law,
    Point,
    block_parameters,
    constants,
    grid_of,
    joint_laws,
    lack_of_fit,
    loss_per_character,
    means,
    place_of,
    same_places,
    single_laws,
    token_name,
)
from vitral.training.optimizer_cost import step_flops

LOSS = N_("test loss (nats per character)")
METHOD = N_(
    "N: parameters of the blocks, without embeddings and head. D: tokens trained on. C: counted operations. Losses in "
    "nats per character. L(N) is fitted at the largest D, L(D) at the largest N, L(C) to the arms that no arm of as "
    "little compute beats; its interval ignores that choice. Each is (x_c/x)^α without a floor (Kaplan et al. 2020, "
    "equations 1.1 to 1.3), since a grid of few values cannot separate a floor from a small exponent. The joint laws "
    "have a floor E where the runs show one: {sum} (Hoffmann et al. 2022, equation 2) and, with an interaction, "
    "{product}. Least squares on log L; intervals are 95% Student intervals from the Jacobian, and too narrow "
    "where a law leaves more than the scatter between seeds. An exponent is determined if its interval extends at most "
    "half of it to either side. Kaplan et al. found α_N 0.076, α_D 0.095, α_C 0.050 for byte pairs of web text; their "
    "L(N) is the limit of unlimited data and training, their L(D) that of unlimited size. Here L(N) is at {amount} "
    "tokens and L(D) at {size} parameters, so both exponents are of those slices alone, and a number near theirs "
    "confirms nothing. The law of both quantities is the one to compare."
)
TOKENS = N_(
    "The same sizes and steps with other tokens, in nats per character of the same test text. A token of another "
    "length covers another number of characters and a head of another size costs other operations, so equal steps are "
    "not equal compute: the constants of laws fitted to these places are compared. D counts each arm's own tokens. "
    "Differences have simultaneous 95% intervals and p values by Welch's t test with Bonferroni's correction."
)


def measure(trained: Trained) -> Plain:
    """The run as a point: "size" N, "amount" D, "compute" C in operations, "characters_per_token" of the test split."""
    dataset, config = trained.dataset, RunConfig.parse(trained.run.config, trained.arm)
    vocab_size = dataset.tokenizer.vocab_size
    return {
        "size": block_parameters(config.model, vocab_size),
        "amount": trained.num_tokens,
        "compute": config.training.steps * step_flops(config, vocab_size),
        "characters_per_token": characters_per_token(dataset.splits["test"], dataset.tokenizer),
    }


def _view(result: StudyResult, arms: Arms) -> View:
    """Laws, the optimum, predictions of the larger models, and constants with other tokens."""
    points, tokens = _points(result, arms), token_name(result.base["corpus"]["tokenizer"])
    grid = grid_of(points, tokens)
    later = [point for point in points if point.tokens == tokens and point.arm.startswith(PREDICTED)]
    others = [point for point in points if point.tokens != tokens and not point.arm.startswith(PREDICTED)]
    if any(len({point.place[name] for point in grid}) < 2 for name in "ND"):
        return View()
    joint = joint_laws(grid)
    laws = [*single_laws(grid), *joint]
    optimal, notes = _optimum(grid, joint)
    tables, checks = [_law_table(laws), *optimal], [check for law in joint for check in _misfit(law)]
    if later and joint:
        rows, predicted, wide = _predictions(later, joint)
        words = _("predicted (95% interval of one run)"), _("interval"), _("trained"), _("off")
        caption = _("Predicted from the grid alone, then trained; nats per character, means over seeds.")
        tables.append(Rows(caption, (_("arm and law"), "N", "D", *words), rows))
        checks, notes = [*predicted, *checks], [*notes, *wide]
    for name in dict.fromkeys(point.tokens for point in others):
        table, moved = _token_table(grid, [point for point in others if point.tokens == name])
        tables, notes = [*tables, table], [*notes, *moved]
    about = f"{_method(grid)} {_(TOKENS)}" if others else _method(grid)
    return View(about, tables, _figure(grid, joint), checks=checks, notes=notes)


def _points(result: StudyResult, arms: Arms) -> list[Point]:
    """Every run, its loss in nats per character."""
    points = []
    for arm in with_losses(result, arms):
        tokens = token_name(arm.config["corpus"]["tokenizer"])
        for seed, run in arm.runs.items():
            loss = loss_per_character(run["loss"], result.study.unit, run)
            points.append(Point(arm.name, arm.title, tokens, place_of(run), loss, seed))
    return points


def _law_table(laws: Sequence[Law]) -> Rows:
    rows = []
    for law in laws:
        for name, symbol in law.symbols.items():
            single = len(law.symbols) == 1
            constant = None if law.fit.product else law.fit.constant(name) if single else law.fit.coefficient(name)
            rows.append(law_row(law.formula, symbol, law.fit, name, constant))
    caption = _(
        "Constant: x_c of (x_c/x)^α, or A and B of the sum. Misfit: standard deviation of the residuals of log L."
    )
    return Rows(caption, law_columns(), tuple(rows), prose=(0, 1))


def _method(grid: Sequence[Point]) -> str:
    most = {name: big(max(point.place[name] for point in grid)) for name in "ND"}
    return _(METHOD, sum=SUM, product=PRODUCT, amount=most["D"], size=most["N"])


def _figure(grid: Sequence[Point], joint: Sequence[Law]) -> Lines:
    """The loss against size, for each number of tokens, with the joint law that fits better."""
    law = min(joint, key=lambda law: law.fit.spread, default=None)
    places, curves = [point.place["N"] for point in grid], []
    values = np.geomspace(min(places), max(places), 30).tolist()
    for fixed in sorted({point.place["D"] for point in grid}):
        own = sorted((p for p in means(grid) if p.place["D"] == fixed), key=lambda p: p.place["N"])
        curves.append(Curve(f"D = {big(fixed)}", [p.place["N"] for p in own], [p.loss for p in own]))
        if law is not None:
            curves.append(Curve("", values, [law.fit.loss({"N": n, "D": fixed}) for n in values], theory=True))
    axes = Axis(_("parameters in the blocks, N"), log=True), Axis(_(LOSS))
    note = "" if law is None else _("Thin lines: {law}.", law=law.formula)
    return Lines(_("Loss against size"), *axes, curves, note=note)


def _optimum(grid: Sequence[Point], joint: Sequence[Law]) -> tuple[list[Rows], list[Note]]:
    """N and D for a given compute by the sum; where it is not determined, the trade-off of the product."""
    by = {law.formula: law.fit for law in joint if all(law.fit.exponent(name).determined for name in "ND")}
    if SUM not in by:
        text = _("The runs do not determine {law}, so there is no compute-optimal line.", law=SUM)
        if PRODUCT in by:
            worth = with_interval(by[PRODUCT].worth("N", "D"))
            more = _("By {law} doubling N lowers the loss as much as multiplying D by {n}.", law=PRODUCT, n=worth)
            text = f"{text} {more}"
        return [], [Note(text)]
    price = cost_law([p.place["N"] for p in grid], [p.place["C"] / p.place["D"] for p in grid])
    spent, rows = [point.place["C"] for point in grid], []
    for compute in np.geomspace(min(spent), 10 * max(spent), 6).tolist():
        best = optimum(by[SUM], compute, price)
        size = best.parameters
        span = _("{value} ({low} to {high})", value=big(size.value), low=big(size.low), high=big(size.high))
        inside, each = _("within") if compute <= max(spent) else _("beyond"), number(best.tokens / size.value, ".0f")
        rows.append((big(compute), inside, span, big(best.tokens), each, nats(best.loss)))
    of_size, of_amount = map(with_interval, optimal_exponents(by[SUM], price))
    about = _(
        "Compute-optimal line by {law}, {cost:.1f} N^{power:.2f} operations per token: N_opt grows as C^{size} and "
        "D_opt grows as C^{amount}.",
        law=SUM,
        cost=price[0],
        power=price[1],
        size=of_size,
        amount=of_amount,
    )
    columns = (_("C (operations)"), _("the grid's compute"), _("N_opt (95% interval)"), "D_opt")
    columns += (_("tokens per parameter"), _("loss"))
    return [Rows(about, columns, tuple(rows))], []


def _misfit(law: Law) -> list[Check]:
    found = lack_of_fit(law)
    if found is None:
        return []
    expected = _(
        "at most {most:.2f} (lack of fit, {p}; residuals of {left:.2f}% against {scatter:.2f}% between seeds)",
        most=found.critical,
        p=p_clause(found.p),
        left=100 * law.fit.spread,
        scatter=100 * found.scatter,
    )
    what = _("variance left over that between seeds")
    return [Check(law.formula, what, found.ratio, None, found.critical, expected)]


def _predictions(later: Sequence[Point], joint: Sequence[Law]) -> tuple[list[tuple[str, ...]], list[Check], list[Note]]:
    """By arm and law a row, a check for each run, or a note where the interval is too wide for a test."""
    rows, checks, notes = [], [], []
    for point in means(later):
        losses = [each.loss for each in later if each.arm == point.arm]
        for law in joint:
            predicted = law.fit.predict(point.place)
            width, name = (predicted.high - predicted.low) / predicted.value, f"{point.title}, {law.formula}"
            told = with_interval(predicted), _("{percent:.0f}% wide", percent=100 * width)
            rows.append(
                (
                    name,
                    *map(big, point.node),
                    *told,
                    nats(point.loss),
                    f"{signed(100 * (point.loss / predicted.value - 1), 1)}%",
                )
            )
            if width > TOO_WIDE:
                text = _(
                    "{name}: the predicted interval {interval} is too wide for a test.",
                    name=capital(name),
                    interval=interval(predicted),
                )
                notes.append(Note(text, point.arm))
                continue
            inside = sum(predicted.low <= loss <= predicted.high for loss in losses)
            what = _("runs inside the interval predicted by {law}", law=law.formula)
            expected = _(
                "{n}: {interval} nats per character, trained {losses}",
                n=len(losses),
                interval=interval(predicted),
                losses=listed(map(nats, losses)),
            )
            check = Check(point.title, what, inside, len(losses), None, expected, digits=0, arm=point.arm)
            if 0 < inside < len(losses):
                text = _("{name}: {inside} of {expected}.", name=capital(name), inside=inside, expected=expected)
                notes.append(Note(text, point.arm))
            else:
                checks.append(check)
    return rows, checks, notes


def _token_table(grid: Sequence[Point], others: Sequence[Point]) -> tuple[Rows, list[Note]]:
    """Losses and constants with both kinds of tokens at the same places, and the constants that differ."""
    (own, other), rows, notes = same_places(grid, others), [], []
    for node in sorted({point.node for point in own}):
        one, two = (fmean(point.loss for point in means(each) if point.node == node) for each in (own, other))
        size, amount = map(big, node)
        name = _("loss at N = {size}, D = {amount}", size=size, amount=amount)
        gap = f"{signed(100 * (two / one - 1), 1)}%"
        rows.append((name, nats(one), nats(two), gap, ""))
    found = constants(own, other)
    for constant in found:
        freedoms, num = constant.freedoms, len(found)
        sides = [student(number, freedom) for number, freedom in zip(constant.numbers, freedoms, strict=True)]
        gap, p = contrast(*constant.numbers, freedoms, 1 - LEVEL / num)
        p = min(1.0, num * p)
        cells = [powers(each.exp()) if constant.log else with_interval(each) for each in (*sides, gap)]
        moved = _("times {factor}", factor=cells[2]) if constant.log else cells[2]
        rows.append((constant.name, cells[0], cells[1], moved, p_text(p)))
        if p < LEVEL:
            text = _(
                "{tokens} against {others}, {constant}: {difference}, {p}, corrected for {n} comparisons: the tokens "
                "change it.",
                tokens=capital(others[0].tokens),
                others=grid[0].tokens,
                constant=constant.name,
                difference=moved,
                p=p_clause(p),
                n=num,
            )
            notes.append(Note(text, shown=True))
    columns = (_("at the same places of the grid"), grid[0].tokens, others[0].tokens, _("difference"))
    caption = _("Nats per character, and constants with 95% intervals.")
    return Rows(caption, (*columns, _("p (corrected)")), tuple(rows)), notes


PROBE = Probe("scaling-fit", N_("Scaling laws"), measure, more=_view, seconds=(0.1, 0.1, 0.1))

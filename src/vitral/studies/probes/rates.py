"""The probe `rates`: loss against learning rate by width and parametrisation, and whether the best rate moves."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from vitral.core.language import N_, _, number
from vitral.core.text import NONE, capital
from vitral.studies.intervals import mean_interval
from vitral.studies.probe import (
    Arms,
    Axis,
    Comparison,
    Lines,
    Note,
    Plain,
    Probe,
    Quantity,
    Rows,
    StudyResult,
    Trained,
    View,
    mean_curve,
    with_losses,
)

NAMES = {"standard": N_("standard parametrisation"), "mup": N_("parametrisation muP")}
DOUBLINGS = Quantity(N_("best learning rate, in doublings"), digits=2)
Losses = dict[float, dict[int, float]]
"""By learning rate and seed."""


@dataclass(frozen=True)
class Width:
    """The runs of one width under one parametrisation.

    Attributes:
        kind: "standard" or "mup".
        width: d_model.
        losses: test losses.
    """

    kind: str
    width: int
    losses: Losses

    @property
    def title(self) -> str:
        """As in a table and a sentence."""
        return _("{kind}, width {width}", kind=_(NAMES[self.kind]), width=self.width)

    @property
    def best(self) -> dict[int, float]:
        """The best rate by seed."""
        by_seed: dict[int, dict[float, float]] = {}
        for rate, losses in self.losses.items():
            for seed, loss in losses.items():
                by_seed.setdefault(seed, {})[rate] = loss
        found = {seed: best_rate(losses) for seed, losses in sorted(by_seed.items())}
        return {seed: best for seed, best in found.items() if best is not None}

    @property
    def tuned(self) -> float:
        """The rate of the grid with the lowest mean loss."""
        return min(self.losses, key=lambda rate: fmean(self.losses[rate].values()))


def best_rate(losses: Mapping[float, float]) -> float | None:
    """The rate at the bottom of the parabola through the lowest loss and its neighbours, over the log of the rate.

    The rate with the lowest loss itself where it is the first or the last; None of fewer than three rates.

    >>> best_rate({1.0: 5.0, 2.0: 4.0, 4.0: 5.0})
    2.0
    >>> best_rate({1.0: 3.0, 2.0: 4.0, 4.0: 5.0})
    1.0
    """
    rates = sorted(losses)
    if len(rates) < 3:
        return None
    place = min(range(len(rates)), key=lambda index: losses[rates[index]])
    if place in (0, len(rates) - 1):
        return rates[place]
    x = [math.log2(rate) for rate in rates[place - 1 : place + 2]]
    y = [losses[rate] for rate in rates[place - 1 : place + 2]]
    left, right = (y[1] - y[0]) / (x[1] - x[0]), (y[2] - y[1]) / (x[2] - x[1])
    if left == right:
        return rates[place]
    bend = (right - left) / (x[2] - x[0])
    return 2 ** ((x[0] + x[1]) / 2 - left / (2 * bend))


def measure(trained: Trained) -> Plain:
    """The learning rate, the width and the base width of muP; none under the standard parametrisation."""
    config = trained.run.config
    found = {"rate": config["training"]["optimizer"]["learning_rate"], "width": config["model"]["d_model"]}
    mup = config["model"].get("parametrisation")
    return found | ({} if mup is None else {"base_width": mup["base_width"]})


ABOUT = N_(
    "Loss after training, by learning rate. At the smallest width, the base width of muP, both parametrisations "
    "are one. The best rate of a seed is at the bottom of the parabola through its lowest loss and the two "
    "neighbours, over the logarithm of the rate. A rate tuned at the smallest width is then used at the others."
)


def _view(result: StudyResult, arms: Arms) -> View:
    """The losses by rate, the best rates, and their shifts against those of the base width."""
    widths = _widths(with_losses(result, arms))
    if not widths:
        return View()
    base = {width.kind: width for width in reversed(widths)}
    curves = [
        mean_curve(one.title, {rate: list(losses.values()) for rate, losses in one.losses.items()}) for one in widths
    ]
    axes = Axis(_("learning rate"), log=True), Axis(_("test loss"))
    figure = Lines(_("Loss against learning rate"), *axes, curves)
    return View(_(ABOUT), [_table(widths, base)], figure, _comparisons(widths, base), notes=_edges(widths))


def _widths(arms: Arms) -> list[Width]:
    """By parametrisation and width, the base width under both; only those with three rates."""
    found: dict[tuple[str, int], Losses] = {}
    bases = {arm.first["base_width"] for arm in arms if "base_width" in arm.first}
    for arm in arms:
        rate, width, scaled = arm.first["rate"], arm.first["width"], "base_width" in arm.first
        losses = {seed: run["loss"] for seed, run in arm.runs.items() if math.isfinite(run["loss"])}
        for kind, belongs in (("standard", not scaled), ("mup", scaled or width in bases)):
            if belongs and losses:
                found.setdefault((kind, width), {}).setdefault(rate, {}).update(losses)
    places = sorted(found, key=lambda place: (place[0] == "mup", place[1]))
    return [Width(*place, dict(sorted(found[place].items()))) for place in places if len(found[place]) >= 3]


def _rate(value: float) -> str:
    return number(value, ".3g")


def _table(widths: Sequence[Width], base: Mapping[str, Width]) -> Rows:
    rows = []
    for one in widths:
        logs = [math.log2(rate) for rate in one.best.values()]
        span = mean_interval(logs) if logs else None
        shown = NONE if span is None else _rate(2**span.mean)
        low, high = (None, None) if span is None else (span.low, span.high)
        ends = NONE if low is None or high is None else _("{low} to {high}", low=_rate(2**low), high=_rate(2**high))
        lowest, kept = fmean(one.losses[one.tuned].values()), one.losses.get(base[one.kind].tuned)
        moved = NONE if kept is None else number(fmean(kept.values()), ".3f")
        rows.append((one.title, shown, ends, _rate(one.tuned), number(lowest, ".3f"), moved))
    columns = (
        _("parametrisation and width"),
        _("best rate"),
        _("95% interval over seeds"),
        _("best of the grid"),
        _("loss at it"),
        _("loss at the rate tuned at the smallest width"),
    )
    return Rows(_("Best learning rates; losses are means over seeds."), columns, tuple(rows))


def _comparisons(widths: Sequence[Width], base: Mapping[str, Width]) -> list[Comparison]:
    """Shifts of the best rate from the smallest width, and muP against the standard one at the rate tuned there."""
    found = []
    for one in widths:
        smallest = base[one.kind]
        if one is not smallest:
            values, others = ({s: math.log2(rate) for s, rate in each.best.items()} for each in (one, smallest))
            found.append(Comparison(one.title, _("width {width}", width=smallest.width), DOUBLINGS, values, others))
    standard = {one.width: one for one in widths if one.kind == "standard"}
    for one in widths:
        other, rate = standard.get(one.width), base[one.kind].tuned
        if one.kind == "mup" and one is not base["mup"] and other is not None:
            name = _("loss at the rate tuned at width {width}", width=base["mup"].width)
            quantity = Quantity(name, better="lower")
            values, others = (each.losses.get(rate, {}) for each in (one, other))
            found.append(Comparison(one.title, other.title, quantity, values, others))
    return found


def _edges(widths: Sequence[Width]) -> list[Note]:
    """The widths whose best rate is the first or the last of the grid."""
    text = N_("{title}: the best rate is at the edge of the grid, {rate}.")
    at_edge = [one for one in widths if one.tuned in (min(one.losses), max(one.losses))]
    return [Note(_(text, title=capital(one.title), rate=_rate(one.tuned))) for one in at_edge]


PROBE = Probe("rates", N_("Learning rate and width"), measure, more=_view, seconds=(0.1, 0.1, 0.1))

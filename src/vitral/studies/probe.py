"""The probe: something a study measures besides the loss, and a short view of what was measured.

A probe's measurement is a call of a function of `vitral.inspection` or `vitral.evaluation`; its result is plain data,
kept as a JSON file beside the runs. A probe's view is a function of that data alone: quantities, contrasts and at most
one figure of its own. It decides nothing and words nothing: comparisons go to `vitral.studies.judging`. So an
interrupted study measures nothing twice, and a report is drawn again without a model.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, TypeVar

from vitral.core.errors import UsageError
from vitral.core.language import _
from vitral.data import Dataset
from vitral.data.batches import Split
from vitral.figures.sections import Paragraph, Section, Table
from vitral.model import Transformer
from vitral.runs import LoadedRun
from vitral.studies.claims import ENOUGH_SEEDS, LEVEL, Check, Comparison, Note, Plain, Quantity, Sample
from vitral.studies.design import BUDGETS, BudgetName
from vitral.studies.intervals import mean_interval
from vitral.studies.resolution import tokens_trained
from vitral.studies.results import StudyResult
from vitral.training import RunConfig

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from vitral.figures.lines import Axis, Line
    from vitral.figures.margin import Reference

Size = TypeVar("Size")


class _Sized:
    """What is measured more or less, as the budget says."""

    budget: BudgetName

    def size(self, *sizes: Size) -> Size:
        """The one of three sizes that the budget has: quick, standard, full."""
        return sizes[BUDGETS.index(self.budget)]


@dataclass(frozen=True)
class Trained(_Sized):
    """A finished run, as a probe of runs receives it.

    Attributes:
        arm: its name.
        seed: of the run.
        run: model in evaluation mode, tokenizer, configuration.
        dataset: the arm's text.
        budget: of the study; a smaller one asks for fewer samples.
        first: the text of the arm whose weights it began from; None for random weights.
        parent: the folder of the run whose last weights it began from; None for random weights.
    """

    arm: str
    seed: int
    run: LoadedRun
    dataset: Dataset
    budget: BudgetName
    first: Dataset | None = None
    parent: Path | None = None

    @property
    def model(self) -> Transformer:
        """The run's model."""
        return self.run.model

    @property
    def test(self) -> Split:
        """The test split of its text."""
        return self.dataset.splits["test"]

    @property
    def num_tokens(self) -> int:
        """Tokens the run was trained on."""
        return tokens_trained(self.run.config)


@dataclass(frozen=True)
class Setting(_Sized):
    """What a probe that needs no trained model receives.

    Attributes:
        base: the configuration of the study's base arm.
        dataset: the base arm's text.
        seed: the study's first, for random draws.
        budget: of the study.
    """

    base: RunConfig
    dataset: Dataset
    seed: int
    budget: BudgetName


def is_causal_lm(config: Mapping[str, Any]) -> bool:
    """Whether a run of this plain configuration predicts the next token from those before it, and nothing else."""
    training = config["training"]
    return training.get("objective", "next-token") == "next-token" and not training["allow_leak"]


def require_causal_lm(trained: Trained) -> None:
    """Refuse a run whose next-token loss has no meaning.

    Raises:
        UsageError: the run is a masked language model, or sees its targets.
    """
    if not is_causal_lm(trained.run.config):
        raise UsageError("{arm} is not trained to predict the next token from those before it", arm=trained.arm)


@dataclass(frozen=True)
class Plot:
    """A figure that the report writes and shows.

    Attributes:
        figure: drawn by `vitral.figures`.
        name: of its files; small letters and hyphens.
        caption: its content and how to read it.
        alt: the finding, for a reader who cannot see it.
    """

    figure: "Figure"
    name: str
    caption: str
    alt: str


@dataclass(frozen=True)
class View:
    """A probe's pieces of the report and everything in it that is to be judged.

    Attributes:
        sections: in order, figures among them; a text is a paragraph.
        comparisons: one exploratory family, judged by `vitral.studies.judging.judge`.
        checks: numbers beside the ranges that theory states.
        notes: facts that need no test.
    """

    sections: Sequence[Section | Plot | str] = ()
    comparisons: Sequence[Comparison] = ()
    checks: Sequence[Check] = ()
    notes: Sequence[Note] = ()

    @property
    def pieces(self) -> list[Section | Plot]:
        """The sections, with their texts as paragraphs."""
        return [Paragraph(one) if isinstance(one, str) else one for one in self.sections]


@dataclass(frozen=True)
class ArmMeasures:
    """What a probe measured of one arm.

    Attributes:
        name: of the arm.
        title: of the arm.
        config: its whole configuration as plain data, without a seed.
        runs: the measured data by seed, in increasing order; not empty.
    """

    name: str
    title: str
    config: Mapping[str, Any]
    runs: Mapping[int, Plain]

    @property
    def first(self) -> Plain:
        """The measured data of the first seed."""
        return next(iter(self.runs.values()))

    def values(self, quantity: Quantity) -> dict[int, float]:
        """The quantity by seed, of the runs that have it."""
        found = {seed: quantity.read(run) for seed, run in self.runs.items()}
        return {seed: value for seed, value in found.items() if value is not None}

    def mean(self, quantity: Quantity) -> float | None:
        """The quantity's mean over seeds; None where no run has it."""
        values = self.values(quantity)
        return fmean(values.values()) if values else None


Piece = Section | Plot | str
Arms = Sequence[ArmMeasures]
"""The arms of which at least one run was measured, in the study's order; the base is first where it was measured."""


@dataclass(frozen=True)
class Probe:
    """Measures every finished run, or once a whole study, without any of its trained models.

    Attributes:
        name: small letters and hyphens; its files are `measures/NAME/ARM-seed-N.json`, or `measures/NAME.json`.
        measure: from a `Trained`, or a `Setting`, to plain data, a function of it alone; raises `UsageError` with the
            reason for what it cannot measure, which is then left out.
        view: from the study and the measured arms, at least one, or the measured data, to the pieces of the report.
        seconds: by budget, about how long one measurement takes where a second does 1e11 operations of training.
        of_runs: whether it measures runs.
    """

    name: str
    measure: Callable[[Any], Plain]
    view: Callable[[StudyResult, Any], View]
    seconds: Mapping[str, float] = field(default_factory=dict)
    of_runs: bool = True


def with_losses(result: StudyResult, arms: Arms) -> tuple[ArmMeasures, ...]:
    """The arms with two more numbers for each run; runs without a test loss and arms without such a run are left out.

    "loss" is the test loss in the study's unit, "factor" converts nats per token to that unit.
    """
    found = []
    for arm in arms:
        trained = result.arm(arm.name)
        losses = {seed: {"loss": loss, "factor": trained.factor} for seed, loss in trained.losses.items()}
        runs = {seed: {**run, **losses[seed]} for seed, run in arm.runs.items() if seed in losses}
        found += [replace(arm, runs=runs)] if runs else []
    return tuple(found)


def line_over(label: str, arms: Arms, x: Quantity, y: Quantity) -> "Line":
    """The mean of one quantity against that of another, a point for each arm that has both; band: range over seeds."""
    points = sorted(
        (place, list(arm.values(y).values())) for arm in arms if (place := arm.mean(x)) is not None and arm.values(y)
    )
    return mean_line(label, [point[0] for point in points], [point[1] for point in points])


def mean_line(label: str, places: Sequence[float], values: Sequence[Sequence[float]]) -> "Line":
    """The mean of several values at each place; band: their range."""
    from vitral.figures.lines import Line

    return Line(label, places, [*map(fmean, values)], low=[*map(min, values)], high=[*map(max, values)])


def by_layer(arms: Arms, *states: str) -> Arms:
    """Every layer of every arm as an arm of its own.

    Args:
        arms: whose measured data has a list `layers`, or one in each of the states; it is cut to a single layer.
        states: keys of the measured data; none where `layers` is at its top.
    """

    def cut(run: Plain, layer: int) -> Plain:
        one = {state: run[state] | {"layers": [run[state]["layers"][layer]]} for state in states}
        return run | (one if states else {"layers": [run["layers"][layer]]})

    return [
        replace(
            arm,
            title=_("{arm}, layer {layer}", arm=arm.title, layer=layer),
            runs={seed: cut(run, layer) for seed, run in arm.runs.items()},
        )
        for arm in arms
        for layer in range(len((arm.first[states[0]] if states else arm.first)["layers"]))
    ]


def untrained_of(arm: ArmMeasures) -> ArmMeasures:
    """The model before training as an arm of its own; its measures are in each run under "untrained"."""
    runs = {seed: run["untrained"] for seed, run in arm.runs.items()}
    return replace(arm, name=f"{arm.name}-untrained", title=_("{arm}, untrained", arm=arm.title), runs=runs)


def against_base(arms: Arms, *quantities: Quantity, sample: Sample = "seeds") -> tuple[Comparison, ...]:
    """Every further arm against the first, in each quantity that both have."""
    base, *others = arms
    return tuple(
        _paired((arm, quantity), (base, quantity), base.title, sample)
        for arm in others
        for quantity in quantities
        if arm.values(quantity) and base.values(quantity)
    )


def lined(
    name: str,
    title: str,
    lines: "Sequence[Line]",
    axes: "tuple[Axis, Axis]",
    caption: str,
    alt: str,
    references: "Sequence[Reference]" = (),
) -> Plot:
    """A figure of lines."""
    from vitral.figures.lines import line_plot

    return Plot(line_plot(lines, *axes, references=references, title=title), name, caption, alt)


def within(arms: Arms, one: Quantity, other: Quantity) -> tuple[Comparison, ...]:
    """Two quantities of the same runs, in each arm that has both; unit, direction and digits are those of the first."""
    return tuple(
        _paired((arm, one), (arm, other), other.told, "seeds") for arm in arms if arm.values(one) and arm.values(other)
    )


def _paired(
    one: tuple[ArmMeasures, Quantity],
    other: tuple[ArmMeasures, Quantity],
    against: str,
    sample: Sample,
) -> Comparison:
    """The comparison, without a test where runs that both arms have miss the value on one side only.

    The shared rest would be a selection by the outcome: the runs in which the number happens to be defined.
    """
    (arm, quantity), (base, rival) = one, other
    values, others = arm.values(quantity), base.values(rival)
    runs = [run for run in arm.runs if run in base.runs]
    missing = sum((run in values) != (run in others) for run in runs)
    why = "" if not missing else _("{n} of {num} values are undefined on one side only", n=missing, num=len(runs))
    return Comparison(arm.title, against, quantity, values, others, arm.name, why, sample)


def mean_table(caption: str, arms: Arms, *quantities: Quantity, rows: str = "", counted: str = "") -> Table:
    """A row for each arm, a column for each quantity that some arm has: means over seeds, or a dash.

    A mean over fewer runs than the arm has is followed by their number.

    Args:
        caption: of the table.
        arms: or other things measured several times, such as strategies on several prompts.
        quantities: of the columns.
        rows: heading of the first column; "arm" where it is empty.
        counted: heading of a column with the number of runs; none where it is empty.
    """
    used = [quantity for quantity in quantities if any(arm.values(quantity) for arm in arms)]
    columns = [*([counted] if counted else []), *(quantity.label for quantity in used)]
    cells = tuple(
        (arm.title, *([str(len(arm.runs))] if counted else []), *(_mean_cell(arm, one) for one in used)) for arm in arms
    )
    return Table(caption, (rows or _("arm"), *columns), cells)


def _mean_cell(arm: ArmMeasures, quantity: Quantity) -> str:
    mean, num = quantity.show(arm.mean(quantity)), len(arm.values(quantity))
    return mean if num in (0, len(arm.runs)) else _("{mean} (n = {n})", mean=mean, n=num)


def extremes_told(title: str, values: Mapping[str, float], show: Callable[[float], str]) -> str:
    """The alternative text of a figure in one sentence: its least and its largest value, with their names.

    >>> extremes_told("Loss", {"a": 2.0, "b": 1.0, "c": 3.0}, str)
    'Loss: from 1.0 (b) to 3.0 (c).'
    """
    low, high = min(values, key=lambda name: values[name]), max(values, key=lambda name: values[name])
    if low == high:
        return _("{title}: {value} ({name}).", title=title, value=show(values[low]), name=low)
    told = {"title": title, "low": show(values[low]), "high": show(values[high])}
    return _("{title}: from {low} ({least}) to {high} ({most}).", **told, least=low, most=high)


def interval_plot(
    name: str, title: str, arms: Arms, quantity: Quantity, caption: str, *, dots: Sample = "seeds"
) -> tuple[Plot, ...]:
    """A row for each arm that has the quantity: seeds (or other repetitions) as dots, the mean with its interval."""
    from vitral.figures.intervals import IntervalRow, interval_dots

    rows = []
    for arm in arms:
        values = list(arm.values(quantity).values())
        if values:
            mean = mean_interval(values)
            rows.append(IntervalRow(arm.title, values, mean.mean, mean.low, mean.high))
    if not rows:
        return ()
    figure = interval_dots(rows, title=title, x_label=quantity.label)
    alt = extremes_told(title, {row.label: row.mean for row in rows}, quantity.show)
    marks = _("Small dots are {units}; the large mark is their mean with its 95% t interval.", units=_(dots))
    return (Plot(figure, name, f"{caption} {marks}", alt),)


def halves(length: int) -> list[tuple[int, int]]:
    """Groups of positions, from and up to, of which two make a doubling.

    >>> halves(8)
    [(0, 1), (1, 2), (2, 3), (3, 4), (4, 6), (6, 8)]
    """
    ends = {0, 1, length, *(size << n for n in range(20) for size in (2, 3) if size << n < length)}
    return [*pairwise(sorted(ends))]


def difference(name: str, one: Quantity, other: Quantity) -> Quantity:
    """One quantity less another of the same run, without a better direction; None where the run lacks either."""

    def read(run: Mapping[str, Any]) -> float | None:
        value, less = one.read(run), other.read(run)
        return None if value is None or less is None else value - less

    return Quantity(name, read, one.unit, digits=one.digits)


def in_range(
    arms: Arms, quantity: Quantity, *, low: float | None = None, high: float | None = None, expected: str = ""
) -> tuple[Check, ...]:
    """The mean of a quantity beside a range, in each arm of enough seeds; intervals hold for all arms together."""
    tested = [arm for arm in arms if len(arm.values(quantity)) >= ENOUGH_SEEDS]
    checks = []
    for arm in tested:
        found = mean_interval(list(arm.values(quantity).values()), 1 - LEVEL / len(tested))
        span = None if found.low is None or found.high is None else (found.low, found.high)
        what, unit, digits = quantity.told, quantity.unit, quantity.digits
        checks.append(Check(arm.title, what, found.mean, low, high, expected, unit, digits, span, arm.name))
    return tuple(checks)


def mean_lines(
    name: str, title: str, arms: Arms, points: Mapping[float, Quantity], x: "Axis", caption: str
) -> tuple[Plot, ...]:
    """A line for each arm that has them through the means over seeds of quantities, by their place on the x axis.

    Args:
        name: of the figure's files.
        title: of the figure.
        arms: of which at most `vitral.figures.lines.MOST_LINES` are drawn; the caption names the others.
        points: by place; name and unit of the first describe the y axis.
        x: the horizontal axis.
        caption: its content and how to read it.
    """
    from vitral.figures.lines import MOST_LINES, Axis, Line, left_out

    means = {arm.title: [arm.mean(quantity) for quantity in points.values()] for arm in arms}
    known = {label: [value for value in values if value is not None] for label, values in means.items()}
    lines = [Line(label, list(points), values) for label, values in means.items() if known[label]]
    if not lines:
        return ()
    one = next(iter(points.values()))
    names = [line.label for line in lines]
    alt = extremes_told(title, {label: known[label][-1] for label in names}, one.show)
    return (lined(name, title, lines[:MOST_LINES], (x, Axis(one.label)), f"{caption}{left_out(names)}", alt),)

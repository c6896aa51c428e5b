"""The probe: something a study measures besides the loss, and what is shown and compared of it, as data.

A probe's measure is a call of a function of `vitral.inspection` or `vitral.evaluation`; its result is plain data,
kept as a JSON file beside the runs. Quantities are read from that data; tables, contrasts, ranges and at most one
figure name them; what they do not say, a function of the measured data adds. Comparisons are judged by
`vitral.studies.judging`, the page is `vitral.report.study_views`.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from statistics import fmean, linear_regression
from typing import Any, NamedTuple, TypeVar

from vitral.core.errors import UsageError
from vitral.core.language import _
from vitral.data import Dataset
from vitral.data.batches import Split
from vitral.evaluation.intervals import LEVEL, mean_interval
from vitral.model import Transformer
from vitral.runs import LoadedRun
from vitral.studies.claims import Check, Comparison, Note, Plain, Quantity, Sample, to_fixed
from vitral.studies.design import BUDGETS, BudgetName
from vitral.studies.estimator import LEAST_SEEDS
from vitral.studies.figures import Axis, Line
from vitral.studies.losses import baseline_arm
from vitral.studies.resolution import is_causal_lm, tokens_trained
from vitral.studies.results import StudyResult
from vitral.training import RunConfig

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


def require_causal_lm(trained: Trained) -> None:
    """Refuse a run whose next-token loss has no meaning.

    Raises:
        UsageError: the run is a masked language model, or sees its targets.
    """
    if not is_causal_lm(trained.run.config):
        raise UsageError("{arm} is not trained to predict the next token from those before it", arm=trained.arm)


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
        values = {seed: quantity.read(run) for seed, run in self.runs.items()}
        return {seed: value for seed, value in values.items() if value is not None}

    def mean(self, quantity: Quantity) -> float | None:
        """The quantity's mean over seeds; None where no run has it."""
        values = self.values(quantity)
        return fmean(values.values()) if values else None


Arms = Sequence[ArmMeasures]
"""The arms of which at least one run was measured, in the study's order; the base is first where it was measured."""
Pairs = Callable[[StudyResult, Arms], Iterable[tuple[ArmMeasures, ArmMeasures]]]
Points = Iterable[tuple[float, float | None]]


# ---------------------------------------------------------------- what is compared


def base(result: StudyResult, arms: Arms) -> Iterable[tuple[ArmMeasures, ArmMeasures]]:
    """Every further arm with the first."""
    return ((arm, arms[0]) for arm in arms[1:])


def baseline(result: StudyResult, arms: Arms) -> Iterable[tuple[ArmMeasures, ArmMeasures]]:
    """Every arm with the one that its loss is compared with."""
    named = {arm.name: arm for arm in arms}
    pairs = ((arm, named.get(baseline_arm(result, result.arm(arm.name)).arm.name, arm)) for arm in arms)
    return (pair for pair in pairs if pair[0] is not pair[1])


def parent(result: StudyResult, arms: Arms) -> Iterable[tuple[ArmMeasures, ArmMeasures]]:
    """Every arm with the one whose weights it begins from."""
    named = {arm.name: arm for arm in arms}
    return ((arm, named[one]) for arm in arms if (one := result.arm(arm.name).arm.init_from) in named)


class Against(NamedTuple):
    """Quantities of one arm against those of another, where both have them."""

    quantities: Sequence[Quantity]
    pairs: Pairs = base
    sample: Sample = "seeds"

    def of(self, result: StudyResult, arms: Arms) -> list[Comparison]:
        """The comparisons, arm by arm."""
        return [
            _paired(arm, quantity, other, quantity, other.title, self.sample)
            for arm, other in self.pairs(result, arms)
            for quantity in self.quantities
            if arm.values(quantity) and other.values(quantity)
        ]


class Within(NamedTuple):
    """Two quantities of the same runs, in each arm that has both, and a third one if that is `given`.

    Unit, direction and digits are those of the first.
    """

    one: Quantity
    other: Quantity
    given: Quantity | None = None

    def of(self, result: StudyResult | None, arms: Arms) -> list[Comparison]:
        """The comparisons, arm by arm."""
        needed = [one for one in (self.one, self.other, self.given) if one is not None]
        return [
            _paired(arm, self.one, arm, self.other, self.other.title, "seeds")
            for arm in arms
            if all(arm.values(one) for one in needed)
        ]


class Fixed(NamedTuple):
    """Quantities of each arm against a value; `meaning` names it in the sentence."""

    quantities: Sequence[Quantity]
    value: float
    meaning: str

    def of(self, result: StudyResult | None, arms: Arms) -> list[Comparison]:
        """The comparisons, arm by arm."""
        meaning = _(self.meaning, value=self.value)
        return [
            to_fixed(arm.title, self.value, meaning, quantity, values, arm.name)
            for arm in arms
            for quantity in self.quantities
            if (values := arm.values(quantity))
        ]


def _paired(
    arm: ArmMeasures, quantity: Quantity, rival: ArmMeasures, same: Quantity, against: str, sample: Sample
) -> Comparison:
    """The comparison, without a test where runs that both arms have miss the value on one side only.

    The shared rest would be a selection by the outcome: the runs in which the number happens to be defined.
    """
    values, others = arm.values(quantity), rival.values(same)
    runs = [run for run in arm.runs if run in rival.runs]
    missing = sum((run in values) != (run in others) for run in runs)
    why = "" if not missing else _("{n} of {num} values are undefined on one side only", n=missing, num=len(runs))
    return Comparison(arm.title, against, quantity, values, others, arm.name, why, sample)


class Range(NamedTuple):
    """The mean of a quantity beside a range, in each arm of enough seeds; intervals hold for all arms together."""

    quantity: Quantity
    low: float | None = None
    high: float | None = None
    expected: str = ""

    def of(self, arms: Arms) -> list[Check]:
        """One check for each arm."""
        tested = [arm for arm in arms if len(arm.values(self.quantity)) >= LEAST_SEEDS]
        expected, checks = _(self.expected, low=self.low, high=self.high), []
        for arm in tested:
            mean = mean_interval(list(arm.values(self.quantity).values()), 1 - LEVEL / len(tested))
            span = None if mean.low is None or mean.high is None else (mean.low, mean.high)
            about = self.quantity.title, mean.mean, self.low, self.high, expected, self.quantity.unit
            checks.append(Check(arm.title, *about, self.quantity.digits, span, arm.name))
        return checks


# ---------------------------------------------------------------- what is shown


class Means(NamedTuple):
    """A table with a row for each arm and a column for each quantity that some arm has: means over seeds.

    Attributes:
        arms: or other things measured several times, such as strategies on several prompts.
        quantities: of the columns.
        caption: of the table; empty for "Means over seeds."
        rows: heading of the first column; empty for "arm".
    """

    arms: Arms
    quantities: Sequence[Quantity]
    caption: str = ""
    rows: str = ""


class Rows(NamedTuple):
    """A table of other things than arms.

    Attributes:
        caption: of the table.
        columns: headings.
        rows: one cell for each column, as text.
        prose: indices of columns of words.
    """

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    prose: tuple[int, ...] = ()


class Dots(NamedTuple):
    """A figure of the values of each arm, and their mean with its interval, for each quantity."""

    title: str
    quantities: Sequence[Quantity]
    arms: Arms = ()
    sample: Sample = "seeds"


class Course(NamedTuple):
    """A figure with a line for each arm through the means over seeds of what `read` finds in a run: place and value."""

    title: str
    x: Axis
    y: Axis
    read: Callable[[Mapping[str, Any]], Points]

    def of(self, arms: Arms) -> "Lines":
        """The lines of these arms, with the range over seeds as their bands."""
        lines = list[Line]()
        for arm in arms:
            values: dict[float, list[float]] = {}
            for x, value in chain.from_iterable(map(self.read, arm.runs.values())):
                if value is not None:
                    values.setdefault(x, []).append(value)
            lines += [mean_curve(arm.title, values)] if values else []
        return Lines(self.title, self.x, self.y, lines)


class Lines(NamedTuple):
    """A figure of lines; `levels` are horizontal ones, by name; `note` says how to read it."""

    title: str
    x: Axis
    y: Axis
    curves: Sequence[Line]
    levels: Mapping[str, float] | None = None
    note: str = ""


class View(NamedTuple):
    """What a page shows of a probe, and everything in it that is to be judged.

    Attributes:
        about: how it was measured, and how to read it.
        tables: in order.
        figure: at most one.
        comparisons: one exploratory family, judged by `vitral.studies.judging.judge`.
        checks: numbers beside the ranges that theory states.
        notes: facts that need no test.
        texts: whole texts by caption, shown on request.
    """

    about: str = ""
    tables: Sequence[Means | Rows] = ()
    figure: Dots | Lines | None = None
    comparisons: Sequence[Comparison] = ()
    checks: Sequence[Check] = ()
    notes: Sequence[Note] = ()
    texts: Mapping[str, str] | None = None


class Probe(NamedTuple):
    """Measures every finished run, or once a whole study, without any of its trained models.

    Attributes:
        name: small letters and hyphens; its files are `measures/NAME/ARM-seed-N.json`, or `measures/NAME.json`.
        title: of its part of the page.
        measure: from a `Trained`, or a `Setting`, to plain data, a function of it alone; raises `UsageError` with the
            reason for what it cannot measure, which is then left out.
        about: how it is measured and how to read it; its placeholders are keys of the first measured data.
        tables: of each, its quantities; an arm without the very first is left out.
        contrasts: of the one family of comparisons.
        figure: at most one.
        more: from the study and the measured arms, at least one, or the study's measured data, to what the lists do
            not say: its about, tables and judged things follow theirs, its figure replaces theirs.
        seconds: by budget, about how long one measurement takes where a second does 1e11 operations of training.
        of_runs: whether it measures runs.
    """

    name: str
    title: str
    measure: Callable[[Any], Plain]
    about: str = ""
    tables: Sequence[Sequence[Quantity]] = ()
    contrasts: Sequence[Against | Within | Fixed] = ()
    figure: Dots | Course | None = None
    more: Callable[[StudyResult, Any], View] | None = None
    seconds: tuple[float, float, float] = (2, 4, 12)
    of_runs: bool = True

    def view(self, result: StudyResult, measured: Any) -> View:
        """What is shown and judged of the measured arms, or of the study's measured data."""
        arms = [arm for arm in measured if not self.tables or arm.values(self.tables[0][0])] if self.of_runs else []
        if self.of_runs and not arms:
            return View()
        first, figure = arms[0].first if arms else measured, self.figure
        figure = figure._replace(arms=arms) if isinstance(figure, Dots) else figure and figure.of(arms)
        more = self.more(result, arms or measured) if self.more else View()
        return View(
            " ".join(filter(None, (self.about and _(self.about, **first), more.about))),
            (*(Means(arms, table) for table in self.tables), *more.tables),
            more.figure or figure,
            (*(one for contrast in self.contrasts for one in contrast.of(result, arms)), *more.comparisons),
            more.checks,
            more.notes,
            more.texts,
        )


# ---------------------------------------------------------------- what probes share


def mean_curve(label: str, values: Mapping[float, Sequence[float]]) -> Line:
    """The mean of several values at each place; band: their range."""
    x = sorted(values)
    y = [values[one] for one in x]
    return Line(label, x, [*map(fmean, y)], [*map(min, y)], [*map(max, y)])


def exponents(arms: Arms, key: str, quantity: Quantity) -> dict[int, float]:
    """The exponent with which a quantity grows with a number of the arms, seed by seed, see `slopes`."""
    logs = [{seed: math.log(value) for seed, value in arm.values(quantity).items()} for arm in arms]
    return slopes([math.log(arm.first[key]) for arm in arms], logs)


def slopes(x: Sequence[float], values: Sequence[Mapping[int, float]]) -> dict[int, float]:
    """The slope of the line of least squares through one value at each place, seed by seed where all have one."""
    if len({*x}) < 2:
        return {}
    seeds = [seed for seed in values[0] if all(seed in one for one in values)]
    return {seed: linear_regression(x, [one[seed] for one in values]).slope for seed in seeds}


def difference(name: str, one: Quantity, other: Quantity) -> Quantity:
    """One quantity less another of the same run, without a better direction; None where the run lacks either."""

    def read(run: Mapping[str, Any]) -> float | None:
        value, less = one.read(run), other.read(run)
        return None if value is None or less is None else value - less

    return Quantity(name, read, one.unit, digits=one.digits)

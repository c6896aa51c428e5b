"""An exercise and its key: as worked examples, and as a sheet of paper with boxes to fill in."""

import itertools
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor

from vitral.core.errors import UsageError
from vitral.core.language import N_, _
from vitral.explanation.examples.example import Example
from vitral.explanation.examples.file import parse_example
from vitral.explanation.exercises.exercise import KINDS, Effort, Exercise, Problem, effort, exponents, problems
from vitral.explanation.expressions import compute
from vitral.explanation.formulas import decimals, number, text
from vitral.explanation.formulas.notation import Expression
from vitral.explanation.phrasebook import phrases
from vitral.explanation.sheet import Sheet
from vitral.explanation.steps import Panel, Step
from vitral.explanation.walks import walk_example
from vitral.explanation.walkthrough import Walkthrough

_toml = partial(json.dumps, ensure_ascii=False)
"""A text, a number or a list as TOML."""

MOST_DRAWS = 400
"""Problems that are drawn before the easiest of them is taken; only sizes above the usual ones need so many."""
BORDER = 0.01
"""A number to compute is at least this share of a unit away from a border between two rounded numbers."""


def _load(work: Effort) -> float:
    return work.products + work.exponentials + 10 * (work.largest + work.exponent) + 100 * work.flat_rows


def _is_clear(example: Example) -> bool:
    """Whether every number to compute is whole, or away from the borders between two rounded numbers."""
    scale = 10.0**example.decimals
    for claim in example.claims:
        exact = example.sheet.values[claim.name] * scale
        exact = exact[exact.isfinite()]
        from_border = ((exact - 0.5) - (exact - 0.5).round()).abs()
        if bool((from_border < BORDER).any()):
            return False
    return True


def _answers(example: Example, *, blanks: bool) -> dict[str, Any]:
    """The numbers to compute, rounded, or "?" for each, by the keys of the file."""
    answers: dict[str, Any] = {}
    for claim in example.claims:
        value = example.sheet.values[claim.name]
        while value.dim() and len(value) == 1:
            value = value[0]
        words = example.sheet.vocabulary if claim.name == "greedy" and not blanks else ()
        answers[claim.label] = words[int(value)] if words else _answer(value, None if blanks else example.decimals)
    return answers


def _answer(value: Tensor, digits: int | None) -> Any:
    """Numbers of a file, rounded, in the nesting of the tensor; "?" for each without digits."""
    if value.dim():
        return [_answer(part, digits) for part in value]
    exact = float(value)
    if digits is None:
        return "?"
    if math.isinf(exact):
        return "inf" if exact > 0 else "-inf"
    rounded = round(exact, digits)
    return int(rounded) if rounded == 0 or abs(exact - round(exact)) < 10.0 ** -(digits + 3) else rounded


def _text(exercise: Exercise, problem: Problem, solved: Example | None = None, *, blanks: bool = False) -> str:
    """The file.

    Args:
        exercise: its kind and seed are the title.
        problem: its contents.
        solved: has the numbers under [claimed]; a "?" is in the place of a quantity if None.
        blanks: whether a "?" is in the place of each number, and a line says how to fill them in.
    """
    answers = dict.fromkeys(problem.asked, "?") if solved is None else _answers(solved, blanks=blanks)
    title = _("{kind}: exercise number {seed}", kind=_(KINDS[exercise.kind].title), seed=exercise.seed)
    lines = [f"title = {_toml(title)}"]
    settings = {**problem.settings, "decimals": exercise.decimals}
    lines += [f"{name} = {_toml(value)}" for name, value in settings.items()]
    for section, table in (("given", problem.given), ("steps", problem.steps)):
        if table:
            lines += ["", f"[{section}]", *(f"{_key(name):<3} = {_toml(value)}" for name, value in table.items())]
    hint = _("Put your numbers in place of the question marks, then: vitral check THIS_FILE")
    lines += ["", *([f"# {hint}"] if blanks else []), "[claimed]"]
    lines += [f"{_key(name)} = {_toml(answers[name])}" for name in problem.asked]
    return "\n".join(lines) + "\n"


def _key(name: str) -> str:
    return f'"{name}"' if name.rpartition("_")[2].replace(".", "").isdigit() or not name.isascii() else name


@dataclass(frozen=True)
class PaperGrid:
    """A table of numbers, or of boxes for numbers.

    Attributes:
        label: above it.
        rows: a label for each row.
        columns: a label for each column.
        cells: the numbers as text; None for a box.
        is_asked: whether it is to be filled in, so that its numbers have boxes on the key too.
    """

    label: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    cells: tuple[tuple[str | None, ...], ...]
    is_asked: bool = False


@dataclass(frozen=True)
class PaperTask:
    """One quantity to compute.

    Attributes:
        heading: what it is; with its number, if it is one of the six steps of attention.
        formulas: of each number; several if the quantity is computed from others that are not asked.
        grids: where the numbers go.
    """

    heading: str
    formulas: tuple[Expression, ...]
    grids: tuple[PaperGrid, ...]


@dataclass(frozen=True)
class Paper:
    """A sheet.

    Attributes:
        title: its heading.
        fields: lines for the name and the like, in order.
        intro: paragraphs.
        given_heading: above the given numbers.
        given: the given numbers.
        helps_heading: above the tables that help.
        helps: tables that help, as of exponentials.
        tasks: in order.
        decimals: digits of the numbers in formulas.
        language: BCP 47 code of the text.
    """

    title: str
    fields: tuple[str, ...]
    intro: tuple[str, ...]
    given_heading: str
    given: tuple[PaperGrid, ...]
    helps_heading: str
    helps: tuple[PaperGrid, ...]
    tasks: tuple[PaperTask, ...]
    decimals: int


TITLES = {
    "loss": N_("Loss"),
    "d_logits": N_("Derivative of the loss by each logit"),
    "d_w_u": N_("Derivative of the loss by each number of w_u"),
    "d_x": N_("Derivative of the loss by each number of x"),
    "difference": N_("Difference of each seed"),
    "average": N_("Mean of the differences"),
    "deviation": N_("Deviation of each difference from their mean"),
    "variance": N_("Variance of the differences"),
    "error": N_("Standard error of the mean"),
    "low": N_("Lower end of the interval"),
    "high": N_("Upper end of the interval"),
}
"""Headings of quantities that steps of the exercise compute."""
MOST_MULTIPLES = 8
"""If exponents are larger multiples of their unit, the sheet has no table of exponentials."""
MOST_COLUMNS = 9
"""Columns of such a table; a longer one goes on below."""
ALIKE = 1e-6
MOST_DIGITS = 4
"""Digits of given numbers."""


@dataclass(frozen=True)
class ExerciseSheet:
    """An exercise: its sheet, and the key with the same numbers filled in.

    Attributes:
        exercise: kind, sizes and seed.
    """

    exercise: Exercise

    @cached_property
    def toml(self) -> str:
        """The sheet as the text of a worked example, with question marks."""
        return _text(self.exercise, *self._solved, blanks=True)

    @cached_property
    def key_toml(self) -> str:
        """The key as the text of a worked example."""
        return _text(self.exercise, *self._solved)

    @cached_property
    def _solved(self) -> tuple[Problem, Example]:
        """The first problem of the exercise's stream that a hand can compute, and its solution."""
        easiest: tuple[float, Problem, Example] | None = None
        for problem in itertools.islice(problems(self.exercise), MOST_DRAWS):
            try:
                solved = parse_example(_text(self.exercise, problem))
            except UsageError:  # a norm of equal numbers
                continue
            work = effort(solved)
            if work.within(KINDS[self.exercise.kind].most) and _is_clear(solved):
                return problem, solved
            if easiest is None or _load(work) < easiest[0]:
                easiest = _load(work), problem, solved
        if easiest is None:
            raise UsageError("exercise: no numbers were found for these sizes; choose others, or another seed")
        return easiest[1:]

    @cached_property
    def key(self) -> Example:
        """The key."""
        return parse_example(self.key_toml)

    @cached_property
    def walkthrough(self) -> Walkthrough:
        """Every step with its arithmetic."""
        return walk_example(self.key)

    def paper(self, *, filled: bool = False) -> Paper:
        """The sheet as data; the key if `filled`."""
        key, say = self.key, phrases()
        asked = [claim.name for claim in key.claims]
        given, *steps = self.walkthrough.steps
        tasks: list[PaperTask] = []
        on_the_way: list[Step] = []
        for step in steps:
            on_the_way.append(step)
            if step.name in asked:
                tasks.append(_task(on_the_way, key, filled=filled))
                on_the_way = []
        title = _("Key: {title}", title=key.title) if filled else key.title

        def target(cell: float) -> str:
            return key.sheet.vocabulary[int(cell)]

        return Paper(
            title=title,
            fields=() if filled else (_("Name"), _("Date"), _("Points")),
            intro=() if filled else tuple(_intro(key)),
            given_heading=say("titles.given"),
            given=tuple(
                _grid(panel, target if panel.label.startswith("targets") else _exactly) for panel in given.panels
            ),
            helps_heading=_("Tables that help"),
            helps=() if filled else tuple(_helps(key)),
            tasks=tuple(tasks),
            decimals=key.decimals,
        )


def _intro(key: Example) -> Iterable[str]:
    """What to do, and the conventions of this exercise."""
    sheet, mask = key.sheet, type(key.sheet.architecture.mask).__name__
    yield _(
        "Compute the numbers of the empty boxes, with {decimals} digits after the point; whole numbers need none. "
        "Rows and columns are counted from 1.",
        decimals=key.decimals,
    )
    if "scaled" in sheet:
        yield _scale_in_words(sheet)
    if "masked" in sheet:
        causal = _(
            "The mask is causal: a position attends to itself and to those before it. Where it does not attend, "
            "the masked score is −∞ and the weight is 0."
        )
        yield causal if mask == "Causal" else _("There is no mask: every position attends to every position.")
    if any("norm" in quantity.name for quantity in sheet.quantities):
        yield _(
            "A norm subtracts the mean of a row and divides by its standard deviation, √variance; the variance "
            "divides by the number of columns. There is no ε, no gain and no bias."
        )
        yield _("The activation is ReLU: negative numbers become 0.")
    if sheet.architecture.sinusoidal:
        yield _(
            "The position p of the first row is 0, that of the second row 1. Column 1 is the sine of "
            "p / 10000^(0/d), column 2 its cosine, column 3 the sine of p / 10000^(2/d), and so on; d is the number "
            "of columns, and angles are in radians."
        )
    if "memory" in sheet.values:
        yield _(
            "The rows of x are positions of the decoder, those of memory are states of the encoder: queries come from "
            "x, keys and values from memory."
        )
    if "loss" in sheet:
        yield _(
            "The loss is the mean of −ln p over the positions; p is the probability of the position's target. The "
            "derivative by a logit is its probability, minus 1 for the target, divided by the number of positions. "
            "By the chain rule d_w_u = xᵀ d_logits and d_x = d_logits w_uᵀ."
        )
    if _("deviation") in sheet:
        yield _(
            "Two variants were trained from the same four seeds; base and other are their test losses. t is Student's "
            "factor for four numbers and 95%. Where the interval contains 0, no difference is shown."
        )
    if "greedy" in sheet:
        yield _(
            "Temperature T: each logit is first divided by T. Top-k keeps the k most probable words, "
            "top-p the most probable words until their sum reaches p, min-p those with at least p times the "
            "largest probability; those kept are divided by their sum."
        )


def _scale_in_words(sheet: Sheet) -> str:
    width, kind = sheet.values["q"].shape[-1], sheet.architecture.scale
    if kind == "sqrt":
        return _(
            "The scores are divided by √d_k = √{width} = {root}.",
            width=width,
            root=_exactly(math.sqrt(width)),
        )
    if kind == "linear":
        return _("The scores are divided by d_k = {width}.", width=width)
    return _("The scores are not scaled.")


def _task(steps: list[Step], key: Example, *, filled: bool) -> PaperTask:
    """The task of the last of these steps; the others are not asked."""
    say, last = phrases(), steps[-1]
    formulas = tuple(step.formula for step in steps if text(step.formula, key.decimals, say))
    words = key.sheet.vocabulary if last.name == "greedy" else ()

    def written(cell: float) -> str | None:
        return None if not filled else words[int(cell)] if words else _rounded(cell, key.decimals)

    grids = tuple(_grid(panel, written, is_asked=True) for panel in last.panels)
    titles = {name: _(title) for english, title in TITLES.items() for name in (english, _(english))}
    return PaperTask(titles.get(last.name, last.title), formulas, grids)


def _grid(panel: Panel, written: Callable[[float], str | None], *, is_asked: bool = False) -> PaperGrid:
    rows = tuple(tuple(map(written, row)) for row in panel.matrix)
    return PaperGrid(panel.label, panel.row_labels, panel.column_labels, rows, is_asked)


def _exactly(value: float) -> str:
    """A given number with the digits it has."""
    return phrases().number(number(value, decimals(MOST_DIGITS, value)))


def _rounded(value: float, digits: int) -> str:
    is_whole = decimals(1, value, slack=10.0 ** -(digits + 3)) == 0
    return phrases().number(number(value, 0 if is_whole else digits))


def _helps(key: Example) -> Iterable[PaperGrid]:
    """Tables of exponentials, logarithms, sines and cosines, with more entries than are needed."""
    rows = exponents(key.sheet)
    if "logits" in key.sheet.values:
        yield from _table("n", [*range(1, 13)], {"ln n": math.log})
    elif rows and "scaled" in key.sheet:
        unit = float(compute(key.sheet["scaled"].tree, {"scores": torch.ones(1, 1, 1).double()}))
        multiples = [entry / unit for row in rows for entry in row]
        most = max(map(abs, multiples), default=0)
        if most <= MOST_MULTIPLES and all(abs(multiple - round(multiple)) < ALIKE for multiple in multiples):
            steps = [unit * multiple for multiple in range(-round(most), round(most) + 1)]
            yield from _table("x", steps, {"eˣ": math.exp})
    if key.sheet.architecture.sinusoidal:
        time, width = key.sheet.values["position_embedding"].shape
        angles = {position / 10.0**power for position in range(time) for power in range(width // 2 + 1)}
        yield from _table("x", sorted(angles), {"sin x": math.sin, "cos x": math.cos})


def _table(name: str, values: list[float], functions: Mapping[str, Callable[[float], float]]) -> Iterator[PaperGrid]:
    """Functions at some arguments, in pieces that fit side by side."""
    for start in range(0, len(values), MOST_COLUMNS):
        piece = values[start : start + MOST_COLUMNS]
        lines = [tuple(_exactly(value) for value in piece)]
        lines += [tuple(_significant(function(value)) for value in piece) for function in functions.values()]
        yield PaperGrid("", (name, *functions), ("",) * len(piece), tuple(lines))


def _significant(value: float) -> str:
    """A number with four digits; below 1, with four after the point."""
    return _rounded(value, 4 - sum(abs(value) >= limit for limit in (1, 10, 100)))

"""An exercise as the text of a worked example: with blanks, or with the numbers filled in."""

import itertools
import json
import math
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from vitral.core.errors import UsageError
from vitral.core.language import _
from vitral.explanation.examples.example import Example
from vitral.explanation.examples.file import parse_example
from vitral.explanation.exercises.effort import Effort, effort
from vitral.explanation.exercises.exercise import KINDS, Exercise
from vitral.explanation.exercises.problems import LIMITS, Problem, problems

MOST_DRAWS = 400
"""Problems that are drawn before the easiest of them is taken; only sizes above the usual ones need so many."""
BORDER = 0.01
"""A number to compute is at least this share of a unit away from a border between two rounded numbers."""


def exercise_text(exercise: Exercise, *, blanks: bool = True) -> str:
    """The exercise as the text of a worked example.

    Args:
        exercise: its kind, sizes and seed.
        blanks: whether to write the numbers to compute as "?" under [claimed].
    """
    problem, solved = problem_of(exercise)
    return _text(exercise, problem, _answers(solved, blanks=True) if blanks else {}, blanks=blanks)


def key_text(exercise: Exercise) -> str:
    """The exercise as the text of a worked example, with all numbers computed."""
    problem, solved = problem_of(exercise)
    return _text(exercise, problem, _answers(solved))


def problem_of(exercise: Exercise) -> tuple[Problem, Example]:
    """The first problem of the exercise's stream that a hand can compute, and its solution."""
    easiest: tuple[float, Problem, Example] | None = None
    for problem in itertools.islice(problems(exercise), MOST_DRAWS):
        try:
            solved = parse_example(_text(exercise, problem, dict.fromkeys(problem.asked, "?")), no_preset)
        except UsageError:  # a norm of equal numbers
            continue
        work = effort(solved)
        if work.within(LIMITS[exercise.kind]) and _is_clear(solved):
            return problem, solved
        if easiest is None or _load(work) < easiest[0]:
            easiest = _load(work), problem, solved
    if easiest is None:
        raise UsageError("exercise: no numbers were found for these sizes; choose others, or another seed")
    return easiest[1:]


def _load(work: Effort) -> float:
    return work.products + work.exponentials + 10 * (work.largest + work.exponent) + 100 * work.flat_rows


def no_preset(name: str) -> Any:
    """Exercises have no parameter tables.

    Raises:
        UsageError: always.
    """
    raise UsageError("preset {name!r}: an exercise has none", name=name)


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


def _answers(example: Example, *, blanks: bool = False) -> dict[str, Any]:
    """The numbers to compute, rounded, or "?" for each, by the keys of the file."""
    answers: dict[str, Any] = {}
    for claim in example.claims:
        value = example.sheet.values[claim.name]
        while value.dim() and len(value) == 1:
            value = value[0]
        words = example.sheet.vocabulary if claim.name == "greedy" and not blanks else ()
        answers[claim.label] = words[int(value)] if words else _rounded(value, None if blanks else example.decimals)
    return answers


def _rounded(value: Tensor, decimals: int | None) -> Any:
    if value.dim():
        return [_rounded(part, decimals) for part in value]
    number = float(value)
    if decimals is None:
        return "?"
    if math.isinf(number):
        return "inf" if number > 0 else "-inf"
    near = round(number, decimals)
    return int(near) if near == 0 or abs(number - round(number)) < 10.0 ** -(decimals + 3) else near


def _text(exercise: Exercise, problem: Problem, answers: Mapping[str, Any], *, blanks: bool = False) -> str:
    """The file.

    Args:
        exercise: its kind and seed are the title.
        problem: its contents.
        answers: the numbers under [claimed]; without any there is no such table.
        blanks: whether a line says how to fill them in.
    """
    title = _("{kind}: exercise number {seed}", kind=_(KINDS[exercise.kind].title), seed=exercise.seed)
    lines = [f"title = {_literal(title)}"]
    lines += [f"{name} = {_literal(value)}" for name, value in problem.settings.items()]
    for section, table in (("given", problem.given), ("steps", problem.steps)):
        if table:
            lines += ["", f"[{section}]", *(f"{name:<3} = {_literal(value)}" for name, value in table.items())]
    if answers:
        hint = _("Put your numbers in place of the question marks, then: vitral check THIS_FILE")
        lines += ["", *([f"# {hint}"] if blanks else []), "[claimed]"]
        lines += [f"{_key(name)} = {_literal(answers[name])}" for name in problem.asked]
    return "\n".join(lines) + "\n"


def _key(name: str) -> str:
    return f'"{name}"' if name.rpartition("_")[2].replace(".", "").isdigit() else name


def _literal(value: Any) -> str:
    """A value as TOML."""
    if isinstance(value, list):
        return "[" + ", ".join(map(_literal, value)) + "]"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)

"""Computations in numbers, from Python: `explain`, `check` and `exercise`, as the commands of these names."""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

import vitral.reports.checked_example  # noqa: F401  registers the page of a checked example
from vitral.core.checked import Natural, checked
from vitral.core.devices import DtypeName
from vitral.core.errors import UsageError
from vitral.core.language import language
from vitral.explanation import CheckReport, Choice, RunView, Walkthrough, exercise_of, walk_backward, walk_example
from vitral.explanation import check as check_example
from vitral.explanation.examples.example import Example
from vitral.explanation.exercises.sheets import ExerciseSheet
from vitral.lab.examples import correct, find_example, make_exercise
from vitral.lab.exercises import write_sheets
from vitral.lab.opened import opened
from vitral.lab.run import Run, Which
from vitral.runs import is_run

Numbers = Natural | Sequence[Natural] | Literal["all"] | None
"""Blocks or heads: one, several, "all", or None for the usual ones."""
TEXT = "To be"
FIXABLE = ("rounding", "unclear", "follows", "wrong")


@checked
def explain(
    what: str | Path | Run,
    text: str | None = None,
    *,
    layer: Numbers = None,
    head: Numbers = None,
    query: Natural | None = None,
    key: Natural | None = None,
    column: Natural | None = None,
    block: bool = False,
    ending: bool = False,
    backward: bool = False,
    cell: str | None = None,
    replace: str | None = None,
    checkpoint: Which | None = None,
    device: str | None = None,
    dtype: DtypeName | None = None,
) -> Walkthrough:
    """Show a computation step by step in numbers: that of a worked example, or of a run on a text.

    Positions, heads and features of a run count from 0, those of a worked example from 1. The language is the current
    one (`vitral.set_language`).

    Args:
        what: a worked example, by file or name (`vitral.list_examples`), or a run.
        text: of a run: what the model reads; "To be" if None.
        layer: of a run: blocks to show; block 0 if None.
        head: heads to show; head 0 of a run, all of an example if None.
        query: position to work through; the middle one if None, or the last where the next token is chosen.
        key: position to work through; the most attended if None.
        column: feature to work through; the first if None.
        block: of a run: show embeddings and whole blocks, not attention only.
        ending: of a run: also show logits, probabilities and the choice.
        backward: show the backward pass: the gradient of one number, or of a run's next-token loss.
        cell: of an example, with `backward`: the number, as "output[2,1]"; the last quantity's if None.
        replace: of a run: a character in place of those that the model has never seen.
        checkpoint: of a run: "best" or "last".
        device: of a run.
        dtype: of a run: precision of the arithmetic.

    Raises:
        UsageError: neither a run nor an example, or a block, head or position that it does not have.
    """
    if cell is not None and not backward:
        raise UsageError("explain: --cell goes with --backward and a worked example")
    of_run = isinstance(what, Run) or is_run(what) or os.path.isdir(what)
    first = 0 if of_run else 1
    places = (None if place is None else place - first for place in (query, key, column))
    heads = numbers(head, first) if head is not None else ((0,) if of_run else None)
    at_query, at_key, at_column = places
    choice = Choice(heads, at_query, at_key, at_column or 0)
    if of_run:
        layers = (0,) if layer is None else numbers(layer, 0)
        view = RunView(layers, choice, block=block, ending=ending, language=language(), backward=backward)
        return opened(what, checkpoint, device, dtype).explain(TEXT if text is None else text, view, replace=replace)
    of_runs_only = {"text": text, "layer": layer, "block": block, "ending": ending, "replace": replace}
    of_runs_only |= {"checkpoint": checkpoint, "device": device, "dtype": dtype}
    given = [name for name, value in of_runs_only.items() if value not in (None, False)]
    if given:
        raise UsageError("explain: {what} is no run; leave out {name}, or give a run", what=what, name=given[0])
    example = find_example(str(what))
    return walk_backward(example, cell, choice, language()) if backward else walk_example(example, choice, language())


def numbers(chosen: Numbers, first: int) -> tuple[int, ...] | None:
    """Blocks or heads counted from 0; None for all.

    Raises:
        UsageError: the list is empty.

    >>> numbers(2, 1), numbers([1, 3], 1), numbers("all", 1)
    ((1,), (0, 2), None)
    """
    if chosen is None or isinstance(chosen, str):
        return None
    several = tuple(chosen) if isinstance(chosen, Iterable) else (chosen,)
    if not several:
        raise UsageError("explain: an empty list; give a number, or all")
    return tuple(dict.fromkeys(int(one) - first for one in several))


@checked
def check(example: str | Path, *, fix: bool = False, out: str | Path | None = None) -> CheckReport:
    """Check the numbers of a worked example: which is wrong first, and why.

    Args:
        example: a file in any format of docs/examples.md, or a name of the gallery (`vitral.list_examples`).
        fix: write the corrected example as NAME.fixed.SUFFIX, in its format, if there is anything to correct.
        out: with `fix`, the folder to write to; beside the example if None.

    Raises:
        UsageError: there is no such example, it cannot be read (with the line of the file), or the corrected file
            exists.
        StorageError: writing to disk failed.
    """
    if out is not None and not fix:
        raise UsageError("check: out goes with fix=True")
    report = check_example(find_example(example))
    if fix and report.worst in FIXABLE:
        correct(report, None if out is None else Path(out))
    return report


@checked
def exercise(
    file: str | Path | None = None, *, kind: str | None = None, out: str | Path | None = None, **sizes: Any
) -> Example:
    """Make a small exercise, to be solved by hand and checked.

    Args:
        file: write it to this file, with question marks to fill in; not written if None.
        kind: a name of `vitral.explanation.KINDS`, as "attention" or "loss", with numbers that a hand can compute with;
            None for attention with any numbers.
        out: write the sheet in every form and its key into this folder; with the ending of one form, only this form,
            and the key beside it.
        sizes: fields of `vitral.explanation.Exercise`: positions, d_model, num_heads, mask, scale, seed.

    Raises:
        UsageError: an invalid size, or a file exists.
        StorageError: writing to disk failed.
    """
    chosen = exercise_of(kind, **sizes)
    if out is not None:
        write_sheets([ExerciseSheet(chosen)], Path(out))
    return make_exercise(chosen, None if file is None else Path(file))

"""Computations in numbers: `explain`, `exercise`, `check`, `grade`."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from annotated_types import Interval

from vitral.app.arguments import (
    Argument,
    Callback,
    Numbers,
    Option,
    Paths,
    RunLike,
    Which,
    given,
    numbers,
    opened,
    path_of,
    points,
    validated,
)
from vitral.core.errors import UsageError
from vitral.core.language import _, in_language, language

if TYPE_CHECKING:
    from vitral.explanation import CheckReport, Choice, Walkthrough
    from vitral.explanation.examples.example import Example
    from vitral.report.graded_class import GradedClass

TEXT = "To be"
FIXABLE = ("rounding", "unclear", "follows", "wrong")


@validated
def explain(
    what: Annotated[RunLike, Argument("EXAMPLE.toml|NAME|RUN", offers="examples")],
    text: Annotated[str | None, Option()] = None,
    *,
    source: str | None = None,
    replace: str | None = None,
    layer: Numbers = None,
    head: Numbers = None,
    query: int | None = None,
    key: int | None = None,
    column: int | None = None,
    block: bool = False,
    ending: bool = False,
    backward: bool = False,
    cell: Annotated[str | None, Option(metavar="NAME[2,1]")] = None,
    checkpoint: Which = None,
) -> "Walkthrough":
    """Show a computation step by step in numbers.

    The computation is that of a worked example, or of a run on a text, in double precision.

    Positions, heads and features of a run count from 0, those of a worked example from 1.

    Args:
        what: A worked example, by file or name (vitral list examples), or a run.
        text: Run only: text the model reads.  [default: To be]
        source: Encoder-decoder only: text that the encoder reads; --text is then how its answer begins.
        replace: Character to put in place of ones the model has never seen.  [default: refuse them]
        layer: Run only: blocks to show, as in 0 or 0,1 or all.  [default: 0, from the characters to the
            probabilities]
        head: Heads to show, as in 0 or 0,1 or all; worked examples count from 1.  [default: 0 of a run, all of an
            example]
        query: Query position to work through.  [default: the middle one; the last with --ending]
        key: Key position to work through.  [default: the most attended]
        column: Feature to work through.  [default: the first]
        block: Run only: show embeddings and whole blocks.  [default: with --layer, attention only]
        ending: Run only: show logits, probabilities and the choice.
        backward: Show the backward pass: the gradient of one number, or of a run's next-token loss.
        cell: With --backward, example only: the number, as in z[2,1].  [default: the last quantity's]
        checkpoint: Checkpoint with the lowest validation loss (best), or the last one.

    Raises:
        UsageError: neither a run nor an example, or a block, head or position that it does not have.
    """
    from vitral.explanation import RunView, walk_backward, walk_example, walk_run
    from vitral.explanation.examples.by_name import find_example
    from vitral.explanation.walks import predicts_next

    is_run = not isinstance(what, str | Path) or path_of(what).is_dir()
    if cell is not None and (is_run or not backward):
        raise UsageError("explain: --cell goes with --backward and a worked example")
    choice = choice_of(0 if head is None and is_run else head, query, key, column, int(not is_run))
    if is_run:
        loaded = opened(what, checkpoint)
        if loaded.hooks:
            raise UsageError("explain: functions have no steps to show; give the run without hooks")
        whole = layer is None and not (block or ending or backward)
        view = RunView(
            _counted(0 if layer is None else layer, 0),
            choice,
            block=block or whole,
            ending=ending or (whole and predicts_next(loaded.model)),
            language=language(),
            backward=backward,
        )
        if (source is None) != (loaded.model.encoder is None):
            raise UsageError("{path}: an encoder-decoder needs a --source, and no other model reads one", path=what)
        if source is not None:
            source = loaded.readable(source, replace)
            text = loaded.answer(text or "")
        read = loaded.readable(TEXT if text is None else text, replace)
        return walk_run(loaded.model, loaded.tokenizer, read, view, loaded.path.name, source)
    of_runs = given(text=text, source=source, replace=replace, layer=layer, block=block or None, ending=ending or None)
    if of_runs:
        raise UsageError(
            "explain: {what} is no run; leave out {given}, or give the folder of a run",
            what=what,
            given=_(" and ").join(f"--{name}" for name in of_runs),
        )
    example = find_example(str(what))
    return walk_backward(example, cell, choice) if backward else walk_example(example, choice)


def choice_of(head: Any, query: int | None, key: int | None, column: int | None, first: int) -> "Choice":
    """The cells to work through; `first` is the number that the user gives to the first position and head.

    Raises:
        UsageError: no head is named.
    """
    from vitral.explanation import Choice

    query, key, column = (None if position is None else position - first for position in (query, key, column))
    return Choice(_counted(head, first), query, key, column or 0)


def _counted(chosen: Any, first: int) -> tuple[int, ...] | None:
    """Blocks or heads counted from 0; None for all.

    Raises:
        UsageError: the list is empty.
    """
    if chosen is None or chosen == "all":
        return None
    several = [chosen] if isinstance(chosen, int) else chosen
    if not several:
        raise UsageError("an empty list; give a number, or all")
    return tuple(dict.fromkeys(number - first for number in several))


@validated
def exercise(
    kind: Annotated[Paths | None, Argument("KIND", offers="kinds")] = None,
    file: Annotated[Paths | None, Argument("FILE.toml", Path)] = None,
    *,
    positions: int | None = None,
    d_model: int | None = None,
    num_heads: int | None = None,
    mask: str | None = None,
    scale: str | None = None,
    seed: Annotated[int | Sequence[int], Option(parsed=str, read=numbers)] = 1,
    out: Paths | None = None,
    count: Annotated[int | None, Interval(ge=1, le=1000)] = None,
    practice: bool = False,
    on_written: Callback | None = None,
) -> "Example":
    """Make small exercises to solve by hand, with their keys.

    With KIND and --out FOLDER each exercise is written as a sheet in every form (.toml, .tex, .html to print,
    .xlsx), and its key into a folder inside it; with --out FILE only in the form of the ending.

    With FILE.toml the exercise is written there: fill it in, then run vitral check FILE.toml. Without a file the
    solution is shown step by step; the same kind, sizes and seed give the same numbers.

    Args:
        kind: attention, multi-head, block, positions, choice, loss, cross-attention, difference; left out: attention.
        file: File to write the exercise to, with question marks to fill in.  [default: show the solution]
        positions: Number of tokens, 1 to 8.  [default: 3; block, cross-attention: 2]
        d_model: Width of the model, 1 to 8.  [default: 4]
        num_heads: Number of heads; must divide the width.  [default: 1; multi-head: 2]
        mask: causal or bidirectional.  [default: causal]
        scale: Scale of the scores: none, sqrt (1/√d_k) or linear (1/d_k).  [default: sqrt; multi-head: linear]
        seed: Seed of the numbers, as 7 or 1,2,3; another is another exercise.
        out: File to write the walkthrough to.  [default: the screen]
        count: Number of exercises, one for each student; the seeds count up.  [default: 1]
        practice: Also write pages that judge each number as it is filled in.
        on_written: Python only: called with the `WrittenExercise`, the paths of sheets and keys.

    Note:
        Returned is the first exercise. A file may stand in the place of the kind.

    Raises:
        UsageError: an invalid size, or a file exists.
        StorageError: writing to disk failed.
    """
    from vitral.app.exercises import write_sheets
    from vitral.core.config import nearest
    from vitral.explanation import KINDS, exercise_of
    from vitral.explanation.examples.by_name import make_exercise
    from vitral.explanation.exercises.sheets import ExerciseSheet

    if kind is not None and str(kind) not in KINDS:
        if file is not None or not str(kind).endswith(".toml"):
            raise UsageError("exercise: no kind {kind!r}; {hint}", kind=str(kind), hint=nearest(str(kind), KINDS))
        kind, file = None, kind
    chosen = list(dict.fromkeys([seed] if isinstance(seed, int) else seed))
    if count is not None and len(chosen) > 1:
        raise UsageError("exercise: give several seeds or --count, not both")
    if count is not None:
        chosen = range(chosen[0], chosen[0] + count)
    sizes = {"positions": positions, "d_model": d_model, "num_heads": num_heads, "mask": mask, "scale": scale}
    made = [exercise_of(kind and str(kind), **sizes, seed=one) for one in chosen]
    if kind is not None and out is not None and file is None:
        written = write_sheets([ExerciseSheet(one) for one in made], Path(out), with_practice=practice)
        if on_written is not None:
            on_written(written)
    elif practice:
        raise UsageError("exercise: --practice goes with KIND and --out FOLDER")
    elif len(made) > 1:
        raise UsageError("exercise: several exercises need KIND and --out FOLDER")
    return make_exercise(made[0], None if file is None else Path(file))


@validated
def check(
    example: Annotated[Paths, Argument("FILE|NAME|-", offers="examples", each=True)],
    *,
    fix: bool = False,
    out: Paths | None = None,
) -> "CheckReport":
    """Check the numbers of worked examples.

    Reports which number is wrong first, and why.

    Exit code 0 if nothing is worse than rounding, 1 if a number is wrong, 2 if a file cannot be read; the other files
    are checked all the same.

    Args:
        example: Worked examples, by file (TOML, Markdown, CSV, .xlsx) or by name (vitral list examples); - is
            the standard input.
        fix: Write each corrected example beside it, in its format.  [default: only report]
        out: With --fix: folder to write to.  [default: beside the example]

    Raises:
        UsageError: there is no such example, it cannot be read (with its line), or the corrected file exists.
        StorageError: writing to disk failed.
    """
    from vitral.explanation import check
    from vitral.explanation.examples.by_name import find_example

    if out is not None and not fix:
        raise UsageError("check: --out goes with --fix")
    report = check(find_example(example))
    if fix:
        corrected(report, out)
    return report


def corrected(report: "CheckReport", out: Paths | None) -> Path | None:
    """Write the corrected example, if there is anything to correct, and return its path.

    Raises:
        UsageError: the file exists.
        StorageError: writing to disk failed.
    """
    from vitral.explanation.examples.by_name import correct

    return correct(report, out) if report.worst in FIXABLE else None


@validated
def grade(
    folder: Annotated[Paths, Argument("FOLDER", Path)],
    key: Annotated[Paths | Sequence[Paths], Option(parsed=list[str], offers="examples")],
    *,
    rule: Annotated[Any, Option(parsed=Path)] = None,
    points: Annotated[dict[str, float] | None, Option(parsed=str, read=points)] = None,
    total: float | None = None,
    marked: Paths | None = None,
    out: Paths | None = None,
) -> "GradedClass":
    """Grade the sheets of a class.

    Every number is checked with the given numbers of the key. A step has one point, shared among its numbers; what
    follows from an earlier wrong number has full credit.

    Exit code 0 if every file could be graded, 2 if some could not; the others are graded all the same.

    Args:
        folder: Folder with a file for each student.
        key: The key, or the exercise itself; a folder of keys, or the option repeated, for several exercises.
        rule: TOML file with points and credit.  [default: 1 point for each step]
        points: Points of steps, as in weights=3,output=2.
        total: Points of a sheet without fault.  [default: the sum of the steps]
        marked: Folder for a page of each sheet with its marks.
        out: File for the page of the class (.html).

    Raises:
        UsageError: there is no folder, no key or no sheet, a key or the rule cannot be read, or a file to write exists.
        StorageError: writing to disk failed.
    """
    from vitral.core.files import require_free, storage
    from vitral.explanation.examples.by_name import write_new
    from vitral.explanation.grading.grading import check_rule
    from vitral.explanation.grading.sheets import (
        answer_keys,
        different_keys,
        graded_sheet,
        grading_rule,
        key_notes,
        sheet_files,
        sheet_names,
    )
    from vitral.report.checked_sheet import marked_page
    from vitral.report.graded_class import GradedClass

    known = list(answer_keys([key] if isinstance(key, str | Path) else key))
    keys, used, home = different_keys(known), grading_rule(rule, points, total), Path(folder)
    check_rule(used, keys)
    ours = [Path(path) for path in (out, marked, rule) if isinstance(path, str | Path)]
    names = sheet_names(home, sheet_files(home, [*(each.example.path for each in known), *ours]))
    if not names:
        raise UsageError("{folder}: has no sheets", folder=home)
    pages = {name: Path(marked, f"{name}.html") for name in names.values()} if marked is not None else {}
    page = None if out is None else Path(out)
    for path in filter(None, (*pages.values(), page)):
        require_free(path)
    with in_language("en"):
        sheets = [graded_sheet(path, name, keys, used) for path, name in names.items()]
        notes = tuple(key_notes(keys))
    graded = GradedClass(tuple(keys), used, tuple(sorted(sheets, key=lambda sheet: sheet.name)), notes)
    each = {one.name: one.grade for one in graded.graded if one.grade is not None and pages}
    made = {pages[name]: marked_page(name, grade) for name, grade in each.items()}
    made |= {} if page is None else {page: graded.page()}
    for path, content in made.items():
        with storage(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        write_new(path, content)
    return graded

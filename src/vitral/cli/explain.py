"""vitral explain: a computation in numbers, step by step."""

import dataclasses
import os
from pathlib import Path
from typing import Annotated

import typer

from vitral.cli.complaints import complain
from vitral.cli.completion import complete_explained
from vitral.cli.exercise import exercise as make_exercise
from vitral.cli.options import (
    AllOption,
    ColumnOption,
    DeviceName,
    DeviceOption,
    DigitsOption,
    DtypeOption,
    FileOption,
    Form,
    FormOption,
    HeadOption,
    KeyOption,
    Precision,
    QueryOption,
    ReplaceOption,
    SortTermsOption,
    Which,
    WhichOption,
    choice_of,
    numbers,
)
from vitral.core.errors import UsageError
from vitral.core.language import _

WhatArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="EXAMPLE.toml|NAME|RUN",
        help="A worked example, by file or name (vitral list examples), or a run.",
        autocompletion=complete_explained,
    ),
]

LayerOption = Annotated[
    str | None, typer.Option("--layer", help="Run only: blocks to show, as in 0 or 0,1 or all.  [default: 0]")
]
BlockOption = Annotated[
    bool, typer.Option("--block", help="Run only: show embeddings and whole blocks.  [default: attention only]")
]
EndingOption = Annotated[
    bool, typer.Option("--ending", help="Run only: also show logits, probabilities and the choice.")
]
BackwardOption = Annotated[
    bool,
    typer.Option(
        "--backward", help="Show the backward pass: the gradient of one number, or of a run's next-token loss."
    ),
]
CellOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME[2,1]",
        help="With --backward, example only: the number, as in z[2,1].  [default: the last quantity's]",
    ),
]


def explain(
    what: WhatArgument = None,
    text: Annotated[str | None, typer.Option(help="Run only: text the model reads.  [default: To be]")] = None,
    replace: ReplaceOption = None,
    layer: LayerOption = None,
    head: HeadOption = None,
    query: QueryOption = None,
    key: KeyOption = None,
    column: ColumnOption = None,
    block: BlockOption = False,
    ending: EndingOption = False,
    backward: BackwardOption = False,
    cell: CellOption = None,
    all: AllOption = False,
    sort_terms: SortTermsOption = False,
    digits: DigitsOption = 3,
    format: FormOption = Form.text,
    out: FileOption = None,
    checkpoint: WhichOption = Which.best,
    device: DeviceOption = DeviceName.cpu,
    dtype: DtypeOption = Precision.float32,
    tiny: Annotated[bool, typer.Option("--tiny", hidden=True)] = False,
    exercise: Annotated[Path | None, typer.Option(hidden=True)] = None,
    positions: Annotated[int, typer.Option(hidden=True)] = 3,
    d_model: Annotated[int, typer.Option(hidden=True)] = 4,
    num_heads: Annotated[int, typer.Option(hidden=True)] = 1,
    mask: Annotated[str, typer.Option(hidden=True)] = "causal",
    scale: Annotated[str, typer.Option(hidden=True)] = "sqrt",
    seed: Annotated[int, typer.Option(hidden=True)] = 1,
) -> None:
    """Show a computation step by step in numbers.

    The computation is that of a worked example, or of a run on a text.

    Positions, heads and features of a run count from 0, those of a worked example from 1.
    """
    from vitral.cli.walkthrough import write_walkthrough

    if (what is None) != tiny:
        raise UsageError(
            "explain: give one of EXAMPLE.toml, the NAME of a worked example (vitral list examples), or RUN"
        )
    if exercise is not None and not tiny:
        raise UsageError("explain: --exercise goes with --tiny; use vitral exercise FILE.toml")
    if what is None:
        complain(_("explain --tiny is now the command: vitral exercise [FILE.toml]"))
        file, sizes = exercise and str(exercise), (positions, d_model, num_heads, mask, scale, str(seed))
        shown = {"head": head or "all", "query": query, "key": key, "column": column, "digits": digits}
        make_exercise(file, *sizes, **shown, format=format, out=None if exercise else out)
        return
    is_run = os.path.isdir(what)
    if cell is not None and (is_run or not backward):
        raise UsageError("explain: --cell goes with --backward and a worked example")
    first = 0 if is_run else 1
    heads = head if head is not None else ("0" if is_run else "all")
    choice = choice_of(heads, query, key, column, first)
    if is_run:
        from vitral.explanation import RunView
        from vitral.lab import Run

        view = RunView(numbers("--layer", layer or "0", 0), choice, block=block, ending=ending, backward=backward)
        loaded = Run(what, checkpoint.value, device=device.value, dtype=dtype.value)
        walkthrough = loaded.explain("To be" if text is None else text, view, replace=replace)
    else:
        _refuse_run_options(what, text=text, replace=replace, layer=layer, block=block, ending=ending)
        from vitral.explanation import walk_backward, walk_example
        from vitral.lab.examples import find_example

        example = find_example(what)
        walkthrough = walk_backward(example, cell, choice) if backward else walk_example(example, choice)
    write_walkthrough(dataclasses.replace(walkthrough, sort_terms=sort_terms), format, digits, out, whole=all)


def _refuse_run_options(what: str, **options: str | bool | None) -> None:
    given = [f"--{name}" for name, value in options.items() if value not in (None, False)]
    if given:
        raise UsageError(
            "explain: {what} is no run; leave out {given}, or give the folder of a run",
            what=what,
            given=_(" and ").join(given),
        )

"""vitral exercise: a small attention computation to solve by hand."""

from pathlib import Path
from typing import Annotated

import typer

from vitral.cli.options import (
    AllOption,
    ColumnOption,
    DigitsOption,
    FileOption,
    Form,
    FormOption,
    KeyOption,
    QueryOption,
    choice_of,
)
from vitral.core.language import _


def exercise(
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="FILE.toml",
            help="File to write the exercise to, with question marks to fill in.  [default: show the solution]",
        ),
    ] = None,
    positions: Annotated[int, typer.Option(help="Number of tokens, 1 to 8.")] = 3,
    d_model: Annotated[int, typer.Option(help="Width of the model, 1 to 8.")] = 4,
    num_heads: Annotated[int, typer.Option(help="Number of heads; must divide the width.")] = 1,
    mask: Annotated[str, typer.Option(help="causal or bidirectional.")] = "causal",
    scale: Annotated[str, typer.Option(help="Scale of the scores: none, sqrt (1/√d_k) or linear (1/d_k).")] = "sqrt",
    seed: Annotated[int, typer.Option(help="Seed of the numbers; another seed is another exercise.")] = 1,
    head: Annotated[str, typer.Option(help="Heads to show, from 1, as in 1 or 1,2 or all.")] = "all",
    query: QueryOption = None,
    key: KeyOption = None,
    column: ColumnOption = None,
    all: AllOption = False,
    digits: DigitsOption = 3,
    format: FormOption = Form.text,
    out: FileOption = None,
) -> None:
    """Make a small attention exercise to solve by hand.

    With FILE.toml the exercise is written there: fill it in, then run vitral check FILE.toml. Without it the solution
    is shown step by step; the same sizes and seed give the same numbers. With both FILE.toml and --out, the exercise
    and its solution are written.
    """
    from vitral.cli.screen import say
    from vitral.cli.walkthrough import write_walkthrough
    from vitral.explanation import Exercise, walk_example
    from vitral.lab.examples import make_exercise

    choice = choice_of(head, query, key, column, first=1)
    made = make_exercise(Exercise(positions, d_model, num_heads, mask, scale, seed), file)
    if file is not None:
        say(_("written: {path}", path=file))
        say(_("fill in the question marks, then run: vitral check {path}", path=file))
    if file is None or out is not None:
        write_walkthrough(walk_example(made, choice), format, digits, out, whole=all)

"""vitral inspect: a run on one text, seen from inside."""

import contextlib
import enum
import io
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vitral.cli.options import (
    DeviceName,
    DeviceOption,
    DtypeOption,
    Precision,
    RecordedCorpusOption,
    ReplaceOption,
    RunArgument,
    Which,
    WhichOption,
)
from vitral.core.errors import UsageError
from vitral.core.language import _, number

if TYPE_CHECKING:
    from vitral.figures.sections import Table

MOST_COLUMNS = 9
"""Points of the lens shown on a terminal."""
MOST_ROWS = 40
"""Positions of the lens shown on a terminal."""


class InspectionForm(enum.StrEnum):
    """The form of an inspection."""

    text = "text"
    json = "json"
    html = "html"


def inspect(
    run: RunArgument,
    text: Annotated[str, typer.Option(help="Text the model reads.")],
    replace: ReplaceOption = None,
    windows: Annotated[
        int | None,
        typer.Option(
            min=1, help="Windows of the test split to measure ablations and head kinds on.  [default: the text]"
        ),
    ] = None,
    top: Annotated[int, typer.Option(min=1, help="Tokens that the logit lens lists at each position.")] = 5,
    edits: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|JSON",
            help='Also show what edits inside the model change, as in \'[{"at": "blocks.1.attn.z", "heads": [3], "do": '
            '"zero"}]\'.',
        ),
    ] = None,
    format: Annotated[
        InspectionForm | None,
        typer.Option(
            "--format", help="Form of the result.  [default: by the ending of --out (.html, .json), else text]"
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="File to write the result to.  [default: the screen]")] = None,
    checkpoint: WhichOption = Which.best,
    corpus: RecordedCorpusOption = None,
    device: DeviceOption = DeviceName.cpu,
    dtype: DtypeOption = Precision.float32,
) -> None:
    """Look inside a run on one text.

    Shows attention maps, head kinds, ablations, logit lens and residual norms.
    """
    from vitral.cli.screen import prints_unicode, say
    from vitral.inspection.edit_data import read_edits
    from vitral.lab import Run
    from vitral.lab.examples import write_new

    form = format or _form_of(out)
    if out is not None and out.exists():
        raise UsageError("{out}: exists already and was not overwritten; choose another name", out=out)
    made = () if edits is None else read_edits(edits)
    loaded = Run(run, checkpoint.value, device=device.value, dtype=dtype.value, corpus=corpus)
    found = loaded.inspect(text, windows=windows, top=top, edits=made, replace=replace)
    if form is InspectionForm.text and out is None:
        print_inspection(found)
        return
    written = _written(found, form, as_ascii=out is None and not prints_unicode())
    if out is None:
        sys.stdout.write(written)
    else:
        say(_("written: {path}", path=write_new(out, written)))


FORMS = {
    "": InspectionForm.text,
    ".txt": InspectionForm.text,
    ".json": InspectionForm.json,
    ".html": InspectionForm.html,
    ".htm": InspectionForm.html,
}


def _form_of(out: Path | None) -> InspectionForm:
    """The form that the ending of the file names.

    Raises:
        UsageError: the ending names no form.
    """
    if out is None:
        return InspectionForm.text
    if out.suffix.lower() not in FORMS:
        raise UsageError(
            "--out {out}: no form has the ending {suffix!r}; use .txt, .json or .html, or --format",
            out=out,
            suffix=out.suffix,
        )
    return FORMS[out.suffix.lower()]


def _written(found: dict[str, Any], form: InspectionForm, *, as_ascii: bool) -> str:
    """The result as one text that ends with a line break."""
    if form is InspectionForm.json:
        return json.dumps(found, ensure_ascii=as_ascii, allow_nan=False) + "\n"
    if form is InspectionForm.html:
        from vitral.reports.inspection import inspection_page

        return inspection_page(found).rstrip("\n") + "\n"
    with contextlib.redirect_stdout(io.StringIO()) as screen:
        print_inspection(found)
    return screen.getvalue()


def print_inspection(found: dict[str, Any]) -> None:
    """A summary on the terminal: sublayers, heads, lens and norms."""
    from vitral.cli.screen import console, say
    from vitral.reports.inspection import edits_table, head_table, norm_table, sublayer_table, summary

    say(summary(found))
    for note in found["notes"]:
        say(_("note: {text}", text=_(note)))
    say()
    screen = console()
    for made in (edits_table(found), sublayer_table(found), head_table(found)):
        if made is not None:
            screen.print(_on_screen(made))
    screen.print(_lens(found))
    screen.print(_on_screen(norm_table(found)))


def _on_screen(made: "Table") -> Any:
    from vitral.cli.screen import table

    words = 1 + max((index for index in made.prose), default=0)
    return table(made.caption, made.columns, made.rows, words=words)


def _lens(found: dict[str, Any]) -> Any:
    """The most probable token at each position and point, with the last column's loss; few enough to read."""
    from vitral.cli.screen import table
    from vitral.reports.inspection import best_token, mixer, point_label, token_names

    lens = found["lens"]
    points, targets, tokens = lens["points"], lens["targets"], token_names(found)
    step = 1 + (len(points) - 1) // MOST_COLUMNS
    shown = points[::-1][::step][::-1]  # the last point is always among them
    first = max(0, len(tokens) - MOST_ROWS)
    rows = [
        (tokens[place], *(_cell(point["positions"][place], targets[place], best_token) for point in shown))
        for place in range(first, len(tokens))
    ]
    mean = (_("loss"), *("–" if point["loss"] is None else number(point["loss"], ".3f") for point in shown))
    title = _("Logit lens: most probable token, its probability, ✓ where it is the true one")
    cut = [_("the last {n} of {all} positions", n=len(rows), all=len(tokens))] * (first > 0)
    cut += [_("{n} of {all} points", n=len(shown), all=len(points))] * (step > 1)
    if cut:
        title = _("{title} ({parts}; --out page.html has all)", title=title, parts=", ".join(cut))
    return table(title, (_("position"), *(point_label(point["point"], mixer(found)) for point in shown)), [*rows, mean])


def _cell(position: dict[str, Any], target: dict[str, Any] | None, best_token: Any) -> str:
    share = position["top"][0]["probability"]
    return f"{best_token(position, target)} {'–' if share is None else number(share, '.2f')}"

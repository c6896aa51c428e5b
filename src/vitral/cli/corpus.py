"""vitral corpus: the report on a text."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vitral.cli.completion import complete_text
from vitral.cli.options import (
    ContextOption,
    EncodingOption,
    FieldOption,
    GlobOption,
    SpecialOption,
    TableFormat,
    TableFormatOption,
    TokenizerOption,
    reading,
)
from vitral.core.language import _, ngettext, number

if TYPE_CHECKING:
    from vitral.reports.text import Survey

SHOWN_CHARACTERS, SHOWN_RARE = 40, 12


def corpus(
    text: Annotated[
        str,
        typer.Argument(
            metavar="PATH|NAME|RUN",
            help="A file, a folder, a known text (vitral list texts), or a run.",
            autocompletion=complete_text,
        ),
    ] = "sample",
    tokenizer: TokenizerOption = None,
    split: Annotated[
        str | None,
        typer.Option(
            help="Train/validation/test split: blocks, tail, nanogpt, works or one-work (docs/configuration.md).  "
            "[default: chosen for the text]"
        ),
    ] = None,
    special: SpecialOption = None,
    context: ContextOption = None,
    minutes: Annotated[
        float | None, typer.Option(help="Training time that the text is planned for.  [default: 2]")
    ] = None,
    encoding: EncodingOption = None,
    field: FieldOption = None,
    glob: GlobOption = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder to write the report to as a page with figures.  [default: no page]")
    ] = None,
    format: TableFormatOption = TableFormat.text,
) -> None:
    """Report on a text: size, alphabet, n-gram baselines, problems, and how vitral train would train on it.

    Works, random draws and generated tasks are set in a configuration file, as works, num_works, draw and task of
    [corpus] (docs/configuration.md); train on it, then report on the run.
    """
    from vitral.cli.screen import print_form, print_json, say
    from vitral.lab import survey

    chosen = {
        name: value
        for name, value in (("tokenizer", tokenizer), ("split", split), ("specials", special))
        if value is not None
    }
    surveyed = survey(
        text, minutes=minutes, context=context, **chosen, **reading(encoding, field, glob).get("corpus", {})
    )
    if format is TableFormat.json:
        print_json(surveyed.plain())
    elif format is TableFormat.text:
        print_survey(surveyed)
    else:
        print_form(surveyed.table(), format.value)
    if out is not None:
        page = surveyed.write(out)
        if format is TableFormat.text:
            say(_("page: {path}", path=page))


def print_survey(surveyed: "Survey") -> None:
    """Print the text in numbers, its alphabet, its n-gram baselines, its problems and how to train on it."""
    from vitral.cli.screen import console, say, table
    from vitral.reports.text import ngram_rows, text_facts

    report, screen = surveyed.report, console()
    screen.print(table(_("The text: {name}", name=report.name), ("", ""), text_facts(report), words=2))
    ordered = sorted(report.alphabet, key=lambda entry: -entry.count)
    shown = "  ".join(f"{_(entry.label)} {number(entry.count, ',')}" for entry in ordered[:SHOWN_CHARACTERS])
    say(_("alphabet, most frequent first: {characters}", characters=shown))
    if more := max(0, len(ordered) - SHOWN_CHARACTERS):
        say(ngettext("… and {n} more", "… and {n} more", more, n=more))
    if report.rare:
        rare = ", ".join(f"{_(entry.label)} {entry.code_point} ×{entry.count}" for entry in report.rare[:SHOWN_RARE])
        say(_("rare: {characters}", characters=rare) + (" …" if len(report.rare) > SHOWN_RARE else ""))
    say()
    screen.print(table(_("N-gram baselines"), ("", _("nats per token")), ngram_rows(surveyed.baselines)))
    for note in report.notes:
        say(_("note: {text}", text=_(note)))
    for problem in report.problems:
        say(_("problem: {text}", text=_(problem)))
    if not report.problems:
        say(_("no problems found"))
    for line in surveyed.advice:
        say(_(line))

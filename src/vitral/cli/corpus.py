"""vitral corpus: the report on a text."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vitral.cli.completion import complete_text
from vitral.cli.options import (
    ContextOption,
    EncodingOption,
    FieldOption,
    Format,
    FormatOption,
    GlobOption,
    SpecialOption,
    TokenizerOption,
    reading,
)

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
        typer.Option(help="Train/validation/test split: blocks, tail or nanogpt.  [default: chosen for the text]"),
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
    format: FormatOption = Format.text,
) -> None:
    """Report on a text: size, alphabet, n-gram baselines, problems, and how vitral train would train on it."""
    from vitral.cli.screen import print_json, say
    from vitral.lab import survey

    chosen = {
        name: value
        for name, value in (("tokenizer", tokenizer), ("split", split), ("specials", special))
        if value is not None
    }
    surveyed = survey(
        text, minutes=minutes, context=context, **chosen, **reading(encoding, field, glob).get("corpus", {})
    )
    if format is Format.json:
        print_json(surveyed.plain())
    else:
        print_survey(surveyed)
    if out is not None:
        page = surveyed.write(out)
        if format is Format.text:
            say(f"page: {page}")


def print_survey(surveyed: "Survey") -> None:
    """Print the text in numbers, its alphabet, its n-gram baselines, its problems and how to train on it."""
    from vitral.cli.screen import console, say, table
    from vitral.reports.text import ngram_rows, text_facts

    report, screen = surveyed.report, console()
    screen.print(table(f"The text: {report.name}", ("", ""), text_facts(report), words=2))
    ordered = sorted(report.alphabet, key=lambda entry: -entry.count)
    shown = "  ".join(f"{entry.label} {entry.count:,}" for entry in ordered[:SHOWN_CHARACTERS])
    say(f"alphabet, most frequent first: {shown}")
    if len(ordered) > SHOWN_CHARACTERS:
        say(f"… and {len(ordered) - SHOWN_CHARACTERS} more")
    if report.rare:
        rare = ", ".join(f"{entry.label} {entry.code_point} ×{entry.count}" for entry in report.rare[:SHOWN_RARE])
        say(f"rare: {rare}" + (" …" if len(report.rare) > SHOWN_RARE else ""))
    say()
    screen.print(table("N-gram baselines", ("", "nats per token"), ngram_rows(surveyed.baselines)))
    for note in report.notes:
        say(f"note: {note}")
    for problem in report.problems:
        say(f"problem: {problem}")
    if not report.problems:
        say("no problems found")
    for line in surveyed.advice:
        say(line)

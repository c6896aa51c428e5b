"""vitral bundle: a run as one HTML file that computes."""

from pathlib import Path
from typing import Annotated

import typer

from vitral.cli.options import Format, FormatOption, RecordedCorpusOption, RunArgument, Which, WhichOption
from vitral.core.language import _


def bundle(
    run: RunArgument,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="HTML file to create.  [default: RUN.html, in this folder]")
    ] = None,
    checkpoint: WhichOption = Which.best,
    corpus: RecordedCorpusOption = None,
    ablations: Annotated[
        bool | None,
        typer.Option(
            "--ablations/--no-ablations",
            help="Measure on the test split what each part is worth.  [default: where it takes a few seconds]",
        ),
    ] = None,
    format: FormatOption = Format.text,
) -> None:
    """Write a run as one page that computes in any browser.

    The page carries the model: type a sentence and see every number, without a server or a network. When it is opened,
    it compares its numbers with those of PyTorch.
    """
    from vitral.cli.screen import print_json, say
    from vitral.lab import bundle as bundle_run

    made = bundle_run(run, out, checkpoint=checkpoint.value, corpus=corpus, ablations=ablations)
    if format is Format.json:
        print_json({"path": str(made.path), "bytes": made.size})
        return
    say(_("page: {path} ({size:.1f} MB); open it in a browser", path=made.path, size=made.size / 1e6))

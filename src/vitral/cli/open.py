"""vitral open: the page of runs over a server on this machine."""

import os
from pathlib import Path
from typing import Annotated

import typer

from vitral.cli.complaints import complain
from vitral.cli.completion import complete_run
from vitral.cli.options import RecordedCorpusOption, Which, WhichOption
from vitral.core.language import _


def open_page(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Folders of runs.", autocompletion=complete_run)],
    checkpoint: WhichOption = Which.best,
    corpus: RecordedCorpusOption = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port of this machine.  [default: a free one]")] = 0,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Print the address, and open no browser.")] = False,
) -> None:
    """Open runs as a page: type a sentence, see everything.

    A server on this machine computes the numbers; no other machine and no other page can ask it. The address that it
    prints has a secret behind the #; keep it to yourself. Ctrl+C ends the server.
    """
    from vitral.page.server.serving import serve

    def announce(address: str) -> None:
        typer.echo(_("page: {address} (Ctrl+C ends it)", address=address))

    try:
        serve(runs, checkpoint=checkpoint.value, corpus=corpus, port=port, browser=not no_browser, announce=announce)
    except KeyboardInterrupt:
        complain(_("interrupted"))
        os._exit(130)  # a thread that computes for the page would keep the process

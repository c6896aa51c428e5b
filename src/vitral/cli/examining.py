"""The command that looks whether all is well: doctor."""

from pathlib import Path
from typing import Annotated

import typer

from vitral.cli.options import Format, FormatOption

MARKS = {"ok": "✓", "wrong": "✗", "unknown": "·"}


def doctor(
    run: Annotated[Path | None, typer.Argument(metavar="[RUN]", help="A run's folder; left out: this machine.")] = None,
    format: FormatOption = Format.text,
) -> None:
    """Look whether the machine, or a run, is as it should be; exit code 1 where something is wrong."""
    from vitral.api.doctor import examine_machine, examine_run
    from vitral.cli.screen import print_json, say

    diagnosis = examine_machine() if run is None else examine_run(run)
    if format is Format.json:
        print_json(diagnosis.plain())
    else:
        width = max(len(finding.what) for finding in diagnosis.findings)
        for finding in diagnosis.findings:
            say(f"{MARKS[finding.mark]} {finding.what:{width}}  {finding.found}")
    if not diagnosis.healthy:
        raise typer.Exit(1)

"""vitral doctor: the health of this machine, or of a run."""

from pathlib import Path
from typing import Annotated

import typer

from vitral.cli.options import Format, FormatOption

MARKS = {"ok": "✓", "wrong": "✗", "unknown": "·"}


def doctor(
    run: Annotated[
        Path | None, typer.Argument(metavar="RUN", help="Folder of a run.  [default: check this machine]")
    ] = None,
    repair: Annotated[
        bool,
        typer.Option("--repair", help="Restore the run's configuration and cut its log; damaged files are kept."),
    ] = False,
    format: FormatOption = Format.text,
) -> None:
    """Check this machine, or a run for damage.

    Exit code 1 if something is wrong.
    """
    from vitral.cli.screen import print_json, say
    from vitral.core.errors import UsageError
    from vitral.lab.health import examine_machine
    from vitral.lab.run_health import examine_run, repair_run

    if repair and run is None:
        raise UsageError("--repair: needs a RUN")
    for line in repair_run(run) if repair and run is not None else ():
        say(line)
    diagnosis = examine_machine() if run is None else examine_run(run)
    if format is Format.json:
        print_json(diagnosis.plain())
    else:
        width = max(len(check.what) for check in diagnosis.findings)
        for check in diagnosis.findings:
            say(f"{MARKS[check.mark]} {check.what:{width}}  {check.found}")
    if not diagnosis.healthy:
        raise typer.Exit(1)

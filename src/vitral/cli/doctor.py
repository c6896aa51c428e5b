"""vitral doctor: the health of this machine, or of a run."""

from pathlib import Path
from typing import Annotated

import typer

from vitral.cli.completion import complete_checkup
from vitral.cli.options import Format, FormatOption
from vitral.core.language import _


def doctor(
    run: Annotated[
        Path | None,
        typer.Argument(
            metavar="RUN|STUDY",
            help="Folder of a run or a study.  [default: check this machine]",
            autocompletion=complete_checkup,
        ),
    ] = None,
    repair: Annotated[
        bool,
        typer.Option("--repair", help="Restore the run's configuration and cut its log; damaged files are kept."),
    ] = False,
    format: FormatOption = Format.text,
) -> None:
    """Check this machine, or a run or a study for damage.

    Exit code 1 if something is wrong.
    """
    from vitral.cli.screen import print_json, say
    from vitral.core.errors import UsageError
    from vitral.lab.checkups import examine
    from vitral.lab.health import examine_machine
    from vitral.lab.run_health import repair_run

    if repair and run is None:
        raise UsageError("--repair: needs a RUN")
    repaired = repair_run(run) if repair and run is not None else ()
    diagnosis = examine_machine() if run is None else examine(run)
    if format is Format.json:
        print_json({**diagnosis.plain(), **({"repaired": repaired} if repair else {})})
    else:
        for line in repaired:
            say(_(line))
        rows = diagnosis.told()
        width = max(len(what) for mark, what, found in rows)
        for mark, what, found in rows:
            say(f"{mark} {what:{width}}  {found}")
    if not diagnosis.healthy:
        raise typer.Exit(1)

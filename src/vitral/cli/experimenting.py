"""Commands that compare and show: study, demo."""

from pathlib import Path
from typing import Annotated

import typer

from vitral.cli.options import SetOption


def study(
    name: Annotated[str, typer.Argument(metavar="NAME|MY.toml|list", help="A study, a file, or list for all names.")],
    budget: Annotated[
        str | None,
        typer.Option(help="quick (up to 5 minutes on 2 cores), standard (up to 30) or full; quick if left out."),
    ] = None,
    start: Annotated[
        str | None, typer.Option("--base", help="Preset or configuration of the base, instead of the study's own.")
    ] = None,
    text: Annotated[str | None, typer.Option("--corpus", help="The text, instead of the configuration's.")] = None,
    out: Annotated[Path | None, typer.Option(help="The study's folder; studies/NAME-BUDGET if left out.")] = None,
    seeds: Annotated[str | None, typer.Option(help="Seeds, as in 1,2,3; instead of the study's.")] = None,
    settings: SetOption = None,
) -> None:
    """Compare variants over several seeds, with intervals and a verdict. The same command goes on where it stopped."""
    from vitral.api.comparing import study_at
    from vitral.cli.live import live_reporter
    from vitral.cli.screen import say
    from vitral.cli.studying import list_studies, print_findings

    if name == "list":
        list_studies()
        return
    plan = study_at(name, start, budget=budget, corpus=text, seeds=seeds, settings=settings or [], out=out)
    with live_reporter() as report:
        done = plan.run(callback=report)
    print_findings(done)
    say(f"report: {done.html}")


def demo(
    out: Annotated[Path | None, typer.Option(help="The folder to make; a free one under runs/ if left out.")] = None,
    settings: SetOption = None,
) -> None:
    """Show everything in small on the bundled play, in a few minutes."""
    from vitral.cli.demonstrating import demonstrate

    demonstrate(out, settings or [])

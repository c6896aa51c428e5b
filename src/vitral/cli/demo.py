"""vitral demo: the whole program in a few minutes."""

from pathlib import Path
from typing import Annotated

import typer

from vitral.cli.options import SetOption


def demo(
    out: Annotated[Path | None, typer.Option(help="Folder to create, or to go on with.  [default: in runs/]")] = None,
    settings: SetOption = None,
) -> None:
    """Take a short tour: a text, a model, a study, an explanation.

    Takes about three minutes on 2 cores and writes one page. Called again after it was stopped, it goes on.
    """
    from vitral.cli.corpus import print_survey
    from vitral.cli.count import print_count
    from vitral.cli.progress import live_reporter
    from vitral.cli.screen import say
    from vitral.cli.streams import output_is_optional
    from vitral.explain import to_text
    from vitral.lab.demonstration import plan_demonstration
    from vitral.studies import loss_claims

    output_is_optional()
    planned = plan_demonstration(out, settings or [])
    say("1. The text\n")
    print_survey(planned.survey)
    say("\n2. The model\n")
    print_count(planned.count)
    say(f"\n3. Training the model, and the same without attention, from {len(planned.study.seeds)} seeds\n")
    with live_reporter() as report:
        result = planned.train(report)
    say("\n4. One attention computation in numbers\n")
    walkthrough = planned.walkthrough()
    say(to_text(walkthrough))
    say("\n5. Results\n")
    for claim in loss_claims(result).all:
        say(f"- {claim.text}")
    page = planned.write(result, walkthrough)
    run = planned.trained().path
    say(f"\nTry:    vitral generate {run} --prompt WREN.\nReport: {page}")

"""How `vitral demo` goes: the text, the model, training, the numbers, the page."""

from pathlib import Path

from vitral.api import free_folder
from vitral.api.demonstration import plan_demonstration, walk, write_page
from vitral.cli.corpora import print_survey
from vitral.cli.counting import print_count
from vitral.cli.live import live_reporter
from vitral.cli.screen import say
from vitral.explain import to_text
from vitral.studies import loss_claims


def demonstrate(out: Path | None, settings: list[str]) -> None:
    """Run the demonstration and print the path of its page.

    Raises:
        UsageError: `out` exists, or a setting cannot be.
    """
    planned = plan_demonstration(out or free_folder("demo"), settings)
    say("1. The text\n")
    print_survey(planned.survey)
    say("\n2. The model\n")
    print_count(planned.count)
    say(f"\n3. Training it, and the same model without attention, from {len(planned.study.seeds)} seeds\n")
    with live_reporter() as report:
        result = planned.train(report)
    say("\n4. One attention computation in numbers\n")
    walkthrough = walk(planned.trained())
    say(to_text(walkthrough))
    say("\n5. What came out\n")
    for claim in loss_claims(result).all:
        say(f"- {claim.text}")
    page = write_page(planned, result, walkthrough)
    run = planned.trained().path
    say(f"\nTry:    vitral generate {run} --prompt WREN.\nReport: {page}")

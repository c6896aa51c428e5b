"""vitral demo: the whole program in two minutes."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vitral.cli.options import SetOption

if TYPE_CHECKING:
    from vitral.lab.demonstration import Demonstration
    from vitral.reports.demonstration import DemonstrationResult
    from vitral.studies import Study
    from vitral.training import Callback, Event

SHOWN = 84
"""Characters of a sample in one line."""


def demo(
    out: Annotated[Path | None, typer.Option(help="Folder to create, or to go on with.  [default: in runs/]")] = None,
    settings: SetOption = None,
) -> None:
    """Take a short tour: a text, a model, a study, an explanation.

    Takes about two minutes on 2 cores and writes one page. Called again after it was stopped, it goes on.
    """
    from vitral.cli.panel import sample_text
    from vitral.cli.screen import console, say
    from vitral.cli.streams import output_is_optional
    from vitral.figures.text import capital
    from vitral.lab.demonstration import plan_demonstration

    output_is_optional()
    planned = plan_demonstration(out, settings or [])
    for line in _introduction(planned):
        say(line)
    with _reporter(planned.study) as report:
        study = planned.train(report)
    result = planned.finish(study)
    page = planned.write(result)
    heading, sample = sample_text(asdict(result.sample))
    say(f"\n{capital(heading)}\n")
    console().print(sample, soft_wrap=True)
    for line in _ending(result, page):
        say(line)


def _introduction(planned: "Demonstration") -> list[str]:
    """The text and the model in three lines each."""
    from vitral.data import corpus_names
    from vitral.evaluation import baseline_name

    report, orders, count = planned.survey.report, planned.survey.baselines.orders, planned.count
    model, study, tokens = count.config, planned.study, report.tokens
    counts = " · ".join(f"{baseline_name(order)} {nats:.3f}" for order, nats in orders.items() if order > 1)
    return [
        f"The text   {corpus_names().get(report.name, report.name)}",
        f"           {report.num_characters:,} characters: {tokens['train']:,} for training, {tokens['validation']:,} "
        f"for validation, {tokens['test']:,} for the test",
        f"           counted n-grams, in nats per character of the test: {counts}",
        f"The model  {count.cost.parameters:,} parameters: {model.num_layers} blocks of width {model.d_model} with "
        f"{model.num_heads} heads",
        f"           reads up to {model.context_length} characters and predicts the next one",
        f"           is trained for {planned.config.training.steps:,} steps, with attention and without, from "
        f"{len(study.seeds)} seeds: {len(study.arms) * len(study.seeds)} runs",
        "",
    ]


def _ending(result: "DemonstrationResult", page: Path) -> list[str]:
    """The verdicts, the page, and commands to try."""
    from vitral.studies import loss_claims

    return [
        "",
        result.verdict.text,
        *(claim.text for claim in loss_claims(result.study).contrasts),
        "",
        f"The page: {page}",
        f"Try:      vitral generate {result.run} --prompt WREN.",
        f'          vitral explain {result.run} --text "{result.sentence}"',
        "          vitral train my.txt --minutes 2",
    ]


@contextmanager
def _reporter(study: "Study") -> "Iterator[Callback]":
    """The live panel on a terminal; elsewhere one line for each sample of the first run, and one for each run."""
    from vitral.cli.progress import Harmless, live_reporter
    from vitral.cli.screen import console

    if console().is_terminal:
        with live_reporter() as report:
            yield report
    else:
        yield Harmless("the display of the progress", _Lines(study))


class _Lines:
    """A whole study in plain lines."""

    def __init__(self, study: "Study") -> None:
        """Lines about a study, its arms by their titles."""
        from vitral.lab.training_state import TrainingState

        self.view, self.titles = TrainingState(), {arm.name: arm.title for arm in study.arms}

    def __call__(self, event: "Event") -> None:
        from vitral.cli.screen import say
        from vitral.evaluation import rank_among_baselines

        self.view.take(event)
        kind = event["event"]
        if kind == "sample" and event["run"] == 1:
            text = " / ".join(event["text"].split("\n"))
            say(f"it writes, after step {event['step']:,}: {text[:SHOWN]}{'…' * (len(text) > SHOWN)}")
        elif kind == "run" and event["state"] == "found":
            say(f"run {event['run']} of {event['runs']} · {self.which(event)}: found finished")
        elif kind == "end" and event["finished"] and self.view.evaluation and self.view.lines:
            loss = self.view.evaluation["test_loss"]
            rank = rank_among_baselines(loss, self.view.lines)
            say(f"{self.view.whole()} · {self.which(event)}: test {loss:.3f}, {rank}")
        elif kind in ("note", "stopped"):
            say(f"{kind}: {event.get('text', event.get('reason'))}")

    def which(self, event: "Event") -> str:
        """The arm and the seed."""
        return f"{self.titles[event['arm']]}, seed {event['seed']}"

"""vitral demo: the whole program in two minutes."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vitral.core.language import _, number

if TYPE_CHECKING:
    from vitral.app.demonstration import Demonstration
    from vitral.app.pages import DemoPage
    from vitral.report.demonstration import DemonstrationResult
    from vitral.training import Event

SHOWN = 84
"""Characters of a sample in one line."""


@contextmanager
def touring(**given: Any) -> Iterator[Mapping[str, Any]]:
    """The text and the model first, then the progress of the study."""
    from vitral.app.terminal.progress import DISPLAY, Harmless, live_reporter
    from vitral.app.terminal.screen import console, say
    from vitral.app.terminal.streams import output_is_optional

    output_is_optional()
    lines = _Lines()

    def introduce(planned: "Demonstration") -> None:
        lines.titles = {arm.name: arm.title for arm in planned.study.arms}
        for line in _introduction(planned):
            say(line)

    with live_reporter() if console().is_terminal else nullcontext(Harmless(DISPLAY, lines)) as report:
        yield {"on_plan": introduce, "callback": report}


def show_demo(page: "DemoPage") -> None:
    """A text by the model, the verdicts, the pages, and commands to try."""
    from vitral.app.terminal.panel import sample_text
    from vitral.app.terminal.screen import console, say
    from vitral.core.text import capital

    heading, sample = sample_text(asdict(page.result.sample))
    say(f"\n{capital(heading)}\n")
    console().print(sample, soft_wrap=True)
    for line in _ending(page.result, page.html, page.model, page.prompt):
        say(line)


def _introduction(planned: "Demonstration") -> list[str]:
    """The text and the model in three lines each."""
    from vitral.data import corpus_names
    from vitral.evaluation import baseline_name

    report, orders, count = planned.survey.report, planned.survey.baselines.orders, planned.count
    model, study, tokens = count.config, planned.study, report.tokens
    named = (f"{baseline_name(order)} {number(nats, '.3f')}" for order, nats in orders.items() if order > 1)
    text = [
        _(corpus_names().get(report.name, report.name)),
        _(
            "{characters:,} characters: {train:,} for training, {validation:,} for validation, {test:,} for the test",
            characters=report.num_characters,
            train=tokens["train"],
            validation=tokens["validation"],
            test=tokens["test"],
        ),
        _("counted n-grams, in nats per character of the test: {losses}", losses=" · ".join(named)),
    ]
    of_model = [
        _(
            "{parameters:,} parameters: {layers} blocks of width {width} with {heads} heads",
            parameters=count.cost.parameters,
            layers=model.num_layers,
            width=model.d_model,
            heads=model.num_heads,
        ),
        _("reads up to {n} characters and predicts the next one", n=model.context_length),
        _(
            "is trained for {steps:,} steps, with attention and without, from {seeds} seeds: {runs} runs",
            steps=planned.config.training.steps,
            seeds=len(study.seeds),
            runs=len(study.arms) * len(study.seeds),
        ),
    ]
    return [*_beside({_("The text"): text, _("The model"): of_model}), ""]


def _beside(lines: Mapping[str, Sequence[str]], gap: int = 2) -> list[str]:
    """Lines beside their headings, all from the same column."""
    width = max(map(len, lines)) + gap
    return [
        f"{heading if place == 0 else '':{width}}{line}"
        for heading, below in lines.items()
        for place, line in enumerate(below)
    ]


def _ending(result: "DemonstrationResult", page: Path, carried: Path | None, prompt: str) -> list[str]:
    """The verdicts, the pages, and commands to try, one with a prompt."""
    from vitral.app.terminal.screen import runnable
    from vitral.studies import loss_claims

    inside = _("type a sentence there: this model, computed by the page itself")
    return [
        "",
        _(result.verdict.text),
        *(_(claim.text) for claim in loss_claims(result.study).contrasts),
        "",
        *_beside(
            {
                _("The page:"): [str(page)],
                **({_("Inside:"): [str(carried), inside]} if carried else {}),
                _("Try:"): [
                    runnable(f"vitral generate {result.run} --prompt {prompt}"),
                    runnable(f'vitral explain {result.run} --text "{result.sentence}"'),
                    runnable(f"vitral train {_('my.txt')} --minutes 2"),
                ],
            },
            gap=1,
        ),
    ]


class _Lines:
    """A whole study in plain lines."""

    def __init__(self) -> None:
        from vitral.app.training_state import TrainingState

        self.view, self.titles = TrainingState(), dict[str, str]()

    def __call__(self, event: "Event") -> None:
        from vitral.app.terminal.screen import say
        from vitral.evaluation import rank_among_baselines

        self.view.take(event)
        kind = event["event"]
        if kind == "sample" and event["run"] == 1:
            text = " / ".join(event["text"].split("\n"))
            written = f"{text[:SHOWN]}{'…' * (len(text) > SHOWN)}"
            say(_("it writes, after step {step:,}: {text}", step=event["step"], text=written))
        elif kind == "run" and event["state"] == "found":
            place = {"run": event["run"], "runs": event["runs"], "which": self.which(event)}
            say(_("run {run} of {runs} · {which}: found finished", **place))
        elif kind == "end" and event["finished"] and self.view.evaluation and self.view.lines:
            loss = self.view.evaluation["test_loss"]
            rank = rank_among_baselines(loss, self.view.lines)
            told = _("{which}: test {loss:.3f}, {rank}", which=self.which(event), loss=loss, rank=rank)
            say(f"{self.view.whole()} · {told}")
        elif kind == "note":
            say(_("note: {text}", text=_(event["text"])))
        elif kind == "stopped":
            say(_("stopped: {reason}", reason=_(event["reason"])))

    def which(self, event: "Event") -> str:
        """The arm and the seed."""
        return _("{arm}, seed {seed}", arm=_(self.titles[event["arm"]]), seed=event["seed"])

"""Why a run's sample is as it is: facts of the run, the reasons that follow from them, and one command to try next."""

import math
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from vitral.core.language import N_, _
from vitral.core.shown import Shown, Tabular
from vitral.evaluation.copying import COPIED_WORDS, copied_share
from vitral.runs import SealedRun
from vitral.runs.summary import summarize_run
from vitral.runs.zoo import zoo_name
from vitral.training.deadline import FEWER_STEPS
from vitral.training.plans import LADDER, MOST_PER_TOKEN
from vitral.training.regularisation import most_passes

TRIGRAM = "3"
ENOUGH_TEXT = 100_000
"""Characters from which on a model of a text writes words that exist (docs/first-steps.md)."""
LADDER_TOKENS = 2048
"""Tokens of a step for which the steps of the ladder of sizes were measured."""
FEW, ROSE, OFTEN = 0.6, 0.02, 100
"""Share of the passes that help; nats by which a loss rises; times that a token should occur."""
MOSTLY, RIGHT = 0.5, 0.9
"""Share of a sample above which it is mostly copied; share of exact answers from which on more time gains little."""


def facts_of(run: SealedRun) -> dict[str, Any]:
    """What a run, its text and its losses are, as plain data; None where a number is unknown.

    Raises:
        UsageError: an imported model, which was not trained here; or a damaged file.
    """
    run.require_text()
    config, summary, corpus = run.config, summarize_run(run.path).plain(), run.document("corpus")
    model, is_text = config.model, config.corpus.records is None and config.corpus.task is None
    tokens, per_step = corpus["split"].get("tokens", {}).get("train"), config.tokens_per_step
    least = [
        size.least_steps
        for size in LADDER
        if size.model["num_layers"] <= model.num_layers and size.model["d_model"] <= model.d_model
    ]
    steps, curve = (summary["step"] or 0) - (config.training.schedule.begin or 0), summary["curve"]
    samples, notes = run.metrics("sample"), [one["text"] for one in run.metrics("note")]
    best = [one for one in run.metrics("evaluation") if one["step"] == summary["best_step"]]
    kept = ("step", "best_step", "parameters", "tokenizer", "vocab_size", "validation_loss", "test_loss", "objective")
    return {key: summary[key] for key in kept} | {
        "run": zoo_name(run.path) or str(run.path),
        "text": config.corpus.source,
        "is_text": is_text,
        "characters": corpus.get("characters"),
        "tokens": tokens if is_text else None,
        "tokens_per_step": per_step,
        "least_steps": math.ceil(max(least, default=0) * LADDER_TOKENS / per_step),
        "is_smallest": len(least) < 2,  # nothing smaller would be planned
        "most_passes": most_passes(model, tokens) if is_text and tokens else None,
        "seconds_per_step": summary["seconds"] / steps if summary["seconds"] and steps > 0 else None,
        "last_validation_loss": curve[-1][1] if curve else None,
        "baselines": (summary["baselines"] or {}) if summary["objective"] == "next-token" else {},
        "copied": copied_share(samples[-1]) if samples else None,
        "exact": best[-1].get("test_exact_match") if best else None,
        "shortfalls": [
            one
            for one in notes
            if getattr(one, "sentence", "") == FEWER_STEPS and one.values["steps"] == summary["step"]
        ],
        "problems": list(corpus.get("problems", ())),
    }


@dataclass(frozen=True)
class SampleReason:
    """One reason why a sample is as it is.

    Attributes:
        kind: in one word, such as "undertrained".
        text: in one or two English sentences, a message.
        command: what to try, without the program's name; empty if no command helps.
    """

    kind: str
    text: str
    command: str = ""


def reasons(facts: Mapping[str, Any]) -> tuple[SampleReason, ...]:
    """What follows from `facts_of`, the most important first."""
    copies, training, texts = (list(found(facts)) for found in (_of_copies, _of_training, _of_text))
    # Losses of a text with a problem measure something else than what was learned, so no advice follows from them.
    problems = [SampleReason("problem", one, f"corpus {shlex.quote(facts['text'])}") for one in facts["problems"]]
    is_read = (facts["step"] or 0) * facts["tokens_per_step"] >= (facts["tokens"] or 0)
    if (facts["copied"] or 0) > MOSTLY or (problems and is_read):  # more time would make it copy more
        ordered = [*problems, *copies, *(one for one in training if not one.command.startswith("continue")), *texts]
    else:
        ordered = [*training, *problems, *texts, *copies]
    return (*ordered, *_of_sampling(facts)) or tuple(_of_numbers(facts))


def _of_copies(facts: Mapping[str, Any]) -> Iterator[SampleReason]:
    """Whether the last sample has passages of the training text."""
    if share := facts["copied"]:
        sentence = N_(
            "{share:.0%} of its last sample is copied from the training text ({words} or more words in a row): more "
            "text, or fewer minutes, and it copies less."
        )
        half = max(0.1, (facts["step"] or 0) * (facts["seconds_per_step"] or 0) / 120)
        command = f"train {shlex.quote(facts['text'])} --minutes {half:.1f}" if share > MOSTLY else ""
        yield SampleReason("copied", sentence.format(share=share, words=COPIED_WORDS), command)


def _of_training(facts: Mapping[str, Any]) -> Iterator[SampleReason]:
    """Whether the model had the steps that were planned, that its size needs and its text allows."""
    run, text, tokens = shlex.quote(facts["run"]), shlex.quote(facts["text"]), facts["tokens"]
    step, parameters, enough = facts["step"] or 0, facts["parameters"] or 0, facts["most_passes"]
    a_pass = tokens / facts["tokens_per_step"] if tokens else math.inf
    most, last, best = (enough or 1) * a_pass, facts["last_validation_loss"], facts["validation_loss"]
    is_weak = (facts["test_loss"] or 0) > facts["baselines"].get(TRIGRAM, math.inf)

    def longer(kind: str, sentence: str, until: float, **values: Any) -> SampleReason:
        minutes = max(1, math.ceil((until - step) * (facts["seconds_per_step"] or 1) / 60))
        text = N_(sentence).format(**values, minutes=minutes, until=until)
        return SampleReason(kind, text, f"continue {run} --minutes {minutes}")

    if parameters > MOST_PER_TOKEN * (tokens or math.inf) and not facts["is_smallest"]:
        sentence = N_(
            "The model is too large for its text: {parameters:,} parameters for {tokens:,} tokens. It learns the text "
            "by heart, or does not get far; vitral train chooses a size that fits."
        )
        yield SampleReason("large", sentence.format(parameters=parameters, tokens=tokens), f"train {text}")
    elif step < (needed := max(min(facts["least_steps"], most), FEW * most * is_weak)) < math.inf:
        sentence = N_(
            "This model is undertrained: {steps:,} steps are few for {parameters:,} parameters, and its loss says "
            "little about its design. Give it {minutes} min more, about {until:,.0f} steps in all."
        )
        yield longer("undertrained", sentence, needed, steps=step, parameters=parameters)
    elif is_weak and tokens:
        sentence = N_(
            "It is worse than a trigram table although it read the text {passes:.1f} times: it is too simple."
        )
        yield SampleReason("simple", sentence.format(passes=step / a_pass), f"train {text}")
    elif enough and step < FEW * most:
        sentence = N_("The text was read {passes:.1f} times; up to {enough} help: {minutes} min more.")
        yield longer("passes", sentence, most, passes=step / a_pass, enough=enough)
    yield from (SampleReason("busy", one) for one in facts["shortfalls"])
    if best is not None and last - best > ROSE:
        sentence = N_(
            "After step {step:,} it learned the text by heart: the validation loss rose from {best:.2f} to {last:.2f} "
            "nats. Samples come from the checkpoint before; more text helps, more time does not."
        )
        yield SampleReason("overfitting", sentence.format(step=facts["best_step"], best=best, last=last))


def _of_text(facts: Mapping[str, Any]) -> Iterator[SampleReason]:
    """Whether the text is long enough, and cut into few enough tokens."""
    text, tokens, size = shlex.quote(facts["text"]), facts["tokens"], facts["vocab_size"]
    if tokens and facts["characters"] < ENOUGH_TEXT:
        sentence = N_(
            "The text is short: {characters:,} characters teach spelling and layout, and few words. From about "
            "{enough:,} on it becomes interesting; a folder of files is one text."
        )
        yield SampleReason("short", sentence.format(characters=facts["characters"], enough=ENOUGH_TEXT))
    if tokens and facts["tokenizer"] != "char" and tokens < OFTEN * size:
        sentence = N_(
            "Each of the {size:,} tokens occurs {times:.0f} times on average, which is seldom; characters are not."
        )
        yield SampleReason(
            "tokenizer", sentence.format(size=size, times=tokens / size), f"train {text} --tokenizer char"
        )


def _of_sampling(facts: Mapping[str, Any]) -> Iterator[SampleReason]:
    """What such a model cannot do, and what the temperature changes."""
    if facts["objective"] != "next-token" or not facts["is_text"]:
        return
    if (facts["test_loss"] or math.inf) < min(facts["baselines"].values(), default=0.0):
        sentence = N_(
            "It is better than every counting table. What is still missing, sense above all, takes a larger model and "
            "a longer text."
        )
        yield SampleReason("size", sentence)
    sentence = N_("Samples are drawn at temperature 0.8; at 0.5 the text is tamer, and repeats itself more.")
    yield SampleReason("temperature", sentence, f"generate {shlex.quote(facts['run'])} --temperature 0.5")


def _of_numbers(facts: Mapping[str, Any]) -> Iterator[SampleReason]:
    """What the numbers say where no reason follows from them."""
    exact, loss, step = facts["exact"], facts["test_loss"], facts["step"] or 0
    table = min(facts["baselines"].values(), default=math.inf)
    is_good = loss is not None and (loss < table if exact is None else exact >= RIGHT)
    if exact is not None:
        sentence = N_(
            "No reason was found: {exact:.0%} of its answers to new questions are exact after {steps:,} steps."
        )
    elif loss is None:
        sentence = N_("No reason was found: the run has no evaluation after {steps:,} steps.")
    else:
        sentence = N_("No reason was found: after {steps:,} steps the test loss is {loss:.2f} nats.")
    said = sentence.format(exact=exact, steps=step, loss=loss)
    run = shlex.quote(facts["run"])
    yield SampleReason("numbers", said, f"evaluate {run}" if is_good else f"continue {run} --minutes 2")


@dataclass(frozen=True, repr=False)
class WhySample(Shown, Tabular):
    """Why the sample of a run is as it is.

    Attributes:
        facts: of the run, as plain data.
        reasons: the most important first.
    """

    facts: dict[str, Any]
    reasons: tuple[SampleReason, ...]

    @staticmethod
    def of(run: SealedRun) -> "WhySample":
        """The reasons of a run; as `facts_of`."""
        facts = facts_of(run)
        return WhySample(facts, reasons(facts))

    @property
    def command(self) -> str:
        """The one command to try next, without the program's name; empty if none helps."""
        return next((one.command for one in self.reasons if one.command), "")

    def lines(self, program: str = "vitral") -> list[str]:
        """The reasons in the current language, and the command."""
        texts = [_(one.text) for one in self.reasons]
        return [*texts, *([_("Try next: {command}", command=f"{program} {self.command}")] if self.command else [])]

    def __str__(self) -> str:
        """One line each."""
        return "\n".join(f"- {line}" for line in self.lines())

    def records(self) -> list[dict[str, Any]]:
        """One row for each reason."""
        return [asdict(one) for one in self.reasons]

    def plain(self) -> dict[str, Any]:
        """As plain data."""
        return {"facts": self.facts, "reasons": self.records(), "command": self.command}

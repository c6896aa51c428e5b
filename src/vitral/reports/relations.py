"""Compared runs, their relations, and the sentences about them."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

from vitral.core.language import N_, _, number
from vitral.evaluation import SplitLoss
from vitral.figures.text import NONE, minus
from vitral.reports.runs import run_row
from vitral.runs import RunSummary

if TYPE_CHECKING:
    pass

NATS, BITS = "nats per token", "bits per character"
Comparable = Literal["nats per token", "bits per character", "nothing"]
Batches = Literal["same", "same by configuration", "other"]
UNITS = {NATS: N_("nats per token"), BITS: N_("bits per character"), "nothing": N_("nothing")}
BATCHES = {
    "same": N_("the same, by their hash"),
    "same by configuration": N_("the same, by configuration"),
    "other": N_("others: {keys}"),
}
OVER_THE_TEXT = N_(
    "The intervals hold together with 95%. They are the uncertainty over texts like this test split, cut into "
    "contiguous blocks: they are about these trained models. They do not contain the chance of another seed, so they "
    "are no claim about the variants in general; vitral study makes such claims. Nor do they hold if the run that "
    "others are compared with was chosen because its loss on this test split is the lowest."
)


@dataclass(frozen=True)
class CurvePoint:
    """An evaluation while training.

    Attributes:
        step: completed optimizer steps.
        tokens: that the model was trained on so far.
        seconds: of training steps so far; None where the speed was not logged.
        validation: loss in nats per token.
        test: loss in nats per token.
    """

    step: int
    tokens: int
    seconds: float | None
    validation: float
    test: float


@dataclass(frozen=True)
class ComparedRun:
    """A run among those that are compared.

    Attributes:
        summary: the run in a few numbers; its name is unique among the runs.
        config: keys that affect its numbers, as plain data.
        checkpoint: the step whose weights were measured.
        loss: of these weights on the whole test split; None where it was not measured.
        curve: its evaluations.
        tokens_per_second: of training, the median of the logged speeds; None where none was logged.
        threads: of training.
        processor: it was trained on; None if unknown.
        sample: written from the common prompt; None where there is none.
        why: reason why there is no loss, an English sentence; empty otherwise.
        why_no_sample: reason why there is no sample, likewise.
        is_whole: whether the whole test split was measured; of a long one only evenly spread parts are, which are other
            parts in other tokens.
    """

    summary: RunSummary
    config: Mapping[str, Any]
    checkpoint: int
    loss: SplitLoss | None
    curve: tuple[CurvePoint, ...]
    tokens_per_second: float | None
    threads: int
    processor: str | None
    sample: str | None
    why: str = ""
    why_no_sample: str = ""
    is_whole: bool = True

    @property
    def name(self) -> str:
        """A name that is unique among the runs."""
        return self.summary.name

    def plain(self) -> dict[str, Any]:
        """As plain data."""
        others = {key: getattr(self, key) for key in ("checkpoint", "tokens_per_second", "threads", "processor")}
        return {
            **run_row(self.summary, shown=False),
            **others,
            "loss": None if self.loss is None else self.loss.plain(),
            "curve": [asdict(point) for point in self.curve],
            "sample": self.sample,
            "missing": self.why,
            "missing_sample": self.why_no_sample,
            "whole_test_split": self.is_whole,
        }


@dataclass(frozen=True)
class PairedDifference:
    """The loss of one run minus that of another on the same test text.

    Attributes:
        unit: "nats per token" (the same tokens) or "bits per character" (other tokens).
        difference: over the whole test split; negative where the first run predicts better.
        low: lower end of the interval over blocks; None where there is no spread to estimate.
        high: upper end, or None.
        confidence: of the interval, corrected for the number of differences, so that all hold together with 95%.
        blocks: the difference in each contiguous block of the test split.
        targets: that both runs predict, or None with other tokens.
    """

    unit: str
    difference: float
    low: float | None
    high: float | None
    confidence: float
    blocks: tuple[float, ...]
    targets: int | None

    @property
    def excludes_zero(self) -> bool:
        """Whether the interval excludes zero."""
        return self.low is not None and self.high is not None and (self.low > 0 or self.high < 0)


@dataclass(frozen=True)
class Relation:
    """How far a run can be compared with another.

    Attributes:
        run: name of the run.
        against: name of the run it is compared with.
        same_text: whether both have the same text, byte for byte.
        same_test: whether their test splits are the same text too, read in the same way.
        same_tokens: whether these have the same tokens.
        same_task: whether both predict the next token, or both masked tokens.
        batches: whether both were trained on the same batches in the same order.
        batches_differ: names of what makes the batches differ.
        comparable: the unit in which their losses can be compared, or "nothing".
        difference: of their losses; None where they cannot be compared or were not measured.
        why: reason why there is no difference although there could be one, an English sentence; empty otherwise.
    """

    run: str
    against: str
    same_text: bool
    same_test: bool
    same_tokens: bool
    same_task: bool
    batches: Batches
    batches_differ: tuple[str, ...]
    comparable: Comparable
    difference: PairedDifference | None = None
    why: str = ""

    @property
    def text(self) -> str:
        """The possible comparison, and the difference, in one or two sentences."""
        return f"{self._allowed()} {self._found()}".strip()

    def _allowed(self) -> str:
        names = {"run": self.run, "against": self.against}
        if not self.same_text:
            return _("{run} was tested on another text than {against}: their losses cannot be compared.", **names)
        if not self.same_test:
            return _(
                "{run} has the text of {against}, but read or split in another way: their losses are of other test "
                "texts and cannot be compared.",
                **names,
            )
        if not self.same_task:
            return _("{run} predicts something else than {against}: their losses cannot be compared.", **names)
        if self.same_tokens:
            return _("{run} and {against} have the same test text in the same tokens: losses can be compared.", **names)
        if self.comparable == "nothing":
            return _(
                "{run} has the test text of {against} in other tokens, and of this long text only parts were measured, "
                "which are other parts in other tokens: their losses cannot be compared.",
                **names,
            )
        return _(
            "{run} has the test text of {against} in other tokens: losses in nats per token cannot be compared, bits "
            "per character can.",
            **names,
        )

    def _found(self) -> str:
        found = self.difference
        if found is None:
            return _("No difference: {reason}.", reason=_(self.why)) if self.why else ""
        size = number(abs(found.difference), ".4f")
        places = {"run": self.run, "against": self.against, "size": size, "unit": _(UNITS[found.unit])}
        if found.low is None:
            return _("{run} minus {against}: {size} {unit}.", **(places | {"size": signed_number(found.difference)}))
        span = {"interval": interval_text(found), "blocks": len(found.blocks)}
        if not found.excludes_zero:
            return _(
                "No difference is shown: {size} {unit} (interval over {blocks} blocks {interval}).",
                **(places | {"size": signed_number(found.difference)}),
                **span,
            )
        if found.difference < 0:
            return _(
                "{run} predicts this text better than {against}, by {size} {unit} (interval of the difference over "
                "{blocks} blocks {interval}).",
                **places,
                **span,
            )
        return _(
            "{run} predicts this text worse than {against}, by {size} {unit} (interval of the difference over {blocks} "
            "blocks {interval}).",
            **places,
            **span,
        )


def signed_number(value: float, digits: int = 4) -> str:
    """A difference with its sign, in the current language."""
    return minus(number(value, f"+.{digits}f"))


def interval_text(found: PairedDifference) -> str:
    """An interval in the current language."""
    if found.low is None or found.high is None:
        return NONE
    return _("{low} to {high}", low=signed_number(found.low), high=signed_number(found.high))

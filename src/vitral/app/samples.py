"""Texts that a run wrote, as one result."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from vitral.core.language import _, number
from vitral.core.shown import Shown
from vitral.core.tables import Tabular
from vitral.decoding import Sample, Way
from vitral.report.html import page
from vitral.report.notebook import page_of
from vitral.report.sections import Preformatted


@dataclass(frozen=True, repr=False)
class Samples(Shown, Tabular):
    """Texts that a run wrote.

    Attributes:
        run: its folder.
        step: optimizer steps of the checkpoint.
        samples: in order; of a beam search, the best first.
        seconds: that it took.
        way: whether it ran in C, and why it did not.
    """

    run: str
    step: int
    samples: tuple[Sample, ...]
    seconds: float = 0.0
    way: Way | None = None
    _is_only_text = True

    @property
    def text(self) -> str:
        """The first text, after its prompt."""
        return self.samples[0].prompt + self.samples[0].text

    def __len__(self) -> int:
        """The number of texts."""
        return len(self.samples)

    def __getitem__(self, index: int) -> Sample:
        """One text."""
        return self.samples[index]

    def __iter__(self) -> Iterator[Sample]:
        """The texts in order."""
        return iter(self.samples)

    def __str__(self) -> str:
        """The texts, each after its prompt, as the command prints them."""
        if len(self.samples) == 1:
            return self.text
        headings = [f"--- {heading}" for heading in self._headings()]
        texts = [sample.prompt + sample.text for sample in self.samples]
        return "\n".join(line for pair in zip(headings, texts, strict=True) for line in pair)

    def _headings(self) -> list[str]:
        return [
            _("{n} of {all}", n=place, all=len(self.samples))
            if sample.score is None
            else _(
                "{n} of {all}, log-probability {score}",
                n=place,
                all=len(self.samples),
                score=number(sample.score, ".3f"),
            )
            for place, sample in enumerate(self.samples, start=1)
        ]

    def plain(self) -> list[dict[str, Any]]:
        """As plain data: the same as `vitral generate --format json`."""
        return [asdict(sample) | {"tokens": list(sample.tokens)} for sample in self.samples]

    def records(self) -> list[dict[str, Any]]:
        """One row for each text."""
        return self.plain()


@page_of.register
def _samples_page(samples: Samples) -> str:
    headings = samples._headings() if len(samples.samples) > 1 else [""]
    texts = [
        Preformatted(sample.prompt + sample.text, heading)
        for sample, heading in zip(samples.samples, headings, strict=True)
    ]
    return page(_("Written by {run} at step {step:,}", run=samples.run, step=samples.step), texts)

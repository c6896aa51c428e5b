"""Results that are pages: a run that computes in the browser, the demonstration."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vitral.app.demonstration import ORDER
from vitral.core.language import _, in_language
from vitral.core.shown import Shown
from vitral.report.demonstration import DemonstrationResult
from vitral.report.notebook import page_of, written_page
from vitral.report.plain import plain_text
from vitral.report.sections import Preformatted
from vitral.studies import against_counts, loss_claims


@dataclass(frozen=True)
class Bundle:
    """A page that carries a run.

    Attributes:
        path: the HTML file.
        size: its bytes.
    """

    path: Path
    size: int

    def plain(self) -> dict[str, Any]:
        """As plain data."""
        return {"path": str(self.path), "bytes": self.size}


@dataclass(frozen=True, repr=False)
class DemoPage(Shown):
    """The page of the demonstration.

    Attributes:
        html: its file.
        model: the page that carries the model, and computes it in the browser; None if no page can.
        result: what the page shows.
        prompt: a beginning to try.
    """

    html: Path
    model: Path | None
    result: DemonstrationResult
    prompt: str

    @property
    def run(self) -> Path:
        """The folder of the run that it shows; `vitral.load` opens it."""
        return self.result.run

    @property
    def sample(self) -> str:
        """A text by that run."""
        return self.result.sample.text

    @property
    def verdicts(self) -> tuple[str, ...]:
        """Of the study, in sentences."""
        study = self.result.study
        return (against_counts(study, ORDER).text, *(claim.text for claim in loss_claims(study).contrasts))

    def __str__(self) -> str:
        """The text that the model wrote, the verdicts, and the page."""
        pages = [_("report: {path}", path=self.html)]
        pages += [_("page that computes: {path}", path=self.model)] if self.model else []
        return plain_text("", [Preformatted(self.sample)], lead="") + "\n\n" + "\n".join([*self.verdicts, *pages])

    def plain(self) -> dict[str, Any]:
        """As plain data, in English."""
        paths = {"html": str(self.html), "model": None if self.model is None else str(self.model), "run": str(self.run)}
        with in_language("en"):
            return {**paths, "sample": self.sample, "verdicts": list(self.verdicts)}


@page_of.register
def _demo_page(demonstrated: DemoPage) -> str:
    return written_page(demonstrated.html, demonstrated)

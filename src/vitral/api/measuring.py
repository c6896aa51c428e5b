"""What a run achieves, for `vitral evaluate`."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from vitral.api.run import Run
from vitral.core.devices import DtypeName
from vitral.evaluation import (
    Copy,
    NgramBaselines,
    SplitLoss,
    longest_copy,
    novel_share,
    rank_among_baselines,
    training_text,
)

SAMPLE_TOKENS = 1000
SAMPLE_TEMPERATURE = 0.8
NOVEL_LENGTH = 12


@dataclass(frozen=True)
class Copying:
    """What a sample of the model has word for word from the training text.

    Attributes:
        characters: length of the sample.
        longest: its longest copied piece.
        novel_share: share of its pieces of `NOVEL_LENGTH` characters that the training text does not have.
    """

    characters: int
    longest: Copy
    novel_share: float


@dataclass(frozen=True)
class Measures:
    """A run, measured.

    Attributes:
        run: its folder.
        step: optimizer steps of the checkpoint measured.
        splits: loss of each part, full pass.
        lines: the n-gram lines of its text.
        copying: of one sample; None where it was left out, or the run fills blanks and writes none.
        fills_blanks: whether the losses are of hidden tokens, which no n-gram line is to be compared with.
    """

    run: str
    step: int
    splits: dict[str, SplitLoss]
    lines: NgramBaselines
    copying: Copying | None
    is_masked_lm: bool = False

    @property
    def standing(self) -> str:
        """Where the test loss stands among the n-gram lines."""
        if self.is_masked_lm:
            return "on hidden tokens, of which both sides are seen: no n-gram line is to be compared with it"
        return rank_among_baselines(self.splits["test"].loss, self.lines)

    def plain(self) -> dict[str, Any]:
        """Everything as plain data."""
        return {
            "run": self.run,
            "step": self.step,
            "parts": {name: part.plain() for name, part in self.splits.items()},
            "ngrams": self.lines.plain(),
            "standing": self.standing,
            "copying": None if self.copying is None else asdict(self.copying),
        }


def measure(path: Path, which: str, *, device: str, dtype: DtypeName, copying: bool) -> Measures:
    """Full passes over validation and test, and the copying meter on one sample.

    Raises:
        UsageError: not a run, or its text is not to be found or has changed.
    """
    run = Run(path, which, device=device, dtype=dtype)
    parts = run.evaluate("validation", "test")
    copied = _copying(run) if copying and not run.is_masked_lm else None
    return Measures(str(path), run.step, parts, run.ngram_baselines(), copied, run.is_masked_lm)


def _copying(run: Run) -> Copying:
    sample = run.samples([""], max_tokens=SAMPLE_TOKENS, temperature=SAMPLE_TEMPERATURE)[0].text
    trained_on = training_text(run.dataset())
    novel = novel_share(sample, trained_on, NOVEL_LENGTH) if len(sample) >= NOVEL_LENGTH else 0.0
    return Copying(len(sample), longest_copy(sample, trained_on), novel)

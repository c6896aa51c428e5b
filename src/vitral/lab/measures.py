"""The measures of a run on its whole splits: losses, n-gram baselines, and how much a sample copies."""

import math
from dataclasses import asdict, dataclass
from typing import Any

from vitral.core.language import N_, _, in_language, number
from vitral.core.tables import Tabular
from vitral.evaluation import (
    Copy,
    NgramBaselines,
    SplitLoss,
    baseline_name,
    rank_among_baselines,
)
from vitral.figures.html import page
from vitral.figures.notebook import Shown, page_of
from vitral.figures.plain import plain_text
from vitral.figures.sections import Paragraph, Section, Table
from vitral.figures.tables import Column, DataTable, decimals, whole
from vitral.reports.text import ngram_rows

NOVEL_LENGTH = 12
SPLITS = {"train": N_("train"), "validation": N_("validation"), "test": N_("test")}


@dataclass(frozen=True)
class Copying:
    """How much of a sample is copied word for word from the training text.

    Attributes:
        characters: length of the sample.
        longest: its longest copied piece.
        novel_share: share of its pieces of `NOVEL_LENGTH` characters that are not in the training text.
    """

    characters: int
    longest: Copy
    novel_share: float


@dataclass(frozen=True, repr=False)
class Measures(Shown, Tabular):
    """The measurements of a run.

    Attributes:
        run: its folder.
        step: optimizer steps of the checkpoint measured.
        splits: loss on each whole split.
        baselines: n-gram baselines of its text.
        copying: of one sample; None where it was not asked for, or the run is a masked language model.
        is_masked_lm: whether the losses are of masked positions, which n-gram baselines do not predict.
        problems: problems of its text by which the test loss is misleading, as English sentences.
    """

    run: str
    step: int
    splits: dict[str, SplitLoss]
    baselines: NgramBaselines
    copying: Copying | None
    is_masked_lm: bool = False
    problems: tuple[str, ...] = ()

    @property
    def standing(self) -> str:
        """The test loss compared with the n-gram baselines, as a phrase."""
        if self.is_masked_lm:
            return _("on masked positions, with context on both sides: n-gram baselines do not apply")
        return rank_among_baselines(self.splits["test"].loss, self.baselines)

    def plain(self) -> dict[str, Any]:
        """Everything as plain data."""
        with in_language("en"):
            standing = self.standing
        return {
            "run": self.run,
            "step": self.step,
            "parts": {name: part.plain() for name, part in self.splits.items()},
            "ngrams": self.baselines.plain(),
            "standing": standing,
            "problems": list(self.problems),
            "copying": None if self.copying is None else asdict(self.copying),
        }

    def records(self) -> list[dict[str, Any]]:
        """One row for each split."""
        return [{"split": name, **part.plain()} for name, part in self.splits.items()]

    def table(self) -> DataTable:
        """The losses of whole splits and of the n-gram baselines on the test split, in a form to be written."""
        splits = {"train": N_("train"), "validation": N_("validation"), "test": N_("test")}
        with in_language("en"):  # as data
            orders = {baseline_name(order): order for order in ({} if self.is_masked_lm else self.baselines.orders)}

        def told(name: str) -> str:
            return baseline_name(orders[name]) if name in orders else _(splits.get(name, name))

        columns = (
            Column("split", N_("split"), told, is_prose=True),
            Column("tokens", N_("tokens"), whole),
            Column("nats_per_token", N_("nats per token"), decimals(4)),
            Column("perplexity", N_("perplexity"), decimals(3)),
            Column("bits_per_character", N_("bits per character"), decimals(4)),
            Column("bits_per_byte", N_("bits per byte"), decimals(4)),
        )
        rows: list[dict[str, Any]] = [
            {
                "split": name,
                "tokens": split.num_targets,
                "nats_per_token": split.loss,
                "perplexity": split.perplexity,
                "bits_per_character": split.bits_per_character,
                "bits_per_byte": split.bits_per_byte,
            }
            for name, split in self.splits.items()
        ]
        rows += [
            {
                "split": name,
                "nats_per_token": self.baselines.orders[order],
                "perplexity": math.exp(self.baselines.orders[order]),
            }
            for name, order in orders.items()
        ]
        return DataTable(_("{run} at step {step:,}", run=self.run, step=self.step), columns, rows)

    def sections(self) -> list[Section]:
        """The losses on whole splits, the n-gram baselines, and how much a sample copies."""
        rows = tuple(
            (
                _(SPLITS.get(name, name)),
                number(split.num_targets, ","),
                number(split.loss, ".4f"),
                number(split.perplexity, ".3f"),
                number(split.bits_per_character, ".4f"),
                number(split.bits_per_byte, ".4f"),
            )
            for name, split in self.splits.items()
        )
        heads = (
            _("split"),
            _("tokens"),
            _("nats per token"),
            _("perplexity"),
            _("bits per character"),
            _("bits per byte"),
        )
        baselines = Table(
            _("N-gram baselines on the test split"), ("", _("nats per token")), tuple(ngram_rows(self.baselines))
        )
        standing = Paragraph(_("The test loss is {standing}.", standing=self.standing))
        sections: list[Section] = [Table(self.title(), heads, rows), baselines, standing]
        sections += [Paragraph(_(problem)) for problem in self.problems]
        if self.copying is not None:
            copied = self.copying
            told = _(
                "The longest piece of a sample ({characters:,} characters) that is copied from the training text has "
                "{length} characters: {text!r}. {novel:.0%} of its pieces of {piece} characters are not in the "
                "training text.",
                characters=copied.characters,
                length=copied.longest.length,
                text=copied.longest.text,
                novel=copied.novel_share,
                piece=NOVEL_LENGTH,
            )
            sections.append(Paragraph(told))
        return sections

    def title(self) -> str:
        """The run and its step."""
        return _("{run} at step {step:,}", run=self.run, step=self.step)

    def __str__(self) -> str:
        """The measurements as the command prints them."""
        return plain_text("", self.sections()).lstrip()


@page_of.register
def _measures_page(measures: Measures) -> str:
    return page(_("Measurements"), measures.sections())

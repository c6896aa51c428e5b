"""The loss of a run on any text: bits per byte, which compare models of other tokens."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vitral.core.language import N_, _, number
from vitral.core.tables import Tabular
from vitral.data import CorpusConfig, Split, Tokenizer, load_corpus
from vitral.data.long_texts import pieces
from vitral.evaluation import Masking, SplitLoss, evaluate_split
from vitral.evaluation.text_sizes import sizes_in_text
from vitral.figures.html import page
from vitral.figures.notebook import Shown, page_of
from vitral.figures.plain import plain_text
from vitral.figures.sections import Paragraph, Section, Table
from vitral.figures.tables import Column, DataTable, decimals, whole
from vitral.model import Transformer


@dataclass(frozen=True, repr=False)
class TextMeasures(Shown, Tabular):
    """The loss of a run on a text.

    Attributes:
        run: its folder.
        step: optimizer steps of the checkpoint measured.
        text: name of the text.
        loss: on the whole text, in windows of the model's context.
        is_changed: whether the tokenizer changes the text: its characters and bytes are those of the text as it is.
    """

    run: str
    step: int
    text: str
    loss: SplitLoss
    is_changed: bool = False

    def plain(self) -> dict[str, Any]:
        """Everything as plain data."""
        told = {"run": self.run, "step": self.step, "text": self.text, "is_changed": self.is_changed}
        return {**told, **self.loss.plain()}

    def records(self) -> list[dict[str, Any]]:
        """One row."""
        return [{"text": self.text, **self.loss.plain()}]

    def table(self) -> DataTable:
        """The row in a form to be written."""
        columns = (
            Column("text", N_("text"), is_prose=True),
            Column("num_targets", N_("tokens"), whole),
            Column("loss", N_("nats per token"), decimals(4)),
            Column("perplexity", N_("perplexity"), decimals(3)),
            Column("bits_per_character", N_("bits per character"), decimals(4)),
            Column("bits_per_byte", N_("bits per byte"), decimals(4)),
        )
        return DataTable(self.title(), columns, self.records())

    def title(self) -> str:
        """The run and its step."""
        return _("{run} at step {step:,}", run=self.run, step=self.step)

    def sections(self) -> list[Section]:
        """The loss as a table."""
        loss = self.loss
        row = (
            self.text,
            number(loss.num_targets, ","),
            number(loss.loss, ".4f"),
            number(loss.perplexity, ".3f"),
            number(loss.bits_per_character, ".4f"),
            number(loss.bits_per_byte, ".4f"),
        )
        heads = (
            _("text"),
            _("tokens"),
            _("nats per token"),
            _("perplexity"),
            _("bits per character"),
            _("bits per byte"),
        )
        note = _(
            "The tokenizer changes this text: the text that its tokens spell is another one. Bits per character and "
            "per byte count the text as it is, and the model does not predict what the tokenizer leaves out."
        )
        return [Table(self.title(), heads, (row,)), *([Paragraph(note)] if self.is_changed else [])]

    def __str__(self) -> str:
        """The table as the command prints it."""
        return plain_text("", self.sections()).lstrip()


@page_of.register
def _text_page(measures: TextMeasures) -> str:
    return page(_("Measurements"), measures.sections())


def loss_on_text(
    model: Transformer, tokenizer: Tokenizer, text: str | Path, masking: Masking | None, replace: str | None
) -> tuple[str, SplitLoss, bool]:
    """The name of a text, a model's loss on all of it, and whether the tokenizer changes it.

    Characters and bytes are those of the text as it is given.

    Args:
        model: the model.
        tokenizer: the model's.
        text: a file, a folder or a name, as of a corpus.
        masking: of a masked language model.
        replace: a character in place of those without a token.

    Raises:
        UsageError: the text cannot be read, or has a character without a token.
    """
    corpus = load_corpus(CorpusConfig.parse({"source": str(text)}, "text"))
    whole = "".join(pieces(corpus.text))
    tokens = tokenizer.encode(whole, replacement=replace)
    split = Split(tokens, np.array([[0, tokens.size]], dtype=np.int64))
    is_changed = tokens.size > 0 and tokenizer.decode(tokens) != whole
    sizes = sizes_in_text(tokenizer, whole, tokens, replace) if is_changed else None
    return corpus.name, evaluate_split(model, split, tokenizer, masking=masking, sizes=sizes), is_changed

"""What is measured of a run: losses on its splits beside n-gram baselines, copying, and the loss on any text."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from math import log
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int

from vitral.core.language import _, in_language
from vitral.core.shown import Shown, Tabular
from vitral.data import CorpusConfig, Dataset, Split, Tokenizer, load_corpus
from vitral.data.alphabet import code_points
from vitral.data.answers import ANSWER, END
from vitral.data.long_texts import pieces
from vitral.evaluation.baselines import NgramBaselines, rank_among_baselines
from vitral.evaluation.copying import Copy, longest_copy, novel_share
from vitral.evaluation.losses import AnswerScore, SplitLoss, evaluate_split, token_sizes
from vitral.evaluation.masking import Masking, filling_of, masking_of
from vitral.model import Transformer

NOVEL_LENGTH = 12


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

    @staticmethod
    def of(sample: str, trained_on: str) -> "Copying":
        """How much of a sample is copied."""
        novel = novel_share(sample, trained_on, NOVEL_LENGTH) if len(sample) >= NOVEL_LENGTH else 0.0
        return Copying(len(sample), longest_copy(sample, trained_on), novel)


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
        masked: of a mixed objective, the losses of masked positions besides.
        labels: of a run of labels, what simple classifiers reach on the test split (`label_baselines`).
        problems: problems of its text by which the test loss is misleading, as English sentences.
    """

    run: str
    step: int
    splits: dict[str, SplitLoss]
    baselines: NgramBaselines
    copying: Copying | None
    is_masked_lm: bool = False
    problems: tuple[str, ...] = ()
    masked: Mapping[str, SplitLoss] = field(default_factory=dict[str, SplitLoss])
    labels: Mapping[str, AnswerScore] = field(default_factory=dict[str, AnswerScore])

    @property
    def is_of_next_tokens(self) -> bool:
        """Whether the losses are of the tokens that n-gram baselines predict."""
        return not (self.is_masked_lm or self.labels)

    @property
    def standing(self) -> str:
        """The test loss compared with the n-gram baselines, as a phrase."""
        if self.is_masked_lm:
            return _("on masked positions, with context on both sides: n-gram baselines do not apply")
        if self.labels:
            return _("on whole labels, not on tokens: n-gram baselines do not apply")
        return rank_among_baselines(self.splits["test"].loss, self.baselines.orders, self.problems)

    def plain(self) -> dict[str, Any]:
        """Everything as plain data."""
        with in_language("en"):
            standing = self.standing
        return {
            "run": self.run,
            "step": self.step,
            "parts": {name: part.plain() for name, part in self.splits.items()},
            **({"masked": {name: part.plain() for name, part in self.masked.items()}} if self.masked else {}),
            **({"labels": {name: score.plain() for name, score in self.labels.items()}} if self.labels else {}),
            "ngrams": self.baselines.plain(),
            "standing": standing,
            "problems": list(self.problems),
            "copying": None if self.copying is None else asdict(self.copying),
        }

    def records(self) -> list[dict[str, Any]]:
        """One row for each split."""
        return [{"split": name, **part.plain()} for name, part in self.splits.items()]


def measured(model: Transformer, dataset: Dataset, objective: Any) -> dict[str, Any]:
    """The `splits`, `masked` and `labels` of `Measures`.

    Args:
        model: the model.
        dataset: the run's.
        objective: of its training.
    """
    tokenizer, splits = dataset.tokenizer, {name: dataset.splits[name] for name in ("validation", "test")}

    def losses(masking: Masking | None) -> dict[str, SplitLoss]:
        return {name: evaluate_split(model, split, tokenizer, masking=masking) for name, split in splits.items()}

    masking, filling = masking_of(objective, tokenizer), filling_of(objective, tokenizer)
    return {
        "splits": losses(masking),
        "masked": losses(filling) if filling and not masking else {},
        "labels": label_baselines(dataset) if objective == "label" else {},
    }


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
        about = {"run": self.run, "step": self.step, "text": self.text, "is_changed": self.is_changed}
        return {**about, **self.loss.plain()}

    def records(self) -> list[dict[str, Any]]:
        """One row."""
        return [{"text": self.text, **self.loss.plain()}]


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


Sizes = tuple[Int[np.ndarray, " tokens"], Int[np.ndarray, " tokens"]]
LONGER = (0x80, 0x800, 0x10000)
"""The first characters with one more byte in UTF-8."""


def sizes_in_text(
    tokenizer: Tokenizer, text: str, tokens: Int[np.ndarray, " tokens"], replacement: str | None = None
) -> Sizes:
    """Characters and UTF-8 bytes of a text that each of its tokens stands for.

    A token stands for the text from the end of the token before it to its own end, so that all of the text is counted
    once, also what the tokenizer leaves out. What follows the last token belongs to it.

    Args:
        tokenizer: made the tokens.
        text: the text as it was given.
        tokens: its tokens.
        replacement: with which they were made.
    """
    if tokenizer.name == "file":
        ends = tokenizer.ends(text, replacement=replacement)
    else:  # one character is replaced by one
        ends = np.minimum(token_sizes(tokenizer)[0][tokens].cumsum(), len(text))
    ends = np.concatenate([[0], ends])
    ends[-1] = len(text)
    points = code_points(text)
    lengths = 1 + np.sum([points >= first for first in LONGER], axis=0, dtype=np.int64)
    bytes_before = np.concatenate([[0], lengths.cumsum()])
    return np.diff(ends), np.diff(bytes_before[ends])


# ---------------------------------------------------------------- classifiers beside a model

_WORD = re.compile(r"\w+")
MAJORITY, NAIVE_BAYES = "majority", "naive_bayes"


def label_baselines(dataset: Dataset) -> dict[str, AnswerScore]:
    """What two classifiers that are counted on the training split reach on the test split.

    `MAJORITY` always says the most frequent label. `NAIVE_BAYES` is the multinomial one over words in small letters,
    every count one more (Manning, Raghavan & Schütze 2008, section 13.2); words that the training split lacks do not
    count.

    Args:
        dataset: of labelled texts.
    """
    labels, counts = Counter[str](), defaultdict[str, Counter[str]](Counter)
    for words, label in _texts(dataset, "train"):
        labels[label] += 1
        counts[label].update(words)
    known = set[str]().union(*counts.values())

    def score(label: str, words: list[str]) -> float:
        total = counts[label].total() + len(known)
        return log(labels[label]) + sum(log((counts[label][word] + 1) / total) for word in words if word in known)

    test = list(_texts(dataset, "test"))
    (most, _), *_ = labels.most_common(1)
    bayes = sum(max(sorted(labels), key=lambda one: score(one, words)) == label for words, label in test)
    return {
        MAJORITY: AnswerScore(sum(label == most for _, label in test), len(test)),
        NAIVE_BAYES: AnswerScore(bayes, len(test)),
    }


def _texts(dataset: Dataset, name: str) -> Iterator[tuple[list[str], str]]:
    """The words of each text of a split, and its label."""
    split = dataset.splits[name]
    for begin, end in split.segments:
        text, _, label = dataset.tokenizer.decode(split.tokens[begin:end]).partition(ANSWER)
        yield _WORD.findall(text.lower()), label.removesuffix(END)

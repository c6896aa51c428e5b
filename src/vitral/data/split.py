"""The train, validation and test split of a text, in characters, made before tokenization.

A text is cut into blocks, and every block belongs to one split. The split does not depend on the seed of a run, so all
runs on a text are evaluated on the same characters. `passages`, `share` and `also` of the configuration change the
training split only, so losses of runs with different training text can be compared.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, overload

import numpy as np
from jaxtyping import Int

from vitral.core.checked import Natural, checked
from vitral.core.config import closest, shown
from vitral.core.errors import UsageError
from vitral.core.language import _, ngettext
from vitral.core.streams import numpy_stream
from vitral.data.config import CorpusConfig
from vitral.data.corpora import Corpus, load_corpus
from vitral.data.texts import Text, hash_text, pieces

SPLITS = ("train", "validation", "test")
BLOCK = 5_000
"""Characters per block."""
SPLIT_SEED = 0
"""The seed of the split, independent of the seed of the run."""

_MIN_BLOCKS = 3
_MIN_TAIL = 20


@checked
class Blocks(Sequence[tuple[int, int]]):
    """Sorted blocks of a text as (begin, end), stored in one array since a long text has millions."""

    def __init__(self, spans: Int[np.ndarray, "blocks 2"], *, apart: bool = False) -> None:
        """Use these blocks, (begin, end) per row.

        Args:
            spans: sorted.
            apart: whether each is a segment by itself, even where the next one begins at its end.
        """
        if not isinstance(spans, np.ndarray) or spans.ndim != 2 or spans.shape[1] != 2 or spans.dtype.kind not in "iu":
            raise UsageError("blocks: expected an array of whole numbers with two columns, begin and end")
        self._spans, self.apart = spans, apart

    def __len__(self) -> int:
        """Number of blocks."""
        return len(self._spans)

    @overload
    def __getitem__(self, place: int) -> tuple[int, int]: ...
    @overload
    def __getitem__(self, place: slice) -> "Blocks": ...
    def __getitem__(self, place: int | slice) -> "tuple[int, int] | Blocks":
        """One block, or a slice of blocks."""
        if isinstance(place, slice):
            return Blocks(self._spans[place], apart=self.apart)
        begin, end = self._spans[place].tolist()
        return begin, end

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """Iterate over the blocks."""
        return ((int(begin), int(end)) for begin, end in self._spans)

    def __eq__(self, other: object) -> bool:
        """Whether the other sequence contains the same blocks."""
        return isinstance(other, Sequence) and len(self) == len(other) and all(map(tuple.__eq__, self, other))

    __hash__ = None  # pyright: ignore[reportAssignmentType]

    @property
    def num_characters(self) -> int:
        """Total number of characters."""
        return int((self._spans[:, 1] - self._spans[:, 0]).sum())

    def runs(self) -> "Iterator[Blocks]":
        """Groups of adjacent blocks: each block begins where the previous one ends. Blocks that are apart are alone.

        >>> [list(run) for run in Blocks(np.array([[0, 5], [5, 10], [15, 20]])).runs()]
        [[(0, 5), (5, 10)], [(15, 20)]]
        """
        borders = np.flatnonzero(self.apart | (self._spans[1:, 0] != self._spans[:-1, 1])) + 1
        return (self[begin:end] for begin, end in pairwise([0, *borders.tolist(), len(self)]) if end > begin)


@checked(first=True)
def split_text(num_characters: Natural, method: Literal["blocks", "tail", "nanogpt"]) -> dict[str, Blocks]:
    """Divide a text into blocks and the blocks into splits.

    `blocks`: one block in ten is for test and one in twenty for validation (at least one each), drawn with seed 0. The
    remainder after the last full block is added to it, so that no split gets a fragment.
    `tail`: the last tenth is for test, the twentieth before it for validation, the rest for training.
    `nanogpt`: the first nine tenths are for training, the rest is both validation and test, as in nanoGPT; selecting by
    this validation loss means selecting on the test split.

    Args:
        num_characters: length of the text.
        method: `"blocks"`, `"tail"` or `"nanogpt"`.

    Returns:
        Split -> its blocks; together they cover every character (exactly once except for `nanogpt`). Blocks are 5,000
        characters long, except the last of the text (`blocks`: up to 9,999) or of a split (`tail`: the rest).

    >>> {split: len(blocks) for split, blocks in split_text(100_000, "blocks").items()}
    {'train': 17, 'validation': 1, 'test': 2}

    Raises:
        UsageError: the text is too short to be split this way.
    """
    return _split_blocks(num_characters) if method == "blocks" else _split_tail(num_characters, method)


def split_blocks(config: CorpusConfig, num_characters: Natural) -> dict[str, Blocks]:
    """The split of a corpus: of a text by its method, of a generated task by sequences (`split_text`)."""
    if config.task is None:
        return split_text(num_characters, config.split)
    splits = _split_blocks(num_characters, config.task.span)
    return {split: Blocks(np.array(blocks), apart=True) for split, blocks in splits.items()}


def _characters(count: int) -> str:
    return ngettext("{number:,} character", "{number:,} characters", count, number=count)


def _split_blocks(num_characters: int, block: int = BLOCK) -> dict[str, Blocks]:
    num_blocks = num_characters // block
    if num_blocks < _MIN_BLOCKS:
        needed = _MIN_BLOCKS * block
        raise UsageError(
            'the text has {characters}; split = "blocks" needs at least {needed:,}; give a '
            'longer text, or use corpus.split = "tail"',
            characters=_characters(num_characters),
            needed=needed,
        )
    order = numpy_stream(SPLIT_SEED, "split").permutation(num_blocks)
    num_test = max(1, (num_blocks + 5) // 10)
    num_validation = max(1, (num_blocks + 10) // 20)
    chosen = {
        "test": order[:num_test],
        "validation": order[num_test : num_test + num_validation],
        "train": order[num_test + num_validation :],
    }
    last = (num_blocks - 1) * block
    return {split: _spans(np.sort(chosen[split]) * block, block, num_characters, last) for split in SPLITS}


def _spans(begins: Int[np.ndarray, " blocks"], block: int, end: int, last: int) -> Blocks:
    """Blocks of `block` characters at these offsets; the last of the text extends to its end."""
    return Blocks(np.stack([begins, np.where(begins == last, end, begins + block)], axis=1))


def _split_tail(num_characters: int, method: str) -> dict[str, Blocks]:
    if num_characters < _MIN_TAIL:
        raise UsageError(
            'the text has {characters}; split = "{method}" needs at least {needed}; give a longer text',
            characters=_characters(num_characters),
            method=method,
            needed=_MIN_TAIL,
        )
    if method == "nanogpt":
        border = int(num_characters * 0.9)
        held_out = _cut(border, num_characters)
        return {"train": _cut(0, border), "validation": held_out, "test": held_out}
    test = num_characters - num_characters // 10
    validation = test - num_characters // 20
    borders = {"train": (0, validation), "validation": (validation, test), "test": (test, num_characters)}
    return {split: _cut(begin, end) for split, (begin, end) in borders.items()}


def whole(num_characters: int) -> Blocks:
    """A whole text as blocks; the last may be shorter.

    >>> list(whole(12_000))
    [(0, 5000), (5000, 10000), (10000, 12000)]
    """
    return _cut(0, num_characters)


def _cut(begin: int, end: int) -> Blocks:
    """A span of text as blocks; the last may be shorter."""
    begins = np.arange(begin, end, BLOCK)
    return Blocks(np.stack([begins, np.minimum(begins + BLOCK, end)], axis=1))


_SHOWN_AT_MOST = 200


@dataclass(frozen=True)
class Addition:
    """An additional training text (`corpus.also`).

    Attributes:
        corpus: the text.
        blocks: its training blocks.
        text_hash: see `hash_text`.
    """

    corpus: Corpus
    blocks: Blocks
    text_hash: str

    def describe(self) -> dict[str, Any]:
        """The description saved with a run, JSON-ready."""
        return {
            "name": self.corpus.name,
            "bytes": self.corpus.num_bytes,
            "characters": len(self.corpus.text),
            "sha256": self.corpus.sha256,
            "training_characters": self.blocks.num_characters,
            **self.corpus.origin(),
        }


def restricted(text: Text, blocks: Blocks, config: CorpusConfig) -> Blocks:
    """The training blocks selected by `passages` and `share`.

    `passages` first cuts each block to the characters inside a passage. `share` then takes the first blocks of a fixed
    random order, so that a smaller share is always a subset of a larger one.

    Raises:
        UsageError: a passage is not in the text, or none of it is in the training split.
    """
    if config.passages:
        spans = passage_spans(text, config.passages)
        blocks = _inside(blocks, spans)
        if not len(blocks):
            raise UsageError("corpus.passages: the training split contains nothing of them; give longer passages")
    return blocks if config.share is None else shared(blocks, config.share)


def shared(blocks: Blocks, share: float) -> Blocks:
    """A share of the blocks, rounded to a whole number, at least one; a subset of every larger share.

    >>> all_of_them = whole(50_000)
    >>> [len(shared(all_of_them, share)) for share in (0.01, 0.5, 1.0)]
    [1, 5, 10]
    """
    order = numpy_stream(SPLIT_SEED, "share").permutation(len(blocks))
    kept = np.sort(order[: max(1, round(share * len(blocks)))])
    return Blocks(np.array([blocks[place] for place in kept.tolist()], dtype=np.int64), apart=blocks.apart)


def load_additions(config: CorpusConfig, main: Corpus, cache: Path) -> tuple[Addition, ...]:
    """The texts of `also` as blocks, reduced to `share` of them.

    Raises:
        UsageError: a text cannot be read, or is the main text, whose test split would become training text.
    """
    others = (config.model_copy(update={"source": name}) for name in config.also or ())
    return additions(config, main, [load_corpus(other, cache=cache) for other in others])


def additions(config: CorpusConfig, main: Corpus, others: Sequence[Corpus]) -> tuple[Addition, ...]:
    """The texts of `also`, already loaded, as blocks, reduced to `share` of them.

    Raises:
        UsageError: a text is the main text, whose test split would become training text, or is there twice.
    """
    added: list[Addition] = []
    known = {hash_text(main.text)} if others else set()
    for name, corpus in zip(config.also or (), others, strict=True):
        text_hash = hash_text(corpus.text)
        if text_hash in known:
            raise UsageError(
                "corpus.also: {name!r} is the main text itself, or is given twice; leave it out", name=name
            )
        known.add(text_hash)
        blocks = whole(len(corpus.text))
        added.append(Addition(corpus, blocks if config.share is None else shared(blocks, config.share), text_hash))
    return tuple(added)


def train_key(config: CorpusConfig, added: Sequence[Addition]) -> list[Any]:
    """The part of a dataset's fingerprint that depends on the training text; empty for the default."""
    chosen: Mapping[str, Any] = {
        "passages": None if config.passages is None else [list(passage) for passage in config.passages],
        "share": config.share,
        "also": [addition.text_hash for addition in added] or None,
    }
    asked = {key: value for key, value in chosen.items() if value is not None}
    return [asked] if asked else []


def passage_spans(text: Text, passages: Sequence[tuple[str, str]]) -> list[tuple[int, int]]:
    r"""The (begin, end) offsets of passages in the text, in characters.

    A passage starts at the line equal to its first string and ends before the line equal to its second; an empty second
    string is the end of the text. Leading spaces of a line count, trailing spaces do not.

    >>> passage_spans("a\nb\nc\n", [("b", "c"), ("c", "")])
    [(2, 4), (4, 6)]

    Raises:
        UsageError: no line or several lines match, or the second line comes before the first.
    """
    wanted = {line for passage in passages for line in passage if line}
    found: dict[str, list[int]] = {line: [] for line in wanted}
    near: set[str] = set()
    words = {word for line in wanted for word in line.split()}
    for begin, line in _lines(text):
        if line in found:
            found[line].append(begin)
        elif words.intersection(line.split()):
            near.add(line[:_SHOWN_AT_MOST])
    spans = []
    for first, last in passages:
        begin = _only(first, found[first], near)
        end = _only(last, found[last], near) if last else len(text)
        if end <= begin:
            raise UsageError(
                "corpus.passages: the line {last} comes before {first}; swap them", last=shown(last), first=shown(first)
            )
        spans.append((begin, end))
    return spans


def _only(line: str, begins: Sequence[int], near: set[str]) -> int:
    """The offset of the only occurrence of a line."""
    if not begins:
        raise UsageError(
            "corpus.passages: no line of the text reads {line!r}; {hint}", line=line, hint=_closest(line, near)
        )
    if len(begins) > 1:
        raise UsageError(
            "corpus.passages: {number} lines of the text read {line!r}; choose a line that occurs once",
            number=len(begins),
            line=line,
        )
    return begins[0]


def _closest(line: str, near: set[str]) -> str:
    """A hint: the most similar line of the text, if any."""
    return closest(line, near) or _("copy a line exactly, including leading spaces")


def _lines(text: Text) -> Iterator[tuple[int, str]]:
    """Every line with its offset, without trailing spaces."""
    begin, rest = 0, ""
    for piece in pieces(text):
        *lines, rest = (rest + piece).split("\n")
        for line in lines:
            yield begin, line.rstrip()
            begin += len(line) + 1
    yield begin, rest.rstrip()


def _inside(blocks: Blocks, spans: Sequence[tuple[int, int]]) -> Blocks:
    """The intersections of blocks and spans."""
    together = _merged(spans)
    cut = [
        (max(begin, first), min(end, last))
        for begin, end in blocks
        for first, last in together
        if max(begin, first) < min(end, last)
    ]
    return Blocks(np.array(cut, dtype=np.int64).reshape(-1, 2))


def _merged(spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The union of spans, as sorted spans that do not touch."""
    merged: list[tuple[int, int]] = []
    for begin, end in sorted(spans):
        if merged and begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((begin, end))
    return merged

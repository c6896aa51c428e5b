"""What the training part is made of, where a user wants less of the text, other parts of it, or more than it.

The split comes first and is never touched: whatever is left out or added, the validation and the test part are the
same characters, so losses of runs on different training parts can be compared.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vitral.core.config import nearest
from vitral.core.errors import UsageError
from vitral.core.streams import numpy_stream
from vitral.data.config import CorpusConfig
from vitral.data.corpora import Corpus, load_corpus
from vitral.data.longtext import Text, hash_text, pieces
from vitral.data.split import SPLIT_SEED, Blocks, whole

_SHOWN_AT_MOST = 200


@dataclass(frozen=True)
class Addition:
    """A further text whose characters are all trained on, or a share of them.

    Attributes:
        corpus: the text.
        blocks: what of it is trained on.
        text_hash: of its characters, see `hash_text`.
    """

    corpus: Corpus
    blocks: Blocks
    text_hash: str

    def describe(self) -> dict[str, Any]:
        """What a run records of it, JSON-ready."""
        return {
            "name": self.corpus.name,
            "characters": len(self.corpus.text),
            "sha256": self.corpus.sha256,
            "training_characters": self.blocks.num_characters,
        }


def narrowed(text: Text, blocks: Blocks, config: CorpusConfig) -> Blocks:
    """The training blocks that `passages` and `share` leave.

    Passages first: of each block, what lies inside one of them. Then the share: so many of these blocks, the first of
    one fixed order by chance, so that a smaller share is always a part of a larger one.

    Raises:
        UsageError: a passage is not in the text, or none of it is in the training part.
    """
    if config.passages:
        spans = passage_spans(text, config.passages)
        blocks = _inside(blocks, spans)
        if not len(blocks):
            raise UsageError("corpus.passages: nothing of them is in the training part; name longer ones")
    return blocks if config.share is None else shared(blocks, config.share)


def shared(blocks: Blocks, share: float) -> Blocks:
    """The nearest whole number of blocks to this share of them, at least one; of a larger share, a part.

    >>> all_of_them = whole(50_000)
    >>> [len(shared(all_of_them, share)) for share in (0.01, 0.5, 1.0)]
    [1, 5, 10]
    """
    order = numpy_stream(SPLIT_SEED, "share").permutation(len(blocks))
    kept = np.sort(order[: max(1, round(share * len(blocks)))])
    return Blocks(np.array([blocks[place] for place in kept.tolist()], dtype=np.int64))


def additions(config: CorpusConfig, main: Corpus, cache: Path) -> tuple[Addition, ...]:
    """The texts of `also`, each cut into blocks of which `share` is kept.

    Raises:
        UsageError: one cannot be read, or is the text itself, whose test part would then be trained on.
    """
    added: list[Addition] = []
    known = {hash_text(main.text)} if config.also else set()
    for name in config.also or ():
        corpus = load_corpus(config.model_copy(update={"source": name}), cache=cache)
        text_hash = hash_text(corpus.text)
        if text_hash in known:
            raise UsageError(f"corpus.also: {name!r} is the text itself, or is named twice; leave it out")
        known.add(text_hash)
        blocks = whole(len(corpus.text))
        added.append(Addition(corpus, blocks if config.share is None else shared(blocks, config.share), text_hash))
    return tuple(added)


def part_key(config: CorpusConfig, added: Sequence[Addition]) -> list[Any]:
    """What a fingerprint must hold of all this; empty where nothing of it is asked for."""
    chosen: Mapping[str, Any] = {
        "passages": None if config.passages is None else [list(passage) for passage in config.passages],
        "share": config.share,
        "also": [addition.text_hash for addition in added] or None,
    }
    asked = {key: value for key, value in chosen.items() if value is not None}
    return [asked] if asked else []


def passage_spans(text: Text, passages: Sequence[tuple[str, str]]) -> list[tuple[int, int]]:
    r"""Where the passages stand in the text, as (begin, end) in characters.

    A passage runs from the one line that reads its first string to the one that reads its second, which is no longer
    in it; an empty second string is the end of the text. Spaces before a line count, spaces after it do not.

    >>> passage_spans("a\nb\nc\n", [("b", "c"), ("c", "")])
    [(2, 4), (4, 6)]

    Raises:
        UsageError: no line reads so, or several do, or the second stands before the first.
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
            raise UsageError(f"corpus.passages: the line {last!r} stands before {first!r}; turn them round")
        spans.append((begin, end))
    return spans


def _only(line: str, begins: Sequence[int], near: set[str]) -> int:
    """The one place of a line.

    Raises:
        UsageError: it has none, or several.
    """
    if not begins:
        raise UsageError(f"corpus.passages: no line of the text reads {line!r}; {_closest(line, near)}")
    if len(begins) > 1:
        raise UsageError(
            f"corpus.passages: {len(begins)} lines of the text read {line!r}; choose one that stands there once"
        )
    return begins[0]


def _closest(line: str, near: set[str]) -> str:
    """A line of the text that is nearly this one, if there is one."""
    close = nearest(line, near) if near else ""
    return close if close.startswith("did you mean") else "write a line as it stands there, spaces before it included"


def _lines(text: Text) -> Iterator[tuple[int, str]]:
    """Every line with the character it begins at, without the spaces at its end."""
    begin, rest = 0, ""
    for piece in pieces(text):
        *lines, rest = (rest + piece).split("\n")
        for line in lines:
            yield begin, line.rstrip()
            begin += len(line) + 1
    yield begin, rest.rstrip()


def _inside(blocks: Blocks, spans: Sequence[tuple[int, int]]) -> Blocks:
    """Of each block, what lies in one of the spans."""
    together = _merged(spans)
    cut = [
        (max(begin, first), min(end, last))
        for begin, end in blocks
        for first, last in together
        if max(begin, first) < min(end, last)
    ]
    return Blocks(np.array(cut, dtype=np.int64).reshape(-1, 2))


def _merged(spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The same characters as spans that do not touch, sorted."""
    merged: list[tuple[int, int]] = []
    for begin, end in sorted(spans):
        if merged and begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((begin, end))
    return merged

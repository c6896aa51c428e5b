"""Which work of a collection a passage is from: found by the collection's own table of contents.

A table of contents is a line `Contents` and the lines after it, up to where the first of them comes again. A work goes
from the first later line that is its title to the first later line that is the next title. Where the next title does
not come again word for word, nobody can tell where the work ends, and it is left out.

A text without such a table, or one that tells fewer than `FEWEST` works, is cut into `PIECES` equal stretches instead:
then the question is which stretch of the text a passage is from.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from vitral.data import Dataset, Tokenizer, load_corpus, split_text

CONTENTS = "contents"
PIECES = 8
"""Classes at most."""
FEWEST = 4
"""Works below which a text is cut into stretches."""
HEAD = 200_000
"""Characters in which a table of contents is looked for."""


@dataclass(frozen=True)
class Work:
    """A piece of a text: characters `begin` to `end`."""

    title: str
    begin: int
    end: int


@dataclass(frozen=True, eq=False)
class Labelled:
    """Passages and the works they are from.

    Attributes:
        tokens: of every passage.
        works: index of each one's work.
    """

    tokens: Int[Tensor, "passages time"]
    works: Int[np.ndarray, " passages"]


def works_of(text: str) -> list[Work]:
    r"""The works that a table of contents tells, in the order of the text; none where there is no table.

    >>> [work.title for work in works_of("Contents\nHAMLET\nLEAR\n\nHAMLET\nto be\nLEAR\nnothing\n")]
    ['HAMLET', 'LEAR']
    """
    lines, offsets = text.split("\n"), [0]
    for line in lines:
        offsets.append(offsets[-1] + len(line) + 1)
    named = [line.strip() for line in lines]
    head = [line.lower() for line, begin in zip(named, offsets, strict=False) if begin < HEAD]
    if CONTENTS not in head:
        return []
    titles: list[str] = []
    place = head.index(CONTENTS) + 1
    while place < len(named) and named[place] not in titles:
        titles += [named[place]] * bool(named[place])
        place += 1
    begins: dict[str, int] = {}
    for index in range(place, len(named)):
        if named[index] in titles:
            begins.setdefault(named[index], offsets[index])
    ends = [*(begins.get(title) for title in titles[1:]), len(text)]
    found = [
        Work(title, begins[title], end)
        for title, end in zip(titles, ends, strict=True)
        if title in begins and end is not None and end > begins[title]
    ]
    return found if all(one.end <= other.begin for one, other in pairwise(found)) else []


def stretches_of(text: str) -> list[Work]:
    """The text in `PIECES` equal stretches."""
    borders = np.linspace(0, len(text), PIECES + 1).astype(int).tolist()
    return [Work(f"stretch {number}", *pair) for number, pair in enumerate(pairwise(borders), start=1)]


def labelled(dataset: Dataset, time: int, counts: dict[str, int]) -> tuple[tuple[str, ...], bool, dict[str, Labelled]]:
    """Passages of the works with most of them, as many from each, evenly spread over it.

    Args:
        dataset: the text; passages are cut from its blocks, so none crosses from one part into another.
        time: tokens of a passage.
        counts: part -> passages of each work, fewer where the smallest of the chosen works has fewer.

    Returns:
        Titles of the works; whether they are works rather than stretches; part -> its passages.
    """
    text = str(load_corpus(dataset.config).text)
    blocks = split_text(len(text), dataset.config.split)
    for works, are_works in ((works_of(text), True), (stretches_of(text), False)):
        cut = {
            part: [_passages(text, work, blocks[part], dataset.tokenizer, time) for work in works] for part in counts
        }
        sizes = [min(len(cut[part][index]) / counts[part] for part in counts) for index in range(len(works))]
        chosen = [index for index in np.argsort(sizes, kind="stable")[::-1].tolist() if sizes[index]][:PIECES]
        if len(chosen) >= (FEWEST if are_works else 2) or not are_works:
            break
    chosen = sorted(chosen)
    parts = {part: _balanced([cut[part][index] for index in chosen], most) for part, most in counts.items()}
    return tuple(works[index].title for index in chosen), are_works, parts


def _passages(
    text: str, work: Work, blocks: Sequence[tuple[int, int]], tokenizer: Tokenizer, time: int
) -> Int[np.ndarray, "passages time"]:
    """All passages of a work in some blocks, one after the other."""
    rows = [np.zeros((0, time), dtype=np.int64)]
    for begin, end in blocks:
        piece = text[max(begin, work.begin) : min(end, work.end)]
        if piece:
            tokens = tokenizer.encode(piece)
            rows.append(tokens[: len(tokens) // time * time].reshape(-1, time))
    return np.concatenate(rows)


def _balanced(cut: Sequence[Int[np.ndarray, "passages time"]], most: int) -> Labelled:
    """As many passages from each work, evenly spread."""
    count = min(most, *(len(rows) for rows in cut)) if cut else 0
    rows = [rows[np.linspace(0, len(rows), count, endpoint=False).astype(int)] for rows in cut]
    tokens = torch.from_numpy(np.concatenate(rows)) if rows else torch.zeros(0, 1, dtype=torch.int64)
    return Labelled(tokens, np.repeat(np.arange(len(rows)), count))

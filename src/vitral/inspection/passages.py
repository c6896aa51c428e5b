"""Passages of a collection, labelled with the work they are from by the collection's own table of contents.

A text without such a table, or with fewer than `FEWEST` works in it, is cut into `MOST_CLASSES` equal segments instead.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from vitral.core.language import N_
from vitral.data import Blocks, Dataset, Tokenizer
from vitral.data.long_texts import pieces
from vitral.data.works import Work, works_of

MOST_CLASSES = 8
FEWEST = 4
"""Works below which a text is cut into equal segments."""


@dataclass(frozen=True, eq=False)
class Passages:
    """Passages of equal length and their works.

    Attributes:
        tokens: of every passage.
        works: index of each one's work.
    """

    tokens: Int[Tensor, "passages time"]
    works: Int[np.ndarray, " passages"]


def equal_segments(text: str) -> list[Work]:
    """The text in `MOST_CLASSES` equal segments."""
    borders = np.linspace(0, len(text), MOST_CLASSES + 1).astype(int).tolist()
    title = N_("stretch {number}")
    return [Work(title.format(number=number), *pair) for number, pair in enumerate(pairwise(borders), start=1)]


def passages_by_work(
    dataset: Dataset, time: int, counts: Mapping[str, int]
) -> tuple[tuple[str, ...], bool, dict[str, Passages]]:
    """Passages of the works that have most of them, equally many from each, evenly spread over it.

    Args:
        dataset: the text; passages are cut from its blocks, so none crosses from one split into another.
        time: tokens of a passage.
        counts: split -> passages of each work; fewer where the smallest of the chosen works has fewer.

    Returns:
        Titles of the works; whether they are works rather than equal segments; split -> its passages.
    """
    text, blocks = "".join(pieces(dataset.load_text().text)), dataset.blocks
    for works, are_works in ((works_of(text), True), (equal_segments(text), False)):
        cut = {
            split: [_passages(text, work, blocks[split], dataset.tokenizer, time) for work in works] for split in counts
        }
        sizes = [min(len(cut[split][index]) / counts[split] for split in counts) for index in range(len(works))]
        chosen = [index for index in np.argsort(sizes, kind="stable")[::-1].tolist() if sizes[index]][:MOST_CLASSES]
        if len(chosen) >= (FEWEST if are_works else 2) or not are_works:
            break
    chosen = sorted(chosen)
    balanced = {split: _balanced([cut[split][index] for index in chosen], most) for split, most in counts.items()}
    return tuple(works[index].title for index in chosen), are_works, balanced


def _passages(
    text: str, work: Work, blocks: Blocks, tokenizer: Tokenizer, time: int
) -> Int[np.ndarray, "passages time"]:
    """All passages of a work in some blocks, one after the other."""
    rows = [np.zeros((0, time), dtype=np.int64)]
    for begin, end in blocks:
        piece = text[max(begin, work.begin) : min(end, work.end)]
        if piece:
            tokens = tokenizer.encode(piece)
            rows.append(tokens[: len(tokens) // time * time].reshape(-1, time))
    return np.concatenate(rows)


def _balanced(cut: Sequence[Int[np.ndarray, "_ time"]], most: int) -> Passages:
    """Equally many passages from each work, evenly spread."""
    count = min(most, *(len(rows) for rows in cut)) if cut else 0
    rows = [rows[np.linspace(0, len(rows), count, endpoint=False).astype(int)] for rows in cut]
    tokens = torch.from_numpy(np.concatenate(rows)) if rows else torch.zeros(0, 1, dtype=torch.int64)
    return Passages(tokens, np.repeat(np.arange(len(rows)), count))

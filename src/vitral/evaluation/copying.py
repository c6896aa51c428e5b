"""Copying: verbatim overlap of a generated text with the training text."""

import re
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from vitral.core.errors import UsageError
from vitral.data.dataset import Dataset

SEAM = "\uffff"
"""Separates the segments of a training text, so that no copy crosses a gap; a noncharacter of Unicode."""

COPIED_WORDS = 8
"""Words in a row that make a copied passage."""
COPIED_CHARACTERS = 32
"""The same in a script that is written without spaces: four characters count as a word."""
MOST_SEARCHED = 1 << 24
"""Tokens of the longest training text that is searched while a run is watched, about 0.2 seconds for a sample."""
_UNSPACED = (
    r"\u0e00-\u0eff\u0f00-\u0fff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf"
    r"\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff"
)
"""Thai, Lao, Tibetan, Burmese, Khmer, Japanese and Chinese."""
_VOWELS = r"\u0300-\u036f\u0591-\u05c7\u064b-\u065f\u0900-\u0dff"
"""Signs inside words that Python does not count as letters: accents, points, and the vowels of India's scripts."""
_WORD = rf"(?:(?![{_UNSPACED}])[\w{_VOWELS}])"
_UNIT = re.compile(rf"[{_UNSPACED}]|{_WORD}+")
_IN_WORD = re.compile(_WORD)


@dataclass(frozen=True)
class Copy:
    """The longest substring of a sample that occurs in the training text.

    Attributes:
        length: its length in characters.
        text: the substring.
        position: its offset in the sample, in characters; the first of several equally long ones.
    """

    length: int
    text: str
    position: int


def longest_copy(sample: str, training_text: str) -> Copy:
    """The longest substring of the sample that occurs in the training text; length 0 if no character does.

    >>> longest_copy("the dog sat", "the cat sat on the mat")
    Copy(length=4, text='the ', position=0)
    """
    length, position = 0, 0
    for begin in range(len(sample)):
        # At each start only a longer match matters: a search fails once, or succeeds a few times.
        while begin + length < len(sample) and sample[begin : begin + length + 1] in training_text:
            length, position = length + 1, begin
    return Copy(length, sample[position : position + length], position)


def novel_share(sample: str, training_text: str, n: int) -> float:
    """The share of the sample's character n-grams, counted with repeats, that do not occur in the training text.

    >>> novel_share("abcd", "abc", 2)
    0.3333333333333333

    Raises:
        UsageError: n is below 1, or the sample has fewer than n characters.
    """
    if not 1 <= n <= len(sample):
        raise UsageError(
            "novel_share: n must be between 1 and the sample's {characters} characters, not {n}",
            characters=len(sample),
            n=n,
        )
    grams = [sample[begin : begin + n] for begin in range(len(sample) - n + 1)]
    novel = {gram for gram in set(grams) if gram not in training_text}
    return sum(gram in novel for gram in grams) / len(grams)


Span = tuple[int, int]
"""Begin and end of a passage, in characters."""


def copied_share(sample: Mapping[str, Any]) -> float | None:
    """The share of a run's sample that is copied, by the event that tells it; None where that was not measured.

    >>> copied_share({"text": "abcd", "copied": [[1, 4]]})
    0.75
    """
    if "copied" not in sample:
        return None
    return sum(end - begin for begin, end in sample["copied"]) / max(1, len(sample["text"]))


def copied_spans(sample: str, training_text: str) -> tuple[Span, ...]:
    """The passages of a sample in which `COPIED_WORDS` or more words in a row stand verbatim in the training text.

    A word is a run of letters, digits and underscores; spaces and punctuation between words belong to the passage. A
    character of a script without spaces (Chinese, Japanese, Thai, Lao, Tibetan, Burmese, Khmer) is a quarter of a word.
    Passages that overlap or touch are one.

    >>> copied_spans("So one two three four five six seven eight ends", "one two three four five six seven eight nine")
    ((3, 42),)
    """
    units = [match.span() for match in _UNIT.finditer(sample)]
    sizes = [COPIED_CHARACTERS // COPIED_WORDS if _IN_WORD.match(sample, begin) else 1 for begin, _ in units]
    before = [0, *accumulate(sizes)]
    spans: list[Span] = []
    reach = 0  # units up to here are decided: only a passage that ends later adds to the spans
    for first, (begin, _) in enumerate(units):
        stop = max(bisect_left(before, before[first] + COPIED_CHARACTERS), reach + 1)
        while stop <= len(units) and _stands(sample[begin : units[stop - 1][1]], training_text):
            reach, stop = stop, stop + 1
            touches = spans and begin <= spans[-1][1]
            spans[len(spans) - bool(touches) :] = [(spans[-1][0] if touches else begin, units[reach - 1][1])]
    return tuple(spans)


def _stands(passage: str, text: str) -> bool:
    """Whether a passage stands in a text without beginning or ending inside a word of it."""
    begin = text.find(passage)
    while begin >= 0:
        if not _is_inside(text, begin) and not _is_inside(text, begin + len(passage)):
            return True
        begin = text.find(passage, begin + 1)
    return False


def _is_inside(text: str, at: int) -> bool:
    return 0 < at < len(text) and bool(_IN_WORD.match(text, at - 1)) and bool(_IN_WORD.match(text, at))


def training_text(dataset: Dataset) -> str:
    """The text of the training split, its segments joined by `SEAM`."""
    split = dataset.splits["train"]
    pieces = (dataset.tokenizer.decode(split.tokens[begin:end]) for begin, end in split.segments)
    return SEAM.join(pieces)

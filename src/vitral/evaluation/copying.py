"""Copying: verbatim overlap of a generated text with the training text."""

from dataclasses import dataclass

from vitral.core.checked import Count, checked
from vitral.core.errors import UsageError
from vitral.data.dataset import Dataset

SEAM = "\uffff"
"""Separates the segments of a training text, so that no copy crosses a gap; a noncharacter of Unicode."""


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


@checked(first=True)
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


@checked(first=True)
def novel_share(sample: str, training_text: str, n: Count) -> float:
    """The share of the sample's character n-grams, counted with repeats, that do not occur in the training text.

    >>> novel_share("abcd", "abc", 2)
    0.3333333333333333

    Raises:
        UsageError: n is below 1, or the sample has fewer than n characters.
    """
    if not 1 <= n <= len(sample):
        raise UsageError(f"novel_share: n must be between 1 and the sample's {len(sample)} characters, not {n}")
    grams = [sample[begin : begin + n] for begin in range(len(sample) - n + 1)]
    novel = {gram for gram in set(grams) if gram not in training_text}
    return sum(gram in novel for gram in grams) / len(grams)


@checked(first=True)
def training_text(dataset: Dataset) -> str:
    """The text of the training split, its segments joined by `SEAM`."""
    split = dataset.splits["train"]
    pieces = (dataset.tokenizer.decode(split.tokens[begin:end]) for begin, end in split.segments)
    return SEAM.join(pieces)

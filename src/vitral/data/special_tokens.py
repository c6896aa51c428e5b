"""Special tokens in a text: where they are, borders outside them, and the characters around them."""

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

from vitral.data.long_texts import Text, character_counts, pieces


@lru_cache(maxsize=64)
def special_pattern(texts: tuple[str, ...], *, overlapping: bool = False) -> re.Pattern[str]:
    """Matches a special token (group 1), the longest of those that begin at one place.

    With `overlapping` the match is empty, so that special tokens that begin inside another are found too.
    """
    listed = "|".join(map(re.escape, sorted(texts, key=len, reverse=True)))
    return re.compile(f"(?=({listed}))" if overlapping else f"({listed})")


def outside_special_tokens(text: Text, border: int, texts: tuple[str, ...]) -> int:
    """A border in a text, or the last end of the special tokens that lie across it.

    Special tokens that overlap count too, so that a later border never moves to an earlier place.
    """
    if not texts:
        return border
    reach = max(map(len, texts)) - 1
    first = max(0, border - reach)
    found = special_pattern(texts, overlapping=True).finditer(text[first : border + reach])
    return max([border, *(first + match.end(1) for match in found if first + match.start() < border)])


def between_special_tokens(blocks: Sequence[str], texts: Sequence[str]) -> Iterator[str]:
    """The pieces of the blocks between special tokens, so that no merge crosses or uses one."""
    if not texts:
        return iter(blocks)
    pattern = special_pattern(tuple(texts))
    return (piece for block in blocks for piece in pattern.split(block)[::2])


def alphabet_counts(texts: Iterable[Text], specials: Sequence[str]) -> dict[str, int]:
    """The characters of texts and their number, without those of special tokens.

    Where special tokens can overlap (the end of one begins another), their characters count too, since a part of one
    may be left between two blocks.
    """
    if not specials or any(_overlap(one, other) for one in specials for other in specials):
        return character_counts(texts)
    return character_counts(part for text in texts for part in _without_special_tokens(text, tuple(specials)))


def _without_special_tokens(text: Text, specials: tuple[str, ...]) -> Iterator[str]:
    pattern, reach, rest = special_pattern(specials), max(map(len, specials)) - 1, ""
    for piece in pieces(text):
        rest += piece
        end = outside_special_tokens(rest, max(0, len(rest) - reach), specials)  # a special token may go on
        yield pattern.sub("", rest[:end])
        rest = rest[end:]
    yield pattern.sub("", rest)


def _overlap(one: str, other: str) -> bool:
    return any(one.endswith(other[:length]) for length in range(1, min(len(one), len(other))))

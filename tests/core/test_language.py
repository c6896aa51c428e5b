"""Stored sentences in another language: whatever a line says, it is told in a time in proportion to its length."""

import re

import pytest

from vitral.core import language as languages
from vitral.core.language import LANGUAGES, LONGEST_STORED, in_language, retold

OTHERS = [code for code in LANGUAGES if code != "en"]


def pieces(sentence: str) -> list[str]:
    """What a sentence says between its places."""
    return [piece for piece in re.split(r"\{.*?\}|\}", sentence) if piece]


@pytest.mark.parametrize("code", OTHERS)
def test_lines_made_against_the_sentences_are_told_at_once(code: str) -> None:
    """Each has the pieces of a sentence many times, but not its end; tried in all ways they would take years."""
    with in_language(code):
        for _, _, sentence in languages._patterns(code):
            said = pieces(sentence)
            if len(said) < 4:
                continue
            often = LONGEST_STORED // len(said)
            several = "".join((piece + "1 ") * (often // (len(piece) + 2)) for piece in said[:-1])
            whole = "".join(piece + "1 " for piece in said[:-1])
            for line in (several, whole * (LONGEST_STORED // len(whole))):
                assert len(line) <= LONGEST_STORED
                assert "1" in retold(line)


@pytest.mark.parametrize("code", OTHERS)
@pytest.mark.parametrize("line", ["x: y (z), " * 150, "x: y (z), " * 100_000, "stopped: " * 160, "1" * LONGEST_STORED])
def test_a_line_of_a_stranger_stays_as_it_is(code: str, line: str) -> None:
    with in_language(code):
        assert retold(line) == line or len(line) <= LONGEST_STORED


@pytest.mark.parametrize("code", OTHERS)
def test_a_value_may_have_the_words_after_its_place(code: str) -> None:
    """The first of them ends it."""
    with in_language(code):
        told = retold("runs/a: finished at step 4: finished at step 9; to train it for longer: vitral continue runs/a")
    assert "runs/a" in told

"""The writer: whole characters, no stop string, nothing taken back."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vitral.core.errors import UsageError
from vitral.decoding.text import Writer, check_stop

STOPS = st.lists(st.text("abé", min_size=1, max_size=4), max_size=3)
TOKENS = st.lists(st.text("abéß", max_size=3).map(str.encode) | st.binary(max_size=3), max_size=12)


def pieces_of(tokens: list[bytes], stop: list[str]) -> tuple[list[str], Writer]:
    """What a writer gives away token after token, and the writer."""
    writer, pieces = Writer(stop), []
    for token in tokens:
        writer.write(token)
        pieces.append(writer.take())
        if writer.stopped:
            break
    writer.end()
    return [*pieces, writer.take()], writer


def test_an_unfinished_character_waits() -> None:
    assert pieces_of([b"a\xe2", b"\x90", b"\xa0b"], [])[0] == ["a", "", "␠b", ""]


def test_what_may_become_a_stop_string_waits() -> None:
    assert pieces_of([b"a", b"b", b"a", b"b", b"c", b"d"], ["abc"])[0] == ["", "", "ab", "", "", ""]
    assert pieces_of([b"a", b"b", b"a", b"b", b"d"], ["abc"])[0] == ["", "", "ab", "", "abd", ""]
    assert pieces_of([b"a", b"b"], ["abc"])[0] == ["", "", "ab"]
    assert pieces_of([b"a", b"a", b"b"], ["aab"])[0] == ["", "", "", ""]


def test_the_text_ends_before_the_stop_string_inside_a_token() -> None:
    pieces, writer = pieces_of([b"one", b" two\nthree", b"four"], ["\n"])
    assert pieces == ["one", " two", ""]
    assert writer.text == "one two"


def test_a_stop_string_made_by_the_last_replacement_counts() -> None:
    assert pieces_of([b"ab", b"\xe2"], ["b\ufffd"])[1].text == "a"


@given(TOKENS)
def test_without_stop_strings_pieces_are_the_decoded_text(tokens: list[bytes]) -> None:
    pieces, writer = pieces_of(tokens, [])
    assert "".join(pieces) == writer.text == b"".join(tokens).decode("utf-8", "replace")


@given(TOKENS, STOPS)
def test_pieces_join_to_the_text_and_hold_no_stop_string(tokens: list[bytes], stop: list[str]) -> None:
    pieces, writer = pieces_of(tokens, stop)
    assert "".join(pieces) == writer.text
    assert not any(text in writer.text for text in stop)
    assert writer.stopped == any(text in b"".join(tokens).decode("utf-8", "replace") for text in stop)


@given(st.text("abé", max_size=20), STOPS)
def test_character_by_character_the_first_stop_string_to_end_counts(text: str, stop: list[str]) -> None:
    ends = [end for end in range(len(text) + 1) if any(text[:end].endswith(s) for s in stop)]
    cut = min(ends[0] - len(s) for s in stop if text[: ends[0]].endswith(s)) if ends else len(text)
    assert pieces_of([character.encode() for character in text], stop)[1].text == text[:cut]


@given(TOKENS, STOPS, st.integers(0, 12))
def test_a_copy_goes_on_alone(tokens: list[bytes], stop: list[str], split: int) -> None:
    original = Writer(stop)
    for token in tokens[:split]:
        if not original.stopped:
            original.write(token)
    before = original.text
    copied = original.copy()
    for token in tokens[split:]:
        if not copied.stopped:
            copied.write(token)
    copied.end()
    assert copied.text == pieces_of(tokens, stop)[1].text
    assert original.text == before


@pytest.mark.parametrize("stop", ["END", [""], ["a", ""]])
def test_bad_stop_strings_are_refused(stop: Any) -> None:
    with pytest.raises(UsageError, match=r"^stop: "):
        check_stop(stop)

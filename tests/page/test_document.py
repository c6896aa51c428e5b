"""The page as a file: what it weighs, what is in it."""

import gzip

import pytest

from vitral.page.document import CARRIED, SERVED, as_text, asset
from vitral.page.words import sentences, words

MOST_WEIGHT = 70_000
"""Bytes of script and style, compressed; the words, which are data, come on top."""


@pytest.mark.parametrize("script", [CARRIED, SERVED])
def test_script_and_style_are_light_and_end_no_element(script: str) -> None:
    assert sum(len(gzip.compress(asset(name).encode(), 9)) for name in (script, "page.css")) <= MOST_WEIGHT
    assert "</script" not in asset(script)
    assert "</style" not in asset("page.css")


def test_every_sentence_of_the_front_end_has_its_translation() -> None:
    told = words()
    assert told["en"] == list(sentences())
    assert len(told["pt"]) == len(told["en"])
    assert all(told["pt"])


def test_data_cannot_end_their_element() -> None:
    text = as_text({"</script>": "\u2028\ud800<!--"})
    assert text.isascii()
    assert "<" not in text

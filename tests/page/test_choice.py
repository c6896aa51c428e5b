"""The choice in Chromium: its numbers are Python's, a click takes a branch, u is moved, texts go on."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from browser import needs_chromium
from pages import Carried, mulberry32, opened
from variants import TOKENIZER

from vitral.decoding import Reader, Sampling, choose, distribution
from vitral.model import Transformer
from vitral.page.document import page_document

pytestmark = [pytest.mark.merge, needs_chromium]
SAMPLING = Sampling(temperature=0.8, top_k=6, top_p=0.9)
TEXT = "abc ha b"
FRAGMENT = "#t=0.8&k=6&q=0.9&r=7&text=abc%20ha%20b"
SEED, COUNT = 7, 40
WINDOW = {"viewport": {"width": 1200, "height": 900}}
WAIT = 60_000


@pytest.fixture
def page(carried: Carried, window: Any, tmp_path: Path) -> Iterator[Any]:
    file = tmp_path / "page.html"
    file.write_text(page_document(carried("pre")[1]), encoding="utf-8")
    opened(window, file, FRAGMENT)
    window.locator("section.choice").wait_for(timeout=WAIT)
    yield window
    assert window.faults == []


def generated(model: Transformer, ids: list[int], count: int) -> list[int]:
    """As the page's, by the reader and the choice of Python."""
    reader, tokens = Reader(model, torch.tensor([ids])), []
    for turn in range(count):
        probabilities = distribution(reader.logits(), SAMPLING, forbidden=TOKENIZER.specials)
        chosen = choose(probabilities, torch.tensor([mulberry32(SEED, len(ids) + turn)], dtype=torch.float64))
        tokens.append(int(chosen))
        reader.append(chosen)
    return tokens


def visible(text: str) -> str:
    return text.replace(" ", "␣").replace("\n", "↵")


def test_the_text_that_goes_on_is_that_of_python(page: Any, carried: Carried) -> None:
    expected = generated(carried("pre")[0], TOKENIZER.encode(TEXT).tolist(), COUNT)
    page.get_by_role("button", name="one token").click()
    tokens = page.locator(".made-token b")
    tokens.first.wait_for()
    assert tokens.all_text_contents() == [visible(TOKENIZER.label(expected[0]))]
    page.get_by_role("button", name="go on", exact=True).click()
    tokens.nth(COUNT - 1).wait_for(timeout=WAIT)
    assert tokens.all_text_contents() == [visible(TOKENIZER.label(token)) for token in expected]
    tokens.nth(4).click()  # to go on from there
    page.get_by_role("button", name="take the branch back").wait_for()
    assert page.get_by_role("textbox").first.input_value() == TEXT + TOKENIZER.decode(expected[:5])
    assert tokens.count() == 0

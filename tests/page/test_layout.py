"""At every width no text lies over another, none is cut off, and the page is no wider than its window."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from browser import needs_chromium
from pages import chromium, content_of
from variants import BASE, enlarged

from vitral.data import char_tokenizer
from vitral.model import ModelConfig, Transformer
from vitral.page.document import page_document

pytestmark = [pytest.mark.merge, needs_chromium]
SCRIPT = (Path(__file__).parent / "layout.js").read_text(encoding="utf-8")
WIDTHS = (320, 390, 600, 768, 1024, 1280, 1400)
TEXT = "Shall I compare thee to a summer's day? Thou art more lovely"
SIZES = {"context_length": 64, "d_model": 30}
OPENED = f"text={quote(TEXT[:20])}&o=blocks.0.attn.weights:0.0.19.3"
STATES = {
    "first": "",
    "31 tokens": f"text={quote(TEXT[:31])}",
    "58 tokens": f"text={quote(TEXT[:58])}",
    "softmax": OPENED,
    "a new key": f"text={quote(TEXT[:20])}&w=2&x={quote('Q' + TEXT[1:20])}&g=3",
    "shares": f"text={quote(TEXT[:58])}&w=5&x=&z=head&a=14",
}


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    tokenizer = char_tokenizer("".join(sorted(set(TEXT))))
    model = enlarged(Transformer(ModelConfig.parse(BASE | SIZES), tokenizer.vocab_size, seed=1).eval())
    file = tmp_path_factory.mktemp("layout") / "page.html"
    file.write_text(page_document(content_of(model, tokenizer, TEXT[:20])), encoding="utf-8")
    with chromium(reduced_motion="reduce") as window:
        window.add_init_script(SCRIPT)
        window.goto(file.as_uri())
        yield window


@pytest.mark.parametrize("width", WIDTHS)
def test_texts_are_apart_and_whole(width: int, page: Any) -> None:
    page.set_viewport_size({"width": width, "height": 800})
    for language in ("en", "pt"):
        for state, fragment in STATES.items():
            page.evaluate("(fragment) => { location.hash = fragment; }", f"l={language}&{fragment}")
            page.wait_for_function("() => vitralPage.shown.value?.ids === vitralPage.ids.value")
            page.wait_for_timeout(150)  # a frame for what is measured
            assert page.evaluate("() => (scrollTo(0, 0), layoutFaults())") == [], (state, language)

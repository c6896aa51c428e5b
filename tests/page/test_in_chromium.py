"""The page in Chromium, from a file and without a network: what it computes, refuses, shows and remembers."""

import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import torch
from browser import as_tensor, needs_chromium, violations
from pages import Carried, content_of, differing, expected, opened
from variants import BASE, TEXT, TOKENIZER, enlarged

from vitral.data import char_tokenizer
from vitral.model import ModelConfig, Transformer
from vitral.page.content import PageContent
from vitral.page.document import page_document

pytestmark = [pytest.mark.merge, needs_chromium]
WINDOW = {"viewport": {"width": 1100, "height": 800}}
VALUES = """() => {
  const { ids, values } = vitralPage.shown.value;
  return { ids, values: Object.fromEntries(Object.entries(values).map(([name, { shape, data }]) =>
    [name, { shape, data: Array.from(data, (each) => (Number.isFinite(each) ? each : String(each))) }])) };
}"""


class Made:
    """A page on disk, and its model."""

    def __init__(self, of: tuple[Transformer, PageContent], folder: Path) -> None:
        self.model, self.content = of
        self.html = page_document(self.content)
        self.file = folder / "page.html"
        self.file.write_text(self.html, encoding="utf-8")


@pytest.fixture(scope="module")
def one(carried: Carried, tmp_path_factory: pytest.TempPathFactory) -> Made:
    return Made(carried("pre"), tmp_path_factory.mktemp("page"))


def values_of(window: Any) -> tuple[list[int], dict[str, torch.Tensor]]:
    told = window.evaluate(VALUES)
    return told["ids"], {name: as_tensor(each) for name, each in told["values"].items()}


@pytest.mark.parametrize("variant", ["pre", "lstm"])
def test_a_page_computes_offline_and_asks_for_nothing_but_itself(
    variant: str, carried: Carried, tmp_path: Path, window: Any
) -> None:
    page = Made(carried(variant), tmp_path)
    asked: list[str] = []
    window.on("request", lambda request: asked.append(request.url))
    window.faults.clear()
    opened(window, page.file)
    window.locator("main table, main canvas, main svg").first.wait_for()
    assert [url for url in asked if not url.startswith(("data:", "blob:"))] == [page.file.as_uri()]
    assert window.faults == []
    ids, values = values_of(window)
    assert ids == TOKENIZER.encode(TEXT).tolist()
    assert set(page.model.activation_names) <= values.keys()
    assert differing(values, expected(page.model, ids)) == []


HOSTILE = '</script><img src=x onerror=document.title="taken">\u2028\u2029<!--<script> é'


def test_names_vocabularies_and_sentences_are_data(tmp_path: Path, window: Any) -> None:
    alphabet = "".join(sorted(set(HOSTILE)))
    tokenizer = char_tokenizer(alphabet)
    model = enlarged(
        Transformer(
            ModelConfig.parse(BASE | {"context_length": 80, "num_layers": 1}), tokenizer.vocab_size, seed=1
        ).eval()
    )
    html = page_document(content_of(model, tokenizer, HOSTILE, HOSTILE + "\ud800"))
    assert html.count("</script>") == html.count("<script")
    file = tmp_path / "page.html"
    file.write_text(html, encoding="utf-8")
    window.faults.clear()
    opened(window, file)
    assert window.faults == []
    ids, values = values_of(window)
    assert ids == tokenizer.encode(HOSTILE).tolist()
    assert window.title() != "taken"
    assert window.locator("main img").count() == 0
    assert differing(values, expected(model, ids)) == []


def test_a_browser_without_a_needed_feature_says_so(one: Made, window: Any) -> None:
    page = window.context.new_page()
    page.add_init_script("delete globalThis.TextEncoder")
    with page.expect_event("pageerror") as error:
        page.goto(one.file.as_uri())
    assert "TextEncoder" in str(error.value)
    assert page.locator("#old").inner_text()
    assert page.locator("main canvas").count() == 0
    page.close()


OFF = [{"at": "blocks.1.attn.z", "heads": [1], "positions": "all", "do": "zero"}]


def test_the_page_is_used_without_a_mouse(one: Made, window: Any) -> None:
    opened(window, one.file)
    window.keyboard.press("?")
    window.get_by_role("dialog").wait_for()
    window.keyboard.press("Escape")
    window.get_by_role("dialog").wait_for(state="hidden")
    window.keyboard.press("h")
    window.keyboard.press("x")
    assert "h=1" in window.evaluate("() => vitralPage.written()")
    assert window.evaluate("() => vitralPage.edits.value[0].heads[0]") == 1
    window.keyboard.press("u")
    assert window.evaluate("() => vitralPage.edits.value.length") == 0
    window.keyboard.press("/")
    window.keyboard.type("h?x")  # letters of a sentence are no keys
    assert window.evaluate("() => vitralPage.text.value").endswith("h?x")
    assert window.get_by_role("dialog").count() == 0


@pytest.mark.parametrize(("theme", "language"), [("light", "en"), ("dark", "pt")])
def test_axe_finds_nothing(theme: str, language: str, one: Made, window: Any) -> None:
    edits = quote(json.dumps(OFF))
    opened(window, one.file, f"#c={theme}&l={language}&e={edits}&w=2&x=&g=2")
    window.locator("#figure-sweep").wait_for()
    for _ in range(2):  # then with the list of keys
        assert violations(window) == []
        window.keyboard.press("?")
    window.keyboard.press("Escape")


def told_in(window: Any) -> float:
    """The number of the tip that a picture shows for the cell under the pointer, or with the focus."""
    tip = window.locator(".mark-tip").first
    tip.wait_for()
    return float(tip.inner_text().rpartition(":")[2].strip().replace("−", "-"))


def drawn(window: Any, number: Any) -> bool:
    """Whether the tip has the right number within some frames: it is drawn after the key or the pointer."""
    for _frame in range(200):
        if told_in(window) == number:
            return True
        window.wait_for_timeout(16)
    return False


BELOW = """() => {
  const [above, below] = [".sentence-line", ".edits"].map((at) => document.querySelector(at).getBoundingClientRect());
  return scrollY > 0 && below.top >= above.bottom && below.top < above.bottom + 12;
}"""
"""Whether the list of edits stays on the screen right below the sentence, once the page was scrolled."""


OVER = """() => {
  const boxes = (what) => [...document.querySelectorAll(what)].map((each) => each.getBoundingClientRect());
  const across = (one, other) => one.left < other.right && other.left < one.right;
  const meet = (one, other) => across(one, other) && one.top < other.bottom && other.top < one.bottom;
  return boxes(".menu").filter((one) => boxes(".mark").some((other) => meet(one, other))).length;
}"""
"""How many menus of figures lie over a picture."""


@pytest.mark.parametrize("width", [390, 756])
def test_a_page_of_any_width(width: int, one: Made, window: Any) -> None:
    """Its layout and its marks agree on where columns begin; what stays on the screen and the list of keys fit."""
    size = window.viewport_size
    window.set_viewport_size({"width": width, "height": 768})
    try:
        opened(window, one.file, f"#e={quote(json.dumps(OFF))}")
        window.locator(".edits").wait_for()
        assert window.evaluate("() => document.documentElement.scrollWidth") <= width
        assert window.evaluate(OVER) == 0
        shares = "(node) => getComputedStyle(node).gridTemplateColumns.split(' ').length"
        line = window.locator("#figure-overview .line").first
        assert line.evaluate(shares) == 1 + window.locator(".flow-names").count()
        window.mouse.wheel(0, 3000)
        window.wait_for_function(BELOW)  # the page scrolls a moment later
        window.keyboard.press("?")
        dialog = window.get_by_role("dialog")
        dialog.wait_for()
        assert dialog.evaluate("(node) => node.scrollHeight - node.clientHeight") <= 0
        window.keyboard.press("Escape")
    finally:
        window.set_viewport_size(size)


def test_on_paper_every_figure_lies_within_the_page(one: Made, window: Any) -> None:
    """A browser fits the page's width to the paper's and cuts off the rest."""
    beyond = """() => {
      const across = document.body.getBoundingClientRect().right;
      const marks = [...document.querySelectorAll("main .mark")];
      return marks.filter((each) => each.getBoundingClientRect().right > across + 1).length;
    }"""
    window.set_viewport_size({"width": 1600, "height": 800})
    try:
        opened(window, one.file)
        on_screen = window.evaluate("() => document.body.clientWidth")
        window.evaluate("async () => { dispatchEvent(new Event('beforeprint')); await Promise.resolve(); }")
        on_paper = window.evaluate("() => document.body.clientWidth")
        assert on_paper < on_screen
        assert window.evaluate("() => document.querySelectorAll('main .mark').length") > 5
        assert window.evaluate(beyond) == 0
        window.evaluate("() => { dispatchEvent(new Event('afterprint')); }")
        assert window.evaluate("() => document.body.clientWidth") == on_screen
    finally:
        window.set_viewport_size({"width": 1100, "height": 800})

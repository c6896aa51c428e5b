"""What a page shows follows what the model has, what is switched off, and what the reader does; Back undoes it."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from browser import needs_chromium
from pages import Carried, chromium, opened
from variants import TEXT

from vitral.page.document import page_document

pytestmark = [pytest.mark.merge, needs_chromium]
pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
SIZE = {"width": 1400, "height": 900}
OFF = [{"at": f"blocks.{block}.attn.out", "do": "zero"} for block in (0, 1)]


@pytest.fixture(scope="module")
def window() -> Iterator[Any]:
    with chromium(viewport=SIZE, locale="pt-BR") as page:
        yield page


@pytest.fixture
def page(carried: Carried, window: Any, tmp_path: Path) -> Iterator[Any]:
    """`page(variant, fragment)` opens the page of a model, in English."""

    def get(variant: str, fragment: str = "#l=en") -> Any:
        file = tmp_path / "page.html"
        file.write_text(page_document(carried(variant)[1]), encoding="utf-8")
        opened(window, file, fragment)
        window.locator("section.choice").wait_for()
        return window

    yield get
    assert window.faults == []


def text(page: Any) -> str:
    return page.locator("main").inner_text()


def test_nothing_is_said_of_attention_that_the_model_lacks_or_that_is_off(page: Any) -> None:
    told = ("gathers light", "Attention brings", "ribbon")
    assert all(each in text(page("pre")) for each in told)
    off = text(page("pre", f"#l=en&e={quote(json.dumps(OFF))}"))
    assert not any(each in off for each in told)
    assert "2 parts are switched off." in off
    without = text(page("no attention"))
    assert not any(each in without for each in (*told, "to see its heads"))
    assert "This model has no attention. Every guess depends on the last token" in without


def test_edits_are_called_what_they_are(page: Any) -> None:
    edit = {"at": "blocks.0.attn.z", "heads": [1], "do": "scale", "factor": 2}
    shown = page("pre", f"#l=en&e={quote(json.dumps([edit]))}")
    assert shown.locator(".edits").inner_text().startswith("1 value is changed: blocks.0.attn.z[1] × 2.")


def test_the_rule_of_a_rotated_query_names_its_rotation(page: Any) -> None:
    cell = "&o=blocks.0.attn.q:0.0.1.0"
    assert "rotate(" in page("rotary", "#l=en" + cell).locator("#opened .prose").inner_text()
    assert "rotate(" not in page("pre", "#l=en" + cell).locator("#opened .prose").inner_text()


def test_a_chosen_cell_is_opened_beside_it_and_query_times_key_first(page: Any) -> None:
    shown = page("pre")
    assert "attn.scores[" in shown.locator("#figure-numbers").get_attribute("aria-label")
    grid = shown.locator("#figure-head .with-pair .mark-grid")
    grid.scroll_into_view_if_needed()
    box = grid.bounding_box()
    grid.click(position={"x": 160, "y": box["height"] - 5})
    equation = shown.locator(".pair .equation")
    equation.wait_for()
    assert "attn.weights[0, 0, 7, 0]" in shown.locator("#figure-numbers").get_attribute("aria-label")
    place = equation.bounding_box()
    assert place["y"] >= 0
    assert place["y"] + place["height"] <= SIZE["height"]
    assert place["x"] + place["width"] <= SIZE["width"]


def test_who_guesses_is_told_nothing(page: Any) -> None:
    shown = page("pre")
    shown.get_by_role("button", name="guess first").click()
    for tells in ("#figure-overview", "#figure-heads", "#opened", ".tells"):
        assert not shown.locator(tells).is_visible(), tells
    assert shown.locator(".pair").count() == 0
    shown.get_by_role("button", name="show it").click()
    assert shown.locator("#figure-overview").is_visible()


def test_a_page_speaks_the_browser_s_language_unless_its_address_says_another(page: Any) -> None:
    assert page("pre", "").evaluate("document.documentElement.lang") == "pt"
    assert page("pre").evaluate("document.documentElement.lang") == "en"


def test_back_undoes_what_was_done(page: Any) -> None:
    shown = page("pre")
    for key, now in (("h", "h=1"), ("x", "e=")):
        shown.keyboard.press(key)
        shown.wait_for_url(f"**{now}**")
    shown.go_back()
    shown.wait_for_function("() => !vitralPage.edits.value.length && vitralPage.written().includes('h=1')")
    shown.go_back()
    shown.wait_for_function("() => !vitralPage.written().includes('h=1')")


def test_what_cannot_be_drawn_is_not_drawn(page: Any) -> None:
    shown = page("pre")
    shown.evaluate(
        "() => { window.whole = vitralPage.shown.value; const {embed, ...values} = whole.values;"
        " vitralPage.shown.value = {...whole, values}; }"
    )
    shown.get_by_role("alert").first.wait_for()
    assert shown.locator("main section .mark").count() == 0
    shown.evaluate("() => { vitralPage.shown.value = {...window.whole}; }")
    shown.locator("section.choice").wait_for()


def test_the_field_keeps_lines_and_the_continuation_is_text(page: Any) -> None:
    shown = page("pre")
    shown.locator("textarea").fill("ab\nha")
    shown.wait_for_function("() => vitralPage.shown.value.ids.length === 5")
    shown.get_by_role("button", name="Write", exact=True).click()
    shown.wait_for_function("() => document.querySelector('.written span')?.textContent.length > 8")
    assert shown.locator(".written").inner_text().partition(" ")[2].startswith("ab\nha")
    assert len(TEXT) < len(shown.locator(".written span").text_content())

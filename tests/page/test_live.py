"""The live pages of docs/demo, and the page of a run of the zoo that says where it opens."""

import re
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest
from browser import needs_chromium, violations
from pages import opened

import vitral
from vitral.runs.zoo import recipe

pytestmark = [pytest.mark.merge, needs_chromium]
DEMO = Path(__file__).parents[2] / "docs/demo"
MOST = 3_000_000
WINDOW = {"viewport": {"width": 1100, "height": 800}}


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_page_with_two_doors_has_no_violation_and_no_dead_link(theme: Any, window: Any) -> None:
    index = DEMO / "index.html"
    targets = re.findall(r'href="([^"#]+)', index.read_text("utf-8"))
    assert len({*targets}) == 4
    assert all((DEMO / target).exists() for target in targets)
    window.emulate_media(color_scheme=theme)
    window.goto(index.as_uri())
    assert violations(window) == []


@pytest.mark.parametrize(("name", "language"), [("aldermere", "en"), ("casmurro", "pt")])
def test_a_live_page_is_small_and_opens_on_two_readers(name: str, language: str, window: Any) -> None:
    page = DEMO / f"{name}.html"
    assert page.stat().st_size <= MOST
    opened(window, page)
    assert window.evaluate("() => document.documentElement.lang") == language
    assert window.locator("#figure-readers").count() == 1


def test_a_run_of_the_zoo_opens_where_its_recipe_says(window: Any, tmp_path: Path) -> None:
    page, opens = tmp_path / "induction.html", recipe("induction")["opens"]
    vitral.bundle("zoo:induction", page)
    window.goto(page.as_uri())
    window.locator("#figure-head").wait_for()
    said = parse_qs(window.evaluate("() => vitralPage.written()"))
    assert said == {
        "text": [opens["text"]],
        "b": [str(opens["block"])],
        "f": [opens["figure"]],
    }  # head 0 is not written
    assert window.locator("main figure").evaluate_all("all => all.map((one) => one.id)") == ["figure-head"]
    window.get_by_role("button", name=re.compile("whole page")).click()
    window.locator("#figure-heads").wait_for()
    window.wait_for_function("() => /text=(?!.*f=)/.test(location.hash)")  # the address follows a moment later
    window.reload()
    window.locator("#figure-heads").wait_for()

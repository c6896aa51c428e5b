"""The sweep of a page: its map is Python's, cell by cell; its address shows it again; a cell is an edit."""

from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from browser import needs_chromium
from pages import Carried, opened
from variants import TEXT, TOKENIZER

from vitral.inspection.sweep import sweep_places
from vitral.page.document import page_document

pytestmark = [pytest.mark.merge, needs_chromium]
OTHER = "abch\nba "
WINDOW = {"viewport": {"width": 1400, "height": 900}}
PAIR = ".".join(map(str, TOKENIZER.encode("ba")))


def effects_of(window: Any) -> list[float]:
    window.locator("#figure-sweep").wait_for()
    window.wait_for_function("() => vitralPage.swept.value.effects.every((each) => !Number.isNaN(each))")
    return window.evaluate("() => Array.from(vitralPage.swept.value.effects)")


@pytest.mark.parametrize(
    ("variant", "other", "by"),
    [
        ("grouped", OTHER, "head"),
        ("rotary", "", "head"),
        ("post", OTHER, ""),
        ("no attention", "", "head"),
        ("lstm", OTHER, ""),
    ],
)
def test_an_address_shows_python_s_map_again_and_again(
    variant: str, other: str, by: Any, carried: Carried, window: Any, tmp_path: Path
) -> None:
    model, content = carried(variant)
    (tmp_path / "page.html").write_text(page_document(content), encoding="utf-8")
    rows: Any = by or "layer" if variant != "no attention" else "layer"
    swept = sweep_places(model, TOKENIZER, TEXT, other or None, tokens="ba", by=rows)
    wanted = pytest.approx([cell["effect"] for cell in swept.records()], rel=1e-3, abs=1e-3)
    opened(window, tmp_path / "page.html", f"#text={quote(TEXT)}&x={quote(other)}&y={PAIR}&z={by}")
    assert effects_of(window) == wanted
    assert len(window.workers) == 1
    window.reload()
    assert effects_of(window) == wanted


def test_a_cell_that_is_chosen_is_its_edit_and_once_more_none(carried: Carried, window: Any, tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text(page_document(carried("pre")[1]), encoding="utf-8")
    opened(window, tmp_path / "page.html", f"#l=en&text={quote(TEXT)}&z=head")
    window.evaluate("() => { delete window.Worker; }")
    window.get_by_role("button", name="another sentence").click()
    assert any(effects_of(window))
    field = window.get_by_role("textbox", name="the other sentence")
    assert len(field.input_value()) == len(TEXT)
    field.fill("ab")
    window.get_by_text("6 tokens are missing").wait_for()
    window.get_by_role("button", name="zeros").click()
    effects = effects_of(window)
    window.locator("#figure-sweep [role=grid]").focus()
    z = {"at": "blocks.1.attn.z", "heads": [2], "positions": [len(TEXT) - 1], "do": "zero"}
    for edits in ([z], []):
        window.keyboard.press("Enter")
        window.wait_for_function("(count) => vitralPage.shown.value.edits.length === count", arg=len(edits))
        assert window.evaluate("() => vitralPage.edits.value") == edits
    assert effects_of(window) == effects
    assert window.workers == window.faults == []

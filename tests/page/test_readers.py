"""Two models on one page: each computes what it computes alone, and what is said of both is recomputed here."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from browser import needs_chromium, needs_node
from foreign import run_of
from pages import Carried, chromium, content_of, in_page, mulberry32, opened
from variants import TEXT, TOKENIZER, made

import vitral
from vitral.core.errors import UsageError
from vitral.decoding import choose, distribution
from vitral.model import Transformer
from vitral.page.content import PageContent
from vitral.page.document import page_document, parts_of

pytestmark = [pytest.mark.merge, needs_chromium, needs_node]
FULL, NONE = "a model", "none/seed-1"
DIFFERENCE = {"difference": -0.5, "low": -0.6, "high": -0.4}
RELATION = {"run": FULL, "against": NONE, "batches": "same", "changed": ["model.attention"], "difference": DIFFERENCE}
IDS = TOKENIZER.encode(TEXT).tolist()
Two = tuple[list[Transformer], list[PageContent]]


@pytest.fixture(scope="module")
def two(carried: Carried) -> Two:
    """A model with attention, and one without that knows no positions."""
    model, content = carried("pre")
    other = made({"attention": "none", "positions": "none", "num_layers": 1})
    beside = content_of(other, TOKENIZER, TEXT, NONE)
    return [model, other], [replace(content, beside=beside, relation=RELATION), content, beside]


COMPUTED = """
try {
  const one = await page.Carried.open(given);
  return [one, one.beside].filter(Boolean).map((each) => [each.about, Object.entries(
    each.computed([2, 1, 3, 5, 8, 2], each.about.names, [])).map(([name, value]) => [name, told(value)])]);
} catch (error) {
  return error.reason;
}
"""


def test_a_page_of_two_has_the_numbers_of_the_pages_of_each_and_both_are_sealed(two: Two) -> None:
    parts = [parts_of(each) for each in two[1]]
    both, *each = in_page(COMPUTED, parts)
    assert both == [one for (one,) in each]
    wrong = {"weights-2": "AAAA", "about-2": "{}", "relation": ""}
    reasons = in_page(COMPUTED, [parts[0] | {name: text} for name, text in wrong.items()])
    assert [each["part"] for each in reasons] == [*wrong]


@pytest.fixture(scope="module")
def window(two: Two, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with chromium(viewport={"width": 1280, "height": 720}) as page:
        page.file = tmp_path_factory.mktemp("readers") / "two.html"
        page.file.write_text(page_document(two[1][0]), encoding="utf-8")
        yield page


def readers(window: Any, fragment: str = "#l=en") -> Any:
    opened(window, window.file, fragment)
    window.locator("section.readers").wait_for()
    return window.locator("section.readers")


def losses(model: Transformer) -> torch.Tensor:
    logits = model(torch.tensor([IDS]))[0, :-1]
    return torch.nn.functional.cross_entropy(logits, torch.tensor(IDS[1:]), reduction="none")


def test_what_is_said_of_two_readers_is_what_their_numbers_show(two: Two, window: Any) -> None:
    models = two[0]
    told = readers(window).inner_text()
    with torch.no_grad():
        full, none = (losses(model) for model in models)
        likeliest = [model(torch.tensor([IDS]))[0, -1].softmax(-1) for model in models]
    gained = none - full
    assert f"{int((gained > 0).sum())} of {len(gained)} tokens are easier with attention" in told
    for value in (full.mean(), none.mean(), gained.mean(), *(each.max() for each in likeliest)):
        assert f"{float(value):.2f}".replace("-", "−") in told
    assert "only a model has attention" in told
    assert "0.500 nats per token smaller than that of none/seed-1; the 95 % interval is 0.400 to 0.600" in told
    assert "none/seed-1 is a table of pairs: after every b" in told
    assert "table of pairs" not in readers(window, "#l=en&p=7&text=abc%0Aha%20d").inner_text()  # one d shows nothing


def test_the_two_change_places_and_the_address_shows_it_again(window: Any) -> None:
    section, detailed = readers(window, "#l=en&p=5&t=0.5"), "vitralPage.shown.value.from.about.name"
    before, address = section.locator("#figure-readers").inner_text(), window.evaluate("vitralPage.written()")
    section.get_by_role("button", name=NONE).click()
    window.wait_for_url("**n=1**")
    assert {*window.evaluate("vitralPage.written()").split("&")} == {*address.split("&"), "n=1"}
    window.reload()
    section.wait_for()
    assert window.evaluate(detailed) == NONE
    assert section.locator("#figure-readers").inner_text() == before
    window.go_back()
    window.wait_for_function(f"() => {detailed} === '{FULL}'")
    assert window.faults == []


def test_both_draw_with_the_same_numbers(two: Two, window: Any) -> None:
    section = readers(window)
    section.get_by_role("button", name="both write on").click()
    window.wait_for_function("() => document.querySelectorAll('.wrote .glass').length === 80")
    for model, row in zip(two[0], section.locator(".wrote").all(), strict=True):
        ids = list(IDS)
        for _turn in range(4):
            with torch.no_grad():
                logits = model(torch.tensor([ids]))[:, -1]
            shares = distribution(logits, forbidden=TOKENIZER.specials)
            ids.append(int(choose(shares, torch.tensor([mulberry32(1, len(ids))], dtype=torch.float64))))
        labels = [TOKENIZER.label(token) for token in ids[len(IDS) :]]
        assert row.locator(".glass").all_inner_texts()[:4] == labels


def test_a_page_of_one_has_no_second_reader(two: Two, window: Any, tmp_path: Path) -> None:
    file = tmp_path / "one.html"
    file.write_text(page_document(two[1][1]), encoding="utf-8")
    opened(window, file, "#l=en&n=1")
    window.locator("section.choice").wait_for()
    assert "two readers" not in window.locator("main").inner_text()


def test_what_cannot_stand_side_by_side_is_refused(tmp_path: Path) -> None:
    model, runs = made("one layer"), [tmp_path / name for name in ("one", "two", "bytes")]
    for run, size in zip(runs, (11, 11, 256), strict=True):
        run_of(Transformer(model.config, size), run)
    for given in ([runs[0], runs[2]], [runs[0], runs[0]], runs, []):
        with pytest.raises(UsageError, match=r"^bundle: [^\n]*$"):
            vitral.bundle(given, tmp_path / "page.html")

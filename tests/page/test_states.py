"""What a page shows follows what the model has, what is switched off, and what the reader does; Back undoes it."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote

import pytest
import torch
from browser import needs_chromium
from edited import edited_trace
from pages import Carried, opened
from variants import TEXT, TOKENIZER

from vitral.inspection.edits import edits_of
from vitral.page.document import page_document
from vitral.page.tour import stops_of

pytestmark = [pytest.mark.merge, needs_chromium]
SIZE = {"width": 1400, "height": 900}
WINDOW = {"viewport": SIZE, "locale": "pt-BR"}
OFF = [{"at": f"blocks.{block}.attn.out", "do": "zero"} for block in (0, 1)]


@pytest.fixture
def page(carried: Carried, window: Any, tmp_path: Path) -> Iterator[Any]:
    """`page(variant, fragment)` opens the page of a model, in English."""

    def get(variant: str, fragment: str = "#l=en", tour: Any = None) -> Any:
        file, content = tmp_path / "page.html", carried(variant)[1]
        content.about["kinds"] = None if variant == "no attention" else [["first", "previous", "first"]] * 2
        file.write_text(page_document(content, tour), encoding="utf-8")
        opened(window, file, fragment)
        window.locator("section.choice").wait_for(state="attached")
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
    assert "3 stops" in without
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
    for tells in ("#figure-overview", "#figure-heads", "#opened", ".tells", ".worked"):
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


DONE = f"""
text changed: h, +a
token guessed: +Backspace, +{TEXT[-1]}, +a
token chosen: h, .sentence-line .mark-grid
part off: h, x
attention off: #parts .switch >> nth=0, X, #parts .switch >> nth=2
changes undone: x, u
head chosen: x, h
previous head: b, h
worked through: #figure-worked [data-step='2'], #figure-worked [data-step='6']
cell opened: b, .pair .steps button >> nth=0
temperature changed: #figure-filters input >> nth=0, ArrowLeft
token drawn: +a, #figure-draw .button >> nth=0
"""
"""What the reader does, the last of it what a stop waits for: keys, keys in the field, clicks."""


@pytest.mark.parametrize("done", DONE.strip().splitlines())
def test_a_stop_of_the_tour_waits_for_the_act_that_it_names(done: str, page: Any) -> None:
    wait, _, acts = done.partition(": ")
    stop = {"title": "T", "sentence": "Do *it*.", "highlight": "sentence", "then": "Done.", "wait": wait}
    shown = page("pre", "#l=en&w=1&g=1", [stop])
    for act in acts.split(", "):
        assert shown.locator(".tour [aria-live]").inner_text() == "Do it."
        if act[0] in "#.":
            shown.locator(act).click()
        else:
            shown.locator("textarea" if act[0] == "+" else ":focus").press(act.removeprefix("+"))
        shown.wait_for_function(
            "() => { const { shown: { value }, ids, edits } = vitralPage;"
            " return value.ids === ids.value && JSON.stringify(value.edits) === JSON.stringify(edits.value); }"
        )
    shown.get_by_text("Done.", exact=True).wait_for()


def test_the_tour_sets_its_addresses_and_stands_clear_of_what_it_speaks_of(page: Any) -> None:
    shown = page("pre", "#l=en&k=3")
    shown.locator(".take-tour button").click()
    for stop in stops_of():
        if stop["highlight"] == "readers":
            continue
        shown.get_by_role("heading", name=stop["title"]).wait_for()
        now = parse_qs("p=-1&e=[]&b=0&h=0&w=1") | parse_qs(shown.evaluate("vitralPage.written()"))
        assert now == now | parse_qs(stop["address"]) | {"k": ["3"]}
        part, card = (shown.locator(at).bounding_box() for at in ("[data-toured]", ".tour"))
        assert part["x"] + part["width"] <= card["x"]
        shown.locator(".tour .button").last.click()
    assert shown.locator(".tour, [data-toured]").count() == 0


def test_the_tour_is_left_and_entered_again_and_has_only_stops_that_the_page_has(page: Any) -> None:
    shown = page("pre", "#l=en&g=4")
    shown.keyboard.press("Escape")
    shown.locator(".tour").wait_for(state="detached")
    shown.keyboard.press("g")
    assert shown.evaluate("vitralPage.written()").endswith("g=4")
    shown.locator(".tour-stops button").first.click()
    shown.locator("section.choice").wait_for(state="hidden")  # it would tell
    shown.evaluate("location.hash = 'f=lens&g=2'")
    shown.locator(".whole").wait_for()
    assert shown.locator(".tour").count() == 0


IDS = torch.from_numpy(TOKENIZER.encode(TEXT))[None]
UNSCALED = "squared relu, scores as they are"
WORKED = """() => {
  const all = (what, of) => [...document.querySelectorAll(`.worked ${what}`)].map(of);
  const width = (node) => parseFloat(node.style.width) / parseFloat(node.parentElement.style.width);
  const read = ({ textContent: text }) => {
    const [whole, digits] = /−?[\\d,]+\\.?(\\d*)/.exec(text);
    return [Number(whole.replace("−", "-").replace(",", "")), 0.501 * 10 ** -digits.length];
  };
  return {
    cells: all("[data-cell]:not(.remark *)", (node) => [...node.dataset.cell.split(":"), ...read(node)]),
    shares: [all(".unit:not(.stair) i", width), all(".stair i", width)].filter((each) => each.length),
    others: all(".live, .bias, .long", read),
    text: all("h2, .says", (node) => node.textContent).join(" "),
  };
}"""
"""Each number with half a unit of its last digit."""


def worked(page: Any, step: int, model: Any, values: dict[str, Any], head: int, at: int) -> str:
    """What the worked attention says at a step, once its numbers are those of a trace."""
    page.locator(f'[data-step="{step}"]').click()
    page.locator(f'.worked[data-at="{step}"]').wait_for()
    shown, base = page.evaluate(WORKED), "blocks.0.attn."
    steps = ("scores", "scaled", "masked", "weights", "q", "z")
    scores, scaled, masked, weights, q, z = (values[base + each][0, head, at] for each in steps)
    k, v = (values[base + each][0, head * model.config.kv_heads // model.config.num_heads] for each in "kv")
    torch.testing.assert_close((k @ q)[masked > -torch.inf], scores[masked > -torch.inf], rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(weights @ v, z, rtol=1e-4, atol=1e-4)
    for name, place, number, unit in shown["cells"]:
        assert abs(number - values[name][tuple(map(int, place.split(".")))]) <= unit, (name, place)
    assert [sum(widths) for widths in shown["shares"]] == pytest.approx([1] * (step > 4) + [1] * (step == 5), abs=1e-4)
    most = weights.argmax()
    mixer = model.state_dict()[f"{base}out_proj.weight"].view(-1, model.config.num_heads, len(z))
    lead, times = -masked.topk(2).values.diff(), weights.topk(2).values[0] / weights.topk(2).values[1]
    lengths = [(mixer[:, head] @ z).norm(), values[f"{base}out"][0, at].norm(), (scaled / scores)[most], lead[0], times]
    known = [scores, scaled, masked, weights, 100 * weights, 1 - weights, q * k[most], masked - scaled]
    numbers = torch.cat([*known, torch.stack(lengths), torch.arange(model.config.d_model + 1)])
    assert [number for number, unit in shown["others"] if (numbers - number).abs().min() > unit] == []
    return shown["text"]


@pytest.mark.parametrize("at", [7, 3])
@pytest.mark.parametrize("variant", ["pre", "grouped", "rotary", "alibi", "window", UNSCALED])
def test_every_number_of_the_worked_attention_is_the_traced_one(
    variant: str, at: int, carried: Carried, page: Any
) -> None:
    model = carried(variant)[0]
    shown, values = page(variant, f"#l=en&p={at}&h=1"), model.trace(IDS)
    told = [worked(shown, step, model, values, 1, at) for step in range(1, 7)]
    assert ("turns pairs" in told[0], "same keys" in told[1]) == (variant == "rotary", variant == "grouped")
    assert ("ALiBi" in told[3], "does not scale" in told[2]) == (variant == "alibi", variant == UNSCALED)
    assert ("will be 0" in told[3]) == (at == 3 or variant == "window")


def test_a_bar_that_is_drawn_is_an_edit_and_all_follows_as_in_python(carried: Carried, page: Any) -> None:
    model, shown = carried("rotary")[0], page("rotary", "#l=en&h=1&p=6&w=6")
    hand = shown.locator(".hand")
    hand.scroll_into_view_if_needed()
    box = hand.bounding_box()
    shown.mouse.move(box["x"] + 1.5 * box["width"] / 4, box["y"] + 30)
    shown.mouse.down()
    shown.mouse.move(box["x"] + 1.5 * box["width"] / 4, box["y"] + 4, steps=4)
    shown.mouse.up()
    hand.focus()
    shown.keyboard.press("ArrowRight")
    shown.locator(".worked input").fill("-2.5")
    shown.keyboard.press("Enter")
    shown.wait_for_function("() => vitralPage.shown.value.edits[1]?.value === -2.5")
    edits = shown.evaluate("() => vitralPage.edits.value")
    assert [(each["heads"], each["positions"], each["columns"]) for each in edits] == [([1], [6], [1]), ([1], [6], [2])]
    values = edited_trace(model, IDS, None, edits_of(edits))
    assert "Changed here: q." in worked(shown, 6, model, values, 1, 6)
    logits = torch.tensor(shown.evaluate("() => Array.from(vitralPage.shown.value.values.logits.data)"))
    torch.testing.assert_close(logits, values["logits"].flatten(), rtol=1e-4, atol=1e-4)
    shown.locator("textarea").fill("ab")  # the position is gone, and no fault is told
    shown.wait_for_function("() => vitralPage.shown.value.ids.length === 2")
    assert shown.locator("[role=alert]").count() == 0


def test_the_step_and_the_compared_token_stay_in_the_address_and_in_print(page: Any) -> None:
    shown = page("pre", "#l=en&p=6&w=5")
    shown.locator('[data-step="5"]').focus()
    for key, step in (("ArrowLeft", 4), ("2", 2), ("ArrowRight", 3)):
        shown.keyboard.press(key)
        shown.locator(f'[data-step="{step}"][aria-pressed="true"]:focus').wait_for()
    shown.keyboard.press("h")  # other keys are the page's
    shown.locator('.answer[data-place="2"] > .glass').click()
    shown.wait_for_url("**h=1&**w=3&j=2**")
    told = shown.evaluate(WORKED)
    assert told["text"].startswith("How much does")
    shown.reload()
    shown.locator(".worked").wait_for()
    assert shown.evaluate(WORKED) == told
    shown.emulate_media(media="print")
    assert shown.evaluate(WORKED) == told
    shown.emulate_media(media="screen")


def test_the_worked_attention_says_what_is_so(page: Any) -> None:
    off = [{"at": "blocks.0.attn.z", "heads": [0], "do": "zero"}]
    flat = [{"at": "blocks.0.attn.q", "do": "zero"}]
    assert page("no attention").locator(".worked").count() == 0
    for fragment, told in (
        ("p=0", "can only look at itself"),
        (f"e={json.dumps(off)}", "this head is switched off"),
        (f"e={json.dumps(flat)}", "share out"),
    ):
        assert told in page("pre", f"#l=en&w=6&{fragment}").evaluate(WORKED)["text"]

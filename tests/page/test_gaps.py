"""The page of a model that fills gaps or names labels: it says what `vitral fill` and the head of labels say."""

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from browser import as_tensor, needs_chromium, violations
from pages import chromium, content_of, in_page, opened, run_to_show
from variants import BASE, TEXT, TOKENIZER, enlarged, made

from vitral.core.errors import UsageError
from vitral.data.tokenizers import Tokenizer, bpe_tokenizer, with_special_tokens
from vitral.evaluation import fill
from vitral.evaluation.masking import FilledText, filling_of
from vitral.model import ModelConfig, Transformer
from vitral.page.content import about_run
from vitral.page.document import page_document, parts_of
from vitral.page.passages import pairs
from vitral.page.server.serving import serve
from vitral.runs.config import Masked, Mixed

ENCODER: dict[str, Any] = {"shape": "encoder"}
OBJECTIVES: dict[str, tuple[Any, dict[str, Any]]] = {
    "encoder": (Masked(), ENCODER),
    "rotary": (Masked(), ENCODER | {"d_model": 12, "positions": "rotary", "norm": "post"}),
    "mixed": (Mixed(), {}),
}
Opened = Callable[..., Any]


@pytest.fixture
def page(tmp_path: Path) -> Iterator[Opened]:
    """`page(model, objective, fragment)`: a window with the page of a model."""
    with chromium(viewport={"width": 1100, "height": 800}) as window:

        def get(model: Transformer, objective: Any, fragment: str) -> Any:
            file = tmp_path / "page.html"
            content = content_of(model, TOKENIZER, TEXT, objective=objective)
            file.write_text(page_document(content), encoding="utf-8")
            opened(window, file, f"#l=en&{fragment}")
            window.locator("#figure-heads").wait_for()
            return window

        yield get
        assert window.faults == []


def told(model: Transformer, objective: Any, text: str, tokenizer: Tokenizer = TOKENIZER) -> FilledText:
    masking = filling_of(objective, tokenizer)
    assert masking is not None
    return fill(model, tokenizer, text, masking, top=tokenizer.vocab_size)


SHARES = """(gap) => {
  const { from, values } = vitralPage.shown.value;
  return Array.from(vitralPage.fillings(from.about, values, gap));
}"""


@pytest.mark.merge
@needs_chromium
@pytest.mark.parametrize("kind", OBJECTIVES)
def test_gaps_are_filled_as_by_python(kind: str, page: Opened) -> None:
    objective, parts = OBJECTIVES[kind]
    model, before = made(parts), int(kind == "mixed")
    window = page(model, objective, "text=abc[mask]ha b&hide=1")
    gaps = told(model, objective, "a[MASK]c[MASK]ha b").gaps
    for place, gap in zip((1, 3), gaps, strict=True):
        shares = {one.tokens[0]: one.probability for one in gap}
        expected = [shares[token] for token in range(TOKENIZER.vocab_size)]
        assert [max(0, each) for each in window.evaluate(SHARES, place + before)] == pytest.approx(expected, abs=1e-4)
    hidden = next(one for one in gaps[0] if one.text == "b")
    assert f"p = {hidden.probability:.3f}" in window.locator("#figure-gaps").inner_text()
    assert window.locator("section.choice, section.sweep, .written").count() == 0
    assert violations(window) == []
    lines = window.locator("#figure-gaps .receipt, #figure-heads .receipt").all_inner_texts()
    told_of_heads = eval(lines[1], {"run": SimpleNamespace(model=model, tokenizer=TOKENIZER), "torch": torch})
    weights = as_tensor(window.evaluate("() => vitralPage.shown.value.values['blocks.0.attn.weights']"))
    assert lines[0] == 'run.fill("a[MASK]c[MASK]ha b")'
    assert torch.allclose(told_of_heads, weights[0].float(), atol=1e-4)
    button = window.get_by_role("button", name="show b again")
    button.focus()
    window.keyboard.press("Enter")
    button.wait_for(state="detached")
    assert "hide=" not in window.evaluate("() => vitralPage.written()")
    window.locator("#figure-gaps .mark [tabindex='0']").focus()
    for key in ("ArrowDown", "Enter"):
        window.keyboard.press(key)
    window.wait_for_function("() => !/mask/i.test(vitralPage.text.value) && vitralPage.written().includes('p=3')")


@pytest.mark.merge
@needs_chromium
def test_each_token_is_hidden_in_its_turn(page: Opened) -> None:
    model = made(ENCODER)
    window = page(model, Masked(), "text=abc ha b")
    window.wait_for_function("() => vitralPage.shown.value?.values.rated")
    losses = window.evaluate(
        "() => Array.from(vitralPage.shown.value.values.rated.data).filter((_, at) => at % 2 === 0)"
    )
    mean = torch.tensor(losses, dtype=torch.float64).mean()
    assert float(mean.exp()) == pytest.approx(told(model, Masked(), "abc ha b").pseudo_perplexity, rel=1e-4)


@pytest.mark.merge
@needs_chromium
def test_labels_have_the_probabilities_of_the_head(page: Opened) -> None:
    model = made(ENCODER | {"num_labels": 3})
    window = page(model, "label", "text=abc ha b")
    expected = model(torch.from_numpy(TOKENIZER.encode("abc ha b"))[None]).softmax(-1)[0]
    found = window.evaluate("() => Array.from(vitralPage.shown.value.values.logits.data)")
    assert torch.tensor(found).softmax(-1).tolist() == pytest.approx(expected.tolist(), abs=1e-4)
    assert window.locator("#figure-labels").count() == 1
    assert pairs(model, TOKENIZER, None) == []  # without its text the page opens on an empty field
    assert window.locator("#figure-gaps, #figure-lens, #figure-surprise, section.choice, section.sweep").count() == 0


@pytest.mark.merge
def test_a_gap_takes_the_space_before_it_as_in_python() -> None:
    tokenizer = with_special_tokens(bpe_tokenizer([(32, 98), (256, 101)]), ["<MASK>"])
    model = enlarged(Transformer(ModelConfig.parse(BASE | ENCODER), tokenizer.vocab_size, seed=5).eval())
    parts = parts_of(content_of(model, tokenizer, "to be", objective=Masked()))
    body = "const carried = await page.Carried.open(given.parts); const { ids } = carried.encode('to [MASK] or');"
    body += "return [ids, carried.decode(ids)];"
    ((ids, text),) = in_page(body, [{"parts": parts}])
    assert ids == [*tokenizer.encode("to"), tokenizer.mask, *tokenizer.encode(" or")]
    assert text == "to[MASK] or"


def test_an_encoder_that_fills_no_gaps_is_refused_by_name_and_a_server_refuses_any(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"^mine: "):
        about_run(run_to_show(made(ENCODER), TOKENIZER), "mine")
    (tmp_path / "config.toml").write_text('[model]\nshape = "encoder"\n')
    with pytest.raises(UsageError, match="vitral bundle"):
        serve([tmp_path], browser=False, announce=pytest.fail)

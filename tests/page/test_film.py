"""A page of a run with a film: with the weights of a frame it computes what PyTorch computes with them."""

import json
from collections.abc import Callable
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest
import safetensors.torch
import torch
from browser import as_tensor, needs_chromium, needs_node
from pages import chromium, differing, expected, in_page, of_variants, opened
from starlette.testclient import TestClient
from variants import TEXT, TOKENIZER

import vitral
from vitral.app import arguments
from vitral.app.run import Run
from vitral.core.errors import UsageError
from vitral.core.files import sha256
from vitral.page import content as of_content
from vitral.page.content import page_content, page_of
from vitral.page.document import page_document, parts_of
from vitral.page.server.app import Server
from vitral.page.server.security import TOKEN
from vitral.runs import LoadedRun, load_run
from vitral.runs.folder import frame_name

IDS = TOKENIZER.encode(TEXT).tolist()
COMPUTED = """
const carried = await page.Carried.open(given.parts);
try {
  const frame = await carried.at(14);
  const names = [...frame.about.names, ...frame.about.stream.map((name) => "lens." + name)];
  const drawn = [];
  const draws = { sampling: { temperature: 1 }, numbers: [0.5, 0.5], prompt: 3, edits: [] };
  for await (const one of frame.next(given.ids.slice(0, 3), draws)) drawn.push([one.id, one.logits]);
  const values = Object.entries(frame.computed(given.ids, names, [])).map(([name, one]) => [name, told(one)]);
  return { about: [frame.about.step, frame.about.loss], drawn: [drawn[0][0], Array.from(drawn[1][1])], values };
} catch (error) { return { refused: String(error) }; }
"""


@needs_node
@pytest.mark.parametrize("variant", of_variants("pre", "tied", "lstm", without=["bidirectional"]))  # no run has it
def test_a_frame_on_a_page_is_pytorch_s(variant: str, filmed: Callable[[str], LoadedRun]) -> None:
    run = filmed(variant)
    parts = parts_of(page_content(run, "filmed", ablated=False))
    spoilt = json.loads(parts["film"])
    spoilt["frames"][1]["logits"][0] += 1.0
    others = parts | {"film": json.dumps(spoilt)}
    others["seal"] = json.dumps({name: sha256(text.encode()) for name, text in others.items() if name != "seal"})
    found, other = in_page(COMPUTED, [{"parts": each, "ids": IDS} for each in (parts, others)])
    assert other.keys() == {"refused"}
    model = Run(run.folder.path).at(14).model
    assert found["about"] == [14, None]
    assert differing({name: as_tensor(one) for name, one in found["values"]}, expected(model, IDS)) == []
    drawn, logits = found["drawn"]  # the second token by the graph of one step
    truth = expected(model, [*IDS[:3], drawn])["logits"][0, -1]
    assert differing({"logits": torch.tensor(logits)}, {"logits": truth}) == []


def test_a_frame_of_a_server_is_pytorch_s(filmed: Callable[[str], LoadedRun]) -> None:
    path = filmed("pre").folder.path
    model = Run(path).at(14).model
    application = Server([path]).application("secret", ["127.0.0.1:1"])
    with TestClient(application, base_url="http://127.0.0.1:1", headers={TOKEN: "secret"}) as page:
        assert page.post("/about", json={}).json()["film"]["steps"] == [10, 14]
        values = safetensors.torch.load(page.post("/trace", json={"ids": IDS, "step": 14}).content)
        name = "blocks.0.attn.in_proj.weight"
        numbers = page.post("/numbers", json={"cells": {name: None}, "step": 14}).content
        assert page.post("/trace", json={"ids": IDS, "step": 12}).status_code == 404
    assert safetensors.torch.load(numbers)[name].equal(model.state_dict()[name].flatten())
    assert differing(values, expected(model, IDS)) == []


def test_a_film_without_room_is_left_out_and_said(
    filmed: Callable[[str], LoadedRun], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = filmed("no layer")
    monkeypatch.setattr(of_content, "MOST_BYTES", of_content.expected_size(run) + 1)
    content = page_content(run, "filmed", ablated=False)
    assert "film" not in content.about | parts_of(content)
    assert "2 frames" in capsys.readouterr().err
    alone = of_content.expected_size(run)
    monkeypatch.setattr(of_content, "MOST_BYTES", 3 * alone - of_content.ROOM)  # both, and one of the films
    both = page_of({"one": run, "two": run}, ablated=False)
    assert (both.film, both.beside and both.beside.film) == (None, None)


def test_a_damaged_frame_is_left_out_and_said(
    filmed: Callable[[str], LoadedRun], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = load_run(copytree(filmed("no layer").folder.path, tmp_path / "run"))
    (run.folder.path / frame_name(10)).write_bytes(b"")
    content = page_content(run, "filmed", ablated=False)
    assert content.about["film"]["steps"] == [14]
    assert "step 10" in capsys.readouterr().err


def test_a_frame_is_never_swapped_for_the_checkpoint(filmed: Callable[[str], LoadedRun], tmp_path: Path) -> None:
    run: Any = Run(filmed("pre").folder.path)
    frame = run.at(14)
    wide = arguments.opened(frame, dtype="float64")
    assert wide.step == 14
    assert wide.model.state_dict()["head.weight"].float().equal(frame.model.state_dict()["head.weight"])
    with pytest.raises(UsageError, match="frame"):
        vitral.bundle(frame, tmp_path / "page.html")
    for step in ("10", 10.0, None, True):
        with pytest.raises(UsageError, match="step"):
            run.at(step)
    for wrong in ({"by": ["x"]}, {"position": 1.0}, {"tokens": [1, 2]}, {"other": 3}):
        with pytest.raises(UsageError, match=next(iter(wrong))):
            run.sweep(TEXT, **wrong)


@needs_chromium
@pytest.mark.merge
def test_an_address_shows_its_frame_and_the_whole_page_follows(
    filmed: Callable[[str], LoadedRun], tmp_path: Path
) -> None:
    run, file = filmed("pre"), tmp_path / "page.html"
    file.write_text(page_document(page_content(run, "filmed", ablated=False)), encoding="utf-8")
    truth = expected(Run(run.folder.path).at(14).model, TOKENIZER.encode("abc").tolist())
    trained = expected(run.model, TOKENIZER.encode("abc").tolist())
    with chromium(viewport={"width": 1280, "height": 720}) as window:

        def shows(step: int) -> Any:
            window.wait_for_function("step => vitralPage.shown.value?.from.about.step === step", arg=step)
            return "step 14 of" in window.locator("header .name").inner_text()

        opened(window, file, "#l=en&text=abc&a=14")
        for _ in range(2):
            assert shows(14)
            logits = window.evaluate("() => Array.from(vitralPage.shown.value.values.logits.data)")
            assert differing({"logits": torch.tensor(logits)}, {"logits": truth["logits"].flatten()}) == []
            theirs = window.evaluate("() => Array.from(vitralPage.shown.value.beside.values.logits.data)")
            assert differing({"logits": torch.tensor(theirs)}, {"logits": trained["logits"].flatten()}) == []
            assert window.locator("#figure-surprise .receipt").inner_text().startswith("run = run.at(14); run.trace(")
            window.reload()
        slider = window.get_by_role("slider", name="The step whose weights the page shows")
        slider.press("Home")
        assert not shows(run.step)
        slider.press("ArrowRight")
        assert not shows(10)
        window.wait_for_function("() => document.querySelector('#film + p + p')")  # every frame has read the sentence
        window.get_by_role("button", name="return to the trained model").click()
        assert not shows(run.step)
        window.wait_for_url(lambda url: "a=" not in url)
        window.evaluate("() => { location.hash = 'l=en&text=abc&a=14'; }")
        assert shows(14)
        window.go_back()
        assert not shows(run.step)
        assert window.faults == []

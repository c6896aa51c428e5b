"""What a page carries, computed with PyTorch: its graph with its weights gives the model's numbers."""

import json
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from pages import Carried, weights_of
from variants import TEXT, TOKENIZER

from vitral.page.content import expected_size
from vitral.page.document import page_document, parts_of


def test_the_numbers_that_a_page_carries_are_the_models(carried: Carried) -> None:
    model, content = carried("pre")
    weights, state = weights_of(content), model.state_dict()
    assert all(torch.equal(weights[name], state[name]) for name in state)
    assert {each["name"] for each in content.graphs["step"]["constants"]} <= state.keys()
    assert set(content.graphs["model"]["outputs"]) == set(content.about["names"]) == set(model.activation_names)
    short, whole = content.checks.sentences
    truth = model.trace(torch.tensor([short["ids"]]))
    assert (short["ids"][: len(TEXT)], short["text"]) == (
        TOKENIZER.encode(TEXT).tolist(),
        TOKENIZER.decode(short["ids"]),
    )
    assert (len(whole["ids"]), whole["last"]) == (13, 1)
    for told in short["values"]:
        kept = torch.frombuffer(bytearray(content.checks.truth), dtype=torch.float32)[told["start"] // 4 :]
        assert torch.equal(kept[: truth[told["name"]].numel()], truth[told["name"]].flatten())


def test_the_file_has_every_part(carried: Carried) -> None:
    model, content = carried("pre")
    document = page_document(content)
    run: Any = SimpleNamespace(model=model, tokenizer=TOKENIZER)
    assert len(document) == pytest.approx(expected_size(run), rel=0.6)
    for name, text in parts_of(content).items():
        assert f'id="{name}">{text}</script>' in document
    assert json.loads(parts_of(content)["about"]) == content.about

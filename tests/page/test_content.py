"""What a page carries, computed with PyTorch: its graph with its weights gives the model's numbers."""

import json
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from pages import Carried, weights_of
from torch import Tensor
from variants import TEXT, TOKENIZER

from vitral.page.content import expected_size
from vitral.page.document import page_document, parts_of


def computed(graph: dict[str, Any], weights: dict[str, Tensor], given: Tensor) -> dict[str, Tensor]:
    """The named values of a graph of one input."""
    values: list[Any] = [given, *(weights[each["name"]] for each in graph["constants"])]

    def read(each: Any) -> Any:
        if isinstance(each, dict):
            return values[each["at"]] if "at" in each else float(each["number"])
        return [read(one) for one in each] if isinstance(each, list) else each

    for name, arguments in graph["nodes"]:
        packet, _, overload = name.partition(".")
        if name == "getitem":
            values.append(read(arguments[0])[arguments[1]])
        else:
            operation = getattr(getattr(torch.ops.aten, packet), overload or "default")
            values.append((torch.reshape if name == "view" else operation)(*map(read, arguments)))
    return {name: values[at] for name, at in graph["outputs"].items()}


def test_the_numbers_that_a_page_carries_are_the_models(carried: Carried) -> None:
    model, content = carried("pre")
    weights, state = weights_of(content), model.state_dict()
    assert all(torch.equal(weights[name], state[name]) for name in state)
    assert {each["name"] for each in content.graphs["step"]["constants"]} <= state.keys()
    for time in (1, 5, 13):
        ids = torch.arange(time)[None] * 7 % 11
        wanted = model.trace(ids)
        found = computed(content.graphs["model"], weights, ids)
        assert found.keys() == wanted.keys() == set(content.about["names"])
        for name, value in wanted.items():
            torch.testing.assert_close(found[name], value)
        lens = computed(content.graphs["lens"], weights, wanted["blocks.1.resid_post"])
        torch.testing.assert_close(lens["logits"], wanted["logits"])
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

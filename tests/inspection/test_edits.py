"""Edited models: equal to the forward pass by hand, to ablation, and without effect on what comes before."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from edited import edited_trace, encoded
from torch import Tensor
from variants import BASE, TEXT, TOKENIZER, VARIANTS, made

from vitral.core.errors import UsageError
from vitral.core.taps import Editor
from vitral.evaluation import Masking
from vitral.inspection.edits import edited, edits_of, heads_by_name
from vitral.inspection.one_text import inspect_text
from vitral.model import Transformer

OTHER = "hab\ncab "
KINDS: dict[str, dict[str, Any]] = {
    "zero": {},
    "mean": {},
    "scale": {"factor": -1.5},
    "set": {"value": 0.25},
    "patch": {"from": OTHER},
}


def traced(model: Transformer, *plain: dict[str, Any], text: str = TEXT) -> dict[str, Tensor]:
    return edited_trace(model, encoded(text), None, edits_of(plain), encoded)


def by_hand(model: Transformer, rules: dict[str, Callable[[Tensor], Tensor]]) -> Tensor:
    with torch.inference_mode():
        return model(encoded(TEXT), tap=Editor(rules))


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_heads_of_every_name_are_those_of_its_tensor(variant: str) -> None:
    model = made(variant)
    shapes = {name: value.shape for name, value in model.trace(encoded(TEXT)).items()}
    assert heads_by_name(model) == {name: shape[1] if len(shape) == 4 else 0 for name, shape in shapes.items()}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("variant", ["pre", "post", "grouped", "rotary", "lstm"])
def test_an_edit_is_the_forward_pass_with_the_numbers_changed_by_hand(kind: str, variant: str) -> None:
    model = made(variant)
    before, other = model.trace(encoded(TEXT)), model.trace(encoded(OTHER))
    for name, value in before.items():
        if name.endswith("attn.masked") or name.startswith("blocks.0."):
            continue
        plain = {"at": name, "do": kind, "positions": [1, 3], **KINDS[kind]}
        wanted = edited(value, edits_of([plain])[0], other[name] if kind == "patch" else None)
        measured = traced(model, plain)
        torch.testing.assert_close(measured[name], wanted)
        logits = by_hand(model, {name: lambda _, wanted=wanted: wanted})
        torch.testing.assert_close(measured["logits"], logits, rtol=1e-5, atol=1e-5, equal_nan=True)
        earlier = list(before)[: list(before).index(name)]
        assert all(torch.equal(measured[each], before[each]) for each in earlier if each in measured)


def test_edits_of_one_activation_are_made_in_their_order_and_a_whole_patch_is_the_other_sentence() -> None:
    model = made("pre")
    doubled = {"at": "embed", "do": "scale", "factor": 2.0}
    fixed = {"at": "embed", "do": "set", "value": 1.0}
    assert bool((traced(model, doubled, fixed)["embed"] == 1).all())
    assert bool((traced(model, fixed, doubled)["embed"] == 2).all())
    other = model.trace(encoded(OTHER))
    patched = traced(model, doubled, {"at": "embed", "do": "patch", "from": OTHER})
    torch.testing.assert_close(patched["logits"], other["logits"])
    short = traced(model, {"at": "blocks.0.resid_mid", "do": "patch", "from": "ha", "positions": [1]})
    torch.testing.assert_close(short["blocks.0.resid_mid"][:, 1], other["blocks.0.resid_mid"][:, 1])


UNFIT = [
    ({"at": "embed", "do": "patch", "from": "ab"}, "edits.0: from"),
    ({"at": "embed", "do": "patch", "from": "abc", "positions": [3]}, "edits.0: from"),
    ({"at": "blocks.0.attn.weights", "do": "patch", "from": "abc", "positions": [1]}, "edits.0: from"),
    ({"at": "embed", "do": "patch", "from": "xyz"}, "edits.0: character 'x'"),
    ({"at": "embed", "do": "patch", "from": ""}, "edits.0: from"),
    ({"at": "embed", "do": "patch", "from": "ab" * 20, "positions": [0]}, "edits.0: .*context_length"),
    ({"at": "blocks.0.mlp.gate", "do": "zero"}, "edits.0: at"),
    ({"at": "embd", "do": "zero"}, "edits.0: at: .*did you mean 'embed'"),
    ({"at": "embed", "do": "zero", "heads": [0]}, "edits.0: heads"),
    ({"at": "blocks.0.attn.z", "do": "zero", "heads": [1, 3]}, "edits.0: heads: .*0 to 2, not 3"),
    ({"at": "embed", "do": "zero", "positions": [8]}, "edits.0: positions: .*0 to 7, not 8"),
]


@pytest.mark.parametrize(("plain", "where"), UNFIT)
def test_what_does_not_fit_is_refused_with_its_place(plain: dict[str, Any], where: str) -> None:
    with pytest.raises(UsageError, match=where):
        traced(made("pre"), plain)


@pytest.mark.parametrize("masking", [False, True])
def test_what_edits_change_is_told_beside_what_was(masking: bool) -> None:
    model = made({**BASE, "attention": {"mask": "bidirectional" if masking else "causal"}})
    how = Masking(0.15, int(TOKENIZER.encode(" ")[0])) if masking else None
    edits = edits_of([{"at": "blocks.1.mlp.out", "do": "zero"}])
    measured = inspect_text(model, TOKENIZER, TEXT, edits=edits, masking=how)
    changed, plain = measured["edited"], inspect_text(model, TOKENIZER, TEXT, masking=how)
    assert {key: value for key, value in measured.items() if key != "edited"} == plain
    last = plain["lens"]["points"][-1]
    assert [each["before"] for each in changed["positions"]] == last["positions"]
    assert changed["loss"] == pytest.approx(last["loss"])
    assert changed["edited_loss"] != changed["loss"]
    assert all(each["divergence"] > 0 for each in changed["positions"])
    nothing = edits_of([{"at": "embed", "do": "scale", "factor": 1.0}])
    unchanged = inspect_text(model, TOKENIZER, TEXT, edits=nothing, masking=how)["edited"]
    assert all(each["divergence"] == 0 for each in unchanged["positions"])

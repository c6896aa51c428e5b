"""Taps see names in full, from however deep; names are those of the plan."""

import pytest
import torch

from vitral.core.devices import resolve_device
from vitral.core.errors import UsageError
from vitral.core.taps import SILENT, Editor, InTurn, Recorder, Tap
from vitral.model import ModelConfig, Transformer

ONE = torch.ones(1)


def test_the_silent_tap_changes_nothing() -> None:
    assert SILENT("x", ONE) is ONE
    assert SILENT.within("a").within("b")("x", ONE) is ONE
    assert not SILENT.wants_any(["x"])


def test_a_recorder_keeps_what_was_asked_for() -> None:
    everything, some = Recorder(), Recorder(["a.b.x"])
    for recorder in (everything, some):
        inner = recorder.within("a").within("b")
        assert inner("x", ONE) is ONE
        inner("y", ONE * 2)
        recorder("x", ONE * 3)
    assert list(everything.kept) == ["a.b.x", "a.b.y", "x"]
    assert list(some.kept) == ["a.b.x"]
    assert everything.within("q").wants_any(["z"])
    assert some.within("a").wants_any(["b.x"])
    assert not some.within("a").wants_any(["x", "y"])
    assert not Recorder([]).wants_any(["x"])


def test_an_editor_replaces_what_it_names() -> None:
    editor = Editor({"a.x": lambda value: value + 1})
    assert editor.within("a")("x", ONE).item() == 2
    assert editor("x", ONE) is ONE
    assert editor.within("a").wants_any(["y", "x"])
    assert not editor.wants_any(["x"])


MISSPELT = ["blocks.0.attn.wieghts", "blocks.2.attn.z", "blocks.0.attn.q_pre", "attn.z", ""]


@pytest.mark.parametrize("name", MISSPELT)
@pytest.mark.parametrize("silent", [Tap(), Recorder()])
def test_a_model_refuses_a_tap_for_an_activation_that_it_does_not_have(name: str, silent: Tap) -> None:
    model, tokens = (
        Transformer(ModelConfig(context_length=5, d_model=6, num_heads=3, num_layers=2), 7),
        ONE[None].long(),
    )
    for tap in (Editor({name: torch.zeros_like}), Recorder(["embed", name])):
        for called in (model, model.trace):
            with pytest.raises(UsageError) as refused:
                called(tokens, tap=InTurn(silent, tap))
            assert repr(name) in str(refused.value)
    edited = model.trace(tokens, ["logits"], tap=Editor({"logits": torch.zeros_like}))["logits"]
    assert not edited.any()


def test_a_device_that_is_not_there_is_refused_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    with pytest.raises(UsageError, match=r"device 'cuda': PyTorch .* finds none on this machine; use --device cpu"):
        resolve_device("cuda")
    assert resolve_device("auto").type == "cpu"

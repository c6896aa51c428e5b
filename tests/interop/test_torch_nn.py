"""`torch.nn.TransformerEncoder`: what is exported opens in PyTorch itself, and comes back bit for bit."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from foreign import BASE
from variants import VARIANTS, enlarged, made

from vitral.core.errors import UsageError
from vitral.data import ByteTokenizer
from vitral.interop import export_run, import_model
from vitral.interop.forms.torch_nn import TORCH_NN
from vitral.interop.imported import Imported
from vitral.interop.importing import write_run
from vitral.interop.rewrites import Weighted
from vitral.interop.rules import exported, imported
from vitral.interop.targets.torch_nn import EncoderModel
from vitral.model import ModelConfig, Transformer
from vitral.runs import load_run

TOKENS = torch.tensor([[1, 4, 2, 7, 3, 3, 0, 5]])
MODELS: dict[str, dict[str, Any]] = {
    "pre": {"feed_forward": "gelu"},
    "post": {"norm": "post", "feed_forward": "relu"},
    "post and a last norm": {"norm": "post", "final_norm": True, "tie_head": True},
    "no last norm": {"final_norm": False, "feed_forward": "gelu_tanh", "norm_epsilon": 1e-3},
    "no biases": {"bias": False, "feed_forward": "relu"},
    "a head with bias": {"bias": {"head": True}},
}


def run_of(model: Transformer, folder: Path) -> Path:
    origin = {"form": "gpt2", "source": "a test", "files": {"of": str(model.config)}, "config": {}}
    return write_run(Imported(model.config, model.state_dict(), ByteTokenizer(), origin), folder).path


def large(**keys: Any) -> Transformer:
    return enlarged(Transformer(ModelConfig.parse(BASE | keys), 256).eval())


@pytest.mark.parametrize("name", MODELS)
def test_an_export_is_proved_in_torch_and_comes_back_bit_for_bit(name: str, tmp_path: Path) -> None:
    model = large(**MODELS[name])
    proved = export_run(load_run(run_of(model, tmp_path / "run")), tmp_path / "out", to="torch-nn").proof
    assert proved is not None
    assert proved.relative_difference < 1e-5
    assert proved.equal_text
    back = load_run(import_model(tmp_path / "out", tmp_path / "back").path)
    assert back.model.config == model.config.model_copy(update={"num_kv_heads": 2})
    assert all(back.model.state_dict()[key].equal(tensor) for key, tensor in model.state_dict().items())
    assert back.tokenizer == ByteTokenizer()


def test_the_lines_of_the_card_build_and_load_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = large(norm="post", feed_forward="relu")
    export_run(load_run(run_of(model, tmp_path / "run")), tmp_path / "out", to="torch-nn")
    lines = re.search(r"```python\n(.*?)```", (tmp_path / "out" / "README.md").read_text(), re.DOTALL)
    assert lines is not None
    monkeypatch.chdir(tmp_path / "out")
    names: dict[str, Any] = {"__name__": "card"}
    exec(compile(lines[1], "card", "exec"), names)
    with torch.inference_mode():
        expected = model(torch.tensor([list(b"A prompt")]))
    assert names["ids"] == list(b"A prompt")
    assert (names["logits"] - expected).abs().max() < 1e-5 * expected.abs().max()


@pytest.mark.parametrize("name", VARIANTS)
def test_every_variant_is_the_same_function_or_refused_with_the_reason(name: str) -> None:
    model = made(name)
    said, reason = None, ""
    try:
        said = TORCH_NN.said(Weighted(model.config, model.state_dict()))
    except UsageError as refused:
        reason = str(refused)
    if said is None:
        assert "torch-nn" in reason
        return
    rules = TORCH_NN.rules(said.config)
    there = exported(rules, said.weights)
    assert all(imported(rules, there, "here")[key].equal(tensor) for key, tensor in said.weights.items())
    if said.config.tie_head:
        there[TORCH_NN.head] = there[TORCH_NN.embedding]
    keys = {"vocab_size": model.vocab_size, "tie_word_embeddings": said.config.tie_head}
    theirs = EncoderModel({**TORCH_NN.write(said.config), **keys}).eval()
    theirs.load_state_dict(there)
    with torch.inference_mode():
        one, other = model(TOKENS), theirs(TOKENS)
    assert (one - other).abs().max() < 1e-5 * one.abs().max()


def test_what_it_cannot_say_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    run = load_run(run_of(large(positions="alibi"), tmp_path / "run"))
    with pytest.raises(UsageError, match="positions"):
        export_run(run, tmp_path / "out", to="torch-nn")
    assert not (tmp_path / "out").exists()

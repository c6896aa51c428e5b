"""`torch.nn.TransformerEncoder`: what is exported opens in PyTorch itself, and comes back bit for bit."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from foreign import BASE, difference, run_of
from variants import enlarged

from vitral.data import byte_tokenizer
from vitral.interop import export_run, import_model
from vitral.model import ModelConfig, Transformer
from vitral.runs import load_run

MODELS: dict[str, dict[str, Any]] = {
    "post and a last norm": {"norm": "post", "final_norm": True, "tie_head": True},
    "no last norm": {"final_norm": False, "feed_forward": "gelu_tanh", "norm_epsilon": 1e-3},
    "no biases": {"bias": False, "feed_forward": "relu"},
    "a head with bias": {"bias": {"head": True}},
}


def large(**keys: Any) -> Transformer:
    return enlarged(Transformer(ModelConfig.parse(BASE | keys), 256).eval())


@pytest.mark.parametrize("name", MODELS)
def test_an_export_is_proved_in_torch_and_comes_back_bit_for_bit(name: str, tmp_path: Path) -> None:
    model = large(**MODELS[name])
    proved = export_run(run_of(model, tmp_path / "run"), tmp_path / "out", to="torch-nn").proof
    assert proved is not None
    assert proved.relative_difference < 1e-5
    assert proved.equal_text
    back = load_run(import_model(tmp_path / "out", tmp_path / "back").path)
    assert back.model.config == model.config.model_copy(update={"num_kv_heads": 2})
    assert all(back.model.state_dict()[key].equal(tensor) for key, tensor in model.state_dict().items())
    assert back.tokenizer == byte_tokenizer()


def test_the_lines_of_the_card_build_and_load_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = large(norm="post", feed_forward="relu")
    export_run(run_of(model, tmp_path / "run"), tmp_path / "out", to="torch-nn")
    lines = re.search(r"```python\n(.*?)```", (tmp_path / "out" / "README.md").read_text(), re.DOTALL)
    assert lines is not None
    monkeypatch.chdir(tmp_path / "out")
    names: dict[str, Any] = {"__name__": "card"}
    exec(compile(lines[1], "card", "exec"), names)
    with torch.inference_mode():
        expected = model(torch.tensor([list(b"A prompt")]))
    assert names["ids"] == list(b"A prompt")
    assert difference(names["logits"], expected) < 1e-5

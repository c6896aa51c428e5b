"""Proofs of exports, and exports without the packages that prove them."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from foreign import run_of
from symbols import symbolic_lengths
from torch import Tensor
from variants import made

from vitral.core.errors import UsageError
from vitral.data import SOURCES, char_tokenizer
from vitral.interop import export_run
from vitral.interop.card import UNKNOWN, licence
from vitral.interop.proof import PROMPT, Draft, Opened, Proof, prove
from vitral.interop.targets import gguf
from vitral.model import ModelConfig, Transformer

TOKENIZER = char_tokenizer("\n abcdefgh")


def model_with(context: int = 13, **attention: Any) -> Transformer:
    torch.manual_seed(1)
    config = {"context_length": context, "d_model": 6, "num_layers": 2, "num_heads": 2, "attention": attention}
    return Transformer(ModelConfig.parse(config), TOKENIZER.vocab_size).eval()


def proved(model: Transformer, opened: Opened, most: float) -> Proof:
    draft = Draft("own", {}, "own", (), lambda _folder: opened, (), most=most)
    return prove(model, TOKENIZER, opened, draft)


@pytest.mark.parametrize("most", [1e-5, gguf.MOST_DIFFERENCE])
@pytest.mark.parametrize(
    "change", [torch.zeros_like, lambda x: x * float("nan"), lambda x: x.roll(1, -1), lambda x: 0.9 * x]
)
def test_other_logits_are_refused(most: float, change: Callable[[Tensor], Tensor]) -> None:
    model = model_with()
    assert proved(model, Opened(model), most).greatest_difference == 0
    with pytest.raises(UsageError, match="proof: logits differs"):
        proved(model, Opened(lambda tokens: change(model(tokens))), most)


def test_a_prompt_is_longer_than_the_windows() -> None:
    def masked(sizes: tuple[int, int]) -> Transformer:
        masks = [{"name": "window", "size": size} for size in sizes]
        made = model_with(211, mask={"name": "by-layer", "masks": masks})
        made.load_state_dict(model_with(211).state_dict())
        return made

    one, other = masked((149, 149)), masked((149, 173))
    with pytest.raises(UsageError, match="proof: logits differs"):
        proved(one, Opened(other), 1e-7)


@pytest.mark.parametrize(
    ("record", "is_known"),
    [
        ({"source": "sample", "name": "sample"}, True),
        ({"source": "./sample", "name": "sample"}, False),
        ({"source": "sample", "name": "sample", "path": "/texts/sample.txt"}, False),
        ({"source": "shakespeare", "path": f"/texts/{next(iter(SOURCES['shakespeare'].files), '')}"}, True),
        ({"source": "shakespeare", "path": "/texts/shakespeare.txt"}, False),
        ({}, False),
    ],
)
def test_a_licence_is_stated_only_of_a_text_that_is_known(record: dict[str, str], is_known: bool) -> None:
    assert (licence(record) != UNKNOWN) is is_known


@pytest.mark.parametrize("package", ["onnx", "onnxscript"])
def test_a_missing_package_is_named_and_nothing_is_left(
    package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = run_of(made("no layer"), tmp_path / "run")
    monkeypatch.setitem(sys.modules, "onnx", sys)  # as if it were there, since the quick tests do not install it
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(UsageError, match=f"{package} is not installed"):
        export_run(run, tmp_path / "out", to="onnx")
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


@pytest.mark.parametrize("to", ["gpt2", pytest.param("graph", marks=pytest.mark.merge)])
def test_the_prompt_of_the_card_is_one_that_the_tokenizer_accepts(to: str, tmp_path: Path) -> None:
    run = run_of(made("pre"), tmp_path / "run")
    with symbolic_lengths():
        export_run(run, tmp_path / "out", to=to, proof=False)
    card = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    assert '("a"' in card
    assert PROMPT not in card

"""The proof of an export refuses a model that computes something else; the card states no licence that is not known."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from vitral.core.errors import UsageError
from vitral.data import SOURCES, char_tokenizer
from vitral.interop.card import UNKNOWN, licence
from vitral.interop.proof import Draft, Opened, Proof, prove
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
        ({"source": "my.txt", "name": "my.txt"}, False),
        ({}, False),
    ],
)
def test_a_licence_is_stated_only_of_a_text_that_is_known(record: dict[str, str], is_known: bool) -> None:
    assert (licence(record) != UNKNOWN) is is_known

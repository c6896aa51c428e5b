"""The model in C computes what the modules compute, whatever it is made of, with the same bits in every division."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from variants import GENERATED, TOKENIZER, made, made_wide

from tests.native.conftest import LONG
from vitral.core.errors import UsageError
from vitral.core.process import using_threads
from vitral.decoding.reader import Reader
from vitral.model import KVCache, ModelConfig, Transformer
from vitral.model.block import Block
from vitral.model.native import Choice, NativeStep, build, library, native_step
from vitral.model.native import step as native_module

pytestmark = pytest.mark.usefixtures("used")

ROWS = 5


def step_of(model: Transformer) -> NativeStep:
    step = native_step(model)
    assert isinstance(step, NativeStep), step
    return step


def cache_of(model: Transformer, rows: int) -> KVCache:
    length = model.config.context_length
    return KVCache(model.config, rows, length, dtype=torch.float32, device=torch.device("cpu"))


def in_pieces(model: Transformer, tokens: torch.Tensor, lengths: list[int]) -> torch.Tensor:
    """The last logits of tokens that are read in pieces of these lengths."""
    step, cache = step_of(model), cache_of(model, len(tokens))
    return [step(piece, cache) for piece in tokens.split(lengths, dim=1)][-1]


def equals_the_modules(model: Transformer, tokens: torch.Tensor) -> torch.Tensor:
    """The last logits of these tokens, compared with the modules' in float64; the model stays in float32."""
    found = step_of(model)(tokens, cache_of(model, len(tokens)))
    plain = model(tokens)[:, -1].double()
    exact = model.double()(tokens)[:, -1]
    model.float()
    assert (found - exact).abs().max() < 3e-6 * exact.abs().max() + 3 * (plain - exact).abs().max()
    return found


def whole(model: Transformer) -> torch.Tensor:
    """Rows as long as the model's context."""
    shape = (ROWS, model.config.context_length)
    return torch.randint(TOKENIZER.vocab_size, shape, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize(
    ("variant", "wide"), [*((name, False) for name in GENERATED), *((name, True) for name in LONG)]
)
@torch.inference_mode()
def test_it_equals_the_modules_in_float64(variant: str, wide: bool) -> None:
    model = made_wide(variant) if wide else made(variant)
    tokens = whole(model)
    time = tokens.shape[1]
    found = equals_the_modules(model, tokens)
    together = 0 if model.mask is None else model.mask.joint_prefix()
    if together == 0:
        half = time // 2
        for lengths in ([1] * time, [3, time - 3], [half, time - half]):
            assert torch.equal(in_pieces(model, tokens, lengths), found)
        for rows in ([2], [4, 0, 1]):
            assert torch.equal(in_pieces(model, tokens[rows], [half, time - half]), found[rows])


@pytest.mark.merge
@torch.inference_mode()
def test_what_another_compiler_builds_equals_the_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if shutil.which("clang") is None:
        pytest.skip("clang is not installed")
    monkeypatch.setenv("CC", "clang")
    assert build.build(tmp_path) is None
    monkeypatch.setattr(library, "PATH", tmp_path / build.LIBRARY)
    for variant in GENERATED:
        model = made(variant)
        equals_the_modules(model, whole(model))


@torch.inference_mode()
def test_the_modules_go_on_with_its_cache() -> None:
    for variant in ("pre", "rotary", "grouped", "lstm"):
        model = made(variant)
        tokens = torch.randint(TOKENIZER.vocab_size, (ROWS, 9), generator=torch.Generator().manual_seed(1))
        step, cache = step_of(model), cache_of(model, ROWS)
        step(tokens[:, :4], cache)
        model(tokens[:, 4:6], cache=cache)
        cache.select(torch.tensor([3, 0, 3]))
        found = step(tokens[[3, 0, 3], 6:], cache)
        torch.testing.assert_close(found, model(tokens[[3, 0, 3]])[:, -1], rtol=1e-5, atol=1e-5)


@torch.inference_mode()
def test_it_follows_every_change_of_the_model() -> None:
    model = made("pre")
    tokens = torch.randint(TOKENIZER.vocab_size, (2, 9), generator=torch.Generator().manual_seed(1))
    block: Any = model.blocks[1]

    def same() -> bool:
        torch.testing.assert_close(in_pieces(model, tokens, [9]), model(tokens)[:, -1], rtol=1e-5, atol=1e-5)
        return True

    assert same()
    before = in_pieces(model, tokens, [9])
    block.mlp.up.weight.mul_(1.5)
    assert same()
    assert not torch.equal(in_pieces(model, tokens, [9]), before)
    block.mlp.up.weight.data = block.mlp.up.weight.data.clone()
    assert same()
    attention: Any = made("pre", seed=5).blocks[0].get_submodule("attn")
    block.attn = attention
    assert same()
    attention.scale.scale = 0.7
    assert same()
    model.blocks[0] = Block(model.config, 0)
    assert same()
    learned = made({"attention": {"scale": "learned-per-head"}})
    before = in_pieces(learned, tokens, [9])
    scale: Any = learned.blocks[0]
    scale.attn.scale.factor.mul_(1.5)
    torch.testing.assert_close(in_pieces(learned, tokens, [9]), learned(tokens)[:, -1], rtol=1e-5, atol=1e-5)
    assert not torch.equal(in_pieces(learned, tokens, [9]), before)


def test_it_leaves_alone_what_it_does_not_know(monkeypatch: pytest.MonkeyPatch) -> None:
    def is_known(model: Transformer) -> bool:
        return isinstance(native_step(model), NativeStep)

    assert is_known(made("pre"))
    assert not is_known(made("pre").double())
    assert not is_known(made("pre").bfloat16())
    assert not is_known(made("pre").to("meta"))
    hooked = made("pre")
    assert is_known(hooked)
    handle = hooked.blocks[1].register_forward_hook(lambda *_: None)
    assert not is_known(hooked)
    handle.remove()
    assert is_known(hooked)
    for activation in (torch.nn.functional.silu, torch.nn.functional.relu):
        block: Any = hooked.blocks[0]
        block.mlp.activation = activation
        assert not is_known(hooked)
    other: Any = made("pre")
    other.blocks[1].mlp_norm.eps = 0.1
    assert not is_known(other)
    exchanged = made("pre")
    exchanged.token_embedding = torch.nn.Embedding(TOKENIZER.vocab_size + 1, 15)
    assert not is_known(exchanged)
    laid = made("pre")
    laid.token_embedding.weight.data = laid.token_embedding.weight.data.T.contiguous().T
    assert not is_known(laid)
    with torch.autocast("cpu", torch.bfloat16):
        assert not is_known(made("pre"))
    monkeypatch.setenv("VITRAL_NATIVE", "0")
    assert not is_known(made("pre"))


@pytest.mark.parametrize("token", [-1, TOKENIZER.vocab_size])
def test_an_unknown_token_is_refused_in_the_same_words(token: int) -> None:
    with pytest.raises(UsageError, match=f"token id {token} is not in the vocabulary"):
        Reader(made("pre"), torch.tensor([[1, token]])).logits()


@pytest.mark.parametrize("rows", [1, 3])
def test_threads_change_no_bit(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    config = ModelConfig.parse({"context_length": 37, "d_model": 132, "num_layers": 2, "num_heads": 3, "d_ff": 515})
    model = Transformer(config, 101).eval()
    monkeypatch.setattr(native_module, "LARGE", 1)
    monkeypatch.setattr(native_module, "SHARED_FROM", 1)
    results = []
    for threads in (1, 2, 5, 7):
        with using_threads(threads), torch.inference_mode():
            step, cache = step_of(model), cache_of(model, rows)
            tokens = torch.arange(rows * 34).view(rows, 34) % 97
            chances = np.random.default_rng(5).random((rows, 11))
            step.write(tokens, cache, begin=0, length=23, choice=Choice(), chances=chances)
            results.append((step(tokens[:, -1:], cache), tokens))
    for logits, tokens in results[1:]:
        assert torch.equal(logits, results[0][0])
        assert torch.equal(tokens, results[0][1])

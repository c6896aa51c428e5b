"""What a new model is made of: numbers that depend on their own name and seed, and on nothing else."""

import math
from typing import Any

import pytest
import torch

from vitral.attention import Bidirectional, Causal, Prefix
from vitral.model import ModelConfig, Transformer, next_token_loss

SIZES: dict[str, Any] = {"context_length": 11, "d_model": 30, "num_heads": 3, "num_layers": 2}


def made(vocab_size: int = 53, seed: int = 1, **chosen: Any) -> Transformer:
    return Transformer(ModelConfig.parse({**SIZES, **chosen}), vocab_size, seed=seed)


def test_models_that_share_a_part_share_its_numbers() -> None:
    whole = made().state_dict()
    others: list[dict[str, Any]] = [
        {"attention": "none"},
        {"feed_forward": "none"},
        {"positions": "rotary"},
        {"norm_type": "rmsnorm", "norm": "post"},
        {"tie_head": True},
        {"residual": False},
        {"attention": {"mask": "bidirectional", "scale": "learned"}},
        {"shape": "encoder-decoder"},
    ]
    for other in others:
        shared = made(**other).state_dict()
        names = shared.keys() & whole.keys()
        assert {"token_embedding.weight"} < names
        assert all(torch.equal(shared[name], whole[name]) for name in names), other


def test_the_seed_and_the_name_decide() -> None:
    one, same, other = made(seed=1).state_dict(), made(seed=1).state_dict(), made(seed=2).state_dict()
    drawn = [name for name, value in one.items() if value.dim() == 2]
    assert all(torch.equal(one[name], same[name]) for name in one)
    assert all(not torch.equal(one[name], other[name]) for name in drawn)
    assert not torch.equal(one["blocks.0.attn.in_proj.weight"], one["blocks.1.attn.in_proj.weight"])


def test_the_global_generator_is_left_as_it_was() -> None:
    before = torch.random.get_rng_state()
    made()
    assert torch.equal(torch.random.get_rng_state(), before)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(99)
        elsewhere = made().state_dict()
    assert all(torch.equal(value, elsewhere[name]) for name, value in made().state_dict().items())


def test_gpt2_numbers() -> None:
    state = made(d_model=120, num_layers=3).state_dict()
    for name, value in state.items():
        if name.endswith("norm.weight"):
            assert value.eq(1).all()
        elif name.endswith("bias"):
            assert value.eq(0).all()
        else:
            to_stream = name.endswith(("out_proj.weight", "down.weight"))
            expected = 0.02 / math.sqrt(2 * 3) if to_stream else 0.02
            sampling_error = 5 / math.sqrt(2 * value.numel())
            assert float(value.std()) == pytest.approx(expected, rel=sampling_error), name
            assert abs(float(value.mean())) < 5 * expected / math.sqrt(value.numel())


def test_pytorch_numbers() -> None:
    state = made(d_model=120, initialisation="pytorch").state_dict()
    for name, value in state.items():
        if name in ("token_embedding.weight", "positions.weight"):
            assert float(value.std()) == pytest.approx(1, rel=0.1)
        elif name.endswith(".weight") and value.dim() == 2:
            bound = 1 / math.sqrt(value.shape[1])
            assert float(value.abs().max()) <= bound
            assert float(value.std()) == pytest.approx(bound / math.sqrt(3), rel=0.05)


def test_the_loss_by_hand() -> None:
    # Probabilities of the two tokens: 3/4 and 1/4, then 1/2 and 1/2.
    logits = torch.tensor([[[math.log(3), 0.0], [7.0, 7.0]]], dtype=torch.float64)
    targets = torch.tensor([[1, 0]])
    loss = next_token_loss(logits, targets, Causal())
    assert loss.dtype == torch.float64
    assert float(loss) == pytest.approx((math.log(4) + math.log(2)) / 2, rel=1e-15)
    assert float(next_token_loss(logits, targets, None)) == float(loss)
    assert float(next_token_loss(logits, targets, Bidirectional())) == float(loss)
    assert next_token_loss(logits.bfloat16(), targets, None).dtype == torch.float32


def test_a_prefix_counts_only_what_comes_after_it() -> None:
    logits = torch.zeros(1, 5, 3, dtype=torch.float64)
    logits[0, :2] = 99.0 * torch.eye(3)[:2]  # would be a huge loss if the prefix's own tokens counted
    logits[0, 2, 1] = math.log(2)  # the prefix's last position predicts the first token after it: 1/2
    targets = torch.tensor([[2, 2, 1, 0, 0]])
    loss = float(next_token_loss(logits, targets, Prefix(length=3)))
    assert loss == pytest.approx((math.log(2) + 2 * math.log(3)) / 3, rel=1e-15)

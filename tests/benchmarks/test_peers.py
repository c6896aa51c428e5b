"""The peers are the same model as Vitral's, the limit counts the same products, and the rows' pure parts."""

import math
from pathlib import Path

import pytest
import torch

from benchmarks import ours
from benchmarks.grid import smallest
from benchmarks.limits import BYTES, forward_products, training_products, weights_read
from benchmarks.options import LeftOut, Options
from benchmarks.peers import available, nanogpt
from benchmarks.peers.plain import PlainGPT
from benchmarks.peers.training import part_loss
from benchmarks.rows import ROWS, USUAL, gpu
from benchmarks.rows.target import Outcome, best_of
from benchmarks.rows.target import ours as ours_of
from benchmarks.shapes import MEDIUM, Shape, shakespeare
from vitral.data import Split
from vitral.evaluation import evaluate_split
from vitral.model import count_parameters
from vitral.model.counts import cost

SMALL = Shape(vocab=13, context=7, d_model=10, layers=3, heads=5, batch=2)


def plain_of(shape: Shape, seed: int = 1) -> PlainGPT:
    """The plain GPT with the numbers of Vitral's model, which lie in the same order."""
    model, plain = ours.model(shape, seed), PlainGPT(shape)
    theirs = dict(plain.named_parameters())
    named = {
        "token_embedding": "wte",
        "positions": "wpe",
        "attn_norm": "ln_1",
        "mlp_norm": "ln_2",
        "attn.in_proj": "attn.qkv",
        "attn.out_proj": "attn.proj",
        "mlp.up": "fc",
        "mlp.down": "proj",
        "final_norm": "ln_f",
    }
    for name, value in model.named_parameters():
        other = name
        for here, there in named.items():
            other = other.replace(here, there)
        theirs.pop(other).data.copy_(value.data)
    assert not theirs
    return plain


def test_the_plain_model_is_vitrals_model() -> None:
    torch.manual_seed(0)
    model, plain, tokens = ours.model(SMALL), plain_of(SMALL), ours.window(SMALL)
    with torch.inference_mode():
        torch.testing.assert_close(plain(tokens, tokens)[0], model(tokens), rtol=1e-5, atol=1e-5)
    dataset = ours.synthetic(SMALL)
    part = Split(dataset.splits["test"].tokens, dataset.splits["test"].segments[:1])
    assert part_loss(plain, part) == pytest.approx(evaluate_split(model, part, dataset.tokenizer).loss, rel=1e-6)


@pytest.mark.parametrize("shape", [SMALL, MEDIUM, shakespeare()])
def test_the_limit_multiplies_as_often_as_the_model(shape: Shape) -> None:
    counted = cost(shape.model_config(), shape.vocab)
    tokens = shape.batch * shape.context
    assert sum(product.flops for product in forward_products(shape)) == tokens * counted.forward_flops
    training = counted.forward_flops + counted.backward_flops
    assert sum(product.flops for product in training_products(shape)) == tokens * training


def test_a_generated_token_reads_every_weight_but_the_embeddings() -> None:
    embeddings = (MEDIUM.vocab + MEDIUM.context) * MEDIUM.d_model
    count = count_parameters(MEDIUM.model_config(), MEDIUM.vocab)
    # One row of each embedding is read.
    assert weights_read(MEDIUM) == BYTES * (count - embeddings + 2 * MEDIUM.d_model)
    assert round(count, -5) == 10_800_000


def test_a_vitral_step_and_a_sample_run() -> None:
    dataset = ours.synthetic(SMALL)
    assert dataset.tokenizer.vocab_size == SMALL.vocab
    step = ours.trainer(SMALL, dataset)
    step()
    ours.generator(SMALL, 9)()
    first, again = ours.feed(SMALL, dataset), ours.feed(SMALL, dataset)
    for _ in range(2):
        assert all(torch.equal(one, other) for one, other in zip(first(), again(), strict=True))


NANOGPT = """
from dataclasses import dataclass
import torch

@dataclass
class GPTConfig:
    block_size: int = 0
    vocab_size: int = 0
    n_layer: int = 0
    n_head: int = 0
    n_embd: int = 0
    dropout: float = 0.0
    bias: bool = True

class GPT(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        self.table = torch.nn.Embedding(config.vocab_size, config.vocab_size)

    def forward(self, idx, targets):
        logits = self.table(idx)
        return logits, torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())

    def configure_optimizers(self, weight_decay, learning_rate, betas, device_type):
        return torch.optim.AdamW(self.parameters(), lr=learning_rate, betas=betas, weight_decay=weight_decay)
"""


def test_a_checkout_of_nanogpt_is_a_peer(tmp_path: Path) -> None:
    with pytest.raises(LeftOut, match=r"no checkout of nanoGPT"):
        nanogpt.load(tmp_path)
    (tmp_path / "model.py").write_text(NANOGPT, encoding="utf-8")
    peers, notes = available(Options(nanogpt=tmp_path))
    assert peers[-1].name in notes[-1]
    peers[-1].trainer(SMALL, ours.feed(SMALL, ours.synthetic(SMALL)))()


def test_bisection_finds_the_smallest() -> None:
    steps = [10, 20, 30, 40, 50]
    for least in (*steps, 60):
        assert smallest(steps, lambda count, least=least: count >= least) == (least if least <= 50 else None)


def test_the_best_setting_reaches_most_often_then_soonest() -> None:
    settings = {
        "quick but wrong": [Outcome(1.0, 1.9), Outcome(1.0, 1.7)],
        "slow": [Outcome(9.0, 1.7), Outcome(9.0, 1.7)],
        "sure": [Outcome(5.0, 1.7), Outcome(6.0, 1.7)],
    }
    assert best_of(settings) == "sure"
    missed = ours_of(settings["quick but wrong"])
    assert missed.seconds == (math.inf, 1.0)
    assert missed.facts["reached"] == "1 of 2"


def test_the_row_for_a_gpu_runs_without_one_only_to_be_tried() -> None:
    (section,) = gpu.measure(gpu.NAMES, Options(rounds=2, quick=True))
    assert [len(one.seconds) for one in section.measurements] == [2, 2]
    assert set(ROWS) - set(USUAL) == {"board", "gpu"}
    if not torch.cuda.is_available():
        with pytest.raises(LeftOut):
            gpu.measure(gpu.NAMES, Options(rounds=2))


def test_a_card_is_known_by_the_name_of_its_driver() -> None:
    cards = ("NVIDIA H100 80GB HBM3", "NVIDIA GeForce RTX 4090", "NVIDIA A100-SXM4-40GB", "Tesla K80")
    assert [gpu.peak_flops(card) for card in cards] == [989.4e12, 165.2e12, 312e12, None]

"""The peers are the same model as Vitral's, the limit counts the same products, and the rows' pure parts."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks import ours
from benchmarks.grid import smallest
from benchmarks.limits import BYTES, Product, forward_products, multiply, training_products, weights_read
from benchmarks.options import LeftOut, Options
from benchmarks.peers import available, nanogpt
from benchmarks.peers.counting import stored_counts
from benchmarks.peers.plain import PlainGPT
from benchmarks.peers.training import part_loss
from benchmarks.processes import environment, trained_at
from benchmarks.recipes import Recipe, source, strong
from benchmarks.results import Measurement
from benchmarks.rows import ROWS, USUAL, evaluating, gpu, longtexts, together
from benchmarks.rows.target import Outcome, best_of
from benchmarks.rows.target import ours as ours_of
from benchmarks.shapes import MEDIUM, Shape, shakespeare
from vitral.data import Split
from vitral.evaluation import WittenBell, evaluate_split
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


def test_products_run() -> None:
    assert Product(2, 3, 5, 7).backward() == (Product(2, 3, 7, 5), Product(2, 5, 3, 7))
    multiply(training_products(SMALL))()


def test_a_vitral_step_and_a_sample_run() -> None:
    dataset = ours.synthetic(SMALL)
    assert dataset.tokenizer.vocab_size == SMALL.vocab
    step = ours.trainer(SMALL, dataset)
    step()
    ours.generator(SMALL, 9)()
    first, again = ours.feed(SMALL, dataset), ours.feed(SMALL, dataset)
    for _ in range(2):
        assert all(torch.equal(one, other) for one, other in zip(first(), again(), strict=True))


def test_stored_counts_are_the_models_own() -> None:
    tokens = np.array([1, 2, 3, 1, 2, 4, 1, 2, 3], dtype=np.uint8)
    part = Split(tokens, np.array([[0, 5], [5, 9]]))
    model = WittenBell(part, 5, 3)
    assert stored_counts(part, 3) == sum(len(counts.keys) for counts in model._counts)


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


def test_recipes_travel_and_their_rates_follow_their_schedules() -> None:
    recipe = strong(16, 2e-3, 100)
    assert Recipe.from_json(recipe.to_json()) == recipe
    assert recipe.rate_at(4) == pytest.approx(2e-3)
    assert recipe.rate_at(0) == pytest.approx(2e-3 / 5)
    assert 0 < recipe.rate_at(99) < 1e-5
    assert {source(50).rate_at(step) for step in range(50)} == {3e-3}


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


def test_the_clock_of_a_run_is_in_its_metrics() -> None:
    evaluation = {"event": "evaluation", "step": 3, "test_loss": 1.5}
    with pytest.raises(LeftOut, match="not finished"):
        trained_at([evaluation])
    assert trained_at([{"event": "end", "step": 3, "stepped": 12.5}, evaluation]) == (12.5, 3, 1.5)


def test_a_cold_process_has_empty_caches_and_our_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VITRAL_CORPORA", str(tmp_path))
    env = environment(Options(threads=3), tmp_path / "scratch")
    assert env["OMP_NUM_THREADS"] == "3"
    assert env["VITRAL_CORPORA"] == str(tmp_path.resolve())
    assert env["TORCHINDUCTOR_CACHE_DIR"].startswith(str(tmp_path / "scratch"))


def test_rows_of_one_measure_are_taken_together() -> None:
    asked = together(["throughput", "fast", "shakespeare-fast"])
    assert [names for _, names in asked] == [["shakespeare-fast", "fast"], ["throughput"]]
    assert [name for _, names in together(list(ROWS)) for name in names] == list(ROWS)


def test_the_row_for_a_gpu_runs_without_one_only_to_be_tried() -> None:
    (section,) = gpu.measure(gpu.NAMES, Options(rounds=2, quick=True))
    assert [len(one.seconds) for one in section.measurements] == [2, 2]
    assert set(ROWS) - set(USUAL) == {"gpu"}
    if not torch.cuda.is_available():
        with pytest.raises(LeftOut):
            gpu.measure(gpu.NAMES, Options(rounds=2))


def test_a_card_is_known_by_the_name_of_its_driver() -> None:
    cards = ("NVIDIA H100 80GB HBM3", "NVIDIA GeForce RTX 4090", "NVIDIA A100-SXM4-40GB", "Tesla K80")
    assert [gpu.peak_flops(card) for card in cards] == [989.4e12, 165.2e12, 312e12, None]


def test_a_share_of_the_peak_is_the_least_time_over_the_measured() -> None:
    measured = gpu.with_share(Measurement("Vitral", (0.2, 0.4, 0.5)), 0.2)
    assert measured.facts == {gpu.OF_THE_PEAK: 50.0}


@pytest.mark.parametrize("windows", [1, 11, 585, 589])
def test_the_products_of_an_evaluation_are_those_of_its_windows(windows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[int] = []

    def counted(products: list[Product]) -> Callable[[], None]:
        return lambda: done.append(sum(product.flops for product in products))

    monkeypatch.setattr(evaluating, "multiply", counted)
    evaluating.products_of(SMALL, windows * SMALL.context - 3)()
    one = sum(product.flops for product in forward_products(replace(SMALL, batch=1)))
    assert sum(done) == windows * one


def test_the_files_of_a_folder_are_the_text(tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("".join(f"{'é' * (number % 13)}\n" for number in range(1009)), encoding="utf-8")
    files = sorted(longtexts._folder(tmp_path / "folder", text).iterdir())
    assert len(files) == longtexts.FILES
    assert b"".join(file.read_bytes() for file in files) == text.read_bytes()
    for file in files:
        file.read_text(encoding="utf-8")

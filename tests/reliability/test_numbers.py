"""Numbers that are not finite, sampling, splits: what must never happen silently."""

import math
import random
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.reliability.conftest import STEPS, Tally, last_bytes, scaled
from vitral.core.errors import TrainingStopped
from vitral.data import Batches, CharTokenizer, encode_splits, split_text
from vitral.model import ModelConfig, Transformer
from vitral.runs import RunFolder
from vitral.training import RunConfig, loop, resume, train

BAD = (math.nan, math.inf, -math.inf)
PLACES = ("loss", "gradient", "weight", "optimizer")


def inject(patch: pytest.MonkeyPatch, place: str, step: int, value: float, which: int) -> None:
    """Put a bad number somewhere at a step."""
    loss_of, norm = loop.loss_of, torch.nn.utils.get_total_norm

    def bad_loss(trainer, at, micro, chain=""):
        if at == step - 1 and micro == 0:
            parameters = list(trainer.model.parameters())
            if place == "weight":
                parameters[which % len(parameters)].data.view(-1)[0] = value
            if place == "optimizer":
                states = [v for part in trainer.optimizer.members for s in part.state.values() for v in s.values()]
                states = [state for state in states if state.numel() > 1]
                states[which % len(states)].view(-1)[-1] = value
        loss, chain = loss_of(trainer, at, micro, chain)
        if at == step - 1 and place == "loss" and micro == 1:
            loss = loss * value
        if at == step - 1 and place == "gradient" and micro == 1:
            parameters = list(trainer.model.parameters())
            parameters[which % len(parameters)].register_hook(lambda gradient: torch.full_like(gradient, value))
        return loss, chain

    patch.setattr(loop, "loss_of", bad_loss)
    assert norm is torch.nn.utils.get_total_norm


@pytest.mark.parametrize("place", PLACES)
def test_training_stops_before_the_step(
    place: str, config: RunConfig, straight: RunFolder, tmp_path: Path, tally: Tally
) -> None:
    steps = range(2, STEPS, scaled(4, 1))
    cases = [(step, BAD[(step + n) % 3], 3 * n + step) for step in steps for n in range(scaled(1, 9))]
    for number, (step, value, which) in enumerate(cases):
        path = tmp_path / f"run-{number}"
        with pytest.MonkeyPatch.context() as patch:
            inject(patch, place, step, value, which)
            with pytest.raises(TrainingStopped) as stopped:
                train(config, path)
        said = str(stopped.value)
        assert stopped.value.exit_code == 3
        assert "\n" not in said
        assert f"before step {step}" in said
        assert f"batch {step - 1} of seed 1" in said
        if place in ("weight", "optimizer"):
            assert ("the weight " if place == "weight" else "the optimizer's ") in said
        folder = RunFolder.open(path)
        kept = folder.load("last", warn=pytest.fail)
        assert kept.step == step - 1
        assert all(tensor.isfinite().all() for tensor in (*kept.model.values(), *kept.optimizer.values()))
        assert folder.metrics("stopped")[0]["step"] == step - 1
        assert last_bytes(resume(path)) == last_bytes(straight)
    tally(f"numbers that are not finite, put into a {place}", len(cases))


def test_what_was_trained_since_the_last_checkpoint_is_kept(config: RunConfig, tmp_path: Path) -> None:
    rare = config.model_copy(update={"training": config.training.model_copy(update={"checkpoint_every": None})})
    with pytest.MonkeyPatch.context() as patch:
        inject(patch, "loss", 9, math.nan, 0)
        with pytest.raises(TrainingStopped):
            train(rare, tmp_path / "run")
    assert RunFolder.open(tmp_path / "run").load("last", warn=pytest.fail).step == 8


def test_cached_equals_uncached_at_every_length(tally: Tally) -> None:
    """To three times the context; past it the reader restarts its window the same way with and without a cache."""
    from vitral.decoding.reader import Reader

    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    draw, lengths = random.Random(seed), 0
    for _ in range(scaled(12, 500)):
        context = draw.randrange(2, 14)
        config = ModelConfig.parse(
            {
                "context_length": context,
                "d_model": 12,
                "num_layers": draw.randrange(1, 4),
                "num_heads": draw.choice([1, 2, 3]),
                "positions": draw.choice(["learned", "sinusoidal", "rotary", "alibi", "relative", "none"]),
                "norm": draw.choice(["pre", "post", "none"]),
                "initialisation": "pytorch",
                "attention": {"scale": draw.choice(["sqrt", "linear", "adaptive", "learned"])},
            }
        )
        model = Transformer(config, 11, seed=draw.randrange(10**6)).double().eval()
        rows = draw.randrange(1, 4)
        tokens = torch.tensor([[draw.randrange(11)] for _ in range(rows)])
        with_cache, without = Reader(model, tokens), Reader(model, tokens, use_cache=False)
        for _ in range(3 * context):
            one, other = with_cache.logits(), without.logits()
            torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9, msg=lambda text: f"seed {seed}: {text}")
            more = torch.tensor([draw.randrange(11) for _ in range(rows)])
            with_cache.append(more)
            without.append(more)
            lengths += 1
    tally("lengths at which cached and uncached logits are equal", lengths)


@settings(max_examples=scaled(60, 2000), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(15_000, 90_000), st.sampled_from(["blocks", "tail"]), st.integers(1, 300), st.integers(0, 2**31))
def test_no_window_sees_what_is_held_out(
    tally: Tally, size: int, split: Literal["blocks", "tail"], context: int, seed: int
) -> None:
    """A character of its own for each part: no training window holds one of another, none crosses a border."""
    tally("splits without a leak", 1)
    blocks, letters = split_text(size, split), {"train": "a", "validation": "b", "test": "c"}
    text = bytearray(size)
    for part, spans in blocks.items():
        for begin, end in spans:
            text[begin:end] = letters[part].encode() * (end - begin)
    parts = encode_splits(text.decode(), blocks, CharTokenizer("abc"))
    for place, part in enumerate(letters, start=1):
        assert set(parts[part].tokens.tolist()) == {place}
    # Positions instead of characters: a window's are consecutive, so it crosses no gap between two blocks.
    placed = np.concatenate([np.arange(begin, end) for begin, end in blocks["train"]])
    train_part = type(parts["train"])(placed, parts["train"].segments)
    for begin, end in train_part.segments:
        assert bool((np.diff(placed[begin:end]) == 1).all())
    try:
        batches = Batches(train_part, context_length=context, batch_size=16, seed=seed)
    except ValueError:
        return  # no stretch is long enough
    inputs, targets = batches.batch(seed % 1000)
    assert bool((inputs[:, 1:] - inputs[:, :-1] == 1).all())
    assert bool((targets - inputs == 1).all())

"""Numbers that are not finite, sampling, splits: what must never happen silently."""

import math
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.data.conftest import encoded_splits
from tests.reliability.conftest import STEPS, Tally, changed, scaled, trials, without_state
from vitral.core.errors import TrainingStopped
from vitral.data import Batches, char_tokenizer, split_text
from vitral.runs import RunFolder
from vitral.training import RunConfig, loop, resume, train

BAD = (math.nan, math.inf, -math.inf)
PLACES = ("loss", "gradient", "weight", "optimizer")


def inject(patch: pytest.MonkeyPatch, place: str, step: int, value: float, which: int) -> None:
    """Put a bad number somewhere at a step."""
    loss_of = loop.loss_of

    def bad_loss(trainer, at, micro, chain=""):
        parameters = list(trainer.model.parameters())
        if at == step - 1 and micro == 0:
            if place == "weight":
                parameters[which % len(parameters)].data.view(-1)[0] = value
            if place == "optimizer":
                states = [v for part in trainer.optimizer.members for s in part.state.values() for v in s.values()]
                states = [state for state in states if state.numel() > 1]
                states[which % len(states)].view(-1)[-1] = value
        loss, chain = loss_of(trainer, at, micro, chain)
        if at == step - 1 and micro == 1:
            if place == "loss":
                loss = loss * value
            if place == "gradient":
                bad = parameters[which % len(parameters)]
                bad.register_hook(lambda gradient: torch.full_like(gradient, value))
        return loss, chain

    patch.setattr(loop, "loss_of", bad_loss)


@trials(1, 3, 90)
@pytest.mark.parametrize("place", PLACES)
def test_training_stops_before_the_step(
    place: str, trials: int, config: RunConfig, straight: RunFolder, tmp_path: Path, tally: Tally
) -> None:
    """The steps before it are kept, whenever the last checkpoint was."""
    for number in range(trials):
        path, step, value = tmp_path / f"run-{number}", 2 + (7 + number) % (STEPS - 2), BAD[number % 3]
        # A weight cannot be had again but from a checkpoint.
        rare = place in ("loss", "gradient") and not number % 2
        every = None if rare else 1
        with pytest.MonkeyPatch.context() as patch:
            inject(patch, place, step, value, 3 * number + step)
            with pytest.raises(TrainingStopped) as stopped:
                train(changed(config, checkpoint_every=every), path)
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
        assert without_state(resume(path)) == without_state(straight)
    tally(f"numbers that are not finite, put into a {place}", trials)


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
    parts = encoded_splits(text.decode(), blocks, char_tokenizer("abc"))
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

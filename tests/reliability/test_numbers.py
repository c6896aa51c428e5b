"""Numbers that are not finite never enter a run silently."""

import math
from pathlib import Path

import pytest
import torch

from tests.reliability.conftest import STEPS, Tally, changed, trials, without_state
from vitral.core.errors import TrainingStopped
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

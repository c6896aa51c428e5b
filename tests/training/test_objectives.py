"""The masked objective: what is hidden, what is asked for, what is measured, and that nothing else has changed."""

from pathlib import Path

import numpy as np
import pytest
import torch

from tests.conftest import Once
from tests.training.conftest import Configured, bytes_of, cut
from vitral.core.streams import numpy_stream
from vitral.data import prepare
from vitral.evaluation import Masking, evaluate_split
from vitral.runs import RunFolder, load_run
from vitral.training import resume, train
from vitral.training.objectives import IGNORED, make_inputs

FILLING = {"objective": {"name": "masked", "rate": 0.3}}
BOTH_WAYS = {"attention": {"mask": "bidirectional"}}


@pytest.fixture(scope="session")
def filling(configured: Configured, once: Once) -> RunFolder:
    """Twenty steps of filling blanks, a checkpoint after each."""
    config = configured(model=BOTH_WAYS, training={**FILLING, "checkpoint_every": 1})
    return RunFolder.open(once("training-filling", lambda path: train(config, path)))


class TestBlanks:
    @pytest.mark.parametrize(("rate", "time", "count"), [(0.15, 7, 1), (0.15, 64, 10), (0.01, 11, 1), (0.5, 5, 2)])
    def test_every_window_has_as_many(self, rate: float, time: int, count: int) -> None:
        tokens = torch.arange(1, 1 + 13 * time).reshape(13, time)
        inputs, hidden = Masking(rate, 0).hide(tokens, numpy_stream(1, "test"))
        assert hidden.sum(dim=1).tolist() == [count] * 13
        assert (inputs[hidden] == 0).all()
        assert (inputs[~hidden] == tokens[~hidden]).all()

    def test_every_place_is_hidden_equally_often(self) -> None:
        tokens = torch.ones(7000, 11, dtype=torch.int64)
        _, hidden = Masking(0.3, 0).hide(tokens, numpy_stream(2, "test"))
        share, expected = hidden.double().mean(dim=0), 3 / 11
        assert (share - expected).abs().max() < 4.5 * (expected * (1 - expected) / 7000) ** 0.5


class TestPose:
    batch = (torch.arange(1, 78).reshape(7, 11), torch.arange(2, 79).reshape(7, 11))

    def test_what_is_asked_for_stood_there_and_is_hidden(self) -> None:
        inputs, targets = make_inputs(self.batch, Masking(0.3, 0), 1, 0, 0)
        asked = targets != IGNORED
        assert asked.sum(dim=1).tolist() == [3] * 7
        assert torch.equal(targets[asked], self.batch[0][asked])
        assert torch.equal(asked, inputs == 0)

    def test_places_are_a_function_of_seed_step_and_micro(self) -> None:
        def places(*key: int) -> list[bool]:
            return (make_inputs(self.batch, Masking(0.3, 0), *key)[0] == 0).flatten().tolist()

        keys = [(1, 0, 0), (2, 0, 0), (1, 1, 0), (1, 0, 1)]
        assert len({tuple(places(*key)) for key in keys}) == 4
        assert places(1, 1, 0) == places(1, 1, 0)


class TestRuns:
    def test_a_resumed_run_is_bit_equal(self, filling: RunFolder, tmp_path: Path) -> None:
        again = resume(cut(filling.path, tmp_path / "run"))
        assert bytes_of(again, 20)["model.safetensors"] == bytes_of(filling, 20)["model.safetensors"]

    def test_what_is_measured_is_the_mean_over_hidden_tokens(self, filling: RunFolder, configured: Configured) -> None:
        """The definition, one window at a time, against the full pass in batches of any size."""
        run, dataset = load_run(filling.path, "last"), prepare(configured().corpus)
        tokens = torch.from_numpy(np.asarray(dataset.splits["test"].tokens).astype(np.int64))
        masking, stream, nats = Masking(0.3, 0), numpy_stream(0, "blanks", "evaluation"), []
        for begin in range(0, len(tokens) - 1, 11):
            window = tokens[begin : min(begin + 11, len(tokens) - 1)][None]
            inputs, hidden = masking.hide(window, stream)
            with torch.inference_mode():
                log_probabilities = run.model(inputs).log_softmax(-1)
            nats += (-log_probabilities[hidden].gather(1, window[hidden][:, None])).flatten().tolist()
        for batch_tokens in (1, 50, 4096):
            part = dataset.splits["test"]
            found = evaluate_split(run.model, part, dataset.tokenizer, masking=masking, batch_tokens=batch_tokens)
            assert found.num_targets == len(nats)
            assert found.loss == pytest.approx(np.mean(nats), rel=1e-5)
        assert filling.metrics("evaluation")[-1]["test_loss"] == pytest.approx(np.mean(nats), rel=1e-5)

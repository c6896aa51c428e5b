"""The masked objective: what is hidden, what is asked for, what is measured, and that nothing else has changed."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer as Engine
from tokenizers import models

from tests.conftest import Once
from tests.training.conftest import Configured
from vitral.core.errors import UsageError
from vitral.core.streams import numpy_stream
from vitral.data import byte_tokenizer, char_tokenizer, file_tokenizer, prepare, windows
from vitral.evaluation import Masking, evaluate_split
from vitral.evaluation.masking import filling_of
from vitral.runs import RunFolder, load_run
from vitral.training import RunConfig, train
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
        def positions(*key: int) -> list[bool]:
            return (make_inputs(self.batch, Masking(0.3, 0), *key)[0] == 0).flatten().tolist()

        keys = [(1, 0, 0), (2, 0, 0), (1, 1, 0), (1, 0, 1)]
        assert len({tuple(positions(*key)) for key in keys}) == 4
        assert positions(1, 1, 0) == positions(1, 1, 0)

    def test_of_ten_masked_tokens_bert_changes_one_and_keeps_one(self) -> None:
        tokens = torch.full((400, 50), 3)
        masking = Masking(0.5, 0, among=8)
        inputs, targets = masking.asked(tokens, numpy_stream(1, "test"))
        asked = targets != IGNORED
        assert (targets[asked] == 3).all()
        assert (inputs[~asked] == 3).all()
        shares = [(inputs[asked] == token).double().mean().item() for token in range(8)]
        expected = [0.1 / 8 + {0: 0.8, 3: 0.1}.get(token, 0) for token in range(8)]
        assert shares == pytest.approx(expected, abs=0.02)
        halves = numpy_stream(1, "test")
        both = torch.cat([masking.asked(part, halves)[0] for part in (tokens[:150], tokens[150:])])
        assert torch.equal(both, inputs)

    def test_a_mixed_objective_predicts_a_hidden_token_at_the_position_before_it(self) -> None:
        masking = Masking(0.3, 0, share=0.4, is_shifted=True)
        due = [step for step in range(500) if masking.is_due(1, step)]
        assert 150 < len(due) < 250
        assert due != [step for step in range(500) if masking.is_due(2, step)]
        for step in (due[0], next(step for step in range(500) if step not in due)):
            inputs, targets = make_inputs(self.batch, masking, 1, step, 0)
            asked = targets != IGNORED
            if step not in due:
                assert torch.equal(inputs, self.batch[0])
                assert torch.equal(targets, self.batch[1])
            else:
                assert torch.equal(asked[:, :-1], inputs[:, 1:] == 0)
                assert not asked[:, -1].any()
                assert torch.equal(targets[asked], self.batch[1][asked])
                assert torch.equal(inputs[:, 0], self.batch[0][:, 0])


class TestMaskTokens:
    @pytest.mark.parametrize("tokenizer", ["char", "byte", "bpe:260"])
    @pytest.mark.parametrize("objective", ["masked", "mixed"])
    def test_every_tokenizer_has_one(self, tokenizer: str, objective: str, configured: Configured) -> None:
        config = configured(corpus={"tokenizer": tokenizer}, training={"objective": objective})
        assert RunConfig.parse(config.plain()) == config
        dataset = prepare(config.corpus)
        masking = filling_of(config.training.objective, dataset.tokenizer)
        assert masking is not None
        assert dataset.tokenizer.label(masking.token) in ("<PAD>", "<MASK>")
        assert all(masking.token not in split.tokens for split in dataset.splits.values())
        assert not dataset.notes

    def test_a_file_has_its_own(self) -> None:
        words = {"[PAD]": 0, "[MASK]": 1, "a": 2}
        engine = Engine(models.WordLevel(words))
        engine.add_special_tokens(["[PAD]", "[MASK]"])
        tokenizer = file_tokenizer(engine.to_str())
        assert tokenizer.mask == 1
        assert char_tokenizer("ab").mask == 0
        assert byte_tokenizer().mask is None


class TestRuns:
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
            result = evaluate_split(run.model, part, dataset.tokenizer, masking=masking, batch_tokens=batch_tokens)
            assert result.num_targets == len(nats)
            assert result.loss == pytest.approx(np.mean(nats), rel=1e-5)
        assert filling.metrics("evaluation")[-1]["test_loss"] == pytest.approx(np.mean(nats), rel=1e-5)

    def test_a_mixed_run_is_measured_both_ways(self, configured: Configured, tmp_path: Path) -> None:
        config = configured(training={"objective": "mixed", "steps": 3, "evaluate_every": 3})
        folder = train(config, tmp_path / "run")
        run, dataset = load_run(folder.path), prepare(config.corpus)
        split, tokenizer = dataset.splits["test"], dataset.tokenizer
        masking = filling_of(config.training.objective, tokenizer)
        assert masking is not None
        measured = folder.metrics("evaluation")[-1]
        for key, result in (("test_loss", None), ("test_masked_loss", masking)):
            assert measured[key] == pytest.approx(evaluate_split(run.model, split, tokenizer, masking=result).loss)
        stream, nats = numpy_stream(0, "blanks", "evaluation"), list[float]()
        for inputs, _ in windows(split, 11, 100):
            for row in inputs:
                hidden, chosen = Masking(0.15, masking.token).hide(row[None, 1:], stream)
                with torch.inference_mode():
                    logits = run.model(torch.cat([row[None, :1], hidden], dim=1), bidirectional=True)[0, :-1]
                nats += (-logits.log_softmax(-1)[chosen[0]].gather(1, row[1:][chosen[0]][:, None])).flatten().tolist()
        assert measured["test_masked_loss"] == pytest.approx(np.mean(nats), rel=1e-5)

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"training": {"objective": "label"}}, "labels"),
            ({"model": {"shape": "encoder-decoder"}}, "pairs"),
            ({"training": {"objective": "mixed"}, "model": {"attention": "none"}}, "mixed"),
            ({"training": {"objective": "masked"}, "corpus": {"records": "chats", "split": "blocks"}}, "records"),
        ],
    )
    def test_what_does_not_fit_is_refused(self, changes: dict[str, Any], message: str, configured: Configured) -> None:
        with pytest.raises(UsageError, match=message):
            configured(**changes)

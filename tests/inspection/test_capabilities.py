"""Leakage, infilling and continuation, each against what can be worked out."""

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from pieces import part

from vitral.data import Split, char_tokenizer
from vitral.evaluation import Masking
from vitral.inspection.mask_capabilities import Predictor, capabilities, infilling, leakage, scores
from vitral.model import ModelConfig, Transformer

VOCAB, TIME = 7, 13
TOKENIZER = char_tokenizer("abcdef")
"""Of 7 tokens, the first of which represents no text."""
MASKING = Masking(0.15, 0)


def model_with(mask: Any = "causal", seed: int = 1, **changes: Any) -> Transformer:
    """A fresh small model whose numbers are large enough to distinguish tokens."""
    config = {"context_length": TIME, "d_model": 12, "num_heads": 3, "num_layers": 2, "attention": {"mask": mask}}
    return Transformer(ModelConfig.parse({**config, "initialisation": "pytorch"} | changes), VOCAB, seed=seed).eval()


def some_windows(rows: int = 5, time: int = TIME) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(1).integers(1, VOCAB, size=(rows, time)))


def some_split(num: int) -> Split:
    return part(np.random.default_rng(2).integers(1, VOCAB, size=num).tolist())


def predictor(mask: Any, mask_token: int | None = None) -> Predictor:
    return Predictor(model_with(mask), mask_token, (0,))


class TestLeakage:
    @pytest.mark.parametrize("mask", ["causal", {"name": "window", "size": 3}])
    def test_nothing_moves_where_the_future_is_hidden(self, mask: Any) -> None:
        measured = leakage(predictor(mask), some_windows(31), 5)
        assert measured["moved"] < 1e-6
        assert not measured["visible"]

    def test_a_prefix_leaks_inside_itself_and_not_behind(self) -> None:
        prefix = predictor({"name": "prefix", "length": 6})
        inside, last, behind = (leakage(prefix, some_windows(31), position) for position in (2, 5, 9))
        assert (inside["visible"], last["visible"], behind["visible"]) == (True, False, False)
        assert inside["moved"] > 1e-3 > 1e-6 > max(last["moved"], behind["moved"])


class TestInfilling:
    @pytest.mark.parametrize("mask", ["causal", {"name": "prefix", "length": 6}])
    def test_the_chain_rule_is_bayes_over_whole_windows(self, mask: Any) -> None:
        """Each candidate put into the window, the whole window scored from the gap on, and normalised."""
        given, windows, gap = predictor(mask), some_windows(), 7
        joint = torch.full((len(windows), VOCAB), -math.inf, dtype=torch.float64)
        for token in range(1, VOCAB):
            candidate = windows.clone()
            candidate[:, gap] = token
            with torch.inference_mode():
                logs = given.model(candidate[:, :-1]).double().log_softmax(-1)
            each = logs.gather(2, candidate[:, 1:, None])[:, :, 0]
            joint[:, token] = each[:, gap - 1 :].sum(dim=1)
        measured = infilling(given, windows, gap)
        assert measured is not None
        assert torch.allclose(measured.exp(), joint.softmax(dim=1), atol=1e-5)

    def test_a_model_of_both_objectives_fills_at_the_position_before_without_the_causal_mask(self) -> None:
        model, windows = model_with("causal"), some_windows()
        measured = infilling(Predictor(model, None, (0,), shifted_token=0), windows, 7)
        windows[:, 7] = 0
        with torch.inference_mode():
            logits = model(windows, bidirectional=True)[:, 6, 1:].double()
        assert measured is not None
        assert torch.allclose(measured[:, 1:], logits.log_softmax(-1))

    def test_a_model_that_sees_its_target_cannot(self) -> None:
        assert infilling(predictor("bidirectional"), some_windows(), 7) is None


def test_scores_by_hand() -> None:
    measured = scores(torch.tensor([[0.25, 0.75], [0.5, 0.5]]).log(), torch.tensor([1, 1]))
    assert measured["nats"] == pytest.approx((math.log(4 / 3) + math.log(2)) / 2)
    assert measured["accuracy"] == 0.5  # of equals the first is taken


class TestCapabilities:
    @pytest.mark.parametrize(
        ("mask", "masking", "targets", "visible", "fills"),
        [
            ("causal", None, 13, False, True),
            ({"name": "prefix", "length": 5}, None, 9, False, True),  # all but the prefix's first four
            ("bidirectional", MASKING, 2, True, True),  # 15% to the nearest whole number
            ("bidirectional", None, 13, True, False),
            ("causal", replace(MASKING, is_shifted=True), 13, False, True),
        ],
    )
    def test_every_mask_is_measured_and_the_result_is_plain(
        self, mask: Any, masking: Masking | None, targets: int, visible: bool, fills: bool
    ) -> None:
        def measured() -> dict[str, Any]:
            return capabilities(model_with(mask), TOKENIZER, some_split(500), 30, 8, masking=masking)

        result = measured()
        assert json.loads(json.dumps(result, allow_nan=False)) == result == measured()
        assert (result["context"], result["gap"], result["right"], result["targets"]) == (13, 6, 1, targets)
        assert (result["filling"]["both"] is not None) is fills
        assert result["leak"]["late"]["visible"] is visible
        assert (result["leak"]["late"]["moved"] > 1e-6) is visible
        assert (result["filling"]["left"]["num"], result["continuing"]["num"]) == (8, 30)

"""One optimizer step: its batches, its loss, its gradients, its rate; and what stops it."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from tests.training.conftest import Configured, gradients, trainer
from vitral.core.errors import UsageError
from vitral.data.batches import IGNORED
from vitral.model import ModelConfig, Transformer
from vitral.model.transformer import check_device
from vitral.training.loop import ScheduleConfig, learning_rate, loss_of, one_step


class TestGradients:
    """What a step descends."""

    PLAIN: dict[str, Any] = {"dropout": 0.0, "initialisation": "pytorch"}  # noqa: RUF012

    def test_accumulated_gradients_are_the_mean(self, configured: Configured, tmp_path: Path) -> None:
        """Those of two batches of three are those of one batch of the same six windows."""
        two = trainer(configured(model=self.PLAIN), tmp_path)
        loss = torch.stack([loss_of(two, 5, micro)[0] for micro in range(2)]).sum()
        loss.backward()
        result = gradients(two.model)
        two.model.zero_grad()
        batches = (two.batches.batch(5, micro) for micro in range(2))
        inputs, targets = (torch.cat(both) for both in zip(*batches, strict=True))
        mean = functional.cross_entropy(two.model(inputs).flatten(0, 1), targets.flatten())
        mean.backward()
        assert loss.item() == pytest.approx(mean.item(), rel=1e-14)
        torch.testing.assert_close(result, gradients(two.model), rtol=0, atol=1e-14)

    @pytest.mark.parametrize("mask", [None, {"name": "prefix", "length": 3}])
    def test_accumulated_records_are_one_batch(
        self, mask: dict[str, Any] | None, configured: Configured, tmp_path: Path
    ) -> None:
        """Batches with few and with many targets: the mean is over all targets, not over the batches."""
        model = self.PLAIN | {"context_length": 23} | ({} if mask is None else {"attention": {"mask": mask}})
        corpus = {"source": "task:copy", "split": "blocks", "task": {"sequences": 100, "length": 11}}
        two = trainer(configured(corpus=corpus, model=model, training={"batch_size": 2}), tmp_path)
        loss = sum(loss_of(two, 5, micro)[0].item() for micro in range(2))
        rows = [row for micro in range(2) for row in zip(*two.batches.batch(5, micro), strict=True)]
        first = 2 if mask else 0
        each = [
            functional.cross_entropy(two.model(inputs[None])[0, first:], targets[first:], reduction="sum")
            for inputs, targets in rows
        ]
        counts = [int((targets[first:] != IGNORED).sum()) for _, targets in rows]
        assert sum(counts[:2]) != sum(counts[2:])
        assert loss == pytest.approx(sum(one.item() for one in each) / sum(counts), rel=1e-12)

    def test_under_a_prefix_only_what_follows_counts(self, configured: Configured, tmp_path: Path) -> None:
        prefix = {"attention": {"mask": {"name": "prefix", "length": 4}}}
        made = trainer(configured(model=self.PLAIN | prefix, training={"accumulation": 1}), tmp_path)
        inputs, targets = made.batches.batch(0, 0)
        with torch.inference_mode():
            each = made.model(inputs).log_softmax(-1).gather(-1, targets[..., None])[..., 0]
        loss, _, _ = one_step(made)
        assert loss == pytest.approx(-float(each[:, 3:].mean()), rel=1e-12)
        assert loss != pytest.approx(-float(each.mean()), rel=1e-6)

    def test_clipping_shortens_what_is_too_long(self, configured: Configured, tmp_path: Path) -> None:
        free = trainer(configured(model=self.PLAIN, training={"clip_norm": 1e9}), tmp_path)
        _, norm, _ = one_step(free)
        untouched = gradients(free.model)
        total = math.sqrt(sum(float(gradient.square().sum()) for gradient in untouched.values()))
        assert norm == pytest.approx(total, rel=1e-12)
        clipped = trainer(configured(model=self.PLAIN, training={"clip_norm": norm / 3}), tmp_path)
        assert one_step(clipped)[1] == pytest.approx(norm, rel=1e-12)  # the norm before clipping is told
        for name, gradient in gradients(clipped.model).items():
            torch.testing.assert_close(gradient, untouched[name] / 3, rtol=1e-5, atol=1e-12)

    def test_the_first_adamw_step_by_hand(self, configured: Configured, tmp_path: Path) -> None:
        """m/(1-β1) = g and v/(1-β2) = g², so the step is g/(|g| + ε); decay is apart from it, and only of matrices."""
        chosen = {"learning_rate": 0.25, "weight_decay": 0.5, "epsilon": 0.125}
        plain = {"optimizer": chosen, "schedule": {"name": "constant", "warmup_steps": 0}, "clip_norm": 1e9}
        made = trainer(configured(model=self.PLAIN, training=plain), tmp_path)
        before = {name: p.detach().clone() for name, p in made.model.named_parameters()}
        one_step(made)
        for name, gradient in gradients(made.model).items():
            decay = 0.5 if before[name].dim() == 2 else 0.0
            expected = before[name] * (1 - 0.25 * decay) - 0.25 * gradient / (gradient.abs() + 0.125)
            torch.testing.assert_close(made.model.get_parameter(name).detach(), expected, rtol=0, atol=1e-12)


class TestSchedules:
    """The rate of each step."""

    @pytest.mark.parametrize(
        ("schedule", "rates"),
        [
            ({"name": "constant", "warmup_steps": 4}, [2, 4, 6, 8, 8]),
            ({"name": "linear"}, [8, 6.4, 4.8, 3.2, 1.6]),
            ({"name": "linear", "warmup_steps": 1, "final_fraction": 0.5}, [8, 8, 7, 6, 5]),
            (
                {"name": "cosine", "warmup_steps": 1, "final_fraction": 0.5},
                [8, 8, 6 + 2 * math.sqrt(0.5), 6, 6 - 2**0.5],
            ),
            (
                {"name": "trapezoidal", "warmup_steps": 1, "decay_fraction": 0.5, "final_fraction": 0.25},
                [8, 8, 8, 8, 5],
            ),
            ({"name": "linear", "warmup_steps": 9}, [8 / 9, 16 / 9, 24 / 9, 32 / 9, 40 / 9]),
        ],
    )
    def test_by_hand(self, schedule: dict[str, Any], rates: list[float]) -> None:
        result = [learning_rate(ScheduleConfig.parse(schedule), 8.0, step, 5) for step in range(5)]
        assert result == pytest.approx(rates, rel=1e-12)


class TestDevices:
    """A device is believed only after it has computed what the CPU computes."""

    @pytest.fixture
    def model(self) -> Transformer:
        sizes = {"context_length": 5, "d_model": 6, "num_heads": 1, "positions": "rotary", "initialisation": "pytorch"}
        return Transformer(ModelConfig.parse(sizes), 7)

    def elsewhere(self, monkeypatch: pytest.MonkeyPatch, change: Callable[[Tensor], Tensor]) -> list[Transformer]:
        """Let every model that is moved compute `change` of its logits; gives the models that were."""
        moved: list[Transformer] = []
        move, forward = Transformer.to, Transformer.forward

        def to(self: Transformer, *where: Any, **options: Any) -> Transformer:
            moved.append(move(self, *where, **options))
            return moved[-1]

        def wrong(self: Transformer, tokens: Tensor, **how: Any) -> Tensor:
            logits = forward(self, tokens, **how)
            return change(logits) if any(self is model for model in moved) else logits

        monkeypatch.setattr(Transformer, "to", to)
        monkeypatch.setattr(Transformer, "forward", wrong)
        return moved

    @pytest.mark.parametrize(
        "change",
        [
            lambda logits: logits + 0.1,
            lambda logits: logits * math.nan,
            lambda logits: torch.cat((logits[:, :-1], logits[:, :1]), 1),
        ],
    )
    def test_a_wrong_one_is_refused_in_one_line(
        self, change: Callable[[Tensor], Tensor], model: Transformer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.elsewhere(monkeypatch, change)
        with pytest.raises(UsageError, match=r"device cpu: logits differ from the CPU's by \S+; use --device cpu"):
            check_device(model, torch.device("cpu"))

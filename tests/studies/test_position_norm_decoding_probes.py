"""The probes of the studies `positions` and `norm`: what they measure, by hand, and what they say of it."""

import json
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import pytest
import torch

from vitral.core.errors import UsageError
from vitral.data import Dataset, Split, prepare, windows
from vitral.model import ModelConfig, Transformer, next_token_loss
from vitral.runs import LoadedRun, load_run
from vitral.studies import StudyResult
from vitral.studies.probes import gradient_by_layer
from vitral.studies.probes import gradient_by_layer_shown as gradients_shown
from vitral.studies.probes.protocol import Exhibit, Plot, Trained
from vitral.training import RunConfig, train

Made = Callable[..., StudyResult]
Positions = Literal["learned", "sinusoidal", "rotary", "alibi", "relative", "none"]
CONTEXT = 8


def config(**changes: Any) -> ModelConfig:
    """A model made in a moment."""
    return ModelConfig.parse({"context_length": CONTEXT, "d_model": 12, "num_heads": 2, "num_layers": 3} | changes)


def part(num: int, vocab: int = 7, segments: int = 1) -> Split:
    """Random tokens, in stretches of one length."""
    tokens = np.random.default_rng(num).integers(vocab, size=num).astype(np.uint8)
    ends = np.linspace(0, num, segments + 1).astype(np.int64)
    return Split(tokens, np.stack([ends[:-1], ends[1:]], axis=1))


@pytest.fixture(scope="module")
def dataset(tiny: RunConfig) -> Dataset:
    """The tiny run's text."""
    return prepare(tiny.corpus)


@pytest.fixture(scope="module")
def run(tiny: RunConfig, tmp_path_factory: pytest.TempPathFactory) -> LoadedRun:
    """A trained run with a context length of whole quarters."""
    path = tmp_path_factory.mktemp("run") / "run"
    config = tiny.plain()
    config["model"] |= {"context_length": CONTEXT, "num_layers": 2}
    train(RunConfig.parse(config), path)
    return load_run(path, "last")


@pytest.fixture(scope="module")
def trained(run: LoadedRun, dataset: Dataset) -> Trained:
    """The run as a probe is given it."""
    return Trained("full", 1, run, dataset, "quick")


@pytest.fixture(scope="module")
def batch() -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs and targets."""
    return next(windows(part(1 + 5 * CONTEXT), CONTEXT, 5))


def findings(exhibit: Exhibit) -> dict[str, list[tuple[str, bool | None]]]:
    """By arm, what was said and whether it holds."""
    said: dict[str, list[tuple[str, bool | None]]] = {}
    for finding in exhibit.findings:
        said.setdefault(finding.arm, []).append((finding.text, finding.holds))
    return said


def many(result: StudyResult, num: int) -> StudyResult:
    """The result with its first arm so many times over, each under a name of its own."""
    first = result.arms[0]
    arms = [replace(first, arm=first.arm.model_copy(update={"name": f"a{k}", "title": f"arm {k}"})) for k in range(num)]
    return replace(result, arms=tuple(arms))


def test_arms_that_cannot_be_told_apart_in_a_figure_are_left_out_of_it_by_name(made: Made) -> None:
    result = many(made({"full": [2.0] * 3}), 10)
    run = {"positions": 5, "fresh": state([1.0, 1.0]), "trained": state([2.0, 1.0])}
    gradients = {arm.arm.name: {1: run} for arm in result.arms}
    plots = [section for section in gradients_shown.show(result, gradients).sections if isinstance(section, Plot)]
    told = [plot.name for plot in plots if "Drawn are the first 8; left out: arm 8, arm 9." in plot.caption]
    assert any(name.startswith("gradient-of-the-stream") for name in told)


class TestGradients:
    """Gradients block by block."""

    def test_the_stream_is_what_a_small_step_along_the_gradient_says(self, batch: tuple) -> None:
        """(L(x + εg) - L(x - εg)) / 2ε = ‖g‖² for the gradient g with respect to a stream that is moved by hand."""
        model = Transformer(config(initialisation="pytorch"), 7, seed=1).double().eval()
        found = gradient_by_layer.gradients(model, *batch)
        table = model.token_embedding.weight
        embedded = (model.token_embedding(batch[0]) + model.positions.embed(0, CONTEXT)).detach()

        def loss(stream: torch.Tensor) -> torch.Tensor:
            x = stream
            for block in model.blocks:
                x = block(x)
            return next_token_loss(model.final_norm(x) @ model.head_weight.T, batch[1], model.mask)

        stream = embedded.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(loss(stream), stream)
        step = 1e-4 / float(gradient.norm())
        with torch.no_grad():
            slope = (loss(stream + step * gradient) - loss(stream - step * gradient)) / (2 * step)
        assert found["stream"][0] == pytest.approx(math.sqrt(float(slope) * batch[0].numel()), rel=1e-4)
        assert found["scale"][0] == pytest.approx(float(embedded.norm(dim=-1).square().mean().sqrt()))
        assert table.grad is None

    def test_parameters_are_those_of_backpropagation(self, batch: tuple) -> None:
        model = Transformer(config(), 7, seed=2).eval()
        found = gradient_by_layer.gradients(model, *batch)
        next_token_loss(model(batch[0]), batch[1], model.mask).backward()
        for layer, block in enumerate(model.blocks):
            squares = sum(float(p.grad.double().square().sum()) for p in block.parameters() if p.grad is not None)
            assert found["parameters"][layer] == pytest.approx(math.sqrt(squares), rel=1e-5)

    def test_it_does_not_depend_on_how_often_the_batch_is_repeated(self, batch: tuple) -> None:
        model = Transformer(config(), 7, seed=2).eval()
        once = gradient_by_layer.gradients(model, *batch)
        twice = gradient_by_layer.gradients(model, *(torch.cat([ids, ids]) for ids in batch))
        for kind in ("stream", "parameters", "scale"):
            assert twice[kind] == pytest.approx(once[kind], rel=1e-4)

    def test_numbers_that_are_not_finite_are_none(self, batch: tuple) -> None:
        model = Transformer(config(), 7).eval()
        with torch.no_grad():
            model.get_parameter("blocks.1.mlp.up.weight").fill_(math.inf)
        found = gradient_by_layer.gradients(model, *batch)
        assert found["stream"][0] is None
        json.dumps(found, allow_nan=False)

    def test_the_fresh_model_is_the_run_before_its_first_step(self, trained: Trained) -> None:
        measured = gradient_by_layer.measure(trained)
        model = trained.run.model
        fresh = Transformer(model.config, model.vocab_size, seed=trained.seed).eval()
        batches = gradient_by_layer.Batches(
            trained.dataset.splits["train"], context_length=CONTEXT, batch_size=16, seed=0
        )
        assert measured["fresh"] == gradient_by_layer.gradients(fresh, *batches.batch(0))
        assert measured["fresh"] != measured["trained"]
        assert measured["positions"] == 16 * CONTEXT
        assert all(parameter.grad is None for parameter in model.parameters())

    def test_a_model_without_blocks_is_refused(self, trained: Trained) -> None:
        model = Transformer(config(num_layers=0), trained.run.model.vocab_size)
        with pytest.raises(UsageError, match="a model without blocks"):
            gradient_by_layer.measure(replace(trained, run=replace(trained.run, model=model)))


def state(stream: list[float | None], scale: list[float] | None = None) -> dict[str, Any]:
    """Measures of one state."""
    return {"loss": 2.0, "stream": stream, "parameters": stream, "scale": scale or [1.0] * len(stream)}


@pytest.mark.parametrize(
    ("fresh", "trained", "said", "holds"),
    [
        (state([1.0, 1.0]), state([2.0, 1.0]), ["the first step it is kept, 1.00", "training it is kept, 2.00"], True),
        (state([1.0, 1.0]), state([0.05, 1.0]), ["training it vanishes, 0.050"], False),
        (state([20.0, 1.0]), state([1.0, 1.0]), ["the first step it explodes, 20"], False),
        # Twenty times the gradient for a stream of a twentieth: the same effect.
        (state([20.0, 1.0], [0.05, 1.0]), state([1.0, 1.0]), ["first step it is kept, 1.00", "shares 20"], True),
        (state([None, 1.0]), state([1.0, 1.0]), ["the first step it is zero or not finite"], False),
    ],
)
def test_what_is_said_of_gradients_follows_the_numbers(
    made: Made, fresh: dict, trained: dict, said: list[str], holds: bool
) -> None:
    result = made({"full": [2.0] * 3, "no-attention": [None] * 3})
    measured = {"full": {seed: {"positions": 5, "fresh": fresh, "trained": trained} for seed in (1, 2, 3)}}
    exhibit = gradients_shown.show(result, measured)
    found = findings(exhibit)
    text, held = found["full"][0]
    assert all(piece in text for piece in said)
    assert held is holds
    assert found["no-attention"] == [
        ("Without attention finished from no seed, so there are no gradients to show.", None)
    ]


def test_seeds_that_disagree_on_gradients_are_said_to(made: Made) -> None:
    result = made({"full": [2.0] * 2})
    rows = {
        seed: {"positions": 5, "fresh": state([1.0, 1.0]), "trained": state([v, 1.0])}
        for seed, v in ((1, 1.0), (2, 0.01))
    }
    text, holds = findings(gradients_shown.show(result, {"full": rows}))["full"][0]
    assert "after training it differs from seed to seed, 0.10 times as large (seeds 0.010 to 1.00" in text
    assert holds is False

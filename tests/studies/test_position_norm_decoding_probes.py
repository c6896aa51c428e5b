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
from vitral.evaluation import evaluate_split
from vitral.model import ModelConfig, Transformer
from vitral.runs import LoadedRun, load_run
from vitral.studies import StudyResult
from vitral.studies.probes import by_position
from vitral.studies.probes import by_position_shown as positions_shown
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


class TestByPosition:
    """Losses by position, inside and beyond the context length."""

    def test_the_mean_over_positions_is_the_loss_of_a_full_pass(self, run: LoadedRun) -> None:
        text = part(1 + 5 * CONTEXT, run.tokenizer.vocab_size)
        starts = by_position.window_starts(text, CONTEXT, 100)
        nats = by_position.window_nats(run.model, text, starts, CONTEXT)
        assert nats.shape == (5, CONTEXT)
        assert nats.mean() == pytest.approx(evaluate_split(run.model, text, run.tokenizer).loss, rel=1e-6)

    def test_each_number_is_the_loss_of_its_own_target(self, run: LoadedRun) -> None:
        text = part(3 * CONTEXT, run.tokenizer.vocab_size)
        nats = by_position.window_nats(run.model, text, np.array([2, 5]), CONTEXT)
        inputs, targets = next(windows(Split(text.tokens, np.array([[5, 6 + CONTEXT]])), CONTEXT, 1))
        laws = run.model(inputs).detach().log_softmax(-1)
        assert nats[1, 3] == pytest.approx(-float(laws[0, 3, targets[0, 3]]), rel=1e-5)

    def test_windows_stay_in_their_stretch_and_are_spread(self) -> None:
        text = part(60, segments=3)
        starts = by_position.window_starts(text, CONTEXT, 100)
        assert starts.tolist() == [0, 8, 20, 28, 40, 48]
        assert by_position.window_starts(text, CONTEXT, 3).tolist() == [0, 20, 40]
        assert len(by_position.window_starts(part(CONTEXT), CONTEXT, 3)) == 0

    def test_places_score_the_same_targets(self) -> None:
        """Each number is the target's own index, so equal means show equal targets."""
        width, places, num = 3, 4, 9
        targets = width * np.arange(num)[:, None] + np.arange(width * places)
        means = by_position.same_targets(targets.astype(np.float64), width, places)
        assert means.tolist() == [means[0]] * places
        shorter = by_position.same_targets(targets[:, : 2 * width].astype(np.float64), width, places)
        assert shorter.tolist() == [means[0]] * 2

    @pytest.mark.parametrize("kind", ["sinusoidal", "rotary", "alibi", "relative", "none"])
    def test_a_longer_window_changes_nothing_inside(self, kind: Positions) -> None:
        torch.manual_seed(0)
        model = Transformer(config(positions=kind), 7, seed=3).eval()
        text = part(500)
        beyond = by_position._beyond(model, text, 2, 10_000)
        starts = by_position.window_starts(text, 2 * CONTEXT, 1)
        short, long = (by_position.window_nats(model, text, starts, size) for size in (CONTEXT, 2 * CONTEXT))
        assert np.allclose(short[0], long[0, :CONTEXT], atol=1e-5)
        assert len(beyond["nats"]) == 8
        assert all(math.isfinite(value) for value in beyond["nats"])

    def test_learned_positions_end_at_the_border_and_it_says_so(self, trained: Trained) -> None:
        measured = by_position.measure(trained)
        assert len(measured["inside"]["nats"]) == CONTEXT
        beyond = measured["beyond"]
        assert [value is None for value in beyond["nats"]] == [False] * 4 + [True] * 4
        assert "learned positions end at context_length = 8" in beyond["why"]
        assert json.loads(json.dumps(measured, allow_nan=False)) == measured

    def test_a_text_too_short_for_longer_windows_says_so(self) -> None:
        model = Transformer(config(positions="none"), 7).eval()
        beyond = by_position._beyond(model, part(30), 2, 1000)
        assert beyond["nats"] is None
        assert beyond["why"] == "it takes 31 test tokens in a row, and there are 30"

    def test_a_text_without_a_whole_window_says_so(self, trained: Trained) -> None:
        short = replace(trained.dataset, splits=dict(trained.dataset.splits) | {"test": part(CONTEXT)})
        with pytest.raises(UsageError, match="the test part has no 9 tokens in a row"):
            by_position.measure(replace(trained, dataset=short))

    def test_quarters_whose_targets_a_prefix_has_shown_are_not_scored(self) -> None:
        """A prefix of 4 leaves the target at position 3, in the second of four quarters of 2, as the first to score."""
        model = Transformer(config(positions="none", attention={"mask": {"name": "prefix", "length": 4}}), 7).eval()
        beyond = by_position._beyond(model, part(500), 2, 10_000)
        assert [value is None for value in beyond["nats"]] == [True] * 2 + [False] * 6

    @pytest.mark.parametrize("probe", [by_position])
    def test_a_run_that_does_not_tell_next_tokens_is_refused(self, trained: Trained, probe: Any) -> None:
        config = dict(trained.run.config)
        config["training"] = config["training"] | {"allow_leak": True}
        with pytest.raises(UsageError, match="full is not trained to tell the next token"):
            probe.measure(replace(trained, run=replace(trained.run, config=config)))

    def test_groups_are_two_to_a_doubling_and_miss_nothing(self) -> None:
        for length in (1, 2, 5, 11, 64, 100):
            groups = positions_shown.half_doublings(length)
            assert [place for begin, end in groups for place in range(begin, end)] == list(range(length))


def by_position_data(inside: float, beyond: float, why: str = "") -> dict[str, Any]:
    """Measures of one run: `inside` everywhere within the context, `beyond` in the second length."""
    quarters = [inside] * 4 + [None if why else beyond] * 4
    return {
        "context_length": CONTEXT,
        "inside": {"windows": 5, "nats": [inside + 1.0, *[inside] * (CONTEXT - 1)]},
        "beyond": {"length": 2 * CONTEXT, "nats": quarters, "targets": 50} | ({"why": why} if why else {}),
    }


@pytest.mark.parametrize(
    ("beyond", "said", "holds"),
    [
        ((2.51, 2.52, 2.53), "loses beyond its trained length: +0.520", False),
        ((2.01, 2.00, 1.99), "keeps its loss beyond its trained length", True),
        ((1.5, 1.51, 1.52), "gains beyond its trained length: \N{MINUS SIGN}0.490", True),
        ((2.0, 2.1, 2.2), "not told whether it keeps its loss within 0.05 nats", None),
        ((2.5, 2.5), "from 2 seeds: too few", None),
    ],
)
def test_what_is_said_beyond_the_trained_length_follows_the_numbers(
    made: Made, beyond: tuple[float, ...], said: str, holds: bool | None
) -> None:
    result = made({"full": [2.0] * 3, "no-attention": [2.0] * 3})
    measured = {
        "full": {seed: by_position_data(2.0, 0.0, why="learned positions end at 8") for seed in (1, 2, 3)},
        "no-attention": {seed: by_position_data(2.0, value) for seed, value in enumerate(beyond, start=1)},
    }
    found = findings(positions_shown.show(result, measured))
    assert found["full"] == [("The full model: nothing beyond 8 tokens, since learned positions end at 8.", None)]
    text, held = found["no-attention"][-1]
    assert said in text
    assert held is holds


def test_what_is_said_beyond_the_trained_length_is_corrected_for_how_many_arms_there_are(made: Made) -> None:
    """Losses of 0.2, 0.4 and 0.6 nats are p = 0.081 against the limit; 0.3, 0.4 and 0.5 are 0.027, twice that 0.053."""
    result = made({"full": [2.0] * 3, "no-attention": [2.0] * 3})
    rows = {seed: by_position_data(2.0, beyond) for seed, beyond in ((1, 2.3), (2, 2.4), (3, 2.5))}
    (alone,) = findings(positions_shown.show(result, {"full": rows}))["full"]
    assert "loses beyond" in alone[0]
    assert alone[1] is False
    both = findings(positions_shown.show(result, {"full": rows, "no-attention": rows}))
    assert "not told" in both["full"][0][0]
    assert both["full"][0][1] is None


def with_prefix(run: dict[str, Any], first: int) -> dict[str, Any]:
    """Measures of one run whose first positions are not scored, neither inside nor beyond."""
    copy = json.loads(json.dumps(run))
    copy["inside"]["nats"][:first] = [None] * first
    copy["beyond"]["nats"][: -(-first // 2)] = [None] * -(-first // 2)
    return copy


def test_windows_are_compared_where_both_are_scored(made: Made) -> None:
    """Of eight positions five are scored: the last quarter of them is the last two."""
    result = made({"full": [2.0] * 3, "no-attention": [2.0] * 3, "no-feed-forward": [2.0] * 3})
    base = {seed: by_position_data(2.0, 2.0 + seed / 100) for seed in (1, 2, 3)}
    other: dict[int, dict[str, Any]] = {seed: json.loads(json.dumps(run)) for seed, run in base.items()}
    for seed, run in other.items():
        run["inside"]["nats"] = [value + 0.1 * place + seed / 1e3 for place, value in enumerate(run["inside"]["nats"])]
    measured = {
        "full": base,
        "no-attention": {seed: with_prefix(run, 3) for seed, run in other.items()},
        "no-feed-forward": {seed: with_prefix(run, 7) for seed, run in other.items()},
    }
    exhibit = positions_shown.show(result, measured)
    found = findings(exhibit)
    assert "+0.302 nats in the first quarter of the positions that are scored and +0.652" in found["no-attention"][0][0]
    assert "too few positions are scored to compare it with the full model" in found["no-feed-forward"][0][0]
    assert "keeps its loss" in found["no-attention"][1][0]
    assert "nothing beyond 8 tokens, since not all quarters have a loss" in found["no-feed-forward"][1][0]


def test_arms_without_any_scored_position_are_named_and_not_drawn(made: Made) -> None:
    result = made({"full": [2.0] * 3, "no-attention": [2.0] * 3})
    runs = {seed: with_prefix(by_position_data(2.0, 2.0), CONTEXT) for seed in (1, 2, 3)}
    for run in runs.values():
        run["beyond"]["nats"] = [None] * 8
    exhibit = positions_shown.show(result, {"full": runs, "no-attention": runs})
    assert not [section for section in exhibit.sections if isinstance(section, Plot)]
    assert all(held is None for said in findings(exhibit).values() for _, held in said)
    assert positions_shown.show(result, {}) == Exhibit()


def many(result: StudyResult, num: int) -> StudyResult:
    """The result with its first arm so many times over, each under a name of its own."""
    first = result.arms[0]
    arms = [replace(first, arm=first.arm.model_copy(update={"name": f"a{k}", "title": f"arm {k}"})) for k in range(num)]
    return replace(result, arms=tuple(arms))


def test_arms_that_cannot_be_told_apart_in_a_figure_are_left_out_of_it_by_name(made: Made) -> None:
    result = many(made({"full": [2.0] * 3}), 10)
    positions = {arm.arm.name: {1: by_position_data(2.0, 2.1)} for arm in result.arms}
    plots = [
        section
        for exhibit in (positions_shown.show(result, positions),)
        for section in exhibit.sections
        if isinstance(section, Plot)
    ]
    told = [plot.name for plot in plots if "Drawn are the first 8; left out: arm 8, arm 9." in plot.caption]
    assert set(told) >= {"loss-by-position", "loss-beyond-the-trained-length"}


def test_a_gap_that_changes_along_the_window_is_told_from_one_that_does_not(made: Made) -> None:
    result = made({"full": [2.0] * 3, "no-attention": [2.0] * 3, "no-feed-forward": [2.0] * 3})
    measured: dict[str, dict[int, dict[str, Any]]] = {"full": {}, "no-attention": {}, "no-feed-forward": {}}
    for seed in (1, 2, 3):
        rows = {name: by_position_data(2.0 + 0.01 * seed, 2.0) for name in measured}
        for place in range(CONTEXT):
            rows["no-attention"]["inside"]["nats"][place] += 0.1 * place + 0.001 * seed * place
            rows["no-feed-forward"]["inside"]["nats"][place] += 0.3 + 0.01 * (place % 2) * (seed - 2)
        for name, row in rows.items():
            measured[name][seed] = row
    exhibit = positions_shown.show(result, measured)
    found = findings(exhibit)
    assert "a change along the window" in found["no-attention"][0][0]
    assert found["no-attention"][0][1] is True
    assert "no change along the window seen" in found["no-feed-forward"][0][0]
    assert found["no-feed-forward"][0][1] is False
    assert [section.name for section in exhibit.sections if isinstance(section, Plot)] == [
        "loss-by-position",
        "loss-beyond-the-trained-length",
    ]

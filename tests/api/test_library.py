"""The library from Python, as the README shows it."""

from pathlib import Path

import pytest
import torch

import vitral
from vitral.core.errors import UsageError
from vitral.core.names import activation_names
from vitral.model import count_parameters

MODEL = {"d_model": 12, "num_layers": 2, "num_heads": 3, "context_length": 13}
TRAINING = {"steps": 4, "evaluate_every": 2, "batch_size": 5}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> vitral.Run:
    folder = tmp_path_factory.mktemp("library")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VITRAL_CACHE", str(folder / "cache"))
        return vitral.train("sample", folder / "run", model=MODEL, training=TRAINING)


def test_train_gives_a_run_that_load_gives_again(run: vitral.Run) -> None:
    again = vitral.load(run.path, "best")
    assert again.step == run.step
    assert again.generate("WREN", max_tokens=29, seed=3) == run.generate("WREN", max_tokens=29, seed=3)
    assert run.generate("WREN", max_tokens=0) == "WREN"


def test_streamed_is_generated(run: vitral.Run) -> None:
    assert "WREN" + "".join(run.stream("WREN", max_tokens=31, seed=5)) == run.generate("WREN", max_tokens=31, seed=5)


def test_trace_has_every_name_and_only_what_is_asked_for(run: vitral.Run) -> None:
    trace = run.trace("The light")
    assert list(trace) == activation_names(2)
    weights = trace["blocks.1.attn.weights"]
    assert weights.shape == (1, 3, 9, 9)
    torch.testing.assert_close(weights.sum(-1), torch.ones(1, 3, 9))
    assert list(run.trace("The light", ["logits"])) == ["logits"]
    torch.testing.assert_close(run.trace("The light", ["logits"])["logits"], trace["logits"], rtol=1e-4, atol=1e-5)


def test_evaluate_repeats_what_training_measured(run: vitral.Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VITRAL_CACHE", str(run.path.parent / "cache"))
    measured = {event["step"]: event for event in run.metrics("evaluation")}[run.step]
    assert run.evaluate("test")["test"].loss == pytest.approx(measured["test_loss"], rel=1e-6)
    with pytest.raises(UsageError, match="not one of train, validation, test"):
        run.evaluate("exam")


def test_a_run_shows_itself(run: vitral.Run) -> None:
    assert "parameters" in repr(run)
    assert "<table>" in run._repr_html_()
    assert sum(row.count for row in run.parameters()) == sum(p.numel() for p in run.model.parameters())


@pytest.mark.parametrize(
    ("mistake", "line"),
    [
        (lambda run: run.trace("The light", ["blocks.0.attn.weight"]), r"did you mean 'blocks.\d.attn.weights'"),
        (lambda run: run.trace(""), "0 tokens"),
        (lambda run: run.trace("a" * 14), "14 tokens"),
        (lambda run: run.generate("é"), r"U\+00E9"),
        (lambda run: run.generate("a", temperature=float("nan")), "temperature"),
        (lambda run: run.generate("a", top_n=3), "did you mean 'top_k'|did you mean 'top_p'"),
        (lambda run: vitral.train("sample", run.path), "exists already"),
        (lambda run: vitral.train("sample", run.path / "x", model={"heads": 2}), "num_heads"),
        (lambda run: vitral.load(run.path.parent), "not a run"),
        (lambda run: vitral.load(run.path, device="tpu"), "not one of auto"),
    ],
)
def test_mistakes_are_one_line(run: vitral.Run, mistake, line: str) -> None:
    with pytest.raises(UsageError, match=line) as refused:
        mistake(run)
    assert "\n" not in str(refused.value)


def test_presets_are_whole_configurations(tmp_path: Path) -> None:
    for name, preset in vitral.presets().items():
        config = vitral.configure(name)
        assert type(config).parse(config.plain()) == config
        assert preset.description
    assert vitral.configure("shakespeare").training.optimizer.learning_rate == 3e-3
    (tmp_path / "mine.toml").write_text("[model]\nd_model = 64\n", encoding="utf-8")
    mine = vitral.configure(str(tmp_path / "mine.toml"), overrides=[{"model": {"num_heads": 8}}])
    assert (mine.model.d_model, mine.model.num_heads) == (64, 8)


@pytest.mark.parametrize(
    ("start", "minutes", "d_model", "time"),
    [
        ("fast", None, 96, None),
        ("fast", 0.2, 96, 0.2),
        ("fast", 0.5, 128, 0.5),
        ("sample", None, 128, 2.0),
        ("sample", 60.0, 256, 60.0),
        ("shakespeare", 60.0, 128, 60.0),
    ],
)
def test_the_default_grows_with_the_time_allowed(
    start: str, minutes: float | None, d_model: int, time: float | None
) -> None:
    config = vitral.configure(start, minutes=minutes)
    assert (config.model.d_model, config.training.minutes) == (d_model, time)
    assert config.model.d_head % 2 == 0
    assert vitral.configure("sample", overrides=[{"training": {"steps": 3}}]).training.minutes is None


def test_minutes_may_be_an_override_but_not_beside_steps() -> None:
    assert vitral.configure("sample", overrides=[{"training": {"minutes": 20.0}}]).model.d_model == 256
    with pytest.raises(UsageError, match="steps is given too"):
        vitral.configure("sample", minutes=1.0, overrides=[{"training": {"steps": 50}}])


def test_the_fast_preset_of_shakespeare_is_the_same_model() -> None:
    theirs, ours = vitral.configure("shakespeare").model, vitral.configure("shakespeare-fast").model
    differ = {"dropout": theirs.dropout, "initialisation": theirs.initialisation}
    assert ours.model_copy(update=differ) == theirs
    assert count_parameters(ours, 109) == 431_104
    assert count_parameters(vitral.configure("fast").model, 109) <= 431_104

"""An arm that begins from a run outside the study, such as an imported model: its model, tokens and weights."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from vitral.core.errors import UsageError
from vitral.data import Tokenizer, byte_tokenizer
from vitral.data.tokenizers import file_tokenizer
from vitral.doctor.folders import examine_study
from vitral.interop.importing import write_run
from vitral.interop.token_files import Imported
from vitral.model import ModelConfig, Transformer
from vitral.runs import enter, load_run
from vitral.studies import Study, run_study
from vitral.studies.results import run_name
from vitral.training import RunConfig

MODEL = ModelConfig(context_length=16, d_model=16, num_layers=1, feed_forward="gelu_tanh", tie_head=True)


def imported(folder: Path, tokenizer: Tokenizer) -> Path:
    origin = {"form": "gpt2", "source": "a test", "files": {"of": str(tokenizer.vocab_size)}, "config": {}}
    weights = Transformer(MODEL, tokenizer.vocab_size, seed=8).state_dict()
    return write_run(Imported(MODEL, weights, tokenizer, origin), folder).path


def bytes_of_a_file() -> Tokenizer:
    """A tokenizer.json of another library: bytes, and rows that have no token."""
    return file_tokenizer(byte_tokenizer().document, 260, 10)


def study(run: Path, **keys: Any) -> Study:
    arms = [{"name": "ours", "title": "ours"}, {"name": "theirs", "title": "theirs", "run": str(run)}]
    return Study.parse({"name": "s", "title": "t", "question": "q", "unit": "bits per character", "arms": arms} | keys)


def whole(folder: Path) -> bool:
    return not [one for one in examine_study(folder).findings if one.mark == "wrong"]


@pytest.fixture(scope="module")
def outside(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return imported(tmp_path_factory.mktemp("outside") / "run", bytes_of_a_file())


@pytest.fixture(scope="module")
def result(tiny: RunConfig, outside: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    return run_study(study(outside), tiny, tmp_path_factory.mktemp("studied"), seeds=[1, 2])


def test_its_runs_have_its_model_its_tokens_and_its_weights(result: Any, outside: Path) -> None:
    before = enter(outside, print)
    for seed in (1, 2):
        run = load_run(result.folder / run_name("theirs", seed), "last")
        assert run.model.config.plain() == before.config.model.plain()
        assert run.tokenizer == before.tokenizer
        parent = run.sealed.identity.parent
        assert parent is not None
        assert (parent.run, parent.step) == (before.identity.run, 0)
    assert load_run(result.folder / run_name("ours", 1)).sealed.identity.parent is None
    assert load_run(result.folder / run_name("ours", 1)).tokenizer.name == "char"
    losses = {arm.arm.name: arm.losses for arm in result.arms}
    assert all(len(losses[name]) == 2 for name in ("ours", "theirs"))


def test_the_same_call_finds_the_runs_and_another_run_in_its_place_is_refused(
    result: Any, tiny: RunConfig, outside: Path, tmp_path: Path
) -> None:
    events: list[Any] = []
    run_study(study(outside), tiny, result.folder, seeds=[1, 2], callback=events.append)
    assert {event["state"] for event in events if event["event"] == "run"} == {"found"}
    assert whole(result.folder)
    shutil.copytree(result.folder, tmp_path / "copy")
    moved = tmp_path / "run"
    shutil.move(outside, moved)
    try:
        assert whole(result.folder)  # the study is whole without it
        with pytest.raises(UsageError):
            run_study(study(outside), tiny, result.folder, seeds=[1, 2])
        imported(outside, file_tokenizer(byte_tokenizer().document, 261, 10))
        with pytest.raises(UsageError):
            run_study(study(outside), tiny, tmp_path / "copy", seeds=[1, 2])
    finally:
        shutil.rmtree(outside, ignore_errors=True)
        shutil.move(moved, outside)


def test_what_cannot_be_compared_or_begun_is_refused(tiny: RunConfig, outside: Path, tmp_path: Path) -> None:
    ours, theirs = {"name": "ours", "title": "o"}, {"name": "theirs", "title": "t", "run": str(outside)}
    bad: list[tuple[list[dict[str, Any]], str]] = [
        ([ours, theirs | {"init_from": "ours"}], "init_from or run"),
        ([ours, theirs, theirs | {"name": "again"}], "same configuration"),
        ([ours, theirs | {"changes": {"model": {"d_model": 32}}}], "another model"),
        ([ours, theirs | {"run": str(tmp_path / "nowhere")}], "nowhere"),
    ]
    for arms, shown in bad:
        with pytest.raises(UsageError, match=shown):
            run_study(study(outside, arms=arms), tiny, tmp_path / "study", seeds=[1])
    with pytest.raises(UsageError, match="unit"):
        run_study(study(outside, unit="nats per token"), tiny, tmp_path / "study", seeds=[1])
    other = imported(tmp_path / "other", file_tokenizer(byte_tokenizer().document, 270, 10))
    with pytest.raises(UsageError, match="two studies"):
        run_study(study(outside, arms=[ours, theirs, theirs | {"name": "b", "run": str(other)}]), tiny, tmp_path / "s")
    assert not (tmp_path / "study" / "arms").exists()

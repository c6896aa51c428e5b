"""Fine-tuning on a text with characters that the other run has never seen."""

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.conftest import Once
from tests.training.conftest import Configured, at, bytes_of, fail
from vitral.core.config import merge
from vitral.doctor.folders import examine_run
from vitral.model import Transformer
from vitral.runs import RunFolder, load_run
from vitral.runs.checkpoint import load_checkpoint
from vitral.training import RunConfig, resume, train

END = "<|end|>"
NEW = "O gato viu um pássaro — à noite, o cão não.\n"


@pytest.fixture
def new(tmp_path: Path) -> Path:
    path = tmp_path / "new.txt"
    path.write_text(NEW * 30, encoding="utf-8", newline="\n")
    return path


@pytest.fixture(scope="session")
def parent(request: pytest.FixtureRequest, configured: Configured, once: Once) -> RunFolder:
    """Three steps, with the head of the embedding unless the test says otherwise."""
    tied = getattr(request, "param", True)
    config = configured(model={"tie_head": tied}, training={"steps": 3, "evaluate_every": 3})
    return RunFolder.open(once(f"training-tied-{tied}", lambda path: train(config, path)))


def tuned(configured: Any, parent: RunFolder, new: Path, **changes: Any) -> RunConfig:
    """The configuration of a fine-tuning on the new text."""
    tied = parent.written["model"]["tie_head"]
    base = {"seed": 5, "corpus": {"source": str(new)}, "model": {"tie_head": tied}, "training": {"steps": 4}}
    return configured(**merge(base, changes))


def first_model(folder: RunFolder) -> tuple[Transformer, dict[str, torch.Tensor]]:
    """The model of step 0."""
    run = load_run(folder.path)
    weights = dict(load_checkpoint(folder.steps / "step-00000000").model)
    run.model.load_state_dict(weights)
    return run.model.eval(), weights


@pytest.mark.parametrize("parent", [False, True], indirect=True)
def test_old_rows_stay_and_new_ones_are_drawn(configured, parent: RunFolder, new: Path, tmp_path: Path) -> None:
    notes: list[str] = []
    keep_note = lambda event: notes.append(event["text"]) if event["event"] == "note" else None  # noqa: E731
    config = tuned(configured, parent, new).watched()
    folder = train(config, tmp_path / "run", init_from=parent.path, callback=keep_note)
    former, grown = load_run(parent.path), load_run(folder.path)
    assert former.tokenizer.name == "char"
    assert grown.tokenizer.name == "char"
    added = sorted(set(NEW) - set(former.tokenizer.alphabet))
    assert grown.tokenizer.alphabet == former.tokenizer.alphabet + "".join(added)
    assert any(f"new tokens: {len(added)}" in note for note in notes)
    model, weights = first_model(folder)
    old, size = former.model.state_dict(), former.tokenizer.vocab_size
    drawn = Transformer(grown.sealed.config.model, grown.tokenizer.vocab_size, seed=5).state_dict()
    for name, tensor in weights.items():
        rows = len(old[name]) if name in ("token_embedding.weight", "head.weight") else None
        assert torch.equal(tensor[:rows], old[name]), name
        if rows is not None:
            assert rows == size
            assert torch.equal(tensor[size:], drawn[name][size:])
    tokens = torch.from_numpy(former.tokenizer.encode("the cat saw"))[None]
    with torch.no_grad():
        torch.testing.assert_close(model(tokens)[..., :size], former.model(tokens))
    origin = load_run(parent.path).checkpoint
    assert grown.sealed.identity.parent is not None
    assert grown.sealed.identity.parent.manifest == origin.manifest


def test_a_grown_run_is_resumed_and_healthy(configured, parent: RunFolder, new: Path, tmp_path: Path) -> None:
    config = tuned(configured, parent, new, training={"checkpoint_every": 1})
    whole = train(config, tmp_path / "whole", init_from=parent.path)

    with pytest.raises(KeyError):
        train(config, tmp_path / "stopped", init_from=parent.path, callback=at(fail, "step", 2))
    stopped = resume(tmp_path / "stopped")
    assert bytes_of(stopped, 4) == bytes_of(whole, 4)
    assert {finding.mark for finding in examine_run(stopped.path).findings} <= {"ok", "unknown"}

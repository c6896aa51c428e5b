"""From a folder to a model: the weights that were saved, or one line that says why not."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from vitral.core.errors import UsageError
from vitral.data import CorpusConfig
from vitral.data.tokenizers import build_tokenizer
from vitral.doctor.folders import repair_run
from vitral.model import ModelConfig, Transformer
from vitral.runs import Checkpoint, RunConfig, RunFolder, load_run
from vitral.runs.identity import document_hash, new_identity

SIZES: dict[str, Any] = {"context_length": 5, "d_model": 6, "num_heads": 3, "num_layers": 1, "positions": "rotary"}
TOKENIZER = build_tokenizer(CorpusConfig(), "abcde\n", [])
DOCUMENTS: dict[str, dict[str, Any]] = {"tokenizer": TOKENIZER.plain(), "corpus": {}, "environment": {}}


def saved(path: Path, *models: Transformer, change: dict[str, Tensor | None] | None = None) -> Path:
    """A run with one checkpoint per model, the first the best; `change` puts other tensors in, None takes one out."""
    config = RunConfig.parse({"model": models[0].config.plain()})
    sealed = {name: DOCUMENTS[name] for name in ("tokenizer", "corpus")}
    identity = new_identity(config, sealed).plain()
    folder = RunFolder.create(path, config.plain(), {**DOCUMENTS, "run": identity})
    for number, model in enumerate(models, start=1):
        weights = {**model.state_dict(), **(change or {})}
        kept = {name: tensor for name, tensor in weights.items() if tensor is not None}
        history = {"environment": document_hash({})}
        folder.save(Checkpoint(number, kept, {}, {**identity, "best_step": 1}, history), keep=2)
    return path


def made(seed: int = 1, **chosen: Any) -> Transformer:
    return Transformer(ModelConfig.parse(SIZES | chosen), TOKENIZER.vocab_size, seed=seed)


def logits(model: Transformer) -> Tensor:
    with torch.inference_mode():
        return model.eval()(torch.tensor([[1, 2, 3, 4, 5]]))


def test_the_model_is_the_one_that_was_saved(tmp_path: Path) -> None:
    best, last = made(seed=1), made(seed=2)
    path = saved(tmp_path / "run", best, last)
    for which, expected, step in (("best", best, 1), ("last", last, 2)):
        run = load_run(path, which)
        assert run.step == step
        assert not run.model.training
        torch.testing.assert_close(logits(run.model), logits(expected))
        assert run.model.config == expected.config
        assert run.tokenizer.plain() == TOKENIZER.plain()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_weights_keep_their_precision_and_so_do_positions(dtype: torch.dtype, tmp_path: Path) -> None:
    """As in training, where the whole model is brought to the run's precision."""
    model = made().to(dtype)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1 / 3)
    run = load_run(saved(tmp_path / "run", model))
    assert {parameter.dtype for parameter in run.model.parameters()} == {dtype}
    assert torch.equal(logits(run.model), logits(model))


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"head.weight": None}, "head.weight is missing from the weights"),
        ({"extra.weight": torch.zeros(2)}, "extra.weight does not belong to this model"),
        ({"head.weight": torch.zeros(5, 6)}, "head.weight has shape (5, 6), this model needs (7, 6)"),
        (
            {"final_norm.bias": torch.tensor([0.0] * 5 + [float("nan")])},
            "final_norm.bias contains numbers that are not finite",
        ),
    ],
)
def test_weights_that_do_not_fit_are_refused_in_one_line(
    change: dict[str, Tensor | None], complaint: str, tmp_path: Path
) -> None:
    path = saved(tmp_path / "run", made(), change=change)
    with pytest.raises(UsageError) as refused:
        load_run(path)
    assert str(refused.value).startswith(str(path))
    assert str(refused.value).endswith(f": {complaint}")


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("d_model = 6", "d_modl = 6", "config.toml: model: unknown key 'd_modl', did you mean 'd_model'"),
        ("d_model = 6", "d_model = 12", "config.toml: changed since the run began (model.d_model: 6 → 12)"),
        ("seed = 1", "seed = [", "config.toml: "),
    ],
)
def test_a_changed_configuration_is_refused_with_its_remedy(old: str, new: str, complaint: str, tmp_path: Path) -> None:
    path = saved(tmp_path / "run", made())
    toml = (path / "config.toml").read_text(encoding="utf-8")
    assert toml.count(old) == 1
    (path / "config.toml").write_text(toml.replace(old, new), encoding="utf-8")
    with pytest.raises(UsageError) as refused:
        load_run(path)
    assert str(refused.value).startswith(f"{path}/{complaint}")
    assert str(refused.value).endswith(f"; vitral doctor --repair {path} restores it")
    repair_run(path)
    load_run(path, warn=pytest.fail)


def test_what_may_change_is_not_named(tmp_path: Path) -> None:
    path = saved(tmp_path / "run", made())
    toml = (path / "config.toml").read_text(encoding="utf-8")
    changed = toml.replace("log_every = 10", "log_every = 3").replace('source = "', 'source = "elsewhere/')
    assert changed != toml
    (path / "config.toml").write_text(changed, encoding="utf-8")
    assert load_run(path, warn=pytest.fail).config["training"]["log_every"] == 3


def test_checkpoints_of_another_run_are_refused(tmp_path: Path) -> None:
    """Folders put together by hand: each file is intact, the run is not."""
    one, other = saved(tmp_path / "one", made()), saved(tmp_path / "other", made(num_layers=2))
    before = (one / "run.json").read_bytes()
    (one / "run.json").write_bytes((other / "run.json").read_bytes())
    with pytest.raises(UsageError, match="of another run"):
        load_run(one)
    (one / "run.json").write_bytes(before)
    alike = saved(tmp_path / "alike", made(), made(dropout=0.5))
    shutil.rmtree(alike / "steps" / "step-00000001")
    stranger = saved(tmp_path / "stranger", made(dropout=0.5))
    (stranger / "steps" / "step-00000001").rename(alike / "steps" / "step-00000001")
    with pytest.raises(UsageError, match="of another run"):
        load_run(alike, "best")

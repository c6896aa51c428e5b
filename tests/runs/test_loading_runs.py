"""From a folder to a model: the weights that were saved, or one line that says why not."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from vitral.core.errors import UsageError
from vitral.data import CorpusConfig
from vitral.data.tokenizers import build_tokenizer
from vitral.model import ModelConfig, Transformer
from vitral.runs import Checkpoint, RunFolder, load_run
from vitral.runs.environment import describe_environment

SIZES: dict[str, Any] = {"context_length": 5, "d_model": 6, "num_heads": 3, "num_layers": 1, "positions": "rotary"}
TOKENIZER = build_tokenizer(CorpusConfig(), "abcde\n", [])


def saved(path: Path, *models: Transformer, change: dict[str, Tensor | None] | None = None) -> Path:
    """A run with one checkpoint per model, the first the best; `change` puts other tensors in, None takes one out."""
    folder = RunFolder.create(path, {"model": models[0].config.plain()}, {"tokenizer": TOKENIZER.plain()})
    for number, model in enumerate(models, start=1):
        weights = {**model.state_dict(), **(change or {})}
        kept = {name: tensor for name, tensor in weights.items() if tensor is not None}
        folder.save(Checkpoint(number, kept, {}, {}), best=number == 1, keep=2)
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


def test_a_damaged_best_is_said_on_stderr(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = saved(tmp_path / "run", made(1), made(2))
    (path / "steps" / "step-00000001" / "state.json").write_bytes(b"{}")
    assert load_run(path).step == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("vitral: ")
    assert "state.json does not match" in said.err
    assert said.err.count("\n") == 1


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
    assert "\n" not in str(refused.value)


def test_a_config_that_is_wrong_is_named(tmp_path: Path) -> None:
    path = saved(tmp_path / "run", made())
    toml = (path / "config.toml").read_text(encoding="utf-8")
    (path / "config.toml").write_text(toml.replace("d_model", "d_modl"), encoding="utf-8")
    with pytest.raises(UsageError, match=r"config\.toml: unknown key 'd_modl', did you mean 'd_model'"):
        load_run(path)


def test_the_environment_names_what_the_numbers_depend_on() -> None:
    found = describe_environment()
    assert found["packages"]["torch"].split("+")[0] == torch.__version__.split("+")[0]
    assert found["threads"] == torch.get_num_threads()
    assert {"python", "system", "machine", "vitral"} <= found.keys()

"""Own parts in runs: sealed with their source, resumed to the same bits, refused where they are missing or changed."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import vitral
from tests.training.conftest import Configured, at, bytes_of, fail
from vitral.core import parts
from vitral.core.errors import UsageError
from vitral.core.parts import import_parts, own_parts, register
from vitral.doctor.folders import examine_run
from vitral.runs import RunConfig, RunFolder, enter
from vitral.training import continue_run, resume, train

FILE = '''
import torch
from torch import nn
import vitral

@vitral.register("norm", "mean-abs")
class MeanAbs(nn.Module):
    def __init__(self, d_model, epsilon=1e-5):
        super().__init__()
        self.gain = nn.Parameter(torch.rand(d_model))
        self.epsilon = epsilon

    def forward(self, x):
        return self.gain * x / (x.abs().mean(-1, keepdim=True) + self.epsilon)

@vitral.register("optimizer", "counting")
class Counting(torch.optim.Optimizer):
    """Signs of a mean of gradients; remembers an integer, a float, a truth and two tensors."""
    def __init__(self, parameters, learning_rate, decay=0.5):
        super().__init__(parameters, {"lr": learning_rate, "decay": decay})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for parameter in group["params"]:
                state = self.state[parameter]
                if not state:
                    state.update(count=0, power=1.0, even=True, none=None, mean=torch.zeros_like(parameter))
                    state["whole"] = torch.zeros(2, dtype=torch.int64)
                state["count"] += 1
                state["power"] *= group["decay"]
                state["even"] = state["count"] % 2 == 0
                state["whole"] += 3
                state["mean"].lerp_(parameter.grad, group["decay"])
                mean = state["mean"] / (1 - state["power"]) * (1 + int(state["whole"][0]) / (9 + state["count"]))
                parameter.sub_(mean.sign() * (0.5 if state["even"] else 1.0), alpha=group["lr"])
'''
OWN: dict[str, Any] = {
    "model": {"norm_type": {"name": "mean-abs", "epsilon": 0.25}},
    "training": {"optimizer": {"name": "counting", "learning_rate": 0.01}},
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A registered file of parts."""
    path = tmp_path / "mine.py"
    path.write_text(FILE)
    import_parts(path)
    return path


def forget(monkeypatch: pytest.MonkeyPatch, file: Path | None = None, text: str | None = None) -> None:
    """As a new process, in which the file has this text."""
    monkeypatch.setattr(parts, "_parts", {})
    if file is not None:
        if text is not None:
            file.write_text(text)
        import_parts(file)


def stopped(config: RunConfig, out: Path, after: int) -> RunFolder:
    """The run, stopped after some steps."""
    with pytest.raises(KeyError):
        train(config, out, callback=at(fail, "step", after))
    return RunFolder.open(out)


def test_a_resumed_run_is_the_straight_one_to_the_bit(
    file: Path, configured: Configured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = configured(**OWN)
    straight = train(config, tmp_path / "straight")
    stopped(config, tmp_path / "stopped", 9)
    forget(monkeypatch, file)
    resumed = resume(tmp_path / "stopped")
    assert bytes_of(resumed, 20) == bytes_of(straight, 20)


def short(configured: Configured, **training: Any) -> RunConfig:
    """Three steps with own parts."""
    return configured(model=OWN["model"], training={"steps": 3, **OWN["training"], **training})


def test_without_the_part_one_line_says_which_file(
    file: Path, configured: Configured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = train(short(configured), tmp_path / "run").path
    stop = stopped(short(configured), tmp_path / "stopped", 2).path
    forget(monkeypatch)
    asked: list[Callable[[], Any]] = [
        lambda: vitral.load(path),
        lambda: vitral.count(str(path)),
        lambda: vitral.train(None, tmp_path / "tuned", init_from=path, training={"steps": 2}),
        lambda: resume(stop),
        lambda: continue_run(path, tmp_path / "longer", steps=2),
    ]
    for ask in asked:
        with pytest.raises(UsageError, match=r"'mean-abs' of mine\.py.*--parts mine\.py"):
            ask()
    assert not (tmp_path / "tuned").exists()
    assert enter(path, lambda line: None).config.model.plain()["norm_type"]["name"] == "mean-abs"
    states = {check.what: check.mark for check in examine_run(path).findings}
    assert "wrong" not in states.values()
    assert states["own parts"] == states["recomputed step"] == "unknown"


def test_another_source_is_a_warning_to_load_and_refused_to_train_on(
    file: Path,
    configured: Configured,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = train(short(configured), tmp_path / "run").path
    stop = stopped(short(configured), tmp_path / "stopped", 2).path
    forget(monkeypatch, file, FILE + "\n# another\n")
    vitral.load(path)
    assert len(capsys.readouterr().err.splitlines()) == 1
    with pytest.raises(UsageError, match=r"norm/mean-abs.*--changed-parts"):
        resume(stop)
    with pytest.raises(UsageError, match="norm/mean-abs"):
        continue_run(path, tmp_path / "longer", steps=2)
    with pytest.raises(UsageError, match="norm/mean-abs"):
        train(enter(path, lambda line: None).config, tmp_path / "again")
    vitral.train(
        None, tmp_path / "tuned", init_from=path, corpus=str(configured().corpus.source), training={"steps": 2}
    )


def test_a_resume_with_another_source_seals_it_as_a_decision(
    file: Path, configured: Configured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = short(configured, checkpoint_every=1)
    path = stopped(config, tmp_path / "stopped", 2).path
    before = enter(path, lambda line: None)
    forget(monkeypatch, file, FILE + "\n# another\n")
    resume(path, changed_parts=True)
    after = enter(path, lambda line: None)
    hashed = parts._parts["norm", "mean-abs"].sha256
    (decision,) = after.identity.decisions
    assert decision.parts == {"norm/mean-abs": hashed, "optimizer/counting": hashed}
    assert (after.identity.run, after.identity.config) == (before.identity.run, before.identity.config)
    assert {own.sha256 for own in own_parts(after.config)} == {hashed}
    vitral.load(path)
    assert continue_run(path, tmp_path / "longer", steps=1).path.exists()


def sgd(parameters: list[nn.Parameter], learning_rate: float, **more: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=learning_rate, **more)


class Hiding(torch.optim.SGD):
    """Remembers outside its state."""

    moment: Any = 0.0

    def step(self, closure: Any = None) -> Any:
        self.moment = 0.5 * self.moment + 1.0
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.data.sub_(parameter.grad, alpha=float(self.moment))


WRONG: list[tuple[Callable[..., Any], dict[str, Any], str]] = [
    (lambda parameters, learning_rate: 3, {}, "int"),
    (lambda parameters, learning_rate: sgd(parameters[:1], learning_rate), {}, "1 of 2"),
    (sgd, {"momentun": 1}, "momentun"),
    (lambda parameters, learning_rate: sgd(parameters, 0.0), {}, "move"),
    (lambda parameters, learning_rate: torch.optim.LBFGS(parameters, lr=learning_rate), {}, "closure"),
    (lambda parameters, learning_rate: Hiding(parameters, lr=learning_rate), {}, "after a resume"),
    (lambda parameters, learning_rate: sgd(parameters, float("inf")), {}, "finite"),
]


@pytest.mark.parametrize(("factory", "settings", "said"), WRONG, ids=lambda value: None)
def test_a_wrong_optimizer_is_one_line_before_anything_is_written(
    factory: Any, settings: Any, said: str, configured: Configured, tmp_path: Path
) -> None:
    register("optimizer", "wrong", factory)
    config = configured(training={"optimizer": {"name": "wrong", **settings}})
    with pytest.raises(UsageError, match=said) as refused:
        train(config, tmp_path / "run")
    assert "'wrong'" in str(refused.value)
    assert not (tmp_path / "run").exists()

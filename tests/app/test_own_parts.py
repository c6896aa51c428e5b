"""docs/own-parts.md: its files and commands run as they are written; and --parts is the only word that runs a file."""

import os
import re
import shlex
from pathlib import Path

import pytest

import vitral as library
from tests.app.conftest import SETTINGS
from vitral.app.terminal import run
from vitral.core import parts
from vitral.model import ParameterRow, parameter_table
from vitral.runs import enter

DOCUMENT = Path(__file__).parents[2] / "docs" / "own-parts.md"
TEXT = DOCUMENT.read_text(encoding="utf-8")
SMALLER = {
    "train": [*SETTINGS, "--corpus", "sample"],
    "generate": ["--max-tokens", "5"],
    "study": [*SETTINGS, "--seeds", "1,2", "--corpus", "sample"],
}


def block(kind: str, containing: str = "") -> str:
    """The first block of a kind in the document that contains this."""
    return next(found for found in re.findall(rf"```{kind}\n(.*?)```", TEXT, re.DOTALL) if containing in found)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the document's files."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_parts.py").write_text(block("python", "register"), encoding="utf-8")
    (tmp_path / "mine.toml").write_text(block("toml"), encoding="utf-8")
    return tmp_path


def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "_parts", {})


@pytest.mark.merge
def test_the_documents_commands_run(here: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    commands = [line[2:] for line in re.findall(r"^\$ vitral.*$", TEXT, re.MULTILINE)]
    assert len(commands) == 4
    for command in commands:
        forget(monkeypatch)
        words = shlex.split(command)[1:]
        assert run([*words, *SMALLER.get(words[0], [])]) == 0, (command, capsys.readouterr().err)
    assert "blocks.0.mlp.gate.weight" in capsys.readouterr().out
    study = here / "studies" / "mine"
    assert sorted(path.name for path in (study / "arms").iterdir()) == ["gated-tanh", "mean-abs", "usual"]
    assert "--parts my_parts.py" in (study / "report" / "study.md").read_text(encoding="utf-8")
    sizes = [sum(row.count for row in parameters(study / "arms" / arm / "seed-1")) for arm in ("usual", "gated-tanh")]
    assert abs(sizes[0] - sizes[1]) <= (3 * 12 + 2) / 2  # of one more unit of the hidden layer
    assert not (here / "__pycache__").exists()


def parameters(path: Path) -> list[ParameterRow]:
    """The tensors of a run."""
    config = enter(path, lambda line: None).config
    return parameter_table(config.model, 68)


@pytest.mark.merge
def test_the_documents_python_runs(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(here)
    small = {"d_model": 12, "num_layers": 1, "num_heads": 3, "context_length": 16}
    train = library.train
    monkeypatch.setattr(
        library,
        "train",
        lambda start, **tables: train(
            "sample",
            model={**small, **tables["model"]},
            training={"steps": 2, "evaluate_every": 2, "batch_size": 3, "threads": 1},
        ),
    )
    code = compile(block("python", "import my_parts"), "document", "exec")
    names: dict[str, object] = {}
    exec(code, names)
    assert "gated-tanh" in str(names["run"].config)  # pyright: ignore


def test_only_the_users_word_runs_a_file(here: Path, monkeypatch: pytest.MonkeyPatch, vitral) -> None:
    trained = ["train", "sample", *SETTINGS, "--set", "model.norm_type=mean-abs", "--out", "run"]
    assert vitral(*trained, "--parts", "my_parts.py").code == 0
    forget(monkeypatch)
    (here / "my_parts.py").write_text("raise SystemExit(99)")
    refused = vitral("generate", "run")
    assert (refused.code, refused.err.count("\n")) == (2, 1)
    assert "--parts my_parts.py" in refused.err
    refused = vitral("study", "mine.toml", "--corpus", "sample")
    assert (refused.code, refused.err.count("\n")) == (2, 1)
    assert "mean-abs" in refused.err
    assert vitral("doctor", "run").code == 0
    assert vitral("generate", "run", "--parts", "my_parts.py").code == 2


def test_the_variable_names_files_too(here: Path, monkeypatch: pytest.MonkeyPatch, vitral) -> None:
    (here / "more.py").write_text('import torch, vitral\nvitral.register("activation", "sine", lambda: torch.sin)\n')
    monkeypatch.setenv("VITRAL_PARTS", os.pathsep.join(["my_parts.py", "more.py"]))
    told = vitral("count", "fast", "--set", "model.norm_type=mean-abs", "--set", "model.feed_forward=sine")
    assert (told.code, told.err) == (0, "")


def test_explain_refuses_in_one_line_what_it_cannot_compute(here: Path, vitral) -> None:
    named = ["--set", "model.feed_forward=gated-tanh", "--parts", "my_parts.py"]
    assert vitral("train", "sample", *SETTINGS, *named, "--out", "run").code == 0
    refused = vitral("explain", "run", "--text", "a", "--parts", "my_parts.py")
    assert (refused.code, refused.err.count("\n")) == (2, 1)
    assert "gated-tanh" in refused.err
    assert vitral("inspect", "run", "--text", "a light", "--parts", "my_parts.py", "--format", "json").code == 0

"""Summaries of runs: the numbers of the sealed files, the right state, one line for whatever is wrong."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fresh import printed
from small_runs import five_words, small_config

from tests.conftest import Once
from tests.training.conftest import at, fail
from vitral.core.errors import TrainingStopped, UsageError
from vitral.core.language import in_language
from vitral.model import count_parameters
from vitral.report.runs import grouped, list_runs
from vitral.runs import RunFolder, RunSummary, enter, runs_below, summarize_run
from vitral.runs.lock import is_held, only_writer
from vitral.training import train


@pytest.fixture(scope="session")
def text(once: Once) -> Path:
    """The text of all runs."""
    return once("five-words.txt", five_words)


def trained(out: Path, text: Path, callback: Callable[[Any], object] = lambda event: None, **training: Any) -> Path:
    """A run of nine tiny steps, evaluated at every third."""
    config = small_config(text, training={"evaluate_every": 3, **training})
    return train(config, out, callback=callback).path


@pytest.fixture(scope="session")
def kept(once: Once, text: Path) -> Path:
    """A finished run that no test changes, alone in a folder."""
    return once("runs-kept", lambda folder: trained(folder / "kept", text)) / "kept"


@pytest.fixture
def run(kept: Path, tmp_path: Path) -> Path:
    """A finished run of one's own."""
    return Path(shutil.copytree(kept, tmp_path / "run"))


def content(folder: Path) -> dict[str, tuple[bytes, int]]:
    """Every file with its bytes and its time."""
    return {str(p): (p.read_bytes(), p.stat().st_mtime_ns) for p in folder.rglob("*") if p.is_file()}


def test_the_numbers_are_those_of_the_sealed_files(run: Path, text: Path) -> None:
    before = content(run)
    result, sealed = summarize_run(run), enter(run, lambda line: None)
    assert content(run) == before
    evaluations = RunFolder(run).metrics("evaluation")
    best = min(evaluations, key=lambda event: event["validation_loss"])
    assert (result.state, result.why, result.format, result.run) == ("finished", "", 2, sealed.identity.run)
    assert (result.text, result.tokenizer, result.vocab_size) == (text.name, "char", sealed.tokenizer.vocab_size)
    assert (result.layers, result.width, result.context, result.seed) == (1, 6, 8, 1)
    assert result.parameters == count_parameters(sealed.config.model, sealed.tokenizer.vocab_size)
    assert (result.step, result.steps, result.best_step) == (9, 9, best["step"])
    assert (result.validation_loss, result.test_loss) == (best["validation_loss"], best["test_loss"])
    assert sealed.ngrams() is not None
    assert result.baselines is None  # parts of five words repeat each other, so that nothing can be compared
    assert sealed.document("corpus")["problems"]
    assert [step for step, *_losses in result.curve] == [3, 6, 9]
    end = RunFolder(run).metrics("end")[-1]
    assert (result.seconds, result.when) == (end["seconds"], end["stepped"])
    assert json.loads(json.dumps(result.plain()))["test_loss"] == result.test_loss


def test_a_run_that_is_written_to_is_running(run: Path) -> None:
    with only_writer(run):
        assert summarize_run(run).state == "running"
        (run / "run.json").write_bytes(b"")  # what is being written is not judged
        assert summarize_run(run).state == "running"
    assert not is_held(run)
    with only_writer(run):  # whoever asked has let go of it
        pass


def test_a_stopped_run_says_how_far_it_came(tmp_path: Path, text: Path) -> None:
    with pytest.raises(KeyError):
        trained(tmp_path / "run", text, at(fail, "step", 5))
    result = summarize_run(tmp_path / "run")
    assert (result.state, result.step, result.steps, result.best_step) == ("stopped", 5, 9, 3)
    assert [step for step, *_losses in result.curve] == [3]


def test_a_run_whose_loss_was_not_finite_says_why(tmp_path: Path, text: Path) -> None:
    with pytest.raises(TrainingStopped):
        trained(tmp_path / "run", text, optimizer={"learning_rate": 1e30})
    result = summarize_run(tmp_path / "run")
    assert result.state == "stopped"
    assert "stopped before step" in result.why


def newest(run: Path) -> Path:
    return max((run / "steps").iterdir())


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


DAMAGES: dict[str, Callable[[Path], object]] = {
    "config.toml: changed": lambda run: (run / "config.toml").write_text(
        (run / "config.toml").read_text().replace("num_layers = 1", "num_layers = 2")
    ),
    "run.json": lambda run: cut(run / "run.json"),
    "corpus.json": lambda run: (run / "corpus.json").unlink(),
    "metrics.jsonl": lambda run: cut(run / "metrics.jsonl"),
    "step-00000009": lambda run: cut(newest(run) / "state.json"),
    "steps": lambda run: shutil.rmtree(run / "steps"),
}


@pytest.mark.parametrize("why", DAMAGES)
def test_whatever_is_damaged_is_one_line(why: str, run: Path) -> None:
    DAMAGES[why](run)
    result = runs_below(run.parent)
    assert [(one.name, one.state) for one in result] == [("run", "damaged")]
    assert why in result[0].why
    assert "\n" not in result[0].why
    assert str(run) not in result[0].why


def test_the_reason_is_data_in_english_and_told_in_the_readers_language(run: Path) -> None:
    cut(run / "metrics.jsonl")
    with in_language("pt"):
        result = list_runs(run.parent)
        assert result.runs[0].why.startswith("metrics.jsonl: its first ")
        assert "metrics.jsonl: " in str(result)
        assert "were changed or cut" not in str(result)


def test_nested_runs_are_found_and_nothing_inside_a_run(kept: Path, tmp_path: Path) -> None:
    shutil.copytree(kept, tmp_path / "study" / "arms" / "full" / "seed-1")
    shutil.copytree(kept, tmp_path / "a")
    shutil.copytree(kept, tmp_path / "a" / "report" / "inside")
    shutil.copytree(kept, tmp_path / ".hidden")
    (tmp_path / "notes").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "a")
    assert [run.name for run in runs_below(tmp_path)] == ["a", "study/arms/full/seed-1"]
    assert [run.name for run in runs_below(tmp_path / "a")] == ["a"]


def test_a_folder_without_runs_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for folder in (tmp_path, tmp_path / "file", tmp_path / "nowhere"):
        with pytest.raises(UsageError):
            list_runs(folder)


def test_runs_of_one_text_stand_together_best_first() -> None:
    def one(name: str, tokens: str | None, loss: float | None, when: float) -> RunSummary:
        return RunSummary(Path(name), name, "finished", text=tokens, test_tokens=tokens, test_loss=loss, when=when)

    runs = [
        one("a", "y", 2.0, 5.0),
        one("b", "x", 3.0, 1.0),
        one("c", "y", 1.0, 2.0),
        one("d", "y", None, 9.0),
        one("e", None, None, 3.0),
    ]
    assert [[run.name for run in group] for group in grouped(runs)] == [["b"], ["c", "a", "d"], ["e"]]


def test_runs_are_listed_without_pytorch(kept: Path, tmp_path: Path) -> None:
    for number in range(23):
        shutil.copytree(kept, tmp_path / "runs" / f"run-{number:03}", copy_function=os.link)
    code = (
        "import sys, vitral.app.terminal\n"
        f"assert vitral.app.terminal.run(['list', 'runs', {str(tmp_path / 'runs')!r}, '--format', 'csv']) == 0\n"
        "print([name for name in ('torch', 'matplotlib', 'scipy', 'tokenizers') if name in sys.modules])"
    )
    *lines, imported = printed(code).splitlines()
    assert imported == "[]"
    assert [line.split(",")[:2] for line in lines[1:]] == [[f"run-{n:03}", "finished"] for n in range(23)]


def test_a_list_has_a_page_a_table_and_data(kept: Path, tmp_path: Path) -> None:
    result = list_runs(kept.parent)
    page = result.write(tmp_path / "out").read_text(encoding="utf-8")
    assert page.count("<svg") == 1
    assert 'class="sortable"' in page
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        *("runs.html", "runs.csv", "runs.md", "runs.tex", "runs.json", "figures")
    }
    assert json.loads((tmp_path / "out" / "runs.json").read_text(encoding="utf-8")) == result.plain()
    assert "sandbox" in result._repr_html_()

"""The library's face: every command as a function, its results, and what a prompt and a notebook show of them."""

import json
import re
import shutil
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from fresh import printed
from tags import tags

import vitral
from tests.app.conftest import MODEL, TRAINING
from vitral.app.results import Samples
from vitral.core.errors import UsageError
from vitral.core.language import in_language
from vitral.decoding import Sample
from vitral.report.notebook import framed

COURSE = Path(__file__).parents[2] / "docs" / "gallery"
COMMANDS = ("train", "resume", "continue_", "evaluate", "generate", "explain", "exercise", "check", "inspect", "study")
COMMANDS += ("grade", "survey", "count", "doctor", "demo", "compare", "list_runs")
NASTY = "</iframe></script><script>alert(1)</script>\"'&<b>\x1b[31m\u202e"


@pytest.fixture(scope="module")
def results(run: vitral.Run, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    copy = shutil.copytree(run.path, tmp_path_factory.mktemp("compared") / "copy")
    return {
        "run": run,
        "evaluate": vitral.evaluate(run),
        "generate": vitral.generate(run, "WREN", max_tokens=9),
        "several": vitral.generate(run, "WREN", max_tokens=9, num_beams=2, num_samples=2),
        "inspect": vitral.inspect(run, "The light"),
        "sweep": run.sweep("The light"),
        "explain": vitral.explain(run, "To"),
        "example": vitral.explain("the-cat-sat"),
        "check": vitral.check("o-gato-preto"),
        "exercise": vitral.exercise(),
        "grade": vitral.grade(COURSE / "class", COURSE / "class-key.toml"),
        "survey": vitral.survey(run),
        "count": vitral.count(run),
        "doctor": vitral.doctor(run),
        "compare": vitral.compare(run, copy, max_tokens=3),
        "presets": vitral.list_presets(),
        "texts": vitral.list_texts(),
        "studies": vitral.list_studies(),
        "examples": vitral.list_examples(),
        "names": vitral.list_names(),
        "words": vitral.list_words(),
        "runs": vitral.list_runs(run.path.parent),
    }


def test_every_command_is_a_function_and_no_function_hides_a_package() -> None:
    assert set(COMMANDS) <= set(vitral.__all__)
    packages = {path.name for path in Path(vitral.__file__).parent.iterdir() if path.is_dir()} - {"__pycache__"}
    for name in packages:
        import_module(f"vitral.{name}")
    for name in vitral.__all__:
        assert callable(getattr(vitral, name)), name
        assert getattr(vitral, name).__doc__, name


@pytest.mark.full
def test_the_first_token_and_the_first_step_wait_for_no_plot_and_no_page(run: vitral.Run, tmp_path: Path) -> None:
    code = (
        f"import sys, vitral\nvitral.Run({str(run.path)!r}).generate('WREN', max_tokens=1)\n"
        "late = {'matplotlib', 'vitral.explanation', 'vitral.inspection', 'vitral.report.run', 'vitral.studies',\n"
        "        'vitral.data.dataset', 'vitral.training.loop', 'vitral.evaluation.losses'}\n"
        "assert not late & set(sys.modules), late & set(sys.modules)\n"
        "def seen(event):\n"
        "    assert event['event'] != 'step' or 'matplotlib' not in sys.modules\n"
        f"vitral.train('fast', {str(tmp_path / 'run')!r}, callback=seen, corpus='sample', progress=True,\n"
        "             model={'d_model': 16, 'num_layers': 1}, training={'steps': 1, 'log_every': 1})\n"
    )
    printed(code)


def test_results_are_readable_plain_and_ready_for_json(results: dict[str, Any]) -> None:
    for name, result in results.items():
        text = str(result)
        assert text == repr(result), name
        assert text.strip(), name
        assert "tensor(" not in text, name
        if hasattr(result, "plain"):
            json.dumps(result.plain(), allow_nan=False)


def test_a_run_may_be_a_path_or_a_run(run: vitral.Run, results: dict[str, Any]) -> None:
    for name, one in {
        "generate": vitral.generate(str(run.path), "WREN", max_tokens=9),
        "inspect": vitral.inspect(run.path, "The light"),
        "explain": vitral.explain(run.path, "To"),
        "evaluate": vitral.evaluate(run.path),
        "doctor": vitral.doctor(run.path),
        "count": vitral.count(str(run.path)),
        "survey": vitral.survey(run.path),
    }.items():
        assert str(one) == str(results[name]), name
    last = vitral.evaluate(run, copying=False, checkpoint="last", dtype="float64")
    assert last.step == run.metrics("evaluation")[-1]["step"]


def test_options_of_the_command_are_arguments(tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_bytes("não é assim\n".encode("cp1252") * 400)
    given = {"encoding": "cp1252", "specials": ["<|x|>"], "seed": 7, "threads": 1, "dtype": "float64", "device": "cpu"}
    made = vitral.train(tmp_path / "x.txt", tmp_path / "run", **given, model=MODEL, training=TRAINING)
    assert made.config["corpus"]["encoding"] == "cp1252"
    assert made.config["corpus"]["specials"] == ["<|x|>"]
    assert (made.config["seed"], made.config["training"]["threads"]) == (7, 1)
    assert made.config["training"]["dtype"] == "float64"
    (tmp_path / "y.txt").write_text("another text\n" * 400)
    tuned = vitral.train(tmp_path / "y.txt", tmp_path / "tuned", init_from=made, training=TRAINING, context=13)
    assert tuned.tokenizer.vocab_size > made.tokenizer.vocab_size


def test_explain_counts_a_run_from_0_and_an_example_from_1(run: vitral.Run) -> None:
    assert str(vitral.explain(run, "To be", query=0)) != str(vitral.explain(run, "To be", query=1))
    assert str(vitral.explain("the-cat-sat", query=2)) == str(vitral.explain("the-cat-sat"))
    every, one = vitral.explain(run, "To", layer="all", head=[0, 2]), vitral.explain(run, "To", layer=1, head=0)
    assert json.loads(json.dumps(every.plain(), allow_nan=False))["language"] == every.language
    assert [len(chapter["steps"]) for chapter in every.plain()["chapters"]] == [
        len(one.steps) for one in every.chapters
    ]
    assert len(every.chapters) == 2
    assert [len(every.steps[0].panels), len(one.steps[0].panels)] == [2, 1]


def test_checks_are_fixed_where_asked(tmp_path: Path) -> None:
    report = vitral.check("o-gato-preto", fix=True, out=tmp_path)
    assert report.worst == "wrong"
    assert vitral.check(tmp_path / "o-gato-preto.fixed.toml").worst == "right"
    vitral.check("the-cat-sat", fix=True, out=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["o-gato-preto.fixed.toml"]


def test_names_are_those_of_the_commands() -> None:
    assert list(vitral.list_presets()) == list(vitral.presets())
    assert "the-cat-sat" in vitral.list_examples()
    assert vitral.list_studies()["no-attention"].endswith("?")
    assert {"name", "description"} == set(vitral.list_texts().plain()[0])
    assert {"name", "description", "transformer_lens"} == set(vitral.list_names().plain()[0])
    assert list(vitral.list_words("Nat")) == ["nat"]
    with in_language("pt"):
        assert list(vitral.list_words("semente")) == ["seed"]
    with pytest.raises(UsageError, match="did you mean 'sample'"):
        vitral.list_texts()["sampel"]


def test_without_pandas_one_line_says_the_remedy(results: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    for name, result in results.items():
        if hasattr(result, "to_pandas"):
            with pytest.raises(UsageError, match="pip install"):
                result.to_pandas()
            assert result.records(), name


@pytest.mark.merge
def test_tables_become_data_frames(results: dict[str, Any]) -> None:
    pytest.importorskip("pandas")
    run = results["run"]
    assert list(run.to_pandas()["step"]) == [2, 4]
    assert set(run.to_pandas("step")) >= {"loss", "learning_rate"}
    assert results["count"].to_pandas()["count"].sum() == run.parameters
    assert list(results["evaluate"].to_pandas()["split"]) == ["validation", "test"]
    assert len(results["inspect"].to_pandas()) == 6
    assert results["survey"].to_pandas()["count"].sum() == results["survey"].report.num_characters
    assert list(results["check"].to_pandas()["verdict"]) == ["wrong"]
    assert len(results["several"].to_pandas()) == 2


def test_a_notebook_shows_the_page_in_a_sandbox_and_nothing_is_loaded(results: dict[str, Any]) -> None:
    for name, result in results.items():
        elements = tags(result._repr_html_())
        assert {tag for tag, _ in elements} <= {"iframe", "div", "details", "summary", "pre"}, name
        (frame,) = (attributes for tag, attributes in elements if tag == "iframe")
        inside = frame["srcdoc"]
        assert inside.startswith("<!DOCTYPE html>"), name
        assert "default-src 'none'" in inside, name
        assert frame["sandbox"] == ("allow-scripts" if "<script>" in inside else ""), name
        assert not re.search(r'(src|href)="(?!#|about:srcdoc|data:)', inside), name


def test_a_frame_escapes_whatever_it_holds() -> None:
    made = framed(f"<html><head></head>{NASTY}</html>", NASTY + "\n" + NASTY)
    elements = tags(made)
    assert [tag for tag, _ in elements] == ["iframe", "div", "details", "summary", "pre"]
    assert NASTY in elements[0][1]["srcdoc"]
    assert "\x1b" not in made.partition("</iframe>")[2]


def test_a_text_that_would_be_obeyed_is_shown(run: vitral.Run) -> None:
    shown = Samples(NASTY, 1, (Sample(NASTY, NASTY, (1,), "length"),))._repr_html_()
    inside = tags(shown)[0][1]["srcdoc"]
    assert "<script>alert" not in inside
    assert "&lt;script&gt;alert" in inside

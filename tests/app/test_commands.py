"""Every command end to end, as a user types it."""

import json
import platform
import shutil
from pathlib import Path

import pytest
import torch

import vitral as library
from vitral import __version__
from vitral.app.terminal import COMMANDS
from vitral.app.terminal.streams import runnable
from vitral.explanation.examples.by_name import gallery
from vitral.explanation.phrasebook import LANGUAGES, phrases
from vitral.studies import plan
from vitral.training.plans import ResolvedPlan


def test_the_versions_in_one_line(vitral) -> None:
    told = vitral("--version")
    assert (told.code, told.err) == (0, "")
    assert told.out == f"Vitral {__version__}, Python {platform.python_version()}, PyTorch {torch.__version__}\n"


def test_without_a_command_the_help_is_printed(vitral) -> None:
    told = vitral("--help")
    assert vitral() == told
    assert all(f"  {command.name}" in told.out for command in COMMANDS)


def test_generate_streams_what_the_library_gives(vitral, trained: Path) -> None:
    text = library.load(trained).generate("WREN", max_tokens=37, temperature=0.8, seed=5)
    for options in ((), ("--no-cache",)):
        line = ("generate", str(trained), "--prompt", "WREN", "--max-tokens", "37", "--seed", "5", *options)
        assert vitral(*line).out == text + "\n"


def test_generate_in_other_ways(vitral, trained: Path) -> None:
    generate = ("generate", str(trained), "--max-tokens", "5")
    several = json.loads(vitral(*generate, "--samples", "3", "--format", "json").out)
    assert [len(sample["tokens"]) for sample in several] == [5, 5, 5]
    assert len({sample["text"] for sample in several}) > 1
    greedy = [vitral(*generate, "--greedy", "--seed", seed).out for seed in "12"]
    assert greedy[0] == greedy[1]
    assert vitral(*generate, "--beams", "3", "--samples", "2").out.count("log-probability") == 2


@pytest.mark.parametrize("form", ["text", "markdown", "html", "json", "latex"])
def test_explain_in_every_form_and_language(vitral, trained: Path, tmp_path: Path, form: str) -> None:
    run = (str(trained), "--text", "To", "--layer", "all", "--head", "all", "--block", "--ending")
    for language, what in (("en", run), ("pt", ("sol-e-lua",))):
        line = ("explain", *what, "--format", form, "--lang", language)
        assert vitral(*line, "--out", language).code == 0
        written = (tmp_path / language).read_text(encoding="utf-8").replace("\\", "")
        for other in LANGUAGES:
            assert (phrases(other)("titles.z") in written) == (other == language)


def test_explain_writes_everything_and_goes_backwards_when_asked_to(vitral, trained: Path) -> None:
    run = ("explain", str(trained), "--text", "WRENWRENWRE", "--layer", "0")
    assert len(vitral(*run).out) < len(whole := vitral(*run, "--all").out)
    assert "--all" not in whole
    for options in ((), ("--block",), ("--block", "--ending")):
        told = vitral(*run, "--query", "2", "--backward", *options)
        assert told.code == 0, told.err
        assert "dscores" in told.out
        assert ("dmlp.pre" in told.out) == bool(options)
    assert "Gradient of out" in vitral("explain", "the-cat-sat", "--backward", "--cell", "output[2,1]").out
    assert vitral("exercise", "--all", "--out", "-").code == 0


def test_check_says_what_is_wrong_first_and_mends_it(vitral, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(gallery()["gato-preto-dorme"], encoding="utf-8")
    told = vitral("check", "mine.toml", "life-is-awesome")
    assert told.code == 1
    assert "First wrong step: weights (weights[3,1])." in told.out
    assert phrases("en")("check.all_right", count=96) in told.out
    assert vitral("check", "life-is-awesome").code == 0
    fixed = vitral("check", "mine.toml", "--fix", "--lang", "pt")
    assert fixed.code == 1
    assert "corrigido: mine.fixed.toml" in fixed.out
    assert vitral("check", "mine.fixed.toml").code == 0
    again = vitral("check", "mine.toml", "--fix")
    assert again.code == 2
    assert "First wrong step: weights" in again.out
    assert "mine.fixed.toml: exists already" in again.err
    assert (tmp_path / "mine.toml").read_text(encoding="utf-8") == gallery()["gato-preto-dorme"]
    mixed = vitral("check", "mine.toml", "nowhere", "greedy-choice")
    assert mixed.code == 2
    assert mixed.err.count("\n") == 1
    assert "First wrong step" in mixed.out
    assert phrases("en")("check.all_right", count=5) in mixed.out
    wrong, broken, right = json.loads(vitral("check", "mine.toml", "nowhere", "greedy-choice", "--format", "json").out)
    assert ("error" in broken, right["verdict"]) == (True, "right")
    assert (wrong["verdict"], wrong["first_wrong"]["step"]) == ("wrong", "weights")


def test_everything_with_a_name_is_listed(vitral, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "time_steps", lambda config, build: 0.08)
    monkeypatch.setattr(plan, "resolve_plan", lambda base, build, tokens: ResolvedPlan(base, ()))
    monkeypatch.setattr(plan, "study_names", lambda: {"no-attention": "?"})
    listed = json.loads(vitral("list", "--format", "json").out)
    names = {kind: [entry["name"] for entry in entries] for kind, entries in listed.items()}
    assert names["examples"] == list(gallery())
    assert {"fast", "shakespeare", "demo"} <= set(names["presets"])
    assert {"sample", "tinyshakespeare"} <= set(names["texts"])
    assert {"no-attention", "scaling"} <= set(names["studies"])
    shown = vitral("list").out
    assert all(name in shown for entries in names.values() for name in entries)
    assert json.loads(vitral("list", "texts", "--format", "json").out) == {"texts": listed["texts"]}
    assert vitral("list", "examples").out in shown
    studies = vitral("list", "studies", "--times").out
    assert all(name in studies for name in names["studies"])
    assert studies != vitral("list", "studies").out
    assert {vitral(*command.split(), "-h").code for command in ("", "train", "study")} == {0}


@pytest.mark.parametrize("on_path", [None, "/usr/bin/vitral"])
def test_printed_commands_can_be_typed_where_the_user_stands(
    on_path: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.which", lambda name: on_path)
    monkeypatch.setattr("sys.argv", ["my venv/bin/vitral", "demo"])
    ours = "'my venv/bin/vitral'"
    line = "next:   {0} train x    {0} doctor x; vitral why says more: {0} why x"
    assert runnable(line.format("vitral")) == line.format("vitral" if on_path else ours)


def test_runs_are_listed_in_every_form(vitral, trained: Path, tmp_path: Path) -> None:
    folder = str(shutil.copytree(trained, tmp_path / "runs" / "tiny").parent)
    shown = vitral("list", "runs", folder)
    assert shown.code == 0
    assert "tiny" in shown.out
    found = json.loads(vitral("list", "runs", folder, "--format", "json").out)
    assert [(run["name"], run["state"], run["text"]) for run in found["runs"]] == [("tiny", "finished", "sample")]
    assert vitral("list", "runs", folder, "--out", "page", "--sort", "time", "--text", "samp").code == 0
    assert (tmp_path / "page" / "runs.html").is_file()
    for wrong in (
        ("runs", str(tmp_path / "page")),
        ("runs", folder, "--text", "other"),
        ("presets", "--sort", "name"),
    ):
        refused = vitral("list", *wrong)
        assert (refused.code, refused.out, refused.err.count("\n")) == (2, "", 1)
    assert "kind,name,description" in vitral("list", "texts", "--format", "csv").out


def test_unseen_characters_are_replaced_everywhere(vitral, trained: Path) -> None:
    for command in (
        ("generate", "--max-tokens", "3", "--prompt", "日本"),
        ("explain", "--text", "日本"),
        ("inspect", "--text", "日本"),
    ):
        refused = vitral(command[0], str(trained), *command[1:])
        assert (refused.code, "'日' (U+65E5)" in refused.err) == (2, True)
        told = vitral(command[0], str(trained), *command[1:], "--replace", "e")
        assert told.code == 0, told.err
        assert vitral(command[0], str(trained), *command[1:], "--replace", "日").code == 2


def test_a_finished_run_is_continued(vitral, trained: Path, tmp_path: Path) -> None:
    refused = vitral("resume", str(trained))
    assert f"vitral continue {trained} --minutes 10" in refused.err
    told = vitral("continue", str(trained), "--steps", "3", "--out", "longer")
    assert told.code == 0, told.err
    steps = [max(path.name for path in (run / "steps").iterdir()) for run in (trained, tmp_path / "longer")]
    assert int(steps[1][-8:]) == int(steps[0][-8:]) + 3
    assert (tmp_path / "longer" / "report" / "run.html").exists()
    assert vitral("doctor", "longer").code == 0
    for options in ((), ("--steps", "3", "--minutes", "1"), ("--minutes", "0"), ("--steps", "0")):
        assert vitral("continue", str(trained), *options, "--out", "no").code == 2
    assert not (tmp_path / "no").exists()


def test_every_command_of_a_process_has_its_own_time() -> None:
    from vitral.app import session

    began = []
    for _ in range(2):
        session.begin(["train"])
        began.append(session.time_frame().began)
    assert began[0] < began[1]

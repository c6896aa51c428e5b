"""Whatever cannot be is refused in one line with exit code 2, and nothing is written or lost."""

import shutil
from pathlib import Path

import pytest

MISTAKES = [
    ("train \x1b[31mred", "[31mred"),
    ("train nosuch", "not a preset, a known text or a file"),
    ("train shakespear", "did you mean 'shakespeare'"),
    ("train empty.txt", "empty"),
    ("train latin1.txt", "it looks like cp1252"),
    ("train latin1.txt --encoding utf-16", "--encoding utf-16-le"),
    ("corpus short.txt --field text", "line 1: not a JSON object"),
    ("corpus taken --glob *.py", "no file matches"),
    ("corpus short.txt --glob *.txt", "--glob"),
    ("train RUN", "is a run, not a text"),
    ("train sample --corpus RUN", "is a run, not a text"),
    ("train short.txt", "characters"),
    ("train sample --tokenizer bpe:many", "valid integer"),
    ("train sample --tokenizer bpe:12", "corpus.tokenizer"),
    ("train sample --context 0", "greater than or equal to 1"),
    ("corpus RUN --tokenizer byte", "leave out tokenizer"),
    ("count RUN --set model.d_model=8", "leave out model"),
    ("train sample --minutes nan", "minutes: input should be a finite number"),
    ("train sample --init-from RUN --tokenizer byte", "corpus.tokenizer"),
    ("study no-attention --corpus sample --set training.plan=fit --set training.minutes=1", "fit"),
    ("train wrong.toml", "TOML"),
    ("train unknown.toml", "did you mean 'd_model'"),
    ("train sample --set model.num_heads=3", "do not divide d_model"),
    ("train sample --set model", "KEY=VALUE"),
    (f"train sample --set a={'[' * 5000}", "unknown key 'a'"),
    (f"train sample --set {'.'.join('a' * 3000)}=1", "KEY=VALUE"),
    ("train sample --layers 4", "--set model.num_layers=4"),
    ("count fast --learning-rate=0.1", "--set training.optimizer.learning_rate=0.1"),
    ("train sample --steps", "--set training.steps=…"),
    ("list texts --times", "--times"),
    ("demo --set training.objective=masked", "leave training.objective out"),
    ("train sample --set model.attention.mask=bidirectional", "already sees its next token"),
    ("train sample --set training.optimizer.learning_rate=nan", "finite"),
    ("train sample --device tpu", "tpu"),
    ("train sample --device cuda", "--device cpu"),
    ("train sample --out taken", "exists already"),
    ("count fast --set model.norm_type={}", "model.norm_type"),
    ("study no-attention --workers 2 --executor dask:a", "--workers"),
    ("study no-attention --seeds a", "expected numbers"),
    ("study none.toml", "none.toml: cannot be read"),
    ("evaluate taken", "not a run"),
    ("evaluate zoo:indction", "did you mean 'induction'"),
    ("generate ABOVE", "tiny"),
    ("import RUN --out new", "is a run"),
    ("resume missing", "not a run"),
    ("resume short.txt", "vitral train short.txt"),
    ("generate sample", "vitral train sample"),
    ("generate RUN --top-k 69", "68"),
    ("generate RUN --prompt aaaaaaaaaaaaaaaaaaaaaaaaaa", "26 tokens"),
    ("generate RUN --samples 3 --beams 2", "--beams 2"),
    ("inspect RUN", "--text"),
    ("inspect RUN --text aaaaaaaaaaaa", "12 tokens"),
    ("inspect RUN --text a --out page.pdf", "no form has this ending"),
    ("grade nothing --key sol-e-lua --points weights", "expected STEP=POINTS"),
    ("grade nothing --key sol-e-lua --rule nowhere.toml", "nowhere.toml"),
    ("explain RUN --text To --layer 9", "--layer 9"),
    ("explain RUN --layer x", "--layer x: expected numbers"),
    ("explain", "EXAMPLE.toml|NAME|RUN"),
    ("explain RUN --text To --backward --query 1", "--backward needs the token after"),
    ("explain RUN --text To --backward --cell out[1,1]", "--cell goes with"),
    ("explain sol-e-lua --cell out[1,1]", "--cell goes with"),
    ("explain sol-e-lua --backward --cell nosuch[1,1]", "nosuch is not computed here"),
    ("explain shakespeare-parameters --backward", "nothing here has a gradient"),
    ("exercise --d-model 5 --num-heads 2", "do not divide"),
    ("exercise taken/precious.txt", "no kind"),
    ("list nosuch --lang pt", "Valor inválido para 'KIND': 'nosuch' não é uma destas opções: 'presets'"),
    ("explain nowhere", "neither a file nor a worked example"),
    ("explain sol-e-lua --query 0", "--query 0: there are 2, counted from 1"),
    ("check", "FILE|NAME|-"),
    ("check sol-e-lua --out nothing", "--out goes with --fix"),
    ("check missing.toml", "cannot be read"),
    ("check wrong.toml", "line 1"),
    ("check short.txt", "no numbers with a known name"),
    ("check wrong.toml sol-e-lua --fix", "not TOML"),
    ("resume RUN", "finished"),
    ("tran sample", "Did you mean 'train'"),
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Things that commands should refuse."""
    (tmp_path / "empty.txt").write_bytes(b"")
    (tmp_path / "latin1.txt").write_bytes("coração ".encode("latin-1") * 9000)
    (tmp_path / "short.txt").write_bytes(b"To be, or not; a line of light.")
    (tmp_path / "wrong.toml").write_bytes(b"[model\n")
    (tmp_path / "unknown.toml").write_bytes(b"[model]\ndmodel = 3\n")
    (tmp_path / "nothing").mkdir()
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "precious.txt").write_bytes(b"do not lose me")
    return tmp_path


@pytest.mark.parametrize(("command", "told"), MISTAKES)
def test_a_mistake_is_one_line_and_changes_nothing(
    vitral, folder: Path, trained: Path, tmp_path: Path, command: str, told: str
) -> None:
    above = shutil.copytree(trained, tmp_path / "above" / "runs" / "tiny").parents[1] if "ABOVE" in command else ""
    before = {path: path.read_bytes() for path in [*folder.rglob("*"), *trained.rglob("*")] if path.is_file()}
    paths = {"RUN": str(trained), "ABOVE": str(above)}
    outcome = vitral(*(paths.get(word, word) for word in command.split()))
    assert outcome.code == 2, outcome
    assert outcome.err.removesuffix("\n").isprintable()
    assert outcome.err.startswith("vitral: ")
    assert told in outcome.err
    assert before == {path: path.read_bytes() for path in [*folder.rglob("*"), *trained.rglob("*")] if path.is_file()}


@pytest.mark.parametrize("command", ["inspect nowhere --text x", "explain nowhere"])
def test_a_file_that_cannot_be_written_is_refused_before_anything_is_read(vitral, command: str, tmp_path: Path) -> None:
    (tmp_path / "there.html").write_text("mine", encoding="utf-8")
    for out, code in (("there.html", 2), ("no folder/new.html", 4)):
        told = vitral(*command.split(), "--out", out)
        assert (told.code, out.partition("/")[0] in told.err) == (code, True)
    assert (tmp_path / "there.html").read_text(encoding="utf-8") == "mine"

"""nanoGPT's `ckpt.pt`: the same logits, computed by hand from its state dict; nothing of a pickle is run."""

import json
import os
import pickle
import zipfile
from base64 import b64encode
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from nanogpt import saved, state

import vitral
from tests.interop.conftest import by_hand
from vitral.app.terminal import run as cli
from vitral.core.errors import UsageError
from vitral.data import byte_tokenizer
from vitral.interop import import_model
from vitral.runs import load_run

TEXT = "To be, or not to be: that is the question.\r\nWhether 'tis nobler\n"
CHARACTERS = sorted(set(TEXT.replace("\r\n", "\n")))


checkpoint = partial(saved, rows=len(CHARACTERS))


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "input.txt"
    path.write_bytes(TEXT.encode())
    return path


@pytest.mark.parametrize(("bias", "prefix"), [(True, ""), (False, "_orig_mod.")])
def test_the_logits_are_those_of_the_formulas(bias: bool, prefix: str, text: Path, tmp_path: Path) -> None:
    source = checkpoint(tmp_path / "ckpt.pt", bias=bias, prefix=prefix)
    run = load_run(import_model(source, tmp_path / "run", tokenizer=text).path)
    tokens = [3, 1, 4, 1, 5, 9, 2, 6]
    with torch.inference_mode():
        found = run.model(torch.tensor([tokens]))[0]
    expected = by_hand(state(len(CHARACTERS), bias), tokens)
    assert (found - expected).abs().max() < 1e-5 * expected.abs().max()
    assert run.model.config.tie_head
    ids = {character: number for number, character in enumerate(CHARACTERS)}
    assert run.tokenizer.encode("to be").tolist() == [ids[character] for character in "to be"]
    assert run.tokenizer.decode(range(len(CHARACTERS))) == "".join(CHARACTERS)
    assert run.tokenizer.start == ids["\n"]
    vitral.export(run.folder.path, tmp_path / "out", to="gpt2", proof=False)
    back = load_run(import_model(tmp_path / "out", tmp_path / "back").path)
    assert back.tokenizer == run.tokenizer
    with torch.inference_mode():
        assert torch.equal(back.model(torch.tensor([tokens]))[0], found)
    origin = run.sealed.imported
    assert origin is not None
    assert set(origin["files"]) == {"ckpt.pt", "input.txt"}
    assert (origin["config"]["iter_num"], origin["config"]["best_val_loss"]) == (250, 1.5)
    assert origin["config"]["dataset"] == "shakespeare_char"


def test_rows_without_a_token_are_kept_said_and_never_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "out").mkdir()
    checkpoint(tmp_path / "out" / "ckpt.pt", rows=300)
    ranks = tmp_path / "gpt2.tiktoken"
    ranks.write_text("".join(f"{b64encode(bytes([byte])).decode()} {byte}\n" for byte in range(256)))
    ids = tmp_path / "tokens.toml"
    ids.write_text('ranks = "gpt2.tiktoken"\npattern = "."\nspecial_tokens = { "<|endoftext|>" = 256 }\n')
    assert cli(["import", str(tmp_path / "out"), "--tokenizer", str(ids), "--out", str(tmp_path / "run")]) == 0
    assert "43" in capsys.readouterr().out
    tokenizer = load_run(tmp_path / "run").tokenizer
    assert tokenizer.name == "file"
    assert tokenizer.specials == tuple(range(257, 300))
    assert tokenizer.encode("a<|endoftext|>").tolist() == [97, 256]
    assert tokenizer.start == 256


class Harm:
    """Runs a command where it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return (Path.touch, (self.path,))


def harmful(path: Path) -> None:
    torch.save({"model": {}, "model_args": Harm(path.parent / "harm")}, path)


def damaged(change: Callable[[dict[str, Any]], Any]) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        held = torch.load(path, weights_only=True)
        change(held)
        torch.save(held, path)

    return damage


def truncated(path: Path) -> None:
    raw = path.read_bytes()
    path.write_bytes(raw[: len(raw) // 2])


def compressed(path: Path) -> None:
    with zipfile.ZipFile(path) as archive:
        inside = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, raw in inside.items():
            archive.writestr(name, raw)


def sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.write(b"PK\x03\x04")
        os.truncate(file.fileno(), 60 << 30)


FIRST = "transformer.h.0.ln_1.weight"
DAMAGES: dict[str, Callable[[Path], Any]] = {
    "a program": harmful,
    "truncated": truncated,
    "a bare pickle": lambda path: path.write_bytes(pickle.dumps({"model": 1})),
    "compressed": compressed,
    "no model": damaged(lambda held: held.pop("model")),
    "an argument missing": damaged(lambda held: held["model_args"].pop("n_head")),
    "an endless number": damaged(lambda held: held["model_args"].update(dropout=float("nan"))),
    "other rows": damaged(lambda held: held["model_args"].update(vocab_size=50304)),
    "a number as tensor": damaged(lambda held: held["model"].update({FIRST: 3})),
    "larger than its file": damaged(lambda held: held["model"].update({FIRST: torch.ones(1).expand(1 << 40)})),
    "60 GB of zeros that begin as an archive": sparse,
}
if hasattr(os, "mkfifo"):
    DAMAGES["a pipe"] = lambda path: (path.unlink(), os.mkfifo(path))
    DAMAGES["a device without an end"] = lambda path: (path.unlink(), path.symlink_to("/dev/zero"))


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_checkpoint_is_refused_in_one_line_and_leaves_nothing(
    damage: str, text: Path, tmp_path: Path
) -> None:
    source = checkpoint(tmp_path / "ckpt.pt")
    DAMAGES[damage](source)
    with pytest.raises(UsageError) as refused:
        import_model(source, tmp_path / "runs" / "run", tokenizer=text)
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "runs").exists()
    assert not (tmp_path / "harm").exists()


def test_without_a_tokenizer_or_with_that_of_another_text_it_is_refused(text: Path, tmp_path: Path) -> None:
    source = checkpoint(tmp_path / "ckpt.pt")
    (tmp_path / "meta.pkl").write_bytes(pickle.dumps(Harm(tmp_path / "harm")))
    (tmp_path / "other.txt").write_text("another text")
    (tmp_path / "binary.txt").write_bytes(b"\xff\xfe\x00")
    for given in (None, "meta.pkl", "other.txt", "binary.txt", "nowhere.txt"):
        with pytest.raises(UsageError):
            import_model(source, tmp_path / "run", tokenizer=None if given is None else tmp_path / given)
    assert not (tmp_path / "run").exists()
    assert not (tmp_path / "harm").exists()


def test_the_tokenizer_of_the_hub_is_fetched_alone(tmp_path: Path) -> None:
    (tmp_path / "hub").mkdir()
    (tmp_path / "hub" / "tokenizer.json").write_text(byte_tokenizer().document)
    asked: list[str] = []

    def download(name: str, revision: str, allow_patterns: list[str]) -> str:
        asked.extend(allow_patterns)
        return str(tmp_path / "hub")

    hub = SimpleNamespace(
        model_info=lambda name, revision: SimpleNamespace(sha="0123456789" * 4), snapshot_download=download
    )
    source = checkpoint(tmp_path / "ckpt.pt", rows=256)
    run = import_model(source, tmp_path / "run", tokenizer="hf:someone/gpt2", hub=hub)
    assert load_run(run.path).tokenizer == byte_tokenizer()
    assert not any("safetensors" in pattern for pattern in asked)
    assert json.loads((run.path / "corpus.json").read_text())["imported"]["form"] == "nanogpt"

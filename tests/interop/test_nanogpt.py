"""Checkpoints of nanoGPT, and tokenizers from files of any kind."""

import base64
import json
import os
import pickle
import random
import re
import sys
import zipfile
from base64 import b64encode
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from foreign import difference, hub_of
from nanogpt import saved, state

import vitral
from tests.interop.conftest import by_hand
from vitral.app.terminal import run as cli
from vitral.core.errors import UsageError
from vitral.data import bpe_tokenizer, byte_tokenizer, char_tokenizer
from vitral.data.engines import learn_merges
from vitral.interop import import_model
from vitral.interop.token_files import read_ranks, tokenizer_from
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
    assert difference(found, expected) < 1e-5
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
    with pytest.raises(UsageError):
        import_model(source, tmp_path / "runs" / "run", tokenizer=text)
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


def test_the_tokenizer_of_the_hub_is_fetched_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "hub").mkdir()
    (tmp_path / "hub" / "tokenizer.json").write_text(byte_tokenizer().document)
    hub = hub_of(tmp_path / "hub")
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)
    source = checkpoint(tmp_path / "ckpt.pt", rows=256)
    run = import_model(source, tmp_path / "run", tokenizer="hf:someone/gpt2")
    assert load_run(run.path).tokenizer == byte_tokenizer()
    assert not any("safetensors" in pattern for pattern in hub.snapshot_download.call_args.kwargs["allow_patterns"])
    assert json.loads((run.path / "corpus.json").read_text())["imported"]["form"] == "nanogpt"


SAMPLE = (
    "the cat sat on the mat; that cat's hat, 1234567 hats!\n\n  Two  thousand\thats?  \n\nÁgua é o que há — não? \n"
)
END = "<|end|>"
SPLIT = re.compile(r"[A-Za-z]+|[0-9]{1,3}|\s+|.", re.DOTALL)
"""Like the pattern that the files of these tests name, in Python's own language."""
PATTERN = r"[A-Za-z]+|[0-9]{1,3}+|\s+|."


def joined_by_hand(ranks: dict[bytes, int], text: str) -> list[int]:
    """The ids: a word that is a token is one; else its leftmost neighbours of the lowest rank are joined in turn."""
    ids = []
    for word in SPLIT.findall(text):
        whole = word.encode()
        parts = [whole] if whole in ranks else [bytes([byte]) for byte in whole]
        while pairs := [
            (ranks[pair], at) for at in range(len(parts) - 1) if (pair := b"".join(parts[at : at + 2])) in ranks
        ]:
            at = min(pairs)[1]
            parts[at : at + 2] = [b"".join(parts[at : at + 2])]
        ids += [ranks[part] for part in parts]
    return ids


def write(folder: Path, ranks: dict[bytes, int], name: str = "my.tiktoken") -> Path:
    path = folder / name
    path.write_bytes(b"".join(base64.b64encode(token) + b" %d\n" % rank for token, rank in ranks.items()))
    return path


def described(folder: Path, **keys: str) -> Path:
    path = folder / "tokens.toml"
    path.write_text("\n".join(f"{key} = {value}" for key, value in keys.items()))
    return path


def learned() -> dict[bytes, int]:
    """The byte pairs of a text by rank."""
    tokenizer = bpe_tokenizer(learn_merges([SAMPLE], 280))
    return {tokenizer.token_bytes(token): token for token in range(tokenizer.vocab_size)}


def drawn_ranks() -> dict[bytes, int]:
    """A vocabulary that no training made."""
    drawn, tokens = random.Random(5), [bytes([byte]) for byte in range(256)]
    while len(tokens) < 300:
        new = b"".join(drawn.choices(tokens[97:101] + tokens[256:], k=2))
        if new not in tokens and len(new) < 9:
            tokens.append(new)
    return {token: rank for rank, token in enumerate(tokens)}


@pytest.mark.parametrize(("ranks", "letters"), [(learned(), SAMPLE + "ab12"), (drawn_ranks(), "abcd")])
def test_ids_are_those_of_joining_by_hand(ranks: dict[bytes, int], letters: str, tmp_path: Path) -> None:
    write(tmp_path, ranks)
    path = described(
        tmp_path, ranks="'my.tiktoken'", pattern=f"'{PATTERN}'", special_tokens=f"{{ '{END}' = 310, '<|pad|>' = 305 }}"
    )
    tokenizer, files = tokenizer_from(path, 320)
    assert set(files) == {"tokens.toml", "my.tiktoken"}
    drawn = random.Random(7)
    texts = [SAMPLE, "", "the", "hatshats", *("".join(drawn.choices(letters, k=50)) for _ in range(60))]
    for text in texts:
        assert tokenizer.encode(text).tolist() == joined_by_hand(ranks, text)
        assert tokenizer.decode(tokenizer.encode(text)) == text
    the, cat = joined_by_hand(ranks, "the"), joined_by_hand(ranks, "cat")
    assert tokenizer.encode(f"the{END}cat").tolist() == [*the, 310, *cat]
    assert tokenizer.decode([305, 310]) == f"<|pad|>{END}"


def test_characters_in_an_order_of_their_own(tmp_path: Path) -> None:
    tokenizer, _ = tokenizer_from(described(tmp_path, characters=r'" _\nabA"'), 6)
    assert tokenizer.encode("Ab a").tolist() == [5, 4, 0, 3]
    assert tokenizer.start == 2
    padded, _ = tokenizer_from(described(tmp_path, characters=r'" _\nabA"', pad="true"), 7)
    assert padded == char_tokenizer(" _\nabA")


GOOD = {token: rank for rank, token in enumerate(bytes([byte]) for byte in range(256))}
BAD_LINES = {
    "no base64": "*** 3\n",
    "twice": "YQ== 300\n",
    "a rank twice": "YWI= 97\n",
}


@pytest.mark.parametrize("line", BAD_LINES)
def test_a_damaged_file_of_ranks_is_refused(line: str, tmp_path: Path) -> None:
    path = write(tmp_path, GOOD, "gpt2.tiktoken")
    assert len(read_ranks(path.read_bytes(), path)) == 256
    path.write_bytes(path.read_bytes() + BAD_LINES[line].encode())
    with pytest.raises(UsageError, match=r"gpt2\.tiktoken"):
        tokenizer_from(path, 50257)


BAD_TABLES: dict[str, dict[str, str]] = {
    "neither": {},
    "both": {"ranks": "'my.tiktoken'", "characters": "'ab'"},
    "a pattern that is none": {"ranks": "'my.tiktoken'", "pattern": "'('"},
    "a pattern that means another there": {"ranks": "'my.tiktoken'", "pattern": "'a{1,3}+b'"},
    "an id that is taken": {"ranks": "'my.tiktoken'", "pattern": "'.'", "special_tokens": "{ x1 = 3 }"},
    "an id that no tokenizer can have": {
        "ranks": "'my.tiktoken'",
        "pattern": "'.'",
        "special_tokens": "{ x1 = 99999999999 }",
    },
    "a character twice": {"characters": "'aba'"},
    "another number of characters": {"characters": "'abc'"},
    "a byte missing": {"ranks": "'short.tiktoken'", "pattern": "'.'"},
}


@pytest.mark.parametrize("table", BAD_TABLES)
def test_a_table_that_says_no_tokenizer_is_refused(table: str, tmp_path: Path) -> None:
    write(tmp_path, GOOD)
    write(tmp_path, dict(list(GOOD.items())[:100]), "short.tiktoken")
    with pytest.raises(UsageError):
        tokenizer_from(described(tmp_path, **BAD_TABLES[table]), 300)


def test_ranks_of_an_unknown_name_need_their_pattern(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="pattern"):
        tokenizer_from(write(tmp_path, GOOD), 300)

"""A text in shards: equal bytes however they were made, windows across shards, refusals of what is not whole."""

import functools
import hashlib
import json
import os
import random
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from vitral.core.errors import UsageError
from vitral.core.files import temporary_name
from vitral.core.guarded import GuardedFolder
from vitral.data import (
    Batches,
    CorpusConfig,
    Shards,
    ShuffledBatches,
    Split,
    load_corpus,
    making_shards,
    prepare,
    windows,
)
from vitral.data.long_texts import pieces
from vitral.data.making_shards import make_shard, make_shards, run_share, seal, share
from vitral.data.presplit import SourceFile, Stream
from vitral.data.shard_plan import plan_shards
from vitral.data.shards import held_out
from vitral.data.tokenizers import build_tokenizer

PIECE, PIECES = 1009, 7
BEGUN: dict[str, Any] = {"piece_bytes": PIECE, "shard_pieces": PIECES}
WORDS = ["of", "glass", "janela", "não", "coração", "ἀλήθεια", "窗戶", "🪟", "it's", "12", "\u3000wide", "—", "“we’ll”"]


def words(seed: int, number: int) -> str:
    drawn = random.Random(seed)
    ends = ["\n", " ", "  ", "\n\n", "\t", ", ", ". "]
    return "".join(drawn.choice(WORDS) + drawn.choice(ends) for _ in range(number))


def digests(folder: Path) -> dict[str, str]:
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of files of several scripts, of many sizes, one with a byte order mark, one with other line ends."""
    folder = tmp_path_factory.mktemp("shards") / "text"
    folder.mkdir()
    for number, size in enumerate((2003, 1, 997, 3001)):
        (folder / f"{number}.txt").write_bytes(words(number, size).encode())
    (folder / "4.txt").write_bytes(b"\xef\xbb\xbf" + words(4, 499).encode())
    (folder / "5.txt").write_bytes(words(5, 701).replace("\n", "\r\n").encode())
    (folder / "6.bin").write_bytes(b"\x00\x01\xff")
    return folder


@pytest.mark.parametrize("last", ["tokenizer.json", "unfinished.json"])
def test_killed_while_it_is_planned(last: str, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before there is a plan; what somebody else has put there is refused as before."""
    out, whole = tmp_path / "out", GuardedFolder.write

    def write(folder: GuardedFolder, name: str, content: bytes) -> None:
        if name == last:
            (out / temporary_name(name).replace(f"-{os.getpid()}-", "-999999999-")).write_bytes(content[:7])
            raise KeyboardInterrupt
        whole(folder, name, content)

    monkeypatch.setattr(GuardedFolder, "write", write)
    with pytest.raises(KeyboardInterrupt):
        make_shards(config(text, "char"), out, **BEGUN)
    monkeypatch.undo()
    (out / "notes.txt").write_bytes(b"mine")
    with pytest.raises(UsageError, match="not empty"):
        make_shards(config(text, "char"), out, **BEGUN)
    (out / "notes.txt").unlink()
    make_shards(config(text, "char"), out, **BEGUN)
    assert digests(out) == digests(made(text, "char").path)


@functools.cache
def made(text: Path, tokenizer: str) -> Shards:
    return make_shards(config(text, tokenizer), text.parent / tokenizer, **BEGUN)


def config(text: Path, tokenizer: str = "bpe:300") -> CorpusConfig:
    return CorpusConfig.parse({"source": str(text), "tokenizer": tokenizer})


def in_memory(shards: Shards) -> np.ndarray:
    return np.concatenate([shards.tokens(number) for number in range(len(shards.shards))])


@pytest.mark.parametrize("tokenizer", ["char", "byte", "bpe:300"])
def test_the_tokens_are_those_of_the_whole_text(text: Path, tokenizer: str) -> None:
    shards, whole = made(text, tokenizer), str(load_corpus(config(text)).text)
    assert len(shards.shards) > 3
    assert np.array_equal(in_memory(shards), shards.tokenizer.encode(whole))
    assert {(shard.cut_words, shard.file[-4:]) for shard in shards.shards} == {(0, ".bin")}
    corpus = load_corpus(config(shards.path, tokenizer))
    assert "".join(pieces(corpus.text)) == whole
    assert corpus.text[5:-7] == whole[5:-7]
    assert len(corpus.text) == len(whole)
    shards.verify()


@pytest.mark.parametrize("tokenizer", ["char", "bpe:300"])
def test_every_token_is_in_one_split_and_pieces_are_spread(text: Path, tokenizer: str) -> None:
    shards = made(text, tokenizer)
    splits, blocks, whole = shards.splits(), shards.blocks(), str(load_corpus(config(text)).text)
    assert sum(len(split.tokens) for split in splits.values()) == shards.num_tokens
    for name, split in splits.items():
        characters = "".join(whole[begin:end] for begin, end in blocks[name])
        assert shards.tokenizer.decode(np.asarray(split.tokens)) == characters
        by_segment = [shards.tokenizer.decode(split.tokens[begin:end]) for begin, end in split.segments]
        assert by_segment == [whole[run[0][0] : run[-1][1]] for run in blocks[name].runs()]
    number = shards.manifest["cut"]["pieces"]
    assert number * 0.05 < list(held_out(number).values()).count("test") < number * 0.15
    # characters and bytes of one text have the same held-out text
    assert [list(blocks[name]) for name in blocks] == [list(made(text, "byte").blocks()[name]) for name in blocks]


def test_windows_over_shards_are_those_of_one_array(text: Path) -> None:
    for split in made(text, "char").splits().values():
        one = Split(np.asarray(split.tokens), split.segments)
        kept = {"context_length": 13, "batch_size": 11, "seed": 3}
        for both in (
            [Batches(each, **kept) for each in (split, one)],
            [ShuffledBatches(each, **kept, accumulation=3) for each in (split, one)],
        ):
            for step in range(40):
                assert all(map(torch.equal, *(each.batch(step, 2) for each in both)))
        pairs = zip(windows(split, 13, 5), windows(one, 13, 5), strict=True)
        assert all(torch.equal(x, y) and torch.equal(t, u) for (x, t), (y, u) in pairs)
        assert np.array_equal(split.tokens[3:-5], one.tokens[3:-5])


@pytest.mark.merge
@pytest.mark.skipif(sys.platform == "win32", reason="no SIGKILL")
def test_other_processes_make_the_same_bytes_and_a_killed_one_costs_nothing_but_time(
    text: Path, tmp_path: Path
) -> None:
    out, killed = tmp_path / "three", list[int]()

    def kill(done: int, number: int) -> None:
        import multiprocessing

        if done and not killed and (workers := multiprocessing.active_children()):
            os.kill(workers[0].pid or 0, signal.SIGKILL)
            killed.append(done)

    make_shards(config(text), out, workers=2, **BEGUN, tick=kill)
    assert killed
    assert digests(out) == digests(made(text, "bpe:300").path)


def test_what_was_begun_is_gone_on_with(text: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    plan_shards(config(text), out, **BEGUN)
    with pytest.raises(UsageError, match="not finished"):
        load_corpus(config(out))
    make_shard(out, 1)
    there = (out / "shards/000001.bin").stat()
    with pytest.raises(UsageError, match="000000"):
        seal(out)
    os.utime(text / "0.txt")  # the same bytes, written again
    plan_shards(config(text), out, **BEGUN)
    run_share(str(out), None, 1, 2)
    share(str(out), 0, 2)
    seal(out)
    assert (out / "shards/000001.bin").stat() == there
    assert digests(out) == digests(made(text, "bpe:300").path)
    assert make_shards(config(text), out, **BEGUN).sha256 == made(text, "bpe:300").sha256


LOOKS = ["plan_of", "_missing", "_record"]
WAYS = {"make_shards": LOOKS, "seal": LOOKS, "make_shard": LOOKS[:1], "share": LOOKS[:1]}


@pytest.mark.parametrize(("way", "moment"), [(way, moment) for way in WAYS for moment in WAYS[way]])
def test_another_process_finishes_the_same_shards(
    way: str, moment: str, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between two looks at the folder: the plan and the records are gone then, and nothing is amiss."""
    out, whole = tmp_path / "out", getattr(making_shards, moment)
    plan_shards(config(text, "char"), out, **BEGUN)
    share(str(out), 0, 2)
    if way == "seal":
        share(str(out), 1, 2)

    def late(*given: Any) -> Any:
        monkeypatch.undo()
        make_shards(config(text, "char"), out, **BEGUN)
        return whole(*given)

    monkeypatch.setattr(making_shards, moment, late)
    last = len(made(text, "char").shards) - 1
    ways: dict[str, Callable[[], object]] = {
        "make_shards": lambda: make_shards(config(text, "char"), out, **BEGUN),
        "seal": lambda: seal(out),
        "make_shard": lambda: make_shard(out, last - (last % 2 == 0)),
        "share": lambda: share(str(out), 1, 2),
    }
    ways[way]()
    seal(out)
    assert digests(out) == digests(made(text, "char").path)


def test_other_texts_and_other_choices_are_refused(text: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    plan_shards(config(text), out, **BEGUN)
    with pytest.raises(UsageError, match="tokenizer"):
        plan_shards(config(text, "char"), out, **BEGUN)
    with pytest.raises(UsageError, match="piece_bytes"):
        plan_shards(config(text), out, piece_bytes=2 * PIECE, shard_pieces=PIECES)
    with pytest.raises(UsageError, match="not empty"):
        plan_shards(config(text), text, **BEGUN)
    other = tmp_path / "other"
    other.mkdir()
    (other / "0.txt").write_text("x" * 5000)
    with pytest.raises(UsageError, match=r"0\.txt"):
        plan_shards(config(other), out, **BEGUN)
    with pytest.raises(UsageError, match="too short"):
        plan_shards(config(other), tmp_path / "new")
    for key, value in {"encoding": "cp1252", "field": "text", "share": 0.5, "also": ["sample"]}.items():
        with pytest.raises(UsageError, match=key):
            plan_shards(CorpusConfig.parse({"source": str(text), key: value}), tmp_path / "new")
    (out / "unfinished.json").write_bytes(b"{}")
    with pytest.raises(UsageError, match=r"unfinished\.json"):
        plan_shards(config(text), out, **BEGUN)
    with pytest.raises(UsageError, match="no-such"):
        plan_shards(config(tmp_path / "no-such"), tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_a_file_that_changes_in_between_is_refused(text: Path, tmp_path: Path) -> None:
    changing = tmp_path / "text.txt"
    raw = words(9, 5003).encode()
    changing.write_bytes(raw)
    plan_shards(config(changing), tmp_path / "out", **BEGUN)
    changing.write_bytes(raw.replace(b"glass", b"grass"))
    os.utime(changing, ns=(1, 1))
    with pytest.raises(UsageError, match=r"text\.txt"):
        make_shard(tmp_path / "out", 0)
    with pytest.raises(UsageError, match=r"text\.txt"):
        plan_shards(config(changing), tmp_path / "out", **BEGUN)


@pytest.fixture
def copied(text: Path, tmp_path: Path) -> Path:
    return shutil.copytree(made(text, "char").path, tmp_path / "copy")


def test_what_is_not_whole_is_named(copied: Path) -> None:
    shard, intact = copied / "shards/000002.bin", (copied / "shards/000002.bin").read_bytes()
    shard.write_bytes(intact[:-1])
    with pytest.raises(UsageError, match="000002"):
        prepare(config(copied, "char"))
    shard.unlink()
    with pytest.raises(UsageError, match="000002"):
        prepare(config(copied, "char"))
    shard.write_bytes(bytes([intact[0] ^ 1]) + intact[1:])
    damaged = prepare(config(copied, "char"))
    with pytest.raises(UsageError, match="000002"):
        Shards(copied).verify()
    shard.write_bytes(b"\xff" * len(intact))
    with pytest.raises(UsageError, match="vocabulary"):
        np.asarray(damaged.splits["train"].tokens)
    shard.write_bytes(intact)
    Shards(copied).verify()
    for name in ("shards.json", "tokenizer.json"):
        before = (copied / name).read_bytes()
        for raw in (before[:-2], before.replace(b"1", b"2", 1), b"", b"[]", b"{}"):
            (copied / name).write_bytes(raw)
            with pytest.raises(UsageError, match=name):
                Shards(copied)
        (copied / name).write_bytes(before)
    (copied / "tokenizer.json").unlink()
    with pytest.raises(UsageError, match="tokenizer"):
        Shards(copied)


def test_a_run_keeps_to_what_was_decided(copied: Path, text: Path) -> None:
    with pytest.raises(UsageError, match="tokenizer"):
        prepare(config(copied, "byte"))
    with pytest.raises(UsageError, match="split"):
        prepare(CorpusConfig.parse({"source": str(copied), "split": "tail"}))
    with pytest.raises(UsageError, match="another tokenizer"):
        prepare(config(copied, "char"), tokenizer=made(text, "byte").tokenizer)
    described = prepare(config(copied, "char")).describe()
    assert described["split"]["method"] == "pieces"
    assert described["sha256"] == hashlib.sha256((copied / "shards.json").read_bytes()).hexdigest()
    manifest = json.loads((copied / "shards.json").read_bytes())
    assert [file["path"] for file in manifest["text"]["files"]] == [f"{number}.txt" for number in range(6)]


PARTS = ["a", "é", "窗", "🪟", " ", " ", "\n", "\r", "\t", "'", "s", "1", ".", "\u2003", "\x1c", "<|s|>", "<|", "|>"]
TEXTS = st.lists(st.sampled_from(PARTS), min_size=1, max_size=300).map("".join)


@given(TEXTS, TEXTS, st.sampled_from([31, 37, 61]), st.sampled_from(["lf", "keep"]))
def test_tokens_never_depend_on_the_cuts(
    tmp_path_factory: pytest.TempPathFactory, one: str, two: str, piece: int, newlines: str
) -> None:
    folder = tmp_path_factory.mktemp("cuts")
    files = []
    for number, text in enumerate((one, two)):
        (folder / str(number)).write_bytes(text.encode())
        status = (folder / str(number)).stat()
        files.append(SourceFile(folder / str(number), (status.st_size, status.st_mtime_ns)))
    special = ("<|s|>",)
    stream = Stream(tuple(files), "\n\n", newlines, special, piece)
    begins = [stream.begin(number) for number in range(stream.num_pieces + 1)]
    assert sorted({begin for begin, _ in begins}) == [begin for begin, _ in begins]
    parts = [stream.piece(number) for number in range(stream.num_pieces)]
    expected = "\n\n".join(
        text.replace("\r\n", "\n").replace("\r", "\n") if newlines == "lf" else text for text in (one, two)
    )
    assert "".join(parts) == expected
    if not any(forced for _, forced in begins):
        tokenizer = MERGED
        whole = tokenizer.encode(expected).tolist()
        assert [token for part in parts for token in tokenizer.encode(part).tolist()] == whole


MERGED = build_tokenizer(
    CorpusConfig.parse({"source": "x", "tokenizer": "bpe:400", "specials": ["<|s|>"]}), words(1, 3001), [words(1, 3001)]
)

"""A text that stays on the disk is the same text: same characters, tokens, report, complaints, in little memory."""

import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from vitral.core.errors import UsageError
from vitral.data import SPLITS, Corpus, CorpusConfig, corpus_report, load_corpus, prepare, texts
from vitral.data.batches import Split, thinned
from vitral.data.long_texts import LongText, pieces
from vitral.data.texts import decode_document, reading_notes

TRICKY = st.text(st.sampled_from("ab\r\n é😀\u0301\ufeff"), min_size=1, max_size=120)
NOT_NEW_EACH_TIME = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture
def long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every file is long, and read in pieces of a few bytes."""
    monkeypatch.setattr(texts, "LONG", 0)
    monkeypatch.setattr(texts, "PIECE", 11)


@pytest.mark.usefixtures("long")
@NOT_NEW_EACH_TIME
@given(TRICKY.filter(lambda text: text.strip("\ufeff")), st.booleans(), st.sampled_from(["lf", "keep"]), st.data())
def test_it_is_the_text_of_the_file(
    tmp_path: Path, text: str, has_mark: bool, newlines: str, data: st.DataObject
) -> None:
    raw = (b"\xef\xbb\xbf" if has_mark else b"") + text.encode()
    (tmp_path / "x.txt").write_bytes(raw)
    config = CorpusConfig.parse({"source": str(tmp_path / "x.txt"), "newlines": newlines})
    expected, result = decode_document(raw, "x", config), load_corpus(config)
    assert isinstance(result.text, LongText)
    assert "".join(pieces(result.text)) == expected.text
    assert len(result.text) == len(expected.text)
    begin, end = (data.draw(st.integers(-1, len(expected.text) + 2)) for _ in range(2))
    assert result.text[begin:end] == expected.text[begin:end]
    assert (result.num_bytes, result.sha256) == (expected.num_bytes, expected.sha256)
    assert result.notes == tuple(reading_notes([expected], config))
    assert not [a for a, b in pairwise(result.text.pieces()) if a.endswith("\r") and b.startswith("\n")]


@pytest.mark.usefixtures("long")
def test_a_file_that_changes_meanwhile_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.txt"
    path.write_text("a text of some length\n" * 3000)
    corpus: Corpus = load_corpus(CorpusConfig(source=str(path)))
    with path.open("a") as file:
        file.write("more")
    with pytest.raises(UsageError, match=r"x\.txt: has changed while it was read"):
        prepare(CorpusConfig(source=str(path)), corpus=corpus)
    path.unlink()
    with pytest.raises(UsageError, match=r"x\.txt: cannot be read"):
        corpus.text[0:5]


@given(st.lists(st.integers(0, 400), min_size=1, max_size=30), st.integers(1, 2000))
@example([51], 44)  # pieces as many as wanted are too long
def test_a_thinned_part_is_some_of_it(lengths: list[int], most: int) -> None:
    ends = np.cumsum([0, *lengths])
    part = Split(np.arange(ends[-1]), np.stack([ends[:-1], ends[1:]], axis=1))
    few = thinned(part, most)
    kept = [token for begin, end in few.segments.tolist() for token in range(begin, end)]
    assert kept == sorted(set(kept))  # none twice
    assert len(kept) <= max(most, 0) or len(kept) == ends[-1]
    assert few is part or 0 < len(kept) <= most
    whole = {(begin, end) for begin, end in part.segments.tolist()}
    assert all(any(b <= begin and end <= e for b, e in whole) for begin, end in few.segments.tolist())
    assert thinned(part, None) is part


def outcome(config: CorpusConfig, cache: Path) -> tuple:
    """Everything that is made of a text, with a cache of its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VITRAL_CACHE", str(cache))
        corpus = load_corpus(config)
        dataset = prepare(config, corpus=corpus)
    report = corpus_report(dataset, corpus.text, context_length=17, batch_size=3)
    parts = {part: (dataset.splits[part].tokens.tolist(), dataset.splits[part].segments.tolist()) for part in SPLITS}
    return dataset.describe(), parts, report


@pytest.mark.parametrize(
    ("tokenizer", "split", "specials"),
    [
        ("char", "blocks", None),
        ("byte", "tail", ["<|end|>", "ão"]),
        ({"name": "bpe", "vocab_size": 270}, "blocks", ["<|end|>", "ão"]),
    ],
    ids=str,
)
def test_tokens_and_report_are_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tokenizer: object, split: str, specials: list[str] | None
) -> None:
    lines = (f"{n}. São {n % 7} é, e\u0301, Ã© ﬂ\r\n{'x' * (n % 97)}{(specials or [''])[0]}\n" for n in range(1000))
    (tmp_path / "x.txt").write_bytes(("".join(lines) + "😀").encode())
    config = {"source": str(tmp_path / "x.txt"), "tokenizer": tokenizer, "split": split, "specials": specials or []}
    short = outcome(CorpusConfig.parse(config), tmp_path / "short")
    monkeypatch.setattr(texts, "LONG", 0)
    monkeypatch.setattr(texts, "PIECE", 1013)
    assert outcome(CorpusConfig.parse(config), tmp_path / "long") == short
    assert not list((tmp_path / "long" / "tokens").glob(".*"))  # nothing left behind


def test_a_folder_with_a_large_file_gives_the_tokens_and_the_report_of_a_small_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "books"
    folder.mkdir()
    for number in range(7):
        words = " ".join(np.random.default_rng(number).choice(["sea", "the", "wind,", "não\n", "sang"], 900))
        (folder / f"{number}.txt").write_text(words * (1 + 3 * (number == 3)), encoding="utf-8")
    config = CorpusConfig.parse({"source": str(folder), "tokenizer": "char"})
    small = outcome(config, tmp_path / "one")
    monkeypatch.setattr(texts, "LONG", 9000)
    monkeypatch.setattr(texts, "PIECE", 1013)
    assert outcome(config, tmp_path / "other") == small
    assert isinstance(load_corpus(config).text, LongText)


MEASURE = """
import sys, threading
from pathlib import Path
import vitral
from vitral.data import texts
from vitral.training import train

def anonymous():
    fields = dict(line.split(":") for line in Path("/proc/self/status").read_text().splitlines())
    return int(fields["RssAnon"].split()[0]) / 1024

texts.LONG = 1 << 24
model = {"d_model": 12, "num_heads": 2, "num_layers": 1, "context_length": 128}  # the text is asked, not the model
training = {"steps": 3, "evaluation_tokens": 10_000}
config = vitral.configure("fast", corpus=sys.argv[1], overrides=[{"model": model, "training": training}])
before, peak, done = anonymous(), 0.0, threading.Event()

def watch():
    global peak  # the most that was seen
    while not done.wait(0.002):
        peak = max(peak, anonymous())

threading.Thread(target=watch, daemon=True).start()
train(config, Path(sys.argv[2]))
done.set()
print(peak - before)
"""


@pytest.mark.full
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="only Linux tells what memory is anonymous")
def test_a_large_file_needs_less_memory_than_it_has_bytes(tmp_path: Path) -> None:
    line = "Something “is” written here, and it goes on and on.\n".encode()
    environment = {"VITRAL_CACHE": str(tmp_path / "cache"), "PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1"}
    (tmp_path / "book.txt").write_bytes(line * (300_000_000 // len(line)))
    command = [sys.executable, "-c", MEASURE, str(tmp_path / "book.txt"), str(tmp_path / "run")]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert float(ran.stdout) < 300

"""What is read once, in pieces and by several threads, is what a plain loop over the whole text finds."""

import hashlib
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vitral.data import (
    SPLITS,
    Blocks,
    BPETokenizer,
    ByteTokenizer,
    CharTokenizer,
    CorpusConfig,
    DeclaringTokenizer,
    LongText,
    Tokenizer,
    UnseenCharacter,
    alphabet,
    corpus_report,
    encode_splits,
    encoded,
    in_order,
    load_corpus,
    prepare,
    report,
    texts,
)
from vitral.data.alphabet import character_counts
from vitral.data.long_texts import hash_text, pieces, text_counts
from vitral.data.texts import Reading, read_document

LETTERS = "ab\r\n é😀\u0301\ufeffÂÃ©â€”\x80"
WRITTEN = st.text(st.sampled_from(LETTERS), min_size=20, max_size=150)
NOT_NEW_EACH_TIME = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
TOKENIZERS: list[Tokenizer] = [
    CharTokenizer("".join(sorted(LETTERS))),
    CharTokenizer("\n\r abé"),
    ByteTokenizer(),
    BPETokenizer(((97, 98), (256, 97), (195, 169))),
    DeclaringTokenizer(CharTokenizer("".join(sorted(LETTERS))), (("ab\n", 17), ("é😀", 18))),
]


@pytest.fixture(params=[1, 3])
def small(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces of a few characters, by one thread or by three; every file is long."""
    monkeypatch.setattr(in_order, "cores", lambda: request.param)
    monkeypatch.setattr(alphabet, "_CHUNK", 3)
    monkeypatch.setattr(report, "_CHUNK", 5)
    monkeypatch.setattr(encoded, "_TOGETHER", 13)
    monkeypatch.setattr(texts, "LONG", 0)
    monkeypatch.setattr(texts, "PIECE", 11)


@st.composite
def cut(draw: st.DrawFn, length: int) -> dict[str, Blocks]:
    """Blocks of the three splits, with gaps between some."""
    borders = sorted({0, length, *draw(st.lists(st.integers(0, length), max_size=12))})
    spans: dict[str, list[tuple[int, int]]] = {split: [] for split in SPLITS}
    for number, span in enumerate(pairwise(borders)):
        # The first block is for training and so on, so that none is empty if there are enough.
        split = SPLITS[number] if number < 3 else draw(st.sampled_from([*SPLITS, None]))
        if split is not None:
            spans[split].append(span)
    apart = draw(st.booleans())
    return {split: Blocks(np.array(found or [(0, 1)]), apart=apart) for split, found in spans.items()}


def moved(text: str, border: int, specials: list[str]) -> int:
    """A border out of every special token that lies across it."""
    found = [at + len(one) for one in specials for at in range(border) if text.startswith(one, at)]
    # Of those that begin at one place the longest counts; all of these begin differently or are alone.
    return max([border, *(end for end in found if end > border)])


def plainly(
    text: str, blocks: dict[str, Blocks], tokenizer: Tokenizer, replacement: str | None
) -> Iterator[tuple[str, list[int], list[int]]]:
    """The tokens and lengths of the runs, block after block and split after split."""
    specials = [one for one, _ in tokenizer.declared] if isinstance(tokenizer, DeclaringTokenizer) else []
    for split in SPLITS:
        tokens, lengths, last = list[int](), list[int](), None
        for begin, end in blocks[split]:
            lengths += [] if begin == last and not blocks[split].apart else [0]
            first = moved(text, begin, specials)
            part = text[first : moved(text, end, specials)]
            if isinstance(tokenizer, CharTokenizer) and replacement is None:
                unknown = [at for at, letter in enumerate(part) if letter not in tokenizer.alphabet]
                if unknown:
                    raise UnseenCharacter(part[unknown[0]], first + unknown[0], "")
            ids = tokenizer.encode(part, replacement=replacement).tolist()
            tokens, last = tokens + ids, end
            lengths[-1] += len(ids)
        yield split, tokens, lengths


@pytest.mark.usefixtures("small")
@NOT_NEW_EACH_TIME
@given(WRITTEN, st.sampled_from(TOKENIZERS), st.sampled_from([None, "a"]), st.booleans(), st.data())
def test_tokens_are_those_of_each_block_alone(
    tmp_path: Path, text: str, tokenizer: Tokenizer, replacement: str | None, on_disk: bool, data: st.DataObject
) -> None:
    blocks = data.draw(cut(len(text)))
    unseen: tuple[str, int] | None = None
    expected = list[tuple[str, list[int], list[int]]]()
    try:
        expected += plainly(text, blocks, tokenizer, replacement)
    except UnseenCharacter as error:
        unseen = error.character, error.position
    if unseen is not None:
        with pytest.raises(UnseenCharacter) as refused:
            encode_splits(text, blocks, tokenizer, tmp_path if on_disk else None, (), replacement)
        assert (refused.value.character, refused.value.position) == unseen
        return
    if any(not tokens for _, tokens, _ in expected):  # a special token has taken all of a split
        return
    splits = encode_splits(text, blocks, tokenizer, tmp_path if on_disk else None, (), replacement)
    found = [
        (split, splits[split].tokens.tolist(), np.diff(splits[split].segments, axis=1)[:, 0].tolist())
        for split in SPLITS
    ]
    assert found == expected


@pytest.mark.usefixtures("small")
@NOT_NEW_EACH_TIME
@given(WRITTEN, st.booleans(), st.sampled_from(["lf", "keep"]))
def test_the_hash_and_the_characters_of_a_file_are_those_of_its_text(
    tmp_path: Path, text: str, has_mark: bool, newlines: str
) -> None:
    raw = text.lstrip("\ufeff").encode()
    (tmp_path / "x.txt").write_bytes(b"\xef\xbb\xbf" * has_mark + raw)
    found = read_document(tmp_path / "x.txt", Reading(newlines)).text
    plain = re.sub("\r\n?", "\n", raw.decode()) if newlines == "lf" else raw.decode()
    assert isinstance(found, LongText)
    assert found.sha256 == hash_text(plain) == hashlib.sha256(plain.encode()).hexdigest()
    assert found.counts == text_counts([plain]) == dict(sorted(Counter(plain).items()))
    assert "".join(pieces(found)) == plain


@pytest.mark.usefixtures("small")
@NOT_NEW_EACH_TIME
@given(st.lists(st.text(max_size=20), max_size=8))
def test_characters_are_counted(written: list[str]) -> None:
    assert character_counts(written) == dict(sorted(Counter("".join(written)).items()))


@pytest.mark.usefixtures("small")
@NOT_NEW_EACH_TIME
@given(WRITTEN, st.sampled_from(["lf", "keep"]), st.booleans())
def test_the_report_says_what_a_plain_look_finds(tmp_path: Path, text: str, newlines: str, is_long: bool) -> None:
    text = text.lstrip("\ufeff") + "abc" * 7 + "\n" * (len(text) % 2)
    (tmp_path / "x.txt").write_bytes(text.encode())
    config = CorpusConfig.parse({"source": str(tmp_path / "x.txt"), "split": "tail", "newlines": newlines})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(texts, "LONG", 0 if is_long else 1 << 20)
        corpus = load_corpus(config)
        dataset = prepare(config, corpus=corpus)
        found = corpus_report(dataset, corpus.text, context_length=2, batch_size=1)
    plain = re.sub("\r\n?", "\n", text) if newlines == "lf" else text
    ends, lines = re.findall("\r\n|\r|\n", plain), re.split("\r\n|\r|\n", plain)
    assert found.lines.endings == {
        name: ends.count(name.encode().decode("unicode_escape")) for name in found.lines.endings
    }
    assert found.lines.num_lines == len(lines) - (not lines[-1])
    assert found.lines.longest == max(map(len, lines))
    assert {entry.code_point: entry.count for entry in found.alphabet} == {
        f"U+{ord(letter):04X}": count for letter, count in Counter(plain).items()
    }
    held_out = {plain[at] for split in ("validation", "test") for span in dataset.blocks[split] for at in range(*span)}
    trained = {plain[at] for span in dataset.blocks["train"] for at in range(*span)}
    assert {entry.code_point for entry in found.unlearnable} == {f"U+{ord(one):04X}" for one in held_out - trained}
    saved = len(plain) - len(unicodedata.normalize("NFC", plain))
    assert any("combining accent" in problem for problem in found.problems) == (saved > 0)
    mangled = len(re.findall("[ÂÃ][\x80-\xbf]|â€", plain))
    assert any("Latin-1" in problem for problem in found.problems) == (mangled >= 5)
    told = [problem for problem in found.problems if "Latin-1" in problem or "combining" in problem]
    assert all(str(saved) in one or str(mangled) in one for one in told)

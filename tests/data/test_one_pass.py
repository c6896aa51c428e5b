"""What is read once, in pieces and by several threads, is what a plain loop over the whole text finds."""

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
    CorpusReport,
    DeclaringTokenizer,
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

LETTERS = "ab\r\n é😀\u0301\ufeffÂÃ©â€”\x80"
WRITTEN = st.text(st.sampled_from(LETTERS), min_size=20, max_size=150)
NOT_NEW_EACH_TIME = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
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
@given(WRITTEN, st.sampled_from(["lf", "keep"]), st.booleans())
def test_the_report_does_not_depend_on_the_pieces(tmp_path: Path, text: str, newlines: str, is_long: bool) -> None:
    (tmp_path / "x.txt").write_bytes((text.lstrip("\ufeff") + "abc" * 7 + "\n" * (len(text) % 2)).encode())
    config = CorpusConfig.parse({"source": str(tmp_path / "x.txt"), "split": "tail", "newlines": newlines})

    def reported() -> CorpusReport:
        corpus = load_corpus(config)
        return corpus_report(prepare(config, corpus=corpus), corpus.text, context_length=2, batch_size=1)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(texts, "LONG", 0 if is_long else 1 << 20)
        found = reported()
        for module, name in ((texts, "LONG"), (alphabet, "_CHUNK"), (report, "_CHUNK")):
            patch.setattr(module, name, 1 << 20)
        assert found == reported()

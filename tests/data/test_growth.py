"""Tokenizers that follow another text: ids are appended and keep their meaning."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vitral.core.errors import UsageError
from vitral.data import CorpusConfig, bpe_tokenizer, char_tokenizer, prepare
from vitral.data.tokenizers import extends, grown, with_special_tokens


def test_a_tokenizer_grows_again_and_again_with_special_tokens():
    first = with_special_tokens(char_tokenizer("ab"), ["<1>"])
    second = grown(first, ["cab<1>"], ["<2>", "<1>"])
    third = grown(second, ["zy"], ["<3>"])
    assert [third.label(token) for token in range(third.vocab_size)] == (
        ["<PAD>", "a", "b", "<1>", "c", "<2>", "y", "z", "<3>"]
    )
    for tokenizer, former in ((third, second), (second, first), (third, first)):
        assert extends(tokenizer, former)
    assert not extends(first, second)
    assert third.decode(third.encode("z<1>a<3><2>")) == "z<1>a<3><2>"


def test_equal_pieces_by_other_merges_are_another_tokenizer() -> None:
    first, second = (bpe_tokenizer([(97, 98), (98, 99), last]) for last in ((97, 257), (256, 99)))
    assert first.pieces == second.pieces
    assert first.encode("abc").tolist() != second.encode("abc").tolist()
    assert not extends(first, second)


@given(st.text(min_size=1), st.text(), st.lists(st.text(min_size=1, max_size=3), unique=True, max_size=3))
def test_old_texts_keep_their_tokens(text, new, specials):
    former = char_tokenizer("".join(sorted(set(text))))
    tokenizer = grown(former, [new], specials)
    assert extends(tokenizer, former)
    assert all(tokenizer.label(token) == former.label(token) for token in range(former.vocab_size))
    assert tokenizer.decode(tokenizer.encode(text)) == text
    if not any(special in text for special in specials):
        assert tokenizer.encode(text).tolist() == former.encode(text).tolist()


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "new.txt"
    path.write_text("abc é " * 60, encoding="utf-8")
    return path


def test_unknown_characters_grow_are_replaced_or_refused(text: Path) -> None:
    config, former = CorpusConfig.parse({"source": str(text), "split": "tail"}), char_tokenizer("ab ")
    with pytest.raises(UsageError, match="'c'"):
        prepare(config, tokenizer=former)
    wider = prepare(config, tokenizer=former, grow=True)
    assert wider.tokenizer == char_tokenizer("ab cé")
    assert any("new tokens: 2 (c é)" in note for note in wider.notes)
    replaced = prepare(config.model_copy(update={"replacement": "a"}), tokenizer=former, grow=True)
    assert replaced.tokenizer == former
    assert replaced.tokenizer.decode(replaced.splits["train"].tokens[:6]) == "aba a "
    assert any("120 characters, 2 different" in note for note in replaced.notes)
    other = prepare(config.model_copy(update={"replacement": "b"}), tokenizer=former, grow=True)
    assert len({dataset.fingerprint for dataset in (wider, replaced, other)}) == 3
    with pytest.raises(UsageError, match="alphabet"):
        prepare(config.model_copy(update={"replacement": "x"}), tokenizer=former, grow=True)
    with pytest.raises(UsageError, match=r"corpus\.replacement"):
        prepare(config.model_copy(update={"replacement": "a"}))

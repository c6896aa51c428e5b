import contextlib
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vitral.core.errors import UsageError
from vitral.data import (
    BPETokenizer,
    ByteTokenizer,
    CharTokenizer,
    CorpusConfig,
    Tokenizer,
    UnseenCharacter,
    build_tokenizer,
    tokenizer_from_plain,
)

TEXT = "Não há só um gato, há três.\n\tThe cat sat; the cat sat.\n😀 e\u0301 \x00 \u202e"
BPE = BPETokenizer(((116, 104), (256, 101), (195, 163)))


def build(name: str, text: str = TEXT) -> Tokenizer:
    return build_tokenizer(CorpusConfig.parse({"tokenizer": name}), text, [text[:40], text[40:]])


@pytest.mark.parametrize("name", ["char", "byte", "bpe"])
def test_a_text_and_a_tokenizer_come_back(name):
    tokenizer = build(name)
    ids = tokenizer.encode(TEXT)
    assert tokenizer.decode(ids) == TEXT
    assert (ids.dtype, ids.ndim) == (np.int64, 1)
    assert b"".join(tokenizer.token_bytes(int(token)) for token in ids) == TEXT.encode()
    assert tokenizer.encode("").shape == (0,)
    assert tokenizer.decode([]) == ""
    again = tokenizer_from_plain(json.loads(json.dumps(tokenizer.plain())))
    assert again == tokenizer
    assert again.encode(TEXT).tolist() == ids.tolist()
    labels = [tokenizer.label(token) for token in range(tokenizer.vocab_size)]
    assert all(label and label.isprintable() for label in labels)  # safe to print
    assert labels[int(tokenizer.encode(" ")[0])] == "␣"
    assert labels[tokenizer.start] == "\\n"


@given(st.text(min_size=1))
def test_every_text_survives(text):
    for tokenizer in (ByteTokenizer(), BPE, build("char", text)):
        assert tokenizer.decode(tokenizer.encode(text)) == text


def test_characters_are_numbered_by_code_point_after_pad():
    tokenizer = build("char", "banana\n")
    assert tokenizer == CharTokenizer("\nabn")
    assert tokenizer.encode("ban").tolist() == [3, 2, 4]
    assert (tokenizer.specials, tokenizer.vocab_size, tokenizer.token_bytes(0)) == ((0,), 5, b"")
    assert tokenizer.label(0) == "<PAD>"
    assert tokenizer.decode([0, 3, 0, 2]) == "ba"
    assert CharTokenizer("ab").start == 1  # of an empty prompt where there is no newline
    assert tokenizer.plain() == {"name": "char", "tokens": ["<PAD>", "\n", "a", "b", "n"]}


def test_an_unseen_character_is_named_and_placed():
    with pytest.raises(UnseenCharacter) as error:
        CharTokenizer("abc").encode("abécé")
    assert (error.value.character, error.value.position) == ("é", 2)
    assert str(error.value) == (
        "character 'é' (U+00E9) at position 2 is not in the tokenizer's alphabet of 3 characters; "
        "remove it, or replace it by one that is"
    )
    for hostile in ("\x1b", "\n", "😀", "\ud800", "\u202e"):
        with pytest.raises(UnseenCharacter) as error:
            CharTokenizer("abc").encode("a" + hostile)
        assert str(error.value).isprintable()


@pytest.mark.parametrize("replacement", ["", "z", "ab", "<PAD>", "\x00"])
def test_a_replacement_must_be_in_the_alphabet(replacement):
    with pytest.raises(UsageError, match="not a character of the tokenizer's alphabet"):
        CharTokenizer("abc").encode("abc", replacement=replacement)


@pytest.mark.parametrize("tokenizer", [ByteTokenizer(), BPE])
def test_a_lone_surrogate_is_refused_or_replaced(tokenizer):
    with pytest.raises(UnseenCharacter, match=r"'\\ud83d' \(U\+D83D\) at position 2"):
        tokenizer.encode("ab\ud83d")
    assert tokenizer.decode(tokenizer.encode("ab\ud83d!", replacement="é")) == "abé!"
    with pytest.raises(UsageError, match="expected one character"):
        tokenizer.encode("ab", replacement="\ud800")


def test_a_text_with_a_lone_surrogate_has_no_tokenizer():
    for name in ("char", "byte", "bpe"):
        with pytest.raises(UnseenCharacter, match="position 3"):
            build(name, "abc\udfff")
        with pytest.raises(UsageError, match="the text is empty"):
            build(name, "")


@pytest.mark.parametrize("tokenizer", [CharTokenizer("abc"), ByteTokenizer(), BPE])
@pytest.mark.parametrize("ids", [[-1], [1, 100_000], ["a"], [2**70], np.zeros((2, 2), int), np.array([0.5])])
def test_what_is_not_an_id_is_refused(tokenizer, ids):
    with pytest.raises(UsageError, match="token id"):
        tokenizer.decode(ids)


def test_bytes_that_are_not_utf8_become_the_replacement_character():
    assert ByteTokenizer().decode([0x61, 0xC3, 0x62]) == "a\ufffdb"
    assert BPE.decode([0xC3, 257]) == "\ufffdthe"
    assert ByteTokenizer().label(0xC3) == "\\xc3"


@pytest.mark.parametrize(
    ("plain", "message"),
    [
        ({}, "expected a table with a name"),
        ({"name": "chars"}, "did you mean 'char'?"),
        ({"name": "char", "tokens": ["a", "b"]}, "tokens must be a list"),
        ({"name": "char", "tokens": ["<PAD>", "ab"]}, r"tokens\[1\] must be one character"),
        ({"name": "char", "tokens": ["<PAD>", "\ud800"]}, r"tokens\[1\] must be one character"),
        ({"name": "char", "tokens": ["<PAD>", "a", "a"]}, "twice"),
        ({"name": "bpe"}, "merges must be a list"),
        ({"name": "bpe", "merges": [[1, True]]}, r"merges\[0\] must be two ids"),
        ({"name": "bpe", "merges": [[1, 2], [-1, 3]]}, r"merges\[1\] uses an id that does not exist"),
        ({"name": "bpe", "merges": [[1, 2], [1, 2]]}, "twice"),
        ({"name": "bpe", "merges": [[1, 1], *([256 + i, 256 + i] for i in range(30))]}, "longer than 64 bytes"),
    ],
)
def test_malformed_plain_data_is_refused_in_one_line(plain, message):
    with pytest.raises(UsageError, match=message) as error:
        tokenizer_from_plain(plain)
    assert "\n" not in str(error.value)
    assert str(error.value).isprintable()


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["name", "tokens", "merges"]), inner),
    ),
    st.sampled_from(["char", "byte", "bpe"]),
)
def test_any_plain_data_is_read_or_refused(data, name):
    for plain in (data, {"name": name, "tokens": data, "merges": data}):
        with contextlib.suppress(UsageError):
            tokenizer = tokenizer_from_plain(plain)
            assert tokenizer.decode(range(tokenizer.vocab_size)) is not None


def test_a_long_text_is_encoded_piece_by_piece(monkeypatch):
    monkeypatch.setattr("vitral.data.tokenizers._CHUNK", 3)
    tokenizer = CharTokenizer("abc")
    assert tokenizer.encode("abcabca").tolist() == [1, 2, 3, 1, 2, 3, 1]
    assert tokenizer.encode("abcabcé😀\ud800", replacement="c").tolist() == [1, 2, 3, 1, 2, 3, 3, 3, 3]
    with pytest.raises(UnseenCharacter, match="at position 6"):
        tokenizer.encode("abcabcé")

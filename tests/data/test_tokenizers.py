import contextlib
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vitral.core.errors import UsageError
from vitral.data import (
    CorpusConfig,
    Tokenizer,
    UnseenCharacter,
    bpe_tokenizer,
    build_tokenizer,
    byte_tokenizer,
    char_tokenizer,
)

TEXT = "Não há só um gato, há três.\n\tThe cat sat; the cat sat.\n😀 e\u0301 \x00 \u202e"
BPE = bpe_tokenizer(((116, 104), (256, 101), (195, 163)))


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
    again = Tokenizer(json.loads(json.dumps(tokenizer.plain())))
    assert again == tokenizer
    assert again.encode(TEXT).tolist() == ids.tolist()
    labels = [tokenizer.label(token) for token in range(tokenizer.vocab_size)]
    assert all(label and label.isprintable() for label in labels)  # safe to print
    assert labels[int(tokenizer.encode(" ")[0])] == "␣"
    assert labels[tokenizer.start] == "\\n"


@given(st.text(min_size=1))
def test_every_text_survives(text):
    for tokenizer in (byte_tokenizer(), BPE, build("char", text)):
        assert tokenizer.decode(tokenizer.encode(text)) == text


def test_characters_are_numbered_by_code_point_after_pad():
    tokenizer = build("char", "banana\n")
    assert tokenizer == char_tokenizer("\nabn")
    assert tokenizer.encode("ban").tolist() == [3, 2, 4]
    assert (tokenizer.specials, tokenizer.vocab_size, tokenizer.token_bytes(0)) == ((0,), 5, b"")
    assert tokenizer.label(0) == "<PAD>"
    assert tokenizer.decode([0, 3, 0, 2]) == "ba"
    assert char_tokenizer("ab").start == 1  # of an empty prompt where there is no newline
    assert tokenizer.plain() == {"name": "char", "tokens": ["<PAD>", "\n", "a", "b", "n"]}


def test_an_unseen_character_is_named_and_placed():
    with pytest.raises(UnseenCharacter) as error:
        char_tokenizer("abc").encode("abécé")
    assert (error.value.character, error.value.position) == ("é", 2)
    assert str(error.value) == (
        "character 'é' (U+00E9) at position 2 is not in the tokenizer's alphabet of 3 characters; "
        "remove it, or replace it by one that is"
    )
    for hostile in ("\x1b", "\n", "😀", "\ud800", "\u202e"):
        with pytest.raises(UnseenCharacter) as error:
            char_tokenizer("abc").encode("a" + hostile)
        assert str(error.value).isprintable()


@pytest.mark.parametrize("replacement", ["", "z", "ab", "<PAD>", "\x00"])
def test_a_replacement_must_be_in_the_alphabet(replacement):
    with pytest.raises(UsageError, match="not a character of the tokenizer's alphabet"):
        char_tokenizer("abc").encode("abc", replacement=replacement)


@pytest.mark.parametrize("tokenizer", [byte_tokenizer(), BPE])
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


@pytest.mark.parametrize("tokenizer", [char_tokenizer("abc"), byte_tokenizer(), BPE])
@pytest.mark.parametrize("ids", [[-1], [1, 100_000], ["a"], [2**70], np.zeros((2, 2), int), np.array([0.5])])
def test_what_is_not_an_id_is_refused(tokenizer, ids):
    with pytest.raises(UsageError, match="token id"):
        tokenizer.decode(ids)


def test_bytes_that_are_not_utf8_become_the_replacement_character():
    assert byte_tokenizer().decode([0x61, 0xC3, 0x62]) == "a\ufffdb"
    assert BPE.decode([0xC3, 257]) == "\ufffdthe"
    assert byte_tokenizer().label(0xC3) == "\\xc3"


@pytest.mark.parametrize(
    "plain",
    [
        {},
        {"name": "chars"},
        {"name": "char", "tokens": ["a", "b"]},
        {"name": "char", "tokens": ["<PAD>", "ab"]},
        {"name": "char", "tokens": ["<PAD>", "\ud800"]},
        {"name": "char", "tokens": ["<PAD>", "a", "a"]},
        {"name": "bpe"},
        {"name": "bpe", "merges": [[1, "a"]]},
        {"name": "bpe", "merges": [[1, 2], [-1, 3]]},
        {"name": "bpe", "merges": [[1, 2], [1, 2]]},
        {"name": "bpe", "merges": [[1, 1], *([256 + i, 256 + i] for i in range(30))]},
    ],
)
def test_malformed_plain_data_is_refused_in_one_line(plain):
    with pytest.raises(UsageError, match="restore") as error:
        Tokenizer(plain)
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
            tokenizer = Tokenizer(plain)
            assert tokenizer.decode(range(tokenizer.vocab_size)) is not None


def test_a_long_text_is_encoded_piece_by_piece(monkeypatch):
    monkeypatch.setattr("vitral.data.tokenizers._CHUNK", 3)
    tokenizer = char_tokenizer("abc")
    assert tokenizer.encode("abcabca").tolist() == [1, 2, 3, 1, 2, 3, 1]
    assert tokenizer.encode("abcabcé😀\ud800", replacement="c").tolist() == [1, 2, 3, 1, 2, 3, 3, 3, 3]
    with pytest.raises(UnseenCharacter, match="at position 6"):
        tokenizer.encode("abcabcé")

"""Tokenizers of ours: no text is lost, every id means one thing, and special tokens are one token each."""

import json
from pathlib import Path

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
    declaring,
    load_corpus,
    prepare,
)
from vitral.data.engines import MAX_TOKEN_BYTES, learn_merges, numbered_merges
from vitral.data.tokenizers import with_special_tokens
from vitral.evaluation.losses import token_sizes

END = "<|endoftext|>"
TEXT = f"Não há só um gato, há três.\n\tThe cat sat; the cat sat.{END}{END}\n😀 e\u0301 \x00 \u202e"
BPE = bpe_tokenizer(((116, 104), (256, 101), (195, 163)))
KINDS = ["char", "byte", "bpe"]


def build(name: str, text: str = TEXT, specials: list[str] | None = None) -> Tokenizer:
    config = CorpusConfig.parse({"tokenizer": name, "specials": specials or []})
    return build_tokenizer(config, text, [text[:40], text[40:]])


@pytest.mark.parametrize("specials", [[], [END]], ids=["plain", "with a special token"])
@pytest.mark.parametrize("name", KINDS)
def test_a_text_and_a_tokenizer_come_back(name, specials):
    tokenizer = build(name, TEXT, specials)
    ids = tokenizer.encode(TEXT)
    assert tokenizer.decode(ids) == TEXT
    assert (ids.dtype, ids.ndim) == (np.int64, 1)
    assert b"".join(tokenizer.token_bytes(int(token)) for token in ids) == TEXT.encode()
    characters, sizes = token_sizes(tokenizer)
    assert (characters[ids].sum(), sizes[ids].sum()) == (len(TEXT), len(TEXT.encode()))
    assert tokenizer.encode("").shape == (0,)
    assert tokenizer.decode([]) == ""
    again = Tokenizer(json.loads(json.dumps(tokenizer.plain())))
    assert (again, again.name) == (tokenizer, name)
    assert again.encode(TEXT).tolist() == ids.tolist()
    labels = [tokenizer.label(token) for token in range(tokenizer.vocab_size)]
    assert all(label and label.isprintable() for label in labels)  # safe to print
    assert labels[int(tokenizer.encode(" ")[0])] == "␣"
    assert labels[tokenizer.start] == "\\n"
    for special in specials:
        (end,) = tokenizer.encode(special).tolist()
        assert ids.tolist().count(end) == 2
        assert tokenizer.decode([end, end]) == special * 2
        assert labels[end] == special
        assert end not in tokenizer.specials  # it has text, and may be generated


def lie_apart(specials: list[str]) -> bool:
    """Whether no end of one begins another, of which a part may be left between two blocks."""
    pairs = [(one, other) for one in specials for other in specials]
    return not any(one.endswith(other[:n]) for one, other in pairs for n in range(1, min(len(one), len(other))))


SPECIALS = st.lists(st.text("ab<>\n", min_size=1, max_size=4), max_size=4, unique=True).filter(lie_apart)


@given(st.text(min_size=1) | st.text("ab<>\n", min_size=20, max_size=200), SPECIALS)
def test_every_text_survives(text, specials):
    for tokenizer in (*(build(name, text, specials) for name in KINDS), with_special_tokens(BPE, specials)):
        ids = tokenizer.encode(text)
        assert tokenizer.decode(ids) == text
        assert b"".join(tokenizer.token_bytes(int(token)) for token in ids) == text.encode()


def test_characters_are_numbered_by_code_point_after_pad():
    tokenizer = build("char", "banana\n")
    assert tokenizer == char_tokenizer("\nabn")
    assert tokenizer.encode("ban").tolist() == [3, 2, 4]
    assert (tokenizer.specials, tokenizer.vocab_size, tokenizer.token_bytes(0)) == ((0,), 5, b"")
    assert tokenizer.label(0) == "<PAD>"
    assert tokenizer.decode([0, 3, 0, 2]) == "ba"
    assert char_tokenizer("ab").start == 1  # of an empty prompt where there is no newline


def test_the_data_of_a_run_stays_as_it_is():
    assert char_tokenizer("\nab").plain() == {"name": "char", "tokens": ["<PAD>", "\n", "a", "b"]}
    assert byte_tokenizer().plain() == {"name": "byte"}
    grown = with_special_tokens(bpe_tokenizer([(97, 98)]), [END])
    assert grown.plain() == {"name": "bpe", "merges": [[97, 98]], "special_tokens": {END: 257}}


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
            with_special_tokens(char_tokenizer("abc"), [END]).encode(f"a{END}{hostile}")
        assert error.value.position == 1 + len(END)


@pytest.mark.parametrize("tokenizer", [byte_tokenizer(), BPE])
def test_a_lone_surrogate_is_refused_or_replaced(tokenizer):
    with pytest.raises(UnseenCharacter, match=r"'\\ud83d' \(U\+D83D\) at position 2"):
        tokenizer.encode("ab\ud83d")
    assert tokenizer.decode(tokenizer.encode("ab\ud83d!", replacement="é")) == "abé!"
    with pytest.raises(UsageError, match="expected one character"):
        tokenizer.encode("ab", replacement="\ud800")


def test_bytes_that_are_not_utf8_become_the_replacement_character():
    assert byte_tokenizer().decode([0x61, 0xC3, 0x62]) == "a\ufffdb"
    assert byte_tokenizer().label(0xC3) == "\\xc3"
    tokenizer = declaring(byte_tokenizer(), {"é": 256})
    assert tokenizer.decode([0xC3, 256, 0xA9, 0x61, 0xE2, 0x82]) == "\ufffdé\ufffda\ufffd"


@pytest.mark.parametrize(
    "plain",
    [
        {},
        {"name": "chars"},
        {"name": "char", "tokens": ["a", "b"]},
        {"name": "char", "tokens": ["<PAD>", "ab"]},
        {"name": "char", "tokens": ["<PAD>", "\ud800"]},
        {"name": "char", "tokens": ["<PAD>", "a", "a"]},
        {"name": "bpe", "merges": [[1, "a"]]},
        {"name": "bpe", "merges": [[1, 2], [-1, 3]]},
        {"name": "bpe", "merges": [[1, 1], *([256 + i, 256 + i] for i in range(30))]},
        *(
            {"name": "char", "tokens": ["<PAD>", "a", "b"], "special_tokens": declared}
            for declared in ([1], {"": 3}, {"x": 9}, {"x": True}, {"x": 3, "y": 3}, {"\ud800": 3})
        ),
    ],
)
def test_malformed_data_is_refused_in_one_line(plain):
    with pytest.raises(UsageError, match="restore"):
        Tokenizer(plain)


def test_characters_without_a_token_are_replaced_or_placed():
    tokenizer = char_tokenizer("abc")
    assert tokenizer.encode("abcabcé😀\ud800", replacement="c").tolist() == [1, 2, 3, 1, 2, 3, 3, 3, 3]
    with pytest.raises(UnseenCharacter, match="at position 6"):
        tokenizer.encode("abcabcé")


BLOCKS = ["low low low low low lower lower newest newest newest newest newest newest widest widest widest"]


def test_merges_worked_by_hand():
    # newest 6 times, widest 3: "es" and "st" occur 9 times, "we" (lower, newest) 8, "lo" and "ow" 7. Of "es" and "st"
    # the pair with the lower ids is merged; then "es" + "t" occurs 9 times.
    assert learn_merges(BLOCKS, 258) == [[ord("e"), ord("s")], [256, ord("t")]]
    assert bpe_tokenizer(learn_merges(BLOCKS, 258)).token_bytes(257) == b"est"


def test_encoding_applies_the_merges_in_order():
    tokenizer = bpe_tokenizer(((98, 99), (97, 98)))  # b+c comes before a+b
    assert tokenizer.encode("abc").tolist() == [97, 256]
    assert tokenizer.encode("aba").tolist() == [257, 97]


def test_no_pair_is_counted_across_blocks_and_once_is_not_enough():
    assert learn_merges(["ab", "ba"], 300) == []
    assert learn_merges(["ab", "ab"], 300) == [[97, 98]]
    learned = build("bpe", "ab<end>ab<end>" * 50, ["<end>"])
    assert learned == with_special_tokens(bpe_tokenizer([(97, 98)]), ["<end>"])  # none crosses a special token


def test_a_token_made_in_two_ways_is_one_token():
    merges = numbered_merges([("a", "b"), ("b", "c"), ("ab", "c"), ("a", "bc"), ("abc", "d")])
    assert merges == [[97, 98], [98, 99], [256, 99], [97, 257], [258, 100]]
    tokenizer = bpe_tokenizer(merges)
    assert [tokenizer.token_bytes(token) for token in range(258, tokenizer.vocab_size)] == [b"abc", b"abcd"]


def test_a_run_of_one_character_makes_no_endless_token():
    tokenizer = bpe_tokenizer(learn_merges(["x" * 5000], 400))
    assert max(len(tokenizer.token_bytes(token)) for token in range(tokenizer.vocab_size)) <= MAX_TOKEN_BYTES
    assert tokenizer.decode(tokenizer.encode("x" * 100_003)) == "x" * 100_003


def test_special_tokens_take_their_ids_and_the_other_tokens_the_rest():
    tokenizer = declaring(char_tokenizer("abc"), {"<x>": 2, "<y>": 5})
    assert tokenizer.encode("ab<x>c<y>a").tolist() == [1, 3, 2, 4, 5, 1]
    assert tokenizer.specials == (0,)
    assert tokenizer.decode([0, 1, 3, 2, 4, 5, 0]) == "ab<x>c<y>"


def test_the_longest_special_token_counts():
    tokenizer = build("char", "abcab", ["a", "abc", "ab"])
    assert [tokenizer.label(token) for token in tokenizer.encode("abcaba")] == ["abc", "ab", "a"]
    newline = build("char", "a\nb", ["\n"])
    assert newline.start == newline.encode("\n")[0]  # it begins a line


def test_a_separator_that_is_a_special_token_separates_documents(tmp_path: Path) -> None:
    folder = tmp_path / "stories"
    folder.mkdir()
    for number in range(40):
        (folder / f"{number:02}.txt").write_text(f"story {number} " + "word " * 200, encoding="utf-8")
    config = CorpusConfig.parse({"source": str(folder), "specials": [END], "separator": END})
    dataset = prepare(config)
    (end,) = dataset.tokenizer.encode(END).tolist()
    assert sum((split.tokens == end).sum() for split in dataset.splits.values()) == 39
    decoded = sum(len(dataset.tokenizer.decode(split.tokens)) for split in dataset.splits.values())
    assert decoded == dataset.text.characters == len(load_corpus(config).text)
    assert any("39 times" in note for note in dataset.notes)
    plain = config.model_copy(update={"specials": None})
    assert prepare(plain).fingerprint != dataset.fingerprint

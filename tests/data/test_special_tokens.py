"""Special tokens that a corpus declares: one token each, in every tokenizer, wherever they occur."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.data.conftest import encoded_splits
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
from vitral.data.split import split_text
from vitral.data.tokenizers import with_special_tokens
from vitral.evaluation.losses import token_sizes

END = "<|endoftext|>"
TEXT = f"a cat, a cat{END}the cat\n{END}{END}to\u0301 há"
KINDS = ["char", "byte", "bpe"]


def build(name: str, text: str = TEXT, specials: list[str] | None = None):
    config = CorpusConfig.parse({"tokenizer": name, "specials": [END] if specials is None else specials})
    return build_tokenizer(config, text, [text])


@pytest.mark.parametrize("name", KINDS)
def test_a_special_token_is_one_token(name):
    tokenizer = build(name)
    (end,) = tokenizer.encode(END).tolist()
    assert tokenizer.encode(TEXT).tolist().count(end) == 3
    assert tokenizer.decode(tokenizer.encode(TEXT)) == TEXT
    assert tokenizer.decode([end, end]) == END * 2
    assert (tokenizer.token_bytes(end), tokenizer.label(end)) == (END.encode(), END)
    assert end not in tokenizer.specials  # it has text, and may be generated
    assert tokenizer.name == name
    again = Tokenizer(json.loads(json.dumps(tokenizer.plain())))
    assert again == tokenizer
    assert again.encode(TEXT).tolist() == tokenizer.encode(TEXT).tolist()
    characters, sizes = token_sizes(tokenizer)
    ids = tokenizer.encode(TEXT)
    assert (characters[ids].sum(), sizes[ids].sum()) == (len(TEXT), len(TEXT.encode()))


def test_ids_of_the_base_fill_the_places_between():
    tokenizer = declaring(char_tokenizer("abc"), {"<x>": 2, "<y>": 5})
    assert tokenizer.encode("ab<x>c<y>a").tolist() == [1, 3, 2, 4, 5, 1]
    assert tokenizer.specials == (0,)
    assert tokenizer.decode([0, 1, 3, 2, 4, 5, 0]) == "ab<x>c<y>"


SPECIALS = st.lists(st.text("ab<>\n", min_size=1, max_size=4), min_size=1, max_size=4, unique=True)
TEXTS = st.text("ab<>\n", min_size=20, max_size=200)


@given(TEXTS, SPECIALS)
def test_decoding_undoes_encoding(text, specials):
    for name in KINDS:
        tokenizer = build(name, text, specials)
        ids = tokenizer.encode(text)
        assert tokenizer.decode(ids) == text
        assert b"".join(tokenizer.token_bytes(int(token)) for token in ids) == text.encode()


@given(TEXTS, SPECIALS)
def test_splits_contain_every_character_once(text, specials):
    tokenizer = build("char", text, specials)
    splits = encoded_splits(text, split_text(len(text), "tail"), tokenizer)
    decoded = "".join(tokenizer.decode(splits[name].tokens) for name in ("train", "validation", "test"))
    assert decoded == text


def test_the_longest_of_several_counts():
    tokenizer = build("char", "abcab", ["a", "abc", "ab"])
    assert [tokenizer.label(token) for token in tokenizer.encode("abcaba")] == ["abc", "ab", "a"]
    newline = build("char", "a\nb", ["\n"])
    assert newline.start == newline.encode("\n")[0]  # it begins a line


def test_byte_pairs_do_not_cross_special_tokens():
    tokenizer = build("bpe", "ab<end>ab<end>" * 50, ["<end>"])
    assert tokenizer == with_special_tokens(bpe_tokenizer([(97, 98)]), ["<end>"])


def test_an_unseen_character_is_placed_in_the_whole_text():
    with pytest.raises(UnseenCharacter) as error:
        build("char").encode(f"a{END}Z")
    assert error.value.position == 1 + len(END)
    assert build("char").decode(build("char").encode(f"Z{END}Z", replacement="a")) == f"a{END}a"


def test_invalid_utf8_beside_a_special_token():
    tokenizer = declaring(byte_tokenizer(), {"é": 256})
    ids = [0xC3, 256, 0xA9, 0x61, 0xE2, 0x82]
    whole = b"".join(tokenizer.token_bytes(token) for token in ids).decode("utf-8", "replace")
    assert tokenizer.decode(ids) == whole == "\ufffdé\ufffda\ufffd"


@pytest.mark.parametrize("wrong", [[""], ["x" * 101], ["\ud800"], ["<PAD>"], ["a", "a"], [3]])
def test_what_is_no_special_token_is_refused(wrong):
    with pytest.raises(UsageError, match=r"corpus: specials"):
        CorpusConfig.parse({"specials": wrong}, "corpus")


@pytest.mark.parametrize(
    "declared", [[], {"": 3}, {"x": 9}, {"x": -1}, {"x": True}, {"x": 2.0}, {"x": 3, "y": 3}, {"x" * 101: 3}]
)
def test_malformed_plain_data_is_refused(declared):
    with pytest.raises(UsageError, match="tokenizer:"):
        Tokenizer({"name": "char", "tokens": ["<PAD>", "a", "b"], "special_tokens": declared})


def test_a_separator_that_is_a_special_token_separates_documents(tmp_path: Path) -> None:
    folder = tmp_path / "stories"
    folder.mkdir()
    for number in range(40):
        (folder / f"{number:02}.txt").write_text(f"story {number} " + "word " * 200, encoding="utf-8")
    config = CorpusConfig.parse({"source": str(folder), "specials": [END], "separator": END})
    dataset = prepare(config, cache=tmp_path / "cache")
    (end,) = dataset.tokenizer.encode(END).tolist()
    assert sum((split.tokens == end).sum() for split in dataset.splits.values()) == 39
    decoded = sum(len(dataset.tokenizer.decode(split.tokens)) for split in dataset.splits.values())
    assert decoded == dataset.num_characters == len(load_corpus(config).text)
    assert any("39 times" in note for note in dataset.notes)
    plain = config.model_copy(update={"specials": None})
    assert prepare(plain, cache=tmp_path / "cache").fingerprint != dataset.fingerprint

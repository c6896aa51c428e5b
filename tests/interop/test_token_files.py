"""Files of tokens by rank, and of characters: equal ids, special tokens kept, bad files refused."""

import base64
import random
import re
from itertools import pairwise
from pathlib import Path

import pytest

from vitral.core.errors import UsageError
from vitral.data import char_tokenizer
from vitral.interop.tiktoken import read_ranks
from vitral.interop.token_files import tokenizer_from

SAMPLE = (
    "the cat sat on the mat; that cat's hat, 1234567 hats!\n\n  Two  thousand\thats?  \n\nÁgua é o que há — não? \n"
)
END = "<|end|>"
SPLIT = re.compile(r"[A-Za-z]+|[0-9]{1,3}|\s+|.", re.DOTALL)
"""Like the pattern that the files of these tests name, in Python's own language."""
PATTERN = r"[A-Za-z]+|[0-9]{1,3}+|\s+|."


def learned(text: str, size: int) -> dict[bytes, int]:
    """Byte pairs by rank: of all words, the most frequent pair is joined again and again."""
    words = [[bytes([byte]) for byte in word.encode()] for word in SPLIT.findall(text)]
    found = [bytes([byte]) for byte in range(256)]
    while len(found) < size:
        pairs = [one + other for word in words for one, other in pairwise(word)]
        best = max(sorted(set(pairs)), key=pairs.count)
        found.append(best)
        words = [joined(word, best) for word in words]
    return {token: rank for rank, token in enumerate(found)}


def joined(word: list[bytes], pair: bytes) -> list[bytes]:
    made: list[bytes] = []
    for part in word:
        if made and made[-1] + part == pair:
            made[-1] = pair
        else:
            made.append(part)
    return made


def by_hand(ranks: dict[bytes, int], text: str) -> list[int]:
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


def drawn_ranks() -> dict[bytes, int]:
    """A vocabulary that no training made."""
    drawn, tokens = random.Random(5), [bytes([byte]) for byte in range(256)]
    while len(tokens) < 300:
        new = b"".join(drawn.choices(tokens[97:101] + tokens[256:], k=2))
        if new not in tokens and len(new) < 9:
            tokens.append(new)
    return {token: rank for rank, token in enumerate(tokens)}


@pytest.mark.parametrize(("ranks", "letters"), [(learned(SAMPLE, 280), SAMPLE + "ab12"), (drawn_ranks(), "abcd")])
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
        assert tokenizer.encode(text).tolist() == by_hand(ranks, text)
        assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.encode(f"the{END}cat").tolist() == [*by_hand(ranks, "the"), 310, *by_hand(ranks, "cat")]
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
    with pytest.raises(UsageError) as refused:
        tokenizer_from(described(tmp_path, **BAD_TABLES[table]), 300)
    assert "\n" not in str(refused.value)


def test_ranks_of_an_unknown_name_need_their_pattern(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="pattern"):
        tokenizer_from(write(tmp_path, GOOD), 300)

"""The page tokenizes any text as the run's tokenizer does."""

import json
import random
from collections.abc import Callable
from typing import Any

import pytest
from browser import needs_node
from pages import in_page
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, trainers
from tokenizers import Tokenizer as Engine

from vitral.core.errors import UsageError
from vitral.data import (
    Tokenizer,
    UnseenCharacter,
    bpe_tokenizer,
    byte_tokenizer,
    char_tokenizer,
    declaring,
    file_tokenizer,
)
from vitral.data.engines import byte_letters, learn_merges
from vitral.page.tokens import carried_tokenizer, encoded, served_tokenizer

ENCODE = """
const { encode, decode } = page.tokenizerOf({ tokenizer: given[0] });
return given[1].map(encode).map((made) => ({ ...made, text: decode(made.ids) }));
"""
STRINGS = 500
SPECIAL = "<|end|>"
TEXT = (
    "To be, or not to be: that's the QUESTION.\nWe'll see it's 1234 o'clock — don't\t they?\r\n\n  naïve café déjà\n"
    "vu; A memória é boa, coração! 東京 日本語 привет мир 👩‍👩‍👧 ok\n" * 3
)
PIECES = (
    *"abtheTHE '’sdſK\n\r\t ,.!?;:-0129½²Ⅷéàç",
    *(
        "'s",
        "'LL",
        "'ve",
        " the",
        "  ",
        "\n\n",
        "\r\n",
        SPECIAL,
        "<|en",
        "|>",
        "<|end|",
        "e\u0301",
        "\u0301",
        "İ",
        "ﬁ",
        "ß",
    ),
    *("\u200d", "\u200b", "\u00a0", "\u3000", "\u2028", "\ufeff", "\x00", "\x85", "\u180e", "\x1c", "한", "각", "日本"),
    *("👩\u200d👩\u200d👧", "🇧🇷", "😀"),
)


def strings(seed: int, *, alphabet: str | None = None, surrogates: bool = True) -> list[str]:
    """Random texts of all Unicode, with the pieces that pre-tokenizers treat specially."""
    drawn = random.Random(seed)

    def piece() -> str:
        kind = drawn.random()
        if alphabet is not None and kind < 0.6:
            return drawn.choice(alphabet)
        if kind < 0.8:
            return drawn.choice(PIECES)
        point = drawn.choice([drawn.randrange(0x110000), drawn.randrange(0x3000), drawn.randrange(0x20, 0x250)])
        is_half = 0xD800 <= point < 0xE000
        return chr(point) if not is_half or surrogates else "x"

    made = ["".join(piece() for _ in range(drawn.randrange(drawn.choice([4, 12, 60])))) for _ in range(STRINGS)]
    # In a browser two halves side by side are one character.
    return [text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass") for text in made]


def expected(tokenizer: Tokenizer, text: str) -> dict[str, Any]:
    """Ids of all that has a token, encoded between what has none."""
    try:
        return {"ids": tokenizer.encode(text).tolist(), "unseen": []}
    except UnseenCharacter as error:
        before, after = (expected(tokenizer, text[: error.position]), expected(tokenizer, text[error.position + 1 :]))
        unseen = dict.fromkeys([*before["unseen"], error.character, *after["unseen"]])
        return {"ids": before["ids"] + after["ids"], "unseen": list(unseen)}


def byte_level(cut: Any, *, normalizer: Any = None, size: int = 400, seed: int = 1, **options: Any) -> Tokenizer:
    engine = Engine(models.BPE(**options))
    engine.pre_tokenizer, engine.decoder = cut, decoders.ByteLevel()
    if normalizer is not None:
        engine.normalizer = normalizer
    engine.train_from_iterator(
        [TEXT], trainers.BpeTrainer(vocab_size=size, initial_alphabet=byte_letters(), show_progress=False)
    )
    engine.add_special_tokens([SPECIAL])
    engine.add_tokens(["thé", " the"])
    return file_tokenizer(engine.to_str(), engine.get_vocab_size(), 0)


GPT2_WORDS = pre_tokenizers.ByteLevel(add_prefix_space=False)
FILES: dict[str, Callable[[], Tokenizer]] = {
    "gpt-2": lambda: byte_level(GPT2_WORDS),
    "space before": lambda: byte_level(pre_tokenizers.ByteLevel(add_prefix_space=True)),
    "nfc": lambda: byte_level(GPT2_WORDS, normalizer=normalizers.NFC()),
    "digits": lambda: byte_level(pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), GPT2_WORDS])),
    "runs of digits": lambda: byte_level(pre_tokenizers.Sequence([pre_tokenizers.Digits(), GPT2_WORDS])),
}
LETTERS = char_tokenizer("".join(sorted({*TEXT, "😀", "\u0301"})))
OWN: dict[str, Callable[[], Tokenizer]] = {
    "characters": lambda: LETTERS,
    "bytes": byte_tokenizer,
    "pairs": lambda: bpe_tokenizer(learn_merges([TEXT], 400)),
}


def require_equal_ids(tokenizer: Tokenizer, texts: list[str]) -> None:
    """A browser's ids and texts are those of the package."""
    told = in_page(ENCODE, [[json.loads(json.dumps(carried_tokenizer(tokenizer))), texts]])[0]
    for text, each in zip(texts, told, strict=True):
        wanted = expected(tokenizer, text)
        assert each == {**wanted, "text": tokenizer.decode(wanted["ids"])}, ascii(text)


DECLARED = {SPECIAL: 3, "<|e": 5, "é": 7, "\n": 11}


@pytest.mark.merge
@needs_node
@pytest.mark.parametrize("special", [False, True], ids=["plain", "special tokens"])
@pytest.mark.parametrize("kind", OWN)
def test_own_tokenizers_give_equal_ids(kind: str, special: bool) -> None:
    base = OWN[kind]()
    tokenizer = declaring(base, DECLARED) if special else base
    require_equal_ids(tokenizer, strings(1, alphabet=TEXT))


@pytest.mark.merge
@needs_node
@pytest.mark.parametrize("kind", FILES)
def test_tokenizers_of_other_libraries_give_equal_ids(kind: str) -> None:
    tokenizer = FILES[kind]()
    # A browser's normal forms know other characters than the package's; see docs/page.md.
    require_equal_ids(tokenizer, strings(2, alphabet=TEXT, surrogates=kind != "nfc"))


UNCARRIED: dict[str, dict[str, Any]] = {
    "words": {"model": models.WordLevel({"a": 0, "?": 1}, "?"), "pre_tokenizer": pre_tokenizers.Whitespace()},
    "small letters": {"normalizer": normalizers.Lowercase()},
    "metaspace": {"pre_tokenizer": pre_tokenizers.Metaspace()},
    "punctuation": {
        "pre_tokenizer": pre_tokenizers.Sequence([pre_tokenizers.Punctuation(), pre_tokenizers.ByteLevel()])
    },
    "pattern": {
        "pre_tokenizer": pre_tokenizers.Sequence(
            [
                pre_tokenizers.Split(Regex(r"\bthe\b|\s+"), "isolated"),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            ]
        )
    },
}


@pytest.mark.parametrize("kind", UNCARRIED)
def test_what_no_page_computes_is_refused_by_a_file_and_encoded_by_a_server(kind: str) -> None:
    changes = UNCARRIED[kind]
    engine = Engine(changes.get("model", models.BPE({letter: at for at, letter in enumerate(byte_letters())}, [])))
    engine.pre_tokenizer = changes.get("pre_tokenizer", pre_tokenizers.ByteLevel())
    if "normalizer" in changes:
        engine.normalizer = changes["normalizer"]
    tokenizer = file_tokenizer(engine.to_str(), engine.get_vocab_size(), 0)
    with pytest.raises(UsageError, match="vitral open"):
        carried_tokenizer(tokenizer)
    assert served_tokenizer(tokenizer).keys() >= {"kind", "texts"}
    assert served_tokenizer(tokenizer)["kind"] == "asked"
    for text in ["", "a", "abba, the\nA b", *strings(3, alphabet="abAB the,\n")[:50]]:
        assert encoded(tokenizer, text) == expected(tokenizer, text), ascii(text)


def test_a_server_encodes_whatever_is_typed() -> None:
    for text in strings(4, alphabet=TEXT)[:200]:
        assert encoded(LETTERS, text) == expected(LETTERS, text), ascii(text)
    assert served_tokenizer(LETTERS) == carried_tokenizer(LETTERS)

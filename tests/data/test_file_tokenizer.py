"""Tokenizers of other libraries: the file decides the ids, and a text comes back from them."""

import base64
import json
from typing import Any

import pytest
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Engine

from vitral.core.errors import UsageError
from vitral.data import Tokenizer, UnseenCharacter, file_tokenizer
from vitral.data.engines import byte_letters, character_engine, of_package

TEXT = "the cat<|end|> sat\n on é\t the mat"


def byte_level() -> Engine:
    letters = {letter: 255 - byte for byte, letter in enumerate(byte_letters())}  # another order than ours
    engine = Engine(models.BPE(vocab={**letters, "th": 256, "the": 257}, merges=[("t", "h"), ("th", "e")]))
    engine.pre_tokenizer, engine.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    engine.add_special_tokens(["<|end|>"])
    return engine


def sentence_pieces() -> Engine:
    """As Llama's: a space before every text, bytes where there is no letter."""
    letters = [f"<0x{byte:02X}>" for byte in range(256)] + ["▁", *"theca"] + ["th"]
    model = models.BPE(
        vocab={letter: index for index, letter in enumerate(letters)}, merges=[("t", "h")], byte_fallback=True
    )
    engine = Engine(model)
    engine.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    engine.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return engine


@pytest.mark.parametrize("engine", [byte_level(), sentence_pieces()], ids=["byte level", "sentence pieces"])
def test_the_ids_are_those_of_the_file_and_the_text_comes_back(engine: Engine) -> None:
    tokenizer = file_tokenizer(engine.to_str(), engine.get_vocab_size() + 3, 0)
    ids = tokenizer.encode(TEXT)
    assert ids.tolist() == engine.encode(TEXT, add_special_tokens=False).ids
    assert tokenizer.decode(ids) == TEXT
    assert b"".join(map(tokenizer.token_bytes, ids.tolist())).decode().strip(" ") == TEXT
    assert tokenizer.specials == tuple(range(engine.get_vocab_size(), engine.get_vocab_size() + 3))
    read = Tokenizer(json.loads(json.dumps(tokenizer.plain())))
    assert read == tokenizer
    assert all(tokenizer.label(token) for token in range(tokenizer.vocab_size))


@pytest.mark.parametrize(
    "changes",
    [{"document": "{}"}, {"document": 3}, {"vocab_size": 200}, {"vocab_size": "many"}, {"start": -1}, {"start": 259}],
)
def test_malformed_data_is_refused(changes: dict[str, Any]) -> None:
    plain = file_tokenizer(byte_level().to_str(), 259, 258).plain()
    with pytest.raises(UsageError):
        Tokenizer(plain | changes)


def test_a_text_without_tokens_is_refused() -> None:
    letters = file_tokenizer(character_engine({"a": 0}).to_str(), 1, 0)
    with pytest.raises(UnseenCharacter) as refused:
        letters.encode("b")
    assert (refused.value.character, refused.value.position) == ("b", 0)
    words = file_tokenizer(Engine(models.WordLevel({"a": 0, "the": 1}, "?")).to_str(), 2, 0)
    with pytest.raises(UsageError, match="UNK"):
        words.encode("b")


PIECES = ("?", "▁to", "be", "or▁not", "##s", "end</w>", "é", "xx", "<0x41>", "n't", ",")
REPLACED = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]


@pytest.mark.parametrize(
    "decoder",
    [
        *(None, decoders.Metaspace("▁", "always"), decoders.WordPiece("##", cleanup=False)),
        *(decoders.BPEDecoder("</w>"), decoders.ByteLevel(), decoders.Sequence(REPLACED)),
        decoders.Sequence([*REPLACED, decoders.Strip(" ", 1, 0)]),
    ],
    ids=str,
)
def test_inside_a_text_each_token_writes_what_the_package_writes(decoder: Any) -> None:
    engine = Engine(models.WordLevel({piece: index for index, piece in enumerate(PIECES)}, "?"))
    if decoder is not None:
        engine.decoder = decoder
    tokenizer = file_tokenizer(engine.to_str(), len(PIECES), 0)
    for token in range(len(PIECES)):
        ids = [2, token, 3, token, 6]
        assert tokenizer.decode(ids) == engine.decode(ids, skip_special_tokens=False)
        assert (
            b"".join(map(tokenizer.token_bytes, ids)).decode("utf-8", "replace").strip()
            == tokenizer.decode(ids).strip()
        )


@pytest.mark.parametrize("decoder", [decoders.CTC(), decoders.Sequence([decoders.Metaspace(), decoders.WordPiece()])])
def test_a_decoder_whose_tokens_have_no_bytes_is_refused(decoder: Any) -> None:
    engine = byte_level()
    engine.decoder = decoder
    with pytest.raises(UsageError):
        file_tokenizer(engine.to_str(), engine.get_vocab_size(), 0)


LONG = "b" * 1000


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("normalizer", normalizers.Replace("a", LONG)),
        ("normalizer", normalizers.Replace(Regex("[a-z]"), LONG)),
        ("normalizer", normalizers.Prepend(LONG)),
        ("normalizer", normalizers.Sequence([normalizers.Replace("a", "aaa")] * 9)),
        ("normalizer", normalizers.Sequence([normalizers.Sequence([normalizers.Replace("a", "a" * 20)] * 2)] * 2)),
        ("decoder", decoders.Replace("a", LONG)),
        ("decoder", decoders.Strip(" ", 10**9, 0)),
    ],
)
def test_a_file_that_makes_texts_too_long_is_refused(part: str, value: Any) -> None:
    engine = byte_level()
    setattr(engine, part, value)
    with pytest.raises(UsageError, match="256"):
        file_tokenizer(engine.to_str(), engine.get_vocab_size(), 0)


def test_a_table_of_long_replacements_is_refused() -> None:
    raw = (4).to_bytes(4, "little") + bytes(4) + LONG.encode() + b"\0"
    table = {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(raw).decode()}
    document = json.dumps(json.loads(byte_level().to_str()) | {"normalizer": table})
    with pytest.raises(UsageError, match="256"):
        file_tokenizer(document, 259, 0)


def test_a_fault_of_the_package_is_one_line() -> None:
    class PanicException(BaseException):
        """As that of the package."""

    def panic() -> None:
        raise PanicException("retry-limit\nover")

    with pytest.raises(UsageError, match="retry-limit over"):
        of_package(panic)
    with pytest.raises(KeyboardInterrupt):
        of_package(lambda: (_ for _ in ()).throw(KeyboardInterrupt))

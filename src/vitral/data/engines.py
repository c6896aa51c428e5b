"""What is asked of the `tokenizers` package: engines, the learning of merges, and what the tokens of a file write."""

import json
import re
from base64 import b64decode
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

from vitral.core.errors import UsageError

if TYPE_CHECKING:
    import tokenizers

EVERY_CHARACTER = r"[\s\S]"
MAX_TOKEN_BYTES = 64
"""Maximum length of a token of byte pairs; without a limit, merges of a repeated character would double forever."""
MOST_GROWTH = 256
"""Times that a tokenizer makes a text longer at most; those of the hub do so at most 70 times."""
_MIN_FREQUENCY = 2
_ADDED = ("content", "prepend", "start", "stop")
"""In the parts of a tokenizer, what they add to a character, or how often they do something to it."""
_NEIGHBOUR = "a"
"""A token before and after another one: some decoders write the first or the last token of a text in another way."""
_DECODERS = (
    {"ByteLevel", "Fuse"},
    {"WordPiece", "Fuse"},
    {"BPEDecoder", "Fuse"},
    {"Metaspace", "Replace", "ByteFallback", "Strip", "Fuse"},
)
"""Steps of decoders that may occur together."""

Merges = Sequence[Sequence[int]]


def of_package(compute: Callable[[], Any]) -> Any:
    """What the package computes.

    Raises:
        UsageError: the package fails, perhaps by a fault of its own (a panic), which is no Exception.
    """
    try:
        return compute()
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        said = " ".join(str(error).split())[:200]
    raise UsageError("tokenizer: its tokenizer.json cannot be used here ({error})", error=said)


def read_engine(document: str) -> "tokenizers.Tokenizer":
    """The engine of a `tokenizer.json`; the ids of a text are those of the whole text alone, never cut or filled up.

    Raises:
        UsageError: the document is not a tokenizer.json, or makes texts too long.
    """
    from tokenizers import Tokenizer

    engine = of_package(lambda: Tokenizer.from_str(document))
    engine.no_truncation()
    engine.no_padding()
    for part in (engine.normalizer, engine.decoder):
        if part is not None and _growth(json.loads(part.__getstate__())) > MOST_GROWTH:
            raise UsageError(
                "tokenizer: its normalizer or decoder can make a text more than {most} times as long; use another file",
                most=MOST_GROWTH,
            )
    return engine


def _growth(part: Mapping[str, Any]) -> float:
    """How many times longer than a text its normaliser or decoder makes it at most, as far as the file says it."""
    added = [part.get(key) or 0 for key in _ADDED]
    most = sum(len(one) if isinstance(one, str) else one for one in added)
    if mapped := b64decode(part.get("precompiled_charsmap") or ""):  # the size of a table, the table, replacements
        most = max(map(len, mapped[4 + int.from_bytes(mapped[:4], "little") :].split(b"\0")))
    replaced = (part.get("pattern") or {}).get("String")
    own = max(1, most / len(replaced)) if replaced else 1 + most
    return own * prod(map(_growth, part.get("normalizers") or part.get("decoders") or ()))


def encoding_of(engine: "tokenizers.Tokenizer", text: str) -> "tokenizers.Encoding":
    """The package's tokens of valid text.

    Raises:
        UsageError: it has none.
    """
    return of_package(lambda: engine.encode(text, add_special_tokens=False))


def character_engine(vocabulary: Mapping[str, int]) -> "tokenizers.Tokenizer":
    """One token for each character; a character without a token is refused."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

    engine = Tokenizer(models.WordLevel(dict(vocabulary)))
    engine.pre_tokenizer = pre_tokenizers.Split(Regex(EVERY_CHARACTER), "isolated")
    engine.decoder = decoders.Fuse()
    return engine


def byte_engine(
    vocabulary: Mapping[str, int] | None = None, merges: Iterable[tuple[str, str]] = (), *, in_words: bool = True
) -> "tokenizers.Tokenizer":
    """Byte-pair encoding over bytes, in words by GPT-2's rule or in the whole text."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    engine = Tokenizer(models.BPE(vocab=dict(vocabulary or {}), merges=list(merges)))
    engine.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=in_words)
    engine.decoder = decoders.ByteLevel()
    return engine


def learn_merges(blocks: Sequence[str], vocab_size: int) -> list[list[int]]:
    """Learn merges from blocks of text, most frequent pair first, until there are `vocab_size` tokens.

    The result is deterministic. Pairs that occur once are not merged, so a small text may yield fewer tokens.

    Args:
        blocks: texts; pairs across their borders are not counted.
        vocab_size: number of tokens, including the 256 bytes.

    """
    from tokenizers import trainers

    engine = byte_engine()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        min_frequency=_MIN_FREQUENCY,
        show_progress=False,
        initial_alphabet=byte_letters(),
        max_token_length=MAX_TOKEN_BYTES,
    )
    engine.train_from_iterator(blocks, trainer)
    return numbered_merges(json.loads(engine.to_str())["model"]["merges"])


def numbered_merges(spelled: Iterable[Sequence[str]]) -> list[list[int]]:
    """Merges as pairs of ids, from merges as pairs of words in the letters of the package.

    >>> numbered_merges([("t", "h"), ("th", "e")])
    [[116, 104], [256, 101]]
    """
    ids = {letter: byte for byte, letter in enumerate(byte_letters())}
    merges = list[list[int]]()
    for left, right in spelled:
        merges.append([ids[left], ids[right]])
        ids.setdefault(left + right, len(ids))
    return merges


def spelled_tokens(merges: Merges) -> list[str]:
    """The tokens of byte pairs in the letters of the package, by id: the bytes, then one for each merge that is new.

    Raises:
        ValueError: a merge uses a later id, or makes too long a token.
    """
    words = byte_letters()
    known = set(words)
    for left, right in merges:
        word = words[left] + words[right]
        if min(left, right) < 0 or len(word) > MAX_TOKEN_BYTES:
            raise ValueError
        if word not in known:
            known.add(word)
            words.append(word)
    return words


def byte_letters() -> list[str]:
    """The printable character that the package uses for each byte: GPT-2's `bytes_to_unicode`.

    Visible Latin-1 characters represent themselves; the other bytes become U+0100, U+0101 and so on.
    """
    visible = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    hidden = iter(range(0x100, 0x200))
    return [chr(byte if byte in visible else next(hidden)) for byte in range(256)]


_BYTES = {letter: byte for byte, letter in enumerate(byte_letters())}


def letters_to_bytes(text: str) -> bytes:
    """The bytes of a token in the letters of the package; a token with another character is a text."""
    try:
        return bytes(_BYTES[letter] for letter in text)
    except KeyError:
        return text.encode()


def spelling_of(engine: "tokenizers.Tokenizer") -> Callable[[str], bytes]:
    """What a token as its file spells it writes inside a text.

    Raises:
        UsageError: its decoder is of a kind whose tokens have no bytes of their own, such as CTC.
    """
    if engine.decoder is None:  # the package joins the tokens by spaces
        return lambda text: f" {text}".encode() if text else b""
    kinds = {*re.findall(r'"type": ?"(\w+)"', engine.decoder.__getstate__().decode())} - {"Sequence"}
    if not any(known.issuperset(kinds) for known in _DECODERS):
        raise UsageError("tokenizer: Vitral cannot decode its tokens (decoder {kind})", kind=", ".join(sorted(kinds)))
    return letters_to_bytes if "ByteLevel" in kinds else _each(engine.decoder, "ByteFallback" in kinds)


def _each(decoder: "tokenizers.decoders.Decoder", has_bytes: bool) -> Callable[[str], bytes]:
    """What a decoder writes for a token between others."""

    def written(*tokens: str) -> str:
        return of_package(lambda: decoder.decode([_NEIGHBOUR, *tokens]))

    def each(text: str) -> bytes:
        if has_bytes and (byte := re.fullmatch("<0x([0-9A-Fa-f]{2})>", text)):
            return bytes.fromhex(byte[1])
        whole = written(text, _NEIGHBOUR)
        return whole[before : len(whole) - after].encode()

    before = len(written())
    after = len(written(_NEIGHBOUR)) - before
    return each

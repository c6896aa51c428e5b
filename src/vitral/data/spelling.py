"""How the tokens of a `tokenizer.json` become the bytes of a text: its decoder, step by step."""

import json
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vitral.core.errors import UsageError
from vitral.data.byte_pairs import byte_letters

if TYPE_CHECKING:
    import tokenizers

Bytes = Callable[[str], bytes]
Step = Callable[[str], str]
BEFORE = "a"
"""A token before another one: some decoders write the first token of a text in another way."""
ERRORS = 2
"""The stream of errors of every process."""


@dataclass(frozen=True)
class Spelling:
    """What a decoder makes of tokens.

    Attributes:
        each: a token as the file spells it → its bytes inside a text.
        begin: a text, and how often it is left out where a whole text begins with it.
        end: the same where a whole text ends.
    """

    each: Bytes
    begin: tuple[str, int] = (" ", 0)
    end: tuple[str, int] = (" ", 0)

    def whole(self, text: str) -> str:
        """A whole text without what is left out at its ends."""
        for _time in range(self.begin[1]):
            text = text.removeprefix(self.begin[0])
        for _time in range(self.end[1]):
            text = text.removesuffix(self.end[0])
        return text


def spelling_of(engine: "tokenizers.Tokenizer") -> Spelling:
    """The spelling of a tokenizer of the package.

    Raises:
        UsageError: its decoder is of a kind whose tokens have no bytes of their own, such as CTC.
    """
    if engine.decoder is None:  # the package joins the tokens by spaces
        return Spelling(lambda text: f" {text}".encode() if text else b"", (" ", 1))
    parts = list(_parts(json.loads(engine.decoder.__getstate__())))
    kinds = [part["type"] for part in parts]
    if "ByteLevel" in kinds:
        known, make = {"ByteLevel", "Fuse"}, _byte_level
    elif "WordPiece" in kinds:
        known, make = {"WordPiece", "Fuse"}, _word_pieces
    elif "BPEDecoder" in kinds:
        known, make = {"BPEDecoder", "Fuse"}, _with_suffix
    else:
        known, make = {"Metaspace", "Replace", "ByteFallback", "Strip", "Fuse"}, _in_steps
    unknown = next((kind for kind in kinds if kind not in known), None)
    if unknown is not None:
        raise _unknown(unknown)
    return make(parts)


def _unknown(kind: str) -> UsageError:
    return UsageError("tokenizer: Vitral cannot decode its tokens (decoder {kind})", kind=kind)


def _parts(decoder: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    if decoder["type"] == "Sequence":
        for inner in decoder["decoders"]:
            yield from _parts(inner)
    else:
        yield decoder


def _byte_level(_parts: Sequence[Mapping[str, Any]]) -> Spelling:
    """Every letter is a byte; a token with another character is a text."""
    letters = {letter: byte for byte, letter in enumerate(byte_letters())}
    return Spelling(
        lambda text: bytes(letters[one] for one in text) if all(one in letters for one in text) else text.encode()
    )


def _word_pieces(parts: Sequence[Mapping[str, Any]]) -> Spelling:
    """A space before each token but a piece of a word, and none before some signs."""
    from tokenizers import decoders

    said = next(part for part in parts if part["type"] == "WordPiece")
    decoder = decoders.WordPiece(said["prefix"], said["cleanup"])
    return Spelling(lambda text: decoder.decode([BEFORE, text]).removeprefix(BEFORE).encode(), (" ", 1))


def _with_suffix(parts: Sequence[Mapping[str, Any]]) -> Spelling:
    """A space after each token that ends a word."""
    suffix = next(part["suffix"] for part in parts if part["type"] == "BPEDecoder")
    return Spelling(lambda text: text.replace(suffix, " ").encode(), end=(" ", 1))


def _in_steps(parts: Sequence[Mapping[str, Any]]) -> Spelling:
    """Steps on each token until they are joined (`Fuse`), then on the whole text."""
    kinds = [part["type"] for part in parts]
    joined = kinds.index("Fuse") if "Fuse" in kinds else len(kinds)
    has_bytes = "ByteFallback" in kinds[:joined]
    letters = kinds.index("ByteFallback") if has_bytes else 0
    before, after = (
        [_step(part) for part in some if part["type"] not in ("Fuse", "ByteFallback")]
        for some in (parts[:letters], parts[letters:joined])
    )
    begin, end = (" ", int(any(part.get("prepend_scheme", "never") != "never" for part in parts))), (" ", 0)
    for part in parts[joined:]:
        if part["type"] == "Strip":
            begin, end = (part["content"], part["start"]), (part["content"], part["stop"])
        elif part["type"] == "Replace" and len(part["pattern"].get("String", "")) == 1:
            after.append(_step(part))
        elif part["type"] != "Fuse":
            raise _unknown(part["type"])

    def each(text: str) -> bytes:
        for step in before:
            text = step(text)
        byte = _byte(text) if has_bytes else None
        if byte is not None:
            return byte
        for step in after:
            text = step(text)
        return text.encode()

    return Spelling(each, begin, end)


def _step(part: Mapping[str, Any]) -> Step:
    """What a part of a decoder does with one token."""
    if part["type"] == "Strip":
        return Spelling(str.encode, (part["content"], part["start"]), (part["content"], part["stop"])).whole
    if part["type"] == "Metaspace":
        return lambda text: text.replace(part["replacement"], " ")
    pattern, content = part["pattern"], part["content"]
    if "String" in pattern:
        return lambda text: text.replace(pattern["String"], content)
    from tokenizers import Regex, decoders

    decoder = decoders.Replace(Regex(pattern["Regex"]), content)  # its expressions are not Python's
    return lambda text: of_package(lambda: decoder.decode([text]))


def _byte(text: str) -> bytes | None:
    """The byte of a token such as `<0x0A>`."""
    if len(text) == 6 and text.startswith("<0x") and text.endswith(">"):
        try:
            return bytes([int(text[3:5], 16)])
        except ValueError:
            return None
    return None


def of_package(compute: Callable[[], Any]) -> Any:
    """What the package computes; in the first thread, what it prints of a fault of its own is kept off the screen.

    Other threads would take the lines of one another away.

    Raises:
        UsageError: the package fails, perhaps by a fault of its own (a panic), which is no Exception.
    """
    kept = None
    try:
        if threading.current_thread() is threading.main_thread():
            with suppress(OSError), open(os.devnull, "wb") as nowhere:  # there may be no such stream
                kept = os.dup(ERRORS)
                os.dup2(nowhere.fileno(), ERRORS)
        return compute()
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        said = " ".join(str(error).split())[:200]
    finally:
        if kept is not None:
            os.dup2(kept, ERRORS)
            os.close(kept)
    raise UsageError("tokenizer: its tokenizer.json cannot be used here ({error})", error=said)

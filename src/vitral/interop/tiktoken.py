"""Tokenizers of the kind of tiktoken: a file of tokens by rank, a pattern and special tokens, as a `tokenizer.json`."""

import base64
import binascii
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from vitral.core.errors import UsageError
from vitral.data.engines import byte_letters

MOST_RANKS = 1 << 20
MOST_BYTES = 1 << 10
"""In one token."""

_GPT2 = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_CL100K = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_END = "<|endoftext|>"
PATTERNS: Mapping[str, str] = {
    "gpt2": _GPT2,
    "r50k_base": _GPT2,
    "p50k_base": _GPT2,
    "cl100k_base": _CL100K,
}
"""Of the files that tiktoken itself loads, by their names."""
SPECIALS: Mapping[str, Mapping[str, int]] = {
    "gpt2": {_END: 50256},
    "r50k_base": {_END: 50256},
    "p50k_base": {_END: 50256},
    "cl100k_base": {
        _END: 100257,
        "<|fim_prefix|>": 100258,
        "<|fim_middle|>": 100259,
        "<|fim_suffix|>": 100260,
        "<|endofprompt|>": 100276,
    },
}
_ATOM = re.compile(r"\\[pP]\{\^?\w+\}|\\.|\[(?:\\.|\[:\^?\w+:\]|[^\]\\])*\]|\}\+|[$^]|.", re.DOTALL)
"""A part of a regular expression: an escaped character, a class, or one character."""


@dataclass(frozen=True)
class Ranks:
    """What a file of ranks does not hold.

    Attributes:
        pattern: the regular expression that cuts a text into words.
        special_tokens: each special token with its id.
    """

    pattern: str
    special_tokens: Mapping[str, int] = field(default_factory=dict)


def read_ranks(raw: bytes, path: Path) -> dict[bytes, int]:
    """The tokens of a `.tiktoken` file with their ranks, which are their ids.

    Raises:
        UsageError: a line is not a token in base64 and a rank, one is there twice, or a byte has no token.
    """
    found: dict[bytes, int] = {}
    for number, line in enumerate(raw.splitlines(), 1):
        if not line.strip():
            continue
        try:
            spelled, rank = line.split()
            token, index = base64.b64decode(spelled, validate=True), int(rank)
        except (ValueError, binascii.Error):
            raise _bad_line(path, number) from None
        if not 0 < len(token) <= MOST_BYTES or token in found or not 0 <= index < MOST_RANKS:
            raise _bad_line(path, number)
        found[token] = index
    if len(set(found.values())) < len(found):
        raise UsageError("{path}: two tokens have the same rank", path=path)
    missing = next((byte for byte in range(256) if bytes([byte]) not in found), None)
    if missing is not None:
        raise UsageError("{path}: the byte {byte} has no token", path=path, byte=missing)
    return found


def _bad_line(path: Path, number: int) -> UsageError:
    return UsageError(
        "{path}: line {number} is not a token in base64 and its rank, each token once", path=path, number=str(number)
    )


def document_of(ranks: Mapping[bytes, int], said: Ranks, where: Path) -> str:
    """The `tokenizer.json` with the same ids.

    A word that is a token as a whole is that token; else, of all neighbours that make a token, those of the lowest rank
    are joined first.

    Raises:
        UsageError: the pattern is none, or a special token has the id of another.
    """
    from tokenizers import AddedToken, Regex, decoders, models, pre_tokenizers
    from tokenizers import Tokenizer as Engine

    letters = byte_letters()

    def spelled(token: bytes) -> str:
        return "".join(letters[byte] for byte in token)

    vocabulary = {spelled(token): rank for token, rank in ranks.items()}
    taken, specials = set(ranks.values()), dict(said.special_tokens)
    if taken & set(specials.values()) or len(set(specials.values())) < len(specials) or vocabulary.keys() & specials:
        raise UsageError("{where}: a special token has the id or the text of another token", where=where)
    merges = [(spelled(left), spelled(right)) for left, right in _merges(ranks)]
    pattern = _same_pattern(said.pattern, where)
    try:
        cut = pre_tokenizers.Split(Regex(pattern), "isolated")
    except Exception as error:  # the package's own class
        raise UsageError("{where}: pattern: {error}", where=where, error=str(error)[:200]) from None
    engine = Engine(models.BPE(vocab={**vocabulary, **specials}, merges=merges, ignore_merges=True))
    whole = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    engine.pre_tokenizer = pre_tokenizers.Sequence([cut, whole])  # pyright: ignore[reportAttributeAccessIssue]
    engine.decoder = decoders.ByteLevel()
    engine.add_special_tokens([AddedToken(text, normalized=False, special=True) for text in specials])
    return engine.to_str(pretty=False)


def _merges(ranks: Mapping[bytes, int]) -> Iterator[tuple[bytes, bytes]]:
    """Every pair of tokens that is a token, by the rank of that token."""
    for token in sorted(ranks, key=lambda one: ranks[one]):
        for place in range(1, len(token)):
            if token[:place] in ranks and token[place:] in ranks:
                yield token[:place], token[place:]


def _same_pattern(pattern: str, where: Path) -> str:
    r"""A pattern of tiktoken in the language of the `tokenizers` package.

    There, `$` is the end of a line (here it becomes `\z`), and the `+` of `{1,3}+` repeats instead of holding on to
    what was found, which is the same as without it at the end of an alternative only.

    Raises:
        UsageError: it has such a `+` elsewhere.
    """
    parts = [match[0] for match in _ATOM.finditer(pattern)]
    written = list[str]()
    for part, following in zip(parts, [*parts[1:], "|"], strict=True):
        if part == "}+" and following not in "|)":
            raise UsageError(
                "{where}: pattern: {part} can be taken over at the end of an alternative only", where=where, part=part
            )
        written.append({"$": r"\z", "^": r"\A", "}+": "}"}.get(part, part))
    return "".join(written)

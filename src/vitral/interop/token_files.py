"""The tokenizer of an imported model, from what its user has: a file of tokens of any kind, or the training text."""

import base64
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field
from torch import Tensor

from vitral.core.config import Config, parse_toml
from vitral.core.errors import UsageError
from vitral.core.files import as_json, sha256
from vitral.data.engines import byte_letters, character_engine
from vitral.data.tokenizers import MOST_TOKENS, Tokenizer, char_tokenizer, file_tokenizer
from vitral.interop.foreign import TOKENIZER_FILES, fetched, is_hub, read_file, require_fit
from vitral.interop.tokenizer_json import decoded, foreign_tokenizer, read_tokenizer
from vitral.model import ModelConfig

MOST_RANKS = 1 << 20
MOST_BYTES = 1 << 10
"""In one token."""

_GPT2 = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_CL100K = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_END = "<|endoftext|>"


class TokenFile(Config):
    """A tokenizer in TOML: byte pairs by rank, or characters.

    Attributes:
        ranks: a `.tiktoken` file beside this one: a token in base64 and its rank on each line.
        pattern: the regular expression that cuts a text into words before bytes are joined.
        special_tokens: each special token with its id.
        characters: all characters, in the order of their ids.
        pad: whether id 0 is `<PAD>`, and the first character has id 1.
    """

    ranks: str | None = None
    pattern: str = ""
    special_tokens: dict[str, Annotated[int, Field(ge=0, lt=MOST_TOKENS)]] = Field(default_factory=dict)
    characters: str | None = None
    pad: bool = False


_R50K = TokenFile(pattern=_GPT2, special_tokens={_END: 50256})
_OTHERS = {"<|fim_prefix|>": 100258, "<|fim_middle|>": 100259, "<|fim_suffix|>": 100260, "<|endofprompt|>": 100276}
KNOWN = {
    **dict.fromkeys(("gpt2", "r50k_base", "p50k_base"), _R50K),
    "cl100k_base": TokenFile(pattern=_CL100K, special_tokens={_END: 100257} | _OTHERS),
}
"""Of the files that tiktoken itself loads, by their names."""
_ATOM = re.compile(r"\\[pP]\{\^?\w+\}|\\.|\[(?:\\.|\[:\^?\w+:\]|[^\]\\])*\]|\}\+|[$^]|.", re.DOTALL)
"""A part of a regular expression: an escaped character, a class, or one character."""


def read_ranks(raw: bytes, path: Path) -> dict[bytes, int]:
    """The tokens of a `.tiktoken` file with their ranks, which are their ids.

    Raises:
        UsageError: a line is not a token in base64 and a rank, one is there twice, or a byte has no token.
    """
    ranks: dict[bytes, int] = {}
    for number, line in enumerate(raw.splitlines(), 1):
        if not line.strip():
            continue
        try:
            spelled, rank = line.split()
            token, index = base64.b64decode(spelled, validate=True), int(rank)
            if not 0 < len(token) <= MOST_BYTES or token in ranks or not 0 <= index < MOST_RANKS:
                raise ValueError
        except ValueError:
            raise UsageError(
                "{path}: line {number} is not a token in base64 and its rank, each token once",
                path=path,
                number=str(number),
            ) from None
        ranks[token] = index
    if len(set(ranks.values())) < len(ranks):
        raise UsageError("{path}: two tokens have the same rank", path=path)
    missing = next((byte for byte in range(256) if bytes([byte]) not in ranks), None)
    if missing is not None:
        raise UsageError("{path}: the byte {byte} has no token", path=path, byte=missing)
    return ranks


def document_of(ranks: Mapping[bytes, int], said: TokenFile, where: Path) -> str:
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
        for border in range(1, len(token)):
            if token[:border] in ranks and token[border:] in ranks:
                yield token[:border], token[border:]


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


MOST_TEXT = 1 << 31
MOST_LISTED = 1 << 26
PICKLES = (".pkl", ".pt", ".bin")


def tokenizer_from(
    given: str | Path, vocab_size: int, said: Mapping[str, Any] | None = None
) -> tuple[Tokenizer, dict[str, str]]:
    """A tokenizer, and the SHA-256 of each file that it was read from.

    Args:
        given: `hf:OWNER/NAME`; a folder with `tokenizer.json`, or that file; a `.tiktoken` file of a known name; a
            `.toml` file (`TokenFile`); or a text, whose distinct characters in the order of their code points are the
            tokens, as in nanoGPT.
        vocab_size: rows of the model's embedding.
        said: the model's configuration, whose `bos_token_id` begins an empty prompt.

    Raises:
        UsageError: it cannot be read, or its tokens are not those of the model.
    """
    read, files = _read(given, vocab_size, said or {})
    return read, {name: sha256(raw) for name, raw in files.items()}


def _read(given: str | Path, vocab_size: int, said: Mapping[str, Any]) -> tuple[Tokenizer, Mapping[str, bytes]]:
    if is_hub(str(given)):
        folder, _place = fetched(str(given), TOKENIZER_FILES)
        return read_tokenizer(folder, vocab_size, said)
    path = Path(given)
    if path.suffix in PICKLES:
        raise UsageError(
            "{path}: may hold a program, so it is not read; for nanoGPT's meta.pkl give the training text, whose "
            "characters are the same tokens (--tokenizer input.txt)",
            path=path,
        )
    if path.is_dir() or path.suffix == ".json":
        return read_tokenizer(path, vocab_size, said)
    if path.suffix == ".tiktoken":
        if path.stem not in KNOWN:
            raise UsageError(
                "{path}: a .tiktoken file does not hold the pattern that cuts a text into words; give a .toml file "
                "with ranks, pattern and special_tokens, or a file named after {known}",
                path=path,
                known=", ".join(KNOWN),
            )
        return _of_ranks(KNOWN[path.stem], path, path, {}, vocab_size)
    if path.suffix == ".toml":
        return _of_toml(path, vocab_size)
    raw = read_file(path, MOST_TEXT)
    return _of_characters(_characters(raw, path), False, vocab_size, path), {path.name: raw}


def _characters(raw: bytes, path: Path) -> str:
    """The distinct characters of a text, as Python reads one: every kind of line end is a newline."""
    text = decoded(raw, path)
    return "".join(sorted(set(text.replace("\r\n", "\n").replace("\r", "\n"))))


def _of_characters(characters: str, pad: bool, vocab_size: int, path: Path) -> Tokenizer:
    if len(set(characters)) < len(characters):
        raise UsageError("{path}: characters: one of them is there twice", path=path)
    count = len(characters) + pad
    if count != vocab_size or not characters:
        raise UsageError(
            "{path}: has {count:,} tokens, one for each character, but the model has {vocab_size:,}; give the text "
            "that it was trained on",
            path=path,
            count=count,
            vocab_size=vocab_size,
        )
    if pad:
        return char_tokenizer(characters)
    engine = character_engine({character: token for token, character in enumerate(characters)})
    return file_tokenizer(engine.to_str(pretty=False), vocab_size)


def _of_toml(path: Path, vocab_size: int) -> tuple[Tokenizer, dict[str, bytes]]:
    raw = read_file(path, MOST_LISTED)
    said = TokenFile.parse(parse_toml(raw, path), str(path))
    if said.characters is not None and not (said.ranks or said.pattern or said.special_tokens):
        return _of_characters(said.characters, said.pad, vocab_size, path), {path.name: raw}
    if said.characters is not None or not said.ranks or not said.pattern or said.pad:
        raise UsageError(
            "{path}: needs either ranks (a .tiktoken file), pattern and special_tokens, or characters and pad",
            path=path,
        )
    return _of_ranks(said, path.parent / said.ranks, path, {path.name: raw}, vocab_size)


def _of_ranks(
    said: TokenFile, file: Path, where: Path, files: Mapping[str, bytes], vocab_size: int
) -> tuple[Tokenizer, dict[str, bytes]]:
    raw = read_file(file, MOST_LISTED)
    document = document_of(read_ranks(raw, file), said, where)
    begin = said.special_tokens.get(_END)
    return foreign_tokenizer(document, where, vocab_size, {"bos_token_id": begin}), {**files, file.name: raw}


@dataclass(frozen=True)
class Imported:
    """A model to be made a run.

    Attributes:
        config: its configuration.
        weights: its tensors by our names.
        tokenizer: its tokenizer.
        origin: where it comes from, as plain data: form, source, files with their SHA-256, its own configuration.
    """

    config: ModelConfig
    weights: Mapping[str, Tensor]
    tokenizer: Tokenizer
    origin: Mapping[str, Any]


def whole(
    config: ModelConfig,
    weights: Mapping[str, Tensor],
    vocab_size: int,
    origin: Mapping[str, Any],
    *,
    tokenizer: str | Path,
) -> Imported:
    """A model whose weights are those of its configuration, with its tokenizer.

    Args:
        config: its configuration.
        weights: its tensors by our names.
        vocab_size: rows of its embedding.
        origin: as in `Imported`, without the files of the tokenizer.
        tokenizer: what `tokenizer_from` takes.

    Raises:
        UsageError: a tensor is missing or of another shape or type, or the tokenizer cannot be read or is another's.
    """
    require_fit(config, vocab_size, weights, origin["source"])
    try:
        as_json(origin)
    except ValueError as error:  # a number that is not finite, or half a letter
        said = ascii(str(error))[1:-1]
        raise UsageError("{path}: cannot be read ({error})", path=origin["source"], error=said) from None
    read, files = tokenizer_from(tokenizer, vocab_size, origin["config"])
    return Imported(config, weights, read, {**origin, "files": {**origin["files"], **files}})

"""The tokenizer of an imported model, from what its user has: a file of tokens of any kind, or the training text."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from vitral.core.config import Config, parse_toml
from vitral.core.errors import UsageError
from vitral.core.files import sha256
from vitral.data.alphabet import PAD
from vitral.data.engines import character_engine
from vitral.data.tokenizers import MOST_TOKENS, Tokenizer, char_tokenizer, file_tokenizer
from vitral.interop.foreign import read_file
from vitral.interop.hub import TOKENIZER_FILES, fetched, is_hub
from vitral.interop.tiktoken import PATTERNS, SPECIALS, Ranks, document_of, read_ranks
from vitral.interop.tokenizer_json import foreign_tokenizer, read_tokenizer

MOST_TEXT = 1 << 31
MOST_LISTED = 1 << 26
PICKLES = (".pkl", ".pt", ".bin")


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
    pattern: Annotated[str, Field(min_length=1)] | None = None
    special_tokens: dict[str, Annotated[int, Field(ge=0, lt=MOST_TOKENS)]] = Field(default_factory=dict)
    characters: str | None = None
    pad: bool = False


def tokenizer_from(
    given: str | Path, vocab_size: int, said: Mapping[str, Any] | None = None, *, hub: Any = None
) -> tuple[Tokenizer, dict[str, str]]:
    """A tokenizer, and the SHA-256 of each file that it was read from.

    Args:
        given: `hf:OWNER/NAME`; a folder with `tokenizer.json`, or that file; a `.tiktoken` file of a known name; a
            `.toml` file (`TokenFile`); or a text, whose distinct characters in the order of their code points are the
            tokens, as in nanoGPT.
        vocab_size: rows of the model's embedding.
        said: the model's configuration, whose `bos_token_id` begins an empty prompt.
        hub: stands in for the package `huggingface_hub`.

    Raises:
        UsageError: it cannot be read, or its tokens are not those of the model.
    """
    read, files = _read(given, vocab_size, said or {}, hub)
    return read, {name: sha256(raw) for name, raw in files.items()}


def _read(
    given: str | Path, vocab_size: int, said: Mapping[str, Any], hub: Any
) -> tuple[Tokenizer, Mapping[str, bytes]]:
    if is_hub(str(given)):
        folder, _place = fetched(str(given), hub, TOKENIZER_FILES)
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
        return _of_ranks(_known(path), path, path, {}, vocab_size)
    if path.suffix == ".toml":
        return _of_toml(path, vocab_size)
    raw = read_file(path, MOST_TEXT)
    return _of_characters(_characters(raw, path), False, vocab_size, path), {path.name: raw}


def _characters(raw: bytes, path: Path) -> str:
    """The distinct characters of a text, as Python reads one: every kind of line end is a newline."""
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError("{path}: not UTF-8 at byte {start}", path=path, start=error.start) from None
    characters = set(text)
    if "\r" in characters:
        characters = set(text.replace("\r\n", "\n").replace("\r", "\n"))
    return "".join(sorted(characters))


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
    if (said.ranks is None) == (said.characters is None):
        raise UsageError("{path}: needs either ranks (a .tiktoken file) or characters", path=path)
    if said.characters is not None:
        if said.special_tokens or said.pattern is not None:
            raise UsageError("{path}: pattern and special_tokens belong to ranks, not to characters", path=path)
        return _of_characters(said.characters, said.pad, vocab_size, path), {path.name: raw}
    if said.pattern is None or said.pad:
        raise UsageError("{path}: ranks need a pattern, and no {pad}", path=path, pad=PAD)
    ranks = Ranks(said.pattern, said.special_tokens)
    return _of_ranks(ranks, path.parent / str(said.ranks), path, {path.name: raw}, vocab_size)


def _known(path: Path) -> Ranks:
    """The pattern and the special tokens of a file of a known name."""
    if path.stem not in PATTERNS:
        raise UsageError(
            "{path}: a .tiktoken file does not hold the pattern that cuts a text into words; give a .toml file with "
            "ranks, pattern and special_tokens, or a file named after {known}",
            path=path,
            known=", ".join(PATTERNS),
        )
    return Ranks(PATTERNS[path.stem], SPECIALS[path.stem])


def _of_ranks(
    said: Ranks, file: Path, where: Path, files: Mapping[str, bytes], vocab_size: int
) -> tuple[Tokenizer, dict[str, bytes]]:
    raw = read_file(file, MOST_LISTED)
    document = document_of(read_ranks(raw, file), said, where)
    begin = said.special_tokens.get("<|endoftext|>")
    return foreign_tokenizer(document, where, vocab_size, {"bos_token_id": begin}), {**files, file.name: raw}

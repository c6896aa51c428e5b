"""Tokenizers that travel: ours as `tokenizer.json`, and any `tokenizer.json` as one of ours."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from vitral.core.errors import UsageError
from vitral.core.files import as_json, readable
from vitral.data.alphabet import PAD
from vitral.data.engines import byte_engine, byte_letters, numbered_merges, read_engine
from vitral.data.tokenizers import (
    Tokenizer,
    bpe_tokenizer,
    byte_tokenizer,
    char_tokenizer,
    declaring,
    file_tokenizer,
)
from vitral.interop.foreign import read_file, read_json

DOCUMENT, SETTINGS = "tokenizer.json", "tokenizer_config.json"
MOST_TOKENIZER = 1 << 26


def tokenizer_files(tokenizer: Tokenizer, context_length: int, **more: str) -> dict[str, bytes]:
    """The tokenizer as transformers reads it: the class that takes the ids of the file, and no cleaning of the text.

    Args:
        tokenizer: any.
        context_length: of the model.
        more: further settings.
    """
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        "model_max_length": context_length,
        **more,
    }
    return {DOCUMENT: tokenizer.document.encode("utf-8"), SETTINGS: as_json(settings)}


def ids_by(folder: Path) -> Callable[[str], list[int]]:
    """The ids of a text by the tokenizer of an export."""
    engine = read_engine((folder / DOCUMENT).read_text(encoding="utf-8"))
    return lambda text: list(engine.encode(text, add_special_tokens=False).ids)


def read_tokenizer(folder: Path, vocab_size: int, said: Mapping[str, Any]) -> tuple[Tokenizer, dict[str, bytes]]:
    """The tokenizer of a folder, and the files that it was read from.

    A file that Vitral could have written becomes the tokenizer that wrote it.

    Args:
        folder: has `tokenizer.json`, or `vocab.json` and `merges.txt`; or a `tokenizer.json` itself.
        vocab_size: rows of the model's embedding.
        said: the model's configuration, whose `bos_token_id` begins an empty prompt.

    Raises:
        UsageError: there is none, it cannot be read, or it has more tokens than the model.
    """
    path = folder / DOCUMENT if folder.is_dir() else folder
    if path == folder or path.exists():
        raw = read_file(path, MOST_TOKENIZER)
        return foreign_tokenizer(decoded(raw, path), path, vocab_size, said), {path.name: raw}
    files = {
        name: read_file(folder / name, MOST_TOKENIZER)
        for name in ("vocab.json", "merges.txt")
        if (folder / name).exists()
    }
    if len(files) == 2:
        document = _from_merges(folder, files)
        return foreign_tokenizer(document, folder / "vocab.json", vocab_size, said), files
    raise UsageError(
        "{folder}: no tokenizer.json; give one with --tokenizer, or write it with transformers: "
        "AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER)",
        folder=folder,
    )


def decoded(raw: bytes, path: Path) -> str:
    """The text of a file.

    Raises:
        UsageError: it is not UTF-8.
    """
    with readable(path):
        return raw.decode("utf-8")


def foreign_tokenizer(document: str, path: Path, vocab_size: int, said: Mapping[str, Any]) -> Tokenizer:
    """The tokenizer of a `tokenizer.json`; ours where Vitral could have written it.

    Args:
        document: its content.
        path: the file, for messages.
        vocab_size: rows of the model's embedding.
        said: the model's configuration, whose `bos_token_id` begins an empty prompt.

    Raises:
        UsageError: it cannot be read, or has more tokens than the model.
    """
    data = read_json(document.encode("utf-8"), path)
    own = _candidate(data)
    if own is not None and own.vocab_size == vocab_size and json.loads(own.document) == data:
        return own
    try:
        return file_tokenizer(document, vocab_size, said.get("bos_token_id"))
    except UsageError as error:
        raise UsageError("{path}: {error}", path=path, error=error) from None


def _candidate(data: Mapping[str, Any]) -> Tokenizer | None:
    """The tokenizer of ours that may have written this document; None if there is none."""
    model = data.get("model")
    if not isinstance(model, Mapping) or not isinstance(model.get("vocab"), Mapping):
        return None
    try:
        listed = (one for one in data.get("added_tokens") or () if isinstance(one, Mapping))
        specials = {str(one.get("content")): int(one.get("id", -1)) for one in listed}
        words = sorted((word for word in model["vocab"] if word not in specials), key=lambda word: model["vocab"][word])
        if model.get("type") == "WordLevel" and words[:1] == [PAD] and all(len(word) == 1 for word in words[1:]):
            made = char_tokenizer("".join(words[1:]))
        elif model.get("type") == "BPE" and words[:256] == byte_letters():
            merges = [
                tuple(one.split(" ")) if isinstance(one, str) else tuple(one) for one in model.get("merges") or ()
            ]
            made = bpe_tokenizer(numbered_merges(merges)) if merges else byte_tokenizer()
        else:
            return None
        return declaring(made, specials)
    except (UsageError, KeyError, ValueError, TypeError, OverflowError):
        return None


def _from_merges(folder: Path, files: Mapping[str, bytes]) -> str:
    """The document of a byte-level tokenizer in GPT-2's two files."""
    from tokenizers import AddedToken

    vocabulary = read_json(files["vocab.json"], folder / "vocab.json")
    lines = decoded(files["merges.txt"], folder / "merges.txt").splitlines()
    merges = [tuple(line.split(" ")) for line in lines if line and not line.startswith("#version")]
    try:
        engine = byte_engine(vocabulary, merges)  # pyright: ignore[reportArgumentType]
    except Exception as error:  # the package's own class
        raise UsageError("{path}: cannot be read ({error})", path=folder / "merges.txt", error=error) from None
    path = folder / "special_tokens_map.json"
    listed = read_json(read_file(path, MOST_TOKENIZER), path) if path.exists() else {}
    texts = [
        one.get("content") if isinstance(one, Mapping) else one for one in listed.values() if not isinstance(one, list)
    ]
    known = [text for text in dict.fromkeys([*texts, "<|endoftext|>"]) if isinstance(text, str) and text in vocabulary]
    engine.add_special_tokens([AddedToken(text, normalized=False, special=True) for text in known])
    return engine.to_str(pretty=False)

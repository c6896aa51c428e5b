"""Tokenizers that travel: ours as `tokenizer.json`, and any `tokenizer.json` as one of ours."""

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from vitral.core.errors import UsageError
from vitral.data.alphabet import PAD
from vitral.data.byte_pairs import BPETokenizer, byte_letters, numbered_merges
from vitral.data.file_tokenizer import FileTokenizer, encoding_of, read_engine
from vitral.data.tokenizers import ByteTokenizer, CharTokenizer, DeclaringTokenizer, Tokenizer, undeclared
from vitral.interop.foreign import read_file, read_if_there, read_json

DOCUMENT, SETTINGS = "tokenizer.json", "tokenizer_config.json"
MOST_TOKENIZER = 1 << 26
EVERY_CHARACTER = r"[\s\S]"
NEWLINE = "\n"


def written(tokenizer: Tokenizer) -> str:
    """The `tokenizer.json` of a tokenizer: the same ids for every text that it accepts.

    Raises:
        UsageError: it is a foreign one that has grown by other ids than its file can have.
    """
    from tokenizers import AddedToken

    base, declared = undeclared(tokenizer)
    if isinstance(base, FileTokenizer):
        engine = read_engine(base.document)
        if not declared:
            data = json.loads(base.document)
            return engine.to_str(pretty=False) if data.get("truncation") or data.get("padding") else base.document
    else:
        engine = _engine(base, [text for text, _ in declared], tokenizer)
    engine.add_special_tokens([AddedToken(text, normalized=False, special=True) for text, _ in declared])
    if any(engine.token_to_id(text) != token for text, token in declared):
        raise UsageError("tokenizer: the special tokens that were added to it have other ids in its file")
    return engine.to_str(pretty=False)


def _engine(base: Tokenizer, specials: list[str], whole: Tokenizer) -> Any:
    """The tokenizer of the package; special tokens are words of its vocabulary, which keep their ids."""
    from tokenizers import Tokenizer as Engine
    from tokenizers import decoders, models, pre_tokenizers

    taken = dict(whole.declared) if isinstance(whole, DeclaringTokenizer) else {}
    free = [token for token in range(whole.vocab_size) if token not in set(taken.values())]
    if isinstance(base, CharTokenizer):
        words = [PAD, *base.alphabet]
        return _of_characters({**dict(zip(words, free, strict=True)), **taken})
    letters = byte_letters()
    merges = base.merges if isinstance(base, BPETokenizer) else ()
    spelled = ["".join(letters[byte] for byte in base.token_bytes(token)) for token in range(base.vocab_size)]
    vocabulary = {**dict(zip(spelled, free, strict=True)), **taken}
    engine = Engine(models.BPE(vocab=vocabulary, merges=[(spelled[left], spelled[right]) for left, right in merges]))
    # Only byte-pair encoding splits a text into words; a byte is a byte without it too.
    words_first = not isinstance(base, ByteTokenizer)
    engine.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=words_first)
    engine.decoder = decoders.ByteLevel()
    return engine


def _of_characters(vocabulary: dict[str, int]) -> Any:
    """One token for each character; a character without a token is refused."""
    from tokenizers import Regex, decoders, models, pre_tokenizers
    from tokenizers import Tokenizer as Engine

    engine = Engine(models.WordLevel(vocabulary))
    engine.pre_tokenizer = pre_tokenizers.Split(Regex(EVERY_CHARACTER), "isolated")
    engine.decoder = decoders.Fuse()
    return engine


def character_document(vocabulary: dict[str, int]) -> str:
    """The `tokenizer.json` of characters with these ids."""
    return _of_characters(vocabulary).to_str(pretty=False)


def settings_of(context_length: int) -> dict[str, Any]:
    """The `tokenizer_config.json`: the class that takes the ids of the file, and no cleaning of the text."""
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        "model_max_length": context_length,
    }


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
    if not folder.is_dir():
        raw = read_file(folder, MOST_TOKENIZER)
        return foreign_tokenizer(_text(raw, folder), folder, vocab_size, said), {folder.name: raw}
    raw = read_if_there(folder / DOCUMENT, MOST_TOKENIZER)
    if raw is not None:
        return foreign_tokenizer(_text(raw, folder / DOCUMENT), folder / DOCUMENT, vocab_size, said), {DOCUMENT: raw}
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


def _text(raw: bytes, path: Path) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError("{path}: cannot be read ({error})", path=path, error=error) from None


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
    own = _own(data, vocab_size)
    if own is not None:
        return own
    try:
        engine = read_engine(document)
    except UsageError as error:
        raise UsageError("{path}: {error}", path=path, error=error) from None
    begin = said.get("bos_token_id")
    newline = list[int]()
    with suppress(UsageError):  # it may have no token
        newline = encoding_of(engine, NEWLINE).ids
    known = [token for token in (begin, *newline, 0) if type(token) is int and 0 <= token < vocab_size]
    try:
        return FileTokenizer(document, vocab_size, known[0])
    except UsageError as error:
        raise UsageError("{path}: {error}", path=path, error=error) from None


def _own(data: Mapping[str, Any], vocab_size: int) -> Tokenizer | None:
    """The tokenizer of ours that would write this document; None if there is none."""
    found = _candidate(data)
    if found is None or found.vocab_size != vocab_size:
        return None
    return found if json.loads(written(found)) == data else None


def _candidate(data: Mapping[str, Any]) -> Tokenizer | None:
    model = data.get("model")
    if not isinstance(model, Mapping) or not isinstance(model.get("vocab"), Mapping):
        return None
    try:
        added = [
            (str(one.get("content")), int(one.get("id", -1)))
            for one in data.get("added_tokens") or ()
            if isinstance(one, Mapping)
        ]
        declared = tuple(sorted(added, key=lambda one: one[1]))
        specials = {text for text, _ in declared}
        words = sorted((word for word in model["vocab"] if word not in specials), key=lambda word: model["vocab"][word])
        base: Tokenizer
        if model.get("type") == "WordLevel" and words[:1] == [PAD] and all(len(word) == 1 for word in words[1:]):
            base = CharTokenizer("".join(words[1:]))
        elif model.get("type") == "BPE" and words[:256] == byte_letters():
            merges = [
                tuple(one.split(" ")) if isinstance(one, str) else tuple(one) for one in model.get("merges") or ()
            ]
            base = BPETokenizer(numbered_merges(merges)) if merges else ByteTokenizer()
        else:
            return None
        return DeclaringTokenizer(base, declared) if declared else base
    except (UsageError, KeyError, ValueError, TypeError, OverflowError):
        return None


def _from_merges(folder: Path, files: Mapping[str, bytes]) -> str:
    """The document of a byte-level tokenizer in GPT-2's two files."""
    from tokenizers import AddedToken, decoders, models, pre_tokenizers
    from tokenizers import Tokenizer as Engine

    vocabulary = read_json(files["vocab.json"], folder / "vocab.json")
    lines = _text(files["merges.txt"], folder / "merges.txt").splitlines()
    merges = [tuple(line.split(" ")) for line in lines if line and not line.startswith("#version")]
    try:
        engine = Engine(models.BPE(vocab=vocabulary, merges=merges))  # pyright: ignore[reportArgumentType]
    except Exception as error:  # the package's own class
        raise UsageError("{path}: cannot be read ({error})", path=folder / "merges.txt", error=error) from None
    engine.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    engine.decoder = decoders.ByteLevel()
    raw = read_if_there(folder / "special_tokens_map.json", MOST_TOKENIZER)
    listed = {} if raw is None else read_json(raw, folder / "special_tokens_map.json")
    texts = [
        one.get("content") if isinstance(one, Mapping) else one for one in listed.values() if not isinstance(one, list)
    ]
    known = [text for text in dict.fromkeys([*texts, "<|endoftext|>"]) if isinstance(text, str) and text in vocabulary]
    engine.add_special_tokens([AddedToken(text, normalized=False, special=True) for text in known])
    return engine.to_str(pretty=False)

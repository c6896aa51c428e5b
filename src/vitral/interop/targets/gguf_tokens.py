"""Tokenizers as llama.cpp has them, as byte pairs: the same ids for every text that the tokenizer accepts."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from vitral.core.errors import UsageError
from vitral.data.engines import EVERY_CHARACTER, byte_letters
from vitral.data.tokenizers import Tokenizer

GPT2_WORDS = "trillion"
"""llama.cpp's name for GPT-2's words; under the name "gpt-2" it also takes spaces before points out of a text."""
SPLITS = {
    ("ByteLevel",): GPT2_WORDS,
    ("Digits", "ByteLevel"): "smollm",
}
NORMAL, CONTROL, USER_DEFINED, UNUSED = 1, 3, 4, 5
NEVER = 0xFF
"""A byte that no text has."""


@dataclass(frozen=True)
class Vocabulary:
    """A tokenizer in a GGUF file.

    Attributes:
        splits: how a text is split into words before byte pairs are joined.
        texts: every token as the file spells it.
        types: the kind of each token.
        begin: the token that begins a text; none is added by itself.
        end: the token that ends a text.
        merges: of byte pairs.
    """

    splits: str
    texts: list[str]
    types: list[int]
    begin: int
    end: int
    merges: list[str]


def vocabulary(tokenizer: Tokenizer, special: Mapping[str, Any]) -> Vocabulary:
    """A tokenizer as llama.cpp has it.

    Args:
        tokenizer: the tokenizer.
        special: `bos_token_id` and `eos_token_id` of an imported model.

    Raises:
        UsageError: llama.cpp has none like it.
    """
    if tokenizer.name != "file":
        return _by_bytes(tokenizer, special)
    document = json.loads(tokenizer.document)
    if document["model"]["type"] != "WordLevel":
        return _of_pairs(tokenizer, document, special)
    splits = document.get("pre_tokenizer") or {}
    is_split = splits.get("behavior") == "Isolated" and splits.get("pattern") == {"Regex": EVERY_CHARACTER}
    if not is_split or document.get("normalizer") is not None or document.get("added_tokens"):
        raise _none_like_it(document)
    return _by_bytes(tokenizer, special)


def _by_bytes(tokenizer: Tokenizer, special: Mapping[str, Any]) -> Vocabulary:
    """Characters, bytes and byte pairs as byte pairs; a character is a chain of merges of its bytes."""
    named, letters = {token: text for text, token in tokenizer.declared.items()}, byte_letters()
    texts, types = [], []
    for token in range(tokenizer.vocab_size):
        held = b"" if token in named else tokenizer.token_bytes(token)
        is_word = tokenizer.name == "file" and len(held.decode("utf-8")) != 1  # no text is split into one
        spelled = "" if is_word else "".join(letters[byte] for byte in held)
        texts.append(named.get(token) or spelled or _filler(token))
        types.append(CONTROL if token in named else NORMAL if spelled else UNUSED)
    if tokenizer.name == "bpe":
        merges = [f"{tokenizer.words[left]} {tokenizer.words[right]}" for left, right in tokenizer.merges]
    else:
        merges = list(dict.fromkeys(_chains(text for text, kind in zip(texts, types, strict=True) if kind == NORMAL)))
    # llama.cpp refuses a file without merges, and would end a text at token 11 if nothing else were said.
    merges = merges or [" ".join(letters[NEVER] * 2)]
    begin, end = _begin_and_end(special, _never(types, texts))
    return Vocabulary(GPT2_WORDS, texts, types, begin, end, merges)


def _never(types: list[int], texts: list[str]) -> int:
    """A token that ends no text too early: one without a text, a byte that no text has, else the last one."""
    unused = [token for token, kind in enumerate(types) if kind == UNUSED]
    byte = byte_letters()[NEVER]
    return unused[0] if unused else texts.index(byte) if byte in texts else len(texts) - 1


def _filler(token: int) -> str:
    """The text of an id without a token; not one that llama.cpp knows, such as `<PAD>`."""
    return f"[no token {token}]"


def _chains(texts: Iterable[str]) -> Iterator[str]:
    """The merges that join the bytes of each character from the left; characters with equal first bytes share them."""
    for text in texts:
        for size in range(1, len(text)):
            yield f"{text[:size]} {text[size]}"


def _begin_and_end(special: Mapping[str, Any], otherwise: int) -> tuple[int, int]:
    begin, end = (
        next(iter(found), None) if isinstance(found := special.get(key), list) else found
        for key in ("bos_token_id", "eos_token_id")
    )
    end = otherwise if end is None else end
    return (end if begin is None else begin), end


def _of_pairs(tokenizer: Tokenizer, document: Mapping[str, Any], special: Mapping[str, Any]) -> Vocabulary:
    """Byte pairs of another library."""
    model, added = document["model"], {one["id"]: one for one in document.get("added_tokens") or ()}
    strips = any(one.get("lstrip") or one.get("rstrip") for one in added.values())
    if model["type"] != "BPE" or not model["merges"] or model.get("ignore_merges") or strips:
        raise _none_like_it(document)
    texts = {token: text for text, token in model["vocab"].items()}
    texts |= {token: one["content"] for token, one in added.items()}
    kinds = {token: CONTROL if one.get("special") else USER_DEFINED for token, one in added.items()}
    listed = [texts.get(token) or _filler(token) for token in range(tokenizer.vocab_size)]
    types = [kinds.get(token, NORMAL if token in texts else UNUSED) for token in range(tokenizer.vocab_size)]
    merges = [tuple(one.split(" ") if isinstance(one, str) else one) for one in model["merges"]]
    never = next((token for token, kind in enumerate(types) if kind in (CONTROL, UNUSED)), 0)
    begin, end = _begin_and_end(special, never)
    splits = _splits(document)
    if splits is None or document.get("normalizer") is not None or model.get("byte_fallback"):
        raise _none_like_it(document)
    return Vocabulary(splits, listed, types, begin, end, [" ".join(pair) for pair in merges])


def _splits(document: Mapping[str, Any]) -> str | None:
    found = document.get("pre_tokenizer") or {}
    steps = found.get("pretokenizers") or [found]
    usual = all(
        step.get("use_regex", True) and not step.get("add_prefix_space")
        if step.get("type") == "ByteLevel"
        else step.get("individual_digits")
        for step in steps
    )
    return SPLITS.get(tuple(step.get("type") for step in steps)) if usual else None


def _none_like_it(document: Mapping[str, Any]) -> UsageError:
    kinds = [(document.get(part) or {}).get("type") for part in ("normalizer", "pre_tokenizer", "model")]
    return UsageError(
        "gguf: llama.cpp has no tokenizer like this one ({kind})", kind=", ".join(str(kind) for kind in kinds if kind)
    )

"""What a page needs to tokenize any text as the run's tokenizer does, with equal ids, as plain data.

Three kinds of data, which `web/src/page/tokens.ts` reads:

- `characters`: code points and their ids;
- `bytes`: the id of each byte of the text's UTF-8;
- `pairs`: byte-pair encoding over bytes, after steps that split the text into words.

Special tokens are found before that. Of the files of other libraries (kind "file"), byte-pair encoding over bytes
is carried with the words of GPT-2, of any pattern of the usual syntax (GPT-4, Llama 3, Qwen), and of single digits,
with or without a space before the text and Unicode's normal forms; all else is refused, and over a server asked for.
"""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from vitral.core.errors import UsageError
from vitral.core.language import _
from vitral.data import Tokenizer, UnseenCharacter
from vitral.data.engines import byte_letters
from vitral.page.patterns import DIGITS, GPT2, Unwritable, classes_of, for_browser

_NORMAL_FORMS = ("NFC", "NFD", "NFKC", "NFKD")
_KEPT = {
    ("Isolated", False): "all",
    ("Isolated", True): "all",
    ("Removed", True): "matches",
    ("Removed", False): "gaps",
}
"""What remains of a text after a split: all pieces, those that match, or those between."""
ASKED = "asked"
"""The kind of a tokenizer that only the server has."""


class Uncarried(UsageError):
    """A tokenizer that a page cannot carry."""

    def __init__(self, what: str) -> None:
        """Name the part, and the remedy."""
        super().__init__(
            "tokenizer: {what} runs in Python only, so no file can hold it; vitral open RUN shows the page with a "
            "server that tokenizes",
            what=what,
        )


def carried_tokenizer(tokenizer: Tokenizer) -> dict[str, Any]:
    """The tokenizer as plain data for a page (`TokenizerData` in web/src/page/tokens.ts).

    Raises:
        Uncarried: it has a part that the page does not compute.
    """
    return {**_encoder(tokenizer), **_writing(tokenizer)}


def served_tokenizer(tokenizer: Tokenizer) -> dict[str, Any]:
    """As `carried_tokenizer`; of one that no page computes only what its tokens write: the page asks for `encoded`."""
    try:
        return carried_tokenizer(tokenizer)
    except Uncarried:
        return {"kind": ASKED, **_writing(tokenizer)}


def encoded(tokenizer: Tokenizer, text: str) -> dict[str, Any]:
    """What a page asks a server for: {"ids": of all that has a token, "unseen": the characters that have none}.

    Raises:
        UsageError: the tokenizer has no tokens for this text, for another reason than a character.
    """
    unseen: list[str] = []
    while True:
        pieces = re.split(f"[{re.escape(''.join(unseen))}]", text) if unseen else [text]
        try:
            ids = [int(token) for piece in pieces if piece for token in tokenizer.encode(piece)]
        except UnseenCharacter as error:
            if error.character in unseen or error.character not in text:
                raise
            unseen.append(error.character)
        else:
            return {"ids": ids, "unseen": sorted(unseen, key=text.index)}


def _writing(tokenizer: Tokenizer) -> dict[str, Any]:
    """What each token writes."""
    texts = [_text(tokenizer.token_bytes(token)) for token in range(tokenizer.vocab_size)]
    return {"texts": texts, **({"spaced": True} if tokenizer.prepends_a_space else {})}


def _text(written: bytes) -> str | list[int]:
    try:
        return written.decode("utf-8")
    except UnicodeDecodeError:
        return list(written)


def _encoder(tokenizer: Tokenizer) -> dict[str, Any]:
    special = {"special": [list(map(list, tokenizer.declared.items()))]} if tokenizer.declared else {}
    ids = tokenizer.ids.tolist()
    if tokenizer.name == "char":
        return {"kind": "characters", "points": list(map(ord, tokenizer.alphabet)), "ids": ids[1:], **special}
    if tokenizer.name == "byte":
        return {"kind": "bytes", "ids": ids, **special}
    if tokenizer.name == "bpe":
        words = tokenizer.words
        places = {word: place for place, word in enumerate(words)}
        triples = [(left, right, places[words[left] + words[right]]) for left, right in tokenizer.merges]
        merges = [ids[token] for triple in triples for token in triple]
        return {"kind": "pairs", "bytes": ids[:256], "merges": merges, **_split([_words()]), **special}
    if special:
        raise Uncarried(tokenizer.name)
    return _of_file(tokenizer)


def _of_file(tokenizer: Tokenizer) -> dict[str, Any]:
    """A `tokenizer.json` of byte-pair encoding over bytes."""
    document = json.loads(tokenizer.document)
    model = document["model"]
    if model.get("type") != "BPE":
        raise Uncarried(_("a tokenizer of kind {kind}", kind=model.get("type")))
    for key in ("dropout", "continuing_subword_prefix", "end_of_word_suffix", "byte_fallback"):
        if model.get(key):
            raise Uncarried(_("a tokenizer with {key}", key=key))
    steps = list(_steps(document.get("pre_tokenizer")))
    vocabulary: dict[str, int] = model["vocab"]
    letters = [vocabulary.get(letter, -1) for letter in byte_letters()]
    if model.get("unk_token") is not None and -1 in letters:
        raise Uncarried(_("a tokenizer with {key}", key="unk_token"))
    merges = [pair if isinstance(pair, list) else pair.split(" ") for pair in model["merges"]]
    found: dict[str, Any] = {
        "kind": "pairs",
        "bytes": letters,
        "merges": [vocabulary[part] for left, right in merges for part in (left, right, left + right)],
        "special": _special(tokenizer),
        "normal": list(_normal_forms(document.get("normalizer"))),
        **_split(steps),
    }
    if model.get("ignore_merges"):
        found["whole"] = sorted(vocabulary.items(), key=lambda each: each[1])
    return found


def _special(tokenizer: Tokenizer) -> list[list[list[Any]]]:
    """Special tokens: those that are found in the text as it is, and those in the normalized text."""
    from vitral.data.engines import read_engine

    passes: list[list[list[Any]]] = [[], []]
    for token, added in read_engine(tokenizer.document).get_added_tokens_decoder().items():
        if added.single_word or added.lstrip or added.rstrip:
            raise Uncarried(_("the special token {text!r}, which takes in what is around it,", text=added.content))
        passes[added.normalized].append([added.content, token])
    return passes


def _normal_forms(normalizer: Mapping[str, Any] | None) -> Iterable[str]:
    if normalizer is None:
        return
    if normalizer.get("type") == "Sequence":
        for inner in normalizer["normalizers"]:
            yield from _normal_forms(inner)
    elif normalizer.get("type") in _NORMAL_FORMS:
        yield normalizer["type"]
    else:
        raise Uncarried(_("a tokenizer with {key}", key=normalizer.get("type")))


def _steps(cut: Mapping[str, Any] | None) -> Iterable[dict[str, Any]]:
    """The steps that split a text into words, the last of which is over bytes."""
    parts = list(_parts(cut))
    kinds = [part.get("type") for part in parts]
    if "ByteLevel" not in kinds or kinds.index("ByteLevel") != len(kinds) - 1:
        raise Uncarried(_("a tokenizer that is not over bytes"))
    for part in parts:
        if part["type"] == "Split":
            yield _of_split(part)
        elif part["type"] == "Digits":
            single = part.get("individual_digits", False)
            yield {"pattern": f"[⟨{DIGITS}⟩]{'' if single else '+'}", "classes": {DIGITS}, "keep": "all"}
        elif part["type"] == "ByteLevel":
            if part.get("add_prefix_space", True):
                yield {"space": True}
            if part.get("use_regex", True):
                yield _words()
        else:
            raise Uncarried(_("a tokenizer with {key}", key=part["type"]))


def _parts(cut: Mapping[str, Any] | None) -> Iterable[Mapping[str, Any]]:
    if cut is not None and cut.get("type") == "Sequence":
        for inner in cut["pretokenizers"]:
            yield from _parts(inner)
    elif cut is not None:
        yield cut


def _words() -> dict[str, Any]:
    pattern, classes = for_browser(GPT2)
    return {"pattern": pattern, "classes": classes, "keep": "all"}


def _of_split(part: Mapping[str, Any]) -> dict[str, Any]:
    keep = _KEPT.get((part.get("behavior", ""), bool(part.get("invert"))))
    said = part.get("pattern", {})
    if keep is None:
        raise Uncarried(_("a tokenizer with {key}", key=part.get("behavior")))
    if "String" in said:
        return {"pattern": "".join(f"\\u{{{ord(each):x}}}" for each in said["String"]), "classes": (), "keep": keep}
    try:
        pattern, classes = for_browser(said["Regex"])
    except Unwritable as error:
        raise Uncarried(_("the pattern {pattern} of a tokenizer", pattern=str(error)[:60])) from None
    return {"pattern": pattern, "classes": classes, "keep": keep}


def _split(steps: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    steps = list(steps)
    names = {name for step in steps for name in step.get("classes", ())}
    return {
        "steps": [{key: value for key, value in step.items() if key != "classes"} for step in steps],
        "classes": classes_of(names),
    }

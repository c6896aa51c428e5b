"""What a page needs to tokenize any text as the run's tokenizer does, with equal ids, as plain data.

Three kinds of data, which `web/src/page/tokens.ts` reads:

- `characters`: code points and their ids;
- `bytes`: the id of each byte of the text's UTF-8;
- `pairs`: byte-pair encoding over bytes, after steps that split the text into words.

Special tokens are found before that. Of the files of other libraries (kind "file"), byte-pair encoding over bytes
is carried with the words of GPT-2 and with single digits, with or without a space before the text and Unicode's normal
forms; all else is refused, and over a server asked for.
"""

import json
import re
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from vitral.core.errors import UsageError
from vitral.core.files import sha256
from vitral.core.language import _
from vitral.data import Tokenizer, UnseenCharacter
from vitral.data.engines import byte_letters

_NORMAL_FORMS = ("NFC", "NFD", "NFKC", "NFKD")
WORDS = (
    r"'s|'t|'re|'ve|'m|'ll|'d|\u{20}?[⟨\p{L}⟩]+|\u{20}?[⟨\p{N}⟩]+|\u{20}?[^⟨\s⟩⟨\p{L}⟩⟨\p{N}⟩]+|"
    r"[⟨\s⟩]+(?![^⟨\s⟩])|[⟨\s⟩]+"
)
"""The words of GPT-2 (Radford et al. 2019), which the package's `ByteLevel` uses, for JavaScript (flag u).

The package is asked which characters a class such as `⟨\\p{L}⟩` contains, and the page carries the ranges: the same
matches, whatever Unicode version either side has.
"""
DIGITS = "digits"
"""What the package's `Digits` takes for one."""
Ranges = list[list[int]]
"""Code points, first and last of each range."""

_AT_ONCE = 2048
_SURROGATES = range(0xD800, 0xE000)
_EVERYWHERE = ((0, 0x40000), (0xE0000, 0xE1000))
"""Where characters differ. Elsewhere (unassigned and private planes) one code point stands for all after it."""
_ALIKE = ((0x40000, 0xDFFFF), (0xE1000, 0x10FFFF))
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
        return {"kind": ASKED, "sha256": sha256(json.dumps(tokenizer.plain()).encode()), **_writing(tokenizer)}


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
    for key in ("dropout", "continuing_subword_prefix", "end_of_word_suffix", "byte_fallback", "ignore_merges"):
        if model.get(key):
            raise Uncarried(_("a tokenizer with {key}", key=key))
    vocabulary: dict[str, int] = model["vocab"]
    letters = [vocabulary.get(letter, -1) for letter in byte_letters()]
    if model.get("unk_token") is not None and -1 in letters:
        raise Uncarried(_("a tokenizer with {key}", key="unk_token"))
    merges = [pair if isinstance(pair, list) else pair.split(" ") for pair in model["merges"]]
    return {
        "kind": "pairs",
        "bytes": letters,
        "merges": [vocabulary[part] for left, right in merges for part in (left, right, left + right)],
        "special": _special(tokenizer),
        "normal": list(_normal_forms(document.get("normalizer"))),
        **_split(_steps(document.get("pre_tokenizer"))),
    }


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
    for part in _parts(normalizer, "normalizers"):
        if part.get("type") not in _NORMAL_FORMS:
            raise Uncarried(_("a tokenizer with {key}", key=part.get("type")))
        yield part["type"]


def _steps(cut: Mapping[str, Any] | None) -> Iterable[dict[str, Any]]:
    """The steps that split a text into words, the last of which is over bytes."""
    parts = list(_parts(cut, "pretokenizers"))
    kinds = [part.get("type") for part in parts]
    if "ByteLevel" not in kinds or kinds.index("ByteLevel") != len(kinds) - 1:
        raise Uncarried(_("a tokenizer that is not over bytes"))
    for part in parts:
        if part["type"] == "Digits":
            single = part.get("individual_digits", False)
            yield {"pattern": f"[⟨{DIGITS}⟩]{'' if single else '+'}", "classes": {DIGITS}}
        elif part["type"] == "ByteLevel":
            if part.get("add_prefix_space", True):
                yield {"space": True}
            if part.get("use_regex", True):
                yield _words()
        else:
            raise Uncarried(_("a tokenizer with {key}", key=part["type"]))


def _parts(step: Mapping[str, Any] | None, key: str) -> Iterable[Mapping[str, Any]]:
    """A step, or those of a sequence, which are under this key."""
    if step is not None and step.get("type") == "Sequence":
        for inner in step[key]:
            yield from _parts(inner, key)
    elif step is not None:
        yield step


def _words() -> dict[str, Any]:
    return {"pattern": WORDS, "classes": {r"\p{L}", r"\p{N}", r"\s"}}


def _split(steps: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    steps = list(steps)
    names = {name for step in steps for name in step.get("classes", ())}
    return {
        "steps": [{key: value for key, value in step.items() if key != "classes"} for step in steps],
        "classes": classes_of(names),
    }


@cache
def members(name: str) -> Ranges:
    r"""The characters that the package takes for members of a class.

    Args:
        name: as in a pattern, `\p{L}`, `\s`; or `DIGITS`.
    """
    from tokenizers import Regex, pre_tokenizers

    cut = (
        pre_tokenizers.Digits(individual_digits=False)
        if name == DIGITS
        else pre_tokenizers.Split(Regex(f"(?:{name})+"), "removed")
    )

    def found(points: range) -> list[int]:
        pieces = cut.pre_tokenize_str("".join(map(chr, points)))
        spans = [span for _, span in pieces]
        if name == DIGITS:  # runs of digits and of other characters alternate
            begins_with_one = len(cut.pre_tokenize_str("a" + chr(points[0]))) == 2
            spans = spans[begins_with_one::2]
        others = {at for begin, end in spans for at in range(begin, end)}
        return [point for at, point in enumerate(points) if at not in others]

    ranges: Ranges = []
    for begin, end in _EVERYWHERE:
        for first in range(begin, end, _AT_ONCE):
            points = range(first, min(first + _AT_ONCE, end))
            if points[0] in _SURROGATES:
                continue
            for point in found(points):
                if ranges and ranges[-1][1] == point - 1:
                    ranges[-1][1] = point
                else:
                    ranges.append([point, point])
    ranges += [[first, last] for first, last in _ALIKE if found(range(first, first + 1))]
    return sorted(ranges)


def classes_of(names: Iterable[str]) -> dict[str, list[int]]:
    """The ranges of each class, as distances: from the end of the range before to its first, and its length - 1."""
    found: dict[str, list[int]] = {}
    for name in sorted(names):
        flat, before = list[int](), 0
        for first, last in members(name):
            flat += [first - before, last - first]
            before = last
        found[name] = flat
    return found

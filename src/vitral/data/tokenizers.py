"""Tokenizers: characters, bytes, byte pairs, and the `tokenizer.json` of another library; one class for all of them.

`decode(encode(text)) == text` for every text that a tokenizer of ours accepts. Special tokens that a corpus declares
are strings with one token each; `Tokenizer.specials` are ids without text, such as `<PAD>`.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np

from vitral.core.errors import UsageError
from vitral.core.language import N_, _
from vitral.data.alphabet import (
    MASKS,
    PAD,
    UnseenCharacter,
    code_points,
    label_text,
    some_of,
    token_ids,
    utf8,
)
from vitral.data.config import MOST_SPECIAL, BPEConfig, CorpusConfig, FileConfig
from vitral.data.engines import (
    Merges,
    byte_engine,
    character_engine,
    encoding_of,
    learn_merges,
    letters_to_bytes,
    of_package,
    read_engine,
    spelled_tokens,
    spelling_of,
)
from vitral.data.long_texts import Text, character_counts, pieces

if TYPE_CHECKING:
    import tokenizers


MOST_TOKENS = 2**24


@dataclass(frozen=True)
class Tokenizer:
    """Text to token ids and back.

    Special tokens are found from left to right; of several that begin at one place, the longest counts. The text
    between them is encoded by one of four kinds:

    - "char": one token per character. Id 0 is `<PAD>`, id i is the i-th character of the alphabet.
    - "byte": one token per byte of the text's UTF-8; the id is the byte's value.
    - "bpe": byte-pair encoding (Sennrich et al. 2016) over UTF-8 bytes, so that every text can be encoded. Ids 0 to 255
      are the bytes; each merge (left, right) of two existing tokens makes a token with the next free id, unless the
      same bytes already have one. Text is first split into words by GPT-2's rule (Radford et al. 2019), and no token
      crosses a word border.
    - "file": the `tokenizer.json` of another library, kept whole, decides every id. Nothing is added to a text. A model
      may have more rows than the file has tokens: the ids without a token are never generated.

    Special tokens have the ids that are given for them, the other tokens those that are left, in order.

    Attributes:
        data: the complete tokenizer, JSON-ready: "name", its kind; "tokens", "merges", or "document" with "vocab_size"
            and "start"; and "special_tokens", each with its id.

    >>> tokenizer = bpe_tokenizer([(116, 104), (256, 101)])  # t+h, th+e
    >>> tokenizer.encode("the path").tolist()
    [257, 32, 112, 97, 256]
    >>> tokenizer = with_special_tokens(char_tokenizer("ab"), ["<|end|>"])
    >>> tokenizer.encode("ab<|end|>b").tolist()
    [1, 2, 3, 2]
    >>> tokenizer.decode([3, 1])
    '<|end|>a'
    """

    data: Mapping[str, Any]

    def __post_init__(self) -> None:
        """Check the data.

        Raises:
            UsageError: it is malformed; the package cannot read a file, or the file has more tokens than the model.
        """
        try:
            is_whole = self._is_whole()
        except UsageError:
            raise
        except (ValueError, LookupError, TypeError, AttributeError):
            is_whole = False
        if not is_whole:
            raise UsageError("tokenizer: cannot be read; restore tokenizer.json from a copy of the run")

    def _is_whole(self) -> bool:
        ids, vocab_size = list(self.declared.values()), self.vocab_size
        if not all(type(token) is int and 0 <= token < vocab_size for token in ids) or len({*ids}) < len(ids):
            return False
        if not all(0 < len(text) <= MOST_SPECIAL and text.encode() for text in self.declared):
            return False
        if self.name == "char":
            distinct = {*self.alphabet.encode().decode()}
            return self.words == [PAD, *self.alphabet] and 0 < len(distinct) == len(self.alphabet)
        if self.name == "file":
            size, start, _decoder = self.data["vocab_size"], self.data["start"], self._spelled
            largest = max(start, *self._texts)
            if largest >= size:
                raise UsageError(
                    "tokenizer: its ids go up to {largest:,}, but the model has {vocab_size:,} tokens",
                    largest=largest,
                    vocab_size=size,
                )
            return type(size) is type(start) is int and start >= 0 and size <= MOST_TOKENS
        return self.name in ("byte", "bpe")

    @property
    def name(self) -> str:
        """The kind: `"char"`, `"byte"`, `"bpe"` or `"file"`."""
        return self.data["name"]

    @cached_property
    def declared(self) -> dict[str, int]:
        """Each special token with its id, in the order of the ids."""
        return dict(sorted(self.data.get("special_tokens", {}).items(), key=lambda entry: entry[1]))

    @cached_property
    def alphabet(self) -> str:
        """The characters of a character tokenizer, in the order of their ids."""
        return "".join(self.data["tokens"][1:])

    @property
    def merges(self) -> Merges:
        """The merges of byte pairs, each a pair of ids; special tokens do not count in them."""
        return self.data["merges"] if self.name == "bpe" else ()

    @cached_property
    def words(self) -> list[str]:
        """The tokens that are not special ones, as the package spells them; not of a file."""
        return list(self.data["tokens"]) if self.name == "char" else spelled_tokens(self.merges)

    @cached_property
    def vocab_size(self) -> int:
        """Number of ids."""
        return (self.data["vocab_size"] if self.name == "file" else len(self.words)) + len(self.declared)

    @cached_property
    def ids(self) -> np.ndarray:
        """The id of each token that is not a special one, in order."""
        return np.delete(np.arange(self.vocab_size), list(self.declared.values()))  # setdiff1d loads masked arrays

    @cached_property
    def start(self) -> int:
        """The id that replaces an empty prompt: the newline if there is one, else the first character."""
        newline = self.alphabet.find("\n") + 1 or 1 if self.name == "char" else ord("\n")
        return self.declared.get("\n", int(self.ids[self.data.get("start", newline)]))

    @cached_property
    def specials(self) -> tuple[int, ...]:
        """Ids without text, which are never generated; declared special tokens have text and are not among them."""
        return tuple(token for token in range(self.vocab_size) if token not in self.pieces)

    @property
    def mask(self) -> int | None:
        """The id of the mask token, declared, of a file, or `<PAD>` of characters; None if there is none."""
        added = self._engine.get_added_tokens_decoder().items() if self.name == "file" else ()
        own = {str(token.content): int(self.ids[index]) for index, token in added} | self.declared
        masks = [own[name] for name in MASKS if name in own]
        return next(iter([*masks, *self.specials[: self.name == "char"]]), None)

    @property
    def around(self) -> tuple[list[int], list[int]]:
        """What a file says to put before and after a text, as BERT's `[CLS]` and `[SEP]`; `encode` adds nothing."""
        plain = self._letter
        if not plain:
            return [], []
        framed = self._engine.encode("a").ids
        begin = next(index for index in range(len(framed)) if framed[index : index + len(plain)] == plain)
        return self.ids[framed[:begin]].tolist(), self.ids[framed[begin + len(plain) :]].tolist()

    @cached_property
    def _letter(self) -> list[int]:
        """The package's tokens of a letter in a file; none of other tokenizers."""
        return _ids(self._engine, "a") if self.name == "file" else []

    @cached_property
    def _engine(self) -> "tokenizers.Tokenizer":
        """The package's tokenizer, without special tokens: its id i is `ids[i]`."""
        if self.name == "file":
            return read_engine(self.data["document"])
        return self._built({word: token for token, word in enumerate(self.words)})

    def _built(self, vocabulary: Mapping[str, int]) -> "tokenizers.Tokenizer":
        if self.name == "char":
            return character_engine(vocabulary)
        merges = [(self.words[left], self.words[right]) for left, right in self.merges]
        return byte_engine(vocabulary, merges, in_words=self.name == "bpe")

    @cached_property
    def _spelled(self) -> Callable[[str], bytes]:
        if self.name == "file":
            return spelling_of(self._engine)
        return str.encode if self.name == "char" else letters_to_bytes

    @cached_property
    def _texts(self) -> dict[int, str]:
        """The tokens as the package spells them, by their place in `ids`; without `<PAD>`."""
        if self.name == "file":
            return {token: text for text, token in self._engine.get_vocab().items()}
        return dict(list(enumerate(self.words))[self.name == "char" :])

    @cached_property
    def pieces(self) -> dict[int, bytes]:
        """What each id writes inside a text."""
        ids = self.ids.tolist()
        added = self._engine.get_added_tokens_decoder() if self.name == "file" else {}
        own = {ids[at]: text.encode() if at in added else self._spelled(text) for at, text in self._texts.items()}
        return own | {token: text.encode() for text, token in self.declared.items()}

    @cached_property
    def _table(self) -> np.ndarray:
        """Code point -> id of its character, -1 for none; the last entry is for all higher code points."""
        points = code_points("".join(self._texts.values()))
        table = np.full(int(points.max()) + 2, -1)
        table[points] = self.ids[list(self._texts)]
        return table

    @cached_property
    def _is_by_character(self) -> bool:
        """Whether it is one of characters; also in a file, such as that of a model of nanoGPT."""
        if self.name != "file" or any(len(text) != 1 for text in self._texts.values()):
            return self.name == "char"
        same = character_engine({text: token for token, text in self._texts.items()})
        return json.loads(same.to_str()) == json.loads(self._engine.to_str())

    @cached_property
    def _begins_with_a_space(self) -> bool:
        """Whether every text gets a space at its beginning, which the decoder does not take away."""
        return of_package(lambda: self._engine.decode(self._letter)).startswith(" ")

    @property
    def prepends_a_space(self) -> bool:
        """Whether a space before a whole text is left out: the decoder does so, or every text gets one."""
        return bool(self._letter) and self.pieces[int(self.ids[self._letter[0]])].startswith(b" ")

    def encode(self, text: str, *, replacement: str | None = None) -> np.ndarray:
        """The token ids of a text, 1-d int64.

        Args:
            text: any text.
            replacement: a character to use for those without a token, and for lone surrogates, which have no UTF-8.

        Raises:
            UnseenCharacter: a character has no token, and there is no replacement.
            UsageError: the replacement has no token; or a file has no tokens for this text, and none for unknown ones.
        """
        encoded = []
        for begin, part, is_special in self._parts(text):
            try:
                encoded.append([self.declared[part]] if is_special else self._encoded(part, replacement))
            except UnseenCharacter as unseen:
                raise unseen.moved(begin) from None
        return np.concatenate(encoded)

    def ends(self, text: str, *, replacement: str | None = None) -> np.ndarray:
        """The number of characters of the text before the end of each token of a file, 1-d int64, never decreasing.

        The characters are those of the text as it is given, before the file's normaliser.

        Args:
            text: a text that `encode` takes.
            replacement: as for `encode`.
        """
        all_ends = list[int]()
        for begin, part, is_special in self._parts(text):
            if is_special:
                ends = [len(part)]
            elif self._is_by_character:
                ends = range(1, 1 + len(part))
            else:
                ends = [end for _begin, end in encoding_of(self._engine, utf8(part, replacement).decode()).offsets]
            all_ends += [begin + end for end in ends]
        return np.maximum.accumulate(np.array(all_ends, dtype=np.int64))

    def _parts(self, text: str) -> Iterator[tuple[int, str, bool]]:
        """The special tokens of a text and what is between them: of each its place, and whether it is special."""
        begin = 0
        parts = special_pattern(tuple(self.declared)).split(text) if self.declared else [text]
        for number, part in enumerate(parts):
            yield begin, part, number % 2 == 1
            begin += len(part)

    def _encoded(self, text: str, replacement: str | None) -> np.ndarray:
        if self._is_by_character:
            return self._looked_up(text, replacement)
        if self.name == "byte":
            return self.ids.take(np.frombuffer(utf8(text, replacement), dtype=np.uint8))
        return self.ids[encoding_of(self._engine, utf8(text, replacement).decode()).ids]

    def _looked_up(self, text: str, replacement: str | None) -> np.ndarray:
        """One id for each character; the package takes a hundred times as long."""
        if replacement is not None and replacement not in self._texts.values():
            raise UsageError(
                "replacement {replacement!a} is not a character of the tokenizer's alphabet", replacement=replacement
            )
        ids = self._table.take(code_points(text), mode="clip")
        unseen = ids < 0
        if replacement is not None:
            ids[unseen] = self._table[ord(replacement)]
        elif unseen.any():
            index = int(unseen.argmax())
            alphabet = _("the tokenizer's alphabet of {number:,} characters", number=len(self._texts))
            raise UnseenCharacter(text[index], index, alphabet)
        return ids

    def decode(self, ids: Iterable[Any]) -> str:
        """The text of these ids, special tokens as they are written; invalid UTF-8 becomes U+FFFD.

        Raises:
            UsageError: a value is not an id of this vocabulary.
        """
        listed, text = token_ids(ids, self.vocab_size).tolist(), ""
        for is_special, run in groupby(listed, {*self.declared.values()}.__contains__):
            if self.name == "file" and not is_special:
                indices = np.searchsorted(self.ids, list(run)).tolist()
                part = of_package(partial(self._engine.decode, indices, skip_special_tokens=False))
                text += part.removeprefix(" ") if self._begins_with_a_space else part
            else:
                text += b"".join(self.pieces.get(token, b"") for token in run).decode("utf-8", "replace")
        return text

    def token_bytes(self, token: int) -> bytes:
        """UTF-8 bytes of one token, which need not be whole characters; empty for one without text."""
        return self.pieces.get(int(token_ids([token], self.vocab_size)[0]), b"")

    def label(self, token: int) -> str:
        r"""One token for a table cell, visible, on one line, without control characters: `␣the`, `\n`, `\xc3`."""
        text = self.token_bytes(token).decode("utf-8", "backslashreplace")
        return label_text(text) or (PAD if self.name == "char" else f"<{token}>")

    def plain(self) -> dict[str, Any]:
        """The complete tokenizer as JSON-ready data for `Tokenizer`."""
        return dict(self.data)

    @property
    def document(self) -> str:
        """Its `tokenizer.json`: the same ids for every text that it accepts.

        Raises:
            UsageError: it is a file's that has grown by other ids than the file can have.
        """
        from tokenizers import AddedToken

        if self.name == "file":
            given = self.data["document"]
            cut = json.loads(given)
            if not (self.declared or cut.get("truncation") or cut.get("padding")):
                return given
            engine = read_engine(given)
        else:  # special tokens are words of the vocabulary too, which keep their ids
            engine = self._built({**dict(zip(self.words, self.ids.tolist(), strict=True)), **self.declared})
        engine.add_special_tokens([AddedToken(text, normalized=False, special=True) for text in self.declared])
        if any(engine.token_to_id(text) != token for text, token in self.declared.items()):
            raise UsageError("tokenizer: the special tokens that were added to it have other ids in its file")
        return engine.to_str(pretty=False)


def char_tokenizer(alphabet: str) -> Tokenizer:
    """A tokenizer of these characters, in this order."""
    return Tokenizer({"name": "char", "tokens": [PAD, *alphabet]})


def byte_tokenizer() -> Tokenizer:
    """The tokenizer of bytes."""
    return Tokenizer({"name": "byte"})


def bpe_tokenizer(merges: Merges) -> Tokenizer:
    """A tokenizer of byte pairs."""
    return Tokenizer({"name": "bpe", "merges": [list(merge) for merge in merges]})


def file_tokenizer(document: str, vocab_size: int | None = None, begin: Any = None) -> Tokenizer:
    """The tokenizer of a `tokenizer.json`.

    Args:
        document: its content.
        vocab_size: the model's number of tokens; that of the file if there is no model.
        begin: the id that replaces an empty prompt, if it is one; else the newline's is, or the first.

    Raises:
        UsageError: it cannot be used.
    """
    engine = read_engine(document)
    size = 1 + max(engine.get_vocab().values(), default=0) if vocab_size is None else vocab_size
    start = next(token for token in (begin, *_ids(engine, "\n"), 0) if type(token) is int and 0 <= token < size)
    return Tokenizer({"name": "file", "vocab_size": size, "start": start, "document": document})


def _ids(engine: "tokenizers.Tokenizer", text: str) -> list[int]:
    """The package's tokens of a text; none where it has none."""

    def ids() -> list[int]:
        try:
            return engine.encode(text, add_special_tokens=False).ids
        except Exception:  # the package's own class: it has no token; a fault of the package is none
            return []

    return of_package(ids)


def declaring(tokenizer: Tokenizer, special: Mapping[str, int]) -> Tokenizer:
    """A tokenizer with these special tokens; its other tokens have the other ids, in order."""
    return Tokenizer({**tokenizer.data, "special_tokens": dict(special)}) if special else tokenizer


def with_special_tokens(tokenizer: Tokenizer, texts: Sequence[str]) -> Tokenizer:
    """A tokenizer with further special tokens, whose ids follow the others."""
    new = {text: token for token, text in enumerate(texts, start=tokenizer.vocab_size)}
    return declaring(tokenizer, tokenizer.declared | new)


def build_tokenizer(config: CorpusConfig, text: Text, training_blocks: Sequence[str]) -> Tokenizer:
    """Build the tokenizer of a configuration.

    Args:
        config: its `tokenizer` is the kind to build, its `specials` are special tokens.
        text: the whole text, whose distinct characters, without those of special tokens, are the alphabet of the
            character tokenizer, sorted by code point, so that every split can be encoded; nothing else of the held-out
            splits reaches the model.
        training_blocks: the blocks of the training split; byte-pair merges are learned from these only.

    Raises:
        UsageError: the tokenizer is another library's.
    """
    kind, specials = config.tokenizer, config.specials or ()
    if isinstance(kind, FileConfig):
        raise UsageError(
            "corpus.tokenizer: a tokenizer of another library comes with its model; start from an imported run "
            "(--init-from)"
        )
    if isinstance(kind, BPEConfig):
        made = bpe_tokenizer(learn_merges(list(between_special_tokens(training_blocks, specials)), kind.vocab_size))
    elif kind.name == "byte":
        made = byte_tokenizer()
    else:
        made = char_tokenizer("".join(alphabet_counts([text], specials) or alphabet_counts([text], ())))
    return with_special_tokens(made, specials)


_LISTED = 20


def grown(tokenizer: Tokenizer, texts: Sequence[Text], specials: Sequence[str] = ()) -> Tokenizer:
    """A tokenizer with tokens for every character of some texts, outside special tokens, and for special tokens.

    Characters are added to a character tokenizer only, sorted by code point among themselves; the others know every
    text. New special tokens follow the new characters. Existing ids keep their meaning.

    Args:
        tokenizer: the tokenizer of a model.
        texts: the texts to encode.
        specials: special tokens; those that the tokenizer has already are not added again.

    >>> from vitral.data.tokenizers import char_tokenizer
    >>> grown(char_tokenizer("bd"), ["abcd"]).alphabet
    'bdac'
    """
    wider, added = tokenizer, [text for text in specials if text not in tokenizer.declared]
    if tokenizer.name == "char":
        counts = alphabet_counts(texts, [*tokenizer.declared, *added])
        new = [character for character in counts if character not in tokenizer.alphabet]
        wider = Tokenizer({**tokenizer.data, "tokens": [*tokenizer.words, *new]})
    return with_special_tokens(wider, added)


def extends(tokenizer: Tokenizer, former: Tokenizer) -> bool:
    """Whether every id of the former tokenizer means the same."""
    same = all(tokenizer.data.get(key) == former.data.get(key) for key in ("name", "merges", "document"))
    return same and former.pieces.items() <= tokenizer.pieces.items()


def growth_notes(tokenizer: Tokenizer, former: Tokenizer) -> Iterator[str]:
    """A sentence for the new tokens of a grown tokenizer, if there are any."""
    if new := [tokenizer.label(token) for token in sorted(tokenizer.pieces.keys() - former.pieces.keys())]:
        sentence = N_("The vocabulary of the run it starts from has grown by new tokens: {number:,} ({names}).")
        yield sentence.format(number=len(new), names=some_of(new, _LISTED, " "))


@lru_cache(maxsize=64)
def special_pattern(texts: tuple[str, ...], *, overlapping: bool = False) -> re.Pattern[str]:
    """Matches a special token (group 1), the longest of those that begin at one place.

    With `overlapping` the match is empty, so that special tokens that begin inside another are found too.
    """
    listed = "|".join(map(re.escape, sorted(texts, key=len, reverse=True)))
    return re.compile(f"(?=({listed}))" if overlapping else f"({listed})")


def outside_special_tokens(text: Text, border: int, texts: tuple[str, ...]) -> int:
    """A border in a text, or the last end of the special tokens that lie across it.

    Special tokens that overlap count too, so that a later border never moves to an earlier place.
    """
    if not texts:
        return border
    reach = max(map(len, texts)) - 1
    first = max(0, border - reach)
    matches = special_pattern(texts, overlapping=True).finditer(text[first : border + reach])
    return max([border, *(first + match.end(1) for match in matches if first + match.start() < border)])


def between_special_tokens(blocks: Sequence[str], texts: Sequence[str]) -> Iterator[str]:
    """The pieces of the blocks between special tokens, so that no merge crosses or uses one."""
    if not texts:
        return iter(blocks)
    pattern = special_pattern(tuple(texts))
    return (piece for block in blocks for piece in pattern.split(block)[::2])


def alphabet_counts(texts: Iterable[Text], specials: Sequence[str]) -> dict[str, int]:
    """The characters of texts and their number, without those of special tokens.

    Where special tokens can overlap (the end of one begins another), their characters count too, since a part of one
    may be left between two blocks.
    """
    if not specials or any(_overlap(one, other) for one in specials for other in specials):
        return character_counts(texts)
    return character_counts(part for text in texts for part in _without_special_tokens(text, tuple(specials)))


def _without_special_tokens(text: Text, specials: tuple[str, ...]) -> Iterator[str]:
    pattern, reach, rest = special_pattern(specials), max(map(len, specials)) - 1, ""
    for piece in pieces(text):
        rest += piece
        end = outside_special_tokens(rest, max(0, len(rest) - reach), specials)  # a special token may go on
        yield pattern.sub("", rest[:end])
        rest = rest[end:]
    yield pattern.sub("", rest)


def _overlap(one: str, other: str) -> bool:
    return any(one.endswith(other[:length]) for length in range(1, min(len(one), len(other))))

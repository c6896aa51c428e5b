"""What is in a text and what will go wrong with it, before anything is trained."""

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from vitral.data.alphabet import character_counts, code_point, label_text
from vitral.data.batches import count_windows, too_short
from vitral.data.dataset import Dataset
from vitral.data.duplicates import Duplicates, duplicates_across
from vitral.data.longtext import Text, in_lines, pieces
from vitral.data.split import PARTS, Blocks, split_text

RARE = 10
"""A character that occurs fewer times than this is called rare."""

_LONG_LINE = 5_000
_LARGE_ALPHABET = 1_000
_FEW_BATCHES = 20
_MOST_BLOCKS = 200
_FEW_TEST_TOKENS = 10_000
_DUPLICATE_SHARE = 0.02
_MANGLED = re.compile("[ÂÃ][\x80-\xbf]|â€")
_FEW_MANGLED = 5
_NAMED_AT_MOST = 8


@dataclass(frozen=True)
class CharacterCount:
    """One character of the alphabet: how it is shown, its number and name, how often it occurs."""

    label: str
    code_point: str
    name: str
    count: int


@dataclass(frozen=True)
class Lines:
    r"""The lines of a text.

    Attributes:
        num_lines: lines, the last one counted also without a newline.
        longest: characters of the longest.
        endings: how often `\n`, `\r\n` and a lone `\r` end one.
    """

    num_lines: int
    longest: int
    endings: dict[str, int]


@dataclass(frozen=True)
class CorpusReport:
    """A text in numbers, and its problems in sentences.

    Attributes:
        name: see `Corpus.name`.
        num_bytes: bytes read.
        num_characters: characters of the text.
        sha256: see `Corpus.sha256`.
        notes: what was done to the text on the way.
        tokenizer: the tokenizer's name.
        vocab_size: its number of tokens.
        characters: part -> characters.
        tokens: part -> tokens.
        alphabet: every distinct character, sorted by code point.
        rare: those that occur fewer than `RARE` times, rarest first.
        unlearnable: those that never occur in the training part.
        lines: its lines.
        duplicates: how much of the test part stands in the training part.
        num_windows: windows of the training part.
        batches_per_pass: batches that hold as many tokens as the training part.
        problems: what is wrong, a sentence or two each: what it means for training and what to do.
    """

    name: str
    num_bytes: int
    num_characters: int
    sha256: str
    notes: tuple[str, ...]
    tokenizer: str
    vocab_size: int
    characters: dict[str, int]
    tokens: dict[str, int]
    alphabet: tuple[CharacterCount, ...]
    rare: tuple[CharacterCount, ...]
    unlearnable: tuple[CharacterCount, ...]
    lines: Lines
    duplicates: Duplicates
    num_windows: int
    batches_per_pass: float
    problems: tuple[str, ...]

    def plain(self) -> dict[str, Any]:
        """The same as JSON-ready data."""
        return {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(self).items()}


def corpus_report(dataset: Dataset, text: Text, *, context_length: int, batch_size: int) -> CorpusReport:
    """Survey a text.

    Args:
        dataset: what `prepare` made of the text.
        text: the text itself, `Corpus.text`.
        context_length: inputs of a training window.
        batch_size: windows of a training batch.
    """
    blocks = split_text(len(text), dataset.config.split)
    counts = character_counts(pieces(text))
    held_out = character_counts(
        text[run[0][0] : run[-1][1]] for part in ("validation", "test") for run in _in_memory(blocks[part])
    )
    alphabet = tuple(_counted(character, count) for character, count in counts.items())
    rare = tuple(sorted((entry for entry in alphabet if entry.count < RARE), key=lambda entry: entry.count))
    unlearnable = tuple(
        _counted(character, count) for character, count in counts.items() if held_out.get(character) == count
    )
    lines = survey_lines(text)
    duplicates = duplicates_across(text, blocks)
    train = dataset.splits["train"]
    batches_per_pass = train.tokens.size / (context_length * batch_size)
    num_windows = int(count_windows(train, context_length).sum())
    problems = [
        *([] if num_windows else [f"There is nothing to train on: {too_short(train, context_length)}."]),
        *_size_problems(dataset, batches_per_pass, context_length, batch_size),
        *_alphabet_problems(alphabet, rare, unlearnable, dataset.tokenizer.name),
        *_character_problems(text, counts),
        *_line_problems(lines),
        *_duplicate_problems(duplicates),
    ]
    return CorpusReport(
        name=dataset.corpus_name,
        num_bytes=dataset.num_bytes,
        num_characters=len(text),
        sha256=dataset.sha256,
        notes=dataset.notes,
        tokenizer=dataset.tokenizer.name,
        vocab_size=dataset.tokenizer.vocab_size,
        characters={part: blocks[part].num_characters for part in PARTS},
        tokens={part: int(dataset.splits[part].tokens.size) for part in PARTS},
        alphabet=alphabet,
        rare=rare,
        unlearnable=unlearnable,
        lines=lines,
        duplicates=duplicates,
        num_windows=num_windows,
        batches_per_pass=batches_per_pass,
        problems=tuple(problems),
    )


def _in_memory(blocks: Blocks) -> Iterator[Blocks]:
    """Runs of neighbouring blocks, long ones cut into several."""
    for run in blocks.runs():
        yield from (run[begin : begin + _MOST_BLOCKS] for begin in range(0, len(run), _MOST_BLOCKS))


def survey_lines(text: Text) -> Lines:
    r"""Count a text's lines and the ways they end; only `\n`, `\r\n` and a lone `\r` end a line.

    >>> survey_lines("one\ntwo\r\nthree")
    Lines(num_lines=3, longest=5, endings={'\\n': 1, '\\r\\n': 1, '\\r': 0})
    """
    num_lf = num_crlf = num_cr = unfinished = longest = 0
    for piece in pieces(text):
        crlf = piece.count("\r\n")
        num_lf, num_crlf, num_cr = num_lf + piece.count("\n") - crlf, num_crlf + crlf, num_cr + piece.count("\r") - crlf
        lines = in_lines(piece, "lf").split("\n")
        lengths = [unfinished + len(lines[0]), *map(len, lines[1:])]
        unfinished, longest = lengths[-1], max(longest, *lengths)
    endings = {"\\n": num_lf, "\\r\\n": num_crlf, "\\r": num_cr}
    return Lines(sum(endings.values()) + (unfinished > 0), longest, endings)


def _counted(character: str, count: int) -> CharacterCount:
    name = unicodedata.name(character, "control character" if unicodedata.category(character) == "Cc" else "unnamed")
    return CharacterCount(label_text(character), code_point(character), name.lower(), count)


def _named(entries: tuple[CharacterCount, ...]) -> str:
    """The first few characters, each with its number and count."""
    listed = ", ".join(f"“{entry.label}” {entry.code_point}: {entry.count}" for entry in entries[:_NAMED_AT_MOST])
    return listed + (", …" if len(entries) > _NAMED_AT_MOST else "")


def _characters(count: int) -> str:
    return "1 character" if count == 1 else f"{count:,} characters"


def _size_problems(dataset: Dataset, batches: float, context_length: int, batch_size: int) -> list[str]:
    problems = []
    if batches < _FEW_BATCHES:
        problems.append(
            f"One pass over the training part is only {batches:.1f} batches of {batch_size} windows of "
            f"{context_length} tokens. The model will see every line many times and learn it by heart: use a longer "
            "text, a smaller model, or few steps, and watch the validation loss."
        )
    num_test = int(dataset.splits["test"].tokens.size)
    if num_test < _FEW_TEST_TOKENS:
        problems.append(
            f"The test part has only {num_test:,} tokens. A loss measured on so few is uncertain by several hundredths "
            "of a nat: do not read small differences between models, or use a longer text."
        )
    return problems


def _alphabet_problems(
    alphabet: tuple[CharacterCount, ...],
    rare: tuple[CharacterCount, ...],
    unlearnable: tuple[CharacterCount, ...],
    tokenizer: str,
) -> list[str]:
    problems = []
    if rare:
        problems.append(
            f"The text holds {_characters(len(rare))} fewer than {RARE} times each ({_named(rare)}). No model can "
            "learn from so few, and the char tokenizer gives each a row of the embedding and of the head to itself: "
            "replace them in the text, or use the byte or bpe tokenizer."
        )
    if unlearnable:
        problems.append(
            f"The training part lacks {_characters(len(unlearnable))} of the held-out parts ({_named(unlearnable)}). "
            "The model can only be wrong there, and pays for it in the losses: replace them in the text."
        )
    if len(alphabet) == 1:
        problems.append("The text is one character over and over. There is nothing to learn: use another text.")
    if len(alphabet) > _LARGE_ALPHABET and tokenizer == "char":
        problems.append(
            f"The alphabet has {len(alphabet):,} characters. Most of the model will be embedding and head: use the "
            "bpe or the byte tokenizer."
        )
    return problems


def _character_problems(text: Text, counts: dict[str, int]) -> list[str]:
    problems = []
    control = tuple(_counted(character, count) for character, count in counts.items() if _is_control(character))
    if control:
        problems.append(
            f"The text holds control or invisible characters ({_named(control)}). The model will learn to write them, "
            "unseen in its samples: remove them unless they are meant."
        )
    if num_lost := counts.get("\ufffd", 0):
        problems.append(
            f"U+FFFD occurs {num_lost:,} times: whoever made this file lost characters there. The model will learn "
            "to write it: go back to the original file."
        )
    num_mangled = sum(1 for piece in _overlapping(text) for _ in _MANGLED.finditer(piece))
    if num_mangled >= _FEW_MANGLED:
        problems.append(
            f"In {num_mangled:,} places the text looks like UTF-8 that was once read as Latin-1 (Ã© for é). Each such "
            "letter is two characters to the model: convert the original file again."
        )
    return problems + _normal_form_problems(text, counts)


def _overlapping(text: Text) -> Iterator[str]:
    """The pieces of a text, each with the last character of the one before it: pairs of neighbours are in one once."""
    before = ""
    for piece in pieces(text):
        yield before + piece
        before = piece[-1:]


def _is_control(character: str) -> bool:
    return unicodedata.category(character) in {"Cc", "Cf"} and character not in "\n\r\t\u00ad"


def _normal_form_problems(text: Text, counts: dict[str, int]) -> list[str]:
    if all(map(str.isascii, counts)):
        return []
    num_decomposed = sum(len(piece) - len(unicodedata.normalize("NFC", piece)) for piece in _whole_letters(text))
    if num_decomposed <= 0:
        return []
    num_composed = sum(count for character, count in counts.items() if _is_composed(character))
    if num_composed:
        return [
            f"The same letters are written in two ways: {num_composed:,} accented letters as one character, "
            f"{num_decomposed:,} as a letter and a combining accent. To the model they have nothing in common: "
            "normalize the text to NFC."
        ]
    return [
        f"{num_decomposed:,} accented letters are written as a letter and a combining accent (NFD). Each takes two "
        "characters, and a prompt typed on a keyboard will not match: normalize the text to NFC."
    ]


def _whole_letters(text: Text) -> Iterator[str]:
    """The pieces of a text, cut anew before an ASCII character: no accent is parted from its letter."""
    held = ""
    for piece in pieces(text):
        held += piece
        cut = next((place for place in range(len(held) - 1, 0, -1) if held[place].isascii()), 0)
        yield held[:cut]
        held = held[cut:]
    yield held


def _is_composed(character: str) -> bool:
    return len(unicodedata.normalize("NFD", character)) > 1


def _line_problems(lines: Lines) -> list[str]:
    problems = []
    kinds = {ending: count for ending, count in lines.endings.items() if count}
    if len(kinds) > 1:
        listed = ", ".join(f"{count:,} {ending}" for ending, count in kinds.items())
        problems.append(
            f"Lines end in different ways ({listed}). The model has to guess which, at a cost in every loss: use "
            'newlines = "lf".'
        )
    elif kinds and "\\n" not in kinds:
        problems.append(
            f'Every line ends with {next(iter(kinds))}, since newlines = "keep". Prompts and samples will not match '
            'texts that end theirs with \\n: use newlines = "lf".'
        )
    if lines.longest > _LONG_LINE:
        problems.append(
            f"The longest line has {lines.longest:,} characters. A model with a short context never sees where such a "
            "line ends, and tables or data without line breaks teach it little: break such lines, or remove them."
        )
    return problems


def _duplicate_problems(duplicates: Duplicates) -> list[str]:
    if duplicates.share < _DUPLICATE_SHARE:
        return []
    return [
        f"{duplicates.share:.1%} of the windows of {duplicates.length} characters in the test part also stand in the "
        f"training part, for example “{label_text(duplicates.example)}”. Learning by heart will look like learning in "
        "the losses: remove repeated documents and boilerplate."
    ]

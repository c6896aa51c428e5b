"""A report on a text before training: its numbers, and the problems it will cause."""

import math
import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from vitral.core.language import N_, NEEDED, Message, in_language
from vitral.data.alphabet import code_point, label_text, some_of
from vitral.data.batches import Reading, Split, reading_of
from vitral.data.dataset import Dataset
from vitral.data.long_texts import Text, in_lines, pieces
from vitral.data.split import SPLITS, Blocks, in_blocks
from vitral.data.tokenizers import alphabet_counts, between_special_tokens

RARE = 10
"""A character with fewer occurrences than this counts as rare."""

_BEGINNING = 1 << 20
"""Characters in which special tokens are looked for."""
_LONG_LINE = 5_000
_FEW_BATCHES = 20
_FEW_TEST_TOKENS = 10_000
_DUPLICATE_SHARE = 0.02
_UNKNOWN_SHARE = 0.001
"""Each character that no training text has costs about ten nats: a thousandth of them a hundredth of a nat."""
_UNKNOWN_ROOT = 0.25
"""Nats differ by about 2.5 from character to character: a quarter of the root of a split's characters, at ten nats
each, moves its loss by one standard error."""
_SPECIAL = re.compile(r"<\|\w+\|>")
_MANGLED = (b"\xc3\x82\xc2", b"\xc3\x83\xc2", "â€".encode())
"""In UTF-8, U+0080 to U+00BF are the characters that begin with the byte C2."""
_FEW_MANGLED = 5
_NAMED_AT_MOST = 8


_MOST_COMPARED = 1 << 20
"""Characters of the test split that are compared; of a longer one, evenly spaced blocks."""


@dataclass(frozen=True)
class Duplicates:
    """Windows of the test split that also occur in the training split.

    Attributes:
        length: characters of a window.
        share: share of the test windows that occur in the training split, 0 to 1.
        example: the first such window, or empty.
    """

    length: int
    share: float
    example: str


def duplicates_across(
    text: Text, blocks: Mapping[str, Blocks], length: int = 60, specials: Sequence[str] = ()
) -> Duplicates:
    """The windows of the test split that the training split has too.

    Windows begin at a word, and lie within a block and between special tokens.

    Args:
        text: the whole text.
        blocks: split -> its blocks, from `split_corpus`.
        length: characters of a window.
        specials: special tokens.
    """
    stride = -(-blocks["test"].num_characters // _MOST_COMPARED)
    test = list(_windows(text, blocks["test"].chosen(slice(None, None, stride)), length, specials))
    twice = {*test}.intersection(_windows(text, blocks["train"], length, specials))
    duplicates = [window for window in test if window in twice]
    return Duplicates(length, len(duplicates) / max(1, len(test)), duplicates[0] if duplicates else "")


def _windows(text: Text, blocks: Blocks, length: int, specials: Sequence[str]) -> Iterator[str]:
    from_a_word = re.compile(rf"\b(?=(\w.{{{length - 1}}}))", re.DOTALL)
    for begin, end in in_blocks(blocks.runs()):
        for part in between_special_tokens([text[begin:end]], specials):
            yield from from_a_word.findall(part)


@dataclass(frozen=True)
class CharacterCount:
    """One character of the alphabet: label, code point, name and number of occurrences."""

    label: str
    code_point: str
    name: str
    count: int


@dataclass(frozen=True)
class LineStatistics:
    """Statistics of a text's lines.

    Attributes:
        num_lines: number of lines, including a last one without a newline; 0 of records, which have none.
        longest: characters of the longest line.
    """

    num_lines: int
    longest: int


@dataclass(frozen=True)
class CorpusReport:
    """A text's numbers and problems.

    Attributes:
        name: see `Corpus.name`.
        num_bytes: bytes read.
        num_characters: characters of the text.
        sha256: see `Corpus.sha256`.
        notes: changes made to the text, and special tokens that are spelled in it.
        tokenizer: name of the tokenizer.
        vocab_size: its number of tokens.
        characters: split -> characters.
        tokens: split -> tokens.
        alphabet: every distinct character, sorted by code point.
        rare: characters with fewer than `RARE` occurrences, rarest first.
        unlearnable: characters that do not occur in the training split.
        lines: statistics of its lines.
        duplicates: the share of the test split that also occurs in the training split.
        num_windows: windows of the training split.
        batches_per_pass: number of batches with as many tokens as the training split.
        problems: problems, one or two sentences each: the consequence for training and the remedy.
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
    lines: LineStatistics
    duplicates: Duplicates
    num_windows: int
    batches_per_pass: float
    problems: tuple[Message, ...]

    @property
    def loss_problems(self) -> tuple[str, ...]:
        """The problems by which the held-out losses measure something else than what was learned."""
        held_out = self.characters["validation"] + self.characters["test"]
        most = max(_UNKNOWN_SHARE * held_out, _UNKNOWN_ROOT * math.sqrt(held_out))
        are_many = sum(entry.count for entry in self.unlearnable) >= most
        named = {_ONE_CHARACTER, _REPEATED, *([_UNLEARNABLE] if are_many else [])}
        return tuple(problem for problem in self.problems if problem.sentence in named)

    @property
    def loss_notes(self) -> tuple[str, ...]:
        """The characters that the training split lacks, where they are too few to be one of those."""
        unknown = (problem for problem in self.problems if problem.sentence == _UNLEARNABLE)
        return tuple(problem for problem in unknown if problem not in self.loss_problems)

    def plain(self) -> dict[str, Any]:
        """The report as JSON-ready data."""
        return {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(self).items()}


def corpus_report(dataset: Dataset, text: Text, *, context_length: int | Reading, batch_size: int) -> CorpusReport:
    """Compute the report of a text.

    Args:
        dataset: the prepared text.
        text: the text itself, `Corpus.text`.
        context_length: inputs per training window; or how a model reads records.
        batch_size: windows per training batch.
    """
    blocks, train, reading = dataset.blocks, dataset.splits["train"], reading_of(context_length)
    specials = [*dataset.tokenizer.declared]
    counts = alphabet_counts([text], specials)
    validation, test = blocks["validation"], blocks["test"]
    spans = (span for held_out in ([test] if test is validation else [validation, test]) for span in held_out)
    held_out = alphabet_counts((text[begin:end] for begin, end in spans), specials)
    alphabet = _those(counts)
    windows = len(train.segments) if train.answers else train.tokens.size / reading.context_length
    is_text = dataset.config.task is dataset.config.records is None
    report = CorpusReport(
        name=dataset.name,
        num_bytes=dataset.text.bytes,
        num_characters=len(text),
        sha256=dataset.text.sha256,
        notes=(*dataset.notes, *_special_notes(dataset, text)),
        tokenizer=dataset.tokenizer.name,
        vocab_size=dataset.tokenizer.vocab_size,
        characters={split: blocks[split].num_characters for split in SPLITS},
        tokens={split: int(dataset.splits[split].tokens.size) for split in SPLITS},
        alphabet=alphabet,
        rare=tuple(sorted((entry for entry in alphabet if entry.count < RARE), key=lambda entry: entry.count)),
        unlearnable=_those(counts, lambda character: held_out.get(character) == counts[character]),
        lines=_lines(text if is_text else ""),
        duplicates=duplicates_across(text, blocks, specials=specials),
        num_windows=int(reading.counts(train).sum()),
        batches_per_pass=windows / batch_size,
        problems=(),
    )
    problems = [
        *_size_problems(report, train, reading, batch_size),
        *_character_problems(report, counts),
        *_accent_problems(text, counts),
        # The sequences of a task are drawn independently: two may be equal by chance, which is no leak.
        *(_passage_problems(report.lines, report.duplicates) if dataset.config.task is None else ()),
    ]
    return replace(report, problems=tuple(problems))


def _special_notes(dataset: Dataset, text: Text) -> list[str]:
    """What looks like a special token in the beginning of a text, and has no token of its own."""
    specials, by = [*dict.fromkeys(_SPECIAL.findall(text[:_BEGINNING]))][:_NAMED_AT_MOST], dataset.config.replacement
    given = " ".join(f"--special '{one}'" for one in specials if len(dataset.tokenizer.encode(one, replacement=by)) > 1)
    sentence = N_("Special tokens are spelled letter by letter; {options} makes one token of each.")
    return [sentence.format(options=given)] if given else []


def _lines(text: Text) -> LineStatistics:
    number, longest, last = 0, 0, 0
    for piece in pieces(text):
        lengths = [len(line) for line in in_lines(piece).split("\n")]
        lengths[0] += last
        number, longest, last = number + len(lengths) - 1, max(longest, *lengths), lengths[-1]
    return LineStatistics(number + (last > 0), longest)


def _those(counts: Mapping[str, int], wanted: Callable[[str], bool] = bool) -> tuple[CharacterCount, ...]:
    """The characters for which `wanted` is true."""
    return tuple(
        CharacterCount(
            label_text(one),
            code_point(one),
            unicodedata.name(one, "control character" if unicodedata.category(one) == "Cc" else "unnamed").lower(),
            count,
        )
        for one, count in counts.items()
        if wanted(one)
    )


def _named(entries: tuple[CharacterCount, ...]) -> str:
    """The first few characters, with code point and count."""
    return some_of([f"“{entry.label}” {entry.code_point}: {entry.count}" for entry in entries], _NAMED_AT_MOST)


def _size_problems(report: CorpusReport, train: Split, reading: Reading, batch_size: int) -> Iterator[Message]:
    if not report.num_windows:
        with in_language("en"):  # it is stored
            yield N_("There is nothing to train on: {reason}.").format(reason=reading.refusal(train))
    if report.batches_per_pass < _FEW_BATCHES:
        sentence = N_(
            "One pass over the training split takes only {batches:.1f} batches of {batch_size} windows of "
            "{context_length} tokens. The model will see every line many times and memorize it: use a longer "
            "text, a smaller model or fewer steps, and watch the validation loss."
        )
        if train.answers is not None:
            sentence = N_(
                "One pass over the training split takes only {batches:.1f} batches of {batch_size} records. The model "
                "will see each many times and memorize it: use more records, a smaller model or fewer steps, and watch "
                "the validation loss."
            )
        values = {
            "batches": report.batches_per_pass,
            "batch_size": batch_size,
            "context_length": reading.context_length,
        }
        yield sentence.format(**values)
    if report.tokens["test"] < _FEW_TEST_TOKENS:
        yield N_(
            "The test split has only {number:,} tokens, so its loss is uncertain by several hundredths of a nat: "
            "ignore small differences between models, or use a longer text."
        ).format(number=report.tokens["test"])


_UNLEARNABLE = N_(
    "Characters of the held-out splits that the training split lacks: {number:,} ({names}). The model "
    "cannot predict them, which raises the losses: replace them in the text."
)
_ONE_CHARACTER = N_("The text repeats a single character, so there is nothing to learn: use another text.")
_REPEATED = N_(
    "{share:.1%} of the windows of {length} characters in the test split also occur in the training "
    "split, for example “{example}”. Memorization will then lower the test loss: remove repeated "
    "documents and boilerplate."
)


def _character_problems(report: CorpusReport, counts: Mapping[str, int]) -> Iterator[Message]:
    if report.rare:
        yield N_(
            "Characters with fewer than {least} occurrences each: {number:,} ({names}). This is too few to learn "
            "from, and the char tokenizer spends a row of embedding and head on each: replace them in the text, or "
            "use the byte or bpe tokenizer."
        ).format(number=len(report.rare), least=RARE, names=_named(report.rare))
    if report.unlearnable:
        yield _UNLEARNABLE.format(number=len(report.unlearnable), names=_named(report.unlearnable))
    if len(counts) == 1:
        yield _ONE_CHARACTER
    if control := _those(counts, _is_control):
        yield N_(
            "The text contains control or invisible characters ({names}). The model will learn to write "
            "them, invisibly: remove them unless they are intended."
        ).format(names=_named(control))
    # The ideographic space is the ordinary one of Chinese and Japanese.
    spaces = _those(counts, lambda one: one not in " \u3000" and unicodedata.category(one) == "Zs")
    if sum(entry.count for entry in spaces) >= RARE:
        yield N_(
            "The text contains unusual spaces ({names}). They look like ordinary ones, but to the model they "
            "are other characters, and typed prompts will not match: replace them by ordinary spaces."
        ).format(names=_named(spaces))
    if num_lost := counts.get("\ufffd", 0):
        yield N_(
            "U+FFFD occurs {number:,} times: characters were lost there when this file was made. The model will "
            "learn to write it: use the original file."
        ).format(number=num_lost)


def _accent_problems(text: Text, counts: Mapping[str, int]) -> Iterator[Message]:
    if all(map(str.isascii, counts)):
        return
    num_mangled = sum(map(_mangled, pieces(text))) if any(map(counts.get, "ÂÃâ")) else 0
    if num_mangled >= _FEW_MANGLED:
        yield N_(
            "In {number:,} places the text looks like UTF-8 that was decoded as Latin-1 (Ã© for é). Each such "
            "letter becomes two characters: convert the original file again."
        ).format(number=num_mangled)
    num_decomposed = sum(len(piece) - len(unicodedata.normalize("NFC", piece)) for piece in pieces(text))
    num_composed = sum(count for one, count in counts.items() if len(unicodedata.normalize("NFD", one)) > 1)
    if num_decomposed > 0:
        yield N_(
            "{decomposed:,} accented letters are written as a letter and a combining accent, {composed:,} as one "
            "character. The model treats them as unrelated, and typed prompts may not match: normalize the text to NFC."
        ).format(decomposed=num_decomposed, composed=num_composed)


def _mangled(text: str) -> int:
    """Places that look like UTF-8 decoded as Latin-1: “Â” or “Ã” before U+0080 to U+00BF, or “â€”."""
    data = text.encode("utf-8", "surrogatepass")
    return sum(map(data.count, _MANGLED))


def _is_control(character: str) -> bool:
    is_shown = character in "\n\r\t" or NEEDED.match(character)
    return unicodedata.category(character) in {"Cc", "Cf", "Zl", "Zp"} and not is_shown


def _passage_problems(lines: LineStatistics, duplicates: Duplicates) -> Iterator[Message]:
    if lines.longest > _LONG_LINE:
        yield N_(
            "The longest line has {number:,} characters. A model with a short context never sees the end of "
            "such a line, and tables or data without line breaks teach it little: break such lines, or remove them."
        ).format(number=lines.longest)
    if duplicates.share >= _DUPLICATE_SHARE:
        example = label_text(duplicates.example).replace("␣", " ")
        yield _REPEATED.format(share=duplicates.share, length=duplicates.length, example=example)

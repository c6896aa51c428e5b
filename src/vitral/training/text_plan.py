"""How a text is trained on where nothing else is given: tokenizer, split, context length, batch size and dropout.

`vitral corpus`, `vitral count` and `vitral train` use this one plan. It is a function of the text and the time; the
model's size is chosen later, by measured speed, and dropout again where that allows other passes over the text than
expected. What the user has chosen stays as it is.
"""

import math
from collections.abc import Iterator, Mapping, Set
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from vitral.core.errors import UsageError
from vitral.core.language import N_
from vitral.data import BLOCK, Corpus, CorpusConfig, Dataset, prepare
from vitral.data.answers import KIND_NAMES as RECORD_NAMES
from vitral.data.batches import source_lengths
from vitral.data.tokenizers import alphabet_counts
from vitral.model.config import DropoutConfig
from vitral.runs import RunConfig
from vitral.training.deadline import in_minutes
from vitral.training.plans import worth
from vitral.training.regularisation import regularisation

LEAST_CHARACTERS = 200
"""Shorter texts have too few characters to hold some out."""
LEAST_BLOCKS = 8
"""Split `blocks` from this many blocks on: with fewer, its two held-out blocks are more than a quarter of the text."""
HELD_OUT = 0.15
"""Share of the validation and test splits together."""
SHAPES = ((0.0, 50, 32), (0.5, 128, 16), (3.0, 256, 8), (10.0, 192, 16), (60.0, 256, 16))
"""(Minutes, context length, batch size) from that training time on.

50 and 128 are the contexts of the ladder and of `fast` (docs/internals). 256 was compared with 128 at one, three and
five minutes, and with 192 at three, five and fifteen (docs/internals/experiments); for an hour nothing else was tried.
"""
EXPECTED_STEPS = 1_000
"""Steps that a run makes in half a minute to five, roughly: a longer one has a larger model, up to the largest that
suits the text."""
SHORT = 16 * BLOCK
"""Characters from which on every split is longer than any context here, whatever the tokenizer."""
LARGE_ALPHABET = 1_000
"""Alphabets from which on most characters are several bytes."""
ENOUGH_MINUTES = 5.0
"""Minutes from which on byte pairs are chosen; in fewer, the model stays above the trigram baseline of its tokens."""
LONG = 2_400_000
"""Characters from which on byte pairs are chosen. At this length their loss per character is lower at equal arithmetic,
and at twice this length a quarter of an hour is as good as an hour in characters (docs/internals/experiments.md)."""
MOST_ENCODED = 20_000_000
"""Characters of a longer text take too much of the time to encode as byte pairs."""
COUNTED = 1 << 24
"""Characters of a text that stays on the disk whose alphabet is counted."""


@dataclass(frozen=True)
class Choice:
    """One choice of a plan.

    Attributes:
        key: the key of the configuration.
        value: its value as plain data.
        reason: why, as a phrase.
        is_pinned: whether the user chose it.
    """

    key: str
    value: Any
    reason: str
    is_pinned: bool = False

    @property
    def word(self) -> str:
        """The value as one word."""
        if not isinstance(self.value, Mapping):
            return str(self.value)
        if self.key == "model.dropout":
            return f"{max(self.value.values()):g}"
        return ":".join(str(part) for part in self.value.values())


@dataclass(frozen=True)
class TextPlan:
    """The plan of a text.

    Attributes:
        choices: each choice with its reason.
        worth: the time that the text is worth, as a line; of a text that was read as such.
    """

    choices: tuple[Choice, ...]
    worth: tuple[str, ...] = ()

    @property
    def layer(self) -> dict[str, dict[str, Any]]:
        """The choices that are not pinned, as a layer of configuration."""
        layer: dict[str, dict[str, Any]] = {}
        for choice in self.choices:
            if not choice.is_pinned:
                table, key = choice.key.split(".")
                layer.setdefault(table, {})[key] = choice.value
        return layer

    @property
    def lines(self) -> tuple[str, ...]:
        """The plan as English sentences: what the text is worth, and one for each choice."""
        lines = (KIND_NAMES[choice.key].format(value=choice.word, reason=choice.reason) for choice in self.choices)
        return (*self.worth, *lines)

    def brief(self, *, has_dropout: bool) -> str:
        """All choices in one line, without reasons; without the dropout where it is chosen again by measured speed."""
        sentence = BRIEF if has_dropout else BRIEFER
        return sentence.format(**{choice.key.split(".")[1]: choice.word for choice in self.choices})

    def plain(self) -> list[dict[str, Any]]:
        """The choices as plain data."""
        return [asdict(choice) for choice in self.choices]


KIND_NAMES = {
    "corpus.tokenizer": N_("plan: tokenizer {value}: {reason}"),
    "corpus.split": N_("plan: split {value}: {reason}"),
    "model.context_length": N_("plan: context {value}: {reason}"),
    "model.source_length": N_("plan: source {value}: {reason}"),
    "training.batch_size": N_("plan: batch {value}: {reason}"),
    "model.dropout": N_("plan: dropout {value}: {reason}"),
}
"""What a choice says, by its key."""
BRIEF = N_(
    "plan: tokenizer {tokenizer}, split {split}, context {context_length}, batch {batch_size}, dropout {dropout} "
    "(vitral corpus says why)"
)
BRIEFER = N_(
    "plan: tokenizer {tokenizer}, split {split}, context {context_length}, batch {batch_size} (vitral corpus says why)"
)

LONGEST_RECORD = 512
"""Tokens of a record that is trained on, where the context is chosen; longer ones are left out."""
RECORD_BATCH = (16, 128)
"""Records in a step at least and at most."""

IN_FILES = N_("files with val in their names are held out")
OF_TOKENS = {"name": "file"}, N_("the one that made these tokens")


def written_plan(config: RunConfig, where: str) -> TextPlan:
    """The plan of a configuration that is used as it is written in `where`."""
    values = _values(config)
    return TextPlan(
        tuple(
            Choice(key, value, N_("as in {where}").format(where=where), is_pinned=True)
            for key, value in values.items()
            if value is not None
        )
    )


def plan_text(corpus: Corpus, config: RunConfig, pinned: Set[str] = frozenset()) -> TextPlan:
    """Choose how to train on a text.

    Args:
        corpus: the text.
        config: the configuration without this plan; its `training.minutes` is the time.
        pinned: keys that the user has chosen, such as "corpus.tokenizer"; their values in `config` stay.

    Raises:
        UsageError: the text is shorter than `LEAST_CHARACTERS`, or cannot be split or tokenized as the user wants.
    """
    text = corpus.text if isinstance(corpus.text, str) else corpus.text[:COUNTED]
    size, alphabet = len(corpus.text), len(alphabet_counts([text], config.corpus.specials or ()))
    values, choices = _values(config), list[Choice]()

    def choose(key: str, value: Any, reason: str) -> None:
        if key in pinned:
            value, reason = values[key], N_("as you chose")
        values[key] = value
        choices.append(Choice(key, value, reason, is_pinned=key in pinned))

    if corpus.records is None:
        if size < LEAST_CHARACTERS:
            raise UsageError(
                "{name}: a text of {size:,} characters is too short to train and measure on; give one of at least "
                "{least}",
                name=corpus.name,
                size=size,
                least=LEAST_CHARACTERS,
            )
        choose("corpus.split", *(_split(size) if corpus.shards is None else ("blocks", IN_FILES)))
    else:
        kind = RECORD_NAMES.get(config.corpus.records or "", N_("sequences of a task"))
        why = N_("{number:,} {kind}, each whole in one split").format(number=len(corpus.records.distinct), kind=kind)
        choices.append(Choice("corpus.split", values["corpus.split"], why, is_pinned=True))
    choose("corpus.tokenizer", *(_tokenizer(size, alphabet, config) if corpus.shards is None else OF_TOKENS))
    for shape in (
        _of_text(corpus, config, values, pinned) if corpus.records is None else _of_records(corpus, config, values)
    ):
        choose(*shape)
    choose("model.dropout", *_dropout(size, config, values))
    is_whole = not (corpus.records or config.corpus.is_drawn or config.corpus.also or config.corpus.train_on)
    return TextPlan(tuple(choices), (worth(config, math.ceil((1 - HELD_OUT) * size)),) if is_whole else ())


_Chosen = tuple[str, Any, str]
"""A key, its value and the reason."""


def _of_text(corpus: Corpus, config: RunConfig, values: Mapping[str, Any], pinned: Set[str]) -> Iterator[_Chosen]:
    """Context and batch of a text."""
    context, batch = _shape(config.training.minutes)
    time = N_("a given number of steps") if config.training.minutes is None else in_minutes(config.training.minutes)
    room = context
    if len(corpus.text) < SHORT and "model.context_length" not in pinned:
        splits = _prepared(corpus, config, values).splits.values()
        room = min(int(split.lengths.max(initial=0)) for split in splits) - 1
    if room < 1:
        raise UsageError(
            "{name}: one of the splits of this short text is a single token, so there is nothing to "
            "predict in it; leave out corpus.tokenizer and corpus.split, or give a longer text",
            name=corpus.name,
        )
    if room < context:
        why = N_("the shortest split of this short text has {tokens:,} tokens").format(tokens=room + 1)
        context = 1 << room.bit_length() - 1  # the largest power of two that fits
    else:
        why = N_("the usual one for {time}").format(time=time)
    yield "model.context_length", context, why
    yield "training.batch_size", batch, N_("windows in a step, the usual number for {time}").format(time=time)


def _of_records(corpus: Corpus, config: RunConfig, values: Mapping[str, Any]) -> Iterator[_Chosen]:
    """Context, source and batch of records, or of the sequences of a task."""
    splits = _prepared(corpus, config, values).splits.values()
    lengths = np.concatenate([split.lengths for split in splits])
    sources = np.concatenate([source_lengths(split) for split in splits])
    read = {"model.context_length": sources if config.model.shape == "encoder" else lengths - 1}
    if config.model.shape == "encoder-decoder":
        read = {"model.context_length": lengths - sources - 1, "model.source_length": sources}
    for key, lengths_read in read.items():
        why = N_("that of the longest record")
        if lengths_read.max() > LONGEST_RECORD:
            why = N_("{number:,} records are longer and left out").format(
                number=int((lengths_read > LONGEST_RECORD).sum())
            )
        yield key, int(min(lengths_read.max(), LONGEST_RECORD)), why
    context, batch = _shape(config.training.minutes)
    usual = int(context * batch // np.minimum(lengths, LONGEST_RECORD).mean())
    many = N_("records in a step, with the usual number of tokens")
    yield "training.batch_size", min(max(usual, RECORD_BATCH[0]), RECORD_BATCH[1]), many


def _prepared(corpus: Corpus, config: RunConfig, values: Mapping[str, Any]) -> Dataset:
    """The text with the tokenizer and the split that are chosen."""
    table = {key: value for key, value in config.corpus.plain().items() if key != "replacement"}
    table |= {key.split(".")[1]: value for key, value in values.items() if "corpus." in key}
    if corpus.records is not None:
        table["split"] = config.corpus.split
    return prepare(CorpusConfig.parse(table, "corpus"), corpus=corpus)


def _values(config: RunConfig) -> dict[str, Any]:
    plain = config.plain()
    values = {key: plain[key.split(".")[0]].get(key.split(".")[1]) for key in KIND_NAMES}
    if config.corpus.records is not None:
        values["corpus.split"] = "records"
    elif config.corpus.task is not None:
        values["corpus.split"] = "sequences"
    return values


def _shape(minutes: float | None) -> tuple[int, int]:
    """Context length and batch size for a training time."""
    return next((context, batch) for least, context, batch in reversed(SHAPES) if (minutes or 0) >= least)


def usual_shape(minutes: float) -> dict[str, Any]:
    """Context length and batch size of a long text for a training time, as a layer of configuration."""
    context, batch = _shape(minutes)
    return {"model": {"context_length": context}, "training": {"batch_size": batch}}


def _split(size: int) -> tuple[str, str]:
    if size < LEAST_BLOCKS * BLOCK:
        why = N_("{size:,} characters are too few for blocks of {block:,} spread over the text; its end is held out")
        return "tail", why.format(size=size, block=BLOCK)
    return "blocks", N_("blocks of {block:,} characters spread over the text are held out").format(block=BLOCK)


def _tokenizer(size: int, alphabet: int, config: RunConfig) -> tuple[dict[str, Any], str]:
    """The tokenizer with the fewest bits per character at equal arithmetic (measured: docs/internals/experiments)."""
    there = {"alphabet": alphabet, "size": size}
    is_brief = (config.training.minutes or 0) < ENOUGH_MINUTES
    if is_brief or not LONG <= size <= MOST_ENCODED or alphabet >= LARGE_ALPHABET:
        why = N_("{alphabet:,} distinct characters in {size:,}")
        if special := len(config.corpus.specials or ()):  # <PAD> is a token too
            why = N_("{alphabet:,} distinct characters; with {special} special tokens and <PAD> {tokens:,} tokens")
            there |= {"special": special, "tokens": alphabet + special + 1}
        return {"name": "char"}, why.format(**there)
    why = N_("{alphabet:,} distinct characters in {size:,}; byte pairs are better for texts this long").format(**there)
    return {"name": "bpe", "vocab_size": 1024}, why


def _dropout(size: int, config: RunConfig, values: Mapping[str, Any]) -> tuple[dict[str, float], str]:
    """Dropout for as many passes over the text as are expected; training counts them again with the measured speed."""
    training, num_tokens = config.training, math.ceil((1 - HELD_OUT) * size)
    per_step = training.accumulation * values["training.batch_size"] * values["model.context_length"]
    minutes, steps = training.minutes, training.steps
    if minutes is not None:
        steps = EXPECTED_STEPS * max(min(1.0, minutes / SHAPES[1][0]), minutes / ENOUGH_MINUTES)
    times = steps * per_step / num_tokens
    chosen = regularisation(times, config.model, num_tokens)
    often = N_(
        "this text is seen so often that it would be learned by heart; with minutes, training measures and chooses anew"
    )
    rarely = N_("few passes over this text are expected; with minutes, training measures and chooses anew")
    return DropoutConfig(**chosen.dropout).plain(), often if chosen.dropout else rarely

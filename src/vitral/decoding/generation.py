"""Generation: samples of a model, complete or streamed in pieces.

A generated text does not contain its prompt. An empty prompt becomes the tokenizer's start token (a newline if it has
one), which belongs to neither the prompt nor the text. Special tokens without text are never generated, but for the end
token, if one is given.
"""

from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Annotated

import numpy as np
import torch
from pydantic import Field

from vitral.core.config import Config
from vitral.core.errors import UsageError
from vitral.data.answers import ANSWER, END, USER
from vitral.data.batches import Reading, Split
from vitral.data.tokenizers import Tokenizer
from vitral.decoding.reader import AT_ONCE, UNSEEN, Prompt, Reader, prompt_ids, rows_of, source_ids
from vitral.decoding.sampling import GREEDY, Sampling, check_top_k, uniforms
from vitral.decoding.text import Writer, check_stop
from vitral.model.transformer import Transformer

MAX_ROWS = 256
"""Maximum number of samples per batch; more samples run in several batches."""


class GenerateOptions(Config):
    """Further options of generation.

    Attributes:
        num_samples: samples per prompt.
        first_sample: index of the first sample; sample i of a seed and prompt is the same text in every call.
        crop: whether a prompt longer than the context is cropped to its last tokens instead of refused.
        use_cache: whether to cache keys and values if the mask allows it; the text is the same.
        sources: encoder-decoder only: the source of each prompt.
        end: id of the token that ends a sample; its text does not contain it. Without it the sample ends where the
            context is full: an answer was trained within it.
    """

    num_samples: Annotated[int, Field(ge=1)] = 1
    first_sample: Annotated[int, Field(ge=0)] = 0
    crop: bool = False
    use_cache: bool = True
    sources: Annotated[tuple[str, ...], Field(strict=False)] | None = None
    end: int | None = None


DEFAULTS = GenerateOptions()


@dataclass(frozen=True)
class Sample:
    """A generated text.

    Attributes:
        prompt: its prompt.
        text: the generated text, without the prompt and without a stop string.
        tokens: the ids of all generated tokens, including those of a stop string and the end token.
        finish: "end" if the end token ended it, "stop" if a stop string did, "length" if max_tokens did.
        score: beam search only: the log-probability of `tokens`, in nats.
    """

    prompt: str
    text: str
    tokens: tuple[int, ...]
    finish: str
    score: float | None = None


def generate(
    model: Transformer,
    tokenizer: Tokenizer,
    prompts: Sequence[Prompt],
    *,
    max_tokens: int,
    sampling: Sampling,
    seed: int = 0,
    stop: Sequence[str] = (),
    options: GenerateOptions = DEFAULTS,
) -> list[Sample]:
    """Continue each prompt `options.num_samples` times; the samples are grouped by prompt, in the order of prompts.

    Sample i of a prompt depends only on (model, prompt, source, seed, i) and the settings (and on the rounding of
    logits), not on the other prompts. A repeated prompt continues the numbering: ["A", "A"] gives samples 0 and 1 of
    "A".

    Args:
        model: the model; its training mode is restored.
        tokenizer: the model's tokenizer.
        prompts: texts to continue, or their ids; an empty one becomes the tokenizer's start token.
        max_tokens: maximum number of generated tokens; beyond the context length the window restarts (see `Reader`).
        sampling: the sampling settings. The repetition penalty considers the prompt and all generated tokens.
        seed: seed of the random streams.
        stop: a sample ends before the first of these strings in its text.
        options: number of samples, cropping, cache, sources, end token.

    Raises:
        UsageError: an invalid value, a prompt or source that is too long or contains unknown characters, or logits that
            are NaN.
    """
    _check(model, tokenizer, sampling, stop)
    drafts = drafts_of(model, tokenizer, prompts, seed=seed, stop=stop, options=options)
    for batch in _batches(drafts):
        for _ in _advance(model, tokenizer, batch, max_tokens, sampling, options=options):
            pass
    return [draft.sample() for draft in drafts]


def stream(
    model: Transformer,
    tokenizer: Tokenizer,
    prompt: Prompt,
    *,
    max_tokens: int,
    sampling: Sampling,
    seed: int = 0,
    stop: Sequence[str] = (),
    options: GenerateOptions = DEFAULTS,
) -> Generator[str, None, Sample]:
    """Stream one sample's text in pieces; joined, they equal the text of `generate`. The sample is what it returns.

    A piece is not empty and contains whole characters; a possible beginning of a stop string is held back. The sample
    has index `options.first_sample`. Invalid values are refused here, before the first piece is requested.

    Raises:
        UsageError: as for `generate`, or more than one sample is requested.
    """
    if options.num_samples != 1:
        raise UsageError(
            "num_samples: a stream is one sample, not {num_samples}; choose it by first_sample",
            num_samples=options.num_samples,
        )
    _check(model, tokenizer, sampling, stop)
    drafts = drafts_of(model, tokenizer, [prompt], seed=seed, stop=stop, options=options)
    turns = _advance(model, tokenizer, drafts, max_tokens, sampling, options=options, one_by_one=True)
    return _pieces(turns, drafts[0])


class Draft:
    """An unfinished sample."""

    def __init__(
        self, prompt: str, ids: list[int], source: list[int] | None, random: np.random.Generator, stop: Sequence[str]
    ) -> None:
        """Begin with an empty text."""
        self.prompt, self.ids, self.source = prompt, ids, source
        self.tokens: list[int] = []
        self.stop, self.writer = stop, Writer(stop)
        self.uniforms, self.ended = random, False

    @property
    def is_live(self) -> bool:
        """Whether nothing has ended it."""
        return not (self.ended or self.writer.stopped)

    def add(self, tokens: Sequence[int], token_bytes: Callable[[int], bytes], end: int | None) -> None:
        """The next tokens; those after a stop string or the end token are left out."""
        if not self.stop and end is None:
            self.tokens += tokens
            self.writer.write(b"".join(map(token_bytes, tokens)))
            return
        for token in tokens:
            if self.is_live:
                self.tokens.append(token)
                self.ended = token == end
                self.writer.write(b"" if self.ended else token_bytes(token))

    def sample(self) -> Sample:
        """As it is now."""
        finish = "end" if self.ended else "stop" if self.writer.stopped else "length"
        return Sample(self.prompt, self.writer.text, tuple(self.tokens), finish)


def _check(model: Transformer, tokenizer: Tokenizer, sampling: Sampling, stop: Sequence[str]) -> None:
    """Refuse invalid arguments before computing anything."""
    model.require_vocabulary(tokenizer.vocab_size)
    check_stop(stop)
    if sampling.top_k is not None:
        check_top_k(sampling.top_k, tokenizer.vocab_size)


def drafts_of(
    model: Transformer,
    tokenizer: Tokenizer,
    prompts: Sequence[Prompt],
    *,
    seed: int,
    stop: Sequence[str],
    options: GenerateOptions,
) -> list[Draft]:
    """All samples to generate, in the order of the results.

    Raises:
        UsageError: as `generate`.
    """
    drafts: list[Draft] = []
    used: Counter[tuple[Prompt, str | None]] = Counter()
    sources = (None,) * len(prompts) if options.sources is None else options.sources
    if len(sources) != len(prompts):
        raise UsageError("sources: {sources} for {prompts} prompts", sources=len(sources), prompts=len(prompts))
    for asked in zip(prompts, sources, strict=True):
        prompt, source = asked
        ids = prompt_ids(tokenizer, prompt, model.config.context_length, crop=options.crop)
        text = prompt if isinstance(prompt, str) else tokenizer.decode(prompt)
        read = None if source is None else source_ids(tokenizer, source, model.config.source_length)
        for _ in range(options.num_samples):
            random = uniforms(seed, options.first_sample + used[asked])
            drafts.append(Draft(text, ids, read, random, stop))
            used[asked] += 1
    return drafts


def reader_of(model: Transformer, drafts: Sequence[Draft], options: GenerateOptions) -> Reader:
    """The reader of the prompts of equal length, and of the sources, of these drafts."""
    sources = [draft.source for draft in drafts if draft.source is not None]
    source = rows_of(model, sources) if sources else None
    return Reader(model, rows_of(model, [draft.ids for draft in drafts]), source=source, use_cache=options.use_cache)


def most_of(model: Transformer, draft: Draft, max_tokens: int, options: GenerateOptions) -> int:
    """The tokens that a draft may have: with an end token, as many as the context has room for."""
    room = model.config.context_length - len(draft.ids) + 1
    return max_tokens if options.end is None else min(max_tokens, room)


def never_chosen(tokenizer: Tokenizer, end: int | None) -> list[int]:
    """The ids of special tokens without text, but for the end token.

    Raises:
        UsageError: the vocabulary has no such end token.
    """
    if end is not None and not 0 <= end < tokenizer.vocab_size:
        raise UsageError("end: token {end} is not in the vocabulary of {size}", end=end, size=tokenizer.vocab_size)
    return [token for token in tokenizer.specials if token != end]


def _batches(drafts: Sequence[Draft]) -> Iterator[list[Draft]]:
    """Batches of at most MAX_ROWS drafts whose prompts have equal length."""
    by_length: dict[int, list[Draft]] = {}
    for draft in drafts:
        by_length.setdefault(len(draft.ids), []).append(draft)
    for same in by_length.values():
        for begin in range(0, len(same), MAX_ROWS):
            yield same[begin : begin + MAX_ROWS]


def _advance(
    model: Transformer,
    tokenizer: Tokenizer,
    drafts: Sequence[Draft],
    max_tokens: int,
    sampling: Sampling,
    *,
    options: GenerateOptions,
    one_by_one: bool = False,
) -> Iterator[None]:
    """Generate drafts of equal prompt length; each turn adds one token to each, or several, unless `one_by_one`."""
    live, token_bytes, end = list(drafts), cache(tokenizer.token_bytes), options.end
    reader = reader_of(model, live, options)
    # What a stream waits for, and what may be wasted behind a stop string or the end token, is short.
    work = AT_ONCE if one_by_one or end is not None or any(draft.stop for draft in drafts) else UNSEEN
    left, forbidden = most_of(model, live[0], max_tokens, options), never_chosen(tokenizer, end)
    while left and live:
        count = reader.ready(left, work)
        numbers = torch.from_numpy(np.stack([draft.uniforms.random(count) for draft in live]))
        chosen = reader.draw(numbers, sampling, forbidden=forbidden).tolist()
        width = 1 if one_by_one else count
        for begin in range(0, count, width):
            for draft, tokens in zip(live, chosen, strict=True):
                draft.add(tokens[begin : begin + width], token_bytes, end)
            yield
        left -= count
        running = [row for row, draft in enumerate(live) if draft.is_live]
        if running and len(running) < len(live):
            reader.select(torch.tensor(running))
        live = [live[row] for row in running]
    for draft in drafts:
        draft.writer.end()
    yield


def _pieces(turns: Iterator[None], draft: Draft) -> Generator[str, None, Sample]:
    """The text that becomes final in each turn."""
    for _ in turns:
        if piece := draft.writer.take():
            yield piece
    return draft.sample()


# ---------------------------------------------------------------- questions and answers

SHOWN = 3
"""Questions whose answers are shown."""


def asking(
    model: Transformer, tokenizer: Tokenizer, sources: Sequence[str], options: GenerateOptions = DEFAULTS
) -> tuple[list[str], GenerateOptions]:
    """The prompts by which a model is asked for the answers to some sources, and the options by which these end.

    A decoder reads each source in its prompt, as the first message of a chat where it was trained on chats; an
    encoder-decoder reads it beside the prompt.
    """
    asker = USER if USER in tokenizer.declared else ""
    return _prompts(model, tokenizer, [f"{asker}{source}" for source in sources], options)


def _prompts(
    model: Transformer, tokenizer: Tokenizer, questions: Sequence[str], options: GenerateOptions
) -> tuple[list[str], GenerateOptions]:
    """The same for the beginnings of records, up to the answer."""
    prompts, read = [f"{question}{ANSWER}" for question in questions], None
    if model.encoder is not None:
        prompts, read = [ANSWER] * len(questions), tuple(questions)
    return prompts, options.model_copy(update={"sources": read, "end": tokenizer.declared[END]})


def answered(
    model: Transformer, tokenizer: Tokenizer, split: Split, reading: Reading, max_tokens: int
) -> Iterator[str]:
    """The first questions of a split, each with the model's answer, and the right one where that is another.

    Args:
        model: of records, but not one that names labels.
        tokenizer: the model's.
        split: of records.
        reading: how much the model reads of a record.
        max_tokens: of an answer.
    """
    shown = split.segments[reading.fits(split)][:SHOWN]
    records = [tokenizer.decode(split.tokens[begin:end]).partition(ANSWER) for begin, end in shown]
    prompts, options = _prompts(model, tokenizer, [question for question, *_ in records], DEFAULTS)
    every = generate(model, tokenizer, prompts, max_tokens=max_tokens, sampling=GREEDY, options=options)
    for (question, _, rest), sample in zip(records, every, strict=True):
        right = rest.partition(END)[0]
        verdict = "✓" if sample.text == right else f"✗ {right}"
        yield f"{question.rpartition(USER)[2]} → {sample.text} {verdict}"

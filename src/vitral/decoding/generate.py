"""Generation: samples of a model, whole or piece by piece as they are decided.

A generated text does not contain its prompt. An empty prompt starts from the tokenizer's start token (a newline where
it has one), which belongs to neither the prompt nor the text. Special tokens are never generated.
"""

from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Annotated

import torch
from pydantic import Field

from vitral.core.config import Config
from vitral.core.errors import UsageError
from vitral.data.tokenizers import Tokenizer
from vitral.decoding.reader import Reader, check_max_tokens, check_same_vocabulary, prompt_ids, rows_of
from vitral.decoding.sampling import Sampling, check_top_k, choose, distribution, uniforms
from vitral.decoding.text import Writer, check_stop
from vitral.model.transformer import Transformer

MAX_ROWS = 256
"""Samples computed side by side; more run one batch after another."""


class GenerateOptions(Config):
    """What else can be said about generation.

    Attributes:
        num_samples: samples per prompt.
        first_sample: the number of the first one; sample i of a seed and prompt is the same text in every call.
        crop: whether a prompt longer than the context is cropped to its last tokens, rather than refused.
        use_cache: whether keys and values are kept between steps where the mask allows it; the text is the same.
    """

    num_samples: Annotated[int, Field(ge=1)] = 1
    first_sample: Annotated[int, Field(ge=0)] = 0
    crop: bool = False
    use_cache: bool = True


DEFAULTS = GenerateOptions()


@dataclass(frozen=True)
class Sample:
    """A generated text.

    Attributes:
        prompt: what it continues.
        text: the generated text, without the prompt, and without a stop string.
        tokens: the ids of all generated tokens, those of a stop string included.
        finish: "stop" where a stop string ended it, "length" where max_tokens did.
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
    prompts: Sequence[str],
    *,
    max_tokens: int,
    sampling: Sampling,
    seed: int = 0,
    stop: Sequence[str] = (),
    options: GenerateOptions = DEFAULTS,
) -> list[Sample]:
    """Continue each prompt, `options.num_samples` times; samples of one prompt stand together, prompts in order.

    Sample i of a prompt depends on (model, prompt, seed, i) and the settings alone (and on the rounding of logits), not
    on the other prompts. A prompt given again counts on: ["A", "A"] gives samples 0 and 1 of "A".

    Args:
        model: is left in the mode (training or not) it was in.
        tokenizer: the model's.
        prompts: texts to continue; an empty one starts from the tokenizer's start token.
        max_tokens: tokens to generate at most; past the context length the window restarts (see `Reader`).
        sampling: how tokens are chosen. The repetition penalty looks at the prompt and all that was generated.
        seed: of the streams the choices are drawn from.
        stop: a sample ends before the first of these strings in its text.
        options: the number of samples, cropping, the cache.

    Raises:
        UsageError: a bad value, a prompt that is too long or holds unknown characters, logits that are not numbers.
    """
    if isinstance(prompts, str):
        raise UsageError(f"prompts: expected a list of texts, not one text; write [{prompts!r}]")
    _check(model, tokenizer, max_tokens, sampling, stop)
    drafts = _drafts(tokenizer, prompts, model.config.context_length, seed=seed, stop=stop, options=options)
    for batch in _batches(drafts):
        for _ in _advance(model, tokenizer, batch, max_tokens, sampling, use_cache=options.use_cache):
            pass
    return [draft.sample() for draft in drafts]


def stream(
    model: Transformer,
    tokenizer: Tokenizer,
    prompt: str,
    *,
    max_tokens: int,
    sampling: Sampling,
    seed: int = 0,
    stop: Sequence[str] = (),
    options: GenerateOptions = DEFAULTS,
) -> Generator[str, None, None]:
    """One sample's text in pieces, as they are decided; all pieces together are the text that `generate` gives.

    A piece is never empty and never part of a character; what may become a stop string waits. The sample is number
    `options.first_sample`. Bad values are refused here, before the first piece is asked for.

    Raises:
        UsageError: as for `generate`; also when more than one sample is asked for.
    """
    if options.num_samples != 1:
        raise UsageError(f"num_samples: a stream is one sample, not {options.num_samples}; choose it by first_sample")
    _check(model, tokenizer, max_tokens, sampling, stop)
    drafts = _drafts(tokenizer, [prompt], model.config.context_length, seed=seed, stop=stop, options=options)
    return _pieces(_advance(model, tokenizer, drafts, max_tokens, sampling, use_cache=options.use_cache), drafts[0])


class _Draft:
    """A sample in the making."""

    def __init__(self, prompt: str, ids: list[int], number: int, seed: int, stop: Sequence[str]) -> None:
        self.prompt, self.ids = prompt, ids
        self.tokens: list[int] = []
        self.writer = Writer(stop)
        self.uniforms = uniforms(seed, number)

    def add(self, token: int, data: bytes) -> None:
        """Take one chosen token and its bytes."""
        self.tokens.append(token)
        self.writer.write(data)

    def sample(self) -> Sample:
        """The finished sample."""
        return Sample(
            self.prompt, self.writer.text, tuple(self.tokens), finish="stop" if self.writer.stopped else "length"
        )


def _check(model: Transformer, tokenizer: Tokenizer, max_tokens: int, sampling: Sampling, stop: Sequence[str]) -> None:
    """Refuse what cannot work before anything is computed."""
    check_same_vocabulary(model, tokenizer)
    check_max_tokens(max_tokens)
    check_stop(stop)
    if sampling.top_k is not None:
        check_top_k(sampling.top_k, tokenizer.vocab_size)


def _drafts(
    tokenizer: Tokenizer,
    prompts: Sequence[str],
    context_length: int,
    *,
    seed: int,
    stop: Sequence[str],
    options: GenerateOptions,
) -> list[_Draft]:
    """All samples to be made, in the order they are handed back."""
    drafts: list[_Draft] = []
    used: Counter[str] = Counter()
    for prompt in prompts:
        ids = prompt_ids(tokenizer, prompt, context_length, crop=options.crop)
        for _ in range(options.num_samples):
            drafts.append(_Draft(prompt, ids, options.first_sample + used[prompt], seed, stop))
            used[prompt] += 1
    return drafts


def _batches(drafts: Sequence[_Draft]) -> Iterator[list[_Draft]]:
    """Drafts whose prompts have the same number of tokens, at most MAX_ROWS together."""
    by_length: dict[int, list[_Draft]] = {}
    for draft in drafts:
        by_length.setdefault(len(draft.ids), []).append(draft)
    for same in by_length.values():
        for begin in range(0, len(same), MAX_ROWS):
            yield same[begin : begin + MAX_ROWS]


def _advance(
    model: Transformer,
    tokenizer: Tokenizer,
    drafts: Sequence[_Draft],
    max_tokens: int,
    sampling: Sampling,
    *,
    use_cache: bool,
) -> Iterator[None]:
    """Write drafts of equal prompt length to their ends, one token each at every turn."""
    live, token_bytes = list(drafts), cache(tokenizer.token_bytes)
    reader = Reader(model, rows_of(model, [draft.ids for draft in live]), use_cache=use_cache)
    for turn in range(max_tokens):
        probabilities = distribution(reader.logits(), sampling, history=reader.history, forbidden=tokenizer.specials)
        numbers = torch.tensor([draft.uniforms.random() for draft in live], dtype=torch.float64)
        chosen = choose(probabilities, numbers)
        for draft, token in zip(live, chosen.tolist(), strict=True):
            draft.add(token, token_bytes(token))
        going = [row for row, draft in enumerate(live) if not draft.writer.stopped]
        yield
        if not going or turn == max_tokens - 1:
            break
        reader.append(chosen)
        if len(going) < len(live):
            live = [live[row] for row in going]
            reader.select(torch.tensor(going))
    for draft in drafts:
        draft.writer.end()
    yield


def _pieces(turns: Iterator[None], draft: _Draft) -> Generator[str, None, None]:
    """What each turn has settled of the draft's text."""
    for _ in turns:
        if piece := draft.writer.take():
            yield piece

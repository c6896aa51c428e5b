"""The reader: feeds growing rows of tokens to a model and returns the logits of the next token, or draws it.

It decides when to use the cache, whether the model runs in C, and handles the context length, for sampling and beam
search alike; the text is the same with and without the cache.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from vitral.core.errors import UsageError
from vitral.core.language import N_
from vitral.data.tokenizers import Tokenizer
from vitral.decoding.sampling import PLAIN, Sampling, choose, distribution
from vitral.model.cache import KVCache
from vitral.model.decode_step import DecodeStep, can_decode_step
from vitral.model.modes import evaluating
from vitral.model.native import Choice, NativeStep, Refused, native, native_step
from vitral.model.stack import PADDING
from vitral.model.transformer import Transformer

AT_ONCE, UNSEEN = 2**25, 2**31
"""Weights that are multiplied in one turn in C: in ten milliseconds, for a stream; in less than a second, where nobody
waits for a part of the text."""


Prompt = str | tuple[int, ...]
"""A text to continue, or its ids."""


def window_start(begin: int, length: int, context_length: int) -> int:
    """Where the window begins after a token was added: a full one restarts with half a context, at least one token.

    Args:
        begin: where it began before.
        length: tokens so far, with the new one.
        context_length: of the model.
    """
    return begin if length - begin <= context_length else length - max(1, context_length // 2)


class Way(NamedTuple):
    """How a model generates.

    Attributes:
        is_in_c: whether its forward pass and the choice of tokens run in C.
        detail: the instructions used, or why the modules of PyTorch are used, as a message.
    """

    is_in_c: bool
    detail: str


def way_of(model: Transformer, *, use_cache: bool = True) -> Way:
    """How a `Reader` of this model computes here and now."""
    if not use_cache:
        return Way(False, N_("there is no cache"))
    step = native_step(model)
    return Way(False, step) if isinstance(step, str) else Way(True, native().detail)


class Reader:
    """A batch of rows of equal length.

    The model sees a window: the last tokens of each row, at most context_length. A token added to a full window
    restarts it with the last context_length // 2 tokens (at least one), including the new one. Under a prefix mask, a
    window shorter than the prefix is recomputed at every step.
    """

    def __init__(
        self,
        model: Transformer,
        tokens: Int[Tensor, "batch time"],
        *,
        source: Int[Tensor, "batch source"] | None = None,
        use_cache: bool = True,
    ) -> None:
        """Start with these rows of 1 to context_length tokens each.

        Args:
            model: any but one that names labels.
            tokens: ids.
            source: encoder-decoder only: what each row answers, padded at the end with -1; it is encoded once.
            use_cache: whether to cache keys and values if the mask allows it.

        Raises:
            UsageError: the model names labels of a text.
        """
        if model.config.num_labels:
            raise UsageError("the model names labels of a text; it writes none")
        self._tokens, self._length, self._source = tokens, tokens.shape[1], source
        self._model, self._begin = model, 0
        self._cache: KVCache | None = None
        together = 0 if model.mask is None else model.mask.joint_prefix()
        use_cache = use_cache and not model.is_hooked
        self._cacheable_from = together if use_cache else None
        step = native_step(model) if use_cache else None
        self._native = step if isinstance(step, NativeStep) else None
        self._decode_step: DecodeStep | None = None
        self._can_decode_step = self._native is None and can_decode_step(model, len(tokens))

    @property
    def history(self) -> Int[Tensor, "batch time"]:
        """All tokens so far."""
        return self._tokens[:, : self._length]

    def logits(self) -> Float[Tensor, "batch vocab"]:
        """The logits of each row's next token; call exactly once before each `append`."""
        with evaluating(self._model):
            return self._read(self._tokens[:, self._begin : self._length])

    def ready(self, most: int, work: int = AT_ONCE) -> int:
        """How many tokens of each row the next `draw` is best asked for, at most `most`: one, or more in C.

        Args:
            most: at least 1.
            work: weights to multiply at most, unless one token needs more.
        """
        if self._native is None or self._is_read_anew(self._length - self._begin):
            return 1
        to_the_end = self._model.config.context_length - (self._length - self._begin) + 1
        return min(most, to_the_end, max(1, work // (self._native.weights * len(self._tokens))))

    def draw(
        self, numbers: Float[Tensor, "batch count"], sampling: Sampling = PLAIN, *, forbidden: Sequence[int] = ()
    ) -> Int[Tensor, "batch count"]:
        """Choose and append the next tokens of each row, in the place of `logits` and `append`.

        Args:
            numbers: uniform on [0, 1), in float64; one column for each token, as many as `ready` allows.
            sampling: the sampling settings; the repetition penalty considers `history`.
            forbidden: ids that are not chosen.

        Raises:
            UsageError: as `distribution`.
        """
        if self._native is None:
            chosen = choose(
                distribution(self.logits(), sampling, history=self.history, forbidden=forbidden), numbers[:, 0]
            )
            self.append(chosen)
            return chosen[:, None]
        count, length = numbers.shape[1], self._length
        self._make_room(count)
        try:
            self._native.write(
                self._tokens,
                self._native_cache(),
                begin=self._begin,
                length=length,
                choice=_choice(sampling),
                chances=numbers.numpy(),
                forbidden=forbidden,
            )
        except Refused as refused:
            self._length += refused.made
            self._native_cache().clear()
            distribution(self.logits(), sampling, history=self.history, forbidden=forbidden)  # says why
            raise
        if self._is_read_anew(length - self._begin):
            self._native_cache().clear()
        self._length += count
        self._restart()
        return self._tokens[:, length : self._length]

    def append(self, tokens: Int[Tensor, " batch"]) -> None:
        """Add one token to each row."""
        self._make_room(1)
        with torch.inference_mode():  # independent of the caller's mode
            self._tokens[:, self._length] = tokens
        self._length += 1
        self._restart()

    def select(self, rows: Int[Tensor, " rows"]) -> None:
        """Continue with these rows: reordered, repeated, or fewer."""
        rows = rows.to(self._tokens.device)
        self._tokens = self._tokens[rows]
        self._source = None if self._source is None else self._source[rows]
        self._can_decode_step = self._native is None and can_decode_step(self._model, len(rows))
        if self._cache is not None:
            with torch.inference_mode():
                self._cache.select(rows)

    def _make_room(self, count: int) -> None:
        """The buffer of tokens grows by doubling."""
        missing = self._length + count - self._tokens.shape[1]
        if missing > 0:
            with torch.inference_mode():
                more = self._tokens.new_zeros(len(self._tokens), max(missing, self._tokens.shape[1]))
                self._tokens = torch.cat([self._tokens, more], dim=1)

    def _restart(self) -> None:
        """Begin the window where it begins now."""
        begin = window_start(self._begin, self._length, self._model.config.context_length)
        if begin != self._begin and self._cache is not None:
            self._cache.clear()
        self._begin = begin

    def _is_read_anew(self, window: int) -> bool:
        """Whether a window of this many tokens has no use for a cache."""
        return self._cacheable_from is None or window < self._cacheable_from

    def _native_cache(self) -> KVCache:
        if self._cache is None:
            weight = self._model.token_embedding.weight
            length = self._model.config.context_length
            self._cache = KVCache(
                self._model.config, len(self._tokens), length, dtype=weight.dtype, device=weight.device
            )
        return self._cache

    def _read(self, window: Int[Tensor, "batch time"]) -> Float[Tensor, "batch vocab"]:
        if self._native is not None:
            cache = self._native_cache()
            try:
                logits = self._native(window[:, cache.length :], cache)
            except Refused:
                self._model(window)  # says why
                raise
            if self._is_read_anew(window.shape[1]):
                cache.clear()
            return logits
        if self._is_read_anew(window.shape[1]):
            return self._model(window, source=self._source)[:, -1]
        cache = self._cache = self._cache or self._model.new_cache(len(window), source=self._source)
        if window.shape[1] - cache.length == 1 and cache.length and self._can_decode_step:
            self._decode_step = self._decode_step or DecodeStep(self._model)
            return self._decode_step(window[:, -1], cache)
        return self._model(window[:, cache.length :], cache=cache)[:, -1]


def _choice(sampling: Sampling) -> Choice:
    top_k = 0 if sampling.top_k is None else sampling.top_k
    top_p = 1.0 if sampling.top_p is None else sampling.top_p
    return Choice(sampling.temperature, top_k, top_p, sampling.min_p or 0.0, sampling.repetition_penalty)


def source_ids(tokenizer: Tokenizer, source: str, source_length: int | None) -> list[int]:
    """The token ids of a source.

    Raises:
        UsageError: a character is unknown to the tokenizer, or the source is longer than the model reads.
    """
    ids = tokenizer.encode(source).tolist()
    if source_length is not None and len(ids) > source_length:
        raise UsageError(
            "source: {tokens} tokens, but the model reads at most {source_length}; shorten it",
            tokens=len(ids),
            source_length=source_length,
        )
    return ids


def prompt_ids(tokenizer: Tokenizer, prompt: Prompt, context_length: int, *, crop: bool = False) -> list[int]:
    """The token ids of a prompt, or the tokenizer's start token for an empty prompt.

    Args:
        tokenizer: the model's tokenizer.
        prompt: any text, possibly empty, or its ids.
        context_length: the model's context length.
        crop: whether to use the last context_length tokens of a longer prompt instead of refusing it.

    Raises:
        UsageError: a character is unknown to the tokenizer, or the prompt is longer than the context.
    """
    if not isinstance(prompt, str | tuple):
        raise UsageError("prompt: expected a text, not {prompt!r}", prompt=prompt)
    ids = [int(token) for token in (tokenizer.encode(prompt) if isinstance(prompt, str) else prompt)]
    ids = ids or [tokenizer.start]
    if len(ids) > context_length and not crop:
        raise UsageError(
            "prompt: {tokens} tokens, but the context length is {context_length}; shorten it, or use "
            "only its last {context_length} tokens: --crop, or crop=True in Python",
            tokens=len(ids),
            context_length=context_length,
        )
    return ids[-context_length:]


def rows_of(model: Transformer, rows: Sequence[Sequence[int]]) -> Int[Tensor, "batch time"]:
    """Rows of ids as a tensor on the model's device; shorter ones are padded at the end."""
    longest = max(1, *map(len, rows))
    padded = [[*row, *[PADDING] * (longest - len(row))] for row in rows]
    return torch.tensor(padded, dtype=torch.int64, device=model.token_embedding.weight.device)

"""The reader: feeds growing rows of tokens to a model and returns the logits of the next token.

It decides when to use the cache and handles the context length, for sampling and beam search alike; the text is the
same with and without the cache.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from vitral.core.checked import checked
from vitral.core.errors import UsageError
from vitral.data.tokenizers import Tokenizer
from vitral.model.decode_step import DecodeStep, can_decode_step
from vitral.model.transformer import Transformer


def window_start(begin: int, length: int, context_length: int) -> int:
    """Where the window begins after a token was added: a full one restarts with half a context, at least one token.

    Args:
        begin: where it began before.
        length: tokens so far, with the new one.
        context_length: of the model.
    """
    return begin if length - begin <= context_length else length - max(1, context_length // 2)


@checked(first=["__init__"])
class Reader:
    """A batch of rows of equal length.

    The model sees a window: the last tokens of each row, at most context_length. A token added to a full window
    restarts it with the last context_length // 2 tokens (at least one), including the new one. Under a prefix mask, a
    window shorter than the prefix is recomputed at every step.
    """

    def __init__(self, model: Transformer, tokens: Int[Tensor, "batch time"], *, use_cache: bool = True) -> None:
        """Start with these rows of 1 to context_length tokens each."""
        self._tokens, self._length = tokens, tokens.shape[1]
        self._model, self._cache, self._begin = model, None, 0
        together = 0 if model.mask is None else model.mask.joint_prefix()
        self._cacheable_from = together if use_cache else None
        self._decode_step: DecodeStep | None = None
        self._can_decode_step = can_decode_step(model, len(tokens))

    @property
    def history(self) -> Int[Tensor, "batch time"]:
        """All tokens so far."""
        return self._tokens[:, : self._length]

    def logits(self) -> Float[Tensor, "batch vocab"]:
        """The logits of each row's next token; call exactly once before each `append`."""
        with torch.inference_mode():
            if not self._model.training:
                return self._read(self._tokens[:, self._begin : self._length])
            self._model.eval()
            try:
                return self._read(self._tokens[:, self._begin : self._length])
            finally:
                self._model.train()

    def append(self, tokens: Int[Tensor, " batch"]) -> None:
        """Add one token to each row."""
        with torch.inference_mode():  # independent of the caller's mode
            if self._length == self._tokens.shape[1]:  # capacity grows by doubling
                self._tokens = torch.cat([self._tokens, torch.zeros_like(self._tokens)], dim=1)
            self._tokens[:, self._length] = tokens
        self._length += 1
        begin = window_start(self._begin, self._length, self._model.config.context_length)
        if begin != self._begin and self._cache is not None:
            self._cache.clear()
        self._begin = begin

    def select(self, rows: Int[Tensor, " rows"]) -> None:
        """Continue with these rows: reordered, repeated, or fewer."""
        rows = rows.to(self._tokens.device)
        self._tokens = self._tokens[rows]
        self._can_decode_step = can_decode_step(self._model, len(rows))
        if self._cache is not None:
            with torch.inference_mode():
                self._cache.select(rows)

    def _read(self, window: Int[Tensor, "batch time"]) -> Float[Tensor, "batch vocab"]:
        if self._cacheable_from is None or window.shape[1] < self._cacheable_from:
            return self._model(window)[:, -1]
        cache = self._cache = self._cache or self._model.new_cache(len(window))
        if window.shape[1] - cache.length == 1 and cache.length and self._can_decode_step:
            self._decode_step = self._decode_step or DecodeStep(self._model)
            return self._decode_step(window[:, -1], cache)
        return self._model(window[:, cache.length :], cache=cache)[:, -1]


def check_same_vocabulary(model: Transformer, tokenizer: Tokenizer) -> None:
    """Refuse a tokenizer of another vocabulary size than the model's.

    Raises:
        UsageError: the sizes differ; names both.
    """
    if model.vocab_size != tokenizer.vocab_size:
        raise UsageError(
            "the model has {model} tokens and the tokenizer {tokenizer}: they do not come from the same run",
            model=model.vocab_size,
            tokenizer=tokenizer.vocab_size,
        )


def prompt_ids(tokenizer: Tokenizer, prompt: str, context_length: int, *, crop: bool = False) -> list[int]:
    """The token ids of a prompt, or the tokenizer's start token for an empty prompt.

    Args:
        tokenizer: the model's tokenizer.
        prompt: any text, possibly empty.
        context_length: the model's context length.
        crop: whether to use the last context_length tokens of a longer prompt instead of refusing it.

    Raises:
        UsageError: a character is unknown to the tokenizer, or the prompt is longer than the context.
    """
    if not isinstance(prompt, str):
        raise UsageError("prompt: expected a text, not {prompt!r}", prompt=prompt)
    ids = [int(token) for token in tokenizer.encode(prompt)] or [tokenizer.start]
    if len(ids) > context_length and not crop:
        raise UsageError(
            "prompt: {tokens} tokens, but the context length is {context_length}; shorten it, or use "
            "only its last {context_length} tokens: --crop, or crop=True in Python",
            tokens=len(ids),
            context_length=context_length,
        )
    return ids[-context_length:]


def rows_of(model: Transformer, rows: Sequence[Sequence[int]]) -> Int[Tensor, "batch time"]:
    """Rows of ids as a tensor on the model's device."""
    return torch.tensor([list(row) for row in rows], dtype=torch.int64, device=model.token_embedding.weight.device)

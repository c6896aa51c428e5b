"""The reader: gives a model growing rows of tokens and hands back the logits of what comes next.

It alone knows when a cache can be used and what happens past the context length, so that sampling and beam search
share both, and the text is the same with the cache and without it.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from vitral.core.errors import UsageError
from vitral.data.tokenizers import Tokenizer
from vitral.model.decode_step import DecodeStep, can_decode_step
from vitral.model.transformer import Transformer


class Reader:
    """Rows of equal length, read together.

    The model sees a window: the last tokens of each row, at most context_length of them. A token added to a full
    window restarts it: it then holds the last context_length // 2 tokens (at least one), the new one included, and
    grows again from there. Under a prefix mask a window shorter than the prefix is read anew at every step.
    """

    def __init__(self, model: Transformer, tokens: Int[Tensor, "batch time"], *, use_cache: bool = True) -> None:
        """Begin with these rows, 1 to context_length tokens each."""
        self._tokens, self._length = tokens, tokens.shape[1]
        self._model, self._cache, self._begin = model, None, 0
        together = 0 if model.mask is None else model.mask.settled()
        self._cacheable_from = together if use_cache else None
        self._narrow: DecodeStep | None = None
        self._can_narrow = can_decode_step(model, len(tokens))

    @property
    def history(self) -> Int[Tensor, "batch time"]:
        """All tokens read and added so far."""
        return self._tokens[:, : self._length]

    def logits(self) -> Float[Tensor, "batch vocab"]:
        """The logits of each row's next token; call once before each `append`."""
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
        with torch.inference_mode():  # whatever mode the caller is in when
            if self._length == self._tokens.shape[1]:  # room grows by doubling, so that adding stays cheap
                self._tokens = torch.cat([self._tokens, torch.zeros_like(self._tokens)], dim=1)
            self._tokens[:, self._length] = tokens
        self._length += 1
        context_length = self._model.config.context_length
        if self._length - self._begin > context_length:
            self._begin = self._length - max(1, context_length // 2)
            if self._cache is not None:
                self._cache.clear()

    def select(self, rows: Int[Tensor, " rows"]) -> None:
        """Go on with these rows: reordered, repeated, or fewer."""
        rows = rows.to(self._tokens.device)
        self._tokens = self._tokens[rows]
        self._can_narrow = can_decode_step(self._model, len(rows))
        if self._cache is not None:
            with torch.inference_mode():
                self._cache.select(rows)

    def _read(self, window: Int[Tensor, "batch time"]) -> Float[Tensor, "batch vocab"]:
        if self._cacheable_from is None or window.shape[1] < self._cacheable_from:
            return self._model(window)[:, -1]
        cache = self._cache = self._cache or self._model.new_cache(len(window))
        if window.shape[1] - cache.length == 1 and cache.length and self._can_narrow:
            self._narrow = self._narrow or DecodeStep(self._model)
            return self._narrow(window[:, -1], cache)
        return self._model(window[:, cache.length :], cache=cache)[:, -1]


def check_same_vocabulary(model: Transformer, tokenizer: Tokenizer) -> None:
    """Refuse a tokenizer that is not the model's.

    Raises:
        UsageError: naming both sizes.
    """
    if model.vocab_size != tokenizer.vocab_size:
        raise UsageError(
            f"the model has {model.vocab_size} tokens and the tokenizer {tokenizer.vocab_size}: "
            "they do not come from the same run"
        )


def prompt_ids(tokenizer: Tokenizer, prompt: str, context_length: int, *, crop: bool = False) -> list[int]:
    """The ids a prompt begins with: its own, or the tokenizer's start where it is empty.

    Args:
        tokenizer: the model's.
        prompt: any text, empty too.
        context_length: how many tokens the model sees at once.
        crop: whether the last context_length tokens of a longer prompt are used, rather than refusing it.

    Raises:
        UsageError: a character the tokenizer does not know, or more tokens than the model sees at once.
    """
    if not isinstance(prompt, str):
        raise UsageError(f"prompt: expected a text, not {prompt!r}")
    ids = [int(token) for token in tokenizer.encode(prompt)] or [tokenizer.start]
    if len(ids) > context_length and not crop:
        raise UsageError(
            f"prompt: {len(ids)} tokens, but the model sees {context_length} at once; "
            f"shorten it, or crop it to its last {context_length} (crop)"
        )
    return ids[-context_length:]


def rows_of(model: Transformer, rows: Sequence[Sequence[int]]) -> Int[Tensor, "batch time"]:
    """Rows of ids as a tensor where the model is."""
    return torch.tensor([list(row) for row in rows], dtype=torch.int64, device=model.token_embedding.weight.device)


def check_max_tokens(max_tokens: int) -> None:
    """Refuse a number of tokens that is not a count.

    Raises:
        UsageError: naming what was given.
    """
    if isinstance(max_tokens, bool) or not isinstance(max_tokens, int) or max_tokens < 0:
        raise UsageError(f"max_tokens: expected a whole number of at least 0, not {max_tokens!r}")

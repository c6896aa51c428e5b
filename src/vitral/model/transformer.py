"""The language model: token and position embeddings, blocks around a residual stream, a head over the vocabulary."""

from collections.abc import Sequence
from functools import partial
from typing import Any, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from vitral.attention.masks import Mask
from vitral.core.allocation import keep_freed_memory
from vitral.core.dropout import Dropout
from vitral.core.errors import UsageError
from vitral.core.names import BLOCK_STEPS, activation_names, require_known
from vitral.core.parts import own_parts
from vitral.core.streams import key
from vitral.core.taps import SILENT, InTurn, Recorder, Tap
from vitral.model.block import Block, has_taps
from vitral.model.cache import KVCache
from vitral.model.config import ModelConfig
from vitral.model.initialisation import DRAWS, EMBEDDING_STD, calm_tied_head, initialise
from vitral.model.norms import norm_of
from vitral.model.own_parts import try_own_parts
from vitral.model.parametrisation import parametrise
from vitral.model.positions import Positions, build_positions

ADD_NOTHING = ("rotary", "alibi", "relative", "none")
"""Positions that add nothing to the token embeddings; the sum of a sine's and a cosine's squares is one."""


class Transformer(nn.Module):
    """A decoder-only Transformer: maps tokens to the logits of the next token at every position.

    Attributes:
        config: its configuration.
        vocab_size: number of tokens in the vocabulary.
    """

    def __init__(self, config: ModelConfig, vocab_size: int, *, seed: int = 0) -> None:
        """Build the model with the initial parameters of `seed` (see `vitral.model.initialisation`)."""
        super().__init__()
        self.config, self.vocab_size = config, vocab_size
        has_own_parts = any(own_parts(config))
        # The layers' constructors draw from the global generator: restore its state afterwards.
        with torch.random.fork_rng(devices=[]):
            if has_own_parts:  # what is drawn there stays, unless its name tells `initialise` to draw it again
                torch.default_generator.manual_seed(key(seed, "own parts"))
            self.token_embedding = nn.Embedding(vocab_size, config.d_model)
            self.positions = build_positions(config)
            self.dropout = Dropout(config.dropout.embedding)
            self.blocks = nn.ModuleList(Block(config, layer) for layer in range(config.num_layers))
            self.final_norm = norm_of(config) if config.has_final_norm else nn.Identity()
            self.head = None if config.tie_head else nn.Linear(config.d_model, vocab_size, bias=config.biases.head)
        initialise(self, DRAWS[config.initialisation], num_layers=config.num_layers, seed=seed)
        if self.head is None:
            std = EMBEDDING_STD[config.initialisation]
            kind = "rotary" if config.rotary is not None else str(config.positions)
            added = {"learned": std**2, **dict.fromkeys(ADD_NOTHING, 0.0)}.get(kind, 0.5)
            calm_tied_head(self.token_embedding.weight, std, self._last_norm, added)
        parametrise(self, config)
        if has_own_parts:
            try_own_parts(self.config, self, self.positions, self.blocks, self.final_norm)

    @property
    def mask(self) -> Mask | None:
        """The attention mask; None without attention, when a position sees only itself and an LSTM's past.

        Where the blocks have masks of their own, it allows what any of them allows; `mask.of(layer)` is one of them.
        """
        return None if self.config.attention == "none" else self.config.attention.mask

    def forward(
        self, tokens: Int[Tensor, "batch time"], *, cache: KVCache | None = None, tap: Tap = SILENT
    ) -> Float[Tensor, "batch time vocab"]:
        """Logits of the next token at every position.

        Args:
            tokens: ids, 0 … vocab_size - 1.
            cache: holds what came before `tokens`, and after the call holds them too.
            tap: receives every named activation, and may replace it.

        Raises:
            UsageError: a token outside the vocabulary, a position beyond the learned ones, a full cache, or a tap for
                an activation that the model does not have.
        """
        if tap is not SILENT:
            require_known(sorted(tap.asked), self.config.num_layers, self._absent_steps())
        time = tokens.shape[1]
        start = 0 if cache is None else cache.length
        if cache is not None:
            self._check_cache(cache, *tokens.shape)
        x = self._embedded(tokens)
        placed = self.positions.embed(start, time)
        x = self.dropout(tap("embed", x if placed is None else x + placed.to(x.dtype)))
        rotate = partial(self.positions.rotate, start=start) if self._rotates else None
        bias = self.positions.bias(time, start + time)
        for layer, block in enumerate(self.blocks):
            past, carry = (None, None) if cache is None else (partial(cache.extend, layer), partial(cache.carry, layer))
            x = block(x, rotate=rotate, bias=bias, past=past, carry=carry, tap=tap.within(f"blocks.{layer}"))
        if cache is not None:
            cache.advance(time)
        x = tap("final_norm", self.final_norm(x))
        return tap("logits", self._logits(x))

    def _embedded(self, tokens: Tensor) -> Tensor:
        if torch.compiler.is_compiling():
            return self.token_embedding(tokens)
        try:
            return self.token_embedding(tokens)
        except IndexError:
            outside = tokens[(tokens < 0) | (tokens >= self.vocab_size)]
            raise UsageError(
                "token id {token} is not in the vocabulary of {vocab_size} tokens",
                token=str(outside[0].item()),
                vocab_size=self.vocab_size,
            ) from None

    def require_vocabulary(self, size: int) -> None:
        """Refuse a tokenizer with another number of tokens.

        Raises:
            UsageError: it is not the model's.
        """
        if size != self.vocab_size:
            raise UsageError(
                "the model has {model} tokens and the tokenizer {tokenizer}: they do not come from the same run",
                model=self.vocab_size,
                tokenizer=size,
            )

    def unembed(self, x: Float[Tensor, "*any d_model"]) -> Float[Tensor, "*any vocab"]:
        """The logits of normalised vectors of the stream: the head."""
        return self._logits(x)

    def _logits(self, x: Tensor) -> Tensor:
        """`unembed` without its check, which the compiler cannot trace."""
        return functional.linear(x, self.head_weight, self.head_bias)

    @property
    def head_bias(self) -> Float[Tensor, " vocab"] | None:
        """The head's bias, if it has one."""
        return None if self.head is None else cast("Tensor | None", self.head.bias)

    @property
    def head_weight(self) -> Float[Tensor, "vocab d_model"]:
        """The head's matrix: its own, or the token embedding's when tied."""
        return self.token_embedding.weight if self.head is None else self.head.weight

    def new_cache(self, batch: int, length: int | None = None) -> KVCache:
        """An empty cache for `batch` sequences of up to `length` tokens (the context length if None).

        Raises:
            UsageError: under the model's mask the past depends on the future, so no cache is possible.
        """
        if self.mask is not None and self.mask.joint_prefix() is None:
            raise UsageError(
                "cache: under a bidirectional mask every new token changes the past; run the model without a cache"
            )
        weight = self.token_embedding.weight
        return KVCache(
            self.config, batch, length or self.config.context_length, dtype=weight.dtype, device=weight.device
        )

    def trace(
        self, tokens: Int[Tensor, "batch time"], names: Sequence[str] | None = None, *, tap: Tap | None = None
    ) -> dict[str, Tensor]:
        """The activations of one forward pass by name (`vitral.core.names`), all or only `names`.

        Args:
            tokens: ids, 0 … vocab_size - 1.
            names: of the activations; all if None.
            tap: receives each activation first, and may replace it.

        Raises:
            UsageError: a name that is not an activation of this model (see `activation_names`).
        """
        keep_freed_memory()
        recorder = Recorder(names)
        with torch.inference_mode():
            self(tokens, tap=recorder if tap is None else InTurn(tap, recorder))
        return recorder.kept

    @property
    def activation_names(self) -> list[str]:
        """The names of this model's activations, in the order in which they are computed."""
        return activation_names(self.config.num_layers, self._absent_steps())

    @property
    def _last_norm(self) -> nn.Module | None:
        """The norm before the head; None if there is none."""
        if self.config.has_final_norm:
            return self.final_norm
        if self.config.norm != "post" or not self.blocks:
            return None
        last: Any = self.blocks[-1]
        norms = (last.mlp_norm, last.recurrence_norm, last.attn_norm)
        return next((norm for norm in norms if norm is not None), None)

    @property
    def _rotates(self) -> bool:
        return type(self.positions).rotate is not Positions.rotate

    def _absent_steps(self) -> set[str]:
        config = self.config
        present = {
            "attn_norm": config.norm == "pre",
            "mlp_norm": config.norm == "pre",
            "attn_sum": config.norm == "post",
            "recurrence_norm": config.norm == "pre",
            "recurrence_sum": config.norm == "post",
            "mlp_sum": config.norm == "post",
            "attn.q_pre": self._rotates,
            "attn.k_pre": self._rotates,
            "mlp.gate": config.activation is not None and config.activation.gated,
            **dict.fromkeys(("mlp.pre", "mlp.hidden"), all(has_taps(block.mlp) for block in self.blocks)),
        }
        absent = {step for step, there in present.items() if not there}
        parts = (("attn", config.attention), ("recurrence", config.recurrence), ("mlp", config.feed_forward))
        left_out = tuple(part for part, kind in parts if kind is None or kind == "none")
        return absent | {step for step in BLOCK_STEPS if step.startswith(left_out)}

    def _check_cache(self, cache: KVCache, batch: int, time: int) -> None:
        cache.reserve(batch, time)
        together = 0 if self.mask is None else self.mask.joint_prefix() or 0
        if together and cache.length == 0 and time < together:
            raise UsageError(
                "cache: the first {together} tokens (the prefix) must be given at once, not {time}",
                together=together,
                time=time,
            )


def first_target(mask: Mask | None) -> int:
    """First position of a window whose target counts in a next-token loss.

    The first that the mask has not shown to its position; 0 without attention, or where the mask shows every target.
    """
    return (0 if mask is None else mask.first_target()) or 0


def next_token_loss(
    logits: Float[Tensor, "batch time vocab"], targets: Int[Tensor, "batch time"], mask: Mask | None
) -> Float[Tensor, ""]:
    """Mean cross-entropy of the next tokens, in nats per token (Radford et al. 2019, eq. 1).

    Targets already visible to their position (inside a prefix) do not count, unless the mask shows all targets.
    """
    return mean_cross_entropy(logits, targets, first_target(mask))


def mean_cross_entropy(
    logits: Float[Tensor, "batch time vocab"], targets: Int[Tensor, "batch time"], first: int
) -> Float[Tensor, ""]:
    """`next_token_loss` of the targets from position `first` on, without a check, so that a compiler reads no more."""
    scored = logits[:, first:].to(torch.promote_types(logits.dtype, torch.float32))
    return functional.cross_entropy(scored.flatten(0, 1), targets[:, first:].flatten())

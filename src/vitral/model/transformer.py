"""The model: token and position embeddings, blocks around a residual stream, a head over the vocabulary or labels."""

import copy
from collections.abc import Sequence
from typing import Any, cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional

from vitral.attention.masks import Mask
from vitral.core.errors import UsageError
from vitral.core.machine import keep_freed_memory
from vitral.core.names import BLOCK_STEPS, CROSS, activation_names, names_of, require_known
from vitral.core.parts import own_parts
from vitral.core.streams import key, torch_stream
from vitral.core.taps import SILENT, InTurn, Recorder, Tap
from vitral.model.block import has_taps
from vitral.model.cache import KVCache, Source
from vitral.model.config import ModelConfig
from vitral.model.feedforward import HeadTransform
from vitral.model.initialisation import DRAWS, EMBEDDING_STD, calm_tied_head, initialise
from vitral.model.own_parts import try_own_parts
from vitral.model.parametrisation import parametrise
from vitral.model.stack import PADDING, Stack

ADD_NOTHING = ("rotary", "alibi", "relative", "none")
"""Positions that add nothing to the token embeddings; the sum of a sine's and a cosine's squares is one."""


class Transformer(Stack):
    """A decoder, an encoder or both: maps tokens to the logits of a token at every position, or of a label.

    Attributes:
        config: its configuration.
        vocab_size: number of tokens in the vocabulary.
        encoder: of an encoder-decoder, with positions, blocks and a final norm of its own; else None.
        is_hooked: whether functions replace activations in every forward pass (`vitral.model.hooked`).
    """

    is_hooked = False

    def __init__(self, config: ModelConfig, vocab_size: int, *, seed: int = 0) -> None:
        """Build the model with the initial parameters of `seed` (see `vitral.model.initialisation`)."""
        has_own_parts = any(own_parts(config))
        # The layers' constructors draw from the global generator: restore its state afterwards.
        with torch.random.fork_rng(devices=[]):
            if has_own_parts:  # what is drawn there stays, unless its name tells `initialise` to draw it again
                torch.default_generator.manual_seed(key(seed, "own parts"))
            super().__init__(config, nn.Embedding(vocab_size, config.d_model))
            self.head_transform = HeadTransform(config) if config.head_transform else None
            has_head, outputs = config.biases.head or not config.tie_head, config.num_labels or vocab_size
            self.head: Any = nn.Linear(config.d_model, outputs, bias=config.biases.head) if has_head else None
            if has_head and config.tie_head:
                self.head.weight = None
            self.encoder = None if config.encoder is None else Stack(config.encoder)
        self.vocab_size = vocab_size
        initialise(self, DRAWS[config.initialisation], num_layers=config.num_layers, seed=seed)
        if config.tie_head:
            std = EMBEDDING_STD[config.initialisation]
            kind = "rotary" if config.rotary is not None else str(config.positions)
            added = {"learned": std**2, **dict.fromkeys(ADD_NOTHING, 0.0)}.get(kind, 0.5)
            added = None if config.embedding_norm else added
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
        self,
        tokens: Int[Tensor, "batch time"],
        *,
        source: Int[Tensor, "batch source"] | None = None,
        bidirectional: bool = False,
        cache: KVCache | None = None,
        tap: Tap = SILENT,
    ) -> Float[Tensor, "batch *time outputs"]:
        """Logits of the next token at every position; of the labels of each row where the model has labels.

        Args:
            tokens: ids, 0 … vocab_size - 1; at the end of an encoder's row -1 is padding.
            source: encoder-decoder only: what the encoder reads, as the tokens of an encoder. A cache has it already.
            bidirectional: whether every position sees every other for this pass, whatever the mask.
            cache: holds what came before `tokens`, and after the call holds them too.
            tap: receives every named activation, and may replace it.

        Raises:
            UsageError: a token outside the vocabulary, a position beyond the learned ones, a full cache, a source that
                is missing or that nothing reads, or a tap for an activation that the model does not have.
        """
        if tap is not SILENT:
            require_known(sorted(tap.asked), self.activation_names)
        if cache is not None:
            self._check_cache(cache, *tokens.shape, bidirectional=bidirectional)
        read = self._source(source, cache, tap)
        real = tokens != PADDING if self.config.shape == "encoder" and cache is None else None
        embedded = self._embedded(tokens, real)
        x = self.read(embedded, real=real, bidirectional=bidirectional, source=read, cache=cache, tap=tap)
        if self.config.num_labels and real is not None:
            counted = real[:, :, None].to(x.dtype)
            x = tap("pooled", (x * counted).sum(dim=1) / counted.sum(dim=1).clamp(min=1))
        return tap("logits", self._logits(x, tap))

    def encode(self, source: Int[Tensor, "batch source"], *, tap: Tap = SILENT) -> Source:
        """What the decoder's blocks read of a source: keys and values of the encoder's states.

        Args:
            source: ids; at the end of a row -1 is padding.
            tap: receives every named activation of the encoder, and may replace it.

        Raises:
            UsageError: the model has no encoder, a token is outside the vocabulary, or a position beyond the learned
                ones.
        """
        if self.encoder is None:
            raise UsageError("source: only an encoder-decoder reads one, and this model is none")
        real = source != PADDING
        states = self.encoder.read(self._embedded(source, real), real=real, tap=tap.within("encoder"))
        return tuple(cast(Any, block).cross.given(states, real) for block in self.blocks)

    def _source(self, source: Tensor | None, cache: KVCache | None, tap: Tap) -> Source | None:
        """What the blocks read of the source of this pass."""
        if source is not None and cache is None:
            return self.encode(source, tap=tap)
        kept = None if cache is None else cache.source
        if source is not None or (self.encoder is not None and kept is None):
            raise UsageError(
                "source: an encoder-decoder reads a source beside its tokens; give one: --source TEXT of a command, "
                "source=… in Python (to the cache if there is one)"
            )
        return kept

    def _embedded(self, tokens: Tensor, real: Bool[Tensor, "batch time"] | None) -> Tensor:
        """The token embeddings; padding is embedded as token 0."""
        if real is not None:
            tokens = tokens.masked_fill(~real, 0)
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
        """The logits of normalised vectors of the stream: the head, with its transform."""
        return self._logits(x)

    def _logits(self, x: Tensor, tap: Tap = SILENT) -> Tensor:
        """`unembed` without its check, which the compiler cannot trace."""
        if self.head_transform is not None:
            x = tap("head_transform", self.head_transform(x))
        return functional.linear(x, self.head_weight, self.head_bias)

    @property
    def head_bias(self) -> Float[Tensor, " vocab"] | None:
        """The head's bias, if it has one."""
        return None if self.head is None else self.head.bias

    @property
    def head_weight(self) -> Float[Tensor, "vocab d_model"]:
        """The head's matrix: its own, or the token embedding's when tied."""
        return self.token_embedding.weight if self.config.tie_head else self.head.weight

    def new_cache(
        self, batch: int, length: int | None = None, *, source: Int[Tensor, "batch source"] | None = None
    ) -> KVCache:
        """An empty cache for `batch` sequences of up to `length` tokens (the context length if None).

        An encoder-decoder reads its source here, once.

        Raises:
            UsageError: under the model's mask the past depends on the future, so no cache is possible; or as `encode`.
        """
        self._require_past(self.mask is None or self.mask.joint_prefix() is not None)
        weight = self.token_embedding.weight
        cache = KVCache(
            self.config, batch, length or self.config.context_length, dtype=weight.dtype, device=weight.device
        )
        cache.source = None if source is None else self.encode(source)
        return cache

    def _require_past(self, is_fixed: bool) -> None:
        if not is_fixed:
            raise UsageError(
                "cache: under a bidirectional mask every new token changes the past; run the model without a cache"
            )

    def trace(
        self,
        tokens: Int[Tensor, "batch time"],
        names: str | Sequence[str] | None = None,
        *,
        source: Int[Tensor, "batch source"] | None = None,
        bidirectional: bool = False,
        tap: Tap | None = None,
    ) -> dict[str, Tensor]:
        """The activations of one forward pass by name (`vitral.core.names`), all or only `names`.

        Args:
            tokens: ids, 0 … vocab_size - 1.
            names: of the activations, as `vitral.core.names.names_of` understands them; all if None.
            source: as `forward`.
            bidirectional: as `forward`.
            tap: receives each activation first, and may replace it.

        Raises:
            UsageError: a name that is not an activation of this model (see `activation_names`).
        """
        keep_freed_memory()
        recorder = Recorder(None if names is None else names_of(names, self.activation_names))
        with torch.inference_mode():
            both = recorder if tap is None else InTurn(tap, recorder)
            self(tokens, source=source, bidirectional=bidirectional, tap=both)
        return recorder.kept

    @property
    def activation_names(self) -> list[str]:
        """The names of this model's activations, in the order in which they are computed."""
        config = self.config
        return activation_names(config.num_layers, self._absent_steps(), config.encoder_layers)

    @property
    def _last_norm(self) -> nn.Module | None:
        """The last norm before the head; None if there is none."""
        if self.head_transform is not None:
            return self.head_transform.norm
        if self.config.has_final_norm:
            return self.final_norm
        if self.config.norm != "post" or not self.blocks:
            return None
        last: Any = self.blocks[-1]
        norms = (last.mlp_norm, last.cross_norm, last.recurrence_norm, last.attn_norm)
        return next((norm for norm in norms if norm is not None), None)

    def _absent_steps(self) -> set[str]:
        config = self.config
        present = {
            "embed_norm": config.embedding_norm,
            "pooled": config.num_labels,
            "head_transform": config.head_transform,
            "attn_norm": config.norm == "pre",
            "mlp_norm": config.norm == "pre",
            "attn_sum": config.norm == "post",
            "recurrence_norm": config.norm == "pre",
            "recurrence_sum": config.norm == "post",
            "mlp_sum": config.norm == "post",
            "attn.q_pre": self.rotates,
            "attn.k_pre": self.rotates,
            "cross_norm": config.norm == "pre",
            "cross_sum": config.norm == "post",
            "mlp.gate": config.activation is not None and config.activation.gated,
            **dict.fromkeys(("mlp.pre", "mlp.hidden"), all(has_taps(block.mlp) for block in self.blocks)),
        }
        absent = {step for step, there in present.items() if not there}
        parts = (("attn", config.attention), ("recurrence", config.recurrence), ("mlp", config.feed_forward))
        left_out = tuple(part for part, kind in parts if kind is None or kind == "none")
        left_out += CROSS if self.encoder is None else ()
        return absent | {step for step in BLOCK_STEPS if step.startswith(left_out)}

    def _check_cache(self, cache: KVCache, batch: int, time: int, *, bidirectional: bool) -> None:
        self._require_past(not bidirectional)
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


TOLERANCE = 1e-2
"""Largest difference of logits attributed to rounding; a faulty device differs by orders of magnitude more."""


def check_device(model: Transformer, device: torch.device) -> float:
    """Run one small batch on the CPU and on `device`; return the largest difference of the logits.

    Raises:
        UsageError: the difference exceeds `TOLERANCE` times the size of the logits, or is NaN.
    """
    time = min(model.config.context_length, 16)
    tokens = torch.randint(model.vocab_size, (2, time), generator=torch_stream(0, "self-check"))
    source = None if model.encoder is None else tokens[:, : model.config.source_length]
    reference = copy.deepcopy(model).eval().cpu()
    with torch.inference_mode():
        expected = reference(tokens, source=source)
        # The position tables are float64, which some devices lack.
        there = reference.to(device=device, dtype=expected.dtype)
        logits = there(tokens.to(device), source=None if source is None else source.to(device)).cpu()
    difference = float((expected - logits).abs().max())
    if not difference <= TOLERANCE * max(1.0, float(expected.abs().max())):
        raise UsageError(
            "device {device}: logits differ from the CPU's by {difference:.3g}; use --device cpu",
            device=device,
            difference=difference,
        )
    return difference

"""The model in C: reads tokens and writes new ones, for any number of rows, on the cache of `Transformer.forward`.

What it computes equals `Transformer.forward` with the same cache, and `distribution` and `choose` of
`vitral.decoding.sampling`, up to rounding. It reads the weights where they are, so what changes them changes it.
"""

import ctypes
import operator
import threading
import time
from collections.abc import Sequence
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from vitral.core.language import N_
from vitral.model.cache import KVCache
from vitral.model.native.described import described, why_not
from vitral.model.native.library import native
from vitral.model.transformer import Transformer

SHARED_FROM = 2**24
"""Multiplications of a call from which it is shared among threads; for fewer, starting threads takes longer."""

LARGE = 2**19
"""Weights from which several threads read those of a row; fewer lie in the caches of one core."""

BUSY, TIMES = 1.0, 10
"""For so many seconds, or so many times as long as the call took, a row is read by one thread after another program had
the core of one of its threads."""


class Choice(NamedTuple):
    """How tokens are chosen: the numbers of `vitral.decoding.Sampling`, those that are off as 0, 1, 0 and 1."""

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0


class Refused(ValueError):
    """The C code made no choice, of logits or settings that `distribution` refuses with a sentence.

    Attributes:
        made: tokens of each row that were chosen before.
    """

    def __init__(self, what: str, made: int = 0) -> None:
        """Say what was refused."""
        super().__init__(what)
        self.made = made


def native_step(model: Transformer) -> "NativeStep | str":
    """The model in C; or why it cannot run there here and now, in a line of English."""
    opened = native()
    if opened.library is None:
        return opened.detail
    if torch.is_autocast_enabled("cpu"):
        return N_("another precision than float32 is asked for")
    known = _known(model, opened.library)
    return known.complaint or NativeStep(model, opened.library, known)


class _Known(NamedTuple):
    """What is known of a model, and a witness of the state it was in."""

    witness: list[object]
    numbers_seen: list[int]
    complaint: str | None
    numbers: Any = None
    pointers: Any = None
    tensors: Sequence[Tensor | None] = ()
    weights: int = 0


_KNOWN: WeakKeyDictionary[Transformer, _Known] = WeakKeyDictionary()


def _known(model: Transformer, library: ctypes.CDLL) -> _Known:
    """The model as `step.c` takes it, made anew where a module, a parameter or an attribute is another one."""
    witness, numbers_seen = _witness(model)
    known = _KNOWN.get(model)
    if known is not None and numbers_seen == known.numbers_seen and all(map(operator.is_, witness, known.witness)):
        return known
    complaint = why_not(model)
    if complaint is not None:
        known = _Known(witness, numbers_seen, complaint)
    else:
        numbers, tensors = described(model)
        array = (ctypes.c_int64 * len(numbers))(*numbers)
        weights = sum(0 if tensor is None else tensor.numel() for tensor in tensors)
        known = _Known(witness, numbers_seen, None, array, _pointers(tensors), tensors, weights)
    _KNOWN[model] = known
    return known


def _witness(model: Transformer) -> tuple[list[object], list[int]]:
    """Everything that the description of a model depends on: objects to be the same, and numbers to be equal."""
    objects: list[object] = []
    numbers: list[int] = []
    modules: list[nn.Module] = [model]
    for module in modules:  # which grows
        own = vars(module)
        children = [child for child in own["_modules"].values() if child is not None]
        parameters = [tensor for tensor in own["_parameters"].values() if tensor is not None]
        buffers = [tensor for tensor in own["_buffers"].values() if tensor is not None]
        objects += own.values()
        objects += children + parameters + buffers
        objects += [tensor.dtype for tensor in parameters]
        numbers += [tensor.data_ptr() for tensor in parameters + buffers]
        numbers += (len(own), len(own["_forward_hooks"]), len(own["_forward_pre_hooks"]))
        modules += children
    return objects, [len(objects), *numbers]


class NativeStep:
    """A model for a batch of rows; a few small tensors are copied, the weights are not.

    Attributes:
        weights: numbers of its tensors.
    """

    def __init__(self, model: Transformer, library: ctypes.CDLL, known: _Known) -> None:
        """Use `native_step`."""
        self._library, self._vocab, self._known = library, model.vocab_size, known
        self._context, self._busy_until = model.config.context_length, 0.0
        self._memory: list[Tensor] = []
        self.weights = known.weights
        self._has_states = model.config.recurrence is not None
        self._states: list[tuple[Tensor, Tensor]] = []

    def __call__(self, tokens: Int[Tensor, "batch time"], cache: KVCache) -> Float[Tensor, "batch vocab"]:
        """The logits after the last of these tokens, which are added to the cache.

        Args:
            tokens: ids of the vocabulary; under a prefix, all of its tokens at once.
            cache: a cache of this model with the earlier tokens and room for these.

        Raises:
            Refused: an id is not one of the vocabulary.
        """
        given = tokens.contiguous()
        logits, _made = self._run(given, cache, -cache.length, given.shape[1], Choice(), np.empty((len(given), 0)), ())
        cache.advance(given.shape[1])
        return logits

    def write(
        self,
        tokens: Int[Tensor, "batch room"],
        cache: KVCache,
        *,
        begin: int,
        length: int,
        choice: Choice,
        chances: np.ndarray,
        forbidden: Sequence[int] = (),
    ) -> int:
        """Choose and append tokens to each row, as many as there are numbers; the last one is not read.

        Args:
            tokens: a contiguous tensor of the rows, with room for the new tokens after the first `length`.
            cache: has the tokens from `begin` on, or some of them.
            begin: where the window begins.
            length: tokens so far.
            choice: the sampling settings.
            chances: uniform numbers, [batch, count] in float64.
            forbidden: ids that are not chosen.

        Returns:
            How many each row got.

        Raises:
            Refused: the logits are not finite, or no token can be chosen.
        """
        _logits, made = self._run(tokens, cache, begin, length, choice, np.ascontiguousarray(chances), forbidden)
        if made < chances.shape[1]:
            raise Refused("no token was chosen", made)
        cache.advance(length + made - 1 - begin - cache.length)
        return made

    def _run(
        self,
        tokens: Tensor,
        cache: KVCache,
        begin: int,
        length: int,
        choice: Choice,
        chances: np.ndarray,
        forbidden: Sequence[int],
    ) -> tuple[Tensor, int]:
        rows, count = chances.shape
        if length - begin <= cache.length:
            raise ValueError("there is no new token to read")
        cache.reserve(rows, length - begin - cache.length + max(0, count - 1))
        logits = torch.empty(rows, self._vocab)
        kept = _pointers(self._kept(cache))
        settings = (ctypes.c_double * 5)(*choice)
        ids = (ctypes.c_int64 * len(forbidden))(*forbidden)
        made: dict[int, int] = {}

        def run(memory: Tensor, first: int, last: int) -> None:
            ahead = (begin, cache.length, length, count, len(ids), each)
            shape = (ctypes.c_int64 * 10)(cache.capacity, tokens.shape[1], first, last - first, *ahead)
            where = [tokens.data_ptr(), settings, ids, chances.ctypes.data, logits.data_ptr(), memory.data_ptr()]
            pointers = [ctypes.c_void_p(pointer) if isinstance(pointer, int) else pointer for pointer in where]
            made[first] = int(
                self._library.vitral_step_write(self._known.numbers, self._known.pointers, kept, shape, *pointers)
            )
            if shape[9] < each:
                now = time.monotonic()
                self._busy_until = now + max(BUSY, TIMES * (now - began))

        began = time.monotonic()
        work = rows * self.weights * max(count, length - begin - cache.length)
        threads = 1 if work < SHARED_FROM else torch.get_num_threads()
        parts = min(rows, threads)
        is_helped = self.weights >= LARGE and began >= self._busy_until
        each = threads // parts if is_helped else 1
        size = int(self._library.vitral_step_memory(self._known.numbers, self._context, each))
        self._memory = [one if one.numel() >= size else torch.empty(size) for one in self._memory]
        self._memory += [torch.empty(size) for _ in range(parts - len(self._memory))]
        borders = [rows * part // parts for part in range(parts + 1)]
        helpers = [
            threading.Thread(target=run, args=(self._memory[part], borders[part], borders[part + 1]))
            for part in range(1, parts)
        ]
        for helper in helpers:
            helper.start()
        run(self._memory[0], 0, borders[1])
        for helper in helpers:
            helper.join()
        if min(made.values()) < 0:
            raise Refused("a token is not in the vocabulary")
        return logits, min(made.values())

    def _kept(self, cache: KVCache) -> list[Tensor]:
        """The tensors of a cache, layer by layer; those of an LSTM are made our own before they are changed."""
        if not self._has_states:
            return [tensor for layer in zip(cache.keys, cache.values, strict=True) for tensor in layer]
        if cache.states is not self._states:
            self._states = cache.states = [(hidden.clone(), cell.clone()) for hidden, cell in cache.states]
        return [tensor for state in self._states for tensor in state]


def _pointers(tensors: Sequence[Tensor | None]) -> ctypes.Array[ctypes.c_void_p]:
    return (ctypes.c_void_p * len(tensors))(*(None if tensor is None else tensor.data_ptr() for tensor in tensors))

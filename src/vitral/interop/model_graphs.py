"""A cache as flat tensors, in and out: what a graph of one more token takes of the earlier ones, and gives back."""

import copy
from collections.abc import Sequence
from importlib import metadata
from typing import Any

import torch
from torch import Tensor

from vitral.core.errors import UsageError
from vitral.core.graphs import NotInGraphs, Plain, any_length, graph_with_weights
from vitral.core.taps import Tap
from vitral.interop.graph_reader import TOKENS, VERSION
from vitral.model import Transformer
from vitral.model.cache import KVCache
from vitral.model.positions import Learned, Positions, Sinusoidal

UNTIL_NOW = "past_length"
"""The input with the number of earlier tokens, where no other input tells it."""


class FlatCache(KVCache):
    """A cache that is given and returned as flat tensors; it makes new tensors and writes into none."""

    def __init__(self, model: Transformer, past: Sequence[Tensor], length: Any) -> None:
        """Take the tensors in the order of `cache_names`; `length` is used if they do not tell it."""
        recurrent = model.config.recurrence is not None
        first, second = list(past[0::2]), list(past[1::2])
        self.keys, self.values = ([], []) if recurrent else (first, second)
        self.states = list(zip(first, second, strict=True)) if recurrent else []
        self._new_states = {}
        self.length = self.keys[0].shape[2] if self.keys else 0 if length is None else length
        self.capacity = model.config.context_length

    def extend(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Append one layer's new keys and values; return all of them."""
        self.keys[layer] = torch.cat((self.keys[layer], k), dim=2)
        self.values[layer] = torch.cat((self.values[layer], v), dim=2)
        return self.keys[layer], self.values[layer]

    def reserve(self, batch: int, time: int) -> None:
        """There is always room."""

    def flat(self) -> list[Tensor]:
        """The tensors in the order of `cache_names`."""
        pairs = self.states or zip(self.keys, self.values, strict=True)
        return [tensor for pair in pairs for tensor in pair]


class Placing(Positions):
    """Positions from a table by index, so that no step decides anything by a length."""

    def __init__(self, table: Tensor) -> None:
        """Take the table, [positions, d_model]."""
        super().__init__()
        self.table = table

    def embed(self, start: Any, time: int) -> Tensor:
        """Rows of the table."""
        return self.table.index_select(0, start + torch.arange(time))


def has_cache(model: Transformer) -> bool:
    """Whether later tokens need something of earlier ones that can be kept."""
    mixes = model.config.attention != "none" or model.config.recurrence is not None
    mixes = mixes and min(model.config.num_layers, model.config.context_length - 1) > 0
    return mixes and (model.mask is None or model.mask.joint_prefix() is not None)


def joint_prefix(model: Transformer) -> int:
    """How many first tokens a model has to be given at once, since they see each other."""
    return 0 if model.mask is None else model.mask.joint_prefix() or 0


def needs_length(model: Transformer) -> bool:
    """Whether the cache of a model does not tell how many tokens it has."""
    return model.config.recurrence is not None and isinstance(model.positions, Learned | Sinusoidal)


def cache_names(model: Transformer, before: bool) -> list[str]:
    """The names of the cache's tensors, as optimum has them: before the new tokens, or with them.

    The keys and values of each block; or the hidden state and the cell of its LSTM.
    """
    pair = ("hidden", "cell") if model.config.recurrence is not None else ("key", "value")
    scope = "past_key_values" if before else "present"
    if model.config.recurrence is not None:
        scope = "past_state" if before else "present_state"
    return [f"{scope}.{layer}.{each}" for layer in range(model.config.num_layers) for each in pair]


NAME = "graph"
SOURCE = "source"
"""The input with what an encoder reads, [1, source]."""
LENS = "x"
"""The input of the lens: vectors of the stream, [1, time, d_model]."""
AXES = {TOKENS: "time", LENS: "time", SOURCE: "source"}
"""What the length of an input is called."""
PAST = "past"
"""The name of the length of a cache of keys and values."""
Graph = tuple[Plain, dict[str, Tensor]]
"""A graph, and its constants by name."""


def graph_of_model(model: Transformer, *, bidirectional: bool = False) -> Graph:
    """The graph of a model with its named activations, and its constants by name: float32, int32 or truth values.

    Args:
        model: the model.
        bidirectional: whether every position sees every other, whatever the mask.

    Raises:
        UsageError: an own part of the model does something that no graph can express.
    """
    lengths = {TOKENS: model.config.context_length}
    if model.config.source_length is not None:
        lengths[SOURCE] = model.config.source_length

    def read(inputs: Any, tap: Tap) -> Tensor:
        return model(inputs[TOKENS], source=inputs.get(SOURCE), bidirectional=bidirectional, tap=tap)

    wholes = {name: torch.zeros(1, length, dtype=torch.int64) for name, length in lengths.items()}
    try:
        graph, constants = _of_sentences(model, read, wholes)
    except NotInGraphs as error:
        raise UsageError("--to {name}: {reason}", name=NAME, reason=error) from None
    head: Plain = {
        "version": VERSION,
        "vitral": metadata.version("vitral"),
        "vocab_size": model.vocab_size,
        "most": {AXES[name]: length for name, length in lengths.items()},
    }
    return head | {"model": model.config.plain()} | graph, {name: _stored(one) for name, one in constants.items()}


def _stored(value: Tensor) -> Tensor:
    """As the file has it; whole numbers are places, which 32 bits hold."""
    if value.dtype == torch.bool:
        return value.contiguous()
    return value.to(torch.float32 if value.is_floating_point() else torch.int32).contiguous()


def lens_graph(model: Transformer) -> Graph:
    """The graph that reads vectors of the stream, `x`, as `logits`, with the final `norm` if there is one.

    Returns:
        The graph, and its constants by name: the model's, and numbers that the function holds itself as `lens.NAME`.
    """

    def read(inputs: Any, tap: Tap) -> Tensor:
        vectors = model.final_norm(inputs[LENS])
        return tap("logits", model.unembed(tap("norm", vectors) if model.config.has_final_norm else vectors))

    example = torch.zeros(1, model.config.context_length, model.config.d_model)
    graph = _of_sentences(model, read, {LENS: example})
    # A number that the function holds itself may have the same name in the model's graph.
    return _renamed(graph, {name: f"lens.{name}" for name in graph[1] if name.startswith("constants.")})


def _of_sentences(model: Transformer, function: Any, wholes: dict[str, Tensor]) -> Graph:
    """The graph of a function of inputs, whose axes of positions have any lengths up to those of `wholes`."""
    model.eval()
    most = {name: whole.shape[1] for name, whole in wholes.items()}
    # An example is like no other axis of one position, nor like the whole context.
    examples = {name: whole[:, : max(min(2, most[name]), most[name] - 1)] for name, whole in wholes.items()}
    lengths = {name: {1: any_length(AXES[name], each)} for name, each in most.items() if each > 1}
    return graph_with_weights(function, examples, model, lengths)


def step_graph(model: Transformer) -> Graph | None:
    """The graph of one more token, and its constants by name; None of a model that reads a source or keeps nothing.

    Inputs are `tokens` [1, 1] and the cache before it. Of each block it has `past_key_values.0.key` and `.value`
    [1, kv_heads, past, d_head]: `blocks.0.attn.k` and `blocks.0.attn.v` of the graph of whole sentences. Of an LSTM it
    has `past_state.0.hidden` and `.cell` [1, 1, d_model], zeros at the beginning, and where positions are added
    `past_length` [1]. Outputs are the model's named activations at the new position, and the cache with it:
    `present.0.key` … or `present_state.0.hidden` ….

    The graph's `least` and `most` say how many tokens the cache may have. A cache of keys and values has at least one,
    under a prefix mask the whole prefix.

    Raises:
        NotInGraphs: an own part of the model does something that no graph can express.
    """
    config, recurrent = model.config, model.config.recurrence is not None
    least, most = 0 if recurrent else max(1, joint_prefix(model)), config.context_length - 1
    # PyTorch takes a length that has only one value, 0 or 1 for a constant.
    if not has_cache(model) or model.encoder is not None or (not recurrent and most < max(least, 2)):
        return None
    before, after = cache_names(model, before=True), cache_names(model, before=False)
    traced = _by_index(model) if needs_length(model) else model

    def read(given: Any, tap: Tap) -> None:
        cache = FlatCache(traced, [given[name] for name in before], given.get(UNTIL_NOW))
        traced(given[TOKENS], cache=cache, tap=tap)
        for name, tensor in zip(after, cache.flat(), strict=True):
            tap(name, tensor)

    model.eval()
    shape = (1, 1, config.d_model) if recurrent else (1, config.kv_heads, max(2, most - 1, least), config.d_head)
    inputs = {TOKENS: torch.zeros(1, 1, dtype=torch.int64), **{name: torch.zeros(shape) for name in before}}
    if needs_length(model):
        inputs[UNTIL_NOW] = torch.ones(1, dtype=torch.int64)
    lengths = {} if recurrent else {name: {2: any_length(PAST, most, least)} for name in before}
    graph, constants = graph_with_weights(read, inputs, traced, lengths)
    held = {tensor.data_ptr(): name for name, tensor in (*model.named_buffers(), *model.named_parameters())}
    names = {name: held.get(tensor.data_ptr(), f"step.{name}") for name, tensor in constants.items()}
    return _renamed(({"least": least, "most": most} | graph, constants), names)


def _by_index(model: Transformer) -> Transformer:
    """The same model, whose positions may begin at a number that is not known."""
    positions: Any = model.positions
    made = copy.copy(model)
    table = positions.weight if isinstance(positions, Learned) else positions.table
    made._modules = {**model._modules, "positions": Placing(table)}
    return made


def _renamed(found: Graph, names: dict[str, str]) -> Graph:
    """With other names of constants."""
    graph, constants = found
    listed = [{**each, "name": names.get(each["name"], each["name"])} for each in graph["constants"]]
    return {**graph, "constants": listed}, {names.get(name, name): value for name, value in constants.items()}

"""One more token of a model as our own graph: a token and a cache in, its named activations and the cache out.

The graph has the weights of the graph of whole sentences (`vitral.interop.targets.graph`) under the same names, so what
holds both keeps each weight once.
"""

import copy
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from vitral.core.graphs import Length, Plain, graph_with_weights
from vitral.core.taps import Tap
from vitral.interop.flat_cache import UNTIL_NOW, FlatCache, Placing, cache_names, has_cache, needs_length
from vitral.interop.graphs import TOKENS
from vitral.model import Transformer
from vitral.model.positions import Learned

PAST = "past"
"""The name of the length of a cache of keys and values."""


def step_graph(model: Transformer) -> tuple[Plain, dict[str, Tensor]] | None:
    """The graph of one more token, and its constants by name; None if the model keeps nothing of earlier tokens.

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
    recurrent, most = model.config.recurrence is not None, model.config.context_length - 1
    least = 0 if recurrent else max(1, 0 if model.mask is None else model.mask.joint_prefix() or 0)
    # PyTorch takes a length that has only one value, 0 or 1 for a constant.
    if not has_cache(model) or (not recurrent and most - max(least, 2) < 0):
        return None
    before, after = cache_names(model, before=True), cache_names(model, before=False)
    traced = _by_index(model) if needs_length(model) else model

    def function(given: Any, tap: Tap) -> None:
        cache = FlatCache(traced, [given[name] for name in before], given.get(UNTIL_NOW))
        traced(given[TOKENS], cache=cache, tap=tap)
        for name, tensor in zip(after, cache.flat(), strict=True):
            tap(name, tensor)

    model.eval()
    inputs, lengths = _examples(model, before, least, most)
    graph, constants = graph_with_weights(function, inputs, traced, lengths)
    names = _names(model, constants)
    graph["constants"] = [{**each, "name": names[each["name"]]} for each in graph["constants"]]
    return {"least": least, "most": most} | graph, {names[name]: tensor for name, tensor in constants.items()}


def _by_index(model: Transformer) -> Transformer:
    """The same model, whose positions may begin at a number that is not known."""
    positions: Any = model.positions
    made = copy.copy(model)
    table = positions.weight if isinstance(positions, Learned) else positions.table
    made._modules = {**model._modules, "positions": Placing(table)}
    return made


def _examples(
    model: Transformer, names: list[str], least: int, most: int
) -> tuple[dict[str, Tensor], dict[str, dict[int, Length]]]:
    """The inputs, and which of their axes have any length."""
    config = model.config
    inputs = {TOKENS: torch.zeros(1, 1, dtype=torch.int64)}
    if config.recurrence is not None:
        inputs |= {name: torch.zeros(1, 1, config.d_model) for name in names}
        return inputs | ({UNTIL_NOW: torch.ones(1, dtype=torch.int64)} if needs_length(model) else {}), {}
    shape = (1, config.kv_heads, max(least, 2, most - 1), config.d_head)
    return inputs | {name: torch.zeros(shape) for name in names}, {
        name: {2: Length(PAST, most, least)} for name in names
    }


def _names(model: Transformer, constants: Mapping[str, Tensor]) -> dict[str, str]:
    """Names for the constants of a graph by theirs in it: the model's, and for its own some that no other graph has."""
    held = {tensor.data_ptr(): name for name, tensor in (*model.named_buffers(), *model.named_parameters())}
    return {name: held.get(tensor.data_ptr(), f"step.{name}") for name, tensor in constants.items()}

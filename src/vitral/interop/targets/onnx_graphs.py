"""A model of which PyTorch makes ONNX graphs for lengths that are not known: no step decides anything by a length."""

import copy
import hashlib
import importlib
import logging
import re
import warnings
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, cast

import jaxtyping
import torch
from torch import Tensor, nn
from torch.export import Dim

from vitral.core.errors import UsageError, VitralError
from vitral.core.taps import SILENT, Recorder, Tap
from vitral.interop.model_graphs import UNTIL_NOW, FlatCache, Placing, cache_names, has_cache, needs_length
from vitral.model import Transformer
from vitral.model.positions import ALiBi, Learned, Positions, Relative, Rotary, Sinusoidal
from vitral.model.recurrence import Carry, Recurrence

ONNX_GATES = (0, 3, 1, 2)
"""The gates in the order of ONNX: input, output, forget, candidate. PyTorch's are input, forget, candidate, output."""
PACKAGES = ("onnx", "onnxscript", "onnxruntime")
"""PyTorch writes graphs with the first two; the third runs them."""


def onnx_model(model: Transformer) -> Transformer:
    """The same model with parts that can be traced; it shares the parameters.

    Positions come from tables by index, so that one beyond the context length is an error; the LSTM is one operation.
    """
    made = _with(model, positions=_positions(model))
    if model.config.recurrence is None:
        return made
    blocks = [_with(block, recurrence=_Lstm(cast("Any", block).recurrence)) for block in model.blocks]
    return _with(made, blocks=nn.ModuleList(blocks))


def _with(module: Any, **parts: nn.Module) -> Any:
    """A copy with other parts; everything else is shared."""
    made = copy.copy(module)
    made._modules = {**module._modules, **parts}
    return made


def _positions(model: Transformer) -> Positions:
    kept = model.positions
    if isinstance(kept, Learned):
        return Placing(kept.weight)
    if isinstance(kept, Sinusoidal):
        return Placing(kept.table)
    if model.config.attention == "none" and isinstance(kept, Rotary | ALiBi | Relative):
        return Positions()  # nothing to rotate, no scores
    return _Rotating(kept) if isinstance(kept, Rotary) else kept


class _Rotating(Positions):
    def __init__(self, rotary: Rotary) -> None:
        super().__init__()
        self.rotary = rotary

    def rotate(self, x: Tensor, start: int) -> Tensor:
        cos, sin = self.rotary.turns.index_select(1, torch.arange(start, start + x.shape[-2])).to(x.dtype)
        return torch.addcmul(x * cos, self.rotary.swapped(x), sin)


class _Lstm(nn.Module):
    """The recurrent layer as the LSTM of ONNX; PyTorch would write one position after another."""

    def __init__(self, recurrence: Recurrence) -> None:
        super().__init__()
        self.width = recurrence.lstm.hidden_size
        kept = dict(recurrence.lstm.named_parameters())
        self.of_input, self.of_state = (_by_onnx(kept[name])[None] for name in ("weight_ih_l0", "weight_hh_l0"))
        biases = [_by_onnx(kept[name]) for name in ("bias_ih_l0", "bias_hh_l0") if name in kept]
        self.bias = torch.cat(biases)[None] if biases else None

    def forward(self, x: Tensor, *, carry: Carry | None = None, tap: Tap = SILENT) -> Tensor:
        batch, time, width = x.shape
        hidden, cell = (None, None) if carry is None else carry(None)
        y, hidden, cell = torch.onnx.ops.symbolic_multi_out(
            "LSTM",
            (x.transpose(0, 1), self.of_input, self.of_state, self.bias, None, hidden, cell),
            {"hidden_size": self.width},
            dtypes=(x.dtype,) * 3,
            shapes=((time, 1, batch, width), (1, batch, width), (1, batch, width)),
        )
        if carry is not None:
            carry((hidden, cell))
        return tap("out", y.squeeze(1).transpose(0, 1))


def _by_onnx(stacked: Tensor) -> Tensor:
    pieces = stacked.detach().chunk(len(ONNX_GATES))
    return torch.cat([pieces[gate] for gate in ONNX_GATES])


class _OfModel(nn.Module):
    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self.model = model


class Logits(_OfModel):
    """tokens → logits."""

    def forward(self, tokens: Tensor) -> tuple[Tensor, ...]:
        """The logits."""
        return (self.model(tokens),)


class Activations(_OfModel):
    """tokens → every named activation."""

    def forward(self, tokens: Tensor) -> tuple[Tensor, ...]:
        """The activations in the order of `model.activation_names`."""
        recorder = Recorder()
        self.model(tokens, tap=recorder)
        return tuple(recorder.kept[name] for name in self.model.activation_names)


class WithPast(_OfModel):
    """tokens, cache → logits, cache."""

    def forward(self, tokens: Tensor, past: tuple[Tensor, ...], length: Tensor | None = None) -> tuple[Tensor, ...]:
        """The logits of the new tokens, and the cache with them."""
        cache = FlatCache(self.model, past, length)
        return self.model(tokens, cache=cache), *cache.flat()


LOGITS, PAST, ACTIVATIONS, DATA = "model.onnx", "model_with_past.onnx", "model_activations.onnx", "model.onnx.data"
TOKENS = "input_ids"
LEAST_BYTES = 256
"""Tensors below this size stay in the graph."""
ALIGNED = 64
"""Bytes; where a tensor begins in the file of weights is a multiple."""
# A length of 0 or 1 would be taken for a constant, and two equal ones for the same.
_ROWS, _TIME, _BEFORE = 2, 3, 5
_NUMBERED = re.compile(r"\bs\d+\b")


@dataclass(frozen=True)
class _Graph:
    """A function of the model with the names of its inputs and outputs."""

    module: nn.Module
    given: tuple[Any, ...]
    lengths: tuple[Any, ...]
    inputs: Sequence[str]
    outputs: Sequence[str]


def graph_files(model: Transformer, told: Mapping[str, str]) -> dict[str, bytes]:
    """The graphs and their weights, by name of the file.

    Args:
        model: the model.
        told: notes that every graph carries.

    Raises:
        UsageError: a package is missing, or PyTorch cannot write the model as a graph.
    """
    for package in PACKAGES[:2]:
        if find_spec(package) is None:
            raise UsageError("onnx: {package} is not installed: pip install 'vitral[interop]'", package=package)
    weights = _Weights()
    files: dict[str, bytes] = {}
    with _quietly():
        for name, graph in _graphs(model).items():
            files[name] = _written(_exported(graph), weights, told)
    return {**files, DATA: weights.joined()}


def _graphs(model: Transformer) -> dict[str, _Graph]:
    config, traced = model.config, onnx_model(model)
    rows = Dim("batch", min=1)
    tokens = torch.zeros(_ROWS, min(_TIME, config.context_length), dtype=torch.long)
    # A dimension of one position cannot be of another length.
    time = Dim("time", min=1, max=config.context_length) if config.context_length > 1 else Dim.STATIC
    lengths = {0: rows, 1: time}
    graphs = {
        LOGITS: _Graph(Logits(traced), (tokens,), (lengths,), [TOKENS], ["logits"]),
        ACTIVATIONS: _Graph(Activations(traced), (tokens,), (lengths,), [TOKENS], model.activation_names),
    }
    if not has_cache(model):
        return graphs
    names = cache_names(model, before=True)
    if config.recurrence is not None:
        past, each = torch.zeros(1, _ROWS, config.d_model), {1: rows}
    else:
        past = torch.zeros(_ROWS, config.kv_heads, _BEFORE, config.d_head)
        each = {0: rows, 2: Dim("past", min=0, max=config.context_length)}
    given: list[Any] = [tokens, tuple(past.clone() for _name in names)]  # one tensor would be one input
    lengths_of: list[Any] = [lengths, (each,) * len(names)]
    inputs = [TOKENS, *names]
    if needs_length(model):
        given, lengths_of, inputs = [*given, torch.ones(1, dtype=torch.long)], [*lengths_of, {}], [*inputs, UNTIL_NOW]
    outputs = ["logits", *cache_names(model, before=False)]
    graphs[PAST] = _Graph(WithPast(traced), tuple(given), tuple(lengths_of), inputs, outputs)
    return graphs


def _exported(graph: _Graph) -> Any:
    """The graph in onnx_ir's classes."""
    try:
        program = torch.export.export(graph.module.eval(), graph.given, dynamic_shapes=graph.lengths, strict=False)
        made: Any = torch.onnx.export(
            program,
            dynamo=True,
            input_names=list(graph.inputs),
            output_names=list(graph.outputs),
            external_data=False,
            verbose=False,
        )
    except Exception as error:  # whatever PyTorch and a part of the user's raise
        raise _untraceable(error) from None
    _name_lengths(made.model, graph.lengths)
    return made.model


def _name_lengths(made: Any, lengths: tuple[Any, ...]) -> None:
    """Call the lengths by our names, also in sums of them; PyTorch's are numbered."""
    ir: Any = importlib.import_module("onnx_ir")
    flat = [each for one in lengths for each in (one if isinstance(one, tuple) else (one,))]
    names = {
        value.shape[axis].value: dimension.__name__
        for value, axes in zip(made.graph.inputs, flat, strict=True)
        for axis, dimension in axes.items()
        if not isinstance(value.shape[axis], int)
    }
    for value in [*made.graph.inputs, *(out for node in made.graph for out in node.outputs)]:
        if value.shape is not None:
            value.shape = ir.Shape(
                axis
                if isinstance(axis, int)
                else _NUMBERED.sub(lambda found: names[found[0]], axis.value or "") or None
                for axis in value.shape
            )


def _untraceable(error: BaseException) -> UsageError:
    cause: BaseException | None = error
    while cause is not None and cause.__cause__ is not None and not isinstance(cause, VitralError):
        cause = cause.__cause__
    lines = [line for line in str(cause).splitlines() if line.strip()] or [type(cause).__name__]
    return UsageError("onnx: PyTorch cannot write this model as a graph ({reason})", reason=lines[0].strip()[:300])


@contextmanager
def _quietly() -> Generator[None]:
    """Without the exporter's warnings and log, and without gradients.

    Lengths are symbols while a graph is made, so the shapes in annotations are not compared, if anyone asked for it.
    """
    disabled, checks = logging.root.manager.disable, jaxtyping.config.jaxtyping_disable
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        logging.disable(logging.CRITICAL)
        jaxtyping.config.update("jaxtyping_disable", True)
        try:
            yield
        finally:
            jaxtyping.config.update("jaxtyping_disable", checks)
            logging.disable(disabled)


class _Weights:
    """The tensors of several graphs one after another; equal ones are kept once."""

    def __init__(self) -> None:
        self.places: dict[bytes, tuple[int, int]] = {}
        self.pieces: list[bytes] = []
        self.length = 0

    def place(self, content: bytes) -> tuple[int, int]:
        """Where a tensor begins, and its length."""
        digest = hashlib.sha256(content).digest()
        if digest not in self.places:
            gap = -self.length % ALIGNED
            self.pieces += [bytes(gap), content]
            self.places[digest] = self.length + gap, len(content)
            self.length += gap + len(content)
        return self.places[digest]

    def joined(self) -> bytes:
        return b"".join(self.pieces)


def _written(made: Any, weights: _Weights, told: Mapping[str, str]) -> bytes:
    """The file of a graph, without what the exporter noted of this machine."""
    ir: Any = importlib.import_module("onnx_ir")
    for value in made.graph.initializers.values():
        tensor = value.const_value
        if tensor.nbytes >= LEAST_BYTES:
            begin, length = weights.place(tensor.tobytes())
            value.const_value = ir.ExternalTensor(
                DATA, begin, length, tensor.dtype, shape=tensor.shape, name=tensor.name or value.name
            )
    noted = [made.graph, *made.functions.values()]
    noted += [node for graph in noted for node in graph]
    for each in noted:
        each.metadata_props.clear()
        each.doc_string = None
        for value in (*each.inputs, *each.outputs, *getattr(each, "initializers", {}).values()):
            if value is not None:
                value.metadata_props.clear()
    made.metadata_props.clear()
    made.metadata_props.update(told)
    return ir.to_proto(made).SerializeToString(deterministic=True)

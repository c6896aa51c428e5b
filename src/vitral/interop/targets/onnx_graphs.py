"""The ONNX graphs of a model, whose weights are together in one file."""

import hashlib
import importlib
import logging
import re
import warnings
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import jaxtyping
import torch
from torch import nn
from torch.export import Dim

from vitral.core.errors import UsageError, VitralError
from vitral.interop.flat_cache import UNTIL_NOW, cache_names, has_cache, needs_length
from vitral.interop.targets.onnx_model import (
    PACKAGES,
    Activations,
    Logits,
    WithPast,
    onnx_model,
)
from vitral.model import Transformer

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

"""ONNX: graphs for onnxruntime and every other runtime that reads them, with a tokenizer.

PyTorch makes them for lengths that are not known, so no step of the traced model decides anything by a length.
"""

import copy
import hashlib
import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.export import Dim

from vitral.core.errors import UsageError, VitralError
from vitral.core.graphs import quietly
from vitral.core.taps import Recorder
from vitral.data.answers import ANSWER, END
from vitral.interop.foreign import WITHOUT_PROOF, needed
from vitral.interop.model_graphs import FlatCache, Placing, cache_names, has_cache, joint_prefix
from vitral.interop.proof import Draft, Opened, cannot_open, source_of
from vitral.interop.targets.transformers import text_files
from vitral.interop.tokenizer_json import DOCUMENT, ids_by
from vitral.model import Transformer
from vitral.model.positions import ALiBi, Learned, Positions, Relative, Rotary, Sinusoidal
from vitral.model.stack import PADDING, Stack
from vitral.runs import LoadedRun

PACKAGES = ("onnx", "onnxscript", "onnxruntime")
"""PyTorch writes graphs with the first two; the third runs them."""


def onnx_model(model: Stack) -> Any:
    """The same model with positions that can be traced, which come from tables by index; it shares the parameters.

    One beyond the context length is an error.
    """
    made = copy.copy(model)
    parts = {name: onnx_model(part) if isinstance(part, Stack) else part for name, part in model._modules.items()}
    made._modules = {**parts, "positions": _positions(model)}
    return made


def _positions(model: Stack) -> Positions:
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


class _OfModel(nn.Module):
    def __init__(self, model: Transformer, names: Sequence[str] = ()) -> None:
        super().__init__()
        self.model, self.names = model, names


class Activations(_OfModel):
    """tokens, source of an encoder-decoder → named activations, such as the logits."""

    def forward(self, tokens: Tensor, source: Tensor | None = None) -> tuple[Tensor, ...]:
        """The activations in the order of `names`."""
        recorder = Recorder(self.names)
        self.model(tokens, source=source, tap=recorder)
        return tuple(recorder.kept[name] for name in self.names)


class WithPast(_OfModel):
    """tokens, cache, of an encoder-decoder also the source and its encoder's states → logits, cache."""

    def forward(
        self, tokens: Tensor, past: tuple[Tensor, ...], source: Tensor | None = None, states: Tensor | None = None
    ) -> tuple[Tensor, ...]:
        """The logits of the new tokens, and the cache with them."""
        cache, blocks = FlatCache(self.model, past, None), [*cast(Any, self.model.blocks)]
        if source is not None:
            cache.source = tuple(block.cross.given(states, source != PADDING) for block in blocks)
        return self.model(tokens, cache=cache), *cache.flat()


class States(_OfModel):
    """source → the encoder's states."""

    def forward(self, source: Tensor) -> Tensor:
        """The states, [batch, source, d_model]."""
        recorder = Recorder([STATES])
        self.model.encode(source, tap=recorder)
        return recorder.kept[STATES]


LOGITS, PAST, ACTIVATIONS, DATA = "model.onnx", "model_with_past.onnx", "model_activations.onnx", "model.onnx.data"
ENCODER = "encoder.onnx"
TOKENS, SOURCE, STATES = "input_ids", "source", "encoder.final_norm"
LEAST_BYTES = 256
"""Tensors below this size stay in the graph."""
ALIGNED = 64
"""Bytes; where a tensor begins in the file of weights is a multiple."""
# A length of 0 or 1 would be taken for a constant, and two equal ones for the same.
_ROWS, _TIME, _BEFORE, _READ = 2, 3, 5, 7


@dataclass(frozen=True)
class _Graph:
    """A function of the model with the names of its inputs and outputs."""

    module: nn.Module
    given: tuple[Any, ...]
    lengths: tuple[Any, ...]
    inputs: Sequence[str]
    outputs: Sequence[str]


def graph_files(model: Transformer, metadata: Mapping[str, str]) -> dict[str, bytes]:
    """The graphs and their weights, by name of the file.

    Args:
        model: the model.
        metadata: notes that every graph carries.

    Raises:
        UsageError: a package is missing, or PyTorch cannot write the model as a graph.
    """
    for package in PACKAGES[:2]:
        needed(package)
    weights = _Weights()
    files: dict[str, bytes] = {}
    with quietly():
        for name, graph in _graphs(model).items():
            files[name] = _written(_exported(graph), weights, metadata)
    return {**files, DATA: bytes(weights.content)}


def _graphs(model: Transformer) -> dict[str, _Graph]:
    config, traced = model.config, onnx_model(model)
    rows = Dim("batch", min=1)
    tokens = torch.zeros(_ROWS, min(_TIME, config.context_length), dtype=torch.long)
    # A dimension of one position cannot be of another length.
    time = Dim("time", min=1, max=config.context_length) if config.context_length > 1 else Dim.STATIC
    lengths = {0: rows, 1: time}
    given: tuple[Any, ...] = (tokens,)
    axes: tuple[Any, ...] = (lengths,)
    inputs = [TOKENS]
    if config.source_length is not None:
        given += (torch.zeros(_ROWS, min(_READ, config.source_length), dtype=torch.long),)
        axes += ({0: rows, 1: Dim(SOURCE, min=1, max=config.source_length)},)
        inputs.append(SOURCE)
    graphs = {
        file: _Graph(Activations(traced, names), given, axes, inputs, names)
        for file, names in ((LOGITS, ["logits"]), (ACTIVATIONS, model.activation_names))
    }
    if not has_cache(model):
        return graphs
    names = cache_names(model, before=True)
    past = torch.zeros(_ROWS, config.kv_heads, _BEFORE, config.d_head)
    each = {0: rows, 2: Dim("past", min=0, max=config.context_length)}
    read, inputs = given[1:], [TOKENS, *names, *inputs[1:]]
    if read:
        graphs[ENCODER] = _Graph(States(traced), read, axes[1:], [SOURCE], [STATES])
        read, axes, inputs = (*read, torch.zeros(*read[0].shape, config.d_model)), (*axes, axes[1]), [*inputs, STATES]
    given = (tokens, tuple(past.clone() for _name in names), *read)  # one tensor would be one input
    outputs = ["logits", *cache_names(model, before=False)]
    graphs[PAST] = _Graph(WithPast(traced), given, (lengths, (each,) * len(names), *axes[1:]), inputs, outputs)
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
            dynamic_shapes=_named(graph.lengths),
            external_data=False,
            verbose=False,
        )
    except Exception as error:  # whatever PyTorch and a part of the user's raise
        raise _untraceable(error) from None
    return made.model


def _named(lengths: Any) -> Any:
    """The lengths as the exporter calls them: by our names; its own are numbered."""
    if isinstance(lengths, tuple):
        return tuple(map(_named, lengths))
    return {axis: getattr(length, "__name__", None) for axis, length in lengths.items()}


def _untraceable(error: BaseException) -> UsageError:
    cause: BaseException | None = error
    while cause is not None and cause.__cause__ is not None and not isinstance(cause, VitralError):
        cause = cause.__cause__
    lines = [line for line in str(cause).splitlines() if line.strip()] or [type(cause).__name__]
    return UsageError("onnx: PyTorch cannot write this model as a graph ({reason})", reason=lines[0].strip()[:300])


class _Weights:
    """The tensors of several graphs one after another; equal ones are kept once."""

    def __init__(self) -> None:
        self.content, self.spans = bytearray(), dict[bytes, tuple[int, int]]()

    def span(self, tensor: bytes) -> tuple[int, int]:
        """Where a tensor begins, and its length."""
        digest = hashlib.sha256(tensor).digest()
        if digest not in self.spans:
            self.content += bytes(-len(self.content) % ALIGNED)
            self.spans[digest] = len(self.content), len(tensor)
            self.content += tensor
        return self.spans[digest]


def _written(made: Any, weights: _Weights, metadata: Mapping[str, str]) -> bytes:
    """The file of a graph, without what the exporter noted of this machine."""
    ir: Any = importlib.import_module("onnx_ir")
    for value in made.graph.initializers.values():
        tensor = value.const_value
        if tensor.nbytes >= LEAST_BYTES:
            begin, length = weights.span(tensor.tobytes())
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
    made.metadata_props.update(metadata)
    return ir.to_proto(made).SerializeToString(deterministic=True)


FORM = "onnx"
_FRONT = ("library_name: onnxruntime", "pipeline_tag: text-generation")
_USE = """```python
import numpy, onnxruntime, tokenizers

session, tokenizer = onnxruntime.InferenceSession("{file}"), tokenizers.Tokenizer.from_file("{tokenizer}")
{begin}
while len(ids) < {length}{ends}:
    ids.append(int(session.run(["logits"], {{{given}}})[0][0, -1].argmax()))
print(tokenizer.decode(ids, skip_special_tokens=False))
```

`{file}`: {inputs} gives `logits`, `[batch, time, vocab]`.
`{activations}` gives {count} named activations, `logits` the last.
{cached}
All graphs read their weights from `{data}`."""
_OF_TOKENS = {
    "begin": 'ids = tokenizer.encode("A prompt", add_special_tokens=False).ids',
    "given": f'"{TOKENS}": numpy.array([ids])',
    "inputs": f"`{TOKENS}`, int64 `[batch, time]`,",
}
_OF_SOURCE = {
    "begin": 'source = tokenizer.encode("A prompt", add_special_tokens=False).ids\n'
    f'ids = [tokenizer.token_to_id("{ANSWER}")]',
    "given": f'"{TOKENS}": numpy.array([ids]), "{SOURCE}": numpy.array([source])',
    "inputs": f"`{TOKENS}`, int64 `[batch, time]`, with `{SOURCE}`, int64 `[batch, source]`, in which -1 is padding,",
}
_WITHOUT_CACHE = "There is no graph with a cache."


def draft(run: LoadedRun) -> Draft:
    """A run as ONNX graphs.

    Raises:
        UsageError: a package is missing, or PyTorch cannot write the model as a graph.
    """
    model = run.model.eval()
    if any(tensor.dtype != torch.float32 for tensor in model.state_dict().values()):
        raise UsageError("onnx: only weights of float32 are written")
    if model.config.recurrence is not None:
        raise UsageError("onnx: a model with a recurrence is not written; --to graph writes it")
    metadata = {
        "run": run.sealed.identity.run,
        "step": str(run.step),
        "context_length": str(model.config.context_length),
    }
    files = {
        **graph_files(model, metadata),
        **text_files(run, model.config.context_length),
    }
    return Draft(
        FORM,
        files,
        "onnxruntime",
        PACKAGES,
        lambda folder: opened(folder, model),
        use(run),
        _FRONT,
    )


def use(run: LoadedRun) -> list[str]:
    """The lines of the model card that show how to use the graphs."""
    model = run.model
    cached = f"`{PAST}` {_of_cache(model)}" if has_cache(model) else _WITHOUT_CACHE
    return _USE.format(
        file=LOGITS,
        tokenizer=DOCUMENT,
        length=min(50, model.config.context_length),
        ends=f' and ids[-1] != tokenizer.token_to_id("{END}")' if run.sealed.config.corpus.records else "",
        **(_OF_TOKENS if model.encoder is None else _OF_SOURCE),
        activations=ACTIVATIONS,
        count=len(model.activation_names),
        cached=cached,
        data=DATA,
    ).split("\n")


def _of_cache(model: Transformer) -> str:
    before, after = cache_names(model, before=True), cache_names(model, before=False)
    shape = f"`[batch, {model.config.kv_heads}, past, {model.config.d_head}]`"
    together = joint_prefix(model)
    prefix = f" The first call has the whole prefix, {together} tokens." if together else ""
    read = (
        "" if model.encoder is None else f" It also takes `{SOURCE}`, and its `{STATES}`, which `{ENCODER}` gives once."
    )
    return (
        f"takes the new tokens and `{before[0]}`, `{before[1]}`, …: the keys and values of earlier tokens, float32 "
        f"{shape}, with past = 0 at the first call. It gives their `logits` and `{after[0]}`, `{after[1]}`, …, which "
        f"the next call takes.{prefix}{read}"
    )


def opened(folder: Path, model: Transformer) -> Opened:
    """An export in onnxruntime."""
    package, read = needed("onnxruntime", WITHOUT_PROOF), source_of(model)
    source = {} if read is None else {SOURCE: read}

    @lru_cache(maxsize=1)  # one graph at a time is in memory
    def session(name: str) -> Any:
        options = package.SessionOptions()
        options.intra_op_num_threads, options.log_severity_level = torch.get_num_threads(), 4
        return package.InferenceSession(folder / name, options)

    def run(name: str, given: Mapping[str, Tensor]) -> dict[str, Tensor]:
        try:
            graph = session(name)
            outputs = graph.run(None, {each: tensor.numpy() for each, tensor in given.items()})
        except Exception as error:  # the package's own classes
            raise cannot_open("onnxruntime", error) from None
        return {one.name: torch.from_numpy(array) for one, array in zip(graph.get_outputs(), outputs, strict=True)}

    return Opened(
        lambda tokens: run(LOGITS, {TOKENS: tokens, **source})["logits"],
        ids_by(folder),
        _cached(run, model, source) if has_cache(model) else None,
        lambda tokens: run(ACTIVATIONS, {TOKENS: tokens, **source}),
    )


def _cached(
    run: Callable[[str, Mapping[str, Tensor]], dict[str, Tensor]], model: Transformer, source: Mapping[str, Tensor]
) -> Callable[[Tensor], Tensor]:
    """Tokens → their logits, computed one after another; a prefix at once, and a source once."""
    before, after = cache_names(model, before=True), cache_names(model, before=False)
    config = model.config
    together = max(1, joint_prefix(model))

    def logits(tokens: Tensor) -> Tensor:
        rows, time = tokens.shape
        empty = torch.zeros(rows, config.kv_heads, 0, config.d_head)
        past, pieces = [empty] * len(before), list[Tensor]()
        read = {**source, **run(ENCODER, source)} if source else {}
        for start, end in zip([0, *range(together, time)], [*range(together, time), time], strict=True):
            given = {TOKENS: tokens[:, start:end], **dict(zip(before, past, strict=True)), **read}
            made = run(PAST, given)
            past = [made[name] for name in after]
            pieces.append(made["logits"])
        return torch.cat(pieces, dim=1)

    return logits

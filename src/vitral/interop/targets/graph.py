"""Our own graph: the computation as JSON, the weights as safetensors, the tokenizer; nothing that can run."""

import json
from importlib import metadata
from pathlib import Path

import safetensors.torch
import torch
from torch import Tensor

from vitral.core.errors import UsageError
from vitral.core.graphs import Length, NotInGraphs, Plain, graph_with_weights
from vitral.interop.foreign import WEIGHTS
from vitral.interop.graphs import GRAPH, TOKENS, VERSION, read_graph
from vitral.interop.proof import Draft, Opened
from vitral.interop.tokenizers import DOCUMENT
from vitral.model import Transformer
from vitral.runs import LoadedRun

NAME = "graph"
_USE = (
    "`graph.json` is the computation as a list of PyTorch's core operations, `model.safetensors` has its constants by",
    "name; docs/interop.md of Vitral describes both. In Python, with the logits and every named activation:",
    "",
    "```python",
    "from vitral.interop import read_graph",
    "",
    'graph = read_graph(".")',
    'found = graph([graph.encode("A prompt")])',
    'print(found["logits"].shape, sorted(found))',
    "```",
)


def draft(run: LoadedRun, to: str) -> Draft:
    """A run as a graph.

    Raises:
        UsageError: an own part of the model does something that no graph can express.
    """
    graph, constants = graph_of_model(run.model)
    files = {
        GRAPH: _lines(graph),
        WEIGHTS: safetensors.torch.save(constants),
        DOCUMENT: run.tokenizer.document.encode("utf-8"),
    }
    return Draft(NAME, files, "torch.ops.aten", ("tokenizers", "safetensors"), lambda: None, opened, _USE)


def graph_of_model(model: Transformer) -> tuple[Plain, dict[str, Tensor]]:
    """The graph of a model with its named activations, and its constants by name: float32, int32 or truth values.

    Raises:
        UsageError: an own part of the model does something that no graph can express.
    """
    model.eval()
    context = model.config.context_length
    # The example is like no other axis of one position, nor like the whole context.
    example = torch.zeros(1, max(min(2, context), context - 1), dtype=torch.int64)
    lengths = {TOKENS: {1: Length("time", context)}} if context > 1 else {}
    try:
        graph, constants = graph_with_weights(
            lambda inputs, tap: model(inputs[TOKENS], tap=tap), {TOKENS: example}, model, lengths
        )
    except NotInGraphs as error:
        raise UsageError("--to {name}: {reason}", name=NAME, reason=error) from None
    head: Plain = {
        "version": VERSION,
        "vitral": metadata.version("vitral"),
        "vocab_size": model.vocab_size,
        "most": {"time": context},
    }
    return head | {"model": model.config.plain()} | graph, {name: _stored(one) for name, one in constants.items()}


def opened(folder: Path) -> Opened:
    """An export, computed by PyTorch's operations one by one."""
    graph = read_graph(folder)
    return Opened(lambda tokens: graph(tokens)["logits"], graph.encode, activations=graph)


def _lines(graph: Plain) -> bytes:
    """JSON with a line for each constant and each node."""
    told: list[str] = []
    for key, value in graph.items():
        if key in ("constants", "nodes"):
            rows = ",\n".join("  " + json.dumps(each, ensure_ascii=False, allow_nan=False) for each in value)
            told.append(f"{json.dumps(key)}: [\n{rows}\n]")
        else:
            told.append(f"{json.dumps(key)}: {json.dumps(value, ensure_ascii=False, allow_nan=False)}")
    return ("{\n" + ",\n".join(told) + "\n}\n").encode("utf-8")


def _stored(value: Tensor) -> Tensor:
    """As the file has it; whole numbers are places, which 32 bits hold."""
    if value.dtype == torch.bool:
        return value.contiguous()
    return value.to(torch.float32 if value.is_floating_point() else torch.int32).contiguous()

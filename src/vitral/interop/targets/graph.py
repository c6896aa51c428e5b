"""Our own graph: the computation as JSON, the weights as safetensors, the tokenizer; nothing that can run."""

import json
from pathlib import Path

import safetensors.torch

from vitral.core.graphs import Plain
from vitral.interop.foreign import WEIGHTS
from vitral.interop.graph_reader import GRAPH, read_graph
from vitral.interop.model_graphs import NAME, graph_of_model
from vitral.interop.proof import Draft, Opened
from vitral.interop.tokenizer_json import DOCUMENT
from vitral.runs import LoadedRun

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
    return Draft(NAME, files, "torch.ops.aten", ("tokenizers", "safetensors"), opened, _USE)


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

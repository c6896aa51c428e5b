"""A run becomes a folder of another library, with a model card and a proof."""

import json
import os
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import safetensors.torch

from vitral.core.config import nearest
from vitral.core.errors import UsageError
from vitral.core.files import as_json, insist, remove_folder, storage, sweep, sync, temporary_name, write_durably
from vitral.core.graphs import Plain
from vitral.interop.card import card
from vitral.interop.foreign import WEIGHTS
from vitral.interop.forms import ANY, all_forms
from vitral.interop.graph_reader import GRAPH, read_graph
from vitral.interop.model_graphs import NAME, graph_of_model
from vitral.interop.proof import Draft, Opened, Proof, prove
from vitral.interop.targets import gguf, onnx, torch_nn, transformers
from vitral.interop.tokenizer_json import DOCUMENT
from vitral.runs import LoadedRun

CARD, PROOF = "README.md", "PROOF.json"
_USE = (
    "`graph.json` is the computation as a list of PyTorch's core operations, `model.safetensors` has its constants by",
    "name; docs/internals/graph.md of Vitral describes both. In Python, with the logits and every named activation:",
    "",
    "```python",
    "from vitral.interop import read_graph",
    "",
    'graph = read_graph(".")',
    'found = graph([graph.encode("A prompt")])',
    'print(found["logits"].shape, sorted(found))',
    "```",
)


def graph_draft(run: LoadedRun) -> Draft:
    """A run as a graph of our own: the computation as JSON, weights, tokenizer; nothing that can run.

    Raises:
        UsageError: an own part of the model does something that no graph can express.
    """
    graph, constants = graph_of_model(run.model)
    files = {
        GRAPH: _lines(graph),
        WEIGHTS: safetensors.torch.save(constants),
        DOCUMENT: run.tokenizer.document.encode("utf-8"),
    }
    return Draft(NAME, files, "torch.ops.aten", ("tokenizers", "safetensors"), _opened, _USE)


def _opened(folder: Path) -> Opened:
    """An export, computed by PyTorch's operations one by one."""
    graph = read_graph(folder)
    return Opened(lambda tokens: graph(tokens)["logits"], graph.encode, activations=graph)


def _lines(graph: Plain) -> bytes:
    """JSON with a line for each constant and each node."""
    dumped, entries = partial(json.dumps, ensure_ascii=False, allow_nan=False), list[str]()
    for key, value in graph.items():
        text = dumped(value)
        if key in ("constants", "nodes"):
            text = "[\n" + ",\n".join(f"  {dumped(each)}" for each in value) + "\n]"
        entries.append(f"{dumped(key)}: {text}")
    return ("{\n" + ",\n".join(entries) + "\n}\n").encode("utf-8")


TARGETS: dict[str, Callable[[LoadedRun], Draft]] = {
    torch_nn.NAME: torch_nn.draft,
    onnx.FORM: onnx.draft,
    "gguf": gguf.draft,
    NAME: graph_draft,
}
"""By what is typed after `--to`; every other name is a form of transformers."""


@dataclass(frozen=True)
class Export:
    """A written export.

    Attributes:
        path: its folder.
        form: the form that expresses the model.
        proof: None if it was left out.
    """

    path: Path
    form: str
    proof: Proof | None


def export_run(run: LoadedRun, out: Path, *, to: str = ANY, proof: bool = True, command: str = "") -> Export:
    """Write a run as a folder that another library opens, and prove it there.

    Args:
        run: the run.
        out: the folder to create.
        to: a form, "hf" for the first of transformers that can express the model, or one of `TARGETS`.
        proof: whether the library opens the export before it gets its name.
        command: the command that makes it again, for the model card.

    Raises:
        UsageError: no form can express the model, `out` exists, or the proof fails; nothing is left behind.
        StorageError: the folder cannot be written.
    """
    if out.exists() or out.is_symlink():
        raise UsageError("{path}: exists already; choose another --out", path=out)
    known = [ANY, *all_forms(), *TARGETS]
    if to not in known:
        raise UsageError("--to {name}: {hint}", name=to, hint=nearest(to, known))
    if run.model.config.num_labels or (run.model.encoder is not None and to != onnx.FORM):
        raise UsageError(
            "--to {name}: an encoder-decoder can be exported to onnx, and a model of labels to nothing", name=to
        )
    drafted = TARGETS[to](run) if to in TARGETS else transformers.draft(run, to)
    beside = out.with_name(temporary_name(out.name))
    with storage(out):
        try:
            out.parent.mkdir(parents=True, exist_ok=True)
            sweep(out.parent, f".{out.name}.")
            beside.mkdir()
            for name, content in drafted.files.items():
                write_durably(beside / name, content)
            made = None
            if proof:
                with closing(drafted.open(beside)) as opened:
                    made = prove(run.model, run.tokenizer, opened, drafted)
                write_durably(beside / PROOF, as_json(made.plain()))
            write_durably(beside / CARD, card(run, drafted, made, command).encode("utf-8"))
            insist(os.rename, beside, out)
            sync(out.parent)
        except BaseException:
            remove_folder(beside)
            raise
    return Export(out, drafted.form, made)

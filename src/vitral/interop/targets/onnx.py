"""ONNX: graphs for onnxruntime and every other runtime that reads them, with a tokenizer."""

from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vitral.core.errors import UsageError
from vitral.core.files import as_json
from vitral.interop.model_graphs import UNTIL_NOW, cache_names, has_cache, joint_prefix, needs_length
from vitral.interop.proof import Draft, Opened, cannot_open, needed
from vitral.interop.targets.onnx_graphs import ACTIVATIONS, DATA, LOGITS, PAST, TOKENS, graph_files
from vitral.interop.targets.transformers import GENERATION, special_ids
from vitral.interop.tokenizer_json import DOCUMENT, ids_by, tokenizer_files
from vitral.model import Transformer
from vitral.runs import LoadedRun

FORM = "onnx"
_FRONT = ("library_name: onnxruntime", "pipeline_tag: text-generation")
_USE = """```python
import numpy, onnxruntime, tokenizers

session, tokenizer = onnxruntime.InferenceSession("{file}"), tokenizers.Tokenizer.from_file("{tokenizer}")
ids = tokenizer.encode("A prompt", add_special_tokens=False).ids
while len(ids) < {length}:
    ids.append(int(session.run(["logits"], {{"{tokens}": numpy.array([ids])}})[0][0, -1].argmax()))
print(tokenizer.decode(ids, skip_special_tokens=False))
```

`{file}`: `{tokens}`, int64 `[batch, time]`, gives `logits`, `[batch, time, vocab]`.
`{activations}` gives {count} named activations, from `embed` to `logits`.
{cached}
All graphs read their weights from `{data}`."""
_WITHOUT_CACHE = "There is no graph with a cache: this model keeps nothing of earlier tokens."


def draft(run: LoadedRun, to: str) -> Draft:
    """A run as ONNX graphs.

    Raises:
        UsageError: a package is missing, or PyTorch cannot write the model as a graph.
    """
    model = run.model.eval()
    if any(tensor.dtype != torch.float32 for tensor in model.state_dict().values()):
        raise UsageError("onnx: only weights of float32 are written")
    told = {"run": run.sealed.identity.run, "step": str(run.step), "context_length": str(model.config.context_length)}
    files = {
        **graph_files(model, told),
        **tokenizer_files(run.tokenizer, model.config.context_length),
        GENERATION: as_json({"max_length": model.config.context_length, **special_ids(run)}),
    }
    packages = ("onnx", "onnxscript", "onnxruntime")
    return Draft(
        FORM,
        files,
        "onnxruntime",
        packages,
        lambda folder: opened(folder, model),
        use(model),
        _FRONT,
    )


def use(model: Transformer) -> list[str]:
    """The lines of the model card that show how to use the graphs."""
    length = model.config.context_length
    cached = f"`{PAST}` {_of_cache(model)}" if has_cache(model) else _WITHOUT_CACHE
    return _USE.format(
        file=LOGITS,
        tokenizer=DOCUMENT,
        length=min(50, length),
        tokens=TOKENS,
        activations=ACTIVATIONS,
        count=len(model.activation_names),
        cached=cached,
        data=DATA,
    ).split("\n")


def _of_cache(model: Transformer) -> str:
    before, after = cache_names(model, before=True), cache_names(model, before=False)
    if model.config.recurrence is not None:
        kept = f"the state of every LSTM, float32 `[1, batch, {model.config.d_model}]`, zeros at the first call"
    else:
        shape = f"`[batch, {model.config.kv_heads}, past, {model.config.d_head}]`"
        kept = f"the keys and values of earlier tokens, float32 {shape}, with past = 0 at the first call"
    told = f" `{UNTIL_NOW}`, int64 `[1]`, is the number of earlier tokens." if needs_length(model) else ""
    together = joint_prefix(model)
    prefix = f" The first call has the whole prefix, {together} tokens." if together else ""
    return (
        f"takes the new tokens and `{before[0]}`, `{before[1]}`, …: {kept}. It gives their `logits` and "
        f"`{after[0]}`, `{after[1]}`, …, which the next call takes.{told}{prefix}"
    )


def opened(folder: Path, model: Transformer) -> Opened:
    """An export in onnxruntime."""
    package = needed("onnxruntime")

    @lru_cache(maxsize=1)  # one graph at a time is in memory
    def session(name: str) -> Any:
        options = package.SessionOptions()
        options.intra_op_num_threads, options.log_severity_level = torch.get_num_threads(), 4
        return package.InferenceSession(folder / name, options)

    def run(name: str, given: Mapping[str, Tensor]) -> dict[str, Tensor]:
        try:
            graph = session(name)
            found = graph.run(None, {each: tensor.numpy() for each, tensor in given.items()})
        except Exception as error:  # the package's own classes
            raise cannot_open("onnxruntime", error) from None
        return {one.name: torch.from_numpy(array) for one, array in zip(graph.get_outputs(), found, strict=True)}

    return Opened(
        lambda tokens: run(LOGITS, {TOKENS: tokens})["logits"],
        ids_by(folder),
        _cached(run, model) if has_cache(model) else None,
        lambda tokens: run(ACTIVATIONS, {TOKENS: tokens}),
    )


Run = Callable[[str, Mapping[str, Tensor]], dict[str, Tensor]]


def _cached(run: Run, model: Transformer) -> Callable[[Tensor], Tensor]:
    """Tokens → their logits, computed one after another; a prefix at once."""
    before, after = cache_names(model, before=True), cache_names(model, before=False)
    config = model.config
    together = max(1, joint_prefix(model))

    def logits(tokens: Tensor) -> Tensor:
        rows, time = tokens.shape
        recurrent = config.recurrence is not None
        empty = torch.zeros((1, rows, config.d_model) if recurrent else (rows, config.kv_heads, 0, config.d_head))
        past, found = [empty] * len(before), list[Tensor]()
        for start, end in zip([0, *range(together, time)], [*range(together, time), time], strict=True):
            given = {TOKENS: tokens[:, start:end], **dict(zip(before, past, strict=True))}
            if needs_length(model):
                given[UNTIL_NOW] = torch.tensor([start])
            made = run(PAST, given)
            past = [made[name] for name in after]
            found.append(made["logits"])
        return torch.cat(found, dim=1)

    return logits

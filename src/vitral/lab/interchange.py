"""Models of other libraries: `import_` and `export`, as the commands `vitral import` and `vitral export`."""

import shlex
from pathlib import Path

from vitral.core.checked import checked
from vitral.interop import Export, export_run, import_model
from vitral.interop.hub import is_hub
from vitral.lab.new_runs import free_folder
from vitral.lab.opened import path_of
from vitral.lab.run import Run, Which
from vitral.runs import load_run


@checked
def import_(
    source: str | Path,
    out: str | Path | None = None,
    *,
    tokenizer: str | Path | None = None,
    names: str | Path | None = None,
) -> Run:
    """Make a run of another library's model.

    Args:
        source: a folder of transformers with safetensors, `hf:OWNER/NAME[@REVISION]`, nanoGPT's `ckpt.pt`, or
            safetensors of any GPT with `names`.
        out: the run's folder; a free one under `runs/` if None.
        tokenizer: where the model has none: a `tokenizer.json` or a folder with one, `hf:OWNER/NAME`, a `.tiktoken` or
            `.toml` file, or the training text of a model of characters.
        names: a TOML file that names their tensor for each of ours (docs/interop.md).

    Raises:
        UsageError: the model cannot be read, or cannot be expressed in Vitral; nothing is left behind.
        StorageError: writing to disk failed.
    """
    folder = folder_for(source) if out is None else Path(out)
    return Run(import_model(source, folder, tokenizer=tokenizer, names=None if names is None else Path(names)).path)


def folder_for(source: str | Path) -> Path:
    """A free folder for the run of an imported model; a revision of the hub is no part of the name."""
    name = str(source)
    return free_folder(name.partition("@")[0].replace(":", "/") if is_hub(name) else name)


@checked
def export(
    run: str | Path | Run, out: str | Path, *, to: str = "hf", proof: bool = True, checkpoint: Which = "best"
) -> Export:
    """Write a run as another library's model, and prove it there.

    Args:
        run: a folder, or a run.
        out: the folder to create.
        to: the form: "gpt2", "llama", "mistral", "qwen2", "gpt-neox", "opt", "gpt-neo", "mpt", or "hf" for the first
            that can express the model; "torch-nn", "onnx", "gguf" or "graph".
        proof: whether the other library opens the export and gives the same logits; needs the extra `interop`.
        checkpoint: "best" or "last".

    Raises:
        UsageError: no form can express the model, the proof fails or a library is missing; nothing is left behind.
        StorageError: writing to disk failed.
    """
    folder = path_of(run)
    words = ["vitral", "export", folder.name, "--to", to, "--out", Path(out).name]
    words += [*([] if checkpoint == "best" else ["--checkpoint", checkpoint]), *([] if proof else ["--no-proof"])]
    return export_run(load_run(folder, checkpoint), Path(out), to=to, proof=proof, command=shlex.join(words))

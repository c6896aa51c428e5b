"""A run becomes a folder of another library, with a model card and a proof."""

import os
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from vitral.core.config import nearest
from vitral.core.errors import UsageError
from vitral.core.files import as_json, insist, remove_folder, storage, sweep, sync, temporary_name, write_durably
from vitral.interop.card import card
from vitral.interop.proof import Draft, Proof, prove
from vitral.interop.registry import ANY, all_forms
from vitral.interop.targets import gguf, graph, onnx, torch_nn, transformers
from vitral.runs import LoadedRun

CARD, PROOF = "README.md", "PROOF.json"
TARGETS: dict[str, Callable[[LoadedRun, str], Draft]] = {
    torch_nn.NAME: torch_nn.draft,
    onnx.FORM: onnx.draft,
    "gguf": gguf.draft,
    graph.NAME: graph.draft,
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
    drafted = TARGETS.get(to, transformers.draft)(run, to)
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

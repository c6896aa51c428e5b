"""A run becomes a folder of transformers: weights, configuration, tokenizer, model card, proof."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors.torch

from vitral.core.checked import checked
from vitral.core.errors import UsageError
from vitral.core.files import as_json, is_left_behind, storage, temporary_name
from vitral.core.guarded import GuardedFolder
from vitral.interop.card import card
from vitral.interop.foreign import CONFIG, WEIGHTS
from vitral.interop.form import Form
from vitral.interop.importing import SPECIAL_IDS
from vitral.interop.proof import Proof, prove, require_transformers
from vitral.interop.registry import ANY, chosen
from vitral.interop.rewrites import Weighted
from vitral.interop.rules import exported
from vitral.interop.tokenizers import DOCUMENT, SETTINGS, settings_of, written
from vitral.runs import LoadedRun

GENERATION, CARD, PROOF = "generation_config.json", "README.md", "PROOF.json"
_OURS = frozenset({CONFIG, WEIGHTS, DOCUMENT, SETTINGS, GENERATION, CARD, PROOF})


@dataclass(frozen=True)
class Export:
    """A written export.

    Attributes:
        path: its folder.
        form: the form that says the model.
        proof: None if it was left out.
    """

    path: Path
    form: str
    proof: Proof | None


@checked(first=True)
def export_run(run: LoadedRun, out: Path, *, to: str = ANY, proof: bool = True, command: str = "") -> Export:
    """Write a run as a folder that transformers opens, and prove it there.

    Args:
        run: the run.
        out: the folder to create.
        to: a form, or "hf" for the first that can say the model.
        proof: whether transformers opens the export before it gets its name.
        command: the command that makes it again, for the model card.

    Raises:
        UsageError: no form can say the model, `out` exists, or the proof fails; nothing is left behind.
        StorageError: the folder cannot be written.
    """
    if out.exists() or out.is_symlink():
        raise UsageError("{path}: exists already; choose another --out", path=out)
    if proof:
        require_transformers()
    form, said = chosen(to, Weighted(run.model.config, run.model.state_dict()))
    files = {
        CONFIG: as_json(config_of(form, said, run)),
        WEIGHTS: safetensors.torch.save(exported(form.rules(said.config), said.weights), {"format": "pt"}),
        DOCUMENT: written(run.tokenizer).encode("utf-8"),
        SETTINGS: as_json(settings_of(run.tokenizer, said.config.context_length)),
        GENERATION: as_json({"max_length": said.config.context_length, **special_ids(run)}),
    }
    above, beside = GuardedFolder(out.parent), temporary_name(out.name)
    with storage(out):
        try:
            above.make()
            for left in above.names():
                if left.startswith(f".{out.name}.") and is_left_behind(left):
                    above.remove_folder(left, _OURS.__contains__)
            above.make(beside)
            for name, content in files.items():
                above.write_new(f"{beside}/{name}", content)
            made = None
            if proof:
                made = prove(run.model, run.tokenizer, out.parent / beside, form.name, form.architecture)
                above.write_new(f"{beside}/{PROOF}", as_json(made.plain()))
            above.write_new(f"{beside}/{CARD}", card(run, form.name, made, command).encode("utf-8"))
            above.rename(beside, out.name)
            above.sync()
        except BaseException:
            above.remove_folder(beside, _OURS.__contains__)
            raise
    return Export(out, form.name, made)


def special_ids(run: LoadedRun) -> dict[str, Any]:
    """The ids that begin, end and fill a text: those of an imported model; ours has none."""
    said: Mapping[str, Any] = (run.sealed.imported or {}).get("config", {})
    return {key: said.get(key) for key in SPECIAL_IDS}


def config_of(form: Form, model: Weighted, run: LoadedRun) -> dict[str, Any]:
    """The foreign configuration."""
    return {
        "architectures": [form.architecture],
        "model_type": form.model_type,
        "vocab_size": run.model.vocab_size,
        **form.write(model.config),
        "tie_word_embeddings": model.config.tie_head,
        "dtype": str(next(iter(model.weights.values())).dtype).removeprefix("torch."),
        "use_cache": True,
        **special_ids(run),
    }

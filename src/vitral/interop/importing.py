"""A foreign model becomes a run folder, sealed at step 0, which knows where it comes from."""

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vitral.core.config import shown
from vitral.core.errors import UsageError
from vitral.core.files import sha256
from vitral.core.process import using_threads
from vitral.data import CorpusConfig
from vitral.interop.foreign import CONFIG, MOST_CONFIG, fetched, is_hub, read_file, read_json, tensors_in
from vitral.interop.foreign_settings import Settings
from vitral.interop.forms import form_of_type
from vitral.interop.name_map import read_named
from vitral.interop.nanogpt import CHECKPOINT, read_nanogpt
from vitral.interop.rules import imported
from vitral.interop.token_files import Imported, whole
from vitral.runs import RunConfig, RunFolder, TrainingConfig, refuse_existing
from vitral.runs.checkpoint import FORMAT, Checkpoint
from vitral.runs.environment import describe_environment
from vitral.runs.folder import IMPORTED, is_run
from vitral.runs.identity import SPECIAL_IDS, document_hash, new_identity
from vitral.runs.zoo import located


def import_model(
    source: str | Path, out: Path, *, tokenizer: str | Path | None = None, names: Path | None = None
) -> RunFolder:
    """Make a run folder of another library's model.

    Args:
        source: a folder of transformers, `hf:OWNER/NAME[@REVISION]`, nanoGPT's `ckpt.pt`, or safetensors of any GPT
            with `names`.
        out: the run folder to create.
        tokenizer: where the model has none: a folder with `tokenizer.json`, that file, `hf:OWNER/NAME`, a `.tiktoken`
            or `.toml` file, or the training text of a model of characters.
        names: a TOML file that names their tensor for each of ours (`vitral.interop.name_map`).

    Raises:
        UsageError: the model cannot be read, or cannot be expressed in Vitral; nothing is left behind.
        StorageError: the run cannot be written.
    """
    refuse_existing(out)
    if is_run(located(source)):
        raise UsageError("{source}: is a run already; use it as it is", source=source)
    return write_run(read_model(source, tokenizer=tokenizer, names=names), out)


def read_model(source: str | Path, *, tokenizer: str | Path | None = None, names: Path | None = None) -> Imported:
    """A model of any library that is known here.

    Raises:
        UsageError: it cannot be read, or cannot be expressed in Vitral.
    """
    path = Path(source)
    if names is not None:
        return read_named(path, names, tokenizer=tokenizer)
    if path.suffix == Path(CHECKPOINT).suffix or os.path.isfile(path / CHECKPOINT):
        return read_nanogpt(path, tokenizer=tokenizer)
    if path.suffix == ".safetensors":
        raise UsageError(
            "{path}: tensors alone are no model; give the folder with config.json, or --map NAMES.toml, which maps "
            "their names",
            path=path,
        )
    return read_transformers(source, tokenizer=tokenizer)


def read_transformers(source: str | Path, *, tokenizer: str | Path | None = None) -> Imported:
    """A model of transformers, or one that Vitral wrote for torch.nn.

    Raises:
        UsageError: it cannot be read, or cannot be expressed in Vitral.
    """
    folder, hub = fetched(str(source)) if is_hub(str(source)) else (Path(source), {})
    where = str(folder)
    if not os.path.isdir(folder):
        raise UsageError("{where}: not a folder with config.json and model.safetensors, nor hf:OWNER/NAME", where=where)
    raw = read_file(folder / CONFIG, MOST_CONFIG)
    said = read_json(raw, folder / CONFIG)
    settings = Settings(said, f"{where}/{CONFIG}")
    form = form_of_type(said.get("model_type"), settings.where)
    if "quantization_config" in said:
        raise settings.refused("quantization_config", said["quantization_config"])
    vocab_size = settings.count("vocab_size")
    said |= {key: None for key in SPECIAL_IDS if said.get(key) == -1}  # as transformers reads it
    _require_ids(said, vocab_size, settings)
    tensors, files = tensors_in(folder)
    weights = form.named(tensors, tied=said.get("tie_word_embeddings", form.ties) is True, where=where)
    if form.prepare is not None:
        weights = form.prepare(weights, settings)
    config = form.config(settings)
    ours = imported(form.rules(config), weights, where)
    files = {CONFIG: sha256(raw), **files}
    origin = {"form": form.name, "source": str(source), **hub, "files": files, "config": said}
    return whole(config, ours, vocab_size, origin, tokenizer=tokenizer or folder)


def _require_ids(said: Mapping[str, Any], vocab_size: int, settings: Settings) -> None:
    for key in SPECIAL_IDS:
        value = said.get(key)
        listed = value if isinstance(value, list) and value else [] if value is None else [value]
        if not all(type(one) is int and 0 <= one < vocab_size for one in listed):
            raise UsageError(
                "{where}: {key} = {value} is no token of this model, whose vocabulary has {vocab_size:,}; correct it, "
                "or set it to null",
                where=settings.where,
                key=key,
                value=shown(value),
                vocab_size=vocab_size,
            )


def write_run(model: Imported, out: Path) -> RunFolder:
    """The run folder of an imported model, whole or not at all.

    Raises:
        UsageError: `out` exists.
        StorageError: it cannot be written.
    """
    size = {"vocab_size": len(model.tokenizer.ids)} if model.tokenizer.name == "bpe" else {}
    corpus = CorpusConfig.parse(
        {
            "source": IMPORTED,
            "tokenizer": {"name": model.tokenizer.name, **size},
            "specials": tuple(model.tokenizer.declared),
        },
        "corpus",
    )
    widths = {"d_ff": model.config.hidden_width, "num_kv_heads": model.config.kv_heads}  # as every run has them
    own = model.config.model_copy(update=widths)
    objective = "masked" if own.shape == "encoder" else "next-token"
    training = TrainingConfig(device="cpu", objective=objective)
    config = RunConfig(corpus=corpus, model=own, training=training)
    record = {
        "format": FORMAT,
        "name": Path(str(model.origin["source"])).name,
        IMPORTED: dict(model.origin),
        "sha256": hashlib.sha256(json.dumps(model.origin["files"], sort_keys=True).encode()).hexdigest(),
        "tokenizer": model.tokenizer.name,
        "vocab_size": model.tokenizer.vocab_size,
    }
    environment = describe_environment()
    documents = {"corpus": record, "tokenizer": model.tokenizer.plain()}
    with using_threads(1):
        identity = new_identity(config, documents)
    state = {**identity.plain(), "best_step": 0, "pending": False, "corpus": record["sha256"]}
    checkpoint = Checkpoint(0, model.weights, {}, state, {"environment": document_hash(environment)})

    def seal(folder: RunFolder) -> None:
        folder.save(checkpoint, keep=config.training.keep_checkpoints)

    documents |= {"environment": environment, "run": {"format": FORMAT, **identity.plain()}}
    return RunFolder.create(out, config.plain(), documents, seal)

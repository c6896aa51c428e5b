"""GGUF, the file of llama.cpp and Ollama: weights, configuration and tokenizer in one."""

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from vitral.core.errors import UsageError
from vitral.interop.foreign import needed
from vitral.interop.form import Form, Key
from vitral.interop.forms.gpt import GPT2, NEOX
from vitral.interop.forms.llama import LLAMA
from vitral.interop.proof import Draft
from vitral.interop.registry import first
from vitral.interop.rewrites import Weighted, untied, with_biases
from vitral.interop.rules import Names, Rule, by_names, exported, permuted, projections
from vitral.interop.targets.gguf_tokens import vocabulary
from vitral.interop.targets.llama_cpp import READER, opened
from vitral.interop.targets.transformers import special_ids
from vitral.model import ModelConfig
from vitral.model.positions import frequencies
from vitral.model.settings import ROTARY
from vitral.runs import LoadedRun

MODEL, OLLAMA = "model.gguf", "Modelfile"
MOST_DIFFERENCE = 0.02
"""Of logits, as a share of the largest: llama.cpp rounds GELU, keys and values to half precision."""
_USE = (
    "```sh",
    'llama-completion -m model.gguf -no-cnv -n 40 -p "A prompt"          # llama.cpp',
    'ollama create NAME -f Modelfile && ollama run NAME "A prompt"       # Ollama',
    "```",
    "",
    "llama.cpp computes GELU by a table of half precision and keeps keys and values in half precision, so its numbers",
    "differ a little from Vitral's. It leaves out a character that the tokenizer does not have; Vitral refuses it.",
)


_KEYS = (
    Key("context_length", "context_length"),
    Key("embedding_length", "d_model"),
    Key("feed_forward_length", "d_ff"),
    Key("block_count", "num_layers"),
    Key("attention.head_count", "num_heads"),
)
_EPSILON = Key("attention.layer_norm_epsilon", "norm_epsilon")


def _llama_metadata(config: ModelConfig) -> dict[str, Any]:
    return {
        "attention.layer_norm_rms_epsilon": config.epsilon,
        **_rotary_metadata(config),
        "attention.head_count_kv": config.kv_heads,
        "attention.key_length": config.d_head,
        "attention.value_length": config.d_head,
    }


def _neox_metadata(config: ModelConfig) -> dict[str, Any]:
    return {**_rotary_metadata(config), "use_parallel_residual": bool(config.parallel)}


def _rotary_metadata(config: ModelConfig) -> dict[str, Any]:
    rotary = config.rotary or ROTARY
    scaling = {}
    if rotary.scaling is not None and rotary.scaling.name == "linear":
        scaling = {"rope.scaling.type": "linear", "rope.scaling.factor": float(rotary.scaling.factor)}
    return {
        **scaling,
        "rope.dimension_count": rotary.width(config.d_head),
        "rope.freq_base": float(rotary.base),
    }


def _paired(config: ModelConfig, ours: str, layer: int) -> Rule:
    """The three projections; llama.cpp's pairs of features are neighbours (2i, 2i + 1) in queries and keys."""
    widths = projections(config)
    parts = list(torch.arange(sum(widths)).split(widths))
    if config.rotary is not None and config.rotary.pairing == "halves":
        parts[:2] = [rows.reshape(-1, 2, config.d_head // 2).mT.flatten() for rows in parts[:2]]
    names = [f"blk.{layer}.attn_{letter}.{ours.rpartition('.')[2]}" for letter in "qkv"]
    return permuted(ours, dict(zip(names, widths, strict=True)), torch.cat(parts))


_BLOCK = {
    "blocks.{layer}.attn_norm": "blk.{layer}.attn_norm",
    "blocks.{layer}.mlp_norm": "blk.{layer}.ffn_norm",
    "blocks.{layer}.attn.out_proj": "blk.{layer}.attn_output",
}
_FEED_FORWARD = {f"blocks.{{layer}}.mlp.{part}": f"blk.{{layer}}.ffn_{part}" for part in ("gate", "up", "down")}
_NAMES: Names = {
    "token_embedding": "token_embd",
    **_BLOCK,
    **_FEED_FORWARD,
    "blocks.{layer}.attn.in_proj": "blk.{layer}.attn_qkv",
    "final_norm.weight": "output_norm.weight",
    "head": "output",
    "final_norm.bias": "output_norm.bias",
    "positions": "position_embd",
}
_LLAMA_BLOCK = {**_BLOCK, **_FEED_FORWARD}
_LLAMA: tuple[Names, ...] = (
    {
        "token_embedding": "token_embd",
        **{f"{ours}.weight": f"{theirs}.weight" for ours, theirs in _LLAMA_BLOCK.items()},
    },
    {"blocks.{layer}.attn.in_proj": _paired},
    {f"{ours}.bias": f"{theirs}.bias" for ours, theirs in _LLAMA_BLOCK.items()},
    {"final_norm": "output_norm", "head": "output"},
)


# llama.cpp has one GELU, by tanh. Its Llama turns whole heads only. Its GPT-NeoX pairs halves of what turns, ignores
# rates of the file's own (those of Llama 3), and has a head of its own.
_GELUS = ("gelu", "gelu_tanh")
FORMS = (
    replace(
        NEOX,
        name="gguf (gptneox)",
        model_type="gptneox",
        allows={**NEOX.allows, "feed_forward": _GELUS, "positions.scaling": (None, "linear")},
        rewrites=(*NEOX.rewrites, with_biases(qkv=True, output=True), untied),
        keys=(*_KEYS, _EPSILON),
        written=_neox_metadata,
        rules=by_names(_NAMES),
    ),
    replace(
        GPT2,
        name="gguf (gpt2)",
        allows={**GPT2.allows, "feed_forward": _GELUS},
        keys=(*_KEYS, _EPSILON),
        written=lambda _config: {},
        rules=by_names(_NAMES),
    ),
    replace(
        LLAMA,
        name="gguf (llama)",
        allows={**LLAMA.allows, "positions.pairing": ("halves", "interleaved")},
        keys=_KEYS,
        written=_llama_metadata,
        rules=by_names(*_LLAMA),
    ),
)


def draft(run: LoadedRun) -> Draft:
    """A run as a GGUF file.

    Raises:
        UsageError: the package gguf is not installed, or llama.cpp has no such model or tokenizer.
    """
    package = needed("gguf")
    form, said = first(FORMS, Weighted(run.model.config, run.model.state_dict()))
    context_length = said.config.context_length
    files = {
        MODEL: _written(package, form, said, run),
        OLLAMA: _MODELFILE.format(context=context_length, answer=max(1, context_length // 2)).encode("utf-8"),
    }
    front = ("library_name: gguf", "pipeline_tag: text-generation")
    return Draft(
        "gguf",
        files,
        READER,
        ("gguf",),
        lambda folder: opened(folder / MODEL, context_length),
        _USE,
        front,
        most=MOST_DIFFERENCE,
    )


_MODELFILE = """\
FROM ./model.gguf
# A base model: it continues the prompt.
TEMPLATE "{{{{ .Prompt }}}}"
# Prompt and answer together must fit into the context.
PARAMETER num_ctx {context}
PARAMETER num_predict {answer}
"""


def _written(package: Any, form: Form, said: Weighted, run: LoadedRun) -> bytes:
    """The bytes of the file."""
    config = said.config
    if config.num_layers < 1:
        raise UsageError("{form}: llama.cpp opens no model without blocks", form=form.name)
    tensors = {name: tensor.detach().float() for name, tensor in exported(form.rules(config), said.weights).items()}
    rotary = config.rotary
    if rotary is not None and rotary.scaling is not None and rotary.scaling.name == "llama3":
        unscaled = frequencies(config.d_head, rotary.model_copy(update={"scaling": None}))
        tensors["rope_freqs.weight"] = (unscaled / frequencies(config.d_head, rotary)).float()
    tokens = vocabulary(run.tokenizer, special_ids(run))
    with tempfile.TemporaryDirectory(prefix="vitral-gguf-") as folder:
        path = Path(folder) / MODEL
        writer = package.GGUFWriter(path, form.model_type)
        writer.add_name(run.folder.path.name)
        writer.add_file_type(package.LlamaFileType.ALL_F32)
        for key, value in form.write(config).items():
            kind = {bool: "BOOL", int: "UINT32", float: "FLOAT32", str: "STRING"}[type(value)]
            writer.add_key_value(f"{form.model_type}.{key}", value, package.GGUFValueType[kind])
        writer.add_vocab_size(len(tokens.texts))
        writer.add_tokenizer_model("gpt2")  # byte pairs
        writer.add_tokenizer_pre(tokens.splits)
        writer.add_token_list(tokens.texts)
        writer.add_token_types(tokens.types)
        writer.add_token_merges(tokens.merges)
        writer.add_bos_token_id(tokens.begin)
        writer.add_eos_token_id(tokens.end)
        for add in (writer.add_add_bos_token, writer.add_add_eos_token, writer.add_add_space_prefix):
            add(False)
        for name, tensor in tensors.items():
            writer.add_tensor(name, np.ascontiguousarray(tensor.numpy()))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return path.read_bytes()

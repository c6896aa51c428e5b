"""GGUF, the file of llama.cpp and Ollama: weights, configuration and tokenizer in one."""

import json
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from vitral.core.errors import UsageError
from vitral.data.engines import EVERY_CHARACTER, byte_letters
from vitral.data.tokenizers import Tokenizer
from vitral.interop.foreign import needed
from vitral.interop.form import Form, Key
from vitral.interop.forms import first
from vitral.interop.forms.gpt import GPT2, NEOX
from vitral.interop.forms.llama import LLAMA
from vitral.interop.proof import Draft
from vitral.interop.rewrites import Weighted, untied, with_biases
from vitral.interop.rules import Names, Rule, by_names, exported, permuted, projections
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
# The prompt as it is; the model continues it.
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


# ---------------------------------------------------------------- tokenizers as llama.cpp has them, as byte pairs

GPT2_WORDS = "trillion"
"""llama.cpp's name for GPT-2's words; under the name "gpt-2" it also takes spaces before points out of a text."""
SPLITS = {
    ("ByteLevel",): GPT2_WORDS,
    ("Digits", "ByteLevel"): "smollm",
}
NORMAL, CONTROL, USER_DEFINED, UNUSED = 1, 3, 4, 5
NEVER = 0xFF
"""A byte that no text has."""


@dataclass(frozen=True)
class Vocabulary:
    """A tokenizer in a GGUF file.

    Attributes:
        splits: how a text is split into words before byte pairs are joined.
        texts: every token as the file spells it.
        types: the kind of each token.
        begin: the token that begins a text; none is added by itself.
        end: the token that ends a text.
        merges: of byte pairs.
    """

    splits: str
    texts: list[str]
    types: list[int]
    begin: int
    end: int
    merges: list[str]


def vocabulary(tokenizer: Tokenizer, special: Mapping[str, Any]) -> Vocabulary:
    """A tokenizer as llama.cpp has it.

    Args:
        tokenizer: the tokenizer.
        special: `bos_token_id` and `eos_token_id` of an imported model.

    Raises:
        UsageError: llama.cpp has none like it.
    """
    if tokenizer.name != "file":
        return _by_bytes(tokenizer, special)
    document = json.loads(tokenizer.document)
    if document["model"]["type"] != "WordLevel":
        return _of_pairs(tokenizer, document, special)
    splits = document.get("pre_tokenizer") or {}
    is_split = splits.get("behavior") == "Isolated" and splits.get("pattern") == {"Regex": EVERY_CHARACTER}
    if not is_split or document.get("normalizer") is not None or document.get("added_tokens"):
        raise _none_like_it(document)
    return _by_bytes(tokenizer, special)


def _by_bytes(tokenizer: Tokenizer, special: Mapping[str, Any]) -> Vocabulary:
    """Characters, bytes and byte pairs as byte pairs; a character is a chain of merges of its bytes."""
    named, letters = {token: text for text, token in tokenizer.declared.items()}, byte_letters()
    texts, types = [], []
    for token in range(tokenizer.vocab_size):
        held = b"" if token in named else tokenizer.token_bytes(token)
        is_word = tokenizer.name == "file" and len(held.decode("utf-8")) != 1  # no text is split into one
        spelled = "" if is_word else "".join(letters[byte] for byte in held)
        texts.append(named.get(token) or spelled or _filler(token))
        types.append(CONTROL if token in named else NORMAL if spelled else UNUSED)
    if tokenizer.name == "bpe":
        merges = [f"{tokenizer.words[left]} {tokenizer.words[right]}" for left, right in tokenizer.merges]
    else:
        merges = list(dict.fromkeys(_chains(text for text, kind in zip(texts, types, strict=True) if kind == NORMAL)))
    # llama.cpp refuses a file without merges, and would end a text at token 11 if nothing else were said.
    merges = merges or [" ".join(letters[NEVER] * 2)]
    begin, end = _begin_and_end(special, _never(types, texts))
    return Vocabulary(GPT2_WORDS, texts, types, begin, end, merges)


def _never(types: list[int], texts: list[str]) -> int:
    """A token that ends no text too early: one without a text, a byte that no text has, else the last one."""
    unused = [token for token, kind in enumerate(types) if kind == UNUSED]
    byte = byte_letters()[NEVER]
    return unused[0] if unused else texts.index(byte) if byte in texts else len(texts) - 1


def _filler(token: int) -> str:
    """The text of an id without a token; not one that llama.cpp knows, such as `<PAD>`."""
    return f"[no token {token}]"


def _chains(texts: Iterable[str]) -> Iterator[str]:
    """The merges that join the bytes of each character from the left; characters with equal first bytes share them."""
    for text in texts:
        for size in range(1, len(text)):
            yield f"{text[:size]} {text[size]}"


def _begin_and_end(special: Mapping[str, Any], otherwise: int) -> tuple[int, int]:
    begin, end = (
        next(iter(value), None) if isinstance(value := special.get(key), list) else value
        for key in ("bos_token_id", "eos_token_id")
    )
    end = otherwise if end is None else end
    return (end if begin is None else begin), end


def _of_pairs(tokenizer: Tokenizer, document: Mapping[str, Any], special: Mapping[str, Any]) -> Vocabulary:
    """Byte pairs of another library."""
    model, added = document["model"], {one["id"]: one for one in document.get("added_tokens") or ()}
    strips = any(one.get("lstrip") or one.get("rstrip") for one in added.values())
    if model["type"] != "BPE" or not model["merges"] or model.get("ignore_merges") or strips:
        raise _none_like_it(document)
    texts = {token: text for text, token in model["vocab"].items()}
    texts |= {token: one["content"] for token, one in added.items()}
    kinds = {token: CONTROL if one.get("special") else USER_DEFINED for token, one in added.items()}
    listed = [texts.get(token) or _filler(token) for token in range(tokenizer.vocab_size)]
    types = [kinds.get(token, NORMAL if token in texts else UNUSED) for token in range(tokenizer.vocab_size)]
    merges = [tuple(one.split(" ") if isinstance(one, str) else one) for one in model["merges"]]
    never = next((token for token, kind in enumerate(types) if kind in (CONTROL, UNUSED)), 0)
    begin, end = _begin_and_end(special, never)
    splits = _splits(document)
    if splits is None or document.get("normalizer") is not None or model.get("byte_fallback"):
        raise _none_like_it(document)
    return Vocabulary(splits, listed, types, begin, end, [" ".join(pair) for pair in merges])


def _splits(document: Mapping[str, Any]) -> str | None:
    splitting = document.get("pre_tokenizer") or {}
    steps = splitting.get("pretokenizers") or [splitting]
    usual = all(
        step.get("use_regex", True) and not step.get("add_prefix_space")
        if step.get("type") == "ByteLevel"
        else step.get("individual_digits")
        for step in steps
    )
    return SPLITS.get(tuple(step.get("type") for step in steps)) if usual else None


def _none_like_it(document: Mapping[str, Any]) -> UsageError:
    kinds = [(document.get(part) or {}).get("type") for part in ("normalizer", "pre_tokenizer", "model")]
    return UsageError(
        "gguf: llama.cpp has no tokenizer like this one ({kind})", kind=", ".join(str(kind) for kind in kinds if kind)
    )

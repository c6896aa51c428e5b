"""Folders of transformers, written without it from Vitral's own models."""

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import safetensors.torch
from tokenizers import Tokenizer as Engine
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors
from torch import Tensor
from variants import TOKENIZER, enlarged

from vitral.data import Tokenizer, byte_tokenizer
from vitral.interop import all_forms
from vitral.interop.importing import Imported, write_run
from vitral.interop.rewrites import Weighted
from vitral.interop.rules import exported
from vitral.model import ModelConfig, Transformer
from vitral.runs import LoadedRun, load_run

needs_transformers = pytest.mark.skipif(find_spec("transformers") is None, reason="transformers is not installed")

BASE: dict[str, Any] = {"context_length": 16, "d_model": 16, "num_heads": 2, "num_layers": 2, "d_ff": 32}
ROTARY: dict[str, Any] = {"norm_type": "rmsnorm", "feed_forward": "swiglu", "bias": False, "positions": "rotary"}
OF_FORM: dict[str, dict[str, Any]] = {
    "gpt2": {"feed_forward": "gelu_tanh", "tie_head": True},
    "llama": {**ROTARY, "num_kv_heads": 1, "norm_epsilon": 1e-6, "d_head": 6},
    "mistral": {**ROTARY, "num_kv_heads": 2, "attention": {"mask": {"name": "window", "size": 5}}},
    "qwen2": {
        **ROTARY,
        "num_kv_heads": 1,
        "tie_head": True,
        "bias": {"qkv": True, "output": False, "feed_forward": False},
    },
    "gpt-neox": {"positions": {"name": "rotary", "fraction": 0.25}, "parallel": True},
    "opt": {"norm": "post", "feed_forward": "relu", "tie_head": True},
    "gpt-neo": {
        "attention": {"mask": ["causal", {"name": "window", "size": 4}], "scale": "none"},
        "bias": {"qkv": False},
    },
    "mpt": {"positions": "alibi", "bias": False, "d_ff": 64},
    "bert": {
        "norm": "post",
        "embedding_norm": True,
        "shape": "encoder",
        "head_transform": True,
        "tie_head": True,
        "bias": {"head": True},
    },
}
"""A model that each form expresses as it is."""


NAMED = {f"{kind}_token": f"[{kind.upper()}]" for kind in ("pad", "unk", "cls", "sep", "mask")}
WORDS = [*NAMED.values(), *["to", "be", "or", "not", "##t", "##s", "that", "is", "the", "quest", "##ion", "a", "b"]]


def hub_of(folder: Path) -> Mock:
    """A hub that is a folder."""
    hub = Mock()
    hub.model_info.return_value.sha = "0123456789" * 4
    hub.snapshot_download.return_value = str(folder)
    return hub


def difference(found: Tensor, expected: Tensor) -> float:
    """The largest, relative to the largest number."""
    return (found - expected).abs().max().item() / expected.abs().max().item()


def wordpiece() -> Engine:
    """A tokenizer like BERT's."""
    made = Engine(models.WordPiece({word: token for token, word in enumerate(WORDS)}, unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer(lowercase=True)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.post_processor = processors.TemplateProcessing("[CLS] $A [SEP]", None, [("[CLS]", 2), ("[SEP]", 3)])
    made.decoder = decoders.WordPiece()
    made.add_special_tokens(list(NAMED.values()))
    return made


def of_form(form: str, vocab_size: int = 256) -> Transformer:
    """A small model whose parameters are all large and distinct."""
    return enlarged(Transformer(ModelConfig.parse(BASE | OF_FORM[form]), vocab_size).eval())


def run_of(model: Transformer, folder: Path, tokenizer: Tokenizer | None = None, **config: Any) -> LoadedRun:
    """The model as an imported run; `config` is what its source's config.json said."""
    origin = {"form": "gpt2", "source": "a test", "files": {"of": str(model.config)}, "config": config}
    tokenizer = tokenizer or (TOKENIZER if model.vocab_size == TOKENIZER.vocab_size else byte_tokenizer())
    return load_run(write_run(Imported(model.config, model.state_dict(), tokenizer, origin), folder).path)


def write_source(
    folder: Path, form: str, model: Transformer, tokenizer: Tokenizer | None = None, **changes: Any
) -> dict[str, Tensor]:
    """Write a model as transformers would; `changes` are keys of config.json. Returns the tensors."""
    kind = all_forms()[form]
    said = kind.said(Weighted(model.config, model.state_dict()))
    tensors = exported(kind.rules(said.config), said.weights)
    config = {
        "architectures": [kind.architecture],
        "model_type": kind.model_type,
        "vocab_size": model.vocab_size,
        "tie_word_embeddings": said.config.tie_head,
        **kind.write(said.config),
    }
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config | changes))
    (folder / "tokenizer.json").write_text((tokenizer or byte_tokenizer()).document)
    safetensors.torch.save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    return tensors

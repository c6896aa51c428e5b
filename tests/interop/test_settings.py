"""Keys of config.json: what an absent key stands for, and values that would change the numbers silently."""

import importlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from foreign import OF_FORM, needs_transformers, of_form, write_source

from vitral.core.errors import UsageError
from vitral.data import byte_tokenizer
from vitral.interop import all_forms, import_model
from vitral.interop.foreign_settings import Settings
from vitral.model import ModelConfig
from vitral.runs import load_run

CLASSES = {
    "gpt2": "GPT2Config",
    "llama": "LlamaConfig",
    "mistral": "MistralConfig",
    "qwen2": "Qwen2Config",
    "gpt-neox": "GPTNeoXConfig",
    "opt": "OPTConfig",
    "gpt-neo": "GPTNeoConfig",
    "mpt": "MptConfig",
}


pytestmark = pytest.mark.usefixtures("quiet")


def read(form: str, said: dict[str, Any]) -> ModelConfig:
    settings = Settings(said, "config.json")
    settings.count("vocab_size", 1)
    return all_forms()[form].config(settings)


def library() -> Any:
    return importlib.import_module("transformers")


@pytest.mark.merge
@needs_transformers
@pytest.mark.parametrize("form", CLASSES)
def test_an_absent_key_has_the_default_of_the_library_or_is_refused(form: str) -> None:
    defaults = getattr(library(), CLASSES[form])()
    said = defaults.to_dict()
    whole = read(form, said)
    assert read(form, json.loads(defaults.to_json_string())) == whole
    assert all_forms()[form].ties is said["tie_word_embeddings"]
    for partial in ({}, *({key: value for key, value in said.items() if key != absent} for absent in said)):
        try:
            found = read(form, partial)
        except UsageError:
            continue
        assert found == whole


REFUSED: dict[str, tuple[str, dict[str, Any]]] = {
    **{f"{form} not causal": (form, {"is_causal": False}) for form in OF_FORM},
    **{f"unknown {value}": ("gpt2", {"secret": value}) for value in (False, 0, [], {}, "")},
    "pruned heads": ("gpt2", {"pruned_heads": {"0": [1]}}),
    "null where true is the default": ("gpt2", {"scale_attn_weights": None}),
    "an unknown 0 in a table": ("llama", {"rope_parameters": {"rope_type": "default", "attention_factor": 0}}),
    "llama turns a part": ("llama", {"partial_rotary_factor": 0.5}),
    "mistral window 0": ("mistral", {"sliding_window": 0}),
    "two bases": ("llama", {"rope_theta": 77.0}),
    "neox, two fractions": ("gpt-neox", {"partial_rotary_factor": 0.5}),
    "neox, a fraction it does not read": (
        "gpt-neox",
        {"rope_parameters": None, "rotary_pct": None, "partial_rotary_factor": 0.5},
    ),
    "neox, two bases": ("gpt-neox", {"rope_parameters": None, "rotary_emb_base": 100, "rope_theta": 50.0}),
    "neo, enormous": ("gpt-neo", {"attention_types": [[["global"], 3 * 10**11]], "attention_layers": None}),
    "neo, two lists of kinds": ("gpt-neo", {"attention_types": [[["local"], 2]]}),
    "bos table": ("gpt2", {"bos_token_id": {"a": 1}}),
    "eos list": ("gpt2", {"eos_token_id": [1, 2, "x"]}),
    "opt, another inner width": ("opt", {"word_embed_proj_dim": 8}),
    "qwen2 slides in a layer": ("qwen2", {"layer_types": ["full_attention", "sliding_attention"]}),
    "mpt scale by name": ("mpt", {"attn_config": {"softmax_scale": "linear"}}),
}


@pytest.mark.parametrize("wrong", REFUSED)
def test_a_value_that_changes_the_numbers_or_contradicts_is_refused(wrong: str, tmp_path: Path) -> None:
    form, changes = REFUSED[wrong]
    write_source(tmp_path / "source", form, of_form(form), **changes)
    with pytest.raises(UsageError):
        import_model(tmp_path / "source", tmp_path / "run")
    assert not (tmp_path / "run").exists()


def change_nothing(said: dict[str, Any]) -> None:
    """As the library writes it."""


def old_rotary(said: dict[str, Any]) -> None:
    del said["rope_parameters"]
    said |= {"rotary_pct": 0.25, "rotary_emb_base": 100}


def published_mpt(said: dict[str, Any]) -> None:
    for key in ("max_position_embeddings", "intermediate_size"):
        del said[key]
    said |= {"architectures": ["MPTForCausalLM"], "init_device": "cpu", "verbose": 0, "attn_config": {"alibi": True}}


def galactica(said: dict[str, Any]) -> None:
    del said["intermediate_size"]
    said |= {"scale_embeddings": False, "learned_embeddings": True, "embed_dim": 16}


def older_qwen2(said: dict[str, Any]) -> None:
    del said["rope_parameters"]
    said |= {"rope_theta": 10000.0, "layer_types": None, "sliding_window": 64, "max_window_layers": 1}


CHANGES: dict[str, tuple[str, dict[str, Any], Callable[[dict[str, Any]], Any]]] = {
    "mistral without its window": (
        "Mistral",
        {"max_position_embeddings": 4110, "num_hidden_layers": 1, "num_attention_heads": 1, "num_key_value_heads": 1},
        lambda said: said.pop("sliding_window"),
    ),
    "mistral without keys and values": (
        "Mistral",
        {"hidden_size": 32, "num_attention_heads": 16, "num_key_value_heads": 8, "max_position_embeddings": 64},
        lambda said: said.pop("num_key_value_heads"),
    ),
    "neox, older keys": ("GPTNeoX", {"max_position_embeddings": 64}, old_rotary),
    "mpt, published": ("Mpt", {"max_position_embeddings": 64}, published_mpt),
    "opt, galactica": ("OPT", {"max_position_embeddings": 64, "ffn_dim": 24, "word_embed_proj_dim": 16}, galactica),
    "qwen2": ("Qwen2", {"max_position_embeddings": 64, "num_key_value_heads": 1}, change_nothing),
    "qwen2, older keys": ("Qwen2", {"max_position_embeddings": 64, "num_key_value_heads": 1}, older_qwen2),
    "neox without biases": ("GPTNeoX", {"max_position_embeddings": 64, "attention_bias": False}, change_nothing),
}


@pytest.mark.merge
@needs_transformers
@pytest.mark.parametrize("change", CHANGES)
def test_what_is_read_has_the_logits_of_the_library(change: str, tmp_path: Path) -> None:
    name, keys, edit = CHANGES[change]
    sizes = {"hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 2, "intermediate_size": 8}
    torch.manual_seed(0)
    made = getattr(library(), f"{name}ForCausalLM")(
        getattr(library(), f"{name}Config")(vocab_size=256, **{**sizes, **keys})
    )
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    source = tmp_path / "source"
    made.save_pretrained(source)
    said = json.loads((source / "config.json").read_text())
    edit(said)
    (source / "config.json").write_text(json.dumps(said))
    (source / "tokenizer.json").write_text(byte_tokenizer().document)
    theirs = library().AutoModelForCausalLM.from_pretrained(source, attn_implementation="eager").eval()
    ours = load_run(import_model(source, tmp_path / "run").path).model
    tokens = torch.randint(0, 256, (1, keys["max_position_embeddings"]))
    with torch.inference_mode():
        expected, found = theirs(tokens).logits, ours(tokens)
    # Angles of thousands of positions lose digits in the library, where they are single precision.
    tolerance = 1e-3 if tokens.shape[1] > 1000 else 1e-5
    assert float((found - expected).abs().max() / expected.abs().max()) < tolerance

"""The models of the hub that docs/interop.md lists: random ones of their very configurations.

There is no hub here. Width, heads, vocabulary and every other key are the hub's; only the blocks are fewer.
"""

import importlib
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from foreign import needs_transformers

from vitral.data import ByteTokenizer
from vitral.interop import import_model
from vitral.interop.tokenizers import written
from vitral.runs import load_run

pytestmark = [needs_transformers, pytest.mark.usefixtures("quiet")]

FULL = os.environ.get("VITRAL_FULL") == "1"
MOST_BLOCKS = 3


def gpt2(width: int, heads: int, layers: int) -> dict[str, Any]:
    return {"model_type": "gpt2", "n_embd": width, "n_head": heads, "n_layer": layers, "n_positions": 1024}


def pythia(width: int, heads: int, layers: int) -> dict[str, Any]:
    return {
        **{"model_type": "gpt_neox", "hidden_size": width, "num_attention_heads": heads, "num_hidden_layers": layers},
        **{"intermediate_size": 4 * width, "vocab_size": 50304, "rotary_pct": 0.25, "rotary_emb_base": 10000},
        **{"max_position_embeddings": 2048, "use_parallel_residual": True, "layer_norm_eps": 1e-5},
        **{"hidden_act": "gelu", "tie_word_embeddings": False},
    }


def gpt_neo(width: int, heads: int, layers: int) -> dict[str, Any]:
    return {
        **{"model_type": "gpt_neo", "hidden_size": width, "num_heads": heads, "num_layers": layers},
        **{"attention_types": [[["global", "local"], layers // 2]], "window_size": 256, "vocab_size": 50257},
        **{"max_position_embeddings": 2048, "activation_function": "gelu_new", "intermediate_size": None},
    }


HUB: dict[str, dict[str, Any]] = {
    "openai-community/gpt2": gpt2(768, 12, 12),
    "openai-community/gpt2-medium": gpt2(1024, 16, 24),
    "openai-community/gpt2-large": gpt2(1280, 20, 36),
    "openai-community/gpt2-xl": gpt2(1600, 25, 48),
    "distilbert/distilgpt2": gpt2(768, 12, 6),
    "EleutherAI/pythia-14m": {**pythia(128, 4, 6), "intermediate_size": 512},
    "EleutherAI/pythia-70m": pythia(512, 8, 6),
    "EleutherAI/pythia-160m": pythia(768, 12, 12),
    "EleutherAI/pythia-410m": pythia(1024, 16, 24),
    "roneneldan/TinyStories-1M": gpt_neo(64, 16, 8),
    "roneneldan/TinyStories-3M": gpt_neo(128, 16, 8),
    "roneneldan/TinyStories-8M": gpt_neo(256, 16, 8),
    "roneneldan/TinyStories-28M": gpt_neo(512, 16, 8),
    "roneneldan/TinyStories-33M": gpt_neo(768, 16, 4),
    "EleutherAI/gpt-neo-125m": gpt_neo(768, 12, 12),
    "HuggingFaceTB/SmolLM-135M": {
        **{"model_type": "llama", "hidden_size": 576, "num_attention_heads": 9, "num_key_value_heads": 3},
        **{"num_hidden_layers": 30, "intermediate_size": 1536, "vocab_size": 49152, "max_position_embeddings": 2048},
        **{"rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": True, "rope_scaling": None},
    },
    "TinyLlama/TinyLlama-1.1B-intermediate-step-1431k-3T": {
        **{"model_type": "llama", "hidden_size": 2048, "num_attention_heads": 32, "num_key_value_heads": 4},
        **{"num_hidden_layers": 22, "intermediate_size": 5632, "vocab_size": 32000, "max_position_embeddings": 2048},
        **{"rms_norm_eps": 1e-5, "tie_word_embeddings": False},
    },
    "Qwen/Qwen2.5-0.5B": {
        **{"model_type": "qwen2", "hidden_size": 896, "num_attention_heads": 14, "num_key_value_heads": 2},
        **{"num_hidden_layers": 24, "intermediate_size": 4864, "vocab_size": 151936, "max_position_embeddings": 32768},
        **{"rms_norm_eps": 1e-6, "rope_theta": 1000000.0, "tie_word_embeddings": True, "use_sliding_window": False},
    },
    "facebook/opt-350m": {
        **{"model_type": "opt", "hidden_size": 1024, "word_embed_proj_dim": 512, "num_attention_heads": 16},
        **{"num_hidden_layers": 24, "ffn_dim": 4096, "vocab_size": 50272, "max_position_embeddings": 2048},
        **{"do_layer_norm_before": False, "activation_function": "relu", "dropout": 0.1},
    },
}
"""Without what is the library's default."""
QUICK = ("EleutherAI/pythia-14m", "roneneldan/TinyStories-1M")
LAYERS = ("n_layer", "num_hidden_layers", "num_layers")


def fewer_blocks(config: dict[str, Any]) -> dict[str, Any]:
    key = next(key for key in LAYERS if key in config)
    blocks = min(config[key], MOST_BLOCKS - MOST_BLOCKS % 2 if "attention_types" in config else MOST_BLOCKS)
    types = {"attention_types": [[["global", "local"], blocks // 2]]} if "attention_types" in config else {}
    return {**config, **types, key: blocks}


def model_of(config: dict[str, Any]) -> Any:
    transformers = importlib.import_module("transformers")

    kind = dict(config)
    torch.manual_seed(0)
    made = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.for_model(**kind)).eval()
    with torch.no_grad():
        for name, parameter in made.named_parameters():
            if parameter.dim() == 1:  # norms and biases are the same number everywhere in a fresh model
                parameter.add_(torch.randn_like(parameter) * 0.1)
            elif "wpe" in name or "embed_positions" in name:
                parameter.mul_(3)
    return made


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in QUICK else pytest.mark.skipif(not FULL, reason="make test-full"))
        for name in HUB
    ],
)
def test_a_model_of_the_hub_has_the_same_logits_here(name: str, tmp_path: Path) -> None:
    theirs = model_of(fewer_blocks(HUB[name]))
    theirs.save_pretrained(tmp_path / "source")
    (tmp_path / "source" / "tokenizer.json").write_text(written(ByteTokenizer()))
    run = load_run(import_model(tmp_path / "source", tmp_path / "run").path)
    tokens = torch.randint(0, run.model.vocab_size, (1, 300), generator=torch.Generator().manual_seed(1))
    with torch.inference_mode():
        expected, found = theirs(tokens).logits, run.model(tokens)
    assert float((found - expected).abs().max() / expected.abs().max()) < 1e-5
    assert run.tokenizer.encode("text").tolist() == list(b"text")

"""Configurations of other libraries and maps of names, in both directions."""

import importlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from foreign import OF_FORM, ROTARY, difference, needs_transformers, of_form, write_source
from variants import VARIANTS, made

from vitral.core.errors import UsageError
from vitral.data import byte_tokenizer
from vitral.interop import all_forms, import_model
from vitral.interop.foreign_settings import Settings
from vitral.interop.forms import first
from vitral.interop.rewrites import Weighted
from vitral.interop.rules import exported, imported
from vitral.model import ModelConfig, Transformer, parameter_table
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
    "bert": "BertConfig",
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
    "bert, causal": ("bert", {"is_decoder": True}),
    "bert, relative positions": ("bert", {"position_embedding_type": "relative_key"}),
    "bert, an own head": ("bert", {"tie_word_embeddings": False}),
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
    assert difference(found, expected) < tolerance


EXPRESSED_BY = {
    **dict.fromkeys(("pre", "no attention", "neither", "sinusoidal", "no positions", "multi-query"), "gpt2"),
    **{"post": "opt", "rotary": "gpt-neox"},
    **dict.fromkeys(("no residual", "adaptive", "prefix", "relative", "bidirectional", "lstm")),
}
TOKENS = torch.tensor([[1, 4, 2, 7, 3, 3, 0, 5, 6, 1, 2, 8]])


def weighted(model: Transformer) -> Weighted:
    return Weighted(model.config, model.state_dict())


def rebuilt(model: Weighted, vocab_size: int) -> Transformer:
    made_again = Transformer(model.config, vocab_size).eval()
    made_again.load_state_dict(dict(model.weights))
    return made_again


def distance(one: Transformer, other: Transformer) -> float:
    with torch.inference_mode():
        first, second = one(TOKENS), other(TOKENS)
    return difference(second, first)


@pytest.mark.parametrize("name", OF_FORM)
def test_maps_of_names_and_keys_are_whole_and_their_own_inverse(name: str) -> None:
    model, form = of_form(name), all_forms()[name]
    said = form.said(weighted(model))
    rules = form.rules(said.config)
    ours = [rule.ours for rule in rules]
    theirs = [one for rule in rules for one in rule.theirs]
    assert len(set(ours)) == len(ours)
    assert len(set(theirs)) == len(theirs)
    assert set(ours) == {row.name for row in parameter_table(said.config, model.vocab_size)}
    there = exported(rules, said.weights)
    back = imported(rules, there, "here")
    assert all(back[key].equal(said.weights[key]) for key in ours)
    again = exported(rules, back)
    assert all(again[key].equal(there[key]) for key in theirs)
    assert all(said.weights[key].equal(tensor) for key, tensor in model.state_dict().items())
    config = {"tie_word_embeddings": said.config.tie_head, **form.write(said.config)}
    assert form.config(Settings(config, "config.json")).plain() == said.config.plain()


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_variant_is_the_same_function_in_a_form_or_refused_with_the_reason(variant: str) -> None:
    """And the first form that can express it is chosen."""
    model, able = made(variant), list[str]()
    for name, form in all_forms().items():
        said, reason = None, ""
        try:
            said = form.said(weighted(model))
        except UsageError as error:
            reason = str(error)
        if said is None:
            assert name in reason
            continue
        able.append(name)
        assert distance(model, rebuilt(said, model.vocab_size)) < 1e-5
        assert {rule.ours for rule in form.rules(said.config)} == said.weights.keys()
    assert variant not in EXPRESSED_BY or EXPRESSED_BY[variant] == next(iter(able), None)
    if able:
        assert first(all_forms().values(), weighted(model))[0].name == able[0]
        return
    with pytest.raises(UsageError):
        first(all_forms().values(), weighted(model))


@pytest.mark.parametrize("scale", ["none", "linear", 0.25, "learned", "learned-per-head"])
@pytest.mark.parametrize("into", ["gpt2", "gpt-neo"])
def test_every_scale_that_is_a_number_is_folded_into_the_queries(scale: str | float, into: str) -> None:
    config: dict[str, Any] = {"attention": {"scale": scale}, "bias": {"qkv": False}}
    model = made(config)
    said = all_forms()[into].said(weighted(model))
    attention = said.config.attention
    assert attention != "none"
    assert attention.scale == ("none" if into == "gpt-neo" else "sqrt")
    assert distance(model, rebuilt(said, model.vocab_size)) < 1e-5


def test_heads_that_are_no_power_of_two_have_other_slopes_in_mpt() -> None:
    three = Transformer(ModelConfig(d_model=15, num_heads=3, positions="alibi", bias=False), 9)
    with pytest.raises(UsageError, match="num_heads"):
        all_forms()["mpt"].said(weighted(three))


def test_biases_that_are_zero_are_no_biases_and_others_are_refused() -> None:
    config = {"d_model": 16, "num_heads": 2, "num_layers": 1, **ROTARY, "bias": True}
    model = Transformer(ModelConfig.parse(config), 9).eval()
    zero = {name: tensor * 0 if name.endswith("bias") else tensor for name, tensor in model.state_dict().items()}
    model.load_state_dict(zero)
    assert distance(model, rebuilt(all_forms()["mistral"].said(weighted(model)), 9)) < 1e-5
    with torch.no_grad():
        model.get_parameter("blocks.0.mlp.up.bias").add_(0.5)
    with pytest.raises(UsageError, match=r"bias\.feed_forward"):
        all_forms()["mistral"].said(weighted(model))


LIKE_LLAMA = {"norm_type": "rmsnorm", "feed_forward": "swiglu", "bias": False, "positions": "rotary", "d_head": 6}


@pytest.mark.parametrize(
    ("parts", "form", "key"),
    [
        (LIKE_LLAMA | {"attention": {"mask": {"name": "prefix", "length": 3}}}, "llama", "attention.mask"),
        ({"norm": "post", "feed_forward": "relu", "positions": "relative"}, "opt", "positions"),
        ({"positions": "rotary", "d_model": 24, "feed_forward": "swiglu"}, "gpt-neox", "feed_forward"),
    ],
)
def test_a_refusal_has_the_reason_of_the_nearest_form(parts: dict[str, Any], form: str, key: str) -> None:
    with pytest.raises(UsageError) as caught:
        first(all_forms().values(), weighted(made(parts)))
    told = str(caught.value)
    assert f"{form}: {key} = " in told
    assert sum(f"{name}: " in told for name in all_forms()) == 1
    assert str(len(all_forms()) - 1) in told
    assert len(told) < 250


@pytest.mark.parametrize("name", ["mistral", "gpt-neo"])
def test_windows_of_several_sizes_are_refused_by_forms_that_have_one_size(name: str) -> None:
    masks = {"name": "by-layer", "masks": [{"name": "window", "size": size} for size in (3, 5)]}
    plain = of_form(name).config.plain()
    plain |= {"num_layers": 2, "attention": plain["attention"] | {"mask": masks}}
    with pytest.raises(UsageError, match=r"attention\.windows = 2"):
        all_forms()[name].said(weighted(Transformer(ModelConfig.parse(plain), 11)))

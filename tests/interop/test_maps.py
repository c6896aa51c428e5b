"""The maps of names: bijective, whole, and of the same function."""

from typing import Any

import pytest
import torch
from foreign import OF_FORM, of_form
from variants import VARIANTS, made

from vitral.core.errors import UsageError
from vitral.interop import all_forms
from vitral.interop.foreign_settings import Settings
from vitral.interop.registry import chosen
from vitral.interop.rewrites import Weighted
from vitral.interop.rules import exported, imported
from vitral.model import ModelConfig, Transformer, parameter_table

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
    return float((first - second).abs().max() / first.abs().max())


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
        assert chosen("hf", weighted(model))[0].name == able[0]
        return
    with pytest.raises(UsageError):
        chosen("hf", weighted(model))


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
    model = Transformer(ModelConfig(d_model=16, num_heads=2, positions="alibi", num_layers=1, d_ff=64), 9).eval()
    zero = {name: tensor * 0 if name.endswith("bias") else tensor for name, tensor in model.state_dict().items()}
    model.load_state_dict(zero)
    assert distance(model, rebuilt(all_forms()["mpt"].said(weighted(model)), 9)) < 1e-5
    with torch.no_grad():
        model.get_parameter("blocks.0.mlp.up.bias").add_(0.5)
    with pytest.raises(UsageError, match=r"bias\.feed_forward"):
        all_forms()["mpt"].said(weighted(model))


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
        chosen("hf", weighted(made(parts)))
    told = str(caught.value)
    assert f"{form}: {key} = " in told
    assert sum(f"{name}: " in told for name in all_forms()) == 1
    assert str(len(all_forms()) - 1) in told
    assert "\n" not in told
    assert len(told) < 250


@pytest.mark.parametrize("name", ["mistral", "gpt-neo"])
def test_windows_of_several_sizes_are_refused_by_forms_that_have_one_size(name: str) -> None:
    masks = {"name": "by-layer", "masks": [{"name": "window", "size": size} for size in (3, 5)]}
    plain = of_form(name).config.plain()
    plain |= {"num_layers": 2, "attention": plain["attention"] | {"mask": masks}}
    with pytest.raises(UsageError, match=r"attention\.windows = 2"):
        all_forms()[name].said(weighted(Transformer(ModelConfig.parse(plain), 11)))

"""The maps of names: bijective, whole, and of the same function."""

import itertools
from typing import Any

import pytest
import torch
from foreign import OF_FORM, of_form
from variants import VARIANTS, made

from vitral.core.errors import UsageError
from vitral.interop import all_forms
from vitral.interop.registry import chosen
from vitral.interop.rewrites import Weighted
from vitral.interop.rules import exported, imported
from vitral.interop.settings import Settings
from vitral.model import ModelConfig, Transformer, parameter_table

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
def test_a_map_names_every_tensor_once_and_is_its_own_inverse(name: str) -> None:
    model, form = of_form(name), all_forms()[name]
    said = form.said(weighted(model))
    rules = form.rules(said.config)
    ours = [one for rule in rules for one in rule.ours]
    theirs = [one for rule in rules for one in rule.theirs]
    assert len(set(ours)) == len(ours)
    assert len(set(theirs)) == len(theirs)
    assert set(ours) == {row.name for row in parameter_table(said.config, model.vocab_size)}
    there = exported(rules, said.weights)
    back = imported(rules, there, "here")
    assert all(back[key].equal(said.weights[key]) for key in ours)
    again = exported(rules, back)
    assert all(again[key].equal(there[key]) for key in theirs)


@pytest.mark.parametrize("name", OF_FORM)
def test_a_model_that_a_form_says_as_it_is_stays_as_it_is(name: str) -> None:
    model, form = of_form(name), all_forms()[name]
    said = form.said(weighted(model))
    assert all(said.weights[key].equal(tensor) for key, tensor in model.state_dict().items())
    config = {"tie_word_embeddings": said.config.tie_head, **form.write(said.config)}
    assert form.config(Settings(config, "config.json")).plain() == said.config.plain()


@pytest.mark.parametrize("name", OF_FORM)
def test_gaps_and_leftovers_are_errors_with_the_names(name: str) -> None:
    form = all_forms()[name]
    said = form.said(weighted(of_form(name)))
    rules = form.rules(said.config)
    there = exported(rules, said.weights)
    gone = sorted(there)[3]
    with pytest.raises(UsageError, match=gone.replace(".", r"\.")):
        imported(rules, {key: tensor for key, tensor in there.items() if key != gone}, "here")
    with pytest.raises(UsageError, match="surplus"):
        imported(rules, there | {"surplus": there[gone]}, "here")
    with pytest.raises(UsageError):
        exported(rules, {key: tensor for key, tensor in said.weights.items() if "up" not in key})


@pytest.mark.parametrize(("variant", "name"), list(itertools.product(VARIANTS, OF_FORM)))
def test_every_variant_is_the_same_function_in_a_form_or_refused_with_the_reason(variant: str, name: str) -> None:
    model = made(variant)
    reason = ""
    try:
        said = all_forms()[name].said(weighted(model))
    except UsageError as error:
        said, reason = None, str(error)
    if said is None:
        assert name in reason
        return
    assert distance(model, rebuilt(said, model.vocab_size)) < 1e-5
    rules = all_forms()[name].rules(said.config)
    assert {one for rule in rules for one in rule.ours} == said.weights.keys()


EXPRESSED_BY = {
    "pre": "gpt2",
    "post": "opt",
    "no attention": "gpt2",
    "no feed-forward": "gpt2",
    "neither": "gpt2",
    "sinusoidal": "gpt2",
    "no positions": "gpt2",
    "multi-query": "gpt2",
    "no residual": None,
    "adaptive": None,
    "prefix": None,
    "relative": None,
    "bidirectional": None,
    "lstm": None,
}


@pytest.mark.parametrize(("variant", "form"), list(EXPRESSED_BY.items()))
def test_the_first_form_that_can_express_a_model_is_chosen(variant: str, form: str | None) -> None:
    if form is not None:
        assert chosen("hf", weighted(made(variant)))[0].name == form
        return
    with pytest.raises(UsageError):
        chosen("hf", weighted(made(variant)))


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
    three = Weighted(ModelConfig(d_model=15, num_heads=3, positions="alibi", bias=False), {})
    with pytest.raises(UsageError, match="num_heads"):
        all_forms()["mpt"].said(three)


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
@pytest.mark.parametrize("sizes", [(3, 3), (3, 5)])
def test_windows_of_several_sizes_are_refused_by_forms_that_have_one_size(name: str, sizes: tuple[int, ...]) -> None:
    masks = {"name": "by-layer", "masks": [{"name": "window", "size": size} for size in sizes]}
    plain = of_form(name).config.plain()
    plain |= {"num_layers": 2, "attention": plain["attention"] | {"mask": masks}}
    model = Transformer(ModelConfig.parse(plain), 11).eval()
    form = all_forms()[name]
    if len(set(sizes)) > 1:
        with pytest.raises(UsageError, match=r"attention\.windows = 2"):
            form.said(weighted(model))
        return
    written = form.write(form.said(weighted(model)).config)
    again = form.config(Settings(written, "config.json"))
    assert again.attention != "none"
    assert {getattr(again.attention.mask.of(layer), "size", None) for layer in range(2)} == set(sizes)

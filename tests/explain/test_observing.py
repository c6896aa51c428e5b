"""The walkthrough's numbers are the model's own, and its arithmetic comes to them."""

import itertools
import math

import numpy as np
import pytest
import torch

from vitral.attention import MultiHeadAttention
from vitral.core.errors import UsageError
from vitral.core.streams import torch_stream
from vitral.data import CorpusConfig, Tokenizer, build_tokenizer
from vitral.explain import Step, walk_attention
from vitral.explain.scene import set_scene
from vitral.model import ModelConfig, Transformer

TEXT = "abBda"
STEPS = ["q", "k", "v", "scores", "scaled", "masked", "weights", "z", "out"]
SIZES = {"d_model": 24, "num_layers": 2, "num_heads": 6, "context_length": 23}


def tokenizer() -> Tokenizer:
    return build_tokenizer(CorpusConfig(), "abBd", [])


def model(**changes) -> Transformer:
    made = Transformer(ModelConfig.parse({**SIZES, **changes}), 5, seed=3)
    with torch.no_grad():
        for name, parameter in made.named_parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=torch_stream(5, name)))
    return made.double().eval()


def steps_of(made: Transformer, text: str = TEXT, **arguments) -> dict[str, Step]:
    return {step.name: step for step in walk_attention(made, tokenizer(), text, **arguments).steps}


def worth(written: str) -> float:
    """What a line of arithmetic comes to, read as a person would read it."""
    plain = written.replace("−", "-").replace("·", "*").replace("∞", "inf").replace("+ … (", "+ (")
    for count in range(1, 100):
        for terms in (f"({count} more terms: ", f"({count} more term: "):
            plain = plain.replace(terms, "(")
    return eval(plain, {"__builtins__": {}}, {"exp": math.exp, "inf": math.inf})


VARIANTS = {
    "plain": {},
    "post-norm": {"norm": "post"},
    "no scale": {"attention": {"scale": "none"}},
    "linear": {"attention": {"scale": "linear"}},
    "a number": {"attention": {"scale": 0.3}},
    "adaptive": {"attention": {"scale": "adaptive"}},
    "learned": {"attention": {"scale": "learned"}},
    "per head": {"attention": {"scale": "learned-per-head"}},
    "alibi": {"positions": "alibi"},
    "relative": {"positions": "relative", "attention": {"scale": "adaptive", "mask": "bidirectional"}},
    "rotary": {"positions": "rotary"},
    "one key-value head": {"num_kv_heads": 1},
    "three key-value heads, rotary": {"num_kv_heads": 3, "positions": "rotary", "bias": False},
    "window": {"attention": {"mask": {"name": "window", "size": 2}}},
    "prefix": {"attention": {"mask": {"name": "prefix", "length": 3}}},
    "no biases": {"bias": False},
}
CELLS = [None, (2, 4), (0, 0), (4, 1)]


@pytest.mark.parametrize(("variant", "layer", "head"), list(itertools.product(VARIANTS, [0, 1], [0, 3])))
def test_every_matrix_is_the_traces(variant: str, layer: int, head: int) -> None:
    made = model(**VARIANTS[variant])
    steps = steps_of(made, layer=layer, head=head)
    assert list(steps) == STEPS
    names = [f"blocks.{layer}.attn.{name}" for name in STEPS]
    trace = made.trace(torch.from_numpy(tokenizer().encode(TEXT))[None], names)
    for name, step in steps.items():
        value = trace[f"blocks.{layer}.attn.{name}"][0]
        if name in ("k", "v"):
            value = value.repeat_interleave(6 // len(value), dim=0)
        expected = value if name == "out" else value[head]
        np.testing.assert_array_equal(np.array(step.matrix), expected.numpy())
        assert (len(step.row_labels), len(step.column_labels)) == expected.shape


@pytest.mark.parametrize(("variant", "cell"), list(itertools.product(VARIANTS, CELLS)))
def test_the_arithmetic_as_written_comes_to_its_cell(variant: str, cell: tuple[int, int] | None) -> None:
    made = model(**VARIANTS[variant])
    for step in steps_of(made, layer=1, head=3, cell=cell).values():
        row, column = step.cell
        told = step.arithmetic
        assert told.value == step.matrix[row][column]
        assert told.target == f"{step.name}[{row}, {column}]"
        exponent, *quotient = told.working.lines(12)
        if step.name == "weights":
            above = quotient[0].partition(" / ")[0]
            assert worth(exponent.removesuffix(" / Σ")) == pytest.approx(float(above), abs=1e-9)
        written = quotient[0] if quotient else exponent
        assert worth(written) == pytest.approx(told.value, abs=1e-8)


@pytest.mark.parametrize("cell", [(4, 3), (2, 0)])
def test_a_model_in_single_precision_is_shown_as_it_is(cell: tuple[int, int]) -> None:
    made = model(positions="alibi", attention={"scale": "adaptive"}).float()
    trace = made.trace(torch.from_numpy(tokenizer().encode(TEXT))[None])
    for name, step in steps_of(made, head=2, cell=cell).items():
        value = trace[f"blocks.0.attn.{name}"][0]
        assert step.arithmetic.value == float((value if name == "out" else value[2])[step.cell])
        written = step.arithmetic.working.lines(12)[-1]
        assert worth(written) == pytest.approx(step.arithmetic.value, abs=1e-4)


@pytest.mark.parametrize("variant", VARIANTS)
def test_scale_and_bias_are_those_between_the_steps(variant: str) -> None:
    for head, row in itertools.product([0, 5], [0, 3]):
        scene = set_scene(model(**VARIANTS[variant]), tokenizer(), TEXT, 0, head, (row, 0))
        scores, scaled, masked = (scene.steps[name][row] for name in ("scores", "scaled", "masked"))
        np.testing.assert_allclose(scores * scene.factor, scaled, rtol=1e-12)
        bias = torch.zeros(5, 5) if scene.bias is None else scene.bias
        seen = masked > -math.inf
        np.testing.assert_allclose((scaled + bias[row])[seen], masked[seen], rtol=1e-12)


def first_attention(made: Transformer) -> MultiHeadAttention:
    attention = made.get_submodule("blocks.0.attn")
    assert isinstance(attention, MultiHeadAttention)
    return attention


def integers() -> Transformer:
    """x of a is (1, 0) and of b (0, 1); q is (1, 2) and (0, 1), k (1, 0) and (1, 3), v (9, 0) and (0, 18)."""
    changes = {"d_model": 2, "num_layers": 1, "num_heads": 1, "context_length": 3}
    parts = {"norm": "none", "positions": "none", "feed_forward": "none", "bias": False}
    made = Transformer(ModelConfig.parse({**changes, **parts, "attention": {"scale": math.log(2)}}), 5).double().eval()
    with torch.no_grad():
        made.token_embedding.weight[1:3] = torch.eye(2)
        projections = [[1, 2], [0, 1]], [[1, 0], [1, 3]], [[9, 0], [0, 18]]
        attention = first_attention(made)
        attention.in_proj.weight.copy_(torch.cat([torch.tensor(matrix).T for matrix in projections]))
        attention.out_proj.weight.copy_(torch.tensor([[1, 0], [1, 1]]))
    return made


def test_a_model_of_small_integers_can_be_followed_by_hand() -> None:
    letters = build_tokenizer(CorpusConfig(), "abcd", [])
    walk = walk_attention(integers(), letters, "ab", cell=(1, 1))
    told = {step.name: step.arithmetic.lines(3)[1:] for step in walk.steps}
    assert told == {
        "q": ("0.000·1.000 + 1.000·0.000", "0.000"),
        "k": ("0.000·1.000 + 1.000·1.000", "1.000"),
        "v": ("0.000·9.000 + 1.000·0.000", "0.000"),
        "scores": ("0.000·1.000 + 1.000·3.000", "3.000"),
        "scaled": ("3.000·0.693", "2.079"),  # 3 ln 2
        "masked": ("2.079",),
        "weights": ("exp(2.079 − 2.079) / Σ", "1.000 / (0.125 + 1.000)", "0.889"),  # 2⁰ and 2³ of 9
        "z": ("0.889·0.000 + 0.111·9.000", "1.000"),  # (1, 16)
        "out": ("1.000·1.000 + 16.000·0.000", "1.000"),
    }
    assert walk.steps[3].matrix == ((1, 7), (0, 3))
    np.testing.assert_allclose(walk.steps[7].matrix, [[9, 0], [1, 16]], rtol=1e-12)
    np.testing.assert_allclose(walk.steps[8].matrix, [[9, 9], [1, 17]], rtol=1e-12)
    assert walk.steps[5].matrix[0][1] == -math.inf


SENTENCES = [
    ({}, "scaled", "1/√d_k = 1/√4 = 0.500"),
    ({"attention": {"scale": "none"}}, "scaled", "does not scale"),
    ({"attention": {"scale": "linear"}}, "scaled", "1/d_k = 1/4 = 0.250"),
    ({"attention": {"scale": 0.3}}, "scaled", "says to multiply every score by 0.300"),
    ({"attention": {"scale": "adaptive"}}, "scaled", "1/σ of those it may see"),
    ({"attention": {"scale": "learned"}}, "scaled", "has learned to multiply by"),
    ({"attention": {"scale": "learned-per-head"}}, "scaled", "This head has learned"),
    ({"positions": "alibi"}, "masked", "For a distance of 3, ALiBi's penalty adds −0.472"),  # 3 · 2^(-8/3)
    ({"positions": "relative"}, "masked", "For a distance of 3, the bias this head has learned adds"),
    ({}, "masked", "Position 4 (a) may see all 5."),
    ({"positions": "rotary"}, "q", "shown after turning"),
    ({"positions": "rotary"}, "k", "shown after turning"),
    ({"num_kv_heads": 3}, "k", "Heads 0 and 1 share these keys"),
    ({"num_kv_heads": 2}, "v", "Heads 0 to 2 share these values"),
]


@pytest.mark.parametrize(("changes", "name", "words"), SENTENCES)
def test_sentences_say_what_this_model_does(changes: dict, name: str, words: str) -> None:
    made = model(**changes)
    step = steps_of(made, head=1 if name in ("masked", "k", "v") else 0, cell=(4, 1))[name]
    if "ALiBi" in words:
        step = steps_of(made, head=1, cell=(4, 1))[name]
    assert words in step.sentence
    assert ("bias" in step.formula) == (name == "masked" and changes.get("positions") in ("alibi", "relative"))


def test_only_what_applies_is_said() -> None:
    rotary = steps_of(model(positions="rotary"))
    assert "turning" not in rotary["v"].sentence
    assert "turn" not in rotary["v"].formula
    assert "share" not in rotary["k"].sentence
    plain = steps_of(model(bias=False))
    assert not any("+ b" in plain[name].formula + plain[name].arithmetic.rule for name in ("q", "k", "v", "out"))


def test_a_pair_that_may_not_look_is_told_as_such() -> None:
    steps = steps_of(model(), cell=(1, 3))
    assert "may see 2 of 5 positions" in steps["masked"].sentence
    assert steps["masked"].arithmetic.lines(1)[0] == "scaled[1, 3] − ∞, not allowed"
    assert steps["masked"].arithmetic.lines(1)[-1] == "−∞"
    assert "takes nothing from position 3 (d)" in steps["weights"].sentence
    assert steps["weights"].arithmetic.value == 0
    assert "gathers the values of 2 positions" in steps["z"].sentence
    assert "itself alone" in steps_of(model(), cell=(0, 0))["z"].sentence


def test_labels_keep_their_letters_at_the_beginning_of_a_sentence() -> None:
    steps = steps_of(model(), cell=(2, 0))
    assert steps["masked"].sentence.startswith("Position 2 (B) ")
    assert steps["weights"].row_labels == ("0 a", "1 b", "2 B", "3 d", "4 a")


def test_without_a_cell_the_last_position_meets_the_key_it_weighs_most() -> None:
    weights = steps_of(model())["weights"]
    assert weights.cell[0] == 4
    assert weights.arithmetic.value == max(weights.matrix[4])


def test_scores_of_zero_have_a_scale_too() -> None:
    made = model(bias=False)
    torch.nn.init.zeros_(first_attention(made).in_proj.weight)
    for step in steps_of(made).values():
        assert "nan" not in step.sentence + step.arithmetic.line()
    assert steps_of(made)["scaled"].arithmetic.line(2).endswith("= 0.00·0.50 = 0.00")


def test_a_model_in_training_is_shown_as_it_is_used_and_left_in_training() -> None:
    made = model(dropout=0.5)
    expected = walk_attention(made, tokenizer(), TEXT)
    made.train()
    assert walk_attention(made, tokenizer(), TEXT) == expected
    assert made.training
    assert first_attention(made).training
    assert not first_attention(made).in_proj._forward_hooks


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ({"text": ""}, "text is empty"),
        ({"text": "ab" * 12}, "24 tokens, but the model's context holds 23"),
        ({"text": "é"}, r"U\+00E9"),
        ({"layer": 2}, "no block 2; the model has 2"),
        ({"layer": -1}, "no block -1"),
        ({"head": 6}, "no head 6; a block has 6"),
        ({"head": -1}, "no head -1"),
        ({"cell": (0, 5)}, "outside"),
        ({"cell": (-1, 0)}, "outside"),
    ],
)
def test_what_is_not_there_is_named_in_one_line(arguments: dict, line: str) -> None:
    with pytest.raises(UsageError, match=line) as caught:
        walk_attention(model(), tokenizer(), **{"text": TEXT, **arguments})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("num_layers", [0, 2])
def test_a_model_without_attention_is_named(num_layers: int) -> None:
    with pytest.raises(UsageError, match="without attention"):
        walk_attention(model(attention="none", num_layers=num_layers), tokenizer(), TEXT)

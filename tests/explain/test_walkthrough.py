"""The walkthrough's numbers are the model's own, and its arithmetic adds up."""

import itertools
import math
import re

import numpy as np
import pytest
import torch

from vitral.core.errors import UsageError
from vitral.core.streams import torch_stream
from vitral.data import CorpusConfig, Tokenizer, build_tokenizer
from vitral.explain import to_sections, to_text, walk_attention
from vitral.figures.html import page
from vitral.model import ModelConfig, Transformer

TEXT = "abcdb"
STEPS = ["q", "k", "v", "scores", "scaled", "masked", "weights", "z", "out"]
SIZES = {"d_model": 12, "num_layers": 2, "num_heads": 3, "context_length": 23}


def tokenizer() -> Tokenizer:
    return build_tokenizer(CorpusConfig(), "abcd", [])


def model(**changes) -> Transformer:
    made = Transformer(ModelConfig.parse({**SIZES, **changes}), 5, seed=3)
    with torch.no_grad():
        for name, parameter in made.named_parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=torch_stream(5, name)))
    return made.double().eval()


VARIANTS = {
    "plain": {},
    "post-norm": {"norm": "post"},
    "no scale": {"attention": {"scale": "none"}},
    "adaptive": {"attention": {"scale": "adaptive"}},
    "per head": {"attention": {"scale": "learned-per-head"}},
    "alibi": {"positions": "alibi"},
    "relative": {"positions": "relative"},
    "rotary": {"positions": "rotary"},
    "one key-value head": {"num_kv_heads": 1},
    "window": {"attention": {"mask": {"name": "window", "size": 2}}},
    "no biases": {"bias": False},
}


@pytest.mark.parametrize(("variant", "layer", "head"), list(itertools.product(VARIANTS, [0, 1], [0, 2])))
def test_every_matrix_is_the_traces(variant: str, layer: int, head: int) -> None:
    made = model(**VARIANTS[variant])
    walk = walk_attention(made, tokenizer(), TEXT, layer=layer, head=head)
    assert [step.name for step in walk.steps] == STEPS
    trace = made.trace(torch.from_numpy(tokenizer().encode(TEXT))[None])
    for step in walk.steps:
        value = trace[f"blocks.{layer}.attn.{step.name}"][0]
        if step.name != "out":
            value = value[head if value.shape[0] == 3 else 0]
        np.testing.assert_allclose(np.array(step.matrix), value.numpy(), rtol=1e-12, atol=1e-13)
        assert step.arithmetic.value == step.matrix[step.cell[0]][step.cell[1]]


@pytest.mark.parametrize("variant", VARIANTS)
def test_written_sums_add_up_to_their_cell(variant: str) -> None:
    made = model(**VARIANTS[variant])
    for step in walk_attention(made, tokenizer(), TEXT).steps:
        working = step.arithmetic.working.replace("−", "-")
        if "more" in working or not re.fullmatch(r"[-\d.·+ ]+", working) or step.name in ("q", "k", "v", "out"):
            continue  # sums that are cut, and those with a bias beside them
        total = sum(math.prod(float(factor) for factor in term.split("·")) for term in working.split(" + "))
        assert total == pytest.approx(step.arithmetic.value, abs=0.02 * (1 + abs(step.arithmetic.value)))


def test_a_long_sum_says_how_many_terms_are_left_out() -> None:
    steps = {step.name: step for step in walk_attention(model(), tokenizer(), TEXT).steps}
    assert steps["out"].arithmetic.working.endswith("… (8 more)")  # 12 terms, 4 written
    assert steps["scores"].arithmetic.working.count("·") == 4  # d_head is 4: nothing is left out
    assert "more" not in steps["scores"].arithmetic.working


def test_a_long_text_is_cut_to_its_end_and_says_so() -> None:
    walk = walk_attention(model(), tokenizer(), TEXT * 4)
    assert "Of its 20 positions those from" in walk.intro
    scores = walk.steps[3]
    assert scores.row_labels[-1] == "19 b"
    assert len(scores.matrix) == len(scores.matrix[0]) == len(scores.row_labels)
    assert walk.steps[3].arithmetic.value == scores.matrix[scores.cell[0]][scores.cell[1]]


def test_text_and_page_show_the_same_numbers() -> None:
    walk = walk_attention(model(), tokenizer(), TEXT, layer=1, head=1)
    text, html = to_text(walk), page("x", to_sections(walk))
    for step in walk.steps:
        for value in step.matrix[0][:5]:
            shown = "−∞" if math.isinf(value) else f"{value:.3f}".replace("-", "−")
            assert shown in text
            assert shown in html


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ({"text": ""}, "0 tokens"),
        ({"text": "ab" * 12}, "24 tokens"),
        ({"text": "é"}, r"U\+00E9"),
        ({"layer": 2}, "no block 2"),
        ({"layer": -1}, "no block -1"),
        ({"head": 3}, "no head 3"),
        ({"cell": (0, 5)}, "outside"),
    ],
)
def test_what_is_not_there_is_named(arguments: dict, line: str) -> None:
    with pytest.raises(UsageError, match=line):
        walk_attention(model(), tokenizer(), **{"text": TEXT, **arguments})
    with pytest.raises(UsageError, match="without attention"):
        walk_attention(model(attention="none"), tokenizer(), TEXT)

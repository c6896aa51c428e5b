"""Decoding in a page is `vitral.decoding`: the same kept tokens, probabilities, draws and beams."""

import math
from itertools import product
from typing import Any

import pytest
import torch
from browser import in_node, needs_web
from pages import mulberry32
from torch import Tensor
from variants import TOKENIZER, made

from vitral.decoding import GenerateOptions, Sampling, beam_search, choose, distribution
from vitral.decoding import sampling as filters

pytestmark = [pytest.mark.merge, needs_web]
MODULES = ("page/decoding/filters", "page/decoding/draw", "page/decoding/beam", "page/decoding/generation")
CLOSE = 1e-6
SETTINGS: list[dict[str, Any]] = [
    {"temperature": temperature, "top_k": top_k, "top_p": top_p, "min_p": min_p}
    for temperature, top_k, top_p, min_p in product((0.0, 0.4, 1.0), (None, 1, 3), (None, 0.1, 0.8, 1.0), (None, 0.2))
]


def rows() -> list[Tensor]:
    """Logits of every kind: far apart, near, equal, impossible, so that sums of probabilities hit a limit exactly."""
    torch.manual_seed(4)
    equal = torch.zeros(10)
    ties = torch.tensor([1.0, 3, 3, 1, 0, 3, 1, 1, -2, 0])
    impossible = torch.randn(10).index_fill(0, torch.tensor([0, 4, 9]), -math.inf)
    quarters = torch.tensor([0.5, 0.25, 0.125, 0.125, 1e-30, 1e-30, 1e-30, 1e-30, 1e-30, 1e-30]).log()
    drawn = [torch.randn(10) * scale for scale in (0.01, 1, 1, 3, 20, 3000) for _ in range(2)]
    return [equal, ties, impossible, quarters, *drawn]


def written(logits: Tensor) -> list[Any]:
    return [each if math.isfinite(each) else str(each) for each in logits.tolist()]


FILTERED = """
const logits = given.logits.map(Number).map((each, place) => (given.logits[place] === "-inf" ? -Infinity : each));
return given.settings.map((sampling) => ({
  distribution: Array.from(vitral.distribution(logits, sampling, given.forbidden)),
  steps: vitral.filtered(logits, sampling, given.forbidden).map(({ probabilities, cut, left }) => (
    { probabilities: Array.from(probabilities), cut, left })),
}));
"""


def in_steps(logits: Tensor, sampling: Sampling, forbidden: list[int]) -> list[Tensor]:
    """The logits after each step of `distribution`, one at a time."""
    now = filters.forbid(logits.double()[None], forbidden)
    steps = [now]
    heat = sampling.temperature
    steps.append(filters.keep_top_k(now, 1) if heat == 0 else filters.apply_temperature(now, heat))
    steps.append(steps[-1] if sampling.top_k is None else filters.keep_top_k(steps[-1], sampling.top_k))
    steps.append(steps[-1] if sampling.top_p is None else filters.keep_top_p(steps[-1], sampling.top_p))
    steps.append(steps[-1] if sampling.min_p is None else filters.keep_min_p(steps[-1], sampling.min_p))
    return [step[0] for step in steps]


def test_every_filter_keeps_the_same_tokens_with_the_same_probabilities() -> None:
    forbidden = [5]
    cases = [{"logits": written(each), "settings": SETTINGS, "forbidden": forbidden} for each in rows()]
    for logits, found in zip(rows(), in_node(FILTERED, cases, *MODULES), strict=True):
        for settings, told in zip(SETTINGS, found, strict=True):
            sampling = Sampling(**settings)
            expected = distribution(logits[None], sampling, forbidden=forbidden)[0]
            require_equal(told["distribution"], expected)
            before: Tensor | None = None
            for step, after in zip(told["steps"], in_steps(logits, sampling, forbidden), strict=True):
                require_equal(step["probabilities"], torch.softmax(after, -1))
                if before is not None:
                    cut = (before > -math.inf) & (after == -math.inf)
                    assert sorted(step["cut"]) == cut.nonzero()[:, 0].tolist()
                    left = float(torch.softmax(before, -1)[~cut].sum())
                    assert math.isclose(step["left"], left, abs_tol=CLOSE)
                before = after
            assert told["distribution"] == told["steps"][-1]["probabilities"]


def require_equal(found: list[float], expected: Tensor) -> None:
    told = torch.tensor(found, dtype=torch.float64)
    assert torch.equal(told > 0, expected > 0)
    torch.testing.assert_close(told, expected, rtol=0, atol=CLOSE)


CHOSEN = "return given.numbers.map((u) => vitral.choose(given.probabilities, u));"


def test_a_number_draws_the_same_token() -> None:
    torch.manual_seed(9)
    numbers = [0.0, 0.25, 0.5, 0.75, 0.125, 1 - 2**-53, *torch.rand(200, dtype=torch.float64).tolist()]
    tables = [
        torch.tensor([0.0, 0.25, 0.0, 0.25, 0.5, 0.0], dtype=torch.float64),
        torch.tensor([0.0, 1.0, 0.0], dtype=torch.float64),
        *(torch.softmax(torch.randn(40, dtype=torch.float64) * 3, -1) for _ in range(5)),
        torch.tensor([0.125, 0.125], dtype=torch.float64),  # of any total
    ]
    cases = [{"probabilities": each.tolist(), "numbers": numbers} for each in tables]
    for table, found in zip(tables, in_node(CHOSEN, cases, *MODULES), strict=True):
        many = table[None].expand(len(numbers), -1)
        assert found == choose(many, torch.tensor(numbers, dtype=torch.float64)).tolist()


UNIFORM = "return given.seeds.map((seed) => Array.from({ length: given.count }, (_, t) => vitral.uniform(seed, t)));"


def test_the_numbers_of_a_seed_are_those_of_its_generator() -> None:
    seeds = [0, 1, 1234, 2**31, 2**32 - 1]
    (found,) = in_node(UNIFORM, [{"seeds": seeds, "count": 500}], *MODULES)
    assert found == [[mulberry32(seed, turn) for turn in range(500)] for seed in seeds]


GROWN = """
const after = (each, length) => given.logits[length][each.parent ? each.token : given.start];
let live = [vitral.ROOT];
const generations = [];
for (let length = 0; length < given.length; length++) {
  live = vitral.grow(live, live.map((each) => after(each, length)), given.beams, given.forbidden);
  generations.push(live.map((each) => ({ tokens: vitral.tokensOf(each), score: each.score })));
}
return generations;
"""


def test_beams_are_those_of_beam_search() -> None:
    # Without attention the logits depend on the last token and its position: a table.
    model = made({"num_layers": 0})
    with torch.no_grad():
        model.token_embedding.weight[4] = model.token_embedding.weight[3]  # equal beams
        model.head_weight[6] = model.head_weight[5]
        every = torch.arange(model.vocab_size)[:, None].expand(-1, model.config.context_length)
        table = model(every).transpose(0, 1)
    for beams, length in product((1, 2, 5), (1, 4, 12)):
        prompt = TOKENIZER.decode([3])
        samples = beam_search(
            model, TOKENIZER, prompt, max_tokens=length, num_beams=beams, options=GenerateOptions(num_samples=beams)
        )
        given = {"logits": table.tolist(), "start": 3, "forbidden": list(TOKENIZER.specials)}
        given |= {"length": length, "beams": beams}
        (generations,) = in_node(GROWN, [given], *MODULES)
        assert [each["tokens"] for each in generations[-1]] == [list(sample.tokens) for sample in samples]
        for mine, sample in zip(generations[-1], samples, strict=True):
            assert sample.score is not None
            assert math.isclose(mine["score"], sample.score, rel_tol=CLOSE)

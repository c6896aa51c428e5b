"""The ids that C chooses are those of the plain way, except where rounding may decide.

A number drawn within 1e-5 of a border of the float64 cumulated distribution, and a greedy choice with a margin below
1e-5, may fall on either side. Such samples are counted.
"""

import os
import random
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from variants import BASE, GENERATED, TOKENIZER, enlarged, made

from vitral.core.errors import UsageError
from vitral.decoding import GREEDY, GenerateOptions, Sampling, distribution, generate, uniforms
from vitral.decoding.reader import Reader, window_start
from vitral.model import ModelConfig, Transformer
from vitral.model.native import native_step

FULL = os.environ.get("VITRAL_FULL") == "1"
MODELS, MOST_NEAR = (4000, 10) if FULL else (len(GENERATED), 2)
NEAR = 1e-5


@dataclass(frozen=True)
class Case:
    """A model, and how a batch of samples is drawn from it."""

    model: Transformer
    variant: str
    prompt: str
    rows: int
    length: int
    sampling: Sampling
    seed: int


def drawn(number: int) -> Case:
    """The case of this number: its model, prompt, rows, length and settings."""
    draw = random.Random(number)
    variant = list(GENERATED)[number % len(GENERATED)]
    sizes: dict[str, Any] = dict(BASE)
    if "d_model" not in GENERATED[variant] and "d_head" not in GENERATED[variant] and draw.random() < 0.3:
        sizes |= {"d_model": draw.choice([48, 50]), "context_length": draw.choice([1, 2, 5, 31]), "d_ff": 40}
        sizes["d_head"] = draw.choice([16, 127])
    config = ModelConfig.parse(sizes | GENERATED[variant])
    model = enlarged(Transformer(config, TOKENIZER.vocab_size, seed=number).eval(), number)
    with torch.no_grad():  # logits of a trained model's size
        model.head_weight.mul_(0.6)
    prompt = "".join(draw.choices(TOKENIZER.alphabet, k=draw.randint(0, config.context_length)))
    sampling = Sampling(
        temperature=draw.choice([0.0, 0.5, 0.8, 1.0, 1.3]),
        top_k=draw.choice([None, None, 1, 3, 8, TOKENIZER.vocab_size]),
        top_p=draw.choice([None, None, 0.3, 0.9]),
        min_p=draw.choice([None, None, 0.05]),
        repetition_penalty=draw.choice([1.0, 1.0, 1.3]),
    )
    length = draw.randint(1, 3 * config.context_length)
    return Case(model, variant, prompt, draw.choice([1, 1, 2, 3, 6]), length, sampling, draw.randrange(1000))


def ids_of(case: Case) -> list[list[int]]:
    settings = {"max_tokens": case.length, "sampling": case.sampling, "seed": case.seed}
    options = GenerateOptions(num_samples=case.rows)
    samples = generate(case.model, TOKENIZER, [case.prompt], **settings, options=options)
    return [list(sample.tokens) for sample in samples]


def is_near(case: Case, row: int, before: list[int]) -> bool:
    """Whether rounding may decide the choice after these ids, by the model and the distribution in float64."""
    prompt = [int(token) for token in TOKENIZER.encode(case.prompt)] or [TOKENIZER.start]
    begin = 0
    for length in range(len(prompt), len(prompt) + len(before) + 1):
        begin = window_start(begin, length, case.model.config.context_length)
    history = torch.tensor([prompt + before])
    with torch.inference_mode():
        logits = case.model.double()(history[:, begin:])[:, -1]
    case.model.float()
    if case.sampling.temperature == 0:
        first, second = logits.index_fill(1, torch.tensor(TOKENIZER.specials), -torch.inf).topk(2).values[0].tolist()
        return first - second < NEAR
    probabilities = distribution(logits, case.sampling, history=history, forbidden=TOKENIZER.specials)
    number = uniforms(case.seed, row).random(len(before) + 1)[-1]
    return float((probabilities.cumsum(-1) - number).abs().min()) < NEAR


@pytest.mark.usefixtures("used")
def test_ids_are_those_of_the_plain_way(monkeypatch: pytest.MonkeyPatch) -> None:
    samples = near = 0
    for number in range(MODELS):
        case = drawn(number)
        assert not isinstance(native_step(case.model), str)
        found = ids_of(case)
        with monkeypatch.context() as patch:
            patch.setenv("VITRAL_NATIVE", "0")
            expected = ids_of(case)
        samples += len(found)
        for row, (mine, theirs) in enumerate(zip(found, expected, strict=True)):
            if mine != theirs:
                place = next(i for i, (a, b) in enumerate(zip(mine, theirs, strict=True)) if a != b)
                assert is_near(case, row, theirs[:place]), (number, case.variant, row, place, case.sampling)
                near += 1
    print(f"{samples} samples of {MODELS} models, {near} where rounding decides")
    assert near <= MOST_NEAR


@pytest.mark.usefixtures("used")
def test_together_equals_alone_and_one_by_one() -> None:
    model = made("pre")
    rows = torch.randint(TOKENIZER.vocab_size, (5, 3), generator=torch.Generator().manual_seed(1))
    numbers = torch.from_numpy(np.random.default_rng(2).random((5, 40)))
    together, alone = Reader(model, rows), [Reader(model, rows[row : row + 1]) for row in range(5)]
    done = 0
    while done < 40:
        count = together.ready(min(3, 40 - done))
        some = numbers[:, done : done + count]
        chosen = together.draw(some)
        for row, reader in enumerate(alone):
            one_by_one = [reader.draw(some[row : row + 1, place : place + 1]) for place in range(count)]
            assert torch.equal(torch.cat(one_by_one, dim=1)[0], chosen[row])
        done += count


@pytest.mark.usefixtures("used")
@pytest.mark.parametrize("limit", [{}, {"temperature": 0.0}, {"top_k": 4}, {"top_p": 0.5}, {"repetition_penalty": 1.3}])
def test_of_equal_logits_the_lower_id_comes_first(limit: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    model = made({"bias": {"head": True}})
    assert model.head_bias is not None
    with torch.no_grad():  # a product with other weights may be rounded otherwise in each column; zeros have equal sums
        model.head_weight.zero_()
        model.head_bias.copy_(torch.arange(TOKENIZER.vocab_size) % 2)
    case = Case(model, "", "", 5, 20, Sampling(**limit), 1)
    found = ids_of(case)
    monkeypatch.setenv("VITRAL_NATIVE", "0")
    assert found == ids_of(case)


def refused(model: Transformer, sampling: Sampling, monkeypatch: pytest.MonkeyPatch) -> str:
    """What both ways say."""
    said = []
    for switch in ("1", "0"):
        monkeypatch.setenv("VITRAL_NATIVE", switch)
        with pytest.raises(UsageError) as caught:
            generate(model, TOKENIZER, ["ab"], max_tokens=30, sampling=sampling)
        said.append(str(caught.value))
    assert said[0] == said[1]
    return said[0]


@pytest.mark.usefixtures("used")
def test_what_cannot_be_chosen_is_refused_in_the_same_words(monkeypatch: pytest.MonkeyPatch) -> None:
    for damage in (float("nan"), float("inf")):
        model = drawn(0).model
        with torch.no_grad():
            model.head_weight[4] = damage
        assert "damaged" in refused(model, Sampling(), monkeypatch)
        assert "damaged" in refused(model, GREEDY, monkeypatch)
    impossible = made({"bias": {"head": True}})
    assert impossible.head_bias is not None
    with torch.no_grad():
        impossible.head_bias.fill_(-float("inf"))
    assert "no token is left" in refused(impossible, Sampling(), monkeypatch)
    large = drawn(0).model
    with torch.no_grad():
        large.head_weight.mul_(1e30)
    assert "overflow" in refused(large, Sampling(repetition_penalty=1e-300), monkeypatch)

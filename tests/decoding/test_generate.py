"""Generation: the same text alone or together, streamed or whole, cached or not, and far past the context."""

from dataclasses import replace
from typing import Any

import jaxtyping
import pytest
import torch
from pieces import Pieces, letters
from small_models import attentive, table

from vitral.core.errors import UsageError
from vitral.decoding import (
    GREEDY,
    GenerateOptions,
    Sample,
    Sampling,
    beam_search,
    choose,
    distribution,
    generate,
    stream,
    uniforms,
)

CONTEXT = 7
PAST = 3 * CONTEXT + 2
WARM = Sampling(temperature=1.3, top_p=0.97, repetition_penalty=1.1)
VARIANTS = {
    "causal": {},
    "rotary": {"positions": "rotary", "attention": {"mask": "causal"}},
    "alibi": {"positions": "alibi"},
    "window": {"attention": {"mask": {"name": "window", "size": 3}}, "positions": "sinusoidal"},
    "prefix": {"attention": {"mask": {"name": "prefix", "length": 5}}},
    "prefix of the whole context": {"attention": {"mask": {"name": "prefix", "length": CONTEXT}}},
    "prefix beyond the context": {"attention": {"mask": {"name": "prefix", "length": CONTEXT + 2}}},
    "bidirectional": {"attention": {"mask": "bidirectional"}},
    "none": {"attention": "none"},
}


CYCLE = [[0.0, 9.0, 0.0], [0.0, 0.0, 9.0], [9.0, 0.0, 0.0]]
"""Of a model that writes a, b, c, a …"""


def by_the_definition(model: Any, prompt: list[int], max_tokens: int, sampling: Sampling, seed: int) -> list[int]:
    """One sample as the documentation tells it: everything recomputed, one token at a time."""
    window, history, numbers = list(prompt), list(prompt), uniforms(seed, 0)
    for _ in range(max_tokens):
        with torch.inference_mode():
            logits = model.eval()(torch.tensor([window]))[:, -1]
        probabilities = distribution(logits, sampling, history=torch.tensor([history]), forbidden=[10])
        token = int(choose(probabilities, torch.tensor([numbers.random()], dtype=torch.float64)))
        window, history = [*window, token], [*history, token]
        if len(window) > CONTEXT:
            window = window[-(CONTEXT // 2) :]
    return history[len(prompt) :]


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("prompt", ["a", "abcdefg"])
def test_cached_uncached_streamed_and_defined_are_one(variant: str, prompt: str) -> None:
    model, tokenizer = attentive(**VARIANTS[variant]), letters(11, specials=(10,))
    settings = {"max_tokens": PAST, "sampling": WARM, "seed": 4}
    cached = generate(model, tokenizer, [prompt], **settings)
    assert cached == generate(model, tokenizer, [prompt], **settings, options=GenerateOptions(use_cache=False))
    assert "".join(stream(model, tokenizer, prompt, **settings)) == cached[0].text
    assert list(cached[0].tokens) == by_the_definition(model, tokenizer.encode(prompt).tolist(), PAST, WARM, 4)
    assert len(set(cached[0].tokens)) > 2


@pytest.mark.parametrize("context_length", [1, 2])
def test_the_shortest_contexts_work(context_length: int) -> None:
    model, tokenizer = attentive(context_length=context_length), letters(11)
    settings = {"max_tokens": 9, "sampling": WARM}
    cached = generate(model, tokenizer, ["a"], **settings)
    assert cached == generate(model, tokenizer, ["a"], **settings, options=GenerateOptions(use_cache=False))
    assert len(cached[0].tokens) == 9


def test_together_equals_alone() -> None:
    model, tokenizer = attentive(), letters(11)
    prompts = ["ab", "", "abcdefg"]
    settings = {"max_tokens": PAST, "sampling": WARM, "seed": 1, "stop": ["ad", "g", "bb"]}
    together = generate(model, tokenizer, prompts, **settings, options=GenerateOptions(num_samples=3))
    assert [sample.prompt for sample in together] == [prompt for prompt in prompts for _ in range(3)]
    for at, sample in enumerate(together):
        options = GenerateOptions(first_sample=at % 3)
        assert generate(model, tokenizer, [sample.prompt], **settings, options=options) == [sample]
        assert "".join(stream(model, tokenizer, sample.prompt, **settings, options=options)) == sample.text
    assert {sample.finish for sample in together} == {"stop", "length"}
    assert len({sample.text for sample in together}) > 5


def test_a_prompt_given_again_counts_on() -> None:
    model, tokenizer = attentive(), letters(11)
    settings = {"max_tokens": 8, "sampling": WARM}
    first, second = generate(model, tokenizer, ["ab"], **settings, options=GenerateOptions(num_samples=2))
    assert first != second
    assert generate(model, tokenizer, ["ab", "c", "ab"], **settings)[::2] == [first, second]


def test_many_samples_run_batch_after_batch() -> None:
    model, tokenizer = table([[0.0, 0.0], [0.0, 0.0]]), letters(2)
    samples = generate(
        model, tokenizer, ["a"], max_tokens=9, sampling=Sampling(), options=GenerateOptions(num_samples=601)
    )
    for at in (0, 255, 256, 600):
        options = GenerateOptions(first_sample=at)
        assert generate(model, tokenizer, ["a"], max_tokens=9, sampling=Sampling(), options=options) == [samples[at]]


def test_greedy_follows_the_table() -> None:
    # a -> c -> b -> b, and at a tie the lower id
    model = table([[0.0, 1.0, 2.0], [0.0, 5.0, 5.0], [0.0, 1.0, 0.0]])
    assert generate(model, letters(3), ["a"], max_tokens=4, sampling=GREEDY) == [
        Sample("a", "cbbb", (2, 1, 1, 1), "length")
    ]


def test_an_empty_prompt_starts_from_the_start_token() -> None:
    model = table(CYCLE)
    tokenizer = letters(3, start=1)
    assert generate(model, tokenizer, ["", "b"], max_tokens=2, sampling=GREEDY) == [
        Sample("", "ca", (2, 0), "length"),
        Sample("b", "ca", (2, 0), "length"),
    ]


def test_specials_are_never_generated() -> None:
    model = table([[90.0, 90.0, 0.0, 0.0]] * 4)
    sample = generate(model, letters(4, specials=(0, 1), start=2), [""], max_tokens=50, sampling=Sampling())[0]
    assert set(sample.tokens) == {2, 3}


def test_a_stop_string_ends_the_text_before_it() -> None:
    model, tokenizer = table(CYCLE), letters(3)
    settings = {"max_tokens": 9, "sampling": GREEDY}
    assert generate(model, tokenizer, ["a"], **settings, stop=["ca", "zz"])[0] == Sample("a", "b", (1, 2, 0), "stop")
    # Only the generated text counts: the prompt's "ab" is none.
    assert generate(model, tokenizer, ["a"], **settings, stop=["ab"])[0].text == "bc"
    assert list(stream(model, tokenizer, "a", **settings, stop=["cab"])) == ["b"]
    assert list(stream(model, tokenizer, "a", max_tokens=3, sampling=GREEDY, stop=["cab"])) == ["b", "ca"]


def test_pieces_of_characters_wait_for_each_other() -> None:
    # é = C3 A9: tokens "x", C3, A9 follow one another
    model = table(CYCLE)
    tokenizer = Pieces([b"x", b"\xc3", b"\xa9"])
    assert list(stream(model, tokenizer, "x", max_tokens=4, sampling=GREEDY)) == ["é", "x", "\ufffd"]
    sample = generate(model, tokenizer, ["x"], max_tokens=4, sampling=GREEDY)[0]
    assert sample.text == "éx\ufffd" == tokenizer.decode(sample.tokens)


def test_no_tokens_and_no_prompts() -> None:
    model, tokenizer = table([[0.0, 0.0]] * 2), letters(2)
    assert generate(model, tokenizer, ["a"], max_tokens=0, sampling=GREEDY) == [Sample("a", "", (), "length")]
    assert list(stream(model, tokenizer, "a", max_tokens=0, sampling=GREEDY)) == []
    assert generate(model, tokenizer, [], max_tokens=3, sampling=GREEDY) == []


def test_a_long_prompt_is_refused_or_cropped() -> None:
    model, tokenizer = attentive(), letters(11)
    prompt = "abcdefgha"
    with pytest.raises(UsageError, match=r"^prompt: 9 tokens, but the context length is 7; .*crop"):
        generate(model, tokenizer, [prompt], max_tokens=1, sampling=GREEDY)
    cropped = generate(model, tokenizer, [prompt], max_tokens=9, sampling=GREEDY, options=GenerateOptions(crop=True))[0]
    assert cropped.prompt == prompt
    assert cropped.text == generate(model, tokenizer, [prompt[-7:]], max_tokens=9, sampling=GREEDY)[0].text


@pytest.mark.parametrize("training", [True, False])
def test_the_model_and_the_global_generators_are_left_as_they_were(training: bool) -> None:
    model, tokenizer = attentive(dropout=0.5).train(training), letters(11)
    torch.manual_seed(8)
    state = torch.get_rng_state()
    for _ in stream(model, tokenizer, "a", max_tokens=3, sampling=Sampling()):
        assert model.training is training
        assert not torch.is_inference_mode_enabled()
    first, second = (generate(model, tokenizer, ["a"], max_tokens=9, sampling=GREEDY) for _ in range(2))
    assert first == second
    assert model.training is training
    assert torch.equal(torch.get_rng_state(), state)
    assert all(parameter.grad is None for parameter in model.parameters())


BAD: list[dict[str, Any]] = [
    {"stop": [""]},
    {"stop": "END"},
    {"stop": [None]},
    {"sampling": Sampling(top_k=3), "max_tokens": 0},
]


@pytest.mark.parametrize("bad", BAD, ids=str)
def test_bad_values_are_refused_at_the_call(bad: dict[str, Any]) -> None:
    settings = {"max_tokens": 1, "sampling": GREEDY, **bad}
    calls: list[tuple[Any, Any]] = [(generate, ["a"]), (stream, "a")]
    for call, prompt in calls:
        # Where annotations are checked, that check speaks first.
        with pytest.raises((UsageError, jaxtyping.TypeCheckError)) as caught:
            call(table([[0.0, 0.0]] * 2), letters(2), prompt, **settings)
        assert caught.type is jaxtyping.TypeCheckError or "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", ["decoder", "decoder in C", "encoder-decoder"])
def test_an_end_token_ends_where_a_stop_string_of_its_letter_does(kind: str) -> None:
    """Although it is a special token without text; without it a sample ends where the context is full."""
    model = attentive(shape=kind.removesuffix(" in C"))
    model, plain, tokenizer = model.float() if kind.endswith("C") else model, letters(11), letters(11, specials=(4,))
    options = GenerateOptions(num_samples=5, sources=None if model.encoder is None else ("bca",))
    ending = options.model_copy(update={"end": 4})
    stopped = beam_search(model, plain, "ab", max_tokens=4, num_beams=5, stop=["e"], options=options)
    ended = beam_search(model, tokenizer, "ab", max_tokens=4, num_beams=5, options=ending)
    for sampling in (WARM, GREEDY):
        room = model.config.context_length - 1
        settings = {"max_tokens": PAST, "sampling": sampling}
        stopped += generate(model, plain, ["ab"], max_tokens=room, sampling=sampling, stop=["e"], options=options)
        ended += generate(model, tokenizer, ["ab"], **settings, options=ending)
        first = ending.model_copy(update={"num_samples": 1})
        assert "".join(stream(model, tokenizer, "ab", **settings, options=first)) == ended[-5].text
    assert ended == [replace(one, finish=one.finish.replace("stop", "end")) for one in stopped]
    assert {one.finish for one in ended} == {"end", "length"}


@pytest.mark.parametrize("positions", ["learned", "rotary", "relative"])
def test_a_source_is_encoded_once_and_padded_without_a_trace(positions: str) -> None:
    model, tokenizer = attentive(shape="encoder-decoder", source_length=5, positions=positions), letters(11)
    prompts, sources = ["a", "a", "bc", "a"], ("abcde", "b", "", "b")
    settings = {"max_tokens": PAST, "sampling": WARM, "seed": 4}
    options = GenerateOptions(num_samples=2, sources=sources)
    together = generate(model, tokenizer, prompts, **settings, options=options)
    again = generate(model, tokenizer, prompts, **settings, options=options.model_copy(update={"use_cache": False}))
    assert together == again
    for row, source in enumerate(sources[:3]):
        alone = options.model_copy(update={"sources": (source,)})
        assert generate(model, tokenizer, [prompts[row]], **settings, options=alone) == together[2 * row : 2 * row + 2]
    assert len({sample.text for sample in together}) == 8
    with pytest.raises(UsageError, match=r"^source: 6 tokens"):
        generate(model, tokenizer, ["a"], **settings, options=GenerateOptions(sources=("abcdea",)))

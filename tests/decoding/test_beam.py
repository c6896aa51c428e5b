"""Beam search against brute force, and what it promises about order, length and stopping."""

import itertools
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from pieces import letters
from small_models import attentive, table

from vitral.core.errors import UsageError
from vitral.decoding import GREEDY, GenerateOptions, beam_search, generate
from vitral.decoding.reader import Reader


def brute_force(
    log_probability: Callable[[tuple[int, ...]], list[float]],
    tokenizer: Any,
    *,
    max_tokens: int,
    length_penalty: float,
    stop: list[str],
) -> list[tuple[tuple[int, ...], float]]:
    """All hypotheses and their scores, best first: every sequence up to its first stop string or to max_tokens."""
    allowed = [token for token in range(tokenizer.vocab_size) if token not in tokenizer.specials]
    hypotheses = {}
    for tokens in itertools.product(allowed, repeat=max_tokens):
        texts = [tokenizer.decode(tokens[:n]) for n in range(1, max_tokens + 1)]
        length = next((n for n, text in enumerate(texts, start=1) if any(s in text for s in stop)), max_tokens)
        hypothesis = tokens[:length]
        if hypothesis not in hypotheses:
            hypotheses[hypothesis] = sum(log_probability(hypothesis[:n])[token] for n, token in enumerate(hypothesis))
    order = sorted(hypotheses, key=lambda t: (-hypotheses[t] / ((5 + len(t)) / 6) ** length_penalty, len(t), t))
    return [(tokens, hypotheses[tokens]) for tokens in order]


def chain(model: Any, prompt: list[int], specials: tuple[int, ...]) -> Callable[[tuple[int, ...]], list[float]]:
    """log p(next | prompt, tokens) of a model whose context is long enough, specials ruled out."""
    known: dict[tuple[int, ...], list[float]] = {}

    def log_probability(tokens: tuple[int, ...]) -> list[float]:
        if tokens not in known:
            with torch.inference_mode():
                logits = model.eval()(torch.tensor([[*prompt, *tokens]]))[0, -1].double()
                logits[list(specials)] = -math.inf
            known[tokens] = torch.log_softmax(logits, -1).tolist()
        return known[tokens]

    return log_probability


@pytest.mark.parametrize("length_penalty", [0.0, 1.0, 3.0])
@pytest.mark.parametrize("stop", [[], ["c"], ["ab", "ca", "d"], ["ba"]], ids=str)
@pytest.mark.parametrize("seed", range(2))
def test_wide_enough_it_is_brute_force(seed: int, stop: list[str], length_penalty: float) -> None:
    for vocab, max_tokens, specials in ((2, 4, ()), (5, 3, (0,)), (4, 4, (3,)), (3, 1, ())):
        model, tokenizer = attentive(vocab, seed, std=0.3), letters(vocab, specials=specials)
        limits = {"max_tokens": max_tokens, "length_penalty": length_penalty, "stop": stop}
        expected = brute_force(chain(model, [1, 0], specials), tokenizer, **limits)
        width = vocab**max_tokens
        result, best = (
            beam_search(model, tokenizer, "ba", num_beams=width, options=GenerateOptions(num_samples=n), **limits)
            for n in (width, 2)
        )
        assert [sample.tokens for sample in result] == [tokens for tokens, _ in expected]
        assert [sample.score for sample in result] == pytest.approx([score for _, score in expected], abs=1e-6)
        assert best == result[:2]


def test_it_finds_what_greedy_misses() -> None:
    # From a: b 0.6, c 0.4. From b: a, b, c alike. From c: c surely. Greedy takes "ba" (0.2), the best is "cc" (0.4).
    tiny = -1e9
    model = table([[tiny, math.log(0.6), math.log(0.4)], [0.0, 0.0, 0.0], [tiny, tiny, 0.0]])
    assert generate(model, letters(3), ["a"], max_tokens=2, sampling=GREEDY)[0].text == "ba"
    best = beam_search(model, letters(3), "a", max_tokens=2, num_beams=2)[0]
    assert best.text == "cc"
    assert best.score == pytest.approx(math.log(0.4))
    assert best.finish == "length"


def test_one_beam_is_greedy() -> None:
    model, tokenizer = attentive(), letters(11, specials=(10,))
    for prompt in ("", "ab", "abcdefg"):
        expected = generate(model, tokenizer, [prompt], max_tokens=25, sampling=GREEDY)[0]
        result = beam_search(model, tokenizer, prompt, max_tokens=25, num_beams=1)[0]
        assert (result.text, result.tokens, result.finish) == (expected.text, expected.tokens, expected.finish)


@pytest.mark.parametrize("mask", ["causal", {"name": "prefix", "length": 5}, "bidirectional"], ids=str)
def test_past_the_context_it_restarts_as_sampling_does(mask: Any) -> None:
    model, tokenizer = attentive(attention={"mask": mask}), letters(11)
    context_length, max_tokens = 7, 20
    for sample in beam_search(
        model, tokenizer, "ab", max_tokens=max_tokens, num_beams=3, options=GenerateOptions(num_samples=3)
    ):
        window, score = [0, 1], 0.0
        for token in sample.tokens:
            score += chain(model, window, ())(())[token]
            window = [*window, token]
            if len(window) > context_length:
                window = window[-(context_length // 2) :]
        assert len(sample.tokens) == max_tokens
        assert sample.score == pytest.approx(score, abs=1e-6)


def test_ties_go_to_the_lower_ids() -> None:
    model = table([[0.0] * 3] * 3)
    result = beam_search(model, letters(3), "a", max_tokens=2, num_beams=9, options=GenerateOptions(num_samples=4))
    assert [sample.text for sample in result] == ["aa", "ab", "ac", "ba"]


def test_it_waits_for_a_text_that_only_wins_when_long() -> None:
    # "c" ends at once: ln 0.7 = -0.357. "b" goes on for ever: ln 0.3 = -1.204, divided by 25/6 at length 20: -0.289.
    tiny = -1e9
    model = table([[tiny, math.log(0.3), math.log(0.7)], [tiny, 0.0, tiny], [0.0, 0.0, 0.0]])
    settings = {"num_beams": 2, "stop": ["c"], "length_penalty": 1.0}
    long, short = (beam_search(model, letters(3), "a", max_tokens=most, **settings)[0] for most in (20, 10))
    assert (long.text, long.finish) == ("b" * 20, "length")
    assert (short.text, short.tokens, short.finish) == ("", (2,), "stop")


def test_it_stops_early_once_nothing_can_win(monkeypatch: pytest.MonkeyPatch) -> None:
    model, calls = table([[math.log(0.01), math.log(0.99)]] * 2), []
    read = Reader.logits
    monkeypatch.setattr(Reader, "logits", lambda reader: calls.append(1) or read(reader))
    best = beam_search(model, letters(2), "a", max_tokens=50, num_beams=3, stop=["b"])[0]
    assert best.tokens == (1,)
    assert len(calls) == 1
    beam_search(model, letters(2), "a", max_tokens=50, num_beams=3)
    assert len(calls) == 51


def test_fewer_come_back_where_there_are_not_as_many() -> None:
    model = table([[0.0, 0.0]] * 2)
    assert (
        len(beam_search(model, letters(2), "a", max_tokens=1, num_beams=5, options=GenerateOptions(num_samples=5))) == 2
    )
    impossible = table([[0.0, -1e9]] * 2)
    assert (
        len(beam_search(impossible, letters(2), "a", max_tokens=3, num_beams=5, options=GenerateOptions(num_samples=5)))
        == 1
    )


BAD: list[tuple[str, Any]] = [
    ("num_samples", {"options": GenerateOptions(num_samples=3)}),
    ("end", {"options": GenerateOptions(end=2)}),
    ("sources", {"options": GenerateOptions(sources=("a", "b"))}),
    ("stop", {"stop": [""]}),
    ("length_penalty", {"length_penalty": -0.1}),
    ("length_penalty", {"length_penalty": math.nan}),
]


@pytest.mark.parametrize(("what", "bad"), BAD, ids=str)
def test_bad_values_are_refused_in_one_line(what: str, bad: dict[str, Any]) -> None:
    settings = {"max_tokens": 2, "num_beams": 2, **bad}
    with pytest.raises(UsageError, match=rf"\b{what}: "):
        beam_search(table([[0.0, 0.0]] * 2), letters(2), "a", **settings)


def test_a_long_prompt_and_bad_logits_are_refused() -> None:
    with pytest.raises(UsageError, match=r"^prompt: 8 tokens"):
        beam_search(table([[0.0, 0.0]] * 2), letters(2), "a" * 8, max_tokens=1, num_beams=2)
    with pytest.raises(UsageError, match="NaN or infinite"):
        beam_search(table([[0.0, math.nan]] * 2), letters(2), "a", max_tokens=1, num_beams=2)

"""Beam search: the likeliest continuations instead of drawn ones."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from vitral.core.errors import UsageError
from vitral.data.tokenizers import Tokenizer
from vitral.decoding.generate import Sample
from vitral.decoding.reader import Reader, check_max_tokens, check_same_vocabulary, prompt_ids, rows_of
from vitral.decoding.sampling import distribution
from vitral.decoding.text import Writer, check_stop
from vitral.model.transformer import Transformer

MAX_LENGTH_PENALTY = 10.0
"""Far beyond any use (0 to 1 is usual), and small enough that no length overflows."""


def beam_search(
    model: Transformer,
    tokenizer: Tokenizer,
    prompt: str,
    *,
    max_tokens: int,
    num_beams: int,
    length_penalty: float = 0.0,
    n_best: int = 1,
    stop: Sequence[str] = (),
) -> list[Sample]:
    """The best continuations found by following the `num_beams` likeliest ones side by side, best first.

    A hypothesis is finished by a stop string in its text, or by `max_tokens`. Hypotheses, finished or not, compete by

        score / ((5 + length) / 6) ** length_penalty        (Wu et al. 2016, eq. 14, without coverage)

    with the score log p(tokens | prompt) in nats and the length in generated tokens, those of a stop string included.
    The search ends before max_tokens only when no unfinished hypothesis can come among the n best any more. Of equal
    ones the shorter, then the one with the lower ids, comes first. Nothing is drawn: the result is always the same.

    Past the context length the window restarts as in sampling (`vitral.decoding.reader.Reader`).

    Args:
        model: is left in the mode it was in.
        tokenizer: the model's; its special tokens are never chosen.
        prompt: the text to continue; an empty one starts from the tokenizer's start token.
        max_tokens: tokens to generate at most.
        num_beams: unfinished hypotheses kept at each length.
        length_penalty: 0 compares log-probabilities as they are; larger values favour longer texts.
        n_best: how many to give, at most num_beams; fewer come back where there are not as many.
        stop: strings that finish a hypothesis; its text ends before them.

    Raises:
        UsageError: a bad value, a prompt that is too long or holds unknown characters, logits that are not numbers.
    """
    check_same_vocabulary(model, tokenizer)
    check_max_tokens(max_tokens)
    check_stop(stop)
    _check(num_beams, n_best, length_penalty)
    ids = prompt_ids(tokenizer, prompt, model.config.context_length)
    reader = Reader(model, rows_of(model, [ids]))
    live, finished = [_Hypothesis((), 0.0, Writer(stop))], []
    for _ in range(max_tokens):
        log_probabilities = distribution(reader.logits(), forbidden=tokenizer.specials).log()
        parents, live, stopped = _grow(live, log_probabilities, tokenizer, num_beams)
        finished = _best(finished + stopped, n_best, length_penalty)
        if not live or _decided(finished, live[0], n_best, length_penalty, max_tokens):
            return [hypothesis.sample(prompt) for hypothesis in finished]
        reader.select(torch.tensor(parents))
        reader.append(torch.tensor([hypothesis.tokens[-1] for hypothesis in live]))
    return [hypothesis.sample(prompt) for hypothesis in _best(finished + live, n_best, length_penalty)]


def penalised(score: float, length: int, length_penalty: float) -> float:
    """The number hypotheses compete by: score / ((5 + length) / 6) ** length_penalty (Wu et al. 2016, eq. 14).

    >>> penalised(-6.0, 7, 1.0)
    -3.0
    """
    return score / ((5 + length) / 6) ** length_penalty


@dataclass(frozen=True)
class _Hypothesis:
    """A continuation on its way: its tokens, their log-probability, and the text they have become."""

    tokens: tuple[int, ...]
    score: float
    writer: Writer

    def extended(self, token: int, data: bytes, score: float) -> "_Hypothesis":
        """This one, one token longer."""
        writer = self.writer.copy()
        writer.write(data)
        return _Hypothesis((*self.tokens, token), score, writer)

    def sample(self, prompt: str) -> Sample:
        """The finished hypothesis as a sample."""
        self.writer.end()
        finish = "stop" if self.writer.stopped else "length"
        return Sample(prompt, self.writer.text, self.tokens, finish, self.score)


def _grow(
    live: list[_Hypothesis], log_probabilities: Float[Tensor, "beams vocab"], tokenizer: Tokenizer, num_beams: int
) -> tuple[list[int], list[_Hypothesis], list[_Hypothesis]]:
    """One token more: the likeliest `num_beams` unfinished hypotheses, and the finished ones likelier than the last.

    Returns:
        For each unfinished one the row it came from; the unfinished ones, likeliest first; the finished ones.
    """
    scores = torch.tensor([hypothesis.score for hypothesis in live], dtype=torch.float64)
    totals, order = (scores[:, None] + log_probabilities).flatten().sort(descending=True, stable=True)
    vocab = log_probabilities.shape[1]
    parents: list[int] = []
    unfinished: list[_Hypothesis] = []
    stopped: list[_Hypothesis] = []
    for total, place in zip(totals.tolist(), order.tolist(), strict=True):
        if len(unfinished) == num_beams or total == -math.inf:
            break
        parent, token = divmod(place, vocab)
        grown = live[parent].extended(token, tokenizer.token_bytes(token), total)
        if grown.writer.stopped:
            stopped.append(grown)
        else:
            parents.append(parent)
            unfinished.append(grown)
    return parents, unfinished, stopped


def _best(hypotheses: list[_Hypothesis], n_best: int, length_penalty: float) -> list[_Hypothesis]:
    """The n best, best first; of equal ones the shorter, then the one with the lower ids."""

    def place(hypothesis: _Hypothesis) -> tuple[float, int, tuple[int, ...]]:
        length = len(hypothesis.tokens)
        return -penalised(hypothesis.score, length, length_penalty), length, hypothesis.tokens

    return sorted(hypotheses, key=place)[:n_best]


def _decided(
    finished: list[_Hypothesis], leader: _Hypothesis, n_best: int, length_penalty: float, max_tokens: int
) -> bool:
    """Whether no unfinished hypothesis can come among the n best any more.

    More tokens only lower a score, and a longer text only softens the penalty: the most the likeliest unfinished one
    can reach is the score it has, at the greatest length. Where it could draw level the search goes on.
    """
    if len(finished) < n_best:
        return False
    last = finished[-1]
    reachable = penalised(leader.score, max_tokens, length_penalty)
    return penalised(last.score, len(last.tokens), length_penalty) > reachable


def _check(num_beams: int, n_best: int, length_penalty: float) -> None:
    """Refuse numbers with which there is nothing to search for."""
    for name, count in (("num_beams", num_beams), ("n_best", n_best)):
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise UsageError(f"{name}: expected a whole number of at least 1, not {count!r}")
    if n_best > num_beams:
        raise UsageError(f"n_best: {n_best} is more than num_beams = {num_beams}; choose at most {num_beams}")
    if isinstance(length_penalty, bool) or not isinstance(length_penalty, int | float):
        raise UsageError(f"length_penalty: expected a number, not {length_penalty!r}")
    if not 0 <= length_penalty <= MAX_LENGTH_PENALTY:
        raise UsageError(f"length_penalty: must be between 0 and {MAX_LENGTH_PENALTY:g}, not {length_penalty}")

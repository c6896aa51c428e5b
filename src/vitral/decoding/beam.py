"""Beam search: the most probable continuations instead of sampled ones."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from vitral.core.errors import UsageError
from vitral.data.tokenizers import Tokenizer
from vitral.decoding.generation import (
    DEFAULTS,
    GenerateOptions,
    Sample,
    drafts_of,
    most_of,
    never_chosen,
    reader_of,
)
from vitral.decoding.sampling import distribution
from vitral.decoding.text import Writer, check_stop
from vitral.model.transformer import Transformer

MAX_LENGTH_PENALTY = 10.0
"""Far above usual values (0 to 1), and small enough to avoid overflow."""


def beam_search(
    model: Transformer,
    tokenizer: Tokenizer,
    prompt: str,
    *,
    max_tokens: int,
    num_beams: int,
    length_penalty: float = 0.0,
    stop: Sequence[str] = (),
    options: GenerateOptions = DEFAULTS,
) -> list[Sample]:
    """The best continuations found by extending the `num_beams` most probable ones in parallel, best first.

    A hypothesis is finished by a stop string in its text, by the end token, or by `max_tokens`. All hypotheses are
    ranked by

        score / ((5 + length) / 6) ** length_penalty        (Wu et al. 2016, eq. 14, without coverage)

    where the score is log p(tokens | prompt) in nats and the length counts generated tokens, including a stop string
    and the end token.
    The search ends before max_tokens only when no unfinished hypothesis can reach the n best. Ties go to the shorter
    hypothesis, then to the lower ids. The search is deterministic.

    Past the context length the window restarts as in sampling (`vitral.decoding.reader.Reader`).

    Args:
        model: the model; its training mode is restored.
        tokenizer: the model's tokenizer; its special tokens without text are never chosen, but for the end token.
        prompt: the text to continue; an empty prompt becomes the tokenizer's start token.
        max_tokens: maximum number of generated tokens.
        num_beams: number of unfinished hypotheses kept at each length.
        length_penalty: 0 compares log-probabilities directly; larger values favour longer texts.
        stop: strings that finish a hypothesis; its text ends before them.
        options: number of results, at most num_beams (fewer are returned if fewer exist), cropping, cache, source, end
            token.

    Raises:
        UsageError: an invalid value, a prompt that is too long or contains unknown characters, or logits that are NaN.
    """
    model.require_vocabulary(tokenizer.vocab_size)
    check_stop(stop)
    n_best, forbidden = options.num_samples, never_chosen(tokenizer, options.end)
    _check(num_beams, n_best, length_penalty)
    draft, *_ = drafts_of(model, tokenizer, [prompt], seed=0, stop=stop, options=options)
    reader, max_tokens = reader_of(model, [draft], options), most_of(model, draft, max_tokens, options)
    live, finished = [_Hypothesis((), 0.0, Writer(stop))], []
    for _ in range(max_tokens):
        log_probabilities = distribution(reader.logits(), forbidden=forbidden).log()
        parents, live, stopped = _grow(live, log_probabilities, tokenizer, num_beams, options.end)
        finished = _best(finished + stopped, n_best, length_penalty)
        if not live or _decided(finished, live[0], n_best, length_penalty, max_tokens):
            return [hypothesis.sample(prompt) for hypothesis in finished]
        reader.select(torch.tensor(parents))
        reader.append(torch.tensor([hypothesis.tokens[-1] for hypothesis in live]))
    return [hypothesis.sample(prompt) for hypothesis in _best(finished + live, n_best, length_penalty)]


def penalised(score: float, length: int, length_penalty: float) -> float:
    """The ranking score of a hypothesis: score / ((5 + length) / 6) ** length_penalty (Wu et al. 2016, eq. 14).

    >>> penalised(-6.0, 7, 1.0)
    -3.0
    """
    return score / ((5 + length) / 6) ** length_penalty


@dataclass(frozen=True)
class _Hypothesis:
    """A continuation: its tokens, their log-probability, and their text so far."""

    tokens: tuple[int, ...]
    score: float
    writer: Writer
    ended: bool = False

    def extended(self, token: int, tokenizer: Tokenizer, score: float, *, ended: bool) -> "_Hypothesis":
        writer = self.writer.copy()
        writer.write(b"" if ended else tokenizer.token_bytes(token))
        return _Hypothesis((*self.tokens, token), score, writer, ended)

    def sample(self, prompt: str) -> Sample:
        self.writer.end()
        finish = "end" if self.ended else "stop" if self.writer.stopped else "length"
        return Sample(prompt, self.writer.text, self.tokens, finish, self.score)


def _grow(
    live: list[_Hypothesis],
    log_probabilities: Float[Tensor, "beams vocab"],
    tokenizer: Tokenizer,
    num_beams: int,
    end: int | None,
) -> tuple[list[int], list[_Hypothesis], list[_Hypothesis]]:
    """Extend by one token: the `num_beams` most probable unfinished hypotheses, and more probable finished ones.

    Returns:
        The parent row of each unfinished hypothesis; the unfinished ones, most probable first; the finished ones.
    """
    scores = torch.tensor([hypothesis.score for hypothesis in live], dtype=torch.float64)
    totals, order = (scores[:, None] + log_probabilities).flatten().sort(descending=True, stable=True)
    vocab = log_probabilities.shape[1]
    parents: list[int] = []
    unfinished: list[_Hypothesis] = []
    stopped: list[_Hypothesis] = []
    for total, flat_index in zip(totals.tolist(), order.tolist(), strict=True):
        if len(unfinished) == num_beams or total == -math.inf:
            break
        parent, token = divmod(flat_index, vocab)
        grown = live[parent].extended(token, tokenizer, total, ended=token == end)
        if grown.ended or grown.writer.stopped:
            stopped.append(grown)
        else:
            parents.append(parent)
            unfinished.append(grown)
    return parents, unfinished, stopped


def _best(hypotheses: list[_Hypothesis], n_best: int, length_penalty: float) -> list[_Hypothesis]:
    """The n best, best first; ties go to the shorter, then to the lower ids."""

    def rank(hypothesis: _Hypothesis) -> tuple[float, int, tuple[int, ...]]:
        length = len(hypothesis.tokens)
        return -penalised(hypothesis.score, length, length_penalty), length, hypothesis.tokens

    return sorted(hypotheses, key=rank)[:n_best]


def _decided(
    finished: list[_Hypothesis], leader: _Hypothesis, n_best: int, length_penalty: float, max_tokens: int
) -> bool:
    """Whether no unfinished hypothesis can still reach the n best.

    More tokens only lower the score, and more length only weakens the penalty, so the most probable unfinished
    hypothesis can reach at most its current score at the maximum length. The search continues on a possible tie.
    """
    if len(finished) < n_best:
        return False
    last = finished[-1]
    reachable = penalised(leader.score, max_tokens, length_penalty)
    return penalised(last.score, len(last.tokens), length_penalty) > reachable


def _check(num_beams: int, n_best: int, length_penalty: float) -> None:
    """Refuse invalid search parameters."""
    if n_best > num_beams:
        raise UsageError(
            "num_samples: {n_best} is more than num_beams = {num_beams}; choose at most {num_beams}",
            n_best=n_best,
            num_beams=num_beams,
        )
    if not 0 <= length_penalty <= MAX_LENGTH_PENALTY:
        raise UsageError(
            "length_penalty: must be between 0 and {most:g}, not {length_penalty}",
            most=MAX_LENGTH_PENALTY,
            length_penalty=length_penalty,
        )

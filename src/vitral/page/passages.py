"""Short passages of a run's own held-out text on which a page opens, and what to look at in each.

The rule. Candidates are lines of the test split, from the beginning of a line (of a word, where there are few lines) up
to a token after which the choice is *contested*: the token that follows is one of the model's two best, and counting
n-grams chooses another one than the model. Of these the passages are those whose second-best token is most probable,
each from another line, no two with the same pair of best tokens. Each opens on its last token and on the most *telling*
head there: the one with the largest weight on a place that is neither the first, nor the token itself, nor the one
before it. The page opens on the passage whose head is most telling. Everything is deterministic.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from vitral.core.errors import VitralError
from vitral.data import Split, Tokenizer
from vitral.evaluation.ngrams import WittenBell
from vitral.inspection.attention import landmarks, weight_names
from vitral.inspection.targets import passes
from vitral.model import Transformer

HANDFUL = 5
"""Passages of a page."""
SHORTEST, LONGEST = 16, 40
"""Characters of a passage."""
_LINES = 256
"""Lines of the test split that are looked at, evenly spread over it."""
_ENOUGH = 32
"""With fewer lines, words begin passages too."""
_CONTESTED = 64
"""Contested places for which n-grams are asked."""
_MOST_ASKED = 2**19
"""Probabilities of n-grams that are asked for, at most: of every token at every contested place."""
NEUTRAL = (
    "To be, or not to be, that is",
    "Ser ou não ser, eis a quest",
    "the cat sat on the mat and the",
    "o gato dorme na casa e o",
    "one two three four five",
)
"""Sentences for a run without a text; the first that its vocabulary can write is taken."""


@dataclass(frozen=True)
class Passage:
    """A passage and what the page shows of it first.

    Attributes:
        text: the passage.
        position: the chosen token, counted from 0.
        block: of the telling head.
        head: the telling head.
    """

    text: str
    position: int
    block: int = 0
    head: int = 0


@dataclass(frozen=True)
class _Candidate:
    ids: tuple[int, ...]
    pair: frozenset[int]
    second: float
    """Probability of the model's second-best token."""


def passages(
    model: Transformer, tokenizer: Tokenizer, test: Split | None = None, ngrams: WittenBell | None = None
) -> list[Passage]:
    """The passages of a page, the first of which it opens on; at least one.

    Args:
        model: in evaluation mode.
        tokenizer: the model's.
        test: the held-out split of the run's text; None if there is no text.
        ngrams: counted on its training split; without them, no choice of theirs is compared.
    """
    chosen: list[tuple[int, ...]] = []
    if test is not None:
        rows = _lines(tokenizer, test, model.config.context_length)
        chosen = [each.ids for each in _contested(model, tokenizer, rows, ngrams)] or _beginnings(tokenizer, rows)
    found = [_telling(model, tokenizer, ids) for ids in chosen[:HANDFUL] or [writable(model, tokenizer)]]
    # Rounded, so that equal machines agree on the order.
    found.sort(key=lambda each: -round(each[1], 3))
    return [passage for passage, _ in found]


def pairs(model: Transformer, tokenizer: Tokenizer, test: Split | None) -> list[tuple[str, str]]:
    """Sources of the held-out split, each with its whole target, or with its label.

    Without any, an encoder-decoder is asked with what it can write; a model of labels with nothing.
    """
    reads = model.config.source_length or LONGEST
    found = list[tuple[list[int], list[int]]]()
    if test is not None and test.answers is not None:
        for begin, end in test.segments[:_LINES].tolist():
            tokens = np.asarray(test.tokens[begin:end]).tolist()
            middle = tokens.index(test.answers.opens)
            found.append((tokens[:middle][:reads], tokens[middle + 1 : -1]))
    if model.encoder is not None:
        found = [each for each in found if len(each[1]) < model.config.context_length]
        found.sort(key=lambda each: abs(len(each[1]) - LONGEST))
        found = found or [([*writable(model, tokenizer)][:reads], [])]
    return [(tokenizer.decode(source), tokenizer.decode(target)) for source, target in found[:HANDFUL]]


def _lines(tokenizer: Tokenizer, test: Split, context: int) -> list[tuple[int, ...]]:
    """Lines of the test split without spaces before them, cut to the length of a passage."""
    tokens, marks = np.asarray(test.tokens).astype(np.int64), landmarks(tokenizer)
    after_line = np.flatnonzero(marks.line.numpy()[tokens]) + 1
    after_word = np.flatnonzero(marks.word.numpy()[tokens]) + 1
    starts = after_line if len(after_line) >= _ENOUGH else np.union1d(after_line, after_word)
    if not len(starts):
        starts = np.arange(0, len(tokens), LONGEST)
    blank = np.array([not tokenizer.token_bytes(token).strip() for token in range(tokenizer.vocab_size)])
    written = np.flatnonzero(~blank[tokens])
    places = np.unique(np.searchsorted(written, starts))
    starts = written[places[places < len(written)]]
    starts = starts[np.unique(np.linspace(0, len(starts) - 1, _LINES).astype(np.int64))] if len(starts) else starts
    ends = test.segments[np.clip(np.searchsorted(test.segments[:, 1], starts, "right"), 0, len(test.segments) - 1), 1]
    rows = []
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        row = tuple(tokens[start : min(end, start + min(context, LONGEST) + 1)].tolist())
        line = next((place for place, token in enumerate(row) if marks.line[token]), len(row))
        rows.append(row[: line + 1])
    return [row for row in rows if row]


def _contested(
    model: Transformer, tokenizer: Tokenizer, rows: list[tuple[int, ...]], ngrams: WittenBell | None
) -> list[_Candidate]:
    """Contested passages, the most contested first, each from another line and with another pair of best tokens."""
    is_causal = model.mask is None or model.mask.first_target() == 0
    if not is_causal or max(map(len, rows), default=0) < 2:
        return []
    ranked = sorted(_near_ties(model, rows), key=lambda each: (-round(each[1].second, 4), each[0], len(each[1].ids)))
    asked = max(HANDFUL, min(_CONTESTED, _MOST_ASKED // model.vocab_size))
    lines, pairs, found = set[int](), set[frozenset[int]](), list[_Candidate]()
    for line, each, best in ranked:
        if line in lines or each.pair in pairs or not _is_writable(tokenizer, each.ids):
            continue
        asked -= 1
        if ngrams is None or int(ngrams.following(np.array(each.ids)).argmax()) != best:
            lines.add(line)
            pairs.add(each.pair)
            found.append(each)
        if len(found) == HANDFUL or not asked:
            break
    return found


def _near_ties(model: Transformer, rows: list[tuple[int, ...]]) -> Iterator[tuple[int, _Candidate, int]]:
    """Every place whose next token is one of the model's two best: its line, the passage, the best token."""
    time = max(map(len, rows))
    padded = torch.tensor([row + (row[-1],) * (time - len(row)) for row in rows])
    best, probabilities = _two_best(model, padded[:, :-1])
    for line, row in enumerate(rows):
        for place in range(len(row) - 1):
            pair = best[line, place].tolist()
            if row[place + 1] in pair:
                yield line, _Candidate(row[: place + 1], frozenset(pair), float(probabilities[line, place, 1])), pair[0]


def _two_best(
    model: Transformer, inputs: Int[Tensor, "rows time"]
) -> tuple[Int[Tensor, "rows time 2"], Float[Tensor, "rows time 2"]]:
    read = passes(model, inputs, ["logits"])
    found = [seen["logits"].float().softmax(dim=-1).topk(2, dim=-1) for _rows, seen in read]
    return torch.cat([each.indices for each in found]), torch.cat([each.values for each in found])


def _is_writable(tokenizer: Tokenizer, ids: tuple[int, ...]) -> bool:
    """Whether the passage has the right length, and typing its text gives these tokens again."""
    text = tokenizer.decode(ids)
    return SHORTEST <= len(text) <= LONGEST and "\ufffd" not in text and tokenizer.encode(text).tolist() == list(ids)


def _beginnings(tokenizer: Tokenizer, rows: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """The beginnings of lines, where nothing is contested: the longest that can be typed, from lines far apart."""
    found = []
    for row in rows:
        ends = range(len(row) - 1, 0, -1)
        found += [row[:end] for end in ends if _is_writable(tokenizer, row[:end])][:1]
    return [found[place] for place in np.unique(np.linspace(0, len(found) - 1, HANDFUL).astype(int))] if found else []


def _telling(model: Transformer, tokenizer: Tokenizer, ids: tuple[int, ...]) -> tuple[Passage, float]:
    """The passage with its telling head, and that head's largest weight on a telling place."""
    text, last = tokenizer.decode(ids), len(ids) - 1
    names = weight_names(model)
    places = slice(1, last - 1) if last > 2 else slice(0, last)
    if not names or not last:
        return Passage(text, last), 0.0
    made = model.trace(torch.tensor([ids]), names)
    weights = torch.stack([made[name][0, :, -1, places].amax(dim=-1) for name in names])
    block, head = divmod(int(weights.argmax()), weights.shape[1])
    return Passage(text, last, block, head), float(weights.max())


def writable(model: Transformer, tokenizer: Tokenizer) -> tuple[int, ...]:
    """A neutral sentence, else a few letters, else a token that can be typed."""
    tokens = [tokenizer.decode([token]) for token in range(tokenizer.vocab_size)]
    letters = "".join(filter(str.isalpha, tokens))[:HANDFUL]
    for sentence in (*NEUTRAL, letters, *sorted(tokens, key=lambda token: not token.strip())):
        try:
            ids = tuple(tokenizer.encode(sentence)[: model.config.context_length].tolist())
        except VitralError:
            continue
        if ids and tokenizer.encode(tokenizer.decode(ids)).tolist() == list(ids):
            return ids
    return (tokenizer.start,)

"""Generated texts: repetition, variety and copying of a text, and every decoding strategy on the same prompts.

Prompts are cut from the test split, the same for all strategies and seeds, where encoding the prompt's text gives the
prompt's tokens again, so that beam search, which reads text, and sampling, which reads tokens, continue the same. A
sampled text draws from a stream of its own for each prompt, the same for all kinds of sampling. For each continuation
of T tokens:

    repeated     share of its tokens in a 10-gram of tokens that occurred before in it
    looping      share of its tokens in the longest stretch that is one piece repeated at least twice in a row
    words        distinct-1 … distinct-4 (Li et al. 2016) of words in lower case; 0 where the text has no such n-gram,
                 so that a text of blanks is the least varied and not left out
    letters      mean characters of its words, without the last, which may be cut; 0 without words
    copied       characters of its longest substring that occurs in the training text
    novel        share of its 12-grams of characters that do not occur there
    model        nats per token given the prompt, under the model itself, in the windows that generation uses
    ngram        nats per token given the prompt, under a Witten-Bell 5-gram model of the training split
"""

import itertools
import re
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from vitral.core.errors import UsageError
from vitral.core.language import N_
from vitral.core.streams import numpy_stream
from vitral.data import Dataset, Split, Tokenizer
from vitral.data.batches import thinned
from vitral.decoding import GREEDY, Reader, Sampling, beam_search, choose, distribution, uniforms
from vitral.evaluation import WittenBell, training_text
from vitral.inspection.targets import window_starts
from vitral.model import Transformer

Plain = dict[str, Any]
TRUTH = N_("the text itself")
"""Name of the test text's own continuations among the strategies."""
PROMPT_TOKENS = 32
PROMPT_SEED = 0
"""The prompts are the same for all runs."""
REPEATED = 10
"""Tokens of an n-gram that counts as repeated."""
NOVEL = 12
"""Characters of an n-gram that may be novel."""
ORDER = 5
"""Of the counted n-grams."""
BEAMS, GRAMS = 4, 4
MOST_COUNTED = 2**25
"""Number of tokens of a longer training split that are counted."""

SAMPLINGS: Mapping[str, Sampling] = {
    N_("greedy"): GREEDY,
    N_("greedy, repetition penalty 1.2"): Sampling(temperature=0.0, repetition_penalty=1.2),
    N_("temperature 0.5"): Sampling(temperature=0.5),
    N_("temperature 0.8"): Sampling(temperature=0.8),
    N_("temperature 1"): Sampling(),
    N_("temperature 1.2"): Sampling(temperature=1.2),
    N_("top-k 5"): Sampling(top_k=5),
    N_("top-k 40"): Sampling(top_k=40),
    N_("top-p 0.9"): Sampling(top_p=0.9),
    N_("min-p 0.1"): Sampling(min_p=0.1),
}
BEAM = N_("beam search, width {width}").format(width=BEAMS)


Continuations = tuple[Int[np.ndarray, "prompts length"], Float[np.ndarray, "prompts length"]]
"""The tokens after each prompt, and -log p of each where the model samples at temperature 1."""


def strategy_measures(
    model: Transformer, tokenizer: Tokenizer, dataset: Dataset, *, prompts: int, length: int, seed: int
) -> Plain:
    """Measures of the continuation of every prompt by every strategy.

    Args:
        model: in evaluation mode, trained to predict the next token.
        tokenizer: of the model.
        dataset: its "test" split gives the prompts, its "train" split is counted and searched for copies.
        prompts: number of prompts, where the test split has room for as many.
        length: of a continuation in tokens, where the test split has so many in a row, else as many as it has.
        seed: of the sampling.

    Returns:
        `length` in tokens, `prompts` as text, and `strategies`: by name a list with one mapping for each prompt, the
        measures above and `text`. The strategy `TRUTH` is the text that follows the prompt in the test split.

    Raises:
        UsageError: the test split has no room for a prompt.
    """
    prompt_tokens = min(PROMPT_TOKENS, model.config.context_length)
    rows = cut_prompts(dataset.splits["test"], tokenizer, prompt_tokens, length, prompts)
    begins, truth = rows[:, :prompt_tokens], rows[:, prompt_tokens:]
    length = truth.shape[1]
    written: dict[str, Continuations] = {TRUTH: given(model, tokenizer, begins, truth)}
    asked = [tokenizer.decode(row) for row in begins]
    for name, sampling in SAMPLINGS.items():
        if sampling.top_k is not None:
            sampling = sampling.model_copy(update={"top_k": min(sampling.top_k, tokenizer.vocab_size)})
        written[name] = sampled(model, tokenizer, begins, length, sampling, seed)
        if sampling == GREEDY:
            best = [beam_search(model, tokenizer, text, max_tokens=length, num_beams=BEAMS)[0] for text in asked]
            written[BEAM] = given(model, tokenizer, begins, np.array([each.tokens for each in best], dtype=np.int64))
    counted = WittenBell(thinned(dataset.splits["train"], MOST_COUNTED), tokenizer.vocab_size, ORDER)
    texts = {name: [tokenizer.decode(row) for row in tokens] for name, (tokens, _nats) in written.items()}
    copies = iter(copied([text for each in texts.values() for text in each], training_text(dataset), NOVEL))
    strategies: dict[str, list[Plain]] = {name: [] for name in written}
    for name, (tokens, by_model) in written.items():
        whole = np.concatenate([begins, tokens], axis=1)
        ends = whole.shape[1] * np.arange(1, len(whole) + 1)
        part = Split(whole.ravel(), np.stack([ends - whole.shape[1], ends], axis=1))
        # Of every token but the first of each row, under the counted n-grams of the longest order.
        by_counts = counted.nats(part)[-1].reshape(len(whole), -1)[:, prompt_tokens - 1 :]
        means = (nats.mean(axis=1).tolist() for nats in (by_model, by_counts))
        for row, text, one, other in zip(tokens.tolist(), texts[name], *means, strict=True):
            spoken = split_words(text)
            measures = {
                "text": text,
                "repeated": repeated_share(row, REPEATED),
                "looping": longest_loop(row) / len(row),
                "letters": float(np.mean([len(word) for word in spoken[:-1] or spoken] or [0])),
                "words": [distinct(spoken, n) for n in range(1, GRAMS + 1)],
            }
            strategies[name].append(measures | next(copies) | {"model": one, "ngram": other})
    return {"length": length, "prompts": asked, "strategies": strategies}


def mean_measures(values: Sequence[Any]) -> Any:
    """Several nested measures as one, number by number, without texts; None where one of them has None."""
    if isinstance(values[0], dict):
        return {key: mean_measures([one[key] for one in values]) for key in values[0] if key != "text"}
    if isinstance(values[0], list):
        return [mean_measures(column) for column in zip(*values, strict=True)]
    return None if None in values else sum(values) / len(values)


def cut_prompts(
    part: Split, tokenizer: Tokenizer, prompt_tokens: int, length: int, num: int
) -> Int[np.ndarray, "pieces prompt_and_rest"]:
    """Prompts with the tokens that follow them, without overlaps, drawn by a fixed stream; in the order of the text.

    Encoding a prompt's text gives the prompt's tokens again: none begins or ends inside a character. Where there are
    fewer pieces, all of them; where no segment is so long, pieces as long as the longest segment allows.

    Args:
        part: text that is cut.
        tokenizer: of the part.
        prompt_tokens: of each piece.
        length: tokens after the prompt, at most.
        num: number of pieces, at most.

    Raises:
        UsageError: no prompt fits with a token after it.
    """
    tokens = np.asarray(part.tokens)
    longest = int((part.segments[:, 1] - part.segments[:, 0]).max(initial=0))
    size = min(prompt_tokens + length, longest)
    starts = window_starts(part, size, None, stride=size) if size > prompt_tokens else np.empty(0, np.int64)
    prompts = [tokens[begin : begin + prompt_tokens] for begin in starts.tolist()]
    whole = starts[[np.array_equal(tokenizer.encode(tokenizer.decode(prompt)), prompt) for prompt in prompts]]
    if not len(whole):
        raise UsageError(
            "the test split has no prompt of {prompt_tokens} tokens with one after it; use a longer text",
            prompt_tokens=prompt_tokens,
        )
    stream = numpy_stream(PROMPT_SEED, "decoding prompts")
    drawn = stream.choice(len(whole), size=min(num, len(whole)), replace=False)
    return tokens[whole[np.sort(drawn)][:, None] + np.arange(size)].astype(np.int64)


def continued(
    model: Transformer,
    tokenizer: Tokenizer,
    prompts: Int[np.ndarray, "prompts prompt_time"],
    length: int,
    pick: Callable[[Tensor, Tensor], Tensor],
) -> Continuations:
    """Continuations of all prompts side by side, read by the model as in generation.

    Args:
        model: in evaluation mode.
        tokenizer: of the model; its special tokens have no probability.
        prompts: ids.
        length: tokens to add to each.
        pick: gives the next token of each row, from its logits and all tokens so far.
    """
    reader = Reader(model, torch.from_numpy(prompts).to(model.token_embedding.weight.device))
    chosen, nats = list[Tensor](), list[Tensor]()
    for turn in range(length):
        logits = reader.logits()
        chosen.append(pick(logits, reader.history))
        laws = distribution(logits, forbidden=tokenizer.specials)
        nats.append(-laws.gather(1, chosen[-1][:, None].to(laws.device))[:, 0].log())
        if turn < length - 1:
            reader.append(chosen[-1])
    return torch.stack(chosen, dim=1).cpu().numpy(), torch.stack(nats, dim=1).cpu().numpy()


def sampled(
    model: Transformer,
    tokenizer: Tokenizer,
    prompts: Int[np.ndarray, "prompts prompt_time"],
    length: int,
    sampling: Sampling,
    seed: int,
) -> Continuations:
    """A continuation of each prompt; that of prompt i is sample number i of its prompt.

    `vitral.decoding.generate` would draw all of them from the random numbers of sample 0, so they would not be
    independent.
    """
    streams = [uniforms(seed, number) for number in range(len(prompts))]

    def pick(logits: Tensor, history: Tensor) -> Tensor:
        laws = distribution(logits, sampling, history=history, forbidden=tokenizer.specials)
        return choose(laws, torch.tensor([stream.random() for stream in streams], dtype=torch.float64))

    return continued(model, tokenizer, prompts, length, pick)


def given(
    model: Transformer,
    tokenizer: Tokenizer,
    prompts: Int[np.ndarray, "prompts prompt_time"],
    tokens: Int[np.ndarray, "prompts length"],
) -> Continuations:
    """Known continuations, scored."""
    columns = iter(torch.from_numpy(tokens).T)
    return continued(model, tokenizer, prompts, tokens.shape[1], lambda _logits, _history: next(columns))


def copied(texts: Sequence[str], training_text: str, n: int) -> list[Plain]:
    """The copies in each of many texts.

    Args:
        texts: the samples.
        training_text: see `vitral.evaluation.training_text`.
        n: characters of an n-gram.

    Returns:
        Of each text `copied`, the length of its longest substring that occurs in the training text, as of
        `vitral.evaluation.longest_copy`, and `novel`, the share of its n-grams of characters that do not occur there,
        as of `vitral.evaluation.novel_share`; None for a text of fewer than n characters.
    """
    shared = [set[str]()]
    for size in range(1, n + 1):
        grams = {gram for text in texts for gram in _grams(text, size)}
        shared.append({gram for gram in _grams(training_text, size) if gram in grams})
    copies = list[Plain]()
    for text in texts:
        known = [gram in shared[n] for gram in _grams(text, n)]
        longest = next((size for size in range(n, 0, -1) if not shared[size].isdisjoint(_grams(text, size))), 0)
        for begin in itertools.compress(range(len(text)), known):
            while begin + longest < len(text) and text[begin : begin + longest + 1] in training_text:
                longest += 1
        copies.append({"copied": longest, "novel": 1 - sum(known) / len(known) if known else None})
    return copies


def _grams(text: str, size: int) -> Iterator[str]:
    return (text[begin : begin + size] for begin in range(len(text) - size + 1))


# ---------------------------------------------------------------- how much a text repeats itself


WORD = re.compile(r"\w+(?:['\N{RIGHT SINGLE QUOTATION MARK}]\w+)*")


def split_words(text: str) -> list[str]:
    """Runs of letters and digits in lower case, with the apostrophes inside them.

    >>> split_words("O, 'tis THE king's!")
    ['o', 'tis', 'the', "king's"]
    """
    return WORD.findall(text.lower())


def distinct(items: Sequence[Hashable], n: int) -> float:
    """Distinct-n, different n-grams over all n-grams (Li et al. 2016, §5.2); 0 where there is no n-gram.

    A text that has fallen into blanks has no words. Were its diversity undefined, a mean over texts would leave out
    the least varied of them.

    >>> distinct("abab", 2)  # ab ba ab
    0.6666666666666666
    """
    grams = [tuple(items[begin : begin + n]) for begin in range(len(items) - n + 1)]
    return len(set(grams)) / len(grams) if grams else 0.0


def repeated_share(items: Sequence[Hashable], n: int) -> float:
    """The share of items in an n-gram that occurred earlier in the same sequence.

    >>> repeated_share("abcdabc", 3)  # the second abc
    0.42857142857142855
    """
    seen: set[tuple[Hashable, ...]] = set()
    repeated = [False] * len(items)
    for begin in range(len(items) - n + 1):
        gram = tuple(items[begin : begin + n])
        if gram in seen:
            repeated[begin : begin + n] = [True] * n
        seen.add(gram)
    return sum(repeated) / len(items) if items else 0.0


def longest_loop(items: Sequence[Hashable]) -> int:
    """Items of the longest stretch that is one piece repeated at least twice in a row; 0 where there is none.

    A stretch loops with period p where every item equals the one p before it, over at least two whole periods.

    >>> longest_loop("xabcabcabd")  # abcabcab
    8
    """
    ids = np.array([hash(item) for item in items])
    longest = 0
    for period in range(1, len(ids) // 2 + 1):
        differs = np.flatnonzero(np.concatenate([[True], ids[period:] != ids[:-period], [True]]))
        run = int(np.diff(differs).max()) - 1
        if run >= period:
            longest = max(longest, run + period)
    return longest

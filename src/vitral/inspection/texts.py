"""Generated texts: repetition, variety and copying of a text, and every decoding strategy on the same prompts.

Prompts are cut from the test split, the same for all strategies and seeds, where encoding the prompt's text gives the
prompt's tokens again, so that beam search, which reads text, and sampling, which reads tokens, continue the same. A
sampled text draws from a stream of its own for each prompt, the same for all kinds of sampling. For each continuation
of T tokens:

    repeated     share of its tokens in a 10-gram of tokens that occurred before in it
    loop         tokens of the longest stretch that is one piece repeated at least twice in a row; `looped` is that
                 piece, `marks` are the characters of the text at which the stretch begins and ends
    looping      the same as a share of the T tokens
    words, characters   distinct-1 … distinct-4 (Li et al. 2016), of words in lower case and of characters; 0 where the
                 text has no such n-gram, so that a text of blanks is the least varied and not left out
    letters      mean characters of its words, without the last, which may be cut; 0 without words
    copied       characters of its longest substring that occurs in the training text
    novel        share of its 12-grams of characters that do not occur there
    model        nats per token given the prompt, under the model itself, in the windows that generation uses
    ngram        nats per token given the prompt, under a Witten-Bell 5-gram model of the training split
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int, UInt64

from vitral.core.errors import UsageError
from vitral.core.language import N_
from vitral.core.streams import numpy_stream
from vitral.data import Dataset, Split, Tokenizer
from vitral.data.batches import thinned
from vitral.decoding import GREEDY, Reader, Sampling, beam_search, choose, distribution, uniforms
from vitral.evaluation import WittenBell, longest_copy, training_text
from vitral.inspection.repetition import distinct, find_loop, repeated_share, split_words
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
UNAVERAGED = ("text", "looped", "marks")
"""Measures without a mean."""
MOST_COUNTED = 2**25
"""Number of tokens of a longer training split that are counted."""

LEAST_COPY = 6
"""Characters of the shortest copy that is searched for by hash; texts with no copy so long are searched one by one."""
_BASE = np.uint64(0x9E3779B97F4A7C15)

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
        UsageError: the model cannot write a text and score it in one pass, or the test split has no room for a prompt.
    """
    if model.mask is not None and model.mask.first_target() != 0:
        raise UsageError("the model sees ahead under its mask, so a text cannot be scored in one pass")
    prompt_tokens = min(PROMPT_TOKENS, model.config.context_length)
    rows = cut_prompts(dataset.splits["test"], tokenizer, prompt_tokens, length, prompts)
    begins, length = rows[:, :prompt_tokens], rows.shape[1] - prompt_tokens
    written: dict[str, np.ndarray] = {TRUTH: rows[:, prompt_tokens:]}
    spoken = [tokenizer.decode(row) for row in begins]
    for name, sampling in SAMPLINGS.items():
        if sampling.top_k is not None:
            sampling = sampling.model_copy(update={"top_k": min(sampling.top_k, tokenizer.vocab_size)})
        written[name] = sampled(model, tokenizer, begins, length, sampling, seed)
        if sampling == GREEDY:
            found = [beam_search(model, tokenizer, text, max_tokens=length, num_beams=BEAMS)[0] for text in spoken]
            written[BEAM] = np.array([best.tokens for best in found], dtype=np.int64)
    counted = WittenBell(thinned(dataset.splits["train"], MOST_COUNTED), tokenizer.vocab_size, ORDER)
    texts = {name: [tokenizer.decode(row) for row in tokens] for name, tokens in written.items()}
    copies = iter(copied([text for each in texts.values() for text in each], training_text(dataset), NOVEL))
    strategies: dict[str, list[Plain]] = {}
    for name, tokens in written.items():
        every = np.concatenate([begins, tokens], axis=1)
        by_model = continuation_nats(model, every, prompt_tokens, tokenizer.specials).mean(axis=1).tolist()
        by_counts = row_nats(counted, every)[:, prompt_tokens - 1 :].mean(axis=1).tolist()
        strategies[name] = []
        for row, text, one, other in zip(tokens, texts[name], by_model, by_counts, strict=True):
            known = next(copies) | {"model": one, "ngram": other}
            strategies[name].append(_measures(row.tolist(), text, tokenizer) | known)
    return {"length": length, "prompts": spoken, "strategies": strategies}


def mean_measures(measured: Sequence[Plain]) -> dict[str, list[Plain]]:
    """By strategy, the measures of each prompt as means over several results of `strategy_measures`, without texts.

    A mean is None where one of the results has None.
    """
    runs = [run["strategies"] for run in measured]
    return {name: [mean_row(rows) for rows in zip(*(run[name] for run in runs), strict=True)] for name in runs[0]}


def mean_row(values: Sequence[Any]) -> Any:
    """The measures of several continuations as one: means, without texts; None where one of them has None."""
    if isinstance(values[0], dict):
        return {key: mean_row([one[key] for one in values]) for key in values[0] if key not in UNAVERAGED}
    if isinstance(values[0], list):
        return [mean_row(column) for column in zip(*values, strict=True)]
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

    def is_text(begin: int) -> bool:
        row = tokens[begin : begin + prompt_tokens]
        return np.array_equal(tokenizer.encode(tokenizer.decode(row)), row)

    segments = []
    for begin, end in part.segments.tolist():
        first = next((place for place in range(begin, end - prompt_tokens) if is_text(place)), None)
        if first is not None:
            segments.append((first, end))
    if not segments:
        raise UsageError(
            "the test split has no prompt of {prompt_tokens} tokens with one after it; use a longer text",
            prompt_tokens=prompt_tokens,
        )
    size = min(prompt_tokens + length, max(end - first for first, end in segments))
    starts = []
    for first, end in segments:
        place = first
        while place + size <= end:
            if is_text(place):
                starts.append(place)
                place += size
            else:
                place += 1
    few = min(num, len(starts))
    drawn = numpy_stream(PROMPT_SEED, "decoding prompts").choice(len(starts), size=few, replace=False)
    return tokens[np.array(starts)[np.sort(drawn)][:, None] + np.arange(size)].astype(np.int64)


def sampled(
    model: Transformer,
    tokenizer: Tokenizer,
    prompts: Int[np.ndarray, "prompts prompt_time"],
    length: int,
    sampling: Sampling,
    seed: int,
) -> Int[np.ndarray, "prompts length"]:
    """A continuation of each prompt, all side by side; that of prompt i is sample number i of its prompt.

    `vitral.decoding.generate` would draw all of them from the random numbers of sample 0, so they would not be
    independent.
    """
    reader = Reader(model, torch.from_numpy(prompts).to(model.token_embedding.weight.device))
    streams = [uniforms(seed, number) for number in range(len(prompts))]
    chosen: list[torch.Tensor] = []
    for turn in range(length):
        laws = distribution(reader.logits(), sampling, history=reader.history, forbidden=tokenizer.specials)
        chosen.append(choose(laws, torch.tensor([stream.random() for stream in streams], dtype=torch.float64)))
        if turn < length - 1:
            reader.append(chosen[-1])
    return torch.stack(chosen, dim=1).numpy()


def continuation_nats(
    model: Transformer, rows: Int[np.ndarray, "rows time"], begin: int, forbidden: Sequence[int] = ()
) -> Float[np.ndarray, "rows scored"]:
    """-log p of every token from index `begin` on, in the windows in which generation would see it.

    As in `vitral.decoding.Reader`, a window grows to the context length, then restarts from its last half. So the sum
    over a text is the negative log-probability that sampling at temperature 1 writes it.

    Args:
        model: in evaluation mode, with a mask under which the past sees no future.
        rows: ids, prompt and continuation.
        begin: tokens of the prompt, at least one.
        forbidden: ids that are never chosen.
    """
    context_length, total = model.config.context_length, rows.shape[1]
    ids = torch.from_numpy(rows)
    nats, start, first = np.empty(rows.shape), 0, 1
    with torch.inference_mode():
        while first < total:
            last = min(start + context_length, total - 1)
            logits = model(ids[:, start:last].to(model.token_embedding.weight.device))[:, first - 1 - start :]
            laws = distribution(logits.flatten(0, 1), forbidden=forbidden).view(len(rows), last + 1 - first, -1)
            targets = ids[:, first : last + 1, None]
            nats[:, first : last + 1] = -laws.gather(2, targets)[..., 0].log().numpy()
            first, start = last + 1, last + 1 - max(1, context_length // 2)
    return nats[:, begin:]


def _measures(tokens: list[int], text: str, tokenizer: Tokenizer) -> Plain:
    spoken, loop = split_words(text), find_loop(tokens)
    return {
        "text": text,
        "repeated": repeated_share(tokens, REPEATED),
        "loop": loop.length,
        "looping": loop.length / len(tokens),
        "looped": _decoded(tokens[loop.begin : loop.begin + loop.period], tokenizer),
        "marks": [len(_decoded(tokens[:end], tokenizer)) for end in (loop.begin, loop.begin + loop.length)],
        "letters": float(np.mean([len(word) for word in spoken[:-1] or spoken] or [0])),
        "words": [distinct(spoken, n) for n in range(1, GRAMS + 1)],
        "characters": [distinct(text, n) for n in range(1, GRAMS + 1)],
    }


def _decoded(tokens: list[int], tokenizer: Tokenizer) -> str:
    return tokenizer.decode(np.array(tokens, dtype=np.int64))


def row_nats(counted: WittenBell, rows: Int[np.ndarray, "rows time"]) -> Float[np.ndarray, "rows scored"]:
    """-log p of every token but the first of each row, under the counted n-grams of the longest order."""
    ends = rows.shape[1] * np.arange(1, len(rows) + 1)
    part = Split(rows.ravel(), np.stack([ends - rows.shape[1], ends], axis=1))
    return counted.nats(part)[-1].reshape(len(rows), -1)


# ---------------------------------------------------------------- copies of the training text


def copied(texts: Sequence[str], training_text: str, n: int) -> list[Plain]:
    """The copies in each of many texts, all found in one pass over the training text.

    Substrings of LEAST_COPY characters, then longer and longer ones, are compared by a 64-bit hash. At each length
    those of the training text that no sample shares are dropped, so that few are left after the first. Two different
    substrings have the same hash once in some 10¹⁰ searches.

    Args:
        texts: the samples.
        training_text: see `vitral.evaluation.training_text`.
        n: characters of an n-gram, at least LEAST_COPY.

    Returns:
        Of each text `copied`, the length of its longest substring that occurs in the training text, as of
        `longest_copy`, and `novel`, the share of its n-grams of characters that do not occur there, as of
        `novel_share`; None for a text of fewer than n characters.
    """
    lengths = np.array([len(text) for text in texts], dtype=np.int64)
    owner = np.repeat(np.arange(len(texts)), np.maximum(lengths - LEAST_COPY + 1, 0))
    offsets = np.concatenate([np.arange(max(length - LEAST_COPY + 1, 0)) for length in lengths.tolist()] or [[]])
    firsts = np.cumsum(lengths) - lengths
    samples, places = _codes("".join(texts)), (firsts[owner] + offsets).astype(np.int64)
    train = _codes(training_text)
    there = np.arange(max(len(train) - LEAST_COPY + 1, 0))
    size, found_at, old = LEAST_COPY, np.zeros(len(texts), dtype=np.int64), np.zeros(len(texts), dtype=np.int64)
    hashes, others = _hashes(samples, places, size), _hashes(train, there, size)
    while len(places) and len(there):
        kept, kept_there = _shared(hashes, others)
        owner, places, there = owner[kept], places[kept], there[kept_there]
        found_at[owner] = size
        if size == n:
            old = np.bincount(owner, minlength=len(texts))
        # One character more, where both text and sample have one.
        room, room_there = places + size < (firsts + lengths)[owner], there + size < len(train)
        owner, places, there = owner[room], places[room], there[room_there]
        hashes = hashes[kept][room] * _BASE + samples[places + size]
        others = others[kept_there][room_there] * _BASE + train[there + size]
        size += 1
    results = []
    for text, longest, known in zip(texts, found_at.tolist(), old.tolist(), strict=True):
        grams = len(text) - n + 1
        novel = 1 - known / grams if grams > 0 else None
        results.append({"copied": longest or longest_copy(text, training_text).length, "novel": novel})
    return results


def _codes(text: str) -> UInt64[np.ndarray, " characters"]:
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4").astype(np.uint64) + np.uint64(1)


def _hashes(
    codes: UInt64[np.ndarray, " characters"], places: Int[np.ndarray, " places"], size: int
) -> UInt64[np.ndarray, " places"]:
    """A polynomial hash, modulo 2^64, of the `size` characters at every place."""
    hashes = np.zeros(len(places), dtype=np.uint64)
    for offset in range(size):
        hashes = hashes * _BASE + codes[places + offset]
    return hashes


def _shared(
    few: UInt64[np.ndarray, " few"], many: UInt64[np.ndarray, " many"]
) -> tuple[Int[np.ndarray, " kept_few"], Int[np.ndarray, " kept_many"]]:
    """The indices on either side whose hash occurs on the other side too."""
    kinds, kind = np.unique(few, return_inverse=True)
    nearest = np.minimum(np.searchsorted(kinds, many), len(kinds) - 1)
    hit = kinds[nearest] == many
    there = np.zeros(len(kinds), dtype=bool)
    there[nearest[hit]] = True
    return np.flatnonzero(there[kind]), np.flatnonzero(hit)

"""Every decoding strategy on the same prompts, measured beside the test text's own continuation.

Prompts are cut from the test part, the same for all strategies and seeds, at places where the tokens of the prompt's
text are the prompt's own tokens, so that what reads text and what reads tokens continue the same. A sampled text draws
from a stream of its own for each prompt, the same for all kinds of sampling. Of each continuation of T tokens:

    repeated     share of its tokens in a 10-gram of tokens that it has already written
    loop         tokens of the longest stretch that says the same at least twice in a row
    words, characters   distinct-1 … distinct-4 (Li et al. 2016), of words in small letters and of characters
    copied       characters of its longest run that stands in the training text
    novel        share of its 12-grams of characters that do not
    model        nats per token given the prompt, under the model itself, in the windows generation uses
    ngram        nats per token given the prompt, under a Witten-Bell 5-gram model of the training part
"""

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np
import torch
from jaxtyping import Float, Int

from vitral.core.errors import UsageError
from vitral.core.streams import numpy_stream
from vitral.data import Split, Tokenizer
from vitral.data.batches import thinned
from vitral.decoding import GREEDY, Reader, Sampling, beam_search, choose, distribution, uniforms
from vitral.evaluation import WittenBell, training_text
from vitral.model import Transformer
from vitral.runs import LoadedRun
from vitral.studies.probes.decoding_shown import NOVEL, ORDER, REPEATED, TRUTH, show
from vitral.studies.probes.protocol import Plain, RunProbe, Trained, require_next_tokens
from vitral.studies.probes.written_texts import copied, distinct, longest_loop, repeated_share, words

PROMPTS = {"quick": 8, "standard": 24, "full": 48}
"""Prompts, where the test part has room for as many."""
LENGTH = {"quick": 200, "standard": 400, "full": 800}
"""Tokens of a continuation, where the test part has so many in a row."""
PROMPT_TOKENS = 32
PROMPT_SEED = 0
"""The prompts are the same for all runs."""
BEAMS = 4
GRAMS = 4
MOST_COUNTED = 2**25
"""Of a longer training part so many tokens are counted."""

SAMPLINGS: Mapping[str, Sampling] = {
    "greedy": GREEDY,
    "greedy, repetition penalty 1.2": Sampling(temperature=0.0, repetition_penalty=1.2),
    "temperature 0.5": Sampling(temperature=0.5),
    "temperature 0.8": Sampling(temperature=0.8),
    "temperature 1": Sampling(),
    "temperature 1.2": Sampling(temperature=1.2),
    "top-k 5": Sampling(top_k=5),
    "top-k 40": Sampling(top_k=40),
    "top-p 0.9": Sampling(top_p=0.9),
    "min-p 0.1": Sampling(min_p=0.1),
}
BEAM = f"beam search, width {BEAMS}"


def measure(trained: Trained) -> Plain:
    """What every strategy makes of every prompt.

    Returns:
        `length` in tokens, `prompts` as text, and by strategy a list with one table for each prompt: the measures
        above and `text`. The strategy "the text itself" is what follows the prompt in the test part.

    Where the test part has no stretch long enough, continuations are as long as the longest allows.

    Raises:
        UsageError: the model cannot write a text and score it in one pass, or the test part has no room for a prompt.
    """
    run, train = trained.run, trained.dataset.splits["train"]
    require_next_tokens(trained)
    if run.model.mask is not None and run.model.mask.first_target() != 0:
        raise UsageError(f"{trained.arm} sees ahead under its mask, so a text cannot be scored in one pass")
    prompt_tokens = min(PROMPT_TOKENS, run.model.config.context_length)
    test = trained.dataset.splits["test"]
    rows = cut(test, run.tokenizer, prompt_tokens, LENGTH[trained.budget], PROMPTS[trained.budget])
    prompts, length = rows[:, :prompt_tokens], rows.shape[1] - prompt_tokens
    written = {TRUTH: rows[:, prompt_tokens:]}
    for name, sampling in SAMPLINGS.items():
        written[name] = sampled(run.model, run.tokenizer, prompts, length, _within(sampling, run), trained.seed)
        if sampling == GREEDY:
            written[BEAM] = _beams(run, prompts, length)
    counted = WittenBell(thinned(train, MOST_COUNTED), run.tokenizer.vocab_size, ORDER)
    trained_on = training_text(trained.dataset)
    texts = {name: [run.tokenizer.decode(row) for row in tokens] for name, tokens in written.items()}
    copies = iter(copied([text for each in texts.values() for text in each], trained_on, NOVEL))
    of_each = {name: [next(copies) for _ in each] for name, each in texts.items()}
    nats = {name: _both_nats(run, counted, prompts, tokens) for name, tokens in written.items()}
    return {
        "length": length,
        "prompts": [run.tokenizer.decode(row) for row in prompts],
        "strategies": {
            name: [
                _measures(tokens.tolist(), text) | {"copied": copy.longest, "novel": copy.novel} | each
                for tokens, text, copy, each in zip(written[name], texts[name], of_each[name], nats[name], strict=True)
            ]
            for name in texts
        },
    }


def cut(
    part: Split, tokenizer: Tokenizer, prompt_tokens: int, length: int, num: int
) -> Int[np.ndarray, "pieces prompt_and_rest"]:
    """Prompts with what follows them, none overlapping another, drawn by a fixed stream; in the order they stand there.

    Encoding a prompt's text gives the prompt's tokens again: none begins or ends inside a character. Where there are
    fewer pieces, all of them; where no stretch is so long, pieces as long as one in the longest can be.

    Args:
        part: where they are cut.
        tokenizer: its.
        prompt_tokens: of each piece.
        length: tokens that follow, at most.
        num: of pieces, at most.

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
        raise UsageError(f"the test part has no prompt of {prompt_tokens} tokens with one after it; use a longer text")
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

    `vitral.decoding.generate` would draw all of them from the numbers of sample 0, and texts that share their chance
    are fewer texts than they seem.
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
    """-log p of every token from the one numbered `begin` on, in the windows in which generation would see it.

    As in `vitral.decoding.Reader`: a window grows to the context length, then restarts from its last half. So the sum
    over a text is the log-probability that sampling at temperature 1 would have written it.

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


def _within(sampling: Sampling, run: LoadedRun) -> Sampling:
    """The same, with a top-k no larger than the vocabulary."""
    if sampling.top_k is None:
        return sampling
    return sampling.model_copy(update={"top_k": min(sampling.top_k, run.tokenizer.vocab_size)})


def _beams(
    run: LoadedRun, prompts: Int[np.ndarray, "prompts prompt_time"], length: int
) -> Int[np.ndarray, "prompts length"]:
    """The best continuation of each prompt that beam search finds; it reads the prompt's text, see `cut`."""
    search = partial(beam_search, run.model, run.tokenizer, max_tokens=length, num_beams=BEAMS)
    return np.array([search(run.tokenizer.decode(row))[0].tokens for row in prompts], dtype=np.int64)


def _measures(tokens: list[int], text: str) -> Plain:
    """What can be said of one continuation by itself."""
    spoken = words(text)
    return {
        "text": text,
        "repeated": repeated_share(tokens, REPEATED),
        "loop": longest_loop(tokens),
        "words": [distinct(spoken, n) for n in range(1, GRAMS + 1)],
        "characters": [distinct(text, n) for n in range(1, GRAMS + 1)],
    }


def _both_nats(
    run: LoadedRun,
    counted: WittenBell,
    prompts: Int[np.ndarray, "prompts prompt_time"],
    tokens: Int[np.ndarray, "prompts length"],
) -> list[Plain]:
    """Nats per token of each continuation under the model and under the counted n-grams."""
    rows, begin = np.concatenate([prompts, tokens], axis=1), prompts.shape[1]
    by_model = continuation_nats(run.model, rows, begin, run.tokenizer.specials).mean(axis=1)
    by_counts = row_nats(counted, rows)[:, begin - 1 :].mean(axis=1)
    return [{"model": one, "ngram": other} for one, other in zip(by_model.tolist(), by_counts.tolist(), strict=True)]


def row_nats(counted: WittenBell, rows: Int[np.ndarray, "rows time"]) -> Float[np.ndarray, "rows scored"]:
    """-log p of every token but the first of each row, under n-grams of the longest order that were counted."""
    ends = rows.shape[1] * np.arange(1, len(rows) + 1)
    part = Split(rows.ravel(), np.stack([ends - rows.shape[1], ends], axis=1))
    return counted.nats(part)[-1].reshape(len(rows), -1)


STRATEGIES = RunProbe("strategies", measure, show, seconds={"quick": 12, "standard": 45, "full": 120})

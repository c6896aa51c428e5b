"""Linear probes: what can be read off a model's activations, beside controls of the probe itself.

Alain & Bengio (2016): the accuracy of a linear classifier on activations shows which information they contain in a
linearly readable form; the model itself is not trained. The probe is multinomial logistic regression.

`classify_passages`: which work a passage is from, beside token frequencies. Passages are labelled with the work they
are from by the collection's own table of contents.

`linear_probes`: three tasks whose answer no count of tokens contains, for each of which a probe is fitted on windows of
the training split and scored on windows of the test split:

    order       is a window as written, or are its words in random order? Both have the same tokens, so counting them is
                right in one half of the cases
    word begin  tokens since the word began, at one position: 0, 1, 2, or 3 and more; on the left side
    word end    tokens until the word ends, counted the same way; on the right side, where a causal mask sees nothing

The probe itself must not have learned the task (Hewitt & Liang 2019). So each probe has beside it the same probe on
the untrained model, a probe that sees the current token alone (or token counts), and a control task: classes drawn at
random for each pair of tokens, as frequent as the task's. A probe that is as good at the control task has memorised.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional

from vitral.core.streams import numpy_stream
from vitral.data import Blocks, Dataset, Split, Tokenizer
from vitral.data.long_texts import pieces
from vitral.data.works import Work, works_of
from vitral.inspection.attention import landmarks
from vitral.inspection.targets import passes
from vitral.inspection.windows import spread_windows
from vitral.model import Transformer

PENALTIES = (1e-3, 1e-2, 1e-1)
"""Of which the one with the least loss on the validation examples is used."""
MOST_ITERATIONS = 200
TINY = 1e-8


Examples = tuple[Float[np.ndarray, "rows features"], Int[np.ndarray, " rows"]]
"""Feature vectors, and their classes: 0, 1, …"""
Passages = tuple[Int[Tensor, "passages time"], Int[np.ndarray, " passages"]]
"""The tokens of passages of equal length, and the index of the work of each."""


def classify_passages(
    model: Transformer, dataset: Dataset, train: int, validation: int, test: int
) -> dict[str, Any] | None:
    """Which work a passage of a context length is from: by a linear probe on activations, and on token frequencies.

    Args:
        model: in evaluation mode.
        dataset: the text with its tokenizer.
        train: passages of each work on which the probe is fitted, at most.
        validation: passages on which its penalty is chosen.
        test: passages on which it is scored.

    Returns:
        `titles` of the works; `passages` in each split; `activations` and `frequencies`, each as of `linear_probe`.
        None where no two works occur in all splits.
    """
    counts = {"train": train, "validation": validation, "test": test}
    titles, found = passages_by_work(dataset, model.config.context_length, counts)
    if len(titles) < 2 or not all(len(works) for _tokens, works in found.values()):
        return None
    passages = found.values()
    activations = ((mean_activations(model, tokens), works) for tokens, works in passages)
    frequencies = ((token_frequencies(tokens.numpy(), model.vocab_size), works) for tokens, works in passages)
    return {
        "titles": list(titles),
        "passages": {split: len(works) for split, (_tokens, works) in found.items()},
        "activations": linear_probe(*activations),
        "frequencies": linear_probe(*frequencies),
    }


def mean_activations(model: Transformer, tokens: Int[Tensor, "rows time"]) -> Float[np.ndarray, "rows d_model"]:
    """The activations after the final norm, averaged over the positions of each row, float64."""
    return final_activations(model, tokens, lambda seen: seen.double().mean(dim=1))


def final_activations(
    model: Transformer, tokens: Int[Tensor, "rows time"], read: Callable[[Tensor], Tensor]
) -> Float[np.ndarray, "rows d_model"]:
    """What `read` makes of the activations after the final norm."""
    return torch.cat([read(seen["final_norm"]) for _rows, seen in passes(model, tokens, ["final_norm"])]).numpy()


def token_frequencies(tokens: Int[np.ndarray, "rows time"], vocab_size: int) -> Float[np.ndarray, "rows vocab"]:
    """The share of each token in each row: features that need no model."""
    return np.stack([np.bincount(row, minlength=vocab_size) for row in tokens]) / tokens.shape[1]


def linear_probe(train: Examples, validation: Examples, test: Examples) -> dict[str, Any]:
    """Fit on `train`, choose the penalty on `validation`, score on `test`.

    Features are centred and divided by their standard deviations in `train`.

    Returns:
        `accuracy`, the share of test examples classified correctly, `low` and `high`, its 95 % Wilson interval;
        `majority`, the share of the largest class; `num`, test examples; `penalty`, the one chosen.
    """
    from scipy.stats import binomtest

    mean, spread = train[0].mean(axis=0), train[0].std(axis=0) + TINY
    fitted, chosen, scored = (((features - mean) / spread, classes) for features, classes in (train, validation, test))
    num_classes = 1 + int(max(classes.max() for _features, classes in (train, validation, test)))
    fits = [(fit(fitted, num_classes, penalty), penalty) for penalty in PENALTIES]
    weights, penalty = min(fits, key=lambda pair: _loss(pair[0], chosen))
    right = _logits(weights, scored[0]).argmax(axis=1) == scored[1]
    accuracy, majority = float(right.mean()), float(np.bincount(scored[1]).max() / len(right))
    low, high = binomtest(int(right.sum()), len(right)).proportion_ci(method="wilson")
    return {"accuracy": accuracy, "low": low, "high": high, "majority": majority, "num": len(right), "penalty": penalty}


def fit(examples: Examples, num_classes: int, penalty: float) -> Float[np.ndarray, "inputs classes"]:
    """Weights, the last row biases, that minimise the mean cross-entropy + penalty / 2 · ‖weights without biases‖²."""
    from scipy.optimize import minimize

    features, classes = torch.from_numpy(examples[0]), torch.from_numpy(examples[1])

    def objective(flat: np.ndarray) -> tuple[float, np.ndarray]:
        weights = torch.from_numpy(flat).view(-1, num_classes).requires_grad_()
        with torch.enable_grad():
            loss = functional.cross_entropy(features @ weights[:-1] + weights[-1], classes)
            loss = loss + penalty / 2 * weights[:-1].square().sum()
        return loss.item(), torch.autograd.grad(loss, weights)[0].flatten().numpy()

    begin = np.zeros((features.shape[1] + 1) * num_classes)
    found = minimize(objective, begin, jac=True, method="L-BFGS-B", options={"maxiter": MOST_ITERATIONS})
    return found.x.reshape(-1, num_classes)


def _logits(weights: np.ndarray, features: np.ndarray) -> np.ndarray:
    return features @ weights[:-1] + weights[-1]


def _loss(weights: np.ndarray, examples: Examples) -> float:
    logits = torch.from_numpy(_logits(weights, examples[0]))
    return float(functional.cross_entropy(logits, torch.from_numpy(examples[1])))


MOST_CLASSES = 8


def passages_by_work(
    dataset: Dataset, time: int, counts: Mapping[str, int]
) -> tuple[tuple[str, ...], dict[str, Passages]]:
    """Passages of the works that have most of them, equally many from each, evenly spread over it.

    Args:
        dataset: the text; passages are cut from its blocks, so none crosses from one split into another.
        time: tokens of a passage.
        counts: split -> passages of each work; fewer where the smallest of the chosen works has fewer.

    Returns:
        Titles of the works; split -> its passages.
    """
    text, blocks = "".join(pieces(dataset.load_text().text)), dataset.blocks
    works = works_of(text)
    cut = {split: [_passages(text, work, blocks[split], dataset.tokenizer, time) for work in works] for split in counts}
    sizes = [min(len(cut[split][index]) / counts[split] for split in counts) for index in range(len(works))]
    order = np.argsort(sizes, kind="stable")[::-1].tolist()
    chosen = sorted([index for index in order if sizes[index]][:MOST_CLASSES])
    balanced = {split: _balanced([cut[split][index] for index in chosen], most) for split, most in counts.items()}
    return tuple(works[index].title for index in chosen), balanced


def _passages(
    text: str, work: Work, blocks: Blocks, tokenizer: Tokenizer, time: int
) -> Int[np.ndarray, "passages time"]:
    """All passages of a work in some blocks, one after the other."""
    rows = [np.zeros((0, time), dtype=np.int64)]
    for begin, end in blocks:
        piece = text[max(begin, work.begin) : min(end, work.end)]
        if piece:
            tokens = tokenizer.encode(piece)
            rows.append(tokens[: len(tokens) // time * time].reshape(-1, time))
    return np.concatenate(rows)


def _balanced(cut: Sequence[Int[np.ndarray, "_ time"]], most: int) -> Passages:
    """Equally many passages from each work, evenly spread."""
    count = min(most, *(len(rows) for rows in cut)) if cut else 0
    rows = [rows[np.linspace(0, len(rows), count, endpoint=False).astype(int)] for rows in cut]
    tokens = torch.from_numpy(np.concatenate(rows)) if rows else torch.zeros(0, 1, dtype=torch.int64)
    return tokens, np.repeat(np.arange(len(rows)), count)


# ---------------------------------------------------------------- what no count of tokens contains

FARTHEST = 3
"""Tokens to the border of a word, from which on they are one class."""
SPLITS: tuple[str, ...] = ("train", "validation", "test")
Windows = Int[np.ndarray, "windows time"]


def linear_probes(
    model: Transformer,
    fresh: Transformer,
    tokenizer: Tokenizer,
    splits: Mapping[str, Split],
    sizes: Mapping[str, int],
) -> dict[str, Any] | None:
    """The accuracy of every probe on every task.

    Args:
        model: in evaluation mode.
        fresh: the same before its first step.
        tokenizer: of the model; gives the borders of words.
        splits: "train", "validation" and "test".
        sizes: by split, the number of windows, at most.

    Returns:
        By task (`order`, `word begin`, `word end`) and probe what `linear_probe` returns: `trained`, `untrained`,
        `tokens`, and `control`, the trained model's on the control task (none for `order`). None where a split has too
        few windows.
    """
    time = model.config.context_length
    windows = {name: spread_windows(splits[name], time, sizes[name]).numpy() for name in SPLITS}
    if time < 2 * (FARTHEST + 1) or min(map(len, windows.values())) < 2 * (FARTHEST + 1):
        return None
    word = landmarks(tokenizer).word.numpy()
    models = {"trained": model, "untrained": fresh}
    return {"order": _order(models, windows, word), **_borders(models, windows, word)}


def _order(models: Mapping[str, Transformer], windows: Mapping[str, Windows], word: np.ndarray) -> dict[str, Any]:
    mixed, classes = {}, {}
    for name, rows in windows.items():
        stream = numpy_stream(0, "order of words", name)
        classes[name] = np.arange(len(rows)) % 2
        mixed[name] = np.stack(
            [with_mixed_words(row, word, stream) if odd else row for row, odd in zip(rows, classes[name], strict=True)]
        )
    features = {
        name: {part: mean_activations(model, torch.from_numpy(rows)) for part, rows in mixed.items()}
        for name, model in models.items()
    }
    vocab = models["trained"].vocab_size
    features["tokens"] = {part: token_frequencies(rows, vocab) for part, rows in mixed.items()}
    return {name: _probe(each, classes) for name, each in features.items()}


def with_mixed_words(row: Int[np.ndarray, " time"], word: Bool[np.ndarray, " vocab"], stream: np.random.Generator):
    """The row with its whole words in random order; what is before the first and after the last border stays.

    A word begins with a token that begins with a space or a line break, so the tokens stay the same.
    """
    borders = np.flatnonzero(word[row])
    if len(borders) < 2:
        return row
    pieces = [row[begin:end] for begin, end in pairwise(borders.tolist())]
    mixed = [pieces[index] for index in stream.permutation(len(pieces))]
    return np.concatenate([row[: borders[0]], *mixed, row[borders[-1] :]])


def _borders(models: Mapping[str, Transformer], windows: Mapping[str, Windows], word: np.ndarray) -> dict[str, Any]:
    """The tasks `word begin` and `word end`, at the middle of each window."""
    vocab, middle = models["trained"].vocab_size, windows["train"].shape[1] // 2
    features = {
        name: {part: activations_at(model, rows, middle) for part, rows in windows.items()}
        for name, model in models.items()
    }
    features["tokens"] = {part: token_frequencies(rows[:, [middle]], vocab) for part, rows in windows.items()}
    found: dict[str, Any] = {}
    for task, distance in (("word begin", since_border), ("word end", until_border)):
        classes = {part: distance(word[rows], middle) for part, rows in windows.items()}
        probes = {name: _probe(features[name], classes) for name in ("tokens", *models)}
        pairs = {part: rows[:, middle - 1 : middle + 1] for part, rows in windows.items()}
        found[task] = probes | {"control": _probe(features["trained"], random_classes(pairs, classes, task))}
    return found


def _probe(features: Mapping[str, np.ndarray], classes: Mapping[str, np.ndarray]) -> dict[str, Any]:
    return linear_probe(*((features[part], classes[part]) for part in SPLITS))


def activations_at(model: Transformer, rows: Windows, position: int) -> np.ndarray:
    """The activations after the final norm at one position of each row, float64."""
    return final_activations(model, torch.from_numpy(rows), lambda seen: seen[:, position].double())


def since_border(begins: Bool[np.ndarray, "windows time"], middle: int) -> Int[np.ndarray, " windows"]:
    """Tokens from the last beginning of a word at or before the position, FARTHEST at most."""
    return _steps(begins[:, middle - np.arange(FARTHEST)])


def until_border(begins: Bool[np.ndarray, "windows time"], middle: int) -> Int[np.ndarray, " windows"]:
    """Tokens between the position and the next beginning of a word, FARTHEST at most."""
    return _steps(begins[:, middle + 1 + np.arange(FARTHEST)])


def _steps(begins: Bool[np.ndarray, "windows steps"]) -> Int[np.ndarray, " windows"]:
    return np.where(begins.any(axis=1), begins.argmax(axis=1), FARTHEST)


def random_classes(
    pairs: Mapping[str, Int[np.ndarray, "_ 2"]], classes: Mapping[str, Int[np.ndarray, " _"]], task: str
) -> dict[str, Int[np.ndarray, " _"]]:
    """The control task: for each pair of tokens a class drawn from the task's own, the same wherever the pair is."""
    vocab = 1 + max(int(each.max()) for each in pairs.values())
    codes = {part: each[:, 0].astype(np.int64) * vocab + each[:, 1] for part, each in pairs.items()}
    there = np.unique(np.concatenate(list(codes.values())))  # far fewer than vocab * vocab
    drawn = numpy_stream(0, "control task", task).choice(classes["train"], size=len(there))
    return {part: drawn[np.searchsorted(there, each)] for part, each in codes.items()}

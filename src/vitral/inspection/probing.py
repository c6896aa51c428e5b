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

from collections.abc import Callable, Mapping
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
from vitral.evaluation.losses import AnswerScore
from vitral.inspection.attention import landmarks
from vitral.inspection.targets import read_activation, spread_windows
from vitral.model import Transformer

PENALTIES = (1e-3, 1e-2, 1e-1)
"""Of which the one with the least loss on the validation examples is used."""
MOST_ITERATIONS = 200
TINY = 1e-8
MOST_CLASSES = 8
FARTHEST = 3
"""Tokens to the border of a word, from which on they are one class."""
BORDERS = {"word begin": -np.arange(FARTHEST), "word end": 1 + np.arange(FARTHEST)}
"""By task, where a word may begin: back from a position and at it, and behind it."""
SPLITS: tuple[str, ...] = ("train", "validation", "test")
"""On which a probe is fitted, its penalty is chosen, and it is scored: the keys of the mappings below."""
Windows = Mapping[str, Int[np.ndarray, "windows time"]]
Features = Mapping[str, Float[np.ndarray, "windows features"]]
Classes = Mapping[str, Int[np.ndarray, " windows"]]


def classify_passages(model: Transformer, dataset: Dataset, sizes: Mapping[str, int]) -> dict[str, Any] | None:
    """Which work a passage of a context length is from: by a linear probe on activations, and on token frequencies.

    Args:
        model: in evaluation mode.
        dataset: the text with its tokenizer.
        sizes: by split, the number of passages of each work, at most.

    Returns:
        `titles` of the works; `passages` in each split; `activations` and `frequencies`, each as of `linear_probe`.
        None where no two works occur in all splits.
    """
    titles, passages, works = passages_by_work(dataset, model.config.context_length, sizes)
    if len(titles) < 2 or not all(map(len, passages.values())):
        return None
    return {
        "titles": titles,
        "passages": {split: len(each) for split, each in passages.items()},
        "activations": linear_probe(activations(model, passages, over_positions), works),
        "frequencies": linear_probe(token_frequencies(passages, model.vocab_size), works),
    }


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
    time, word = model.config.context_length, landmarks(tokenizer).word.numpy()
    windows = {split: spread_windows(splits[split], time, sizes[split]).numpy() for split in SPLITS}
    if time < 2 * (FARTHEST + 1) or min(map(len, windows.values())) < 2 * (FARTHEST + 1):
        return None

    def features(rows: Windows, read: Callable[[Tensor], Tensor], tokens: Windows) -> dict[str, Features]:
        seen = {name: activations(each, rows, read) for name, each in (("trained", model), ("untrained", fresh))}
        return {**seen, "tokens": token_frequencies(tokens, model.vocab_size)}

    middle, odd = time // 2, {split: np.arange(len(rows)) % 2 for split, rows in windows.items()}
    mixed = {}
    for split, rows in windows.items():
        stream, several = numpy_stream(0, "order of words", split), enumerate(rows)
        mixed[split] = np.stack([with_mixed_words(row, word, stream) if index % 2 else row for index, row in several])
    accuracies = {
        "order": {name: linear_probe(each, odd) for name, each in features(mixed, over_positions, mixed).items()}
    }
    tokens, pairs = ({split: rows[:, middle - n : middle + 1] for split, rows in windows.items()} for n in (0, 1))
    at_middle = features(windows, lambda seen: seen[:, middle], tokens)
    for task, steps in BORDERS.items():
        classes = {split: to_border(word[rows][:, middle + steps]) for split, rows in windows.items()}
        accuracies[task] = {name: linear_probe(each, classes) for name, each in at_middle.items()}
        accuracies[task]["control"] = linear_probe(at_middle["trained"], random_classes(pairs, classes, task))
    return accuracies


# ---------------------------------------------------------------- the probe and its features


def activations(model: Transformer, windows: Windows, read: Callable[[Tensor], Tensor]) -> Features:
    """What `read` makes of the activations after the final norm, in float64."""
    return {
        split: read_activation(model, torch.from_numpy(rows), "final_norm", lambda seen: read(seen.double())).numpy()
        for split, rows in windows.items()
    }


def over_positions(seen: Float[Tensor, "rows time d_model"]) -> Float[Tensor, "rows d_model"]:
    """The mean over the positions of each row."""
    return seen.mean(dim=1)


def token_frequencies(windows: Windows, vocab_size: int) -> Features:
    """The share of each token in each row: features that need no model."""
    return {
        split: np.stack([np.bincount(row, minlength=vocab_size) for row in rows]) / rows.shape[1]
        for split, rows in windows.items()
    }


def linear_probe(features: Features, classes: Classes) -> dict[str, Any]:
    """Fit on the training split, choose the penalty on the validation split, score on the test split.

    Features are centred and divided by their standard deviations in the training split.

    Args:
        features: a vector of each window.
        classes: of the windows: 0, 1, …

    Returns:
        `accuracy`, the share of test windows classified correctly, `low` and `high`, its 95 % Wilson interval;
        `majority`, the share of the largest class; `num`, test windows; `penalty`, the one chosen.
    """
    mean, spread = features["train"].mean(axis=0), features["train"].std(axis=0) + TINY
    scaled = {split: (features[split] - mean) / spread for split in SPLITS}
    num_classes = 1 + int(max(map(np.max, classes.values())))
    fits = [(fit(scaled["train"], classes["train"], num_classes, penalty), penalty) for penalty in PENALTIES]
    truth = torch.from_numpy(classes["validation"])
    logits = [torch.from_numpy(_logits(weights, scaled["validation"])) for weights, _penalty in fits]
    weights, penalty = fits[int(np.argmin([functional.cross_entropy(one, truth) for one in logits]))]
    right = _logits(weights, scaled["test"]).argmax(axis=1) == classes["test"]
    majority = float(np.bincount(classes["test"]).max() / len(right))
    low, high = AnswerScore(int(right.sum()), len(right)).interval
    score = {"accuracy": float(right.mean()), "low": low, "high": high, "majority": majority}
    return {**score, "num": len(right), "penalty": penalty}


def fit(
    features: Float[np.ndarray, "windows features"],
    classes: Int[np.ndarray, " windows"],
    num_classes: int,
    penalty: float,
) -> Float[np.ndarray, "inputs classes"]:
    """Weights, the last row biases, that minimise the mean cross-entropy + penalty / 2 · ‖weights without biases‖²."""
    from scipy.optimize import minimize

    inputs, targets = torch.from_numpy(features), torch.from_numpy(classes)

    def objective(flat: np.ndarray) -> tuple[float, np.ndarray]:
        weights = torch.from_numpy(flat).view(-1, num_classes).requires_grad_()
        with torch.enable_grad():
            loss = functional.cross_entropy(inputs @ weights[:-1] + weights[-1], targets)
            loss = loss + penalty / 2 * weights[:-1].square().sum()
        return loss.item(), torch.autograd.grad(loss, weights)[0].flatten().numpy()

    begin = np.zeros((features.shape[1] + 1) * num_classes)
    minimum = minimize(objective, begin, jac=True, method="L-BFGS-B", options={"maxiter": MOST_ITERATIONS})
    return minimum.x.reshape(-1, num_classes)


def _logits(weights: np.ndarray, features: np.ndarray) -> np.ndarray:
    return features @ weights[:-1] + weights[-1]


# ---------------------------------------------------------------- passages of works


def passages_by_work(dataset: Dataset, time: int, sizes: Mapping[str, int]) -> tuple[list[str], Windows, Classes]:
    """Passages of the works that have most of them, equally many from each, evenly spread over it.

    Args:
        dataset: the text; passages are cut from its blocks, so none crosses from one split into another.
        time: tokens of a passage.
        sizes: by split, passages of each work; fewer where the smallest of the chosen works has fewer.

    Returns:
        Titles of the works; by split the passages, and the index of the work of each.
    """
    text, blocks = "".join(pieces(dataset.load_text().text)), dataset.blocks
    works, tokenizer = works_of(text), dataset.tokenizer
    cut = {split: [_passages(text, work, blocks[split], tokenizer, time) for work in works] for split in sizes}
    shares = [min(len(cut[split][index]) / sizes[split] for split in sizes) for index in range(len(works))]
    order = np.argsort(shares, kind="stable")[::-1].tolist()
    chosen = sorted([index for index in order if shares[index]][:MOST_CLASSES])
    passages, classes = {}, {}
    for split, most in sizes.items():
        rows = [cut[split][index] for index in chosen]
        count = min([most, *map(len, rows)])
        spread = [each[np.linspace(0, len(each), count, endpoint=False).astype(int)] for each in rows]
        passages[split] = np.concatenate([np.zeros((0, time), dtype=np.int64), *spread])
        classes[split] = np.repeat(np.arange(len(rows)), count)
    return [works[index].title for index in chosen], passages, classes


def _passages(
    text: str, work: Work, blocks: Blocks, tokenizer: Tokenizer, time: int
) -> Int[np.ndarray, "passages time"]:
    """All passages of a work in some blocks, one after the other."""
    rows = [np.zeros((0, time), dtype=np.int64)]
    for begin, end in blocks:
        tokens = tokenizer.encode(text[max(begin, work.begin) : min(end, work.end)])
        rows.append(tokens[: len(tokens) // time * time].reshape(-1, time))
    return np.concatenate(rows)


# ---------------------------------------------------------------- what no count of tokens contains


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


def to_border(begins: Bool[np.ndarray, "windows steps"]) -> Int[np.ndarray, " windows"]:
    """Steps to the first beginning of a word, `FARTHEST` where there is none among so many."""
    return np.where(begins.any(axis=1), begins.argmax(axis=1), FARTHEST)


def random_classes(pairs: Windows, classes: Classes, task: str) -> Classes:
    """The control task: for each pair of tokens a class drawn from the task's own, the same wherever the pair is."""
    vocab = 1 + max(int(each.max()) for each in pairs.values())
    codes = {split: each[:, 0].astype(np.int64) * vocab + each[:, 1] for split, each in pairs.items()}
    there = np.unique(np.concatenate(list(codes.values())))  # far fewer than vocab * vocab
    drawn = numpy_stream(0, "control task", task).choice(classes["train"], size=len(there))
    return {split: drawn[np.searchsorted(there, each)] for split, each in codes.items()}

"""Which work a passage is from: a linear probe on a model's activations, and on token frequencies.

Alain & Bengio (2016): the accuracy of a linear classifier on activations shows which information they contain in a
linearly readable form; the model itself is not trained. The probe is multinomial logistic regression.

Passages are labelled with the work they are from by the collection's own table of contents. A text without such a
table, or with fewer than `FEWEST` works in it, is cut into `MOST_CLASSES` equal segments instead.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from vitral.core.language import N_
from vitral.data import Blocks, Dataset, Tokenizer
from vitral.data.long_texts import pieces
from vitral.data.works import Work, works_of
from vitral.inspection.mask_uses import CHUNK
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
        `titles` of the works; `works`, whether they are works rather than equal segments; `passages` in each split;
        `activations` and `frequencies`, each as of `linear_probe`. None where no two works occur in all splits.
    """
    counts = {"train": train, "validation": validation, "test": test}
    titles, are_works, found = passages_by_work(dataset, model.config.context_length, counts)
    if len(titles) < 2 or not all(len(works) for _tokens, works in found.values()):
        return None
    passages = found.values()
    activations = ((mean_activations(model, tokens), works) for tokens, works in passages)
    frequencies = ((token_frequencies(tokens.numpy(), model.vocab_size), works) for tokens, works in passages)
    return {
        "titles": list(titles),
        "works": are_works,
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
    """What `read` makes of the activations after the final norm, `CHUNK` rows at a time."""
    return torch.cat([read(model.trace(rows, ["final_norm"])["final_norm"]) for rows in tokens.split(CHUNK)]).numpy()


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
    mean, spread = train[0].mean(axis=0), train[0].std(axis=0) + TINY
    fitted, chosen, scored = (((features - mean) / spread, classes) for features, classes in (train, validation, test))
    num_classes = 1 + int(max(classes.max() for _features, classes in (train, validation, test)))
    fits = [(fit(fitted, num_classes, penalty), penalty) for penalty in PENALTIES]
    weights, penalty = min(fits, key=lambda pair: _loss(pair[0], chosen, 0.0)[0])
    right = _logits(weights, scored[0]).argmax(axis=1) == scored[1]
    accuracy, majority = float(right.mean()), float(np.bincount(scored[1]).max() / len(right))
    low, high = wilson(accuracy, len(right))
    return {"accuracy": accuracy, "low": low, "high": high, "majority": majority, "num": len(right), "penalty": penalty}


def fit(examples: Examples, num_classes: int, penalty: float) -> Float[np.ndarray, "inputs classes"]:
    """Weights, the last row biases, that minimise the mean cross-entropy + penalty / 2 · ‖weights without biases‖²."""
    from scipy.optimize import minimize

    shape = (examples[0].shape[1] + 1, num_classes)

    def objective(flat: np.ndarray) -> tuple[float, np.ndarray]:
        loss, gradient = _loss(flat.reshape(shape), examples, penalty)
        return loss, gradient.ravel()

    options = {"maxiter": MOST_ITERATIONS}
    found = minimize(objective, np.zeros(math.prod(shape)), jac=True, method="L-BFGS-B", options=options)
    return found.x.reshape(shape)


def _logits(weights: np.ndarray, features: np.ndarray) -> np.ndarray:
    return features @ weights[:-1] + weights[-1]


def _loss(weights: np.ndarray, examples: Examples, penalty: float) -> tuple[float, np.ndarray]:
    """Mean cross-entropy with the penalty, and its gradient."""
    features, classes = examples
    logits = _logits(weights, features)
    logits -= logits.max(axis=1, keepdims=True)
    log_probabilities = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    rows = np.arange(len(classes))
    loss = -log_probabilities[rows, classes].mean() + penalty / 2 * (weights[:-1] ** 2).sum()
    error = np.exp(log_probabilities)
    error[rows, classes] -= 1
    error /= len(rows)
    gradient = np.concatenate([features.T @ error + penalty * weights[:-1], error.sum(axis=0, keepdims=True)])
    return float(loss), gradient


def wilson(share: float, num: int, confidence: float = 0.95) -> tuple[float, float]:
    """The score interval of a share (Wilson 1927): (p + z²/2n ± z √(p(1-p)/n + z²/4n²)) / (1 + z²/n).

    Equal to `scipy.stats.binomtest(k, n).proportion_ci(confidence, "wilson")`, which takes whole numbers of successes
    only; here a trial may count half, as a tie does, or be itself a share over seeds.

    >>> [round(end, 3) for end in wilson(0.5, 100)]
    [0.404, 0.596]

    Args:
        share: of successes.
        num: trials.
        confidence: share of such intervals that contain the true share.
    """
    from scipy import stats

    z = float(stats.norm.ppf((1 + confidence) / 2))
    middle = share + z * z / (2 * num)
    half = z * math.sqrt(share * (1 - share) / num + (z / (2 * num)) ** 2)
    scale = 1 + z * z / num
    return max(0.0, (middle - half) / scale), min(1.0, (middle + half) / scale)


MOST_CLASSES = 8
FEWEST = 4
"""Works below which a text is cut into equal segments."""


def equal_segments(text: str) -> list[Work]:
    """The text in `MOST_CLASSES` equal segments."""
    borders = np.linspace(0, len(text), MOST_CLASSES + 1).astype(int).tolist()
    title = N_("stretch {number}")
    return [Work(title.format(number=number), *pair) for number, pair in enumerate(pairwise(borders), start=1)]


def passages_by_work(
    dataset: Dataset, time: int, counts: Mapping[str, int]
) -> tuple[tuple[str, ...], bool, dict[str, Passages]]:
    """Passages of the works that have most of them, equally many from each, evenly spread over it.

    Args:
        dataset: the text; passages are cut from its blocks, so none crosses from one split into another.
        time: tokens of a passage.
        counts: split -> passages of each work; fewer where the smallest of the chosen works has fewer.

    Returns:
        Titles of the works; whether they are works rather than equal segments; split -> its passages.
    """
    text, blocks = "".join(pieces(dataset.load_text().text)), dataset.blocks
    for works, are_works in ((works_of(text), True), (equal_segments(text), False)):
        cut = {
            split: [_passages(text, work, blocks[split], dataset.tokenizer, time) for work in works] for split in counts
        }
        sizes = [min(len(cut[split][index]) / counts[split] for split in counts) for index in range(len(works))]
        chosen = [index for index in np.argsort(sizes, kind="stable")[::-1].tolist() if sizes[index]][:MOST_CLASSES]
        if len(chosen) >= (FEWEST if are_works else 2) or not are_works:
            break
    chosen = sorted(chosen)
    balanced = {split: _balanced([cut[split][index] for index in chosen], most) for split, most in counts.items()}
    return tuple(works[index].title for index in chosen), are_works, balanced


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

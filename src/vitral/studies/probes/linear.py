"""A linear probe: what can be read off activations by multinomial logistic regression, and no more than that.

Alain & Bengio (2016): how well a linear classifier does on a model's activations says what they hold in a form that is
easy to use; the model itself is not trained on.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

PENALTIES = (1e-3, 1e-2, 1e-1)
"""Of which the one with the least loss on the validation passages is used."""
MOST_ITERATIONS = 200
TINY = 1e-8


@dataclass(frozen=True, eq=False)
class Sample:
    """Activations with their classes.

    Attributes:
        features: a row each.
        classes: 0, 1, …
    """

    features: Float[np.ndarray, "rows features"]
    classes: Int[np.ndarray, " rows"]


@dataclass(frozen=True)
class ProbeResult:
    """What the probe achieved on held-out rows.

    Attributes:
        accuracy: share of rows whose class it names.
        low: lower end of the 95 % interval (Wilson 1927).
        high: its upper end.
        majority: accuracy of naming the commonest class.
        num: rows.
        penalty: the one chosen.
    """

    accuracy: float
    low: float
    high: float
    majority: float
    num: int
    penalty: float


def probe(train: Sample, validation: Sample, test: Sample) -> ProbeResult:
    """Fit on `train`, choose the penalty on `validation`, measure on `test`.

    Features are centred and divided by their standard deviations in `train`.
    """
    mean, spread = train.features.mean(axis=0), train.features.std(axis=0) + TINY
    scaled = [Sample((one.features - mean) / spread, one.classes) for one in (train, validation, test)]
    num_classes = int(max(one.classes.max() for one in scaled)) + 1
    fits = [(fit(scaled[0], num_classes, penalty), penalty) for penalty in PENALTIES]
    weights, penalty = min(fits, key=lambda pair: _loss(pair[0], scaled[1], 0.0)[0])
    right = _scores(weights, scaled[2].features).argmax(axis=1) == scaled[2].classes
    low, high = wilson(int(right.sum()), len(right))
    majority = float(np.bincount(scaled[2].classes).max() / len(right))
    return ProbeResult(float(right.mean()), low, high, majority, len(right), penalty)


def fit(sample: Sample, num_classes: int, penalty: float) -> Float[np.ndarray, "inputs classes"]:
    """Weights, the last row biases, that minimise the mean cross-entropy + penalty / 2 · ‖weights without biases‖²."""
    from scipy.optimize import minimize

    shape = (sample.features.shape[1] + 1, num_classes)

    def objective(flat: np.ndarray) -> tuple[float, np.ndarray]:
        loss, gradient = _loss(flat.reshape(shape), sample, penalty)
        return loss, gradient.ravel()

    options = {"maxiter": MOST_ITERATIONS}
    return minimize(objective, np.zeros(math.prod(shape)), jac=True, method="L-BFGS-B", options=options).x.reshape(
        shape
    )


def wilson(right: int, num: int, z: float = 1.959964) -> tuple[float, float]:
    """The Wilson (1927) interval of a share: (p + z²/2n ± z √(p(1-p)/n + z²/4n²)) / (1 + z²/n).

    >>> [round(end, 4) for end in wilson(5, 10)]
    [0.2366, 0.7634]
    """
    share, squared = right / num, z * z
    middle, half = share + squared / (2 * num), z * math.sqrt(share * (1 - share) / num + squared / (4 * num * num))
    whole = 1 + squared / num
    return max(0.0, (middle - half) / whole), min(1.0, (middle + half) / whole)


def frequencies(tokens: Int[np.ndarray, "rows time"], vocab_size: int) -> Float[np.ndarray, "rows vocab"]:
    """How often each token stands in each row, as shares: what a probe can do without any model."""
    counts: Sequence[np.ndarray] = [np.bincount(row, minlength=vocab_size) for row in tokens]
    return np.stack(counts) / tokens.shape[1]


def _scores(weights: np.ndarray, features: np.ndarray) -> np.ndarray:
    return features @ weights[:-1] + weights[-1]


def _loss(weights: np.ndarray, sample: Sample, penalty: float) -> tuple[float, np.ndarray]:
    """Mean cross-entropy with the penalty, and its gradient."""
    scores = _scores(weights, sample.features)
    scores -= scores.max(axis=1, keepdims=True)
    log_probabilities = scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))
    rows = np.arange(len(sample.classes))
    loss = -log_probabilities[rows, sample.classes].mean() + penalty / 2 * (weights[:-1] ** 2).sum()
    error = np.exp(log_probabilities)
    error[rows, sample.classes] -= 1
    error /= len(rows)
    gradient = np.concatenate([sample.features.T @ error + penalty * weights[:-1], error.sum(axis=0, keepdims=True)])
    return float(loss), gradient

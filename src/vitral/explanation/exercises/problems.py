"""The numbers of an exercise, drawn so that a hand can compute with them."""

import itertools
import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from vitral.core.language import N_, _
from vitral.explanation.exercises.effort import Effort
from vitral.explanation.exercises.exercise import LARGEST_SIDE, Exercise

ENTRIES = (-1, 0, 0, 0, 1, 1)
"""Matrix entries are drawn from these; small, so that products can be computed mentally."""
WORDS = (N_("sun"), N_("moon"), N_("sea"), N_("sky"), N_("rain"))
LOGARITHM_DIGITS = 4
"""Digits of logits that are logarithms of whole numbers."""
MOST_TRIES = 20
SHARES = 20
"""The probabilities of a choice are whole numbers of 1/20, which two decimals write exactly."""

SCORES = ("scores", "scaled", "masked", "weights")


@dataclass(frozen=True)
class Problem:
    """The contents of an exercise.

    Attributes:
        settings: at the top of the file, after the title.
        given: the given numbers.
        asked: the quantities to compute, in the order of the computation.
        steps: expressions of quantities that are computed in another way than usual.
    """

    settings: dict[str, Any] = field(default_factory=dict)
    given: dict[str, Any] = field(default_factory=dict)
    asked: tuple[str, ...] = ()
    steps: dict[str, str] = field(default_factory=dict)


LIMITS = {
    "attention": Effort(largest=9, products=130, exponentials=7, exponent=3, flat_rows=0),
    "multi-head": Effort(largest=9, products=170, exponentials=9, exponent=3, flat_rows=0),
    "block": Effort(largest=9, products=110, exponentials=3, exponent=3, flat_rows=0, roots=1),
    "positions": Effort(largest=4),
    "choice": Effort(largest=4, exponentials=5, exponent=3),
    "loss": Effort(largest=5, products=12, exponentials=6, exponent=3),
    "cross-attention": Effort(largest=9, products=130, exponentials=6, exponent=3, flat_rows=0),
}
"""The most that an exercise of the usual sizes asks of a hand."""


def problems(exercise: Exercise) -> Iterator[Problem]:
    """Drawn problems without end; the same for the same exercise."""
    kind = exercise.kind
    # The stream of the former exercises, whose numbers stay the same.
    random_ = random.Random(f"tiny {exercise.seed}" if kind in ("attention", "multi-head") else exercise.name)
    while True:
        yield DRAW[kind](exercise, random_)


def _matrix(random_: random.Random, rows: int, columns: int) -> list[list[int]]:
    """Whole numbers; no row is all zeros."""
    drawn = [[random_.choice(ENTRIES) for _ in range(columns)] for _ in range(rows)]
    return [row if any(row) else [1, *row[1:]] for row in drawn]


def _distinct(random_: random.Random, rows: int, columns: int) -> list[list[int]]:
    """A matrix whose rows differ, if it is wide enough."""
    drawn = [_matrix(random_, rows, columns) for _ in range(MOST_TRIES)]
    return next((table for table in drawn if len(set(map(tuple, table))) == rows), drawn[0])


def _attention(exercise: Exercise, random_: random.Random) -> Problem:
    """One head or several, from x and the matrices to the output."""
    positions, d_model, num_heads = exercise.positions, exercise.d_model, exercise.num_heads
    width = d_model // num_heads

    def heads(rows: int, columns: int) -> list:
        drawn = [_matrix(random_, rows, columns) for _ in range(num_heads)]
        return drawn if num_heads > 1 else drawn[0]

    given: dict[str, Any] = {"x": _matrix(random_, positions, d_model)}
    given |= {name: heads(d_model, width) for name in ("w_q", "w_k", "w_v")}
    if num_heads > 1:
        given["w_o"] = _matrix(random_, d_model, d_model)
    asked = ("q", "k", "v", *SCORES, *(("z",) if num_heads > 1 else ()), "output")
    settings = {"mask": exercise.mask, "scale": exercise.scale, "heads": num_heads, "decimals": exercise.decimals}
    return Problem(settings, given, asked)


def _sparse(random_: random.Random, rows: int, columns: int) -> list[list[int]]:
    """One or two entries of ±1 in each column."""
    table = [[0] * columns for _ in range(rows)]
    for column in range(columns):
        for row in random_.sample(range(rows), random_.choice((1, min(2, rows)))):
            table[row][column] = random_.choice((-1, 1, 1))
    return table


def _balanced(random_: random.Random, width: int) -> list[int]:
    """Two numbers, each in half of the places: the norm of the row is ±1, exactly."""
    signs = [1, -1] * (width // 2)
    random_.shuffle(signs)
    middle, spread = random_.choice((0, 1, 2)), random_.choice((1, 2))
    return [middle + spread * sign for sign in signs]


def _block(exercise: Exercise, random_: random.Random) -> Problem:
    """A pre-norm block; without ε, so that its first norm is exact."""
    positions, width, hidden = exercise.positions, exercise.d_model, max(2, exercise.d_model // 2)
    given = {"resid_pre": [_balanced(random_, width) for _ in range(positions)]}
    given |= {name: _sparse(random_, width, width) for name in ("w_q", "w_k", "w_v")}
    given |= {"w_up": _sparse(random_, width, hidden), "w_down": _sparse(random_, hidden, width)}
    asked = ("attn_norm", "q", "k", "v", *SCORES, "out", "resid_mid", "mlp_norm")
    asked += ("mlp.pre", "mlp.hidden", "mlp.out", "resid_post")
    settings = {"block": "pre", "activation": "relu", "epsilon": 0, "mask": exercise.mask, "scale": exercise.scale}
    return Problem({**settings, "decimals": exercise.decimals}, given, asked)


def _positions(exercise: Exercise, random_: random.Random) -> Problem:
    """The same word at the first and at the last position, told apart by sines and cosines."""
    words = random_.sample([_(word) for word in WORDS], min(len(WORDS), max(1, exercise.positions - 1)))
    tokens = [words[place % len(words)] for place in range(exercise.positions)]
    rows = dict(zip(words, _matrix(random_, len(words), exercise.d_model), strict=True))
    given = {"token_embedding": [rows[token] for token in tokens], "position_embedding": "sinusoidal"}
    return Problem({"tokens": tokens, "decimals": exercise.decimals}, given, ("position_embedding", "x"))


def _choice(exercise: Exercise, random_: random.Random) -> Problem:
    """Logits that are logarithms of whole numbers, and the rules of decoding."""
    shares = random_.choice(_partitions())
    top, last = _between(shares, random_)
    count = len(shares)
    drawn = random_.sample(shares, count)
    logits = [round(math.log(share), LOGARITHM_DIGITS) for share in drawn]
    rules = ("temperature_0.5", "top_k_2", f"top_p_{top:g}", f"min_p_{last:g}")
    settings = {"vocabulary": [_(word) for word in WORDS[:count]], "decimals": exercise.decimals}
    return Problem(settings, {"logits": logits}, ("probabilities", "greedy", *rules))


@cache
def _partitions() -> list[tuple[int, ...]]:
    """Shares of 20 for four or five words, the three largest distinct."""
    found = [
        shares
        for count in (4, 5)
        for shares in itertools.combinations_with_replacement(range(12, 0, -1), count)
        if sum(shares) == SHARES and len(set(shares[:3])) == 3 and shares[2] > shares[3]
    ]
    return sorted(found)


def _between(shares: tuple[int, ...], random_: random.Random) -> tuple[float, float]:
    """A p of top-p and one of min-p, each of which keeps two or three words and lies clearly between two words."""
    kept = random_.choice((2, 3))
    top = sum(shares[: kept - 1]) + shares[kept - 1] // 2
    kept = random_.choice((2, 3))
    least = (shares[kept - 1] + shares[kept]) / 2 / shares[0]
    return round(top / SHARES, 2), round(least, 2)


def _loss(exercise: Exercise, random_: random.Random) -> Problem:
    """Two positions before the head, whose logits are logarithms of whole numbers; loss and derivatives."""
    first, second = random_.choice(_multiples())
    rows = [[round(math.log(share), LOGARITHM_DIGITS) for share in shares] for shares in (first, second)]
    vocabulary = [_(word) for word in WORDS[: len(first)]]
    targets = random_.sample(vocabulary, 2)
    given = {"x": random_.choice(([[1, 0], [1, 1]], [[1, 1], [1, 0]])), "w_u": rows, "targets": targets}
    steps = {"loss": "cross_entropy(logits, targets)"}
    steps |= {f"d_{name}": f"grad(loss, {name})" for name in ("logits", "w_u", "x")}
    settings = {"vocabulary": vocabulary, "decimals": exercise.decimals}
    return Problem(settings, given, ("logits", "probabilities", *steps), steps)


@cache
def _multiples() -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Three shares of 10, and the factors that make them shares of 20."""
    parts = [each for each in itertools.product(range(1, 9), repeat=3) if sum(each) == 10 and len(set(each)) == 3]
    factors = [each for each in itertools.product(range(1, 10), repeat=3) if len(set(each)) > 1]
    return [
        (shares, each)
        for shares, each in itertools.product(parts, factors)
        if sum(map(math.prod, zip(shares, each, strict=True))) == SHARES
    ]


def _cross_attention(exercise: Exercise, random_: random.Random) -> Problem:
    """Queries of a decoder, keys and values of an encoder's states, one position more."""
    positions, width = exercise.positions, exercise.d_model
    source = min(LARGEST_SIDE, positions + 1)
    given = {"x": _distinct(random_, positions, width), "memory": _distinct(random_, source, width)}
    given |= {name: _matrix(random_, width, width) for name in ("w_q", "w_k", "w_v")}
    steps = {"k": "memory @ w_k", "v": "memory @ w_v"}
    settings = {"mask": "bidirectional", "scale": exercise.scale, "decimals": exercise.decimals}
    return Problem(settings, given, ("q", "k", "v", "scores", "scaled", "weights", "output"), steps)


DRAW: dict[str, Callable[[Exercise, random.Random], Problem]] = {
    "attention": _attention,
    "multi-head": _attention,
    "block": _block,
    "positions": _positions,
    "choice": _choice,
    "loss": _loss,
    "cross-attention": _cross_attention,
}
"""For each kind, the drawing of a problem."""

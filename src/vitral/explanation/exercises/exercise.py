"""An exercise: its kind and sizes, and its numbers, drawn so that a hand can compute with them.

The work of a computation is how large its numbers are, and how many there are to compute.
"""

import itertools
import math
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Annotated, Any, Literal, Self

import torch
from pydantic import Field, model_validator

from vitral.core.config import Config
from vitral.core.errors import UsageError
from vitral.core.language import N_, _
from vitral.explanation.examples.example import Example
from vitral.explanation.expressions import Call, Reference, compute, every, references
from vitral.explanation.sheet import Sheet

LARGEST_SIDE = 8
"""Largest number of positions, columns and heads: an exercise is solved by hand."""
Side = Annotated[int, Field(ge=1, le=LARGEST_SIDE)]
ALL_SIZES = ("positions", "d_model", "num_heads", "mask", "scale")


class Exercise(Config):
    """The kind and the sizes of an exercise.

    Attributes:
        positions: number of tokens.
        d_model: width of the stream.
        num_heads: must divide d_model.
        mask: "causal" or "bidirectional".
        scale: "none", "sqrt" or "linear".
        seed: of the random numbers.
        decimals: digits after the point.
        kind: a name of `KINDS`.
    """

    positions: Side = 3
    d_model: Side = 4
    num_heads: Side = 1
    mask: Literal["causal", "bidirectional"] = "causal"
    scale: Literal["none", "sqrt", "linear"] = "sqrt"
    seed: int = 1
    decimals: int = 2
    kind: Literal[
        "attention", "multi-head", "block", "positions", "choice", "loss", "cross-attention", "difference"
    ] = "attention"

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.d_model % self.num_heads:
            raise UsageError(
                "num_heads: {num_heads} heads do not divide d_model = {d_model} into equal widths",
                num_heads=self.num_heads,
                d_model=self.d_model,
            )
        if self.kind in ("block", "positions") and self.d_model % 2:
            raise UsageError(
                "d_model: {d_model} is odd; an exercise of the kind {kind} needs an even width",
                d_model=self.d_model,
                kind=self.kind,
            )
        return self

    @property
    def name(self) -> str:
        """The name of its files, as attention-7."""
        return f"{self.kind}-{self.seed}"


ALIKE = 1e-9
"""Exponents that differ by less are the same."""


@dataclass(frozen=True)
class Effort:
    """The work of a computation.

    Attributes:
        largest: the largest number that is given or computed, without its sign.
        products: the products of two numbers of which neither is 0.
        exponentials: the distinct exponentials of all rows of shares.
        exponent: the largest exponent, without its sign.
        flat_rows: rows of exponents of two entries or more that are all equal, so that nothing is to compute.
        roots: rows to normalise whose standard deviation is not a multiple of 1/2.
    """

    largest: float = 0.0
    products: int = 0
    exponentials: int = 0
    exponent: float = 0.0
    flat_rows: int = 0
    roots: int = 0

    def within(self, limits: "Effort") -> bool:
        """Whether no number is above that of `limits`."""
        return all(getattr(self, name) <= most + ALIKE for name, most in vars(limits).items())


def effort(example: Example) -> Effort:
    """The work that an example asks for, in all of its quantities."""
    sheet = example.sheet
    numbers = torch.cat([value.flatten() for value in sheet.values.values()])
    # The product of ones where a factor is not 0 counts the products of each number.
    factors = {name: (value != 0).double() for name, value in sheet.values.items()}
    rows = exponents(sheet)
    entries = {round(entry / ALIKE) for row in rows for entry in row}
    halves = [2 * compute(call, sheet.values) for call in _calls(sheet, "root") if references(call)]
    return Effort(
        largest=float(numbers[numbers.isfinite()].abs().max()),
        products=sum(int(compute(call, factors).sum()) for call in _calls(sheet, "matmul")),
        exponentials=len(entries),
        exponent=max(map(abs, entries), default=0) * ALIKE,
        flat_rows=sum(len(row) > 1 and max(row) - min(row) < ALIKE for row in rows),
        roots=sum(int(((values - values.round()).abs() > ALIKE).sum()) for values in halves),
    )


def _calls(sheet: Sheet, function: str) -> list[Call]:
    """The calls of a function in everything that is computed, but not in derivatives."""
    trees = [quantity.tree for quantity in sheet.quantities if not quantity.derivative]
    return [call for tree in trees for call in dict.fromkeys(every(tree)) if call.function == function]


def exponents(sheet: Sheet) -> list[list[float]]:
    """The exponents of each row of exponentials over their sum, without −∞."""
    names = [call.arguments[0] for call in _calls(sheet, "shift")]
    tables = [sheet.values[reference.name] for reference in names if isinstance(reference, Reference)]
    return [row[row > -torch.inf].tolist() for table in tables for row in table.reshape(-1, table.shape[-1])]


ENTRIES = (-1, 0, 0, 0, 1, 1)
"""Matrix entries are drawn from these; small, so that products can be computed mentally."""
WORDS = (N_("sun"), N_("moon"), N_("sea"), N_("sky"), N_("rain"))
LOGARITHM_DIGITS = 4
"""Digits of logits that are logarithms of whole numbers."""
MOST_TRIES = 20
T_OF_FOUR = 3.18
"""Student's t of 95% for the mean of four numbers."""
SHARES = 20
"""The probabilities of a choice are whole numbers of 1/20, which two decimals write exactly."""

SCORES = ("scores", "scaled", "masked", "weights")
NAMES = (*SCORES[1:], N_("output"), N_("probabilities"))
"""Quantities that an exercise calls by a word of its language."""
OF_DIFFERENCE = N_("other"), N_("difference"), N_("average"), N_("deviation"), N_("variance"), N_("error")
ENDS = N_("low"), N_("high")
"""Quantities of the exercise of a difference, and the ends of its interval."""


@dataclass(frozen=True)
class Problem:
    """The contents of an exercise.

    Attributes:
        settings: at the top of the file, between the title and the decimals.
        given: the given numbers.
        asked: the quantities to compute, in the order of the computation.
        steps: expressions of quantities that are computed in another way than usual.
    """

    settings: dict[str, Any] = field(default_factory=dict)
    given: dict[str, Any] = field(default_factory=dict)
    asked: tuple[str, ...] = ()
    steps: dict[str, str] = field(default_factory=dict)


def problems(exercise: Exercise) -> Iterator[Problem]:
    """Drawn problems without end; the same for the same exercise."""
    kind = exercise.kind
    # The stream of the former exercises, whose numbers stay the same.
    random_ = random.Random(f"tiny {exercise.seed}" if kind in ("attention", "multi-head") else exercise.name)
    while True:
        problem = KINDS[kind].draw(exercise, random_)
        yield replace(problem, asked=tuple(_(name) if name in NAMES else name for name in problem.asked))


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
    settings = {"mask": exercise.mask, "scale": exercise.scale, "heads": num_heads}
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
    return Problem(settings, given, asked)


def _positions(exercise: Exercise, random_: random.Random) -> Problem:
    """The same word at the first and at the last position, told apart by sines and cosines."""
    words = random_.sample([_(word) for word in WORDS], min(len(WORDS), max(1, exercise.positions - 1)))
    tokens = [words[position % len(words)] for position in range(exercise.positions)]
    rows = dict(zip(words, _matrix(random_, len(words), exercise.d_model), strict=True))
    given = {"token_embedding": [rows[token] for token in tokens], "position_embedding": "sinusoidal"}
    return Problem({"tokens": tokens}, given, ("position_embedding", "x"))


def _choice(exercise: Exercise, random_: random.Random) -> Problem:
    """Logits that are logarithms of whole numbers, and the rules of decoding."""
    shares = random_.choice(_partitions())
    top, last = _between(shares, random_)
    count = len(shares)
    drawn = random_.sample(shares, count)
    logits = [round(math.log(share), LOGARITHM_DIGITS) for share in drawn]
    rules = ("temperature_0.5", "top_k_2", f"top_p_{top:g}", f"min_p_{last:g}")
    settings = {"vocabulary": [_(word) for word in WORDS[:count]]}
    return Problem(settings, {"logits": logits}, ("probabilities", "greedy", *rules))


@cache
def _partitions() -> list[tuple[int, ...]]:
    """Shares of 20 for four or five words, the three largest distinct."""
    partitions = [
        shares
        for count in (4, 5)
        for shares in itertools.combinations_with_replacement(range(12, 0, -1), count)
        if sum(shares) == SHARES and len(set(shares[:3])) == 3 and shares[2] > shares[3]
    ]
    return sorted(partitions)


def _between(shares: tuple[int, ...], random_: random.Random) -> tuple[float, float]:
    """A p of top-p and one of min-p, each of which keeps two or three words and lies clearly between two words."""
    num_kept = random_.choice((2, 3))
    top = sum(shares[: num_kept - 1]) + shares[num_kept - 1] // 2
    num_kept = random_.choice((2, 3))
    least = (shares[num_kept - 1] + shares[num_kept]) / 2 / shares[0]
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
    return Problem({"vocabulary": vocabulary}, given, ("logits", "probabilities", *steps), steps)


@cache
def _multiples() -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Three shares of 10, and the factors that make them shares of 20."""
    all_shares = [
        shares for shares in itertools.product(range(1, 9), repeat=3) if sum(shares) == 10 and len(set(shares)) == 3
    ]
    all_factors = [factors for factors in itertools.product(range(1, 10), repeat=3) if len(set(factors)) > 1]
    return [
        (shares, factors)
        for shares, factors in itertools.product(all_shares, all_factors)
        if sum(map(math.prod, zip(shares, factors, strict=True))) == SHARES
    ]


def _cross_attention(exercise: Exercise, random_: random.Random) -> Problem:
    """Queries of a decoder, keys and values of an encoder's states, one position more."""
    positions, width = exercise.positions, exercise.d_model
    source = min(LARGEST_SIDE, positions + 1)
    given = {"x": _distinct(random_, positions, width), "memory": _distinct(random_, source, width)}
    given |= {name: _matrix(random_, width, width) for name in ("w_q", "w_k", "w_v")}
    steps = {"k": "memory @ w_k", "v": "memory @ w_v"}
    settings = {"mask": "bidirectional", "scale": exercise.scale}
    return Problem(settings, given, ("q", "k", "v", "scores", "scaled", "weights", "output"), steps)


def _difference(exercise: Exercise, random_: random.Random) -> Problem:
    """Losses of two variants from four seeds, whose standard error is a whole number of tenths."""
    size = random_.choice((-2, -1, 1, 2))
    deviations = [size * tenths for tenths in random_.sample((3, -1, -1, -1), 4)]
    mean = random_.randint(-5, 9)
    base = [random_.randint(13, 19) for _ in deviations]
    other = [loss + mean + deviation for loss, deviation in zip(base, deviations, strict=True)]
    against, difference, average, deviation, variance, error = map(_, OF_DIFFERENCE)
    low, high = map(_, ENDS)
    given = {"base": [loss / 10 for loss in base], against: [loss / 10 for loss in other], "t": T_OF_FOUR}
    steps = {
        difference: f"{against} - base",
        average: f"mean({difference})",
        deviation: f"{difference} - {average}",
        variance: f"sum({deviation} * {deviation}) / 3",
        error: f"sqrt({variance} / 4)",
        low: f"{average} - t * {error}",
        high: f"{average} + t * {error}",
    }
    return Problem({}, given, tuple(steps), steps)


@dataclass(frozen=True)
class Kind:
    """A kind of exercise.

    Attributes:
        title: of its exercises.
        sizes: the fields of `Exercise` that it has, besides seed and decimals.
        draw: draws a problem.
        most: what one of the usual sizes asks of a hand at most.
        usual: sizes that differ from those of `Exercise`.
    """

    title: str
    sizes: tuple[str, ...]
    draw: Callable[[Exercise, random.Random], Problem]
    most: Effort
    usual: Mapping[str, Any] = field(default_factory=dict)


KINDS = {
    "attention": Kind(
        N_("One head of attention"),
        ALL_SIZES,
        _attention,
        Effort(largest=9, products=130, exponentials=7, exponent=3),
    ),
    "multi-head": Kind(
        N_("Several heads of attention"),
        ALL_SIZES,
        _attention,
        Effort(largest=9, products=170, exponentials=9, exponent=3),
        {"num_heads": 2, "scale": "linear"},
    ),
    "block": Kind(
        N_("A pre-norm block"),
        ("positions", "d_model", "mask", "scale"),
        _block,
        Effort(largest=9, products=110, exponentials=3, exponent=3, roots=1),
        {"positions": 2},
    ),
    "positions": Kind(N_("Positions as sines and cosines"), ("positions", "d_model"), _positions, Effort(largest=4)),
    "choice": Kind(N_("The choice of the next token"), (), _choice, Effort(largest=4, exponentials=5, exponent=3)),
    "loss": Kind(N_("Loss and backward pass"), (), _loss, Effort(largest=5, products=12, exponentials=6, exponent=3)),
    "cross-attention": Kind(
        N_("Cross-attention"),
        ("positions", "d_model", "scale"),
        _cross_attention,
        Effort(largest=9, products=130, exponentials=6, exponent=3),
        {"positions": 2},
    ),
    "difference": Kind(N_("A difference over seeds"), (), _difference, Effort(largest=4, roots=1)),
}
"""The kinds of exercises by name."""


def exercise_of(kind: str | None = None, **sizes: Any) -> Exercise:
    """An exercise with the usual sizes of its kind, where no others are given.

    Args:
        kind: a name of `KINDS`; attention if None.
        sizes: fields of `Exercise`; None for the usual one.

    Raises:
        UsageError: an unknown kind, or a size that the kind does not have.
    """
    given = {name: value for name, value in sizes.items() if value is not None}
    usual = KINDS.get(kind or "attention", KINDS["attention"])
    for name in given:
        if name in ALL_SIZES and name not in usual.sizes:
            raise UsageError("exercise: the kind {kind} has no size {name}; leave it out", kind=kind, name=name)
    return Exercise.parse({**usual.usual, **given, "kind": kind or "attention"}, "exercise")

"""Slips in attention: the scale, the mask, the softmax, what is multiplied by what, the heads."""

from collections.abc import Callable
from decimal import Decimal

from students.paper import Paper
from students.pen import NEVER, ONE, ZERO, Matrix, Row, Value
from students.problems import transposed
from students.slips import need, same_shape, slip

# The scale. It happens in `scaled`, where the sheet has a scale.


def scale_by(name: str, factor: Callable[[Paper, Decimal], Decimal]) -> None:
    """A slip that multiplies the scores by something else."""

    @slip(name, "scaled", rows=name == "scale-missing")
    def make(paper: Paper, step: str) -> Value:
        width = Decimal(paper.problem.settings["d_k"])
        need(width > 1)
        need(paper.problem.scale != "0.5" or name in ("scale-missing", "scale-root"))
        right = paper.scaled(ONE)
        by = factor(paper, width)
        need(abs(by / right - 1) > Decimal("0.05"))
        return paper.each("scores", lambda score: score * by)


scale_by("scale-missing", lambda paper, width: ONE)
scale_by("scale-d_k", lambda paper, width: 1 / width)
scale_by("scale-root", lambda paper, width: 1 / width.sqrt())
scale_by("scale-d_model", lambda paper, width: 1 / Decimal(paper.problem.settings["d_model"]))
scale_by("scale-root-d_model", lambda paper, width: 1 / Decimal(paper.problem.settings["d_model"]).sqrt())
scale_by("scale-multiplied", lambda paper, width: width.sqrt() if paper.problem.scale == "sqrt" else width)
scale_by("scale-log2", lambda paper, width: Decimal(2).ln() / (width + 1).ln())
scale_by("scale-twice", lambda paper, width: 1 / width if paper.problem.scale == "sqrt" else 1 / width**2)

# The mask.


@slip("mask-missing", "masked", rows=True)
def mask_missing(paper: Paper, step: str) -> Value:
    return paper.have[paper.before_mask]


def mask_as(name: str, other: Callable[[list[list[bool]]], list[list[bool]]]) -> None:
    """A slip that hides other keys."""

    @slip(name, "masked")
    def make(paper: Paper, step: str) -> Value:
        mask = paper.problem.mask or []
        allowed = other(mask)
        need(allowed != mask and all(any(row) for row in allowed))
        return paper.step_masked(allowed)


def one_more(mask: list[list[bool]]) -> list[list[bool]]:
    """Each query sees what the next one may see."""
    return [*mask[1:], mask[-1]]


def one_fewer(mask: list[list[bool]]) -> list[list[bool]]:
    """A query does not see itself, but the first one must."""
    return [[sees and (i != j or i == 0) for j, sees in enumerate(row)] for i, row in enumerate(mask)]


def turned(mask: list[list[bool]]) -> list[list[bool]]:
    return [list(column) for column in zip(*mask, strict=True)]


mask_as("mask-one-more", one_more)
mask_as("mask-one-fewer", one_fewer)
mask_as("mask-transposed", turned)
mask_as("mask-other-side", lambda mask: [list(reversed(row)) for row in mask])


@slip("mask-zero", "masked")
def mask_zero(paper: Paper, step: str) -> Value:
    return paper.step_masked(hidden=ZERO)


@slip("mask-after-softmax", "weights", rows=True, skips="masked")
def mask_after(paper: Paper, step: str) -> Value:
    need("masked" in paper.have)
    rows = [[paper.pen.softmax(row) for row in rows] for rows in paper.have[paper.before_mask]]
    allowed = paper.problem.mask or []
    return [
        [[w if sees else ZERO for w, sees in zip(*pair, strict=True)] for pair in zip(one, allowed, strict=True)]
        for one in rows
    ]


# The softmax.


def softmax_as(name: str, function: Callable[[Paper, Row], Row]) -> None:
    """A slip in the softmax of a row."""

    @slip(name, "weights", "probabilities", rows=True)
    def make(paper: Paper, step: str) -> Value:
        source = paper.have[paper.before_softmax if step == "weights" else "logits"]
        return [[function(paper, row) for row in rows] for rows in source]


def divided_without_exp(paper: Paper, row: Row) -> Row:
    seen = [ZERO if score == NEVER else score for score in row]
    total = sum(seen, ZERO)
    need(total > Decimal("0.05"))
    return [score / total for score in seen]


def of_base(base: int) -> Callable[[Paper, Row], Row]:
    def shares(paper: Paper, row: Row) -> Row:
        return paper.pen.shares([ZERO if score == NEVER else Decimal(base) ** score for score in row])

    return shares


def one_term_short(paper: Paper, row: Row) -> Row:
    powers = paper.pen.powers(row)
    visible = [place for place, power in enumerate(powers) if power]
    need(len(visible) > 1)
    total = sum(powers, ZERO) - powers[visible[-1]]
    return [power / total for power in powers]


def max_in_numerator(paper: Paper, row: Row) -> Row:
    powers = paper.pen.powers(row)
    most = max(score for score in row if score != NEVER)
    return [paper.pen.exp(score - most) / sum(powers, ZERO) for score in row]


def twice(paper: Paper, row: Row) -> Row:
    need(NEVER not in row)
    return paper.pen.softmax(paper.pen.softmax(row))


softmax_as("softmax-twice", twice)
softmax_as("softmax-temperature", lambda paper, row: paper.pen.softmax([score / 2 for score in row]))
softmax_as("softmax-total-wrong", lambda paper, row: [w / Decimal("1.13") for w in paper.pen.softmax(row)])
softmax_as("softmax-no-exp", divided_without_exp)
softmax_as("softmax-not-divided", lambda paper, row: paper.pen.powers(row))
softmax_as("softmax-base-2", of_base(2))
softmax_as("softmax-base-10", of_base(10))
softmax_as("softmax-term-missing", one_term_short)
softmax_as("softmax-max-numerator", max_in_numerator)


def softmax_along(name: str, function: Callable[[Paper, Matrix], Matrix]) -> None:
    """A slip in what a softmax runs over."""

    @slip(name, "weights", "probabilities")
    def make(paper: Paper, step: str) -> Value:
        source = paper.have[paper.before_softmax if step == "weights" else "logits"]
        need(len(source[0]) > 1)
        return [function(paper, rows) for rows in source]


def whole(paper: Paper, rows: Matrix) -> Matrix:
    total = sum(map(sum, map(paper.pen.powers, rows)), ZERO)
    return [[power / total for power in paper.pen.powers(row)] for row in rows]


softmax_along("softmax-columns", lambda paper, rows: transposed([paper.pen.softmax(row) for row in transposed(rows)]))
softmax_along("softmax-whole", whole)


# What is multiplied by what.


@slip("query-key-exchanged", "scores")
def exchanged(paper: Paper, step: str) -> Value:
    return paper.step_scores("k", "q")


@slip("value-for-key", "scores")
def value_for_key(paper: Paper, step: str) -> Value:
    need("v" in paper.have and same_shape(paper.have["k"], paper.have["v"]))
    return paper.step_scores("q", "v")


@slip("query-for-key", "scores")
def query_for_key(paper: Paper, step: str) -> Value:
    return paper.step_scores("q", "q")


@slip("key-for-value", "z", "output", "out")
def key_for_value(paper: Paper, step: str) -> Value:
    need("k" in paper.have and same_shape(paper.have["k"], paper.have["v"]))
    return summed(paper, step, paper.step_z("k"))


def summed(paper: Paper, step: str, z: Value) -> Value:
    """The step from the heads' results: they are the step itself, or the output is made of them."""
    if step == "z":
        return z
    need("z" not in paper.have)
    return paper.step_output(paper.joined(z))


@slip("other-matrix", "q", "k", "v")
def other_matrix(paper: Paper, step: str) -> Value:
    other = paper.rng.choice([letter for letter in "qkv" if letter != step])
    return paper.project(step, matrix=f"w_{other}")


@slip("matrix-transposed", "q", "k", "v", "mlp.pre", "mlp.out", "output", "out")
def matrix_transposed(paper: Paper, step: str) -> Value:
    name = {"mlp.pre": "w_up", "mlp.out": "w_down", "output": "w_o", "out": "w_o"}.get(step, f"w_{step}")
    need(name in paper.have and len(paper.have[name][0]) == len(paper.have[name][0][0]))
    kept = paper.have[name]
    paper.have[name] = [transposed(rows) for rows in kept]
    value = paper.own(step)
    paper.have[name] = kept
    return value


@slip("other-token", "q", "k", "v")
def other_token(paper: Paper, step: str) -> Value:
    value = paper.own(step)
    row, other = paper.rng.sample(range(len(value[0])), 2)
    need(paper.have[paper.source][0][row] != paper.have[paper.source][0][other])
    for rows in value:
        rows[row] = list(rows[other])
    return value


@slip("column-for-row", "z", "output", "out")
def column_for_row(paper: Paper, step: str) -> Value:
    pairs = zip(paper.have["weights"], paper.have["v"], strict=True)
    return summed(paper, step, [paper.pen.times(transposed(weights), v) for weights, v in pairs])


@slip("scores-other-row", "scores")
def scores_other_row(paper: Paper, step: str) -> Value:
    value = paper.own(step)
    head = paper.rng.randrange(len(value))
    row, other = paper.rng.sample(range(len(value[head])), 2)
    value[head][row] = paper.pen.times([paper.have["q"][head][other]], transposed(paper.have["k"][head]))[0]
    return value


# Heads.


@slip("w_o-forgotten", "output", "out")
def no_w_o(paper: Paper, step: str) -> Value:
    joined = paper.joined()
    need("w_o" in paper.have and len(joined[0]) == len(paper.have["w_o"][0][0]))
    return [joined]


def heads_as(name: str, change: Callable[[list[Matrix]], list[Matrix]]) -> None:
    """A slip in putting the heads together."""

    @slip(name, "output", "out")
    def make(paper: Paper, step: str) -> Value:
        need(not paper.lone)
        return paper.step_output(paper.joined(change(paper.heads())))


def silent(rows: Matrix) -> Matrix:
    return [[ZERO] * len(row) for row in rows]


heads_as("heads-order", lambda heads: heads[::-1])
heads_as("heads-first-only", lambda heads: [heads[0], *map(silent, heads[1:])])
heads_as("heads-first-repeated", lambda heads: [heads[0]] * len(heads))


@slip("heads-averaged", "output", "out")
def heads_averaged(paper: Paper, step: str) -> Value:
    need(not paper.lone)
    heads = paper.heads()
    mean = [[sum(cells, ZERO) / len(heads) for cells in zip(*rows, strict=True)] for rows in zip(*heads, strict=True)]
    need("w_o" in paper.have and len(mean[0]) == len(paper.have["w_o"][0][0]))
    return [mean]

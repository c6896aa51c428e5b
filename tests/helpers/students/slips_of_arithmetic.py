"""Slips of calculation and copying: one cell of any step, and whatever is made of it."""

from collections.abc import Callable
from decimal import ROUND_HALF_EVEN, Decimal
from itertools import pairwise

from students.paper import Paper
from students.pen import ONE, ZERO, Value, places_of
from students.problems import transposed
from students.slips import need, pen_slip, slip

# Arithmetic: one cell of any printed step, and whatever is made of it.

SUMS = ("q", "k", "v", "scores", "z", "output", "out", "mlp.pre", "mlp.out", "logits")


def cell_of(paper: Paper, value: Value, fits: Callable[[Decimal], bool]) -> tuple[int, int, int]:
    cells = [
        (h, i, j)
        for h, rows in enumerate(value)
        for i, row in enumerate(rows)
        for j, entry in enumerate(row)
        if entry.is_finite() and fits(entry)
    ]
    need(cells)
    return paper.rng.choice(cells)


def put(value: Value, cell: tuple[int, int, int], entry: Decimal) -> Value:
    made = [[list(row) for row in rows] for rows in value]
    made[cell[0]][cell[1]][cell[2]] = entry
    return made


def cell_slip(
    name: str,
    change: Callable[[Paper, Decimal], Decimal],
    fits: Callable[[Decimal], bool] = lambda entry: entry != 0,
) -> None:
    """A slip of the pen in one number; the student may go on from it, or from the number in mind."""

    @pen_slip(name)
    def misprint(paper: Paper, step: str, written: Value, carried: Value) -> tuple[Value, Value]:
        cell = cell_of(paper, written, fits)
        h, i, j = cell
        entry = change(paper, written[h][i][j])
        need(entry != written[h][i][j])
        goes_on = paper.rng.random() < 0.5
        return put(written, cell, entry), put(carried, cell, entry) if goes_on else carried


def unit_of(entry: Decimal) -> Decimal:
    return ONE.scaleb(int(entry.as_tuple().exponent))


def swap_digits(paper: Paper, entry: Decimal) -> Decimal:
    digits = list(str(entry))
    places = [place for place, sign in enumerate(digits) if sign.isdigit()]
    pairs = [(a, b) for a, b in pairwise(places) if digits[a] != digits[b]]
    need(pairs)
    a, b = paper.rng.choice(pairs)
    digits[a], digits[b] = digits[b], digits[a]
    return Decimal("".join(digits))


def move_point(paper: Paper, entry: Decimal) -> Decimal:
    moved = entry * 10 if paper.rng.random() < 0.5 or abs(entry) < unit_of(entry) * 100 else entry / 10
    return moved.quantize(unit_of(entry), rounding=ROUND_HALF_EVEN)


def off_by(paper: Paper, entry: Decimal) -> Decimal:
    return entry + unit_of(entry) * paper.rng.randint(3, 25) * paper.rng.choice((1, -1))


def one_ten(paper: Paper, entry: Decimal) -> Decimal:
    return entry + 10 * unit_of(entry) * paper.rng.choice((1, -1))


cell_slip("sign-lost", lambda paper, entry: -entry)
cell_slip("digits-swapped", swap_digits)
cell_slip("point-misplaced", move_point)
cell_slip("carry-of-ten", one_ten)
cell_slip("cell-off", off_by, lambda entry: True)


@pen_slip("whole-number-off", "x", "q", "k", "v", "scores", "scaled", "logits")
def whole_off(paper: Paper, step: str, written: Value, carried: Value) -> tuple[Value, Value]:
    """A whole result of exact numbers, off by one."""
    need(step in paper.problem.exact)
    cell = cell_of(paper, written, lambda entry: entry == entry.to_integral_value())
    h, i, j = cell
    entry = written[h][i][j] + paper.rng.choice((1, -1))
    return put(written, cell, entry), put(carried, cell, entry)


def operands(paper: Paper, step: str) -> tuple[Value, Value]:
    """The two matrices whose product a step is; one pair for each head."""
    have = paper.have
    if step in ("q", "k", "v"):
        weight = have[f"w_{step}"]
        return have[paper.source] * len(weight), weight
    if step == "scores":
        return have["q"], [transposed(rows) for rows in have["k"]]
    if step == "z":
        return have["weights"], have["v"]
    if step in ("output", "out"):
        need("w_o" in have)
        return [paper.joined()], have["w_o"]
    names = {
        "mlp.pre": ("mlp_norm" if "mlp_norm" in have else "resid_mid", "w_up"),
        "mlp.out": ("mlp.hidden", "w_down"),
    }
    source, matrix = names.get(step, ("x", "w_u"))
    return have[source], have[matrix]


def one_term(name: str, change: Callable[[Paper, Decimal, Decimal], Decimal]) -> None:
    """A slip in one product of one sum."""

    @slip(name, *SUMS)
    def make(paper: Paper, step: str) -> Value:
        value = paper.own(step)
        left, right = operands(paper, step)
        h, i, j = cell_of(paper, value, lambda entry: True)
        terms = [(a, row[j]) for a, row in zip(left[h][i], right[h], strict=True) if a and row[j]]
        need(len(terms) > 1)
        a, b = paper.rng.choice(terms)
        return put(value, (h, i, j), value[h][i][j] - a * b + change(paper, a, b))


def next_in_table(paper: Paper, a: Decimal, b: Decimal) -> Decimal:
    """3·4 = 15: the product of a neighbour in the multiplication table."""
    step = ONE.scaleb(-places_of(b, len(str(b).lstrip("-0.").replace(".", "")) or 1))
    return a * (b + step * paper.rng.choice((1, -1)))


one_term("term-missing", lambda paper, a, b: ZERO)
one_term("term-wrong-sign", lambda paper, a, b: -a * b)
one_term("term-added", lambda paper, a, b: a + b)
one_term("product-wrong", next_in_table)


@slip("given-misread", "q", "k", "v", "scores", "z", "output", "mlp.pre", "mlp.out", "logits", "x")
def given_misread(paper: Paper, step: str) -> Value:
    """One entry of what is given is read as a neighbour of it, in this step only."""
    inputs = {
        "x": ("token_embedding",),
        "scores": ("q", "k"),
        "z": ("v",),
        "output": ("v", "w_o"),
        "mlp.pre": ("w_up",),
        "mlp.out": ("w_down",),
        "logits": ("x", "w_u"),
    }.get(step, (paper.source, f"w_{step}"))
    names = [name for name in inputs if name in paper.problem.given]
    need(names)
    name = paper.rng.choice(names)
    kept = paper.have[name]
    h = paper.rng.randrange(len(kept))
    i, j = paper.rng.randrange(len(kept[h])), paper.rng.randrange(len(kept[h][0]))
    near = [
        (i + a, j + b)
        for a, b in ((0, 1), (0, -1), (1, 0), (-1, 0))
        if 0 <= i + a < len(kept[h]) and 0 <= j + b < len(kept[h][0])
    ]
    need(near)
    other = paper.rng.choice(near)
    need(kept[h][i][j] != kept[h][other[0]][other[1]])
    paper.have[name] = put(kept, (h, i, j), kept[h][other[0]][other[1]])
    value = paper.own(step)
    paper.have[name] = kept
    return value


CELLS = ("sign-lost", "digits-swapped", "point-misplaced", "carry-of-ten", "cell-off", "whole-number-off")
"""Slips of the pen: one number, whatever it is the result of."""

"""Walkthroughs made by hand: numbers that tell their place, sizes around every cut, texts that would be obeyed."""

import math

from vitral.explanation.formulas.notation import Equation, Fraction, Name, Number, Over, Power, Product, Sum, Words
from vitral.explanation.steps import Arithmetic, Cell, Chapter, Panel, Step
from vitral.explanation.walkthrough import MOST_FEATURES, MOST_POSITIONS, Walkthrough

NASTY = "\\end{document} $x_1^2$ & 50% #1 ~{} <b>\"'`</b> | \x1b[31m \u202e ж 中 🙂 é ção"


def entry(row: int, column: int) -> float:
    """A number that no other cell has: its place, three digits of it after the point."""
    return (-1) ** (row + column) * (row + column / 100 + 0.001)


def panel(num_rows: int, num_columns: int, cell: Cell, label: str = "", *, positions: bool = True) -> Panel:
    """A matrix of distinct numbers; every cell is the sum of its row's first part and the rest."""
    matrix = tuple(tuple(entry(row, column) for column in range(num_columns)) for row in range(num_rows))

    def working(row: int, column: int) -> Arithmetic:
        stages = (Product((Name("a", str(row)), Name("b", str(column)))), Sum((Number(1), Number(entry(row, column)))))
        return Arithmetic(Name("n", f"{row},{column}"), stages, entry(row, column))

    rows, columns = (
        tuple(f"{letter}{index}" for index in range(n)) for letter, n in (("r", num_rows), ("c", num_columns))
    )
    return Panel(label, matrix, rows, columns, positions, cell, working)


def step(*panels: Panel, name: str = "scores", is_share: bool = False) -> Step:
    return Step(
        name,
        f"Title of {name}",
        Equation((Name(name), Product((Name("q"), Name("k", above="T")), tight=True))),
        "[time 2, d 2] → [time 2, source 2]",
        f"A sentence about {name}.",
        panels,
        is_share,
    )


def walkthrough(*panels: Panel, language: str = "en") -> Walkthrough:
    """One chapter with a step for each panel, and one with all of them as heads."""
    singles = tuple(step(each, name=f"step{index}") for index, each in enumerate(panels))
    return Walkthrough("A title", ("An intro.",), (Chapter("One", singles), Chapter("Two", (step(*panels),))), language)


CASES = {
    "small": panel(2, 3, (1, 2)),
    "one": panel(1, 1, (0, 0)),
    "whole": panel(MOST_POSITIONS, MOST_POSITIONS, (3, 3)),
    "long": panel(MOST_POSITIONS + 1, MOST_POSITIONS + 1, (12, 12)),
    "far": panel(31, 31, (30, 2)),
    "next to the gap": panel(20, 20, (11, 10)),
    "features": panel(5, MOST_FEATURES + 1, (0, 0), positions=False),
    "wide": panel(3, 64, (2, 41), positions=False),
    "both": panel(23, 37, (1, 36), positions=False),
}


def nasty(language: str = "en") -> Walkthrough:
    """A walkthrough of texts that would like to be obeyed, wide and long."""
    labels = tuple(f"{row} {NASTY[row % len(NASTY) :]}" for row in range(3))
    odd = Panel(NASTY, ((0.1, -math.inf, 1 / 3),) * 3, labels, labels, True, (2, 2), CASES["small"].working)

    def softmax(row: int, column: int) -> Arithmetic:
        powers = Sum(tuple(Power(Name("e"), Number(index / 7)) for index in range(40)))
        rule = Fraction(Power(Name("e"), Name("masked", "i,j")), Over("l", Name(NASTY, NASTY)))
        return Arithmetic(Name("resid_mid", "1,2", "T"), (rule, Fraction(Number(1), powers)), 0.2)

    wide = Panel("", tuple((0.123456,) * 60 for _ in range(40)), ("ção",) * 40, ("−∞",) * 60, True, (1, 1), softmax)
    steps = tuple(
        Step("s", NASTY, Equation((Name(NASTY), Words(NASTY))), NASTY, NASTY + "\n\nnext", panels, True)
        for panels in ((odd,), (wide,), (odd, odd, wide))
    )
    return Walkthrough(NASTY + "\n\n", (NASTY, "two\n\nparagraphs"), (Chapter(NASTY, steps),), language)

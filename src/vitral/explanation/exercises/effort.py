"""The work that a computation asks of a hand: how large its numbers are, and how many there are to compute."""

from dataclasses import dataclass

import torch
from torch import Tensor

from vitral.explanation.examples.example import Example
from vitral.explanation.expressions import Call
from vitral.explanation.operations import Linear, Normalise, Output, Project, Score, Softmax, Weigh
from vitral.explanation.operations.expression import Compute
from vitral.explanation.sheet import Sheet, SheetQuantity

PRODUCTS = (Project, Score, Weigh, Linear, Output)
"""Operations that are sums of products."""
ALIKE = 1e-9
"""Exponents that differ by less are the same."""


@dataclass(frozen=True)
class Effort:
    """The work of a computation.

    Attributes:
        largest: the largest number that is given or computed, without its sign.
        products: the products of two numbers of which neither is 0.
        exponentials: the distinct exponentials of all softmax rows.
        exponent: the largest exponent, without its sign.
        flat_rows: softmax rows of two entries or more that are all equal, so that nothing is to compute.
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
    finite = [value[value.isfinite()].abs().max() for value in sheet.values.values() if bool(value.isfinite().any())]
    rows = [row for quantity in sheet.quantities for row in softmax_rows(quantity, sheet)]
    exponents = sorted(entry for row in rows for entry in row)
    distinct = sum(not place or entry - exponents[place - 1] > ALIKE for place, entry in enumerate(exponents))
    return Effort(
        largest=float(max(finite, default=0.0)),
        products=sum(_products(quantity, sheet) for quantity in sheet.quantities),
        exponentials=distinct,
        exponent=max(map(abs, exponents), default=0.0),
        flat_rows=sum(len(row) > 1 and max(row) - min(row) < ALIKE for row in rows),
        roots=sum(_roots(quantity, sheet) for quantity in sheet.quantities),
    )


def _products(quantity: SheetQuantity, sheet: Sheet) -> int:
    """The operation itself, on ones where a factor is not 0, counts the products of each number."""
    operation = quantity.operation
    is_product = isinstance(operation, PRODUCTS) and not (isinstance(operation, Output) and not operation.projects)
    if isinstance(operation, Compute):
        is_product = isinstance(operation.expression, Call) and operation.expression.function == "matmul"
    if not is_product:
        return 0
    factors = [sheet.values[name] for name in quantity.inputs[:2]]  # a third input is a bias
    return int(operation(*((factor != 0).to(factor.dtype) for factor in factors)).sum())


def softmax_rows(quantity: SheetQuantity, sheet: Sheet) -> list[list[float]]:
    """The exponents of each row of a softmax, without −∞; none for another quantity."""
    if not isinstance(quantity.operation, Softmax):
        return []
    entries: Tensor = sheet.values[quantity.inputs[0]]
    return [row[row > -torch.inf].tolist() for row in entries.reshape(-1, entries.shape[-1])]


def _roots(quantity: SheetQuantity, sheet: Sheet) -> int:
    if not isinstance(quantity.operation, Normalise):
        return 0
    halves = 2 * sheet.values[quantity.inputs[0]].std(dim=-1, correction=0)
    return int(((halves - halves.round()).abs() > ALIKE).sum())

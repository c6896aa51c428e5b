"""The work that a computation asks of a hand: how large its numbers are, and how many there are to compute."""

from dataclasses import dataclass

import torch
from torch import Tensor

from vitral.explanation.examples.example import Example
from vitral.explanation.expressions import Call, Reference, compute, references
from vitral.explanation.sheet import Sheet, SheetQuantity

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
    numbers = torch.cat([value.flatten() for value in sheet.values.values()])
    rows = [row for quantity in sheet.quantities for row in softmax_rows(quantity, sheet)]
    exponents = {round(entry / ALIKE) for row in rows for entry in row}
    return Effort(
        largest=float(numbers[numbers.isfinite()].abs().max()),
        products=sum(_products(quantity, sheet) for quantity in sheet.quantities),
        exponentials=len(exponents),
        exponent=max(map(abs, exponents), default=0) * ALIKE,
        flat_rows=sum(len(row) > 1 and max(row) - min(row) < ALIKE for row in rows),
        roots=sum(_roots(quantity, sheet) for quantity in sheet.quantities),
    )


def _products(quantity: SheetQuantity, sheet: Sheet) -> int:
    """The product itself, of ones where a factor is not 0, counts the products of each number."""
    product = quantity.tree
    while isinstance(product, Call) and product.function in ("add", "lifted"):  # a bias
        product = product.arguments[0]
    if quantity.derivative or not isinstance(product, Call) or product.function != "matmul":
        return 0
    factors = {name: (sheet.values[name] != 0).double() for name in references(product)}
    return int(compute(product, factors).sum())


def softmax_rows(quantity: SheetQuantity, sheet: Sheet) -> list[list[float]]:
    """The exponents of each row of a softmax, without −∞; none for another quantity."""
    match quantity.tree:
        case Call("softmax", (Reference(name), *_)) if not quantity.is_free:
            entries: Tensor = sheet.values[name]
            return [row[row > -torch.inf].tolist() for row in entries.reshape(-1, entries.shape[-1])]
    return []


def _roots(quantity: SheetQuantity, sheet: Sheet) -> int:
    match quantity.tree:
        case Call("layernorm" | "rmsnorm", (Reference(name), *_)) if not quantity.is_free:
            halves = 2 * sheet.values[name].std(dim=-1, correction=0)
            return int(((halves - halves.round()).abs() > ALIKE).sum())
    return 0

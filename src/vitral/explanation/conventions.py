"""How an author lays matrices out: positions as rows or as columns, weights as [in, out] or [out, in].

The computation always has positions as rows and weights as [in, out]; numbers are turned when they are read and shown.
"""

from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

from torch import Tensor

from vitral.explanation.examples.schema import AXES
from vitral.explanation.formulas.notation import Apply, Expression, Name, Power, Product


@dataclass(frozen=True)
class Conventions:
    """The layout of one file.

    Attributes:
        columns: whether positions are columns: q = W x, scores = kᵀ q, each column of the weights adds up to 1.
        out_in: whether a weight matrix has one row for each output.
    """

    columns: bool = False
    out_in: bool = False

    def turned(self, name: str) -> bool:
        """Whether the author writes the transpose of a quantity."""
        axes = AXES.get(name, ())
        if len(axes) < 2 or name == "next":
            return False
        return self.out_in if name.startswith("w_") else self.columns

    def seen(self, name: str, value: Tensor) -> Tensor:
        """The value as the author writes it; with heads, each head's."""
        return value.mT if self.turned(name) and value.dim() > 1 else value

    def index(self, name: str, index: tuple[Any, ...]) -> tuple[Any, ...]:
        """The place of a cell as the author counts it, or back."""
        return (*index[:-2], index[-1], index[-2]) if self.turned(name) and len(index) > 1 else index


def laid_out(part: Any, conventions: Conventions) -> Any:
    """Formulas and arithmetic, written for rows and [in, out], as the author lays matrices out.

    Args:
        part: an expression, an equation, or a tuple of them.
        conventions: of the author.
    """
    if not conventions.columns and not conventions.out_in:
        return part
    match part:
        case Name():
            return _turned_place(part) if _is_turned(part, conventions) else part
        case Product(factors, True):
            made = [_factor(factor, conventions) for factor in factors]
            return Product(tuple(made[::-1] if conventions.columns else made), tight=True)
        case Product(factors) if conventions.columns and all(isinstance(factor, Name) for factor in factors):
            return Product(tuple(laid_out(factor, conventions) for factor in factors[::-1]))
        case tuple():
            return tuple(laid_out(each, conventions) for each in part)
    if is_dataclass(part) and not isinstance(part, type):
        changes = {each.name: laid_out(getattr(part, each.name), conventions) for each in fields(part)}
        return replace(part, **changes)
    return part


_OTHER_LETTERS = ("E", "Concat(z)", "Concat")
"""Letters of formulas for matrices that have another name."""


def _is_turned(name: Name, conventions: Conventions) -> bool:
    if name.letters == "W":
        return conventions.out_in
    return conventions.turned(name.letters.lower()) or (conventions.columns and name.letters in _OTHER_LETTERS)


def _turned_place(name: Name) -> Name:
    """The name of the same row, column or cell in the transposed matrix."""
    places = name.below.split(",") if name.below else []
    if len(places) == 2:
        first, second = places
        return replace(name, below=second if first == ":" else f"{second},{first}")
    return replace(name, below=f":,{name.below}") if name.below else name


def _factor(factor: Expression, conventions: Conventions) -> Expression:
    """A matrix of a product, transposed where the product or the matrix is turned, but not both."""
    name = factor if isinstance(factor, Name) else Name("Concat(z)") if isinstance(factor, Apply) else None
    if name is None:
        return laid_out(factor, conventions)
    factor = laid_out(factor, conventions) if isinstance(factor, Apply) else factor
    flips = conventions.columns != _is_turned(name, conventions)
    if not flips:
        return factor
    if isinstance(factor, Name) and (factor.above in ("", "T") or factor.above.endswith("T")):
        above = factor.above[:-1] if factor.above.endswith("T") else factor.above + "T"
        return replace(factor, above=above)
    return Power(factor, Name("T"))

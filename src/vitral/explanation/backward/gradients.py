"""Gradients of a sheet, computed by autograd, and the arithmetic of their cells, written by the rules."""

import re
from dataclasses import dataclass

import torch
from torch import Tensor

from vitral.core.config import nearest
from vitral.core.errors import UsageError
from vitral.core.language import N_
from vitral.explanation.backward.base import Contribution, Use, contribution, gradient_name
from vitral.explanation.examples.schema import ALIASES
from vitral.explanation.formulas.notation import Equation, Expression, Fraction, Name, Number, Sum, Words
from vitral.explanation.operations import Index
from vitral.explanation.sheet import Sheet, SheetQuantity
from vitral.explanation.steps import Arithmetic

CELL = re.compile(r"\s*([A-Za-z][\w.\-]*)\s*(?:\[\s*(\d+(?:\s*,\s*\d+)*)\s*\])?\s*")
ONE, LOG = N_("1 at the chosen cell, 0 elsewhere"), N_("−1/p at the chosen probability, 0 elsewhere")
OF_WORDS = ("greedy", "beam", "beam_probability")


@dataclass(frozen=True)
class Loss:
    """The number whose gradient is taken, as a function of one quantity.

    Attributes:
        of: the quantity.
        seed: the gradient of the loss with respect to it; the same shape.
        cell: the cell of `of` that the loss depends on; None if it depends on several.
        is_log: whether the loss is −log of that cell instead of the cell.
    """

    of: str
    seed: Tensor
    cell: Index | None = None
    is_log: bool = False


def named_cell(text: str, sheet: Sheet, head: int) -> tuple[str, Index]:
    """The quantity and the cell that a text such as "output[2,1]" or "weights[1,2,3]" names.

    Args:
        text: the quantity's name, and row and column, of a quantity of heads after the number of the head.
        sheet: the computation.
        head: of quantities of heads, where the text has no head.

    Raises:
        UsageError: no such quantity, or no such cell.
    """
    first = sheet.namer.first
    match = CELL.fullmatch(text)
    if match is None:
        raise UsageError("--cell {text}: expected a quantity with row and column, as in output[2,1]", text=text)
    have = [quantity.name for quantity in sheet.quantities if quantity.name not in OF_WORDS]
    name = ALIASES.get(match[1], match[1])
    if name == "output":
        name = next((each for each in ("resid_post", "out", *reversed(have)) if each in have), name)
    if name not in have:
        hint = nearest(match[1], [*have, "output"])
        raise UsageError("--cell {text}: {name} is not computed here; {hint}", text=text, name=match[1], hint=hint)
    value = sheet.values[name]
    given = [int(part) - first for part in match[2].split(",")] if match[2] else []
    if len(given) == value.dim() - 1 and sheet[name].axes[0] == "heads":
        given = [head, *given]
    if not given and value.numel() == 1:
        given = [0] * value.dim()
    if len(given) != value.dim() or any(not 0 <= at < size for at, size in zip(given, value.shape, strict=False)):
        shape = " × ".join(map(str, value.shape))
        raise UsageError(
            "--cell {text}: {name} has {shape} numbers, counted from {first}; give its row and column",
            text=text,
            name=match[1],
            shape=shape,
            first=first,
        )
    return name, tuple(given)


def loss_of(sheet: Sheet, name: str, index: Index) -> Loss:
    """One cell as the loss.

    Raises:
        UsageError: the author lays matrices out in another way than the formulas of gradients.
    """
    _refuse_layout(sheet)
    seed = torch.zeros_like(sheet.values[name])
    seed[index] = 1
    return Loss(name, seed, index)


def log_loss(sheet: Sheet, index: Index) -> Loss:
    """−log of one of the probabilities as the loss; raises as `loss_of`."""
    _refuse_layout(sheet)
    shares = sheet.values["probabilities"]
    seed = torch.zeros_like(shares)
    seed[index] = -1 / shares[index]
    return Loss("probabilities", seed, index, is_log=True)


def _refuse_layout(sheet: Sheet) -> None:
    if sheet.conventions.columns or sheet.conventions.out_in:
        raise UsageError("--backward: is written for positions as rows and weights as [in, out], unlike this example")


class Backward:
    """The gradients of a loss with respect to the quantities of a sheet."""

    def __init__(self, sheet: Sheet, loss: Loss) -> None:
        """Compute them by autograd, in double precision.

        Args:
            sheet: the computation.
            loss: of one of its quantities.
        """
        self.sheet, self.loss = sheet, loss
        self.values, self.gradients = _differentiated(sheet, loss)
        self.steps = [quantity for quantity in reversed(sheet.quantities) if quantity.name in self.gradients]

    @property
    def names(self) -> list[str]:
        """The quantities that have a gradient, from the loss back; given ones at the end."""
        computed = [quantity.name for quantity in self.steps]
        return [*computed, *(name for name in self.gradients if name not in computed)]

    def uses(self, name: str) -> list[tuple[SheetQuantity, int]]:
        """Where a quantity is used: each operation on the way to the loss, and which of its inputs it is."""
        return [
            (quantity, place)
            for quantity in self.sheet.quantities
            if quantity.name in self.gradients
            for place, each in enumerate(quantity.inputs)
            if each == name
        ]

    def contributions(self, name: str) -> list[Contribution] | None:
        """The rules whose sum is the gradient of a quantity; None if one of them is not written."""
        made = [contribution(quantity.operation, self._use(quantity), place) for quantity, place in self.uses(name)]
        known = [each for each in made if each is not None]
        return known if known and len(known) == len(made) else None

    def formula(self, name: str) -> Expression:
        """The equation of a whole gradient."""
        target = gradient_name(name)
        if name == self.loss.of:
            return target if self.loss.cell is None else Equation((target, Words(LOG if self.loss.is_log else ONE)))
        known = self.contributions(name)
        if known is None:
            return target
        terms = tuple(each.formula for each in known)
        return Equation((target, terms[0] if len(terms) == 1 else Sum(terms)))

    def arithmetic(self, name: str, index: Index) -> Arithmetic:
        """The computation of one cell of a gradient; no stages for the loss itself and where no rule is written."""
        of = gradient_name(name)
        shown = index[1:] if len(index) == 3 else index
        below = ",".join(str(place + self.sheet.namer.first) for place in shown)
        target, value = Name(of.letters, below=below, above=of.above), float(self.gradients[name][index])
        if name == self.loss.of:
            if not self.loss.is_log or index != self.loss.cell:
                return Arithmetic(target, (), value)
            share = Number(float(self.sheet.values[name][index]))
            one = Number(-1, exact=True)
            return Arithmetic(target, (Fraction(one, self.sheet.namer.cell(name, *index)), Fraction(one, share)), value)
        known = self.contributions(name)
        if known is None:
            return Arithmetic(target, (), value)
        rules, numbers = zip(*(each.stages(index) for each in known), strict=True)
        if len(known) == 1:
            return Arithmetic(target, (rules[0], numbers[0]), value)
        flat = tuple(term for each in numbers for term in (each.terms if isinstance(each, Sum) else (each,)))
        return Arithmetic(target, (Sum(rules), Sum(flat)), value)

    def _use(self, quantity: SheetQuantity) -> Use:
        inputs = [self.values[name] for name in quantity.inputs]
        output, gradient = self.values[quantity.name], self.gradients[quantity.name]
        return Use(quantity.name, quantity.inputs, inputs, output, gradient, self.sheet.namer)


def _differentiated(sheet: Sheet, loss: Loss) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The values of the sheet, computed again, and the gradients of those on the way to the loss."""
    made = {quantity.name for quantity in sheet.quantities}
    with torch.inference_mode(False), torch.enable_grad():
        known = {name: value.detach().clone() for name, value in sheet.values.items() if name not in made}
        leaves = [name for name, value in known.items() if value.is_floating_point()]
        for name in leaves:
            known[name].requires_grad_()
        for quantity in _on_the_way(sheet, loss.of):
            try:
                known[quantity.name] = quantity.make(known)
            except RuntimeError:  # a step of the author's that takes gradients itself
                raise UsageError(
                    "--backward: {name} is made of gradients; give --cell with a number before it", name=quantity.name
                ) from None
        names = [name for name in known if known[name].requires_grad and not _is_plain_gain(name, known[name])]
        total = (known[loss.of] * loss.seed).sum()
        found = torch.autograd.grad(total, [known[name] for name in names], allow_unused=True)
    gradients = {name: value for name, value in zip(names, found, strict=True) if value is not None}
    return {name: value.detach() for name, value in known.items()}, gradients


def _on_the_way(sheet: Sheet, name: str) -> list[SheetQuantity]:
    """The quantities that one is made of, in order, and itself."""
    needed = {name}
    for quantity in reversed(sheet.quantities):
        needed |= set(quantity.inputs) if quantity.name in needed else set()
    return [quantity for quantity in sheet.quantities if quantity.name in needed]


def _is_plain_gain(name: str, value: Tensor) -> bool:
    return name.endswith("_gain") and bool((value == 1).all())

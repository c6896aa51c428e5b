"""The backward pass of a sheet: the gradient of a loss with respect to every quantity, each with its arithmetic."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from vitral.core.config import nearest
from vitral.core.errors import UsageError
from vitral.core.language import N_
from vitral.explanation.examples.claims import part_of
from vitral.explanation.examples.names import OUTPUT, Names
from vitral.explanation.examples.schema import CHOICES, ROTATED
from vitral.explanation.expressions import Constant, references
from vitral.explanation.expressions.definitions import RULES
from vitral.explanation.formulas.notation import Apply, Equation, Expression, Name, Number, Words, exact
from vitral.explanation.narration import Narrator
from vitral.explanation.phrasebook import Phrases
from vitral.explanation.readings.gradients import backward
from vitral.explanation.readings.writing import symbol
from vitral.explanation.recipe import SheetQuantity
from vitral.explanation.rows import CellNamer, Row
from vitral.explanation.sheet import Index, Sheet
from vitral.explanation.steps import Panel, Step

ONE, LOG = N_("1 at the chosen cell, 0 elsewhere"), N_("−1/p at the chosen probability, 0 elsewhere")


@dataclass(frozen=True)
class Loss:
    """The number whose gradient is taken, as a function of one quantity.

    Attributes:
        quantity: its name.
        seed: the gradient of the loss with respect to it; the same shape.
        cell: the cell of the quantity that the loss depends on; None if it depends on several.
        is_log: whether the loss is −log of that cell instead of the cell.
    """

    quantity: str
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
    first = sheet.first
    label, numbers = part_of(text.strip())
    names = [quantity.name for quantity in sheet.quantities if quantity.name not in CHOICES]
    name = Names(sheet.architecture.stream, names)(label)
    if label == OUTPUT:
        name = next((candidate for candidate in ("resid_post", "out", *reversed(names)) if candidate in names), name)
    if name not in names:
        hint = nearest(label, [*names, OUTPUT])
        raise UsageError("--cell {text}: {name} is not computed here; {hint}", text=text, name=label, hint=hint)
    value = sheet.values[name]
    index = [(number or 0) - first for number in numbers]
    if len(index) == value.dim() - 1 and sheet[name].axes[0] == "heads":
        index = [head, *index]
    if not index and value.numel() == 1:
        index = [0] * value.dim()
    if len(index) != value.dim() or any(not 0 <= entry < size for entry, size in zip(index, value.shape, strict=False)):
        shape = " × ".join(map(str, value.shape))
        raise UsageError(
            "--cell {text}: {name} has {shape} numbers, counted from {first}; give its row and column",
            text=text,
            name=label,
            shape=shape,
            first=first,
        )
    return name, tuple(index)


def loss_of(sheet: Sheet, name: str, index: Index, *, is_log: bool = False) -> Loss:
    """One cell as the loss, or −log of it.

    Raises:
        UsageError: the author lays matrices out in another way than the formulas of gradients.
    """
    if sheet.conventions.columns or sheet.conventions.out_in:
        raise UsageError("--backward: is written for positions as rows and weights as [in, out], unlike this example")
    seed = torch.zeros_like(sheet.values[name])
    seed[index] = -1 / sheet.values[name][index] if is_log else 1
    return Loss(name, seed, index, is_log)


@dataclass(frozen=True)
class GradientRow(Row):
    """What a gradient says in its own words.

    Attributes:
        written: the right-hand side of its formula; None if it arrives from elsewhere.
        loss: of the gradient of the loss itself.
    """

    written: Expression | None
    loss: Loss | None = None

    def formula(self, name: str) -> Equation:
        """The formula; the name alone of what arrives from elsewhere."""
        return Equation((Name(name), *filter(None, [self.written])))

    def worked(self, inputs: Sequence[Tensor], index: Index, namer: CellNamer) -> Equation | None:
        """−1/p where the loss is −log p, nothing at any other cell of the loss; None for those of the tree."""
        if self.loss is None:
            return None
        if not self.loss.is_log or index != self.loss.cell:
            return Equation(())
        share = -1 / float(self.loss.seed[index])
        return Equation((exact(-1) / namer.cell(self.loss.quantity, *index), exact(-1) / Number(share)))


class Backward:
    """The gradients of a loss with respect to the quantities of a sheet, as a sheet of their own.

    Attributes:
        sheet: the computation.
        loss: of one of its quantities.
        quantities: those that the loss is made of, in order.
        gradients: by the name of the quantity, from the loss back; those of given ones at the end.
        gradient_sheet: the sheet whose quantities are the gradients, each by the name of its quantity after a d.
    """

    def __init__(self, sheet: Sheet, loss: Loss) -> None:
        """Make the expressions of the gradients from those of the sheet, and compute them.

        Raises:
            UsageError: a quantity on the way is a gradient itself.
        """
        self.sheet, self.loss = sheet, loss
        needed = {loss.quantity}
        for quantity in reversed(sheet.quantities):
            needed |= set(quantity.inputs) if quantity.name in needed else set()
        self.quantities = [quantity for quantity in sheet.quantities if quantity.name in needed]
        for quantity in self.quantities:
            if quantity.derivative:
                raise UsageError(
                    "--backward: {name} is made of gradients; give --cell with a number before it", name=quantity.name
                )
        values = dict(sheet.values) | {f"d{loss.quantity}": loss.seed}
        trees = backward({quantity.name: quantity.tree for quantity in self.quantities}, values, loss.quantity)
        trees = {f"d{loss.quantity}": Constant.of(loss.seed), **trees}
        fixed = {quantity.name for quantity in self.quantities if not quantity.inputs} | sheet.unit_gains
        names = [name[1:] for name in trees]
        self.gradients = {name: values[f"d{name}"] for name in names if name not in fixed}
        quantities = [
            SheetQuantity(f"d{name}", sheet.axes(name), trees[f"d{name}"], self._row(name)) for name in self.gradients
        ]
        written = {name: Name(name) if name.endswith(("norm_gain", "norm_bias")) else symbol(name) for name in names}
        called = {
            f"d{name}": replace(letter, letters=f"d{sheet.called(letter.letters)}") for name, letter in written.items()
        }
        self.gradient_sheet = replace(
            sheet, quantities=tuple(quantities), values=values, names={**sheet.names, **called}
        )

    def kinds(self, name: str) -> list[str]:
        """The rules by which the gradient of a quantity is made, one for each of its uses."""
        return [
            _kind(quantity, name)
            for quantity in self.quantities
            if quantity.name in self.gradients and name in quantity.inputs
        ]

    def _row(self, name: str) -> GradientRow | None:
        loss = self.loss
        if name == loss.quantity:
            return GradientRow(None if loss.cell is None else Words(LOG if loss.is_log else ONE), loss)
        if name in ROTATED and self.sheet.architecture.frequencies is not None:
            return GradientRow(Apply("rotate", (Name(f"d{name.removesuffix('_pre')}"), Words("−p"))))
        return None


def _kind(use: SheetQuantity, name: str) -> str:
    """The rule by which a gradient passes through one use of a quantity."""
    if name.startswith("b_") or name.endswith("_bias"):
        return "bias"
    if name.endswith("_gain"):
        return "gain"
    if name in ROTATED and not use.is_free:
        return "rotation"
    if use.name in ("masked", "mlp.hidden"):
        return "mask" if use.name == "masked" else "activation"
    tree = use.tree
    while tree.function == "add" and name in references(tree.arguments[0]):
        tree = tree.arguments[0]
    return RULES.get(tree.function, "copy")


def backward_steps(narrator: Narrator, loss: Loss) -> tuple[Step, ...]:
    """The gradients of a loss, each as a matrix with its formula and the arithmetic of its largest cell.

    Args:
        narrator: of the sheet; it has the chosen heads.
        loss: of one of the sheet's quantities.
    """
    backward_pass, say = Backward(narrator.sheet, loss), narrator.say
    of_gradients = Narrator(backward_pass.gradient_sheet, say, narrator.choice)
    return tuple(
        Step(
            name=f"d{called}",
            title=say("backward.title", name=called),
            formula=backward_pass.gradient_sheet.formula(f"d{name}"),
            shapes=f"[{' × '.join(map(str, value.shape))}]",
            sentence=_sentence(backward_pass, name, called, say),
            panels=tuple(_largest(panel, f"d{called}") for panel in of_gradients.panels(f"d{name}")),
        )
        for name, value in backward_pass.gradients.items()
        for called in [narrator.sheet.called(name)]
    )


def last_cell(narrator: Narrator) -> tuple[str, Index]:
    """The cell whose gradient is taken if none is named: the quantity `loss`, or the chosen cell of the last quantity.

    Raises:
        UsageError: nothing in the sheet has a gradient.
    """
    quantities = narrator.sheet.quantities
    candidates = [quantity for quantity in quantities if quantity.name == "loss"]
    candidates = candidates or [quantity for quantity in quantities if quantity.axes[0] in ("time", "heads")]
    if not candidates:
        raise UsageError("explain: nothing here has a gradient; --backward needs a computation, as attention")
    name, axes, value = candidates[-1].name, candidates[-1].axes, narrator.sheet.values[candidates[-1].name]
    heads = narrator.heads[:1] if value.dim() == 3 else ()
    cell = narrator.cell(name, axes[-2:], value[heads] if value.dim() > 1 else value.reshape(1, -1))
    return name, (*heads, *cell)[-value.dim() :] if value.dim() else ()


def _largest(panel: Panel, called: str) -> Panel:
    """The panel of a gradient as it is called, with its largest number chosen."""
    cells = [(abs(value), (row, column)) for row, line in enumerate(panel.matrix) for column, value in enumerate(line)]
    return replace(panel, cell=max(cells, key=lambda cell: cell[0])[1], asked=(), quantity=called)


def _sentence(backward_pass: Backward, name: str, called: str, say: Phrases) -> str:
    if name == backward_pass.loss.quantity:
        kind = (
            "start_several"
            if backward_pass.loss.cell is None
            else "start_log"
            if backward_pass.loss.is_log
            else "start"
        )
        return say(f"backward.{kind}", name=called)
    known = backward_pass.kinds(name)
    words = [say(f"backward.{kind}") for kind in dict.fromkeys(known)]
    if len(known) > 1:
        words.insert(0, say("backward.several", name=called, count=len(known)))
    return " ".join(words)

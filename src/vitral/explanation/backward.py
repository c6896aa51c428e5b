"""The backward pass of a sheet: the gradient of a loss with respect to every quantity, each with its arithmetic."""

import copy
import re
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from vitral.core.config import nearest
from vitral.core.errors import UsageError
from vitral.core.language import N_
from vitral.core.taps import Recorder
from vitral.explanation.examples.schema import ALIASES, AXES
from vitral.explanation.expressions import Call, references
from vitral.explanation.formulas.notation import Apply, Equation, Expression, Fraction, Name, Number, Words
from vitral.explanation.narration import Narrator
from vitral.explanation.phrasebook import Phrases
from vitral.explanation.readings.gradients import backward
from vitral.explanation.readings.writing import Writer, symbol
from vitral.explanation.rows.positions import Rotary
from vitral.explanation.sheet import Index, Sheet, SheetQuantity
from vitral.explanation.steps import Arithmetic, Panel, Step
from vitral.model import Transformer

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
    """The gradients of a loss with respect to the quantities of a sheet, each with its expression."""

    def __init__(self, sheet: Sheet, loss: Loss) -> None:
        """Make the expressions of the gradients from those of the sheet, and compute them.

        Args:
            sheet: the computation.
            loss: of one of its quantities.
        """
        self.sheet, self.loss = sheet, loss
        self.quantities = _on_the_way(sheet, loss.of)
        for quantity in self.quantities:
            if quantity.derivative:
                raise UsageError(
                    "--backward: {name} is made of gradients; give --cell with a number before it", name=quantity.name
                )
        values = dict(sheet.values) | {f"d{loss.of}": loss.seed}
        self.trees = backward({quantity.name: quantity.tree for quantity in self.quantities}, values, loss.of)
        names = [loss.of, *(name[1:] for name in self.trees)]
        fixed = {quantity.name for quantity in self.quantities if not quantity.inputs}
        fixed |= {name for name in names if name.endswith("_gain") and bool((values[name] == 1).all())}
        self.gradients = {name: values[f"d{name}"] for name in names if name not in fixed}
        self.writer = Writer(values, first=sheet.namer.first, heads=sheet.num_heads)

    @property
    def names(self) -> list[str]:
        """The quantities that have a gradient, from the loss back; given ones at the end."""
        made = [quantity.name for quantity in reversed(self.quantities) if quantity.name in self.gradients]
        return [*made, *(name for name in self.gradients if name not in made)]

    def kinds(self, name: str) -> list[str]:
        """The rules by which the gradient of a quantity is made, one for each of its uses."""
        return [
            _kind(quantity, name)
            for quantity in self.quantities
            if quantity.name in self.gradients and name in quantity.inputs
        ]

    def formula(self, name: str) -> Expression:
        """The equation of a whole gradient."""
        target = _gradient_name(name)
        if name == self.loss.of:
            return target if self.loss.cell is None else Equation((target, Words(LOG if self.loss.is_log else ONE)))
        if "rotation" in self.kinds(name):
            return Equation((target, Apply("rotate", (Name(f"d{name.removesuffix('_pre')}"), Words("−p")))))
        return self.writer.formula(target, self.trees[f"d{name}"])

    def arithmetic(self, name: str, index: Index) -> Arithmetic:
        """The computation of one cell of a gradient; no stages for the loss itself."""
        of = _gradient_name(name)
        shown = index[1:] if len(index) == 3 else index
        below = ",".join(str(place + self.sheet.namer.first) for place in shown)
        target, value = Name(of.letters, below=below, above=of.above), float(self.gradients[name][index])
        if name == self.loss.of:
            if not self.loss.is_log or index != self.loss.cell:
                return Arithmetic(target, (), value)
            share = Number(float(self.sheet.values[name][index]))
            one = Number(-1, exact=True)
            return Arithmetic(target, (Fraction(one, self.sheet.namer.cell(name, *index)), Fraction(one, share)), value)
        tree = self.trees[f"d{name}"]
        return Arithmetic(target, self.writer.stages(tree, index), value, self.writer.before(tree, index))


def _gradient_name(name: str) -> Name:
    """The name of a quantity's gradient: dx, dW with superscript Q."""
    return Name(f"d{name}") if name.endswith(("norm_gain", "norm_bias")) else symbol(f"d{name}")


KINDS = {
    **{"softmax": "softmax", "layernorm": "norm", "rmsnorm": "norm", "lookup": "lookup", "matmul": "product"},
    **{"divide": "scale", "multiply": "scale", "adaptive": "scale"},
}
"""By the function of a use: the rule of its gradient."""


def _kind(use: SheetQuantity, name: str) -> str:
    """The rule by which a gradient passes through one use of a quantity."""
    if name.startswith("b_") or name.endswith("_bias"):
        return "bias"
    if name.endswith("_gain"):
        return "gain"
    if isinstance(use.row, Rotary):
        return "rotation"
    if use.name in ("masked", "mlp.hidden"):
        return "mask" if use.name == "masked" else "activation"
    tree = use.tree
    while isinstance(tree, Call) and tree.function == "add" and name in references(tree.arguments[0]):
        tree = tree.arguments[0]
    return KINDS.get(tree.function, "copy") if isinstance(tree, Call) else "copy"


def _on_the_way(sheet: Sheet, name: str) -> list[SheetQuantity]:
    """The quantities that one is made of, in order, and itself."""
    needed = {name}
    for quantity in reversed(sheet.quantities):
        needed |= set(quantity.inputs) if quantity.name in needed else set()
    return [quantity for quantity in sheet.quantities if quantity.name in needed]


def gradient_at(model: Transformer, rows: tuple[int, ...], position: int, name: str) -> Tensor:
    """The gradient of −log p of the token after a position, computed by autograd in double precision.

    Args:
        model: stays as it is.
        rows: the tokens.
        position: the loss is that of the next token.
        name: of the activation, as "blocks.0.attn.out".

    Returns:
        The gradient, of the activation's shape without its axis of texts.
    """
    exact = copy.deepcopy(model).cpu().double().eval()
    recorder = Recorder()
    with torch.inference_mode(False), torch.enable_grad():
        logits = exact(torch.tensor([rows]), tap=recorder)
        loss = torch.nn.functional.cross_entropy(logits[0, position], torch.tensor(rows[position + 1]))
        (gradient,) = torch.autograd.grad(loss, [recorder.kept[name]])
    return gradient[0].detach()


def backward_steps(narrator: Narrator, loss: Loss, say: Phrases) -> tuple[Step, ...]:
    """The gradients of a loss, each as a matrix with its formula and the arithmetic of its largest cell.

    Args:
        narrator: of the sheet; it labels rows and columns, and has the chosen heads.
        loss: of one of the sheet's quantities.
        say: phrases of the language.
    """
    made = Backward(narrator.sheet, loss)
    return tuple(_step(narrator, made, name, say) for name in made.names)


def last_cell(narrator: Narrator) -> tuple[str, Index]:
    """The cell whose gradient is taken if none is named: the quantity `loss`, or the chosen cell of the last quantity.

    Raises:
        UsageError: nothing in the sheet has a gradient.
    """
    made = [quantity for quantity in narrator.sheet.quantities if quantity.name not in OF_WORDS]
    made = [quantity for quantity in made if quantity.name == "loss"] or [
        quantity for quantity in made if quantity.axes[0] in ("time", "heads")
    ]
    if not made:
        raise UsageError("explain: nothing here has a gradient; --backward needs a computation, as attention")
    value = narrator.sheet.values[made[-1].name]
    row, column = min(narrator.query, value.shape[-2] - 1 if value.dim() > 1 else 0), narrator.choice.column
    if made[-1].axes[-1] == "vocab":
        column = int(value[row].argmax())
    column = min(column, value.shape[-1] - 1 if value.dim() else 0)
    return made[-1].name, ((narrator.heads[0], row, column) if value.dim() == 3 else (row, column)[2 - value.dim() :])


def loss_sentence(narrator: Narrator, loss: Loss, say: Phrases) -> str:
    """The loss in a sentence."""
    if loss.cell is None:
        return say("backward.loss_next")
    cell = ",".join(str(place + narrator.sheet.namer.first) for place in loss.cell)
    return say("backward.loss_log" if loss.is_log else "backward.loss_cell", cell=f"{loss.of}[{cell}]")


def _step(narrator: Narrator, made: Backward, name: str, say: Phrases) -> Step:
    value = made.gradients[name]
    panels = narrator.panels(value, _axes(made, name), name, partial(made.arithmetic, name))
    sizes = " × ".join(map(str, value.shape))
    return Step(
        name=f"d{name}",
        title=say("backward.title", name=name),
        formula=made.formula(name),
        shapes=f"[{sizes}]",
        sentence=_sentence(made, name, say),
        panels=tuple(replace(_largest(panel), quantity=f"d{name}", asked=(), also=()) for panel in panels),
    )


def _axes(made: Backward, name: str) -> tuple[str, ...]:
    """Names of the axes; the first of quantities with heads is that of the heads."""
    value = made.gradients[name]
    axes = made.sheet[name].axes if name in made.sheet else AXES.get(name, ())
    if len(axes) != value.dim():
        axes = ("heads", "row", "column")[-value.dim() :]
    if value.dim() == 3:
        return ("heads", *axes[1:])
    return tuple(axis.replace("heads", "head") for axis in axes)


def _largest(panel: Panel) -> Panel:
    """The panel with its largest number chosen."""
    cells = [(abs(value), (row, column)) for row, line in enumerate(panel.matrix) for column, value in enumerate(line)]
    return replace(panel, cell=max(cells, key=lambda each: (each[0], -each[1][0], -each[1][1]))[1])


def _sentence(made: Backward, name: str, say: Phrases) -> str:
    if name == made.loss.of:
        kind = "start_several" if made.loss.cell is None else "start_log" if made.loss.is_log else "start"
        return say(f"backward.{kind}", name=name)
    known = made.kinds(name)
    words = [say(f"backward.{kind}") for kind in dict.fromkeys(known)]
    if len(known) > 1:
        words.insert(0, say("backward.several", name=name, count=len(known)))
    return " ".join(words)

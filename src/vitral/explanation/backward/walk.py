"""The walkthrough of a backward pass: one step for each gradient, from the loss back to what is given."""

from dataclasses import replace
from functools import partial

from vitral.core.errors import UsageError
from vitral.explanation.backward.gradients import OF_WORDS, Backward, Loss
from vitral.explanation.examples.schema import AXES
from vitral.explanation.formulas.notation import Expression
from vitral.explanation.narration import Narrator
from vitral.explanation.operations import Index
from vitral.explanation.phrasebook import Phrases
from vitral.explanation.steps import Panel, Step


def backward_steps(narrator: Narrator, loss: Loss, say: Phrases) -> tuple[Step, ...]:
    """The gradients of a loss, each as a matrix with its formula and the arithmetic of its largest cell.

    Args:
        narrator: of the sheet; it labels rows and columns, and has the chosen heads.
        loss: of one of the sheet's quantities.
        say: phrases of the language.
    """
    backward = Backward(narrator.sheet, loss)
    return tuple(_step(narrator, backward, name, say) for name in backward.names)


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


def _step(narrator: Narrator, backward: Backward, name: str, say: Phrases) -> Step:
    value = backward.gradients[name]
    panels = narrator.panels(value, _axes(backward, name), name, partial(backward.arithmetic, name))
    formula: Expression = backward.formula(name)
    sizes = " × ".join(map(str, value.shape))
    return Step(
        name=f"d{name}",
        title=say("backward.title", name=name),
        formula=formula,
        shapes=f"[{sizes}]",
        sentence=_sentence(backward, name, say),
        panels=tuple(replace(_largest(panel), quantity=f"d{name}", asked=(), also=()) for panel in panels),
    )


def _axes(backward: Backward, name: str) -> tuple[str, ...]:
    """Names of the axes; the first of quantities with heads is that of the heads."""
    value = backward.gradients[name]
    axes = backward.sheet[name].axes if name in backward.sheet else AXES.get(name, ())
    if len(axes) != value.dim():
        axes = ("heads", "row", "column")[-value.dim() :]
    if value.dim() == 3:
        return ("heads", *axes[1:])
    return tuple(axis.replace("heads", "head") for axis in axes)


def _largest(panel: Panel) -> Panel:
    """The panel with its largest number chosen."""
    cells = [(abs(value), (row, column)) for row, line in enumerate(panel.matrix) for column, value in enumerate(line)]
    return replace(panel, cell=max(cells, key=lambda each: (each[0], -each[1][0], -each[1][1]))[1])


def _sentence(backward: Backward, name: str, say: Phrases) -> str:
    if name == backward.loss.of:
        kind = "start_several" if backward.loss.cell is None else "start_log" if backward.loss.is_log else "start"
        return say(f"backward.{kind}", name=name)
    known = backward.contributions(name)
    if known is None:
        return say("backward.no_rule", name=name)
    kinds = dict.fromkeys(each.kind for each in known)
    words = [say(f"backward.{kind}") for kind in kinds]
    if len(known) > 1:
        words.insert(0, say("backward.several", name=name, count=len(known)))
    return " ".join(words)

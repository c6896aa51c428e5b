"""Diagnosis of wrong numbers: the slip whose result is what the author printed."""

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from vitral.explanation.checks.slips import COMMON, KINDS, Variant, misprints, variants
from vitral.explanation.checks.units import Unit
from vitral.explanation.operations import Index
from vitral.explanation.sheet import Sheet, SheetQuantity, Values

MOST_CELLS = 150
"""In larger matrices, slips of single cells are tried only in the printed quantity, not in the steps before it."""
WORDS = ("greedy", "beam")
"""Quantities whose numbers are indices of words."""


@dataclass(frozen=True)
class Slip:
    """A supposed mistake.

    Attributes:
        kind: one of `slips.KINDS`.
        step: the quantity in whose computation it was made.
        places: placeholders of its phrase.
    """

    kind: str
    step: str
    places: Mapping[str, object]


@dataclass(frozen=True)
class Mismatch:
    """A quantity with cells that are wrong in themselves.

    Attributes:
        quantity: the quantity.
        values: the printed numbers.
        known: whether a cell is printed.
        wrong: whether it is wrong in itself.
        unit: of the printed numbers.
    """

    quantity: SheetQuantity
    values: Tensor
    known: Tensor
    wrong: Tensor
    unit: Unit


@dataclass(frozen=True)
class SlipMatch:
    """A slip, the wrong cells that it explains, and its result before rounding.

    Attributes:
        slip: the slip.
        explains: the cells, as a mask.
        made: the quantity under the slip; None for a misprint.
        grain: the extent of the slip: "all", a "row", a "column" or a "cell".
        loosely: whether it fits only with one more unit of rounding.
    """

    slip: Slip
    explains: Tensor
    made: Tensor | None
    grain: str
    loosely: bool = False

    @property
    def rank(self) -> tuple[int, ...]:
        """Smaller is more plausible: an exact fit, an extent like that of the wrong cells, a common kind."""
        several = int(self.explains.sum()) > 1
        reach = ("all", "column", "row", "cell").index(self.grain)
        return (self.loosely, reach if several else -reach, KINDS.index(self.slip.kind))


class Diagnoser:
    """Compares the result of every known slip with the printed numbers."""

    def __init__(self, sheet: Sheet, claimed: Set[str], computations: tuple[Values, ...]) -> None:
        """Keep the computation and what is printed of it.

        Args:
            sheet: the computation.
            claimed: the printed quantities.
            computations: the values that the author may have continued from.
        """
        self.sheet, self.claimed, self.computations = sheet, claimed, computations

    def diagnose(self, mismatch: Mismatch) -> dict[Index, SlipMatch]:
        """The slip that explains most wrong cells, then the one that explains most of the others, and so on."""
        ranked = sorted(self._candidates(mismatch), key=lambda candidate: candidate.rank)
        diagnoses: dict[Index, SlipMatch] = {}
        left = mismatch.wrong.clone()
        while ranked and bool(left.any()):
            best = min(ranked, key=lambda candidate: (-int((candidate.explains & left).sum()), candidate.rank))
            cells = (best.explains & left).nonzero().tolist()
            if not cells:
                break
            diagnoses |= {tuple(cell): best for cell in cells}
            left &= ~best.explains
        return diagnoses

    def _candidates(self, mismatch: Mismatch) -> Iterator[SlipMatch]:
        yield from self._misprinted(mismatch)
        exact = list(self._slipped(mismatch, 0.5))
        yield from exact
        if not exact:
            for candidate in self._slipped(mismatch, 1.5):
                if candidate.slip.kind in KINDS[:COMMON]:
                    yield replace(candidate, loosely=True)

    def _misprinted(self, mismatch: Mismatch) -> Iterator[SlipMatch]:
        """Cells that are right after swapping two digits, changing the sign or moving the point."""
        name = mismatch.quantity.name
        if name in WORDS:
            return
        for place in (mismatch.wrong & _alone(mismatch.wrong)).nonzero().tolist():
            index = tuple(place)
            truths = [float(values[name][index]) for values in self.computations]
            value = mismatch.values[index]
            half = float(mismatch.unit.of(value)) / 2
            for kind, meant in misprints(float(value), mismatch.unit.decimals_of(float(value))):
                if any(abs(meant - truth) <= half * (1 + 1e-6) for truth in truths):
                    explains = torch.zeros_like(mismatch.wrong)
                    explains[index] = True
                    yield SlipMatch(Slip(kind, name, {}), explains, None, "cell")

    def _slipped(self, mismatch: Mismatch, units: float) -> Iterator[SlipMatch]:
        """Slips in this quantity, or in one on the way to it, that result in the printed numbers up to some units."""
        tolerance = units * mismatch.unit.of(mismatch.values)
        for base in self._bases(mismatch.quantity):
            for step in self._on_the_way(mismatch.quantity):
                for variant in variants(step, base):
                    for made, grain in self._outcomes(step, mismatch.quantity, variant, base):
                        explains = _explained(made, grain, mismatch, tolerance)
                        if bool(explains.any()):
                            yield SlipMatch(Slip(variant.kind, step.name, variant.places), explains, made, grain)

    def _bases(self, quantity: SheetQuantity) -> list[Values]:
        """The computations that differ in the inputs of the quantity."""
        inputs = {name for step in self._on_the_way(quantity) for name in step.inputs}
        bases: list[Values] = []
        for base in self.computations:
            if not any(all(torch.equal(base[name], other[name]) for name in inputs) for other in bases):
                bases.append(base)
        return bases

    def _on_the_way(self, quantity: SheetQuantity) -> list[SheetQuantity]:
        """The quantity and the unprinted ones that it is computed from; for the softmax also printed inputs."""
        steps, waiting = [quantity], list(quantity.inputs)
        while waiting:
            name = waiting.pop()
            through = quantity.name == "weights" and name in ("masked", "scaled")
            if name in self.sheet and (name not in self.claimed or through) and self.sheet[name] not in steps:
                steps.append(self.sheet[name])
                waiting += self.sheet[name].inputs
        return steps

    def _outcomes(
        self, step: SheetQuantity, quantity: SheetQuantity, variant: Variant, base: Values
    ) -> Iterator[tuple[Tensor, str]]:
        """The quantity after a slip in itself or in a step before it."""
        if step is quantity:
            yield variant.made, variant.grain
            return
        usual = step.make(base)
        if variant.grain != "all" and usual.numel() > MOST_CELLS:
            return
        for piece in _pieces(usual.shape, variant.grain):
            made = dict(base) | {step.name: torch.where(piece, variant.made, usual)}
            for later in self.sheet.quantities[self.sheet.quantities.index(step) + 1 :]:
                if later.name not in self.claimed or later is quantity:
                    made[later.name] = later.make(made)
                if later is quantity:
                    break
            yield made[quantity.name], "row" if variant.grain != "all" else "all"


def _explained(made: Tensor, grain: str, mismatch: Mismatch, tolerance: Tensor) -> Tensor:
    """The wrong cells of those rows or columns in which every printed number fits the slip's result."""
    wrong = mismatch.wrong
    fits = within(mismatch.values, made, tolerance) | ~mismatch.known
    if grain == "cell" or fits.dim() < 2:
        return fits & wrong & _alone(wrong)
    if bool(fits.all()):
        return wrong
    axes = {"all": -1, "row": -1, "column": -2}
    return fits.all(dim=axes[grain], keepdim=True).expand_as(wrong) & wrong


def _alone(wrong: Tensor) -> Tensor:
    """Whether a wrong cell is the only one of its row; a row with several is unlikely to be misprinted cell by cell."""
    return wrong.sum(dim=-1, keepdim=True).expand_as(wrong) == 1


def _pieces(shape: tuple[int, ...], grain: str) -> Iterator[Tensor]:
    """The pieces of a quantity that a slip of this grain may reach, as masks: in all heads, or in one."""
    if grain == "all":
        yield torch.ones(shape, dtype=torch.bool)
        return
    rows, columns = shape[-2:]
    every = slice(None)
    heads = [every, *range(shape[0])] if len(shape) == 3 and shape[0] > 1 else [every]
    for row in range(rows) if grain != "column" else [every]:
        for column in range(columns) if grain != "row" else [every]:
            for head in heads:
                piece = torch.zeros(shape, dtype=torch.bool)
                piece[(head, row, column)[-len(shape) :]] = True
                yield piece


def within(values: Tensor, truth: Tensor, tolerance: Tensor | float) -> Tensor:
    """Whether values agree up to a tolerance; equal infinities agree."""
    room = tolerance * (1 + 1e-6) + 1e-12 * truth.abs().nan_to_num(posinf=0.0, neginf=0.0)
    return (values == truth) | ((values - truth).abs() <= room)

"""Guessing what went wrong: the slip whose outcome is what an author printed."""

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from vitral.explain.operations import Index
from vitral.explain.sheet import Quantity, Sheet, Values
from vitral.explain.slips import CERTAIN, KINDS, Variant, misprints, variants

MOST_CELLS = 150
"""Of larger matrices single cells are not tried one by one on the way to what is printed."""
WORDS = ("greedy", "beam")
"""Quantities whose numbers are places of words."""


@dataclass(frozen=True)
class Slip:
    """A guess at what went wrong.

    Attributes:
        kind: one of `slips.KINDS`.
        step: the quantity in whose making it happened.
        places: for the words of the guess.
    """

    kind: str
    step: str
    places: Mapping[str, object]


@dataclass(frozen=True)
class Puzzle:
    """A quantity with cells that are wrong in themselves.

    Attributes:
        quantity: as it should be made.
        values: as it was printed.
        known: where something was printed.
        wrong: where that is wrong in itself.
    """

    quantity: Quantity
    values: Tensor
    known: Tensor
    wrong: Tensor


@dataclass(frozen=True)
class Guess:
    """A slip, the wrong cells it explains, and what the quantity was before rounding.

    Attributes:
        slip: the slip.
        explains: which cells.
        made: the quantity under the slip; None where only what was printed is wrong.
        grain: how far the slip reaches: "all", a "row", a "column" or a "cell".
        loosely: it fits only up to a unit more of rounding.
    """

    slip: Slip
    explains: Tensor
    made: Tensor | None
    grain: str
    loosely: bool = False

    @property
    def rank(self) -> tuple[int, ...]:
        """Smaller is likelier: exact, reaching as far as what is wrong, of a kind that is common."""
        several = int(self.explains.sum()) > 1
        reach = ("all", "column", "row", "cell").index(self.grain)
        return (self.loosely, reach if several else -reach, KINDS.index(self.slip.kind))


class Guesser:
    """Tries every known slip against what was printed."""

    def __init__(self, sheet: Sheet, claimed: Set[str], computations: tuple[Values, ...], decimals: int) -> None:
        """Keep what slips can be made from.

        Args:
            sheet: the computation.
            claimed: quantities of which something is printed.
            computations: the numbers an author may have gone on from.
            decimals: of what is printed.
        """
        self.sheet, self.claimed, self.computations, self.decimals = sheet, claimed, computations, decimals
        self.half = 10.0**-decimals / 2

    def guess(self, puzzle: Puzzle) -> dict[Index, Guess]:
        """The slip that explains most wrong cells, then the one that explains most of the rest, and so on."""
        ranked = sorted(self._candidates(puzzle), key=lambda guess: guess.rank)
        guesses: dict[Index, Guess] = {}
        left = puzzle.wrong.clone()
        while ranked and bool(left.any()):
            best = min(ranked, key=lambda guess: (-int((guess.explains & left).sum()), guess.rank))
            cells = (best.explains & left).nonzero().tolist()
            if not cells:
                break
            guesses |= {tuple(cell): best for cell in cells}
            left &= ~best.explains
        return guesses

    def _candidates(self, puzzle: Puzzle) -> Iterator[Guess]:
        yield from self._misprinted(puzzle)
        exact = list(self._slipped_up(puzzle, self.half))
        yield from exact
        if not exact:
            for guess in self._slipped_up(puzzle, 3 * self.half):
                if guess.slip.kind in KINDS[:CERTAIN]:
                    yield replace(guess, loosely=True)

    def _misprinted(self, puzzle: Puzzle) -> Iterator[Guess]:
        """Cells that would be right with two digits swapped, another sign, or the point elsewhere."""
        name = puzzle.quantity.name
        if name in WORDS:
            return
        for place in (puzzle.wrong & _alone(puzzle.wrong)).nonzero().tolist():
            index = tuple(place)
            truths = [float(values[name][index]) for values in self.computations]
            for kind, meant in misprints(float(puzzle.values[index]), self.decimals):
                if any(abs(meant - truth) <= self.half * (1 + 1e-6) for truth in truths):
                    explains = torch.zeros_like(puzzle.wrong)
                    explains[index] = True
                    yield Guess(Slip(kind, name, {}), explains, None, "cell")

    def _slipped_up(self, puzzle: Puzzle, tolerance: float) -> Iterator[Guess]:
        """Slips in making this quantity, or one on the way to it, that give what is printed."""
        for base in self._bases(puzzle.quantity):
            for step in self._on_the_way(puzzle.quantity):
                for variant in variants(step, base):
                    for made, grain in self._outcomes(step, puzzle.quantity, variant, base):
                        explains = _explained(made, grain, puzzle, tolerance)
                        if bool(explains.any()):
                            yield Guess(Slip(variant.kind, step.name, variant.places), explains, made, grain)

    def _bases(self, quantity: Quantity) -> list[Values]:
        """Those of the computations that differ in what the quantity is made of."""
        inputs = {name for step in self._on_the_way(quantity) for name in step.inputs}
        bases: list[Values] = []
        for base in self.computations:
            if not any(all(torch.equal(base[name], other[name]) for name in inputs) for other in bases):
                bases.append(base)
        return bases

    def _on_the_way(self, quantity: Quantity) -> list[Quantity]:
        """The quantity, and what it is made of without having been printed; the softmax's inputs in any case."""
        steps, waiting = [quantity], list(quantity.inputs)
        while waiting:
            name = waiting.pop()
            through = quantity.name == "weights" and name in ("masked", "scaled")
            if name in self.sheet and (name not in self.claimed or through) and self.sheet[name] not in steps:
                steps.append(self.sheet[name])
                waiting += self.sheet[name].inputs
        return steps

    def _outcomes(
        self, step: Quantity, quantity: Quantity, variant: Variant, base: Values
    ) -> Iterator[tuple[Tensor, str]]:
        """What the quantity comes to when the slip is made in a step before it."""
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


def _explained(made: Tensor, grain: str, puzzle: Puzzle, tolerance: float) -> Tensor:
    """The wrong cells of those pieces of a quantity in which everything that is known fits a slip's outcome."""
    wrong = puzzle.wrong
    fits = within(puzzle.values, made, tolerance) | ~puzzle.known
    if grain == "cell" or fits.dim() < 2:
        return fits & wrong & _alone(wrong)
    if bool(fits.all()):
        return wrong
    axes = {"all": -1, "row": -1, "column": -2}
    return fits.all(dim=axes[grain], keepdim=True).expand_as(wrong) & wrong


def _alone(wrong: Tensor) -> Tensor:
    """Where a wrong cell is the only one of its row: a row that is wrong throughout was not misprinted cell by cell."""
    return wrong.sum(dim=-1, keepdim=True).expand_as(wrong) == 1


def _pieces(shape: tuple[int, ...], grain: str) -> Iterator[Tensor]:
    """The parts of a quantity that a slip of this grain reaches one at a time, as masks: in all heads, or in one."""
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


def within(values: Tensor, truth: Tensor, tolerance: float) -> Tensor:
    """Where two agree; the same infinity agrees with itself."""
    room = tolerance * (1 + 1e-6) + 1e-12 * truth.abs().nan_to_num(posinf=0.0, neginf=0.0)
    return (values == truth) | ((values - truth).abs() <= room)

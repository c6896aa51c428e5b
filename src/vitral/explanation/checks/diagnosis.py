"""Diagnosis of wrong numbers: the slip whose result is what the author printed.

A slip is named only if it gives every wrong number that it is about, and if it is much more probable than all others
and than an unknown reason: a kind of slip has a share of probability, divided among the hypotheses of the kind; a
number that is wrong for an unknown reason could be any other, near ones more likely. A step has one cause, or two.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from vitral.explanation.checks.author import EXACT, Author
from vitral.explanation.checks.hypotheses import HypothesisGenerator
from vitral.explanation.checks.slips import COMMONNESS, GENERIC, MISPRINTS, SKIPPED, Slip, misprints
from vitral.explanation.examples.schema import WORDS
from vitral.explanation.recipe import SheetQuantity, Values

SURE, PROBABLE = 0.985, 0.9
"""Smallest probabilities of a slip named alone, and with "probably"; two candidates need `PROBABLE` together."""
UNKNOWN, UNKNOWN_CELL, UNKNOWN_WORD = 0.15, 0.6, 1e-6
"""The probability that numbers are wrong for none of the known reasons; of a single number; of a word."""
REPRODUCED = 0.56
"""Units between a wrong number and what a slip gives."""
HIDDEN_BY = 1000.0
"""Units between a number and −∞."""
MOST_TOGETHER = 3_000_000
"""Numbers of all hypotheses about one quantity; those that come first are the more probable ones."""
PART = 4.0
"""Bits for a slip that is made everywhere by its nature, but in some rows or columns only."""
REACHES = {
    "all": (0.0, 0.0, 0.0, 0.0),
    "row": (PART, 0.0, PART, math.inf),
    "column": (2 * PART, 2 * PART, 0.0, math.inf),
    "cell": (math.inf, math.inf, math.inf, 0.0),
}
"""Bits by reach, then grain: a slip of rows may fit everywhere, a slip of a cell only in its cells."""


Explained = tuple[Slip, Tensor]
"""A slip, and the wrong cells that it explains."""


def diagnose(author: Author, quantity: SheetQuantity, bases: Sequence[Values], wrong: Tensor) -> list[Explained]:
    """The slip that explains all wrong cells, or two that do so together, or none.

    Args:
        author: of the sheet.
        quantity: the quantity.
        bases: the computations that the author may have continued from; the first is exact.
        wrong: the cells that are wrong in themselves.
    """
    search = _Search(author, quantity, bases, wrong)
    first = search.named(wrong)
    part = None if first is not None or not search.hypotheses else search.best()
    if part is None:
        return [] if first is None else [first]
    both = [search.named(part), search.named(wrong & ~part)] if bool((part != wrong).any()) else []
    return [match for match in both if match is not None] if None not in both else []


class _Search:
    """The hypotheses about one quantity, and where each gives what is printed."""

    def __init__(self, author: Author, quantity: SheetQuantity, bases: Sequence[Values], wrong: Tensor) -> None:
        self.quantity, self.wrong, printed = quantity, wrong, author.printed[quantity.name]
        generators: dict[object, HypothesisGenerator] = {}
        for base in bases:
            generator = HypothesisGenerator(author, author.rule if generators else EXACT, quantity, base)
            generators.setdefault(generator.key, generator)
        self.values, self.decimals = printed.values, printed.unit.decimals
        self.unit = printed.unit.of(printed.values)
        self.truths = [generator.base[quantity.name] for generator in generators.values()]
        most = max(1, MOST_TOGETHER // max(1, wrong.numel()) // len(generators))
        hypotheses: list[Slip] = []
        blocks: list[Tensor] = []
        for generator in generators.values():
            room = most
            for slips, block in generator.all(printed.values):
                hypotheses += slips[:room]
                blocks.append(block[:room])
                room -= len(blocks[-1])
                if room <= 0:
                    break
        for slip, value in self.misprinted():
            hypotheses.append(slip)
            blocks.append(value[None])
        results = torch.cat([*blocks, printed.values[None][:0]])
        off = (results - printed.values).abs() / self.unit
        if author.rule.cuts:
            off = torch.minimum(off, (author.rule.rounded(results, self.unit) - printed.values).abs() / self.unit)
        fits = (results == printed.values) | (off <= REPRODUCED) | ~printed.known
        counts = Counter(slip.kind for slip in hypotheses)
        fitting = (fits & wrong).flatten(1).any(dim=1).nonzero().flatten().tolist()
        indices = [fitting[index] for index in _distinct([hypotheses[index] for index in fitting], results[fitting])]
        self.hypotheses = [
            slip if (slip := hypotheses[index]).kind in MISPRINTS else replace(slip, result=results[index])
            for index in indices
        ]
        shares = [math.log2(COMMONNESS[slip.kind] / 100 / counts[slip.kind]) - slip.cost for slip in self.hypotheses]
        grains = torch.tensor([list(REACHES).index(slip.grain) for slip in self.hypotheses], dtype=torch.long)
        prior = torch.tensor(shares, dtype=torch.float64)
        self.areas = [
            (self.area(fits[indices], reach), prior - torch.tensor(costs, dtype=torch.float64)[grains])
            for reach, costs in REACHES.items()
        ]
        """By reach: the cells of the areas that fit completely, and the worth of each hypothesis there, in bits."""
        self.bits = self.surprise()

    def misprinted(self) -> Iterator[tuple[Slip, Tensor]]:
        """Misprints: the truth, with one wrong number as it is printed."""
        for index in map(tuple, self.wrong.nonzero().tolist() if self.quantity.name not in WORDS else ()):
            value, half = float(self.values[index]), float(self.unit[index]) / 2 * (1 + 1e-6)
            for kind, meant in misprints(value, self.decimals):
                truth = next((truth for truth in self.truths if abs(float(truth[index]) - meant) <= half), None)
                if truth is not None:
                    misprinted = truth.clone()
                    misprinted[index] = value
                    yield Slip(kind, self.quantity.name, grain="cell"), misprinted

    def surprise(self) -> Tensor:
        """How many bits each wrong number carries, if the reason is unknown: those near the truth carry fewer."""
        far = [((self.values - truth).abs() / self.unit).nan_to_num(nan=0.0, posinf=HIDDEN_BY) for truth in self.truths]
        off = torch.stack(far).amin(dim=0)
        finite = torch.cat([values[values.isfinite()].flatten() for values in (self.values, *self.truths)])
        span = float(finite.max() - finite.min()) if len(finite) else 1.0
        room = (span / self.unit + 10).maximum(off)
        chance = 0.5 / room + 0.5 / (2 * (off + 1) * (room + 2).log())
        return -chance.log2() - math.log2(2 * REPRODUCED)

    def area(self, fits: Tensor, reach: str) -> Tensor:
        """The cells of the areas that fit completely: everything, rows, columns, or cells.

        A cell counts alone only if it is the only wrong one of its row: several slips in one row are unlikely.
        """
        if reach == "cell":
            return fits & (self.wrong.sum(dim=-1, keepdim=True) == 1)
        if reach == "all" or fits.dim() < 3:
            return fits.flatten(1).all(dim=1).reshape(-1, *(1,) * (fits.dim() - 1)).expand_as(fits)
        return fits.all(dim=-1 if reach == "row" else -2, keepdim=True).expand_as(fits)

    def best(self) -> Tensor | None:
        """The wrong cells of the best explanation of some of them; None without one."""
        best, cells = 0.0, None
        for area, worth in self.areas:
            area = area & self.wrong
            scores = torch.where(
                area.flatten(1).any(dim=1), (area * self.bits).flatten(1).sum(dim=1) + worth, -math.inf
            )
            if float(scores.max()) > best:
                best, cells = float(scores.max()), area[int(scores.argmax())]
        return cells

    def named(self, cells: Tensor) -> Explained | None:
        """The slip behind these cells, if it is much more probable than others; or two, or none."""
        gain = float((self.bits * cells).sum())
        covers = [((area | ~cells).flatten(1).all(dim=1), worth) for area, worth in self.areas]
        worth = torch.stack([torch.where(fits, gain + worth, -math.inf) for fits, worth in covers]).amax(dim=0)
        is_word = self.quantity.name in WORDS
        unknown = math.log2(UNKNOWN_WORD if is_word else UNKNOWN_CELL if int(cells.sum()) == 1 else UNKNOWN)
        odds = torch.exp2(torch.cat([worth, torch.tensor([unknown])]))
        shares = (odds / odds.sum()).tolist()
        names: dict[tuple[str, str], float] = defaultdict(float)
        best: dict[tuple[str, str], Slip] = {}
        for index in worth.argsort(descending=True, stable=True).tolist():
            slip = self.hypotheses[index]
            names[slip.kind, slip.step] += shares[index]
            best.setdefault((slip.kind, slip.step), slip)
        ranked = sorted(names, key=lambda name: -names[name])[:2]
        if not ranked or sum(names[name] for name in ranked) < PROBABLE:
            return None
        likely = names[ranked[0]]
        other = best[ranked[1]] if likely < PROBABLE else None
        return replace(best[ranked[0]], sure=likely >= SURE, other=other), cells


def _distinct(slips: list[Slip], results: Tensor) -> list[int]:
    """The hypotheses without those that another one makes needless: the same numbers, by a name that says more."""
    alike: dict[bytes, list[int]] = {}
    rounded = (results + 0.0).float().flatten(1).numpy()
    for index in range(len(slips)):
        alike.setdefault(rounded[index].tobytes(), []).append(index)
    chosen: dict[tuple[bytes, str, str], int] = {}
    for numbers, indices in alike.items():
        named = [index for index in indices if slips[index].kind not in GENERIC] or indices
        if any(slips[index].kind in SKIPPED for index in named):  # the scores in place of the scaled scores
            named = [index for index in named if slips[index].kind not in ("operand-other", "temperature")]
        for index in named:
            slip = slips[index]
            chosen.setdefault(
                (numbers, slip.kind, slip.step if slip.kind in ("other-row", "operand-other") else ""), index
            )
    return sorted(chosen.values())

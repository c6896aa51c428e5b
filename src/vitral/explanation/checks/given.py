"""Given numbers that were rounded before printing, as a notebook prints a random matrix."""

import numpy as np
import torch
from scipy.optimize import linprog
from torch import Tensor

from vitral.explanation.checks.author import Author
from vitral.explanation.checks.rounding import TOLERANCE
from vitral.explanation.checks.units import is_whole
from vitral.explanation.examples.numerals import MOST_DECIMALS
from vitral.explanation.sheet import computed

LEAST_DECIMALS = 2
"""Given numbers with fewer decimals are what they are."""
FARTHEST = 60.0
"""Units between a claimed number and the true one; the rounding of several tables adds up."""
MOST_NUMBERS = 600
"""In larger tables, no number is supposed to be rounded."""


def explained_by_given(author: Author) -> bool:
    """Whether numbers within half a unit of the given ones lead to all claimed numbers, in full precision.

    Only a table with as many decimals as the claims may be rounded. The claims are linear in so small changes: the
    changes are the solution of a linear program, and they are tried.
    """
    sheet, given = author.sheet, author.given
    least = max(LEAST_DECIMALS, author.usual.decimals)
    halves = {name: 10.0**-digits / 2 for name, value in given.items() if (digits := decimals(value)) >= least}
    free = [(name, place) for name in halves for place in range(given[name].numel())]
    hidden = [
        one.known & ~one.values.isfinite() & (one.values != sheet.values[name]) for name, one in author.printed.items()
    ]
    if (
        not 0 < len(free) <= MOST_NUMBERS
        or any(map(torch.any, hidden))
        or any(name in given for name in author.printed)
    ):
        return False

    def cells(changes: np.ndarray) -> np.ndarray:
        """The claimed cells in units, with these changes of the given numbers."""
        changed = {name: value.clone() if name in halves else value for name, value in given.items()}
        for (name, place), change in zip(free, changes, strict=True):
            changed[name].view(-1)[place] += change * halves[name]
        values = computed(sheet.quantities, changed)
        made = [(values[name] / one.size)[_seen(one.values)] for name, one in author.printed.items()]
        return torch.cat(made).numpy()

    claimed = torch.cat([(one.values / one.size)[_seen(one.values)] for one in author.printed.values()]).numpy()
    start = cells(np.zeros(len(free)))
    if not np.isfinite(start).all() or np.abs(start - claimed).max() > FARTHEST:
        return False
    slopes = np.stack([cells(row) - start for row in np.eye(len(free))], axis=1)
    changes, off = np.zeros(len(free)), start - claimed
    for _ in range(3):
        above = np.block([[slopes, -np.ones((len(off), 1))], [-slopes, -np.ones((len(off), 1))]])
        rest = np.concatenate([slopes @ changes - off, off - slopes @ changes])
        goal = [0.0] * len(free) + [1.0]
        found = linprog(goal, above, rest, bounds=[(-1, 1)] * len(free) + [(0, None)])
        if found.x is None or found.x[-1] > TOLERANCE:
            return False
        changes = found.x[:-1]
        off = cells(changes) - claimed
        if np.abs(off).max() <= TOLERANCE:
            return True
    return False


def decimals(values: Tensor) -> int:
    """The decimals of the longest number; 0 where the numbers are no decimal fractions."""
    return next((digits for digits in range(MOST_DECIMALS) if bool(is_whole(values, 10.0**-digits).all())), 0)


def _seen(values: Tensor) -> Tensor:
    return values.isfinite()

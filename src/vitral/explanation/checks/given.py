"""Given numbers that were rounded before printing, as a notebook prints a random matrix."""

import numpy as np
import torch
from scipy.optimize import linprog
from torch import Tensor
from torch.func import jacrev

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
    given = author.given
    printed = {name: author.printed[name] for name in author.claimed}
    least = max(LEAST_DECIMALS, author.usual.decimals)
    halves = {name: 10.0**-digits / 2 for name, value in given.items() if (digits := decimals(value)) >= least}
    sizes = [given[name].numel() for name in halves]
    hidden = any(
        bool((one.values.isinf() & (one.values != author.sheet.values[name])).any()) for name, one in printed.items()
    )
    if not 0 < sum(sizes) <= MOST_NUMBERS or hidden or any(name in given for name in printed):
        return False

    def off(changes: Tensor) -> Tensor:
        """How far the claimed cells are off, in units, with these changes of the given numbers in half units."""
        parts = zip(halves.items(), changes.split(sizes), strict=True)
        changed = {name: given[name] + half * part.reshape(given[name].shape) for (name, half), part in parts}
        values = computed(author.sheet.quantities, {**given, **changed})
        return torch.cat(
            [((values[name] - one.values) / one.size)[one.values.isfinite()] for name, one in printed.items()]
        )

    changes = torch.zeros(sum(sizes), dtype=torch.float64)
    start = off(changes)
    if not bool((start.abs() <= FARTHEST).all()):
        return False
    slopes, goal = jacrev(off)(changes).numpy(), np.array([0.0] * sum(sizes) + [1.0])
    room = -np.ones((len(start), 1))
    for _ in range(3):
        rest = slopes @ changes.numpy() - off(changes).numpy()
        above = np.block([[slopes, room], [-slopes, room]])
        found = linprog(goal, above, np.concatenate([rest, -rest]), bounds=[(-1, 1)] * sum(sizes) + [(0, None)])
        if found.x is None or found.x[-1] > TOLERANCE:
            return False
        changes = torch.from_numpy(found.x[:-1])
        if float(off(changes).abs().max()) <= TOLERANCE:
            return True
    return False


def decimals(values: Tensor) -> int:
    """The decimals of the longest number; 0 where the numbers are no decimal fractions."""
    return next((digits for digits in range(MOST_DECIMALS) if bool(is_whole(values, 10.0**-digits).all())), 0)

"""The constants of the scaling laws with one kind of token beside another, at the places of the grid both have."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from vitral.figures.sections import Table
from vitral.studies.probes.scaling_fit_shown import powers, told
from vitral.studies.probes.scaling_runs import Run, at_same_places, joint_law, product_law, single
from vitral.studies.scaling import Estimate, Fit, exponential
from vitral.studies.wording import NONE, big, nats, signed


@dataclass(frozen=True)
class Constant:
    """One constant of a law, by the base's tokens and by others.

    Attributes:
        title: what it is.
        log: whether the estimates are of its logarithm.
        fits: of either; None where there were too few runs.
        estimates: of either, in the same order.
        bounded: whether both fits ended inside what was searched, so that the constants mean something.
    """

    title: str
    log: bool
    fits: tuple[Fit | None, Fit | None]
    estimates: tuple[Estimate | None, Estimate | None]
    bounded: bool

    def cells(self) -> tuple[str, str]:
        """Either with its interval."""
        return self._cell(self.estimates[0]), self._cell(self.estimates[1])

    def _cell(self, estimate: Estimate | None) -> str:
        if estimate is None:
            return NONE
        if self.log:
            return powers(exponential(estimate))
        value, interval, _ = told(estimate)
        return f"{value} ({interval})"

    def difference(self, gap: Estimate) -> str:
        """What the others' lies above the base's: of a logarithm how many times as large it is."""
        if self.log:
            return f"times {powers(exponential(gap))}"
        return f"{signed(gap.value)}, 95% interval {signed(gap.low)} to {signed(gap.high)}"


def constants(grid: Sequence[Run], others: Sequence[Run]) -> list[Constant]:
    """Every constant of L(N), L(D), the sum and the product without a floor, at the places both have."""
    own, other = at_same_places(grid, others)
    if not own:
        return []
    largest, most = max(run.size for run in own), max(run.amount for run in own)
    ends = {
        "N": [[run for run in runs if run.amount == most] for runs in (own, other)],
        "D": [[run for run in runs if run.size == largest] for runs in (own, other)],
    }
    found = []
    for name, (one, two) in ends.items():
        fits = tuple(None if law is None else law.fit for law in (single(name, one), single(name, two)))
        found += _of(fits, name, f"α_{name} of L({name})", f"{name}_c of L({name})", constant=True)
    sums = (joint_law(own, product=False), joint_law(other, product=False))
    for name, exponent, level in (("N", "α", "A"), ("D", "β", "B")):
        found += _of(sums, name, f"{exponent} of the sum", f"{level} of the sum")
    products = (product_law(own), product_law(other))
    for name, exponent in (("N", "α"), ("D", "β")):
        found += _of(products, name, f"{exponent} of the product without a floor")
    return found


def _of(
    fits: tuple[Fit | None, ...], name: str, exponent: str, level: str = "", *, constant: bool = False
) -> list[Constant]:
    """The exponent of one quantity, and the constant that goes with it."""
    one, two = fits
    exponents = tuple(None if fit is None else fit.exponent(name) for fit in (one, two))
    bounded = all(each is not None and each.high - each.low < float("inf") for each in exponents)
    made = [Constant(exponent, False, (one, two), (exponents[0], exponents[1]), bounded)]
    if level:
        logs = [
            None if fit is None else fit.log_constant(name) if constant else fit.log_coefficient(name) for fit in fits
        ]
        made.append(Constant(level, True, (one, two), (logs[0], logs[1]), bounded))
    return made


def token_table(grid: Sequence[Run], others: Sequence[Run]) -> Table:
    """Losses at the same places with both kinds of token, and the constants there."""
    own, other = at_same_places(grid, others)
    rows = []
    for size, amount in sorted({(run.size, run.amount) for run in own}):
        one, two = (
            fmean(run.loss for run in runs if (run.size, run.amount) == (size, amount)) for runs in (own, other)
        )
        rows.append(
            (
                f"loss at N = {big(size)}, D = {big(amount)}",
                nats(one),
                nats(two),
                f"{signed(100 * (two / one - 1), 1)}%",
            )
        )
    rows += [(constant.title, *constant.cells(), "") for constant in constants(grid, others)]
    columns = ("at the same places of the grid", grid[0].tokens, others[0].tokens, "difference")
    return Table("Nats per character, and the constants with 95% intervals.", columns, tuple(rows))

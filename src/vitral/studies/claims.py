"""Claims: comparisons, checks and notes of a study, and their words.

A `Comparison` is two series of one number per seed, paired by seed: an arm against its baseline arm, or two numbers of
the same runs, or a number against a fixed value. A `Claim` is a comparison that was judged
(`vitral.studies.judging`).

A `Check` compares a measured number with an expected range that theory states in advance; it needs no seeds.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from statistics import fmean, geometric_mean
from typing import Any, Literal, NamedTuple

from vitral.core.language import N_, _, number
from vitral.core.text import NONE, capital, minus, p_clause, signed
from vitral.evaluation.intervals import LEVEL

Plain = dict[str, Any]
Read = Callable[[Mapping[str, Any]], float | None]
Direction = Literal["lower", "higher", "neither"]
Verdict = Literal["better", "worse", "equivalent", "fails", "higher", "lower", "undecided"]
VERDICTS = (
    N_("better"),
    N_("worse"),
    N_("equivalent"),
    N_("fails"),
    N_("higher"),
    N_("lower"),
    N_("undecided"),
    N_("as expected"),
    N_("not as expected"),
)
"""Of claims and checks, as `_` translates them."""
UNITS = (N_("nats"), N_("nats per token"), N_("bits per character"))
"""Of losses, as `_` translates them."""
SAMPLES = (N_("seeds"), N_("prompts"), N_("items"))
"""Paired units, as `_` translates them."""
Sample = Literal["seeds", "prompts", "items"]
SAME = N_("all {units} have the same difference, so its spread is unknown")


def every(measured: Any, path: str) -> list[Any]:
    """All values to which a path of keys leads, through mappings and lists, without None and what is missing.

    The key "*" stands for every item of a list, a number for one; a list without items has none.

    >>> every({"layers": [{"heads": [1.0, 2.0]}, {"heads": [None, 4.0]}]}, "layers/*/heads/*")
    [1.0, 2.0, 4.0]
    """
    values = [measured]
    for key in path.split("/"):
        values = [one for one in values if one not in (None, [])]
        if key == "*":
            values = [item for one in values for item in one]
        else:
            values = [one.get(key) if isinstance(one, Mapping) else one[int(key)] for one in values]
    return [one for one in values if one is not None]


def at(path: str) -> Read:
    """A reader of the number at a path, or of the mean over all numbers there, see `every`; None where there is none.

    >>> at("leak/early/moved")({"leak": {"early": {"moved": 0.5}}})
    0.5
    """

    def read(measured: Mapping[str, Any]) -> float | None:
        values = every(measured, path)
        return fmean(values) if values else None

    return read


@dataclass(frozen=True)
class Quantity:
    """A number of every run: how to read it, name it and judge it.

    Attributes:
        name: as a column of a table and in a sentence, without a capital letter; a marked sentence or an own name.
        source: where it is in a run's measured data: a path, see `at`, or a function; empty where no run has it.
        unit: of differences; empty for a pure number.
        better: which direction is better; "neither" where the question has no better answer.
        digits: digits after the decimal point.
    """

    name: str
    source: Read | str = field(default="", repr=False, compare=False)
    unit: str = ""
    better: Direction = "neither"
    digits: int = 3

    def __getstate__(self) -> dict[str, Any]:
        """Without `source`, often a function without a name: a pickled claim has its numbers and reads no run again."""
        return vars(self) | {"source": ""}

    def read(self, measured: Mapping[str, Any]) -> float | None:
        """The number in a run's measured data; None where the run has none."""
        return at(self.source)(measured) if isinstance(self.source, str) else self.source(measured)

    @property
    def label(self) -> str:
        """The name with its unit, as a column and an axis show it."""
        return f"{self.title} ({_(self.unit)})" if self.unit else self.title

    @property
    def title(self) -> str:
        """The name in the current language."""
        return _(self.name)

    def show(self, value: float | None) -> str:
        """The number as a table shows it; a dash for None."""
        if value is None:
            return NONE
        return minus(number(value, f",.{self.digits}f"))


@dataclass(frozen=True)
class Comparison:
    """Two series of one number per seed.

    Attributes:
        subject: the arm or condition the sentence is about.
        against: the arm, condition or fixed value it is compared with.
        quantity: that is compared; no run is read any more.
        values: of the subject, by seed.
        others: of what it is compared with, by seed; only shared seeds count.
        arm: name of the arm, for programs; empty where it concerns the whole study.
        excluded: reason why it must not be tested; empty where it may.
        sample: the paired units.
        rival: name of the baseline arm, for programs; empty where it is compared with no arm.
        failures: of losses, where a run of either arm failed; `values` and `others` are of the others.
        choice: variance that the choice of both arms' tuned values adds to that of the log ratio.
        untuned: the arms of the two whose best value may lie beyond those tried, each with the reason.
    """

    subject: str
    against: str
    quantity: Quantity
    values: Mapping[int, float]
    others: Mapping[int, float]
    arm: str = ""
    excluded: str = ""
    sample: Sample = "seeds"
    rival: str = ""
    failures: "Failures | None" = None
    choice: float = 0.0
    untuned: Mapping[str, str] = field(default_factory=dict)

    @property
    def differences(self) -> list[float]:
        """Subject minus other, by seed in increasing order."""
        shared = sorted(seed for seed in self.values if seed in self.others)
        return [self.values[seed] - self.others[seed] for seed in shared]


def to_fixed(
    subject: str,
    value: float,
    meaning: str,
    quantity: Quantity,
    values: Mapping[int, float],
    arm: str = "",
    sample: Sample = "seeds",
) -> Comparison:
    """A comparison with a fixed value, such as chance; `meaning` names the value in the sentence."""
    return Comparison(subject, meaning, quantity, values, dict.fromkeys(values, value), arm, sample=sample)


class Failures(NamedTuple):
    """In how many runs an arm and its baseline arm fail.

    Attributes:
        failed: seeds from which the arm fails.
        seeds: of the arm.
        others_failed: seeds from which the baseline arm fails.
        others: seeds of the baseline arm.
    """

    failed: int
    seeds: int
    others_failed: int
    others: int

    @property
    def alone(self) -> bool:
        """Whether the arm fails from every seed, and its baseline arm does not."""
        return self.failed == self.seeds and self.others_failed < self.others


class Claim(NamedTuple):
    """A comparison with its estimate, its interval and p value (both corrected for the family) and its verdict.

    Attributes:
        comparison: that was judged.
        seeds: shared by both series, of losses those from which neither run failed.
        difference: mean of the paired differences, of losses the difference of geometric means; NaN without shared
            seeds.
        low: lower end of the simultaneous interval; None without a test, and where runs failed.
        high: upper end, or None.
        p: the p value after correction; None without a test. Where runs failed it is that of the ranks.
        family: comparisons that were corrected for together; where runs failed, all contrasts of the study.
        why: reason why there was no test; empty where there was one.
        margin: differences of up to this share of the baseline arm's loss count as equivalent; None: no margin.
        detectable: the share of the baseline arm's loss that this design finds with a probability of 0.7 to 0.8.
        above: where runs failed, the share of pairs of runs in which the arm's is the worse.
    """

    comparison: Comparison
    seeds: int
    difference: float
    low: float | None = None
    high: float | None = None
    p: float | None = None
    family: int = 1
    why: str = ""
    margin: float | None = None
    detectable: float | None = None
    above: float | None = None

    @property
    def failures(self) -> Failures | None:
        """Where a run of either arm failed."""
        return self.comparison.failures

    @property
    def shown(self) -> bool | None:
        """Whether a difference was shown: the interval excludes zero, or p < 0.05 of ranks; None without a test."""
        if self.failures is not None:
            return None if self.p is None else self.p < LEVEL
        if self.low is None or self.high is None:
            return None
        return self.low > 0 or self.high < 0

    @property
    def within_margin(self) -> bool:
        """Whether the whole interval lies within the margin."""
        if self.margin is None or self.low is None or self.high is None:
            return False
        most = self.margin * self.reference
        return -most <= self.low <= self.high <= most

    @property
    def reference(self) -> float:
        """The baseline series' mean over the shared seeds, of losses the geometric mean; NaN without shared seeds."""
        others = [self.comparison.others[seed] for seed in self.comparison.values if seed in self.comparison.others]
        if not others:
            return math.nan
        return geometric_mean(others) if self.margin is not None else fmean(others)

    @property
    def verdict(self) -> Verdict:
        """One word.

        "fails"; "better" or "worse" where a direction is declared, else "higher" or "lower"; "equivalent" within the
        margin; or "undecided".
        """
        if self.failures is not None:
            is_better = self.shown and self.above is not None and self.above < 0.5
            if self.failures.failed and not is_better:
                return "fails"
            return "better" if is_better else "worse" if self.shown else "undecided"
        if not self.shown:
            return "equivalent" if self.within_margin else "undecided"
        higher, better = self.difference > 0, self.comparison.quantity.better
        if better == "neither":
            return "higher" if higher else "lower"
        return "better" if higher == (better == "higher") else "worse"

    @property
    def percent(self) -> float | None:
        """The difference in percent of the mean of the other series; None where that mean is zero."""
        mean = self.reference
        return 100 * self.difference / mean if mean and math.isfinite(mean) else None

    @property
    def words(self) -> str:
        """The verdict as a sentence ends with it."""
        word = _(self.verdict)
        if self.margin is None or not self.within_margin:
            return word
        margin = f"{number(100 * self.margin, '.3g')}%"
        if self.verdict == "equivalent":
            return _("equivalent within the margin of {margin}", margin=margin)
        return _("{word}, by less than the margin of {margin}", word=word, margin=margin)

    @property
    def span(self) -> str:
        """The interval with as many digits as its ends need to be told from zero; empty without a test."""
        if self.low is None or self.high is None:
            return ""
        digits = digits_for((self.low, self.high), self.comparison.quantity.digits)
        return _("{low} to {high}", low=signed(self.low, digits), high=signed(self.high, digits))

    @property
    def text(self) -> str:
        """The claim as one sentence with the numbers it rests on."""
        one = self.comparison
        about = {"subject": capital(one.subject), "against": one.against, "quantity": one.quantity.title}
        text = self._compared(about) if self.failures is None else self._failing(self.failures, about)
        arms = "; ".join(f"{arm} ({why})" for arm, why in one.untuned.items())
        return text + _(" Untuned: {arms}.", arms=arms) if arms else text

    def _compared(self, about: Plain) -> str:
        """The sentence where no run failed."""
        if not self.seeds:
            return _(
                "{subject} against {against}, {quantity}: no comparison, since both share no {units}.",
                **about,
                units=_(self.comparison.sample),
            )
        about["difference"] = self._difference
        if self.p is None:
            return _("{subject} against {against}, {quantity}: {difference}; no verdict: {why}.", **about, why=self.why)
        about |= {"interval": self.span, "p": p_clause(self.p), "verdict": self.words}
        about["more"] = "" if self.family == 1 else _(", corrected for {n} comparisons", n=self.family)
        return _(
            "{subject} against {against}, {quantity}: {difference} (95% CI {interval}, {p}{more}): {verdict}.", **about
        )

    @property
    def _difference(self) -> str:
        quantity = self.comparison.quantity
        unit = f" {_(quantity.unit)}" if quantity.unit else ""
        return f"{signed(self.difference, digits_for((self.difference,), quantity.digits))}{unit}"

    @property
    def trained(self) -> str:
        """Of how many seeds the difference is, where runs failed; empty otherwise."""
        if self.failures is None:
            return ""
        return _("trained seeds only, {k} of {n}", k=self.seeds, n=max(self.failures.seeds, self.failures.others))

    @property
    def unseen(self) -> str:
        """Where each seed shows that the arm is worse and the ranks do not, that in words; empty otherwise."""
        failures, least = self.failures, min(self.comparison.differences, default=1)
        if self.p is None or failures is None or failures.others_failed or self.shown or least <= 0:
            return ""
        return _("worse in each of {n} seeds; the test of ranks does not show it", n=failures.seeds)

    def _failing(self, failures: Failures, about: Mapping[str, str]) -> str:
        """The sentence where runs failed."""
        if self.unseen:
            test = f"; {self.unseen}"
        elif self.p is None:
            test = _("; no test: {why}", why=self.why)
        else:
            more = "" if self.family == 1 else _(", corrected for the {n} contrasts of the study", n=self.family)
            test = _(" ({p}, ranks with failed runs last{more})", p=p_clause(self.p), more=more)
            if self.verdict != "fails":
                test += f": {_(self.verdict)}"
        if self.seeds:
            test += _("; {trained}: {difference}", trained=self.trained, difference=self._difference)
        return _(
            "{subject} fails in {failed} of {n} seeds, {against} in {others_failed} of {others}{test}.",
            **about,
            failed=failures.failed,
            n=failures.seeds,
            others_failed=failures.others_failed,
            others=failures.others,
            test=test,
        )


def digits_for(values: Iterable[float], least: int) -> int:
    """Digits after the point with which no nonzero value is printed as zero, `least` or more, 12 at most.

    >>> digits_for((0.00004, -1.2), 3)
    5
    """
    digits = least
    for value in values:
        while digits < 12 and value and round(value, digits) == 0:
            digits += 1
    return digits


class Check(NamedTuple):
    """A measured number beside the range that theory states for it.

    Attributes:
        subject: the arm, fit or condition.
        what: name of the number.
        value: as measured.
        low: least value that agrees with theory; None for no limit.
        high: largest value that agrees, or None.
        expected: the range in words, for example "1/d_k within 2%".
        unit: of the number.
        digits: after the point.
        interval: of the measured value, where there is one; then a range it overlaps only in part is undecided.
        arm: name of the arm, for programs; empty where it concerns the whole study.
    """

    subject: str
    what: str
    value: float
    low: float | None = None
    high: float | None = None
    expected: str = ""
    unit: str = ""
    digits: int = 3
    interval: tuple[float, float] | None = None
    arm: str = ""

    @property
    def shown(self) -> bool | None:
        """Whether the number lies in the range; None where its interval lies only partly in it."""
        least = -math.inf if self.low is None else self.low
        most = math.inf if self.high is None else self.high
        low, high = self.interval or (self.value, self.value)
        if least <= low and high <= most:
            return True
        return False if high < least or low > most else None

    @property
    def verdict(self) -> str:
        """The check in one word or three."""
        return {True: "as expected", False: "not as expected", None: "undecided"}[self.shown]

    @property
    def text(self) -> str:
        """The check as one sentence."""
        digits = digits_for((self.value, *(self.interval or ())), self.digits)
        value = minus(number(self.value, f".{digits}f")) + (f" {_(self.unit)}" if self.unit else "")
        if self.interval is not None:
            low, high = (minus(number(end, f".{digits}f")) for end in self.interval)
            value = _("{value} (95% CI {low} to {high})", value=value, low=low, high=high)
        about = {"subject": capital(self.subject), "what": self.what, "value": value, "verdict": _(self.verdict)}
        return _("{subject}, {what}: {value}; expected {expected}: {verdict}.", **about, expected=self.expected)


class Note(NamedTuple):
    """A fact that needs no test, such as a run that stopped early or how many seeds there are.

    Attributes:
        text: one sentence.
        arm: name of the arm, for programs; empty where it concerns the whole study.
        shown: whether it agrees with what theory states; None where theory states nothing.
    """

    text: str
    arm: str = ""
    shown: bool | None = None


Judged = Claim | Check | Note
"""What a page lists: each has `text` and `shown`."""

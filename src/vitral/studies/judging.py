"""The rule that judges comparisons: of losses by one estimator, of probes by paired differences.

`judge_losses` judges the contrasts of a study's losses, one family, by the estimator of arms and seeds
(`vitral.studies.estimator`). Its words are *better* and *worse* ("by less than the margin" where the whole interval
lies within the margin), *equivalent* (the interval lies within the margin and contains zero), *undecided*, and *fails*:
an arm that fails has no mean to compare, so its failures are counted and tested by Fisher's exact test.

`judge` judges the comparisons of a probe, a family of its own, marked exploratory. The rule is the paired t test
(Student 1908) with Bonferroni's correction: with m comparisons in the family, each interval has the confidence
1 - 0.05 / m and each p value is multiplied by m. Under either rule p is below 0.05 exactly where the interval excludes
zero, so the two cannot contradict each other.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import geometric_mean

import numpy as np

from vitral.core.language import _, ngettext
from vitral.studies import estimator
from vitral.studies.claims import ENOUGH_SEEDS, SAME, Claim, Comparison, Failures, Sample
from vitral.studies.estimator import LEVEL, mean_interval, standard_error


def judge(comparisons: Sequence[Comparison]) -> tuple[Claim, ...]:
    """One claim for each comparison of a family, in order; see the module for the rule.

    A comparison has no test, and does not count in the family, with fewer than `ENOUGH_SEEDS` shared seeds, where every
    seed has the same difference, so that nothing is known of its spread, or where it names a reason to be excluded.
    """
    whys = [_why_untested(one) for one in comparisons]
    family = max(1, whys.count(""))
    return tuple(_judged(one, family, why) for one, why in zip(comparisons, whys, strict=True))


def judge_losses(
    comparisons: Sequence[Comparison], *, margin: float, failures: Mapping[str, Failures] | None = None
) -> tuple[Claim, ...]:
    """One claim for each contrast of losses, in order: one family, judged on the log scale by arms and seeds.

    Args:
        comparisons: arms and their rivals; every value is positive and finite, or its arm fails.
        margin: share of the rival's loss within which arms count as equivalent.
        failures: by arm, of the arms that fail: these are tested by Fisher's exact test with Bonferroni's correction
            for all comparisons, and their losses stay out of the estimator, which has the other contrasts' share of the
            level of 5 %. Whether there are enough seeds for a test
            depends on the number of all comparisons too.
    """
    failing = dict(failures or {})
    tested = [one for one in comparisons if one.arm not in failing and not one.excluded]
    series: dict[str, Mapping[int, float]] = {}
    for one in tested:
        series |= {one.arm: one.values, one.rival: one.others}
    seeds = sorted(set.intersection(*(set(values) for values in series.values()))) if series else []
    # The number that was designed: how many arms fail is seen only afterwards.
    whys = {one.arm: _too_few(len(seeds), len(comparisons)) for one in tested}
    found: dict[str, estimator.Difference] = {}
    if tested and not any(whys.values()):
        rows = list(series)
        logs = np.log([[series[row][seed] for seed in seeds] for row in rows])
        try:
            pairs = [(rows.index(one.arm), rows.index(one.rival)) for one in tested]
            # Arms that fail have their equal share of the family's level.
            counted = sum(not one.excluded for one in comparisons)
            estimates = estimator.differences(logs, pairs, share=len(tested) / counted)
            found = {one.arm: each for one, each in zip(tested, estimates, strict=True)}
        except ZeroDivisionError:
            whys = dict.fromkeys(whys, _(SAME, units=_("seeds")))
    claims = []
    for one in comparisons:
        if one.arm in failing:
            claims.append(_failed(one, failing[one.arm], len(comparisons), margin))
            continue
        shared = [seed for seed in one.values if seed in one.others]
        plain = Claim(one, len(shared), _ratio_difference(one, shared), family=len(tested), margin=margin)
        if one.arm in found:
            plain = _estimated(plain, found[one.arm])
        else:
            plain = replace(plain, why=one.excluded or whys.get(one.arm, ""))
        claims.append(plain)
    return tuple(claims)


def _too_few(seeds: int, contrasts: int) -> str:
    """The reason why a family of contrasts is not tested; empty where it is."""
    if estimator.enough(seeds, contrasts):
        return ""
    if seeds >= ENOUGH_SEEDS:
        return _(
            "a test of {contrasts} contrasts needs {least} seeds and there are {n}",
            contrasts=contrasts,
            least=estimator.FEW_SEEDS + 1,
            n=seeds,
        )
    return _too_small(seeds, "seeds")


def _too_small(num: int, units: Sample) -> str:
    """The reason why so few paired units are not tested; empty where there are enough."""
    if num >= ENOUGH_SEEDS:
        return ""
    if not num:
        return _("both series share no {units}", units=_(units))
    return ngettext(
        "a test needs {least} {units} and there is {n}",
        "a test needs {least} {units} and there are {n}",
        num,
        least=ENOUGH_SEEDS,
        units=_(units),
        n=num,
    )


def _ratio_difference(one: Comparison, shared: Sequence[int]) -> float:
    """The difference of the two geometric means over the shared seeds."""
    if not shared:
        return math.nan
    return geometric_mean([one.values[seed] for seed in shared]) - geometric_mean([one.others[seed] for seed in shared])


def _estimated(plain: Claim, found: estimator.Difference) -> Claim:
    """The claim in the unit of the losses: the rival's geometric mean times the ratio, less that mean."""
    loss = plain.reference
    difference, low, high = (
        loss * math.expm1(end) for end in (found.log_ratio, found.log_ratio - found.half, found.log_ratio + found.half)
    )
    return replace(plain, difference=difference, low=low, high=high, p=found.p, detectable=math.expm1(found.detectable))


def _failed(one: Comparison, found: Failures, family: int, margin: float) -> Claim:
    shared = [seed for seed in one.values if seed in one.others]
    claim = Claim(one, len(shared), math.nan, family=family, margin=margin, failures=found)
    if one.excluded:
        return replace(claim, why=one.excluded)
    return replace(claim, p=min(1.0, family * found.p))


def _why_untested(one: Comparison) -> str:
    """The reason why there is no test; empty where there is one."""
    differences, num = one.differences, len(one.differences)
    if one.excluded and num:
        return one.excluded
    if num < ENOUGH_SEEDS:
        return _too_small(num, one.sample)
    # Shares of counts, such as 0.9 - 0.5 and 0.85 - 0.45, differ by rounding alone.
    if math.isclose(max(differences), min(differences), rel_tol=1e-9, abs_tol=1e-12):
        return _(SAME, units=_(one.sample))
    return ""


def _judged(one: Comparison, family: int, why: str) -> Claim:
    differences, num = one.differences, len(one.differences)
    if why:
        return Claim(one, num, math.fsum(differences) / num if num else math.nan, family=family, why=why)
    from scipy import stats

    interval = mean_interval(differences, 1 - LEVEL / family)
    error = standard_error(differences, interval.mean)
    statistic = abs(interval.mean) / error if error else math.inf
    p = min(1.0, family * 2 * float(stats.t.sf(statistic, num - 1)))
    return Claim(one, num, interval.mean, interval.low, interval.high, p, family)

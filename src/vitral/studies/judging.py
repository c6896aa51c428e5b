"""The rule that judges comparisons: of losses by one estimator, of probes by paired differences.

`judge_losses` judges the contrasts of a study's losses, one family, by the estimator of arms and seeds
(`vitral.studies.estimator`). Its words are *better* and *worse* ("by less than the margin" where the whole interval
lies within the margin), *equivalent* (the interval lies within the margin and contains zero), *undecided*, and *fails*.
Where a run of either arm failed, the ranks of all their runs are compared, failed runs last (`estimator.rank_test`):
with six seeds it sees, in families of up to 23 contrasts, that each run of one arm is worse than each of the other. It
does not know which runs share a seed: where seeds differ more than arms, as drawn texts do, it may show nothing. Each
such contrast has its share of the family's level of 5 %, the others have theirs together. No mean of an arm that
trained from some seed contains a failed run. Where two arms run with different tuned values, the interval is wider by
the variance of that choice (`losses.choice_variance`).

`judge` judges the comparisons of a probe, a family of its own, marked exploratory. The rule is the paired t test
(Student 1908) with Bonferroni's correction: with m comparisons in the family, each interval has the confidence
1 - 0.05 / m and each p value is multiplied by m. Under either rule p is below 0.05 exactly where the interval excludes
zero, so the two cannot contradict each other.
"""

import math
from collections.abc import Mapping, Sequence
from statistics import geometric_mean

import numpy as np

from vitral.core.language import _, ngettext
from vitral.evaluation.intervals import LEVEL, mean_interval
from vitral.studies import estimator
from vitral.studies.claims import SAME, Claim, Comparison, Failures, Sample
from vitral.studies.estimator import LEAST_SEEDS


def judge(comparisons: Sequence[Comparison]) -> tuple[Claim, ...]:
    """One claim for each comparison of a family, in order; see the module for the rule.

    A comparison has no test, and does not count in the family, with fewer than `LEAST_SEEDS` shared seeds, where every
    seed has the same difference, so that nothing is known of its spread, or where it names a reason to be excluded.
    """
    whys = [_why_untested(one) for one in comparisons]
    family = max(1, whys.count(""))
    return tuple(_judged(one, family, why) for one, why in zip(comparisons, whys, strict=True))


def judge_losses(comparisons: Sequence[Comparison], *, margin: float) -> tuple[Claim, ...]:
    """One claim for each contrast of losses, in order: one family, judged on the log scale by arms and seeds.

    Args:
        comparisons: arms and their rivals; every value is positive and finite, of a run that did not fail.
        margin: share of the rival's loss within which arms count as equivalent.
    """
    counted = [one for one in comparisons if not one.excluded]
    tested = [one for one in counted if one.failures is None]
    series: dict[str, Mapping[int, float]] = {}
    for one in tested:
        series |= {one.arm: one.values, one.rival: one.others}
    seeds = sorted(set.intersection(*(set(values) for values in series.values()))) if series else []
    # The number that was designed: how many arms fail is seen only afterwards.
    why, by_arm = _too_few(len(seeds), len(comparisons)), dict[str, estimator.Difference]()
    if tested and not why:
        rows = list(series)
        logs = np.log([[series[row][seed] for seed in seeds] for row in rows])
        pairs = [(rows.index(one.arm), rows.index(one.rival)) for one in tested]
        further = [one.choice for one in tested]
        try:
            # Arms that fail have their equal share of the family's level.
            share = len(tested) / len(counted)
            estimates = estimator.differences(logs, pairs, share=share, further=further)
            by_arm = {one.arm: each for one, each in zip(tested, estimates, strict=True)}
        except ZeroDivisionError:
            why = _(SAME, units=_("seeds"))
    claims = []
    for one in comparisons:
        shared = [value for seed, value in one.values.items() if seed in one.others]
        plain = Claim(one, len(shared), math.nan, family=len(counted), margin=margin)
        if shared:
            plain = plain._replace(difference=geometric_mean(shared) - plain.reference)
        if one.excluded:
            claims.append(plain._replace(why=one.excluded))
        elif one.failures is not None:
            claims.append(_ranked(plain, one.failures, len(comparisons)))
        else:
            claims.append(_estimated(plain, by_arm[one.arm]) if one.arm in by_arm else plain._replace(why=why))
    return tuple(claims)


def _too_few(seeds: int, contrasts: int) -> str:
    """The reason why a family of contrasts is not tested; empty where it is."""
    if estimator.enough(seeds, contrasts):
        return ""
    if seeds >= LEAST_SEEDS:
        return _(
            "a test of {contrasts} contrasts needs {least} seeds and there are {n}",
            contrasts=contrasts,
            least=estimator.FEW_SEEDS + 1,
            n=seeds,
        )
    return _too_small(seeds, "seeds")


def _too_small(num: int, units: Sample) -> str:
    """The reason why so few paired units are not tested."""
    if not num:
        return _("both series share no {units}", units=_(units))
    return ngettext(
        "a test needs {least} {units} and there is {n}",
        "a test needs {least} {units} and there are {n}",
        num,
        least=LEAST_SEEDS,
        units=_(units),
        n=num,
    )


def _estimated(plain: Claim, estimate: estimator.Difference) -> Claim:
    """The claim in the unit of the losses: the rival's geometric mean times the ratio, less that mean."""
    loss = plain.reference
    difference, low, high = (
        loss * math.expm1(end)
        for end in (estimate.log_ratio, estimate.log_ratio - estimate.half, estimate.log_ratio + estimate.half)
    )
    return plain._replace(
        difference=difference, low=low, high=high, p=estimate.p, detectable=math.expm1(estimate.detectable)
    )


def _ranked(plain: Claim, failures: Failures, family: int) -> Claim:
    """The claim of two arms of which a run failed."""
    values, others = ([*each.values()] for each in (plain.comparison.values, plain.comparison.others))
    p, above = estimator.rank_test(values, others, failures.failed, failures.others_failed)
    plain = plain._replace(above=above, family=family)
    if not (values or others):
        return plain._replace(why=_("both fail from every seed"))
    # The least p value of the test is that of two arms of which each run of one is above the other's.
    if 2 * family / math.comb(failures.seeds + failures.others, failures.seeds) >= LEVEL:
        why = _("ranks of {n} seeds show nothing in {contrasts} contrasts", n=failures.seeds, contrasts=family)
        return plain._replace(why=why)
    return plain._replace(p=min(1.0, family * p))


def _why_untested(one: Comparison) -> str:
    """The reason why there is no test; empty where there is one."""
    differences = one.differences
    if one.excluded and differences:
        return one.excluded
    if len(differences) < LEAST_SEEDS:
        return _too_small(len(differences), one.sample)
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
    _statistic, p = stats.ttest_1samp(differences, 0.0)
    p = family * float(p)  # pyright: ignore[reportArgumentType]
    return Claim(one, num, interval.mean, interval.low, interval.high, min(1.0, p), family)

"""Every arm against the base, seed by seed, the p values corrected for how many comparisons there are."""

from dataclasses import dataclass

from vitral.studies.results import StudyResult
from vitral.studies.statistics import Interval, PairedDifference, holm, mean_interval, paired_difference


@dataclass(frozen=True)
class Comparison:
    """What the seeds say about one arm.

    Attributes:
        arm: its name.
        mean: test loss at the last step over its finished seeds; None if there are none.
        paired: against the base, over the seeds that both finished; None for the base and where there are none.
        adjusted_p: of the paired difference after Holm's correction over all arms; None where there is no p value.
    """

    arm: str
    mean: Interval | None
    paired: PairedDifference | None
    adjusted_p: float | None


def compare(result: StudyResult) -> tuple[Comparison, ...]:
    """One comparison for each arm, in the study's order; the base's has no difference."""
    base = result.arms[0].losses
    pairs: dict[str, PairedDifference] = {}
    for arm in result.arms[1:]:
        shared = [seed for seed in base if seed in arm.losses]
        if shared:
            pairs[arm.arm.name] = paired_difference([arm.losses[s] for s in shared], [base[s] for s in shared])
    tested = {name: pair.p_value for name, pair in pairs.items() if pair.p_value is not None}
    adjusted = dict(zip(tested, holm(list(tested.values())), strict=True))
    return tuple(
        Comparison(
            arm=arm.arm.name,
            mean=mean_interval(list(arm.losses.values())) if arm.losses else None,
            paired=pairs.get(arm.arm.name),
            adjusted_p=adjusted.get(arm.arm.name),
        )
        for arm in result.arms
    )

"""Every arm against its rival, seed by seed, the p values corrected for how many comparisons there are."""

from dataclasses import dataclass

from vitral.studies.results import ArmResult, StudyResult
from vitral.studies.statistics import Interval, PairedDifference, holm, mean_interval, paired_difference


@dataclass(frozen=True)
class Comparison:
    """What the seeds say about one arm.

    Attributes:
        arm: its name.
        mean: test loss at the last step over its finished seeds; None if there are none.
        paired: against its rival, over the seeds that both finished; None for the base, where there are none, and
            where the arm's loss is of another task.
        adjusted_p: of the paired difference after Holm's correction over all arms; None where there is no p value.
    """

    arm: str
    mean: Interval | None
    paired: PairedDifference | None
    adjusted_p: float | None


def compare(result: StudyResult) -> tuple[Comparison, ...]:
    """One comparison for each arm, in the study's order: with the base, or with the arm it names."""
    pairs: dict[str, PairedDifference] = {}
    for arm in result.arms[1:]:
        rival = rival_of(result, arm).losses
        shared = [seed for seed in rival if seed in arm.losses] if arm.arm.compared else []
        if shared:
            pairs[arm.arm.name] = paired_difference([arm.losses[s] for s in shared], [rival[s] for s in shared])
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


def rival_of(result: StudyResult, arm: ArmResult) -> ArmResult:
    """The arm that this one is compared with."""
    return result.arms[0] if arm.arm.against is None else result.arm(arm.arm.against)

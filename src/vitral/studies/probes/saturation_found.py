"""What the probe `saturation` allows one to say: arms compared over seeds, and findings by stated rules."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vitral.studies.probes.protocol import ByRun, Plain
from vitral.studies.statistics import PairedDifference, holm, mean_interval, paired_difference
from vitral.studies.verdict import ENOUGH_SEEDS, LEVEL, Finding
from vitral.studies.wording import p_clause, signed

if TYPE_CHECKING:
    from vitral.studies.results import ArmResult

NAME = "saturation"
NEAR = 2.0
"""A variance is near its theory within this factor."""
Value = Callable[[Plain], float | None]


@dataclass(frozen=True)
class Pair:
    """An arm and the one that differs from it by having the scale 1/√d_k.

    Attributes:
        arm: under another scale.
        usual: the same shape under 1/√d_k.
        differences: by quantity of `COMPARED`, paired over the seeds both have; None where there are none.
        adjusted: by quantity, p after Holm's correction over the arms, each quantity being a question of its own.
    """

    arm: "ArmResult"
    usual: "ArmResult"
    differences: Mapping[str, PairedDifference | None]
    adjusted: Mapping[str, float | None]


def layers_mean(state: str, quantity: str) -> Value:
    """A function from a run's measures to the mean over layers and heads of a quantity."""

    def value(measured: Plain) -> float | None:
        numbers = [number for layer in measured[state]["layers"] for number in layer[quantity]]
        return math.fsum(numbers) / len(numbers) if numbers else None

    return value


def training_norm(measured: Plain) -> float | None:
    """The mean norm of the whole gradient in training."""
    return measured["gradient_norms"]["mean"]


COMPARED: Mapping[str, Value] = {
    "entropy share": layers_mean("trained", "entropy_share"),
    "saturated rows": layers_mean("trained", "saturated"),
    "‖∂L/∂q‖": layers_mean("trained", "query_gradient"),
    "gradient norm in training": training_norm,
}


def compared_pairs(arms: "Sequence[ArmResult]", measured: ByRun) -> list[Pair]:
    """Each arm that has a partner of the same shape and training under 1/√d_k, with the paired differences."""
    usual = [arm for arm in arms if scale_of(arm) == "sqrt"]
    found = [
        (arm, other)
        for arm in arms
        for other in usual
        if scale_of(arm) != "sqrt" and _without_scale(arm) == _without_scale(other)
    ]
    raw = [
        {name: paired(measured[arm.arm.name], measured[other.arm.name], value) for name, value in COMPARED.items()}
        for arm, other in found
    ]
    adjusted: list[dict[str, float | None]] = [dict.fromkeys(COMPARED) for _ in found]
    for name in COMPARED:
        p_values = {index: one.p_value for index, kept in enumerate(raw) if (one := kept[name]) is not None}
        tested = {index: p for index, p in p_values.items() if p is not None}
        for index, p in zip(tested, holm(list(tested.values())), strict=True):
            adjusted[index][name] = p
    return [Pair(*both, *numbers) for both, numbers in zip(found, zip(raw, adjusted, strict=True), strict=True)]


def scale_of(arm: "ArmResult") -> str:
    """The arm's scale by name or value; empty without attention."""
    attention = arm.config["model"]["attention"]
    return "" if attention == "none" else str(attention["scale"])


def d_k_of(arm: "ArmResult") -> int:
    """Components of a head."""
    return arm.config["model"]["d_model"] // arm.config["model"]["num_heads"]


def _without_scale(arm: "ArmResult") -> tuple[Plain, Plain]:
    model = dict(arm.config["model"])
    attention = model.pop("attention")
    rest = {} if attention == "none" else {key: value for key, value in attention.items() if key != "scale"}
    return model | {"attention": rest}, dict(arm.config["training"])


def paired(one: Mapping[int, Plain], other: Mapping[int, Plain], value: Value) -> PairedDifference | None:
    """The paired difference of a value of two arms' runs by seed; None where no seed has both."""
    both = [(value(one[seed]), value(other[seed])) for seed in sorted(one.keys() & other.keys())]
    whole = [(a, b) for a, b in both if a is not None and b is not None]
    return paired_difference([a for a, _ in whole], [b for _, b in whole]) if whole else None


def over_seeds(runs: Mapping[int, Plain], value: Value) -> list[float]:
    """A value of every run that has it, by rising seed."""
    return [number for number in (value(runs[seed]) for seed in sorted(runs)) if number is not None]


def mean_of(runs: Mapping[int, Plain], value: Value) -> float | None:
    """The mean of a value over the runs that have it; None where none has."""
    numbers = over_seeds(runs, value)
    return math.fsum(numbers) / len(numbers) if numbers else None


def fresh_finding(arms: "Sequence[ArmResult]", measured: ByRun) -> "Finding":
    """Whether scores of the first arm begin with the variance d_k that the theory of unit-variance q and k gives."""
    arm = arms[0]
    runs, d_k = measured[arm.arm.name], d_k_of(arm)
    variance, scaled, query, key, share, flat = (
        mean_of(runs, layers_mean("fresh", quantity)) or 0.0
        for quantity in (
            "score_variance",
            "scaled_variance",
            "query_square",
            "key_square",
            "saturated",
            "entropy_share",
        )
    )
    near = d_k / NEAR <= variance <= d_k * NEAR
    where = "near" if near else "below" if variance < d_k else "above"
    bare = [one for one in arms if scale_of(one) == "none" and _without_scale(one) == _without_scale(arm)]
    without = mean_of(measured[bare[0].arm.name], layers_mean("fresh", "saturated")) if bare else None
    text = (
        f"In fresh models ({arm.arm.title}) the scores have variance {variance:.3g}, {where} d_k = {d_k}: components "
        f"of q and k begin with mean squares {query:.3g} and {key:.3g}. Scaled, their variance is {scaled:.2g}; rows "
        f"keep {flat:.1%} of the entropy of uniform weights and {share:.1%} are saturated"
        + ("." if without is None else f", {without:.1%} without a scale.")
    )
    return Finding(NAME, arm.arm.name, text, holds=near)


def pair_finding(pair: Pair, measured: ByRun) -> "Finding":
    """Whether attention became sharper or flatter than under 1/√d_k."""

    def found(text: str, holds: bool | None = None) -> "Finding":
        title = f"{pair.arm.arm.title[:1].upper()}{pair.arm.arm.title[1:]} against {pair.usual.arm.title}, trained"
        return Finding(NAME, pair.arm.arm.name, f"{title}: {text}", holds)

    entropy = pair.differences["entropy share"]
    if entropy is None:
        return found("no seed finished in both.")
    between, p = entropy.difference, pair.adjusted["entropy share"]
    one, other = (measured[arm.arm.name] for arm in (pair.arm, pair.usual))

    def both(value: Value) -> list[float]:
        """Means of the two arms over the seeds they share."""
        shared = one.keys() & other.keys()
        return [mean_of({seed: runs[seed] for seed in shared}, value) or 0.0 for runs in (one, other)]

    kept, sharp, back = (both(COMPARED[name]) for name in ("entropy share", "saturated rows", "‖∂L/∂q‖"))
    size = (
        f"rows keep {kept[0]:.1%} of the entropy of uniform weights against {kept[1]:.1%}, {sharp[0]:.2%} are "
        f"saturated against {sharp[1]:.2%}, and ‖∂L/∂q‖ is {back[0]:.2g} against {back[1]:.2g}"
    )
    if p is None or between.low is None or between.high is None:
        return found(f"{size}; from one seed there is no interval, so no verdict.")
    ends = f"{signed(100 * between.low, 1)} to {signed(100 * between.high, 1)}"
    sure = f"entropy {signed(100 * between.mean, 1)} points, 95% interval {ends}, {p_clause(p)} after Holm's correction"
    if between.num < ENOUGH_SEEDS:
        return found(f"{size} ({sure}); from {between.num} seeds: too few for a verdict.")
    if p >= LEVEL:
        return found(f"no difference in entropy seen at this budget: {size} ({sure}).", holds=False)
    return found(f"{'sharper' if between.mean < 0 else 'flatter'}: {size} ({sure}).", holds=True)


def growth_findings(arms: "Sequence[ArmResult]", measured: ByRun) -> "list[Finding]":
    """Whether trained models without a scale saturate more as d_k grows, all else alike but the number of heads.

    One comparison, of the largest d_k with the least, paired over seeds; its interval chooses the verb.
    """
    without = sorted((arm for arm in arms if scale_of(arm) == "none" and _shape(arm) == _shape(arms[0])), key=d_k_of)
    if len(without) < 2:
        return []
    value = layers_mean("trained", "saturated")
    shares = [mean_of(measured[arm.arm.name], value) or 0.0 for arm in without]
    each = ", ".join(f"{share:.2%} at d_k {d_k_of(arm)}" for arm, share in zip(without, shares, strict=True))
    least, largest = d_k_of(without[0]), d_k_of(without[-1])
    change = paired(measured[without[-1].arm.name], measured[without[0].arm.name], value)

    def found(way: str, sure: str, holds: bool | None = None) -> "list[Finding]":
        return [Finding(NAME, "", f"Trained without a scale, {way}: {each}; {sure}.", holds)]

    between = None if change is None else change.difference
    if between is None:
        return found("shares of saturated rows", "no seed has both ends, so no verdict")
    if between.low is None or between.high is None:
        return found("shares of saturated rows", "one seed, so no verdict")
    ends = f"{signed(100 * between.low, 2)} to {signed(100 * between.high, 2)} points"
    sure = f"a change of {signed(100 * between.mean, 2)} points, 95% interval {ends}"
    if between.num < ENOUGH_SEEDS:
        return found("shares of saturated rows", f"{sure}, from {between.num} seeds: too few for a verdict")
    if between.low <= 0 <= between.high:
        way = f"no difference in the share of saturated rows seen from d_k {least} to {largest} at this budget"
        return found(way, sure, holds=False)
    way = "grows" if between.low > 0 else "shrinks"
    return found(f"the share of saturated rows {way} from d_k {least} to {largest}", sure, holds=between.low > 0)


def learned_findings(arms: "Sequence[ArmResult]", measured: ByRun) -> "list[Finding]":
    """Where learned scales ended, in units of 1/√d_k, where they began; p after Holm's correction over the arms."""
    found: list[Finding] = []
    value = layers_mean("trained", "factors")
    learned = [(arm, means) for arm in arms if (means := over_seeds(measured[arm.arm.name], value))]
    raw = [paired_difference(means, [1.0] * len(means)).p_value for _, means in learned]
    adjusted = iter(holm([p for p in raw if p is not None]))
    for arm, means in learned:
        runs = measured[arm.arm.name]
        factors = [factor for run in runs.values() for layer in run["trained"]["layers"] for factor in layer["factors"]]
        interval = mean_interval(means)
        text = (
            f"{arm.arm.title[:1].upper()}{arm.arm.title[1:]}: the scales began at 1/√d_k and ended between "
            f"{min(factors):.2f} and {max(factors):.2f} times that, mean {interval.mean:.2f}"
        )
        if interval.low is None or interval.high is None:
            found.append(Finding(NAME, arm.arm.name, f"{text}; one seed, so no interval."))
            continue
        p = next(adjusted)
        ends = f"95% interval over seeds {interval.low:.2f} to {interval.high:.2f}"
        sure = f"{ends}, {p_clause(p)} after Holm's correction"
        if interval.num < ENOUGH_SEEDS:
            few = f"{text} ({sure}); from {interval.num} seeds: too few for a verdict."
            found.append(Finding(NAME, arm.arm.name, few))
            continue
        away = p < LEVEL
        where = ("above" if interval.mean > 1 else "below") if away else "not seen to differ from"
        found.append(Finding(NAME, arm.arm.name, f"{text} ({sure}): {where} where they began.", holds=away))
    return found


def _shape(arm: "ArmResult") -> Plain:
    """All of an arm's configuration but the scale and the number of heads."""
    model, training = _without_scale(arm)
    return {"model": {key: value for key, value in model.items() if key != "num_heads"}, "training": training}

"""How much text a run saw, how far it learned that text rather than the language, and how much of the test it had met.

Three numbers for each run: the loss on text it was trained on beside the one on the test part, the amount of text, and
the share of the test part's words that stand somewhere in the training part. The text trained on is the same for all
amounts, since a smaller share lies in every larger one: a difference between them is not one between texts.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from statistics import fmean
from typing import Any

import numpy as np

from vitral.core.errors import UsageError
from vitral.data import Dataset, Split, prepare
from vitral.data.batches import thinned
from vitral.evaluation import evaluate_split
from vitral.figures.intervals import Row, interval_dots
from vitral.figures.lines import Axis, Line, line_plot
from vitral.figures.sections import Heading, Paragraph, Section, Table
from vitral.studies.probes.protocol import BudgetName, ByRun, Exhibit, Plain, Plot, RunProbe, Trained
from vitral.studies.results import ArmResult, StudyResult
from vitral.studies.scaling import Fit, fit_law
from vitral.studies.statistics import Interval, holm, mean_interval, paired_difference
from vitral.studies.verdict import ENOUGH_SEEDS, LEVEL, TRIGRAM, Finding, unlearned
from vitral.studies.wording import big, capital, interval_text, nats, p_clause, signed, word_of

NAME = "amounts"
_WORD = re.compile(r"\w[\w’']*")
COMMON = 1 / 32
"""The share of the text that every larger share holds, and on which all of them are measured."""
_OF_THE_TEXT = ("share", "passages", "also")
_MEASURED: dict[BudgetName, int] = {"quick": 150_000, "standard": 300_000, "full": 1_000_000}


def measure(trained: Trained) -> Plain:
    """What the run was trained on and what it made of it.

    Returns:
        "tokens", "characters" and "bytes" of the training part; "passes" over it; "train_loss" in nats per token,
        without dropout, on text of it, see `_trained_on`; "words_seen", of the words of the test part (each occurrence
        counted) the share that occurs in the training part.
    """
    dataset, training = trained.dataset, trained.run.config["training"]
    train = dataset.splits["train"]
    per_step = training["batch_size"] * training["accumulation"] * trained.run.config["model"]["context_length"]
    known = thinned(_trained_on(dataset), _MEASURED[trained.budget])
    return {
        "tokens": len(train.tokens),
        **_contents(dataset),
        "passes": training["steps"] * per_step / len(train.tokens),
        "train_loss": evaluate_split(trained.run.model, known, dataset.tokenizer).loss,
    }


def _trained_on(dataset: Dataset) -> Split:
    """Text the run was trained on: of any share the common one, of passages all."""
    if not _holds_the_common(dataset.config.plain()):
        return dataset.splits["train"]
    common = dataset.config.model_copy(update={"share": COMMON, "also": None})
    return prepare(common, tokenizer=dataset.tokenizer).splits["train"]


def _holds_the_common(corpus: Mapping[str, Any]) -> bool:
    """Whether a text holds the thirty-second that is common to all."""
    return not corpus.get("passages") and (corpus.get("share") or 1.0) >= COMMON


@lru_cache(maxsize=2)
def _contents(dataset: Dataset) -> dict[str, int | float]:
    """Characters, bytes and words of a text's training part; the same for all runs on it."""
    text, test = (dataset.tokenizer.decode(dataset.splits[part].tokens) for part in ("train", "test"))
    known, asked = set(_WORD.findall(text)), _WORD.findall(test)
    seen = sum(word in known for word in asked)
    return {"characters": len(text), "bytes": len(text.encode()), "words_seen": seen / max(1, len(asked))}


def show(result: StudyResult, measured: ByRun) -> Exhibit:
    """Table, loss against amount with its law, variety at equal amount, and what follows."""
    arms = [arm for arm in (_measured(arm, measured) for arm in result.arms) if arm.losses]
    if not arms:
        return Exhibit()
    found, base = {arm.arm.name: measured[arm.arm.name] for arm in arms}, result.arms[0].config
    shares = sorted(
        (arm for arm in arms if _differs_in(arm, base, ("share",))), key=lambda arm: _one(found, arm)["tokens"]
    )
    varied = [arm for arm in arms if arm not in shares and _differs_in(arm, base, _OF_THE_TEXT)]
    law, unit = _law(shares, found), result.study.unit
    sections: list[Section | Plot] = [
        Heading("Amount and variety of the text"),
        Paragraph(_how(arms)),
        _table(arms, found, unit),
    ]
    if len(shares) > 1:
        sections.append(_amount_plot(shares, found, law, unit))
    if varied:
        sections.append(_variety_plot(result, arms, varied))
    findings: list[Finding] = []
    if len(shares) > 1:
        findings += [*_overfitting(shares, found), _enough(shares, unit), _law_found(law)]
    return Exhibit(tuple(sections), (*findings, *_variety(result, _pairs(result, arms, shares, varied), found)))


def _measured(arm: ArmResult, measured: ByRun) -> ArmResult:
    """The arm with those of its runs that were measured."""
    seeds = measured.get(arm.arm.name, {})
    return replace(arm, runs=tuple(run for run in arm.runs if run.seed in seeds))


def _differs_in(arm: ArmResult, base: Mapping[str, Any], keys: Sequence[str]) -> bool:
    """Whether the arm's configuration is the base's but for these keys of the corpus."""
    one, other = (
        {**config, "corpus": {key: value for key, value in config["corpus"].items() if key not in keys}}
        for config in (arm.config, base)
    )
    return one == other


def _how(arms: Sequence[ArmResult]) -> str:
    """What the loss on known text is of; which arms hold no common text follows from their configurations."""
    own = [arm.arm.title for arm in arms if not _holds_the_common(arm.config["corpus"])]
    apart = f"; for {', '.join(own)} it is {'its' if len(own) == 1 else 'their'} own" if own else ""
    return (
        "Loss on known text: the same model, without dropout, on text it was trained on; that is the same "
        f"thirty-second of the text wherever an arm holds it{apart}. Where a smaller amount brings it further below "
        "the test loss, the model has learned more of its text that does not hold elsewhere. Texts differ in "
        "difficulty, so only differences on the same known text mean anything. Words seen: of the test part's words "
        "the share that occurs in the training part at all."
    )


def _one(found: ByRun, arm: ArmResult) -> Plain:
    """What does not depend on the seed."""
    return next(iter(found[arm.arm.name].values()))


def _known(found: ByRun, arm: ArmResult) -> dict[int, float]:
    """Loss on known text by seed, in the study's unit."""
    return {seed: found[arm.arm.name][seed]["train_loss"] * arm.factor for seed in arm.losses}


def _gaps(found: ByRun, arm: ArmResult) -> dict[int, float]:
    """Test loss minus the loss on known text, by seed."""
    known = _known(found, arm)
    return {seed: loss - known[seed] for seed, loss in arm.losses.items()}


def _table(arms: Sequence[ArmResult], found: ByRun, unit: str) -> Table:
    rows = []
    for arm in arms:
        one, gap = _one(found, arm), mean_interval(list(_gaps(found, arm).values()))
        rows.append(
            (
                arm.arm.title,
                f"{one['bytes']:,}",
                f"{one['passes']:.2f}",
                f"{100 * one['words_seen']:.1f}%",
                nats(fmean(_known(found, arm).values())),
                nats(fmean(arm.losses.values())),
                f"{signed(gap.mean)} ({interval_text(gap)})".replace("-", "\N{MINUS SIGN}"),
            )
        )
    columns = ("text", "bytes", "passes", "words seen", "loss on known text", "test loss", "test above known")
    return Table(f"Losses in {unit}, means over seeds; 95% intervals over seeds.", columns, tuple(rows))


def _law(shares: Sequence[ArmResult], found: ByRun) -> Fit | None:
    """L(D) = E + (D_c/D)^α over all runs of the shares, if there are runs enough."""
    runs = [(float(_one(found, arm)["tokens"]), loss) for arm in shares for loss in arm.losses.values()]
    try:
        return fit_law({"D": [amount for amount, _ in runs]}, [loss for _, loss in runs])
    except UsageError:
        return None


def _amount_plot(shares: Sequence[ArmResult], found: ByRun, law: Fit | None, unit: str) -> Plot:
    amounts = [float(_one(found, arm)["tokens"]) for arm in shares]
    lines = [_line("test part", amounts, [list(arm.losses.values()) for arm in shares])]
    common = [arm for arm in shares if _holds_the_common(arm.config["corpus"])]
    if common:
        own = [list(_known(found, arm).values()) for arm in common]
        lines.append(_line("known text", [float(_one(found, arm)["tokens"]) for arm in common], own))
    if law is not None and law.exponent("D").determined:
        places = np.geomspace(amounts[0], amounts[-1], 40).tolist()
        lines.append(Line("fitted L(D)", places, [law.loss({"D": place}) for place in places], theory=True))
    figure = line_plot(
        lines, Axis("text trained on (tokens)", log=True), Axis(f"loss ({unit})"), title="More text, the same steps"
    )
    known = ", and on the thirty-second of the text that these amounts hold," if common else ""
    caption = f"Loss on the test part{known} against the amount; band: range over seeds."
    told = "; ".join(f"{arm.arm.title} {nats(fmean(arm.losses.values()))}" for arm in shares)
    return Plot(figure, "data-amount", caption, f"Test loss: {told}.")


def _line(label: str, places: Sequence[float], values: Sequence[Sequence[float]]) -> Line:
    """Means with their range over seeds."""
    means = [fmean(each) for each in values]
    return Line(label, places, means, low=[min(each) for each in values], high=[max(each) for each in values])


def _variety_plot(result: StudyResult, arms: Sequence[ArmResult], varied: Sequence[ArmResult]) -> Plot:
    """The arms that differ in more than amount, each with the arm it is held against."""
    names = {arm.arm.name for arm in varied} | {arm.arm.against or result.arms[0].arm.name for arm in varied}
    rows, told = [], []
    for arm in (arm for arm in arms if arm.arm.name in names):
        mean = mean_interval(list(arm.losses.values()))
        rows.append(Row(arm.arm.title, list(arm.losses.values()), mean.mean, mean.low, mean.high))
        told.append(f"{arm.arm.title} {nats(mean.mean)}")
    figure = interval_dots(rows, title="What the text is made of", x_label=f"test loss ({result.study.unit})")
    caption = "Test loss by what the text is made of: seeds, means and 95% intervals. The table names the amounts."
    return Plot(figure, "data-variety", caption, f"Test loss: {'; '.join(told)}.")


def _pairs(
    result: StudyResult, arms: Sequence[ArmResult], shares: Sequence[ArmResult], varied: Sequence[ArmResult]
) -> list[tuple[ArmResult, ArmResult]]:
    """What is compared for variety, each pair once.

    A further text is held against the same own text without it too: what it adds, and not only what it replaces.
    """
    by_name = {arm.arm.name: arm for arm in arms}
    pairs = [(arm, by_name.get(arm.arm.against or result.arms[0].arm.name)) for arm in varied]
    pairs += [(arm, _without(arm, shares)) for arm in varied if arm.config["corpus"].get("also")]
    kept: dict[tuple[str, str], tuple[ArmResult, ArmResult]] = {}
    for arm, rival in pairs:
        if rival is not None:
            kept[arm.arm.name, rival.arm.name] = arm, rival
    return list(kept.values())


def _without(arm: ArmResult, shares: Sequence[ArmResult]) -> ArmResult | None:
    """The arm with as much of the own text and no other, if no passages were cut from it."""
    corpus = arm.config["corpus"]
    same = [share for share in shares if share.config["corpus"].get("share") == corpus.get("share")]
    return next((share for share in same if share.config["corpus"].get("passages") == corpus.get("passages")), None)


def _overfitting(shares: Sequence[ArmResult], found: ByRun) -> list[Finding]:
    """Whether the least text leaves a larger gap between test and known text than the most; the known text is one."""
    common = [arm for arm in shares if _holds_the_common(arm.config["corpus"])]
    if len(common) < 2:
        return []
    least, most = common[0], common[-1]
    small, large = _gaps(found, least), _gaps(found, most)
    seeds = [seed for seed in small if seed in large]
    sizes = (
        f"the test loss lies {signed(fmean(small.values()))} from the one on known text with {least.arm.title} "
        f"({_one(found, least)['passes']:.1f} passes) and {signed(fmean(large.values()))} with {most.arm.title} "
        f"({_one(found, most)['passes']:.2f} passes)"
    )
    if len(seeds) < ENOUGH_SEEDS:
        return [_finding(least, f"Learning the text by heart: {sizes}; from {len(seeds)} seeds there is no verdict.")]
    between = mean_interval([small[seed] - large[seed] for seed in seeds])
    side = _side(between)
    ends = f"difference {signed(between.mean)}, 95% interval {interval_text(between)}".replace("-", "\N{MINUS SIGN}")
    if side is None:
        text = "That little text is learned by heart is not seen at this budget"
    else:
        text = f"From little text the model learns {'more' if side > 0 else 'less'} of what is peculiar to it"
    return [_finding(least, f"{text}: {sizes} ({ends}).", None if side is None else side > 0)]


def _enough(shares: Sequence[ArmResult], unit: str) -> Finding:
    """From which amount on no further text is seen to help: paired differences with all of it, Holm over amounts."""
    most, less = shares[-1], list(shares[:-1])
    tested, p_values = [], []
    for arm in less:
        seeds = [seed for seed in most.losses if seed in arm.losses]
        if len(seeds) >= ENOUGH_SEEDS:
            paired = paired_difference([arm.losses[seed] for seed in seeds], [most.losses[seed] for seed in seeds])
            tested.append((arm, paired))
            p_values.append(1.0 if paired.p_value is None else paired.p_value)
    if not tested:
        return _finding(None, f"With fewer than {ENOUGH_SEEDS} seeds no amount can be said to be enough.")
    adjusted = [(arm, paired, p) for (arm, paired), p in zip(tested, holm(p_values), strict=True)]
    worse = [(arm, paired) for arm, paired, p in adjusted if p < LEVEL and paired.difference.mean > 0]
    if not worse:
        return _finding(None, f"No amount is seen to be too little: none is worse than {most.arm.title}.", False)
    told = "; ".join(f"{arm.arm.title} {signed(paired.difference.mean)}" for arm, paired in worse)
    rest = [arm.arm.title for arm, _, p in adjusted if p >= LEVEL]
    also = f" No difference is seen at this budget with {', '.join(rest)}." if rest else ""
    return _finding(None, f"Less text is worse than {most.arm.title}, in {word_of(unit)}: {told}.{also}", True)


def _law_found(law: Fit | None) -> Finding:
    """The exponent of the amount, where it is determined."""
    if law is None:
        return _finding(None, "L(D) = E + (D_c/D)^α has too few runs to be fitted.")
    exponent = law.exponent("D")
    if not exponent.determined:
        return _finding(
            None,
            "L(D) = E + (D_c/D)^α is not determined by these runs: the interval of α reaches further than half of it.",
        )
    size = f"α = {exponent.value:.2f}, 95% interval {exponent.low:.2f} to {exponent.high:.2f}"
    floor = law.irreducible
    above = "no floor above zero" if floor is None else f"E = {nats(floor.value)} at these steps"
    return _finding(None, f"L(D) = E + (D_c/D)^α fits with {size}, {above}.", True)


def _variety(result: StudyResult, pairs: Sequence[tuple[ArmResult, ArmResult]], found: ByRun) -> list[Finding]:
    """Each kind of text against its rival, seed by seed, Holm over them."""
    made = []
    for arm, rival in pairs:
        seeds = [seed for seed in rival.losses if seed in arm.losses]
        if seeds:
            paired = paired_difference([arm.losses[seed] for seed in seeds], [rival.losses[seed] for seed in seeds])
            made.append((arm, rival, paired))
    tested = holm([paired.p_value for *_, paired in made if paired.p_value is not None])
    adjusted = iter(tested)
    findings = []
    for arm, rival, paired in made:
        p = None if paired.p_value is None else next(adjusted)
        findings.append(_told(result, (arm, rival), found, (paired.difference, p)))
    return findings


def _told(
    result: StudyResult, arms: tuple[ArmResult, ArmResult], found: ByRun, seen: tuple[Interval, float | None]
) -> Finding:
    """What is said of an arm against its rival, from their difference and its p value."""
    (arm, rival), (between, p) = arms, seen
    one, other = _one(found, arm), _one(found, rival)
    text = (
        f"{capital(arm.arm.title)} ({big(one['bytes'])} bytes, {100 * one['words_seen']:.1f}% of the test's words "
        f"seen) against {rival.arm.title} ({big(other['bytes'])}, {100 * other['words_seen']:.1f}%): "
        f"{signed(between.mean)} {word_of(result.study.unit)}"
    )
    behind = unlearned(result, (rival, arm))
    if between.num < ENOUGH_SEEDS or p is None:
        return _finding(arm, f"{text}, from {between.num} seeds: too few for a verdict.")
    text = f"{text}, 95% interval {interval_text(between)}, {p_clause(p)} after Holm's correction"
    if behind:
        line = nats(result.line(TRIGRAM))
        return _finding(arm, f"{text}: no verdict, since {behind} has not passed the trigram line ({line}).")
    if p >= LEVEL:
        return _finding(arm, f"{text}: no difference seen at this budget.", False)
    return _finding(arm, f"{text}: {'worse' if between.mean > 0 else 'better'}.", True)


def _side(interval: Interval) -> int | None:
    if interval.low is None or interval.high is None or interval.low <= 0 <= interval.high:
        return None
    return 1 if interval.low > 0 else -1


def _finding(arm: ArmResult | None, text: str, holds: bool | None = None) -> Finding:
    return Finding(NAME, "" if arm is None else arm.arm.name, text.replace("-0.", "\N{MINUS SIGN}0."), holds)


AMOUNTS = RunProbe(NAME, measure, show, seconds={"quick": 4, "standard": 8, "full": 20})

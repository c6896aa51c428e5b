"""How much text a run saw, how far it learned that text rather than the language, and how much of the test it had met.

Three numbers for each run: the loss on text it was trained on beside the one on the test part, the amount of text, and
the share of the test part's words that stand somewhere in the training part. The text trained on is the same for all
amounts, since a smaller share lies in every larger one: a difference between them is not one between texts.
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from statistics import fmean
from typing import TYPE_CHECKING

import numpy as np

from vitral.core.errors import UsageError
from vitral.data import Dataset, Part, prepare
from vitral.data.store import thinned
from vitral.evaluation import evaluate_part
from vitral.figures.intervals import Row, interval_dots
from vitral.figures.lines import Axis, Line, line_plot
from vitral.figures.sections import Heading, Paragraph, Section, Table
from vitral.studies.probes.protocol import BudgetName, ByRun, Exhibit, Plain, Plot, RunProbe, Trained
from vitral.studies.results import ArmResult, StudyResult
from vitral.studies.scaling import Fit, fit_law
from vitral.studies.statistics import Interval, holm, mean_interval, paired_difference
from vitral.studies.wording import big, interval_text, nats, p_clause, signed

if TYPE_CHECKING:
    from vitral.studies.verdict import Finding

NAME = "amounts"
LEAST_SEEDS = 3
LEVEL = 0.05
_WORD = re.compile(r"\w[\w’']*")
COMMON = 1 / 32
"""The share of the text that every larger share holds, and on which all of them are measured."""
_MEASURED: dict[BudgetName, int] = {"quick": 150_000, "standard": 300_000, "full": 1_000_000}


def measure(trained: Trained) -> Plain:
    """What the run was trained on and what it made of it.

    Returns:
        "tokens", "characters" and "bytes" of the training part; "passes" over it; "train_loss" in nats per token,
        without dropout, on text of it, see `_trained_on`; "words_seen", of the words of the test part (each occurrence
        counted) the share that occurs in the training part.
    """
    dataset, training = trained.dataset, trained.run.config["training"]
    train = dataset.parts["train"]
    per_step = training["batch_size"] * training["accumulation"] * trained.run.config["model"]["context_length"]
    known = thinned(_trained_on(dataset), _MEASURED[trained.budget])
    return {
        "tokens": len(train.tokens),
        **_contents(dataset),
        "passes": training["steps"] * per_step / len(train.tokens),
        "train_loss": evaluate_part(trained.run.model, known, dataset.tokenizer).loss,
    }


def _trained_on(dataset: Dataset) -> Part:
    """Text the run was trained on: of any share the common one, of passages all."""
    config = dataset.config
    if config.passages or (config.share or 1.0) < COMMON:
        return dataset.parts["train"]
    common = config.model_copy(update={"share": COMMON, "also": None})
    return prepare(common, tokenizer=dataset.tokenizer).parts["train"]


@lru_cache(maxsize=2)
def _contents(dataset: Dataset) -> dict[str, int | float]:
    """Characters, bytes and words of a text's training part; the same for all runs on it."""
    text, test = (dataset.tokenizer.decode(dataset.parts[part].tokens) for part in ("train", "test"))
    known, asked = set(_WORD.findall(text)), _WORD.findall(test)
    seen = sum(word in known for word in asked)
    return {"characters": len(text), "bytes": len(text.encode()), "words_seen": seen / max(1, len(asked))}


def show(result: StudyResult, measured: ByRun) -> Exhibit:
    """Table, loss against amount with its law, variety at equal amount, and what follows."""
    arms = [arm for arm in result.arms if arm.losses and set(arm.losses) <= set(measured.get(arm.arm.name, ()))]
    if not arms:
        return Exhibit()
    found = {arm.arm.name: measured[arm.arm.name] for arm in arms}
    shares = sorted((arm for arm in arms if _is_share(arm)), key=lambda arm: _one(found, arm)["tokens"])
    varied = [arm for arm in arms if not _is_share(arm)]
    law = _law(shares, found)
    how = (
        "Loss on known text: the same model, without dropout, on text it was trained on; for every amount that is the "
        "same thirty-second of the text, which all of them hold, and for one play and one genre their own. Where a "
        "smaller amount brings it further below the test loss, the model has learned more of its text that does not "
        "hold elsewhere. Texts differ in difficulty, so only differences between amounts mean anything. Words seen: of "
        "the test part's words the share that occurs in the training part at all."
    )
    sections: list[Section | Plot] = [Heading("Amount and variety of the text"), Paragraph(how), _table(arms, found)]
    if len(shares) > 1:
        sections.append(_amount_plot(shares, found, law))
    if varied:
        sections.append(_variety_plot(result, arms))
    return Exhibit(tuple(sections), tuple(_findings(result, arms, shares, found, law)))


def _is_share(arm: ArmResult) -> bool:
    """Whether the arm differs from all of the text in its amount alone."""
    corpus = arm.config["corpus"]
    return not corpus.get("passages") and not corpus.get("also")


def _one(found: ByRun, arm: ArmResult) -> Plain:
    """What does not depend on the seed."""
    return next(iter(found[arm.arm.name].values()))


def _gaps(found: ByRun, arm: ArmResult) -> dict[int, float]:
    """Test loss minus the loss on known text, by seed."""
    return {seed: loss - found[arm.arm.name][seed]["train_loss"] for seed, loss in arm.losses.items()}


def _table(arms: Sequence[ArmResult], found: ByRun) -> Table:
    rows = []
    for arm in arms:
        one, gap = _one(found, arm), mean_interval(list(_gaps(found, arm).values()))
        rows.append(
            (
                arm.arm.title,
                f"{one['bytes']:,}",
                f"{one['passes']:.2f}",
                f"{100 * one['words_seen']:.1f}%",
                nats(fmean(found[arm.arm.name][seed]["train_loss"] for seed in arm.losses)),
                nats(fmean(arm.losses.values())),
                f"{signed(gap.mean)} ({interval_text(gap)})".replace("-", "\N{MINUS SIGN}"),
            )
        )
    columns = ("text", "bytes", "passes", "words seen", "loss on known text", "test loss", "test above known")
    return Table("Losses in nats per token, means over seeds; 95% intervals over seeds.", columns, tuple(rows))


def _law(shares: Sequence[ArmResult], found: ByRun) -> Fit | None:
    """L(D) = E + (D_c/D)^α over all runs of the shares, if there are runs enough."""
    runs = [(float(_one(found, arm)["tokens"]), loss) for arm in shares for loss in arm.losses.values()]
    try:
        return fit_law({"D": [amount for amount, _ in runs]}, [loss for _, loss in runs])
    except UsageError:
        return None


def _amount_plot(shares: Sequence[ArmResult], found: ByRun, law: Fit | None) -> Plot:
    amounts = [float(_one(found, arm)["tokens"]) for arm in shares]
    test = [list(arm.losses.values()) for arm in shares]
    own = [[found[arm.arm.name][seed]["train_loss"] for seed in arm.losses] for arm in shares]
    lines = [_line("test part", amounts, test), _line("known text", amounts, own)]
    if law is not None and law.exponent("D").determined:
        places = np.geomspace(amounts[0], amounts[-1], 40).tolist()
        lines.append(Line("fitted L(D)", places, [law.loss({"D": place}) for place in places], theory=True))
    figure = line_plot(
        lines,
        Axis("text trained on (tokens)", log=True),
        Axis("loss (nats per token)"),
        title="More text, the same steps",
    )
    caption = (
        "Loss on the test part, and on a thirty-second of the text that all amounts hold, against the amount; band: "
        "range over seeds."
    )
    told = "; ".join(f"{arm.arm.title} {nats(fmean(arm.losses.values()))}" for arm in shares)
    return Plot(figure, "data-amount", caption, f"Test loss: {told}.")


def _line(label: str, places: Sequence[float], values: Sequence[Sequence[float]]) -> Line:
    """Means with their range over seeds."""
    means = [fmean(each) for each in values]
    return Line(label, places, means, low=[min(each) for each in values], high=[max(each) for each in values])


def _variety_plot(result: StudyResult, arms: Sequence[ArmResult]) -> Plot:
    """The arms that differ in more than amount, each with the arm it is held against."""
    names = {arm.arm.name for arm in arms if not _is_share(arm)}
    names |= {arm.arm.against or result.arms[0].arm.name for arm in arms if not _is_share(arm)}
    rows, told = [], []
    for arm in (arm for arm in arms if arm.arm.name in names):
        mean = mean_interval(list(arm.losses.values()))
        rows.append(Row(arm.arm.title, list(arm.losses.values()), mean.mean, mean.low, mean.high))
        told.append(f"{arm.arm.title} {nats(mean.mean)}")
    figure = interval_dots(rows, title="What the text is made of", x_label="test loss (nats per token)")
    caption = "Test loss by what the text is made of: seeds, means and 95% intervals. The table names the amounts."
    return Plot(figure, "data-variety", caption, f"Test loss: {'; '.join(told)}.")


def _findings(
    result: StudyResult, arms: Sequence[ArmResult], shares: Sequence[ArmResult], found: ByRun, law: Fit | None
) -> "list[Finding]":
    findings = []
    if len(shares) > 1:
        findings += [_overfitting(shares, found), _enough(shares)]
        findings.append(_law_found(law))
    by_name = {arm.arm.name: arm for arm in arms}
    rivals = [(arm, by_name.get(arm.arm.against or result.arms[0].arm.name)) for arm in arms if not _is_share(arm)]
    # A further text is held against the same own text without it too: what it adds, and not only what it replaces.
    rivals += [(arm, _without(arm, shares)) for arm in arms if arm.config["corpus"].get("also")]
    return findings + _variety([(arm, rival) for arm, rival in rivals if rival is not None], found)


def _without(arm: ArmResult, shares: Sequence[ArmResult]) -> ArmResult | None:
    share = arm.config["corpus"].get("share")
    return next((other for other in shares if other.config["corpus"].get("share") == share), None)


def _overfitting(shares: Sequence[ArmResult], found: ByRun) -> "Finding":
    """Whether the least text leaves a larger gap between test and known text than the most."""
    least, most = shares[0], shares[-1]
    small, large = _gaps(found, least), _gaps(found, most)
    common = [seed for seed in small if seed in large]
    sizes = (
        f"the test loss lies {signed(fmean(small.values()))} from the one on known text with {least.arm.title} "
        f"({_one(found, least)['passes']:.1f} passes) and {signed(fmean(large.values()))} with {most.arm.title} "
        f"({_one(found, most)['passes']:.2f} passes)"
    )
    if len(common) < LEAST_SEEDS:
        return _finding(least, f"Learning the text by heart: {sizes}; from {len(common)} seeds there is no verdict.")
    between = mean_interval([small[seed] - large[seed] for seed in common])
    side = _side(between)
    ends = f"difference {signed(between.mean)}, 95% interval {interval_text(between)}".replace("-", "\N{MINUS SIGN}")
    if side is None:
        text = "That little text is learned by heart is not seen at this budget"
    else:
        text = f"From little text the model learns {'more' if side > 0 else 'less'} of what is peculiar to it"
    return _finding(least, f"{text}: {sizes} ({ends}).", None if side is None else side > 0)


def _enough(shares: Sequence[ArmResult]) -> "Finding":
    """From which amount on no further text is seen to help: paired differences with all of it, Holm over amounts."""
    most, less = shares[-1], list(shares[:-1])
    tested, p_values = [], []
    for arm in less:
        seeds = [seed for seed in most.losses if seed in arm.losses]
        if len(seeds) >= LEAST_SEEDS:
            paired = paired_difference([arm.losses[seed] for seed in seeds], [most.losses[seed] for seed in seeds])
            tested.append((arm, paired))
            p_values.append(1.0 if paired.p_value is None else paired.p_value)
    if not tested:
        return _finding(None, f"With fewer than {LEAST_SEEDS} seeds no amount can be said to be enough.")
    worse = [
        (arm, paired)
        for (arm, paired), p in zip(tested, holm(p_values), strict=True)
        if p < LEVEL and paired.difference.mean > 0
    ]
    if not worse:
        return _finding(None, f"No amount is seen to be too little: none is worse than {most.arm.title}.", False)
    told = "; ".join(f"{arm.arm.title} {signed(paired.difference.mean)}" for arm, paired in worse)
    rest = [arm.arm.title for arm, _ in tested if arm not in [other for other, _ in worse]]
    also = f" No difference is seen at this budget with {', '.join(rest)}." if rest else ""
    return _finding(None, f"Less text is worse than {most.arm.title}, in nats per token: {told}.{also}", True)


def _law_found(law: Fit | None) -> "Finding":
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


def _variety(pairs: Sequence[tuple[ArmResult, ArmResult]], found: ByRun) -> "list[Finding]":
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
        findings.append(_told(arm, rival, found, paired.difference, p))
    return findings


def _told(arm: ArmResult, rival: ArmResult, found: ByRun, between: Interval, p: float | None) -> "Finding":
    one, other = _one(found, arm), _one(found, rival)
    text = (
        f"{_capital(arm.arm.title)} ({big(one['bytes'])} bytes, {100 * one['words_seen']:.1f}% of the test's words "
        f"seen) against {rival.arm.title} ({big(other['bytes'])}, {100 * other['words_seen']:.1f}%): "
        f"{signed(between.mean)} nats per token"
    )
    if between.num < LEAST_SEEDS or p is None:
        return _finding(arm, f"{text}, from {between.num} seeds: too few for a verdict.")
    text = f"{text}, 95% interval {interval_text(between)}, {p_clause(p)} after Holm's correction"
    if p >= LEVEL:
        return _finding(arm, f"{text}: no difference seen at this budget.", False)
    return _finding(arm, f"{text}: {'worse' if between.mean > 0 else 'better'}.", True)


def _side(interval: Interval) -> int | None:
    if interval.low is None or interval.high is None or interval.low <= 0 <= interval.high:
        return None
    return 1 if interval.low > 0 else -1


def _capital(title: str) -> str:
    return title[:1].upper() + title[1:]


def _finding(arm: ArmResult | None, text: str, holds: bool | None = None) -> "Finding":
    from vitral.studies.verdict import Finding

    return Finding(NAME, "" if arm is None else arm.arm.name, text.replace("-0.", "\N{MINUS SIGN}0."), holds)


AMOUNTS = RunProbe(NAME, measure, show)

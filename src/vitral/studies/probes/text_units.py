"""What a token is worth: characters, reach of the window, share of the model that knows tokens, how often each is seen.

Only the loss itself needs training; everything here follows from the text, the tokenizer and the configuration.
"""

from collections.abc import Sequence
from statistics import fmean

import numpy as np

from vitral.data import Dataset, Split, Tokenizer
from vitral.figures.lines import Axis, Line, line_plot
from vitral.figures.sections import Heading, Paragraph, Section, Table
from vitral.model import ModelConfig
from vitral.model.counts import parameter_table
from vitral.studies.probes.protocol import ByRun, Exhibit, Plain, Plot, RunProbe, Trained
from vitral.studies.results import ArmResult, StudyResult
from vitral.studies.statistics import Interval, holm, mean_interval, paired_difference
from vitral.studies.verdict import ENOUGH_SEEDS, LEVEL, Finding
from vitral.studies.wording import MINUS, big, interval_text, p_clause, signed, word_of

NAME = "text-units"
EQUAL_COMPUTE = 0.02
"""Arms whose training takes within this share of the base's operations are fair rivals."""
FAIR_UNIT = "bits per character"
"""The unit in which losses of different tokens can be compared."""


def characters_per_token(part: Split, tokenizer: Tokenizer) -> float:
    """Characters of a part over its tokens; of bytes, those that begin a character count."""
    counts = np.bincount(part.tokens, minlength=tokenizer.vocab_size)
    begun = [sum(byte & 0xC0 != 0x80 for byte in tokenizer.token_bytes(token)) for token in range(len(counts))]
    return int(counts @ np.array(begun, dtype=np.int64)) / len(part.tokens)


def measure(trained: Trained) -> Plain:
    """What the arm's tokens are, and what its training made of them.

    Returns:
        "vocab_size"; "characters_per_token" on the test part; "context_characters", the window's length times that;
        "token_share", of all parameters those of token table and head; "tokens" and "characters" trained on; "passes"
        over the training part; "median_seen", how often the median token of the vocabulary was a target.
    """
    dataset, config = trained.dataset, trained.run.config
    model, training = ModelConfig.parse(config["model"]), config["training"]
    tokens = training["steps"] * training["batch_size"] * training["accumulation"] * model.context_length
    rows = parameter_table(model, dataset.tokenizer.vocab_size)
    known = sum(row.count for row in rows if row.part == "head" or row.name.startswith("token_embedding"))
    train, per_token = dataset.splits["train"], characters_per_token(dataset.splits["test"], dataset.tokenizer)
    return {
        "vocab_size": dataset.tokenizer.vocab_size,
        "characters_per_token": per_token,
        "context_characters": model.context_length * per_token,
        "token_share": known / sum(row.count for row in rows),
        "tokens": tokens,
        "characters": tokens * characters_per_token(train, dataset.tokenizer),
        "passes": tokens / len(train.tokens),
        "median_seen": _median_count(dataset) * tokens / len(train.tokens),
    }


def _median_count(dataset: Dataset) -> float:
    counts = np.bincount(dataset.splits["train"].tokens, minlength=dataset.tokenizer.vocab_size)
    return float(np.median(counts))


def show(result: StudyResult, measured: ByRun) -> Exhibit:
    """A table of what the tokens are, the loss against the vocabulary, and what follows from both."""
    arms = [arm for arm in result.arms if measured.get(arm.arm.name) and arm.losses]
    if not arms:
        return Exhibit()
    units, unit = {arm.arm.name: next(iter(measured[arm.arm.name].values())) for arm in arms}, result.study.unit
    fair = (
        "Losses are bits per character of the whole test part, the same characters for all, so they can be compared."
        if unit == FAIR_UNIT
        else f"Losses are {unit}, and tokens of different lengths settle different amounts of text: not compared."
    )
    how = (
        "A token of several characters carries a window of the same length further back, and a head of more rows takes "
        f"operations from the steps. {fair}"
    )
    sections: list[Section | Plot] = [Heading("What a token is worth"), Paragraph(how), _table(arms, units, unit)]
    if len(arms) > 1 and unit == FAIR_UNIT:
        sections.append(_plot(arms, units, unit))
    return Exhibit(tuple(sections), tuple(_findings(result, arms, units)))


def _table(arms: Sequence[ArmResult], units: dict[str, Plain], loss_unit: str) -> Table:
    rows = tuple(
        (
            arm.arm.title,
            f"{unit['vocab_size']:,}",
            f"{unit['characters_per_token']:.2f}",
            f"{unit['context_characters']:.0f}",
            f"{100 * unit['token_share']:.0f}%",
            f"{arm.config['training']['steps']:,}",
            big(unit["characters"]),
            f"{unit['passes']:.2f}",
            f"{unit['median_seen']:,.0f}",
            f"{fmean(arm.losses.values()):.3f}",
        )
        for arm, unit in ((arm, units[arm.arm.name]) for arm in arms)
    )
    columns = (
        "tokens",
        "vocabulary",
        "characters per token",
        "window (characters)",
        "parameters in table and head",
        "steps",
        "characters read",
        "passes",
        "median token seen (times)",
        loss_unit,
    )
    return Table(
        "What the tokens are, and what equal compute buys with them; losses are means over seeds.", columns, rows
    )


def _plot(arms: Sequence[ArmResult], units: dict[str, Plain], loss_unit: str) -> Plot:
    """The loss against the size of the vocabulary, arms of one kind joined."""
    kinds: dict[str, list[ArmResult]] = {}
    for arm in sorted(arms, key=lambda arm: units[arm.arm.name]["vocab_size"]):
        kinds.setdefault(_kind(arm), []).append(arm)
    lines = []
    for kind, members in kinds.items():
        intervals = [mean_interval(list(arm.losses.values())) for arm in members]
        places = [float(units[arm.arm.name]["vocab_size"]) for arm in members]
        ends = [] if any(interval.low is None for interval in intervals) else intervals
        lines.append(
            Line(
                {"char": "characters", "byte": "bytes", "bpe": "byte pairs"}.get(kind, kind),
                places,
                [interval.mean for interval in intervals],
                low=[interval.low or 0.0 for interval in ends],
                high=[interval.high or 0.0 for interval in ends],
            )
        )
    figure = line_plot(
        lines,
        Axis("vocabulary (tokens)", log=True, ticks=sorted({place for line in lines for place in line.x})),
        Axis(f"test loss ({loss_unit})"),
        title="Loss at equal compute",
    )
    caption = f"Test loss in {loss_unit} against the size of the vocabulary; band: 95% interval over seeds."
    told = "; ".join(f"{arm.arm.title} {fmean(arm.losses.values()):.3f}" for arm in arms)
    return Plot(figure, "tokens-vocabulary", caption, f"{loss_unit[:1].upper()}{loss_unit[1:]}: {told}.")


def _kind(arm: ArmResult) -> str:
    return arm.config["corpus"]["tokenizer"]["name"]


def _findings(result: StudyResult, arms: Sequence[ArmResult], units: dict[str, Plain]) -> list[Finding]:
    if len(arms) < 2:
        return []
    if result.study.unit != FAIR_UNIT:
        return [_compute(arms)]
    findings = [_reach(arms, units, result.arms[0]), _compute(arms)]
    pairs = [arm for arm in arms if _kind(arm) == "bpe"]
    return findings + ([_growth(pairs, units, word_of(result.study.unit))] if len(pairs) > 1 else [])


def _reach(arms: Sequence[ArmResult], units: dict[str, Plain], base: ArmResult) -> Finding:
    """Whether the arm whose tokens are longest reads most text, and ends below each other arm.

    It ends lowest if it is shown to lie below every other: paired over seeds, with Holm's correction over the others.
    """
    longest = max(arms, key=lambda arm: units[arm.arm.name]["characters_per_token"])
    unit = units[longest.arm.name]
    text = (
        f"The longest tokens are those of {longest.arm.title}: {unit['characters_per_token']:.2f} characters each, so "
        f"a window of {unit['context_characters']:.0f} characters"
    )
    if base.arm.name in units:
        first = units[base.arm.name]
        text += (
            f" (base: {first['context_characters']:.0f}) and {unit['characters'] / first['characters']:.2f} times the "
            "base's text read"
        )
    others = [arm for arm in arms if arm is not longest]
    tested = []
    for other in others:
        seeds = [seed for seed in longest.losses if seed in other.losses]
        if len(seeds) >= ENOUGH_SEEDS:
            paired = paired_difference([longest.losses[s] for s in seeds], [other.losses[s] for s in seeds])
            tested.append((other, paired.difference.mean, 1.0 if paired.p_value is None else paired.p_value))
    adjusted = [(arm, mean, p) for (arm, mean, _), p in zip(tested, holm([p for *_, p in tested]), strict=True)]
    over = f"p after Holm's correction over {len(adjusted)}"
    better = [f"{arm.arm.title} ({signed(mean)}, {p_clause(p)})" for arm, mean, p in adjusted if p < LEVEL and mean > 0]
    if better:
        return _finding(longest, f"{text}. They do not end lowest: they lie above {', '.join(better)}; {over}.", False)
    if len(tested) < len(others):
        why = f"some arms share fewer than {ENOUGH_SEEDS} seeds with them"
        return _finding(longest, f"{text}. Whether they end lowest cannot be told: {why}.")
    unsure = [f"{arm.arm.title} ({signed(mean)}, {p_clause(p)})" for arm, mean, p in adjusted if p >= LEVEL]
    if unsure:
        return _finding(
            longest, f"{text}. That they end lowest is not shown: no difference seen from {', '.join(unsure)}; {over}."
        )
    nearest = max(adjusted, key=lambda each: each[1])
    size = f"nearest is {nearest[0].arm.title}, {signed(nearest[1])} {word_of(FAIR_UNIT)}"
    return _finding(longest, f"{text}. They also end lowest, below every other arm; {size}.", True)


def _compute(arms: Sequence[ArmResult]) -> Finding:
    """Whether the arms' training takes the same number of operations."""
    base = arms[0].num_tokens * arms[0].flops_per_token
    off = {arm.arm.title: arm.num_tokens * arm.flops_per_token / base - 1 for arm in arms[1:]}
    worst = max(off, key=lambda title: abs(off[title]))
    size = f"{worst} is furthest from the base's operations, by {signed(100 * off[worst], 1)}%"
    if abs(off[worst]) <= EQUAL_COMPUTE:
        return _finding(None, f"Compute is equal within {EQUAL_COMPUTE:.0%}: {size}.", True)
    return _finding(None, f"Compute is not equal: {size}, so that arm is no fair rival.", False)


def _growth(pairs: Sequence[ArmResult], units: dict[str, Plain], loss_unit: str) -> Finding:
    """Whether more merges help: the slope of the loss against log2 of the vocabulary, seed by seed."""
    sizes = np.log2([units[arm.arm.name]["vocab_size"] for arm in pairs])
    seeds = [seed for seed in pairs[0].losses if all(seed in arm.losses for arm in pairs)]
    span = f"From {pairs[0].arm.title} to {pairs[-1].arm.title}"
    if len(seeds) < ENOUGH_SEEDS or len(set(sizes.tolist())) < 2:
        return _finding(None, f"{span}: from {len(seeds)} seeds no slope can be told; {ENOUGH_SEEDS} are needed.")
    slopes = [float(np.polyfit(sizes, [arm.losses[seed] for arm in pairs], 1)[0]) for seed in seeds]
    found = mean_interval(slopes)
    ends = interval_text(found).replace("-", MINUS)
    size = f"{signed(found.mean)} {loss_unit} per doubling of the vocabulary (95% interval {ends})"
    return _finding(None, f"{span}: {_way(found)}{size}.", _holds(found))


def _way(found: Interval) -> str:
    holds = _holds(found)
    return "more merges help, " if holds else "no difference seen at this budget, " if holds is None else "they harm, "


def _holds(found: Interval) -> bool | None:
    if found.low is None or found.high is None or found.low <= 0 <= found.high:
        return None
    return found.high < 0


def _finding(arm: ArmResult | None, text: str, holds: bool | None = None) -> Finding:
    return Finding(NAME, "" if arm is None else arm.arm.name, text, holds)


TEXT_UNITS = RunProbe(NAME, measure, show, seconds={"quick": 1, "standard": 1, "full": 1})

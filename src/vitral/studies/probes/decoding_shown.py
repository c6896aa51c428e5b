"""What is shown of the decoding strategies: figures, tables, samples, and what differs from the text itself.

The sample is the prompt: what the seeds give for one prompt is averaged first, since models of several seeds continue
the same prompts, and differences to the text's own continuation are paired prompt by prompt.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from vitral.figures.intervals import Row, interval_dots
from vitral.figures.margin import Reference
from vitral.figures.sections import Columns, Details, Heading, Paragraph, Preformatted, Section, Table
from vitral.studies.probes.protocol import ByRun, Exhibit, Plain, Plot
from vitral.studies.results import ArmResult, StudyResult
from vitral.studies.statistics import PairedDifference, holm, mean_interval, paired_difference
from vitral.studies.verdict import LEVEL, Finding
from vitral.studies.wording import NONE, SPACE, capital, p_text, signed

RULE = "strategies"
TRUTH = "the text itself"
ENOUGH_PROMPTS = 3
REPEATED = 10
"""Tokens of a run that counts as repeated."""
NOVEL = 12
"""Characters of a piece that may be novel."""
ORDER = 5
"""Of the counted n-grams."""


@dataclass(frozen=True)
class Measure:
    """One of the numbers of a continuation.

    Attributes:
        name: for a column.
        label: with its unit, for an axis.
        of: where it stands among what was measured.
        digits: after the point.
        more: what a strategy does that has more of it than the text.
        less: what one does that has less.
    """

    name: str
    label: str
    of: Callable[[Plain], float | None]
    digits: int
    more: str
    less: str


MEASURES = {
    "repeated": Measure(
        "repeated",
        f"share of tokens in repeated {REPEATED}-grams",
        lambda one: one["repeated"],
        3,
        "repeat themselves more",
        "repeat themselves less",
    ),
    "loop": Measure(
        "longest loop",
        "longest loop (tokens)",
        lambda one: one["loop"],
        1,
        "have longer loops",
        "have shorter loops",
    ),
    "words": Measure(
        "distinct pairs of words",
        "different pairs of words (share)",
        lambda one: one["words"][1],
        3,
        "have more different pairs of words",
        "have fewer different pairs of words",
    ),
    "copied": Measure(
        "longest copy",
        "longest run copied from the training text (characters)",
        lambda one: one["copied"],
        1,
        "copy longer runs of the training text",
        "copy shorter runs of the training text",
    ),
    "novel": Measure(
        f"novel {NOVEL}-grams",
        f"novel {NOVEL}-grams of characters (share)",
        lambda one: one["novel"],
        3,
        f"have more {NOVEL}-grams of characters that the training text lacks",
        f"have fewer {NOVEL}-grams of characters that the training text lacks",
    ),
    "model": Measure(
        "under the model",
        "nats per token under the model",
        lambda one: one["model"],
        3,
        "are less likely under the model",
        "are likelier under the model",
    ),
    "ngram": Measure(
        f"under the {ORDER}-gram",
        f"nats per token under the {ORDER}-gram model",
        lambda one: one["ngram"],
        3,
        f"are less likely under the {ORDER}-gram model",
        f"are likelier under the {ORDER}-gram model",
    ),
}
DRAWN = ("repeated", "words", "copied", "model", "ngram")
COMPARED = ("repeated", "words", "copied", "model", "ngram")
IN_NATS = ("model", "ngram")
"""Also told as perplexities."""
_MOST_NATS = 700.0

Values = Mapping[str, list[float | None]]
"""Strategy -> one number for each prompt, the mean over seeds; None where a seed has none."""
Difference = tuple[PairedDifference, float | None]
"""A difference to the text itself, and its p value after Holm's correction."""


def show(result: StudyResult, measured: ByRun) -> Exhibit:
    """Figures and tables of every strategy beside the text itself, samples, and findings, for each arm.

    For each measure the strategies are compared with the text's own continuations, paired by prompt, with Holm's
    correction over the strategies and measures of an arm; a finding names those whose difference is shown at the level,
    and is the same sentence with other names where the numbers are others. The nearest strategy is that with the least
    absolute difference in nats per token under the counted n-grams, named with all that are not shown to be further.
    """
    there = [(arm, list(measured.get(arm.arm.name, {}).values())) for arm in result.arms]
    there = [(arm, runs) for arm, runs in there if runs]
    several = len(result.arms) > 1
    shown = [_show_arm(arm, runs, several=several) for arm, runs in there]
    return Exhibit(
        tuple(section for exhibit in shown for section in exhibit.sections),
        tuple(finding for exhibit in shown for finding in exhibit.findings),
    )


def _show_arm(arm: ArmResult, runs: Sequence[Plain], *, several: bool) -> Exhibit:
    names = list(runs[0]["strategies"])
    values = {key: _values(runs, names, measure) for key, measure in MEASURES.items()}
    differences = _differences(values)
    prompts = len(runs[0]["prompts"])
    which, suffix, name = (f": {arm.arm.title}", f"-{arm.arm.name}", arm.arm.name) if several else ("", "", "")
    figures = (_figure(MEASURES[key], values[key], suffix) for key in DRAWN)
    sections = (
        Heading(f"The strategies beside the text itself{which}"),
        Paragraph(_how(runs, prompts)),
        *(figure for figure in figures if figure is not None),
        _means(names, values),
        _difference_table(names, differences),
        _distinct(runs, names),
        _samples(runs[0], names),
    )
    findings = [finding for key in COMPARED for finding in _findings(MEASURES[key], differences[key], prompts)]
    findings += _nearest(values["ngram"], differences["ngram"])
    return Exhibit(sections, tuple(_of_arm(finding, name, arm.arm.title) for finding in findings))


def _of_arm(finding: Finding, name: str, title: str) -> Finding:
    """The finding under its arm's name, where there are several."""
    return replace(finding, arm=name, text=f"{capital(title)}: {finding.text}") if name else finding


def _how(runs: Sequence[Plain], prompts: int) -> str:
    seeds = f", each by the models of {len(runs)} seeds and averaged" if len(runs) > 1 else ""
    return (
        f"{prompts} prompts from the test text, each continued for {runs[0]['length']} tokens{seeds}. A dot is a "
        "prompt, the mark the mean with its 95% interval over prompts: it tells how other prompts would do with these "
        "models, not how models of other seeds would."
    )


def _values(runs: Sequence[Plain], names: Sequence[str], measure: Measure) -> Values:
    found: dict[str, list[float | None]] = {}
    for name in names:
        by_prompt = zip(*(run["strategies"][name] for run in runs), strict=True)
        found[name] = [_mean([measure.of(one) for one in seeds]) for seeds in by_prompt]
    return found


def _mean(values: Sequence[float | None]) -> float | None:
    there = [value for value in values if value is not None]
    return sum(there) / len(there) if there and len(there) == len(values) else None


def _differences(values: Mapping[str, Values]) -> dict[str, dict[str, Difference]]:
    """By measure and strategy, the paired difference to the text itself and p after Holm's correction over them all."""
    found: dict[tuple[str, str], PairedDifference] = {}
    for key in COMPARED:
        for name, mine in values[key].items():
            pairs = [(a, b) for a, b in zip(mine, values[key][TRUTH], strict=True) if a is not None and b is not None]
            if name != TRUTH and pairs:
                found[key, name] = paired_difference([a for a, _ in pairs], [b for _, b in pairs])
    tested = {place: paired.p_value for place, paired in found.items() if paired.p_value is not None}
    adjusted = dict(zip(tested, holm(list(tested.values())), strict=True))
    by_measure: dict[str, dict[str, Difference]] = {key: {} for key in COMPARED}
    for (key, name), paired in found.items():
        by_measure[key][name] = paired, adjusted.get((key, name))
    return by_measure


def _figure(measure: Measure, values: Values, suffix: str) -> Plot | None:
    """One measure by strategy; None where no continuation has it."""
    rows, said = [], []
    for name, each in values.items():
        there = [value for value in each if value is not None]
        if there:
            between = mean_interval(there)
            rows.append(Row(name, there, between.mean, between.low, between.high))
            said.append(f"{name} {between.mean:.{measure.digits}f}")
    if not rows:
        return None
    references = [Reference("the text", row.mean) for row in rows if row.label == TRUTH]
    figure = interval_dots(rows, references=references, x_label=measure.label)
    caption = f"{capital(measure.label)} by strategy; the dotted line is the text itself. Dots are prompts."
    name = f"strategies-{measure.name.replace(' ', '-')}{suffix}"
    return Plot(figure, name, caption, f"{capital(measure.label)}: {', '.join(said)}.")


def _means(names: Sequence[str], values: Mapping[str, Values]) -> Table:
    rows = []
    for name in names:
        cells = []
        for key, measure in MEASURES.items():
            mean = _mean([value for value in values[key][name] if value is not None])
            cells.append(NONE if mean is None else f"{mean:.{measure.digits}f}")
            if key in IN_NATS:
                cells.append(NONE if mean is None else f"{math.exp(min(mean, _MOST_NATS)):.2f}")
        rows.append((name, *cells))
    columns = []
    for key, measure in MEASURES.items():
        columns += [f"nats {measure.name}", f"perplexity {measure.name}"] if key in IN_NATS else [measure.name]
    return Table(
        f"Means over prompts (and seeds). Repeated: share of tokens in a {REPEATED}-gram already written; longest "
        "loop: tokens of the longest stretch that says the same at least twice in a row; longest copy: characters of "
        f"the longest run that stands in the training text; novel: share of {NOVEL}-grams of characters that do not; "
        f"nats per token under the model and under the {ORDER}-gram model, and their exponentials, the perplexities.",
        ("strategy", *columns),
        tuple(rows),
    )


def _difference_table(names: Sequence[str], differences: Mapping[str, Mapping[str, Difference]]) -> Table:
    rows = [
        (name, *(_difference(differences[key].get(name), MEASURES[key].digits) for key in COMPARED))
        for name in names
        if name != TRUTH
    ]
    return Table(
        "Differences to the text's own continuations, paired by prompt, with 95% intervals and p after Holm's "
        f"correction over the {sum(len(found) for found in differences.values())} of them.",
        ("strategy", *(MEASURES[key].name for key in COMPARED)),
        tuple(rows),
    )


def _difference(found: Difference | None, digits: int) -> str:
    if found is None:
        return NONE
    between, p = found[0].difference, found[1]
    if between.low is None or between.high is None:
        return signed(between.mean, digits)
    ends = f"({signed(between.low, digits)} to {signed(between.high, digits)})".replace(" ", SPACE)
    return f"{signed(between.mean, digits)} {ends}, p{SPACE}{p_text(p)}"


def _distinct(runs: Sequence[Plain], names: Sequence[str]) -> Table:
    """Distinct-1 to distinct-4 of words and of characters."""
    rows = []
    for name in names:
        cells = []
        for kind in ("words", "characters"):
            for n in range(len(runs[0]["strategies"][name][0][kind])):
                each = [one[kind][n] for run in runs for one in run["strategies"][name]]
                mean = _mean([value for value in each if value is not None])
                cells.append(NONE if mean is None else f"{mean:.3f}")
        rows.append((name, *cells))
    sizes = range(1, (len(rows[0]) + 1) // 2)
    columns = ("strategy", *(f"{n} word{'s' * (n > 1)}" for n in sizes), *(f"{n} char." for n in sizes))
    return Table(
        "Different n-grams as a share of all n-grams of a continuation, of words and of characters; means.",
        columns,
        tuple(rows),
    )


def _samples(run: Plain, names: Sequence[str]) -> Section:
    """The first prompt and what each strategy makes of it."""
    items = tuple(Preformatted(run["strategies"][name][0]["text"], name) for name in names)
    prompt = Preformatted(run["prompts"][0], "the prompt")
    return Details("One prompt, every strategy", (prompt, Columns(items)))


def _findings(measure: Measure, differences: Mapping[str, Difference], prompts: int) -> list[Finding]:
    """Who differs from the text itself in one measure, in a sentence for each direction."""
    if prompts < ENOUGH_PROMPTS:
        return []
    shown = {name: paired for name, (paired, p) in differences.items() if p is not None and p < LEVEL}
    findings = []
    for sign, what in ((1, measure.more), (-1, measure.less)):
        those = {name: paired for name, paired in shown.items() if sign * paired.difference.mean > 0}
        if those:
            ordered = sorted(those.items(), key=lambda item: -sign * item[1].difference.mean)
            named = ", ".join(f"{name} ({signed(p.difference.mean, measure.digits)})" for name, p in ordered)
            text = f"Texts that {what} than the text itself, shown at this budget: {named}."
            findings.append(Finding(RULE, "", text, holds=True))
    if not findings:
        text = f"No strategy is seen to differ from the text itself at this budget: {measure.label}."
        findings.append(Finding(RULE, "", text, holds=False))
    return findings


def _nearest(values: Values, differences: Mapping[str, Difference]) -> list[Finding]:
    """The strategy nearest to the text itself in nats per token under the counted n-grams, and those as near.

    How far a strategy lies off is its mean difference without its sign, so that of each prompt is taken with the sign
    of the mean; as near are those whose paired difference to the nearest is not shown, with Holm's correction.
    """
    if not differences:
        return []
    name = min(differences, key=lambda other: (abs(differences[other][0].difference.mean), other))
    between = differences[name][0].difference
    text = f"Nearest to the text itself under the {ORDER}-gram model: {name}, {signed(between.mean)} nats per token"
    if between.low is None or between.high is None or between.num < ENOUGH_PROMPTS:
        return [Finding(RULE, "", f"{text}, from {between.num} prompts: too few to tell it from the others.")]
    ends = f"95% interval {signed(between.low)} to {signed(between.high)}"
    note = "which holds zero" if between.low <= 0 <= between.high else "which does not hold zero"
    off = {other: _off(values[other], values[TRUTH]) for other in differences}
    tested = {}
    for other in differences:
        pairs = [(a, b) for a, b in zip(off[other], off[name], strict=True) if a is not None and b is not None]
        if other != name and pairs:
            tested[other] = paired_difference([a for a, _ in pairs], [b for _, b in pairs])
    adjusted = zip(
        tested, holm([1.0 if each.p_value is None else each.p_value for each in tested.values()]), strict=True
    )
    near = [other for other, p in adjusted if p >= LEVEL]
    if near:
        told = ", ".join(f"{other} ({signed(differences[other][0].difference.mean)})" for other in near)
        rest = f"Not shown to be further from it: {told}"
    else:
        rest = "Every other strategy is shown to be further from it"
    return [Finding(RULE, "", f"{text} ({ends}, {note}). {rest}.", not near)]


def _off(mine: Sequence[float | None], truth: Sequence[float | None]) -> list[float | None]:
    """How far each prompt's number lies off the text's, on the side on which their mean lies."""
    gaps = [None if a is None or b is None else a - b for a, b in zip(mine, truth, strict=True)]
    sign = -1 if sum(gap for gap in gaps if gap is not None) < 0 else 1
    return [None if gap is None else sign * gap for gap in gaps]

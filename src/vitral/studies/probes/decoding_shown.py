"""What is shown of the decoding strategies: figures, tables, samples, and what differs from the text itself.

The sample is the prompt: what the seeds give for one prompt is averaged first, since models of several seeds continue
the same prompts, and differences to the text's own continuation are paired prompt by prompt.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from vitral.figures.intervals import Row, interval_dots
from vitral.figures.margin import Reference
from vitral.figures.sections import Columns, Details, Heading, Paragraph, Preformatted, Section, Table
from vitral.studies.probes.protocol import ByRun, Exhibit, Plain, Plot
from vitral.studies.results import StudyResult
from vitral.studies.statistics import PairedDifference, holm, mean_interval, paired_difference
from vitral.studies.verdict import LEVEL, Finding
from vitral.studies.wording import NONE, SPACE, p_text, signed

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
DRAWN = ("repeated", "model", "ngram")
COMPARED = ("repeated", "words", "copied", "model", "ngram")

Values = Mapping[str, list[float | None]]
"""Strategy -> one number for each prompt, the mean over seeds; None where a seed has none."""


def show(result: StudyResult, measured: ByRun) -> Exhibit:
    """Figures and tables of every strategy beside the text itself, samples, and findings.

    For each measure the strategies are compared with the text's own continuations, paired by prompt, with Holm's
    correction over the strategies; a finding names those whose difference is shown at the level, and is the same
    sentence with other names where the numbers are others. The nearest strategy is that with the least absolute
    difference in nats per token under the counted n-grams.
    """
    runs = [run for arm in result.arms[:1] for run in measured.get(arm.arm.name, {}).values()]
    if not runs:
        return Exhibit()
    names = list(runs[0]["strategies"])
    values = {key: _values(runs, names, measure) for key, measure in MEASURES.items()}
    differences = {key: _differences(values[key]) for key in COMPARED}
    prompts = len(runs[0]["prompts"])
    sections = (
        Heading("The strategies beside the text itself"),
        Paragraph(_how(runs, prompts)),
        *(_figure(MEASURES[key], values[key]) for key in DRAWN),
        _means(names, values),
        _difference_table(names, differences),
        _distinct(runs, names),
        _samples(runs[0], names),
    )
    findings = [finding for key in COMPARED for finding in _findings(MEASURES[key], differences[key], prompts)]
    return Exhibit(sections, (*findings, *_nearest(differences["ngram"])))


def _how(runs: Sequence[Plain], prompts: int) -> str:
    seeds = f", each by the models of {len(runs)} seeds and averaged" if len(runs) > 1 else ""
    return (
        f"{prompts} prompts from the test text, each continued for {runs[0]['length']} tokens{seeds}. A dot is a "
        "prompt, the mark the mean with its 95% interval over prompts."
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


def _differences(values: Values) -> dict[str, tuple[PairedDifference, float | None]]:
    """By strategy, the paired difference to the text itself and its p value after Holm's correction."""
    found: dict[str, PairedDifference] = {}
    for name, mine in values.items():
        pairs = [(a, b) for a, b in zip(mine, values[TRUTH], strict=True) if a is not None and b is not None]
        if name != TRUTH and pairs:
            found[name] = paired_difference([a for a, _ in pairs], [b for _, b in pairs])
    tested = {name: paired.p_value for name, paired in found.items() if paired.p_value is not None}
    adjusted = dict(zip(tested, holm(list(tested.values())), strict=True))
    return {name: (paired, adjusted.get(name)) for name, paired in found.items()}


def _figure(measure: Measure, values: Values) -> Plot:
    rows, said = [], []
    for name, each in values.items():
        there = [value for value in each if value is not None]
        if there:
            between = mean_interval(there)
            rows.append(Row(name, there, between.mean, between.low, between.high))
            said.append(f"{name} {between.mean:.{measure.digits}f}")
    truth = next(row.mean for row in rows if row.label == TRUTH)
    figure = interval_dots(rows, references=[Reference("the text", truth)], x_label=measure.label)
    caption = f"{_capital(measure.label)} by strategy; the dotted line is the text itself. Dots are prompts."
    name = f"strategies-{measure.name.replace(' ', '-')}"
    return Plot(figure, name, caption, f"{_capital(measure.label)}: {', '.join(said)}.")


def _means(names: Sequence[str], values: Mapping[str, Values]) -> Table:
    rows = []
    for name in names:
        means = [(_mean([v for v in values[key][name] if v is not None]), MEASURES[key].digits) for key in MEASURES]
        rows.append((name, *(NONE if mean is None else f"{mean:.{digits}f}" for mean, digits in means)))
    return Table(
        f"Means over prompts (and seeds). Repeated: share of tokens in a {REPEATED}-gram already written; longest "
        "loop: tokens of the longest stretch that says the same at least twice in a row; longest copy: characters of "
        f"the longest run that stands in the training text; novel: share of {NOVEL}-grams of characters that do not; "
        f"nats per token under the model and under the {ORDER}-gram model.",
        ("strategy", *(measure.name for measure in MEASURES.values())),
        tuple(rows),
    )


def _difference_table(
    names: Sequence[str], differences: Mapping[str, Mapping[str, tuple[PairedDifference, float | None]]]
) -> Table:
    rows = [
        (name, *(_difference(differences[key].get(name), MEASURES[key].digits) for key in COMPARED))
        for name in names
        if name != TRUTH
    ]
    return Table(
        "Differences to the text's own continuations, paired by prompt, with 95% intervals and p after Holm's "
        f"correction over the {len(rows)} strategies.",
        ("strategy", *(MEASURES[key].name for key in COMPARED)),
        tuple(rows),
    )


def _difference(found: tuple[PairedDifference, float | None] | None, digits: int) -> str:
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


def _findings(
    measure: Measure, differences: Mapping[str, tuple[PairedDifference, float | None]], prompts: int
) -> list[Finding]:
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


def _nearest(differences: Mapping[str, tuple[PairedDifference, float | None]]) -> list[Finding]:
    """The strategy nearest to the text itself in nats per token under the counted n-grams."""
    if not differences:
        return []
    name, (paired, _) = min(differences.items(), key=lambda item: (abs(item[1][0].difference.mean), item[0]))
    between = paired.difference
    text = f"Nearest to the text itself under the {ORDER}-gram model: {name}, {signed(between.mean)} nats per token"
    if between.low is None or between.high is None:
        return [Finding(RULE, "", f"{text}, from one prompt.")]
    holds = between.low <= 0 <= between.high
    ends = f"95% interval {signed(between.low)} to {signed(between.high)}"
    note = "which holds zero" if holds else "which does not hold zero"
    return [Finding(RULE, "", f"{text} ({ends}, {note}).", holds)]


def _capital(title: str) -> str:
    return title[:1].upper() + title[1:]

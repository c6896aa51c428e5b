"""What the probe `meaning` has to show: tables of neighbours and pairs, senses by layer, and what follows."""

from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import TYPE_CHECKING

from vitral.figures.lines import Axis, Line, line_plot
from vitral.figures.sections import Heading, Paragraph, Section, Table
from vitral.inspection import wilson
from vitral.studies.probes.meaning_read import CHANCE, MeaningArm
from vitral.studies.probes.protocol import ByRun, Exhibit, Plain, Plot
from vitral.studies.statistics import CONFIDENCE, Interval, PairedDifference, holm, mean_interval, paired_difference
from vitral.studies.verdict import ENOUGH_SEEDS, LEVEL, Finding
from vitral.studies.wording import MINUS, NONE, p_clause, signed

if TYPE_CHECKING:
    from vitral.studies.results import StudyResult

NAME = "meaning"
LEAST_APART = 0.001
"""A smaller mean difference of cosines is none: rounding alone gives some."""
LANGUAGES = {"en": "English", "pt": "Portuguese"}
LEAST_WORDS = 3
"""Fewer words of two meanings allow no interval worth having."""


def show(result: "StudyResult", measured: ByRun) -> Exhibit:
    """Neighbours, senses by layer and minimal pairs, by arm; arms whose texts are in one language side by side."""
    arms = [
        MeaningArm(arm.arm.name, arm.arm.title, dict(sorted(measured[arm.arm.name].items())))
        for arm in result.arms
        if measured.get(arm.arm.name)
    ]
    if not arms:
        return Exhibit()
    expected = Paragraph(
        "A model this small, trained on one text for a few minutes, is expected to know little of meaning. What "
        "follows says what can be told from chance."
    )
    sections, findings = [expected], []
    groups = list(dict.fromkeys(arm.language for arm in arms))
    for language in groups:
        alike = [arm for arm in arms if arm.language == language]
        suffix = "" if language == groups[0] else f"-{language}"
        name = LANGUAGES.get(language, language)
        for shown, found in (_neighbours(alike), _senses(alike, suffix), _pairs(alike)):
            heading, *rest = shown
            if len(groups) > 1 and isinstance(heading, Heading):
                heading = Heading(f"{heading.text}: {name}", heading.level)
            sections += [heading, *rest]
            findings += found
    return Exhibit(tuple(sections), (*findings, *_against_base(arms)))


Shown = tuple[list[Section | Plot], "list[Finding]"]


def _neighbours(arms: Sequence[MeaningArm]) -> Shown:
    arms = [arm for arm in arms if arm.correlations]
    heading = Heading("Neighbours of words")
    if not arms:
        return [heading, Paragraph("Too few whole words are tokens, so there are no neighbours to show.")], []
    base = arms[0]
    found = next(run["neighbours"] for run in base.runs.values() if run["neighbours"])
    how = (
        f"Of the {found['words']} most frequent whole words that are one token: those whose vectors in the token "
        "embedding have the largest cosine, and those whose contexts in the training text are most alike (positive PMI "
        "of the two tokens before and after, by cosine), which needs no model. If words are known by their neighbours "
        "(Harris 1954), the two agree: Spearman's correlation over all pairs of words, beside the largest of "
        f"{len(found['shuffled'])} correlations with the embedding's words shuffled (Mantel 1967)."
    )
    rows = tuple((each["word"], _listed(each["embedded"]), _listed(each["counted"])) for each in found["of"])
    title = f"Nearest words with their cosines ({base.title}, first seed)."
    words = Table(title, ("word", "in the embedding", "by counted contexts"), rows, prose=(1, 2))
    agreement = Table(
        "Agreement of embedding and counted contexts over pairs of words, mean over seeds.",
        ("arm", "correlation", "95% interval", "largest shuffled"),
        tuple(_agreement(arm) for arm in arms),
    )
    return [heading, Paragraph(how), words, agreement], [_agrees(arm) for arm in arms]


def _agreement(arm: MeaningArm) -> tuple[str, str, str, str]:
    interval = mean_interval(arm.correlations)
    return arm.title, signed(interval.mean), _ends(interval), signed(max(arm.shuffled))


def _agrees(arm: MeaningArm) -> "Finding":
    """Whether the embedding agrees with counted contexts more than every shuffled one, in every seed."""
    mean, highest = fmean(arm.correlations), max(arm.shuffled)
    sizes = f"rank correlation {signed(mean)} over pairs of words, at most {signed(highest)} when shuffled"
    above = [own > chance for own, chance in zip(arm.correlations, arm.shuffled, strict=True)]
    if all(above):
        return _finding(arm, f"words with like vectors stand in like contexts ({sizes}).", True)
    if not any(above):
        return _finding(arm, f"likeness of vectors is not told from chance ({sizes}).", False)
    return _finding(arm, f"likeness of vectors is told from chance in {sum(above)} of {len(above)} seeds ({sizes}).")


def _senses(arms: Sequence[MeaningArm], suffix: str) -> Shown:
    heading = Heading("The same word in two contexts")
    arms = [arm for arm in arms if len(arm.separations) >= LEAST_WORDS]
    if not arms:
        return [heading, Paragraph("Too few of the words with two meanings fit the tokenizer and the model.")], []
    base, within, across = arms[0], arms[0].senses("within"), arms[0].senses("across")
    how = (
        "Sentences written for this study use a word in two senses, told by the words before it; the word right before "
        "is the same in all of them, so copying the token before sets nothing apart. Before each stands as much of one "
        "passage of the test part as brings the word to the same position. The cosine of the residual stream at the "
        "word's last token is taken between sentences of the same sense and of different senses. In the embedding all "
        "are the same vector; what sets them apart can come only from attention to the words before. That shows that "
        "the vector depends on its context, and on one that goes with the sense; not that the sense is known."
    )
    steps = list(range(len(base.first["places"])))
    axis = Axis("after block (0: the embedding)", ticks=steps)
    series = {"same sense's context": within, "other sense's context": across}
    lines = [Line(label, steps, _mean_by_place(values)) for label, values in series.items()]
    last = [fmean(places[-1] for places in values.values()) for values in (within, across)]
    alt = f"After the last block {last[0]:.3f} within a sense and {last[1]:.3f} across senses."
    caption = f"Mean cosine over {len(within)} words of two senses and all seeds: {base.title}."
    figure = line_plot(
        lines, axis, Axis("cosine of a word's vectors"), title="One word, contexts of the same and the other sense"
    )
    shown: list[Section | Plot] = [heading, Paragraph(how), Plot(figure, f"senses-by-layer{suffix}", caption, alt)]
    figure = line_plot(
        [_band(arm) for arm in arms],
        axis,
        Axis("100 × cosine, same less other sense"),
        title="How far contexts of two senses are apart",
    )
    caption = "Cosine within a sense less cosine across senses, in hundredths; mean over words with its 95% interval."
    alt = "; ".join(f"{arm.title} {signed(_mean_by_place(arm.separations)[-1])}" for arm in arms)
    shown.append(Plot(figure, f"senses-apart{suffix}", caption, f"After the last block: {alt}."))
    meanings = {sense["word"]: f"{sense['first']} / {sense['second']}" for sense in base.first["senses"]}
    rows = tuple(
        (word, meanings[word], f"{within[word][-1]:.3f}", f"{across[word][-1]:.3f}", signed(places[-1]))
        for word, places in base.separations.items()
    )
    columns = ("word", "senses", "same sense", "other sense", "difference")
    shown.append(Table(f"Cosines after the last block ({base.title}, mean over seeds).", columns, rows, prose=(1,)))
    return shown, [_apart(arm) for arm in arms]


def _mean_by_place(values: Mapping[str, list[float]]) -> list[float]:
    return [fmean(place) for place in zip(*values.values(), strict=True)]


def _band(arm: MeaningArm) -> Line:
    """An arm's separation by place in hundredths, which are short to write, with its interval over words."""
    intervals = [mean_interval([100 * each for each in place]) for place in zip(*arm.separations.values(), strict=True)]
    low = [interval.mean if interval.low is None else interval.low for interval in intervals]
    high = [interval.mean if interval.high is None else interval.high for interval in intervals]
    return Line(arm.title, list(range(len(intervals))), [interval.mean for interval in intervals], low, high)


def _apart(arm: MeaningArm) -> "Finding":
    """Whether contexts of two senses lie further apart after the last block than in the embedding.

    Words are the sample.
    """
    gains = [places[-1] - places[0] for places in arm.separations.values()]
    interval = mean_interval(gains)
    ends = f"95% interval over {len(gains)} words {_ends(interval)}"
    sizes = f"{signed(interval.mean)} from the embedding to the last block, {ends}"
    if max(map(abs, gains)) < LEAST_APART:
        return _finding(
            arm, f"every word has the same vector in contexts of both senses, to within {LEAST_APART} ({sizes}).", False
        )
    if interval.low is not None and interval.low > 0:
        return _finding(arm, f"the blocks set contexts of two senses of a word apart ({sizes}).", True)
    if interval.high is not None and interval.high < 0:
        return _finding(
            arm, f"the blocks bring contexts of two senses of a word nearer to one another ({sizes}).", False
        )
    return _finding(arm, f"no separation of the contexts of two senses told from chance ({sizes}).", False)


COMPARED = {
    "share of pairs of which the right sentence is more probable": lambda arm: arm.right_by_seed,
    "separation of contexts of two senses": lambda arm: arm.gain_by_seed,
}
"""What arms are compared by, seed by seed."""


def _against_base(arms: Sequence[MeaningArm]) -> "list[Finding]":
    """Each arm against the first of its language, paired over seeds, p values adjusted for all of them (Holm)."""
    found: list[tuple[MeaningArm, str, PairedDifference]] = []
    for arm in arms:
        base = next(other for other in arms if other.language == arm.language)
        for what, read in COMPARED.items() if arm is not base else ():
            one, other = read(arm), read(base)
            shared = [seed for seed in one if seed in other]
            if shared:
                paired = paired_difference([one[seed] for seed in shared], [other[seed] for seed in shared])
                found.append((arm, f"{what}, {signed(paired.difference.mean)} against {base.title}", paired))
    enough = [paired.p_value for *_, paired in found if paired.difference.num >= ENOUGH_SEEDS and _has_spread(paired)]
    adjusted = iter(holm([p for p in enough if p is not None]))
    return [_compared(arm, size, paired, adjusted, len(enough)) for arm, size, paired in found]


def _has_spread(paired: PairedDifference) -> bool:
    """Whether the seeds' differences are not all the same, as shares of a few counts may be by chance; none has."""
    between = paired.difference
    return not between.mean or between.low is None or between.high is None or between.high - between.low > 1e-9


def _compared(arm: MeaningArm, size: str, paired: PairedDifference, adjusted: Iterator[float], tests: int) -> "Finding":
    if paired.difference.num < ENOUGH_SEEDS:
        return _finding(arm, f"{size}.")
    if not _has_spread(paired):
        return _finding(arm, f"{size} in every seed: so few seeds do not show how much a count varies, so no verdict.")
    p = next(adjusted)
    corrected = f"{p_clause(p)} after Holm's correction over {tests} comparisons" if tests > 1 else p_clause(p)
    ends = f"95% interval {_ends(paired.difference)}"
    if p >= LEVEL:
        return _finding(arm, f"{size}: no difference seen at this budget ({ends}), {corrected}.", False)
    return _finding(arm, f"{size}: {'more' if paired.difference.mean > 0 else 'less'} ({ends}), {corrected}.", True)


def _pairs(arms: Sequence[MeaningArm]) -> Shown:
    heading = Heading("Minimal pairs")
    arms = [arm for arm in arms if arm.kinds]
    if not arms:
        return [heading, Paragraph("None of the sentences fit the tokenizer and the model.")], []
    base = arms[0]
    how = (
        "Two sentences differ in one word, of which one form is right. Counted is how often the right sentence has the "
        "larger probability, as a whole and after a line break, whatever its number of tokens. Every form is right in "
        "half of the pairs, so a model that only prefers one form gets 50%, as chance does. The last row asks less: "
        "whether the two forms of a subject move the preference the right way, by any amount. A pair counts by the "
        "share of seeds that get it right; intervals (Wilson 1927) are over pairs, at 95% for all kinds together "
        "(Bonferroni). Pairs of a kind share words, so the intervals are somewhat too narrow."
    )
    rows = []
    for kind in base.kinds:
        pair = next(pair for pair in base.first["pairs"] if pair["kind"] == kind)
        example = f"{pair['good']} / {pair['bad']}"
        rows.append((kind, example, str(len(base.right(kind))), *(_share(arm, kind) for arm in arms)))
    rows.append(("all kinds", "", str(len(base.right())), *(_share(arm, None) for arm in arms)))
    rows.append(("the subject matters", "", str(len(base.moved)), *(_interval(arm.moved) for arm in arms)))
    columns = ("kind", "example (right / wrong)", "pairs", *(arm.title for arm in arms))
    table = Table("Share of pairs of which the right sentence is more probable.", columns, tuple(rows), prose=(1,))
    return [heading, Paragraph(how), table], [_knows(arm) for arm in arms]


def _judged(arm: MeaningArm, kind: str | None) -> tuple[float, float, float]:
    """The share right, of pairs of which one was scored, and its interval."""
    right = arm.right(kind)
    confidence = CONFIDENCE if kind is None else 1 - (1 - CONFIDENCE) / len(arm.kinds)
    return (fmean(right), *wilson(fmean(right), len(right), confidence))


def _share(arm: MeaningArm, kind: str | None) -> str:
    if not arm.right(kind):
        return NONE
    share, low, high = _judged(arm, kind)
    return f"{share:.0%} ({low:.0%} to {high:.0%})"


def _knows(arm: MeaningArm) -> "Finding":
    """What kinds of pairs an arm gets right more or less often than chance."""
    share, low, high = _judged(arm, None)
    overall = f"the right sentence is the more probable in {_share(arm, None)} of {len(arm.right())} pairs"
    where, holds = "not told from chance", False
    if low > CHANCE:
        where, holds = "above chance", True
    elif high < CHANCE:
        where = "below chance"
    sides: dict[str, list[str]] = {"above chance": [], "below chance": [], "not told from chance": []}
    for kind in arm.kinds:
        share, low, high = _judged(arm, kind)
        side = "above chance" if low > CHANCE else "below chance" if high < CHANCE else "not told from chance"
        sides[side].append(f"{kind} ({share:.0%})")
    listed = "; ".join(f"{side}: {', '.join(kinds)}" for side, kinds in sides.items() if kinds)
    text = f"{overall}, {where}. By kind, {listed}."
    if arm.moved:
        text += (
            f" Whatever form it prefers, the subject moves it the right way for {_interval(arm.moved)} of the subjects."
        )
    return _finding(arm, text, holds)


def _interval(points: Sequence[float]) -> str:
    if not points:
        return NONE
    low, high = wilson(fmean(points), len(points))
    return f"{fmean(points):.0%} ({low:.0%} to {high:.0%})"


def _listed(neighbours: Sequence[Plain]) -> str:
    return ", ".join(f"{each['word']} {each['cosine']:.2f}".replace("-", MINUS) for each in neighbours)


def _ends(interval: Interval) -> str:
    if interval.low is None or interval.high is None:
        return "\N{EN DASH}"
    return f"{signed(interval.low)} to {signed(interval.high)}"


def _finding(arm: MeaningArm, text: str, holds: bool | None = None) -> "Finding":
    text = f"{arm.title[:1].upper()}{arm.title[1:]}: {text}"
    if len(arm.runs) < ENOUGH_SEEDS:
        return Finding(
            NAME, arm.name, f"{text} That is from {len(arm.runs)} of the {ENOUGH_SEEDS} seeds a verdict needs."
        )
    return Finding(NAME, arm.name, text, holds)

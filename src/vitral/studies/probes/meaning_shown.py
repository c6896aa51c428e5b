"""What the probe `meaning` has to show: tables of neighbours and pairs, senses by layer, and what follows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING

from vitral.figures.lines import Axis, Line, line_plot
from vitral.figures.sections import Heading, Paragraph, Section, Table
from vitral.inspection import wilson
from vitral.studies.probes.protocol import ByRun, Exhibit, Plain, Plot
from vitral.studies.statistics import CONFIDENCE, Interval, mean_interval
from vitral.studies.wording import MINUS, signed

if TYPE_CHECKING:
    from vitral.studies.results import StudyResult
    from vitral.studies.verdict import Finding

NAME = "meaning"
CHANCE = 0.5
TIE = 1e-4
"""Nats by which rounding may part two sentences that are equally probable."""
LEAST_APART = 0.001
"""A smaller mean difference of cosines is none: rounding alone gives some."""
LEAST_WORDS = 3
"""Fewer words of two meanings allow no interval worth having."""


@dataclass(frozen=True)
class _Arm:
    """An arm and what was measured of it, by seed."""

    name: str
    title: str
    runs: Mapping[int, Plain]

    @property
    def first(self) -> Plain:
        """The first seed's."""
        return next(iter(self.runs.values()))

    @property
    def correlations(self) -> list[float]:
        """Of embedding and counted contexts, one for each seed that has enough words."""
        return [run["neighbours"]["correlation"] for run in self.runs.values() if run["neighbours"]]

    @property
    def shuffled(self) -> list[float]:
        """The highest correlation of a shuffled embedding, one for each such seed."""
        return [max(run["neighbours"]["shuffled"]) for run in self.runs.values() if run["neighbours"]]

    def senses(self, what: str) -> dict[str, list[float]]:
        """By word, a cosine at every place, mean over seeds."""
        columns = [{sense["word"]: sense[what] for sense in run["senses"]} for run in self.runs.values()]
        shared = [word for word in columns[0] if all(word in column for column in columns)]
        return {
            word: [fmean(place) for place in zip(*(column[word] for column in columns), strict=True)] for word in shared
        }

    @property
    def separations(self) -> dict[str, list[float]]:
        """By word, within a sense less across senses at every place, mean over seeds."""
        across = self.senses("across")
        return {
            word: [one - other for one, other in zip(places, across[word], strict=True)]
            for word, places in self.senses("within").items()
        }

    def right(self, kind: str | None = None) -> list[float]:
        """For each pair of a kind (of all if None) the share of seeds that prefer the good one; a tie is half."""
        columns = [
            [pair["preference"] for pair in run["pairs"] if kind in (None, pair["kind"])] for run in self.runs.values()
        ]
        return [fmean(map(_point, seeds)) for seeds in zip(*columns, strict=True) if None not in seeds]

    @property
    def moved(self) -> list[float]:
        """For each subject the share of seeds in which its form moves the preference the right way; a tie is half.

        A subject has two pairs, one after the other. What prefers one form whatever the subject gains in the one what
        it loses in the other, so their sum tells whether the subject matters, however strong that preference is.
        """
        columns = [[pair["preference"] for pair in run["pairs"]] for run in self.runs.values()]
        both = [
            [None if None in two else sum(two) for two in zip(column[::2], column[1::2], strict=True)]
            for column in columns
        ]
        return [fmean(map(_point, seeds)) for seeds in zip(*both, strict=True) if None not in seeds]

    @property
    def kinds(self) -> list[str]:
        """Of pairs, in order, those with a pair that could be scored."""
        kinds = dict.fromkeys(pair["kind"] for pair in self.first["pairs"])
        return [kind for kind in kinds if self.right(kind)]


def _point(preference: float) -> float:
    if abs(preference) < TIE:
        return CHANCE
    return 1.0 if preference > 0 else 0.0


def show(result: "StudyResult", measured: ByRun) -> Exhibit:
    """Neighbours, senses by layer and minimal pairs, by arm."""
    arms = [
        _Arm(arm.arm.name, arm.arm.title, dict(sorted(measured[arm.arm.name].items())))
        for arm in result.arms
        if measured.get(arm.arm.name)
    ]
    if not arms:
        return Exhibit()
    parts = (_neighbours(arms), _senses(arms), _pairs(arms))
    expected = Paragraph(
        "A model this small, trained on one text for a few minutes, is expected to know little of meaning. What "
        "follows says what can be told from chance."
    )
    sections = [section for shown, _ in parts for section in shown]
    return Exhibit((expected, *sections), tuple(finding for _, found in parts for finding in found))


Shown = tuple[list[Section | Plot], "list[Finding]"]


def _neighbours(arms: Sequence[_Arm]) -> Shown:
    arms = [arm for arm in arms if arm.correlations]
    heading = Heading("Neighbours of words")
    if not arms:
        return [heading, Paragraph("Too few whole words are tokens, so there are no neighbours to show.")], []
    base, found = arms[0], arms[0].first["neighbours"]
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


def _agreement(arm: _Arm) -> tuple[str, str, str, str]:
    interval = mean_interval(arm.correlations)
    return arm.title, signed(interval.mean), _ends(interval), signed(max(arm.shuffled))


def _agrees(arm: _Arm) -> "Finding":
    """Whether the embedding agrees with counted contexts more than every shuffled one, in every seed."""
    mean, highest = fmean(arm.correlations), max(arm.shuffled)
    sizes = f"rank correlation {signed(mean)} over pairs of words, at most {signed(highest)} when shuffled"
    above = [own > chance for own, chance in zip(arm.correlations, arm.shuffled, strict=True)]
    if all(above):
        return _finding(arm, f"words with like vectors stand in like contexts ({sizes}).", True)
    if not any(above):
        return _finding(arm, f"likeness of vectors is not told from chance ({sizes}).", False)
    return _finding(arm, f"likeness of vectors is told from chance in {sum(above)} of {len(above)} seeds ({sizes}).")


def _senses(arms: Sequence[_Arm]) -> Shown:
    heading = Heading("The same word in two contexts")
    arms = [arm for arm in arms if len(arm.separations) >= LEAST_WORDS]
    if not arms:
        return [heading, Paragraph("Too few of the words with two meanings fit the tokenizer and the model.")], []
    base, within, across = arms[0], arms[0].senses("within"), arms[0].senses("across")
    how = (
        "Sentences written for this study use a word in two senses, told by the words before it. Before each stands as "
        "much of one passage of the test part as brings the word to the same position. The cosine of the residual "
        "stream at the word's last token is taken between sentences of the same sense and of different senses. In the "
        "embedding all are the same vector; what sets senses apart can come only from attention to the words before."
    )
    steps = list(range(len(base.first["places"])))
    axis = Axis("after block (0: the embedding)", ticks=steps)
    series = {"same sense": within, "other sense": across}
    lines = [Line(label, steps, _mean_by_place(values)) for label, values in series.items()]
    last = [fmean(places[-1] for places in values.values()) for values in (within, across)]
    alt = f"After the last block {last[0]:.3f} within a sense and {last[1]:.3f} across senses."
    caption = f"Mean cosine over {len(within)} words of two senses and all seeds: {base.title}."
    figure = line_plot(lines, axis, Axis("cosine of a word's vectors"), title="One word, same and other sense")
    shown: list[Section | Plot] = [heading, Paragraph(how), Plot(figure, "senses-by-layer", caption, alt)]
    figure = line_plot(
        [_band(arm) for arm in arms],
        axis,
        Axis("100 × cosine, same less other sense"),
        title="How far senses are apart",
    )
    caption = "Cosine within a sense less cosine across senses, in hundredths; mean over words with its 95% interval."
    alt = "; ".join(f"{arm.title} {signed(_mean_by_place(arm.separations)[-1])}" for arm in arms)
    shown.append(Plot(figure, "senses-apart", caption, f"After the last block: {alt}."))
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


def _band(arm: _Arm) -> Line:
    """An arm's separation by place in hundredths, which are short to write, with its interval over words."""
    intervals = [mean_interval([100 * each for each in place]) for place in zip(*arm.separations.values(), strict=True)]
    low = [interval.mean if interval.low is None else interval.low for interval in intervals]
    high = [interval.mean if interval.high is None else interval.high for interval in intervals]
    return Line(arm.title, list(range(len(intervals))), [interval.mean for interval in intervals], low, high)


def _apart(arm: _Arm) -> "Finding":
    """Whether senses lie further apart after the last block than in the embedding; words are the sample."""
    gains = [places[-1] - places[0] for places in arm.separations.values()]
    interval = mean_interval(gains)
    ends = f"95% interval over {len(gains)} words {_ends(interval)}"
    sizes = f"{signed(interval.mean)} from the embedding to the last block, {ends}"
    if abs(interval.mean) < LEAST_APART:
        return _finding(arm, f"both senses of a word have the same vector, to within {LEAST_APART} ({sizes}).", False)
    if interval.low is not None and interval.low > 0:
        return _finding(arm, f"the blocks set two senses of a word apart ({sizes}).", True)
    if interval.high is not None and interval.high < 0:
        return _finding(arm, f"the blocks bring two senses of a word nearer to one another ({sizes}).", False)
    return _finding(arm, f"no separation of senses told from chance ({sizes}).", False)


def _pairs(arms: Sequence[_Arm]) -> Shown:
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


def _judged(arm: _Arm, kind: str | None) -> tuple[float, float, float]:
    """The share right and its interval."""
    right = arm.right(kind)
    if not right:
        return CHANCE, 0.0, 1.0
    confidence = CONFIDENCE if kind is None else 1 - (1 - CONFIDENCE) / len(arm.kinds)
    return (fmean(right), *wilson(fmean(right), len(right), confidence))


def _share(arm: _Arm, kind: str | None) -> str:
    share, low, high = _judged(arm, kind)
    return f"{share:.0%} ({low:.0%} to {high:.0%})"


def _knows(arm: _Arm) -> "Finding":
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
    moved = f"Whatever form it prefers, the subject moves it the right way for {_interval(arm.moved)} of the subjects"
    return _finding(arm, f"{overall}, {where}. By kind, {listed}. {moved}.", holds)


def _interval(points: Sequence[float]) -> str:
    if not points:
        return "none"
    low, high = wilson(fmean(points), len(points))
    return f"{fmean(points):.0%} ({low:.0%} to {high:.0%})"


def _listed(neighbours: Sequence[Plain]) -> str:
    return ", ".join(f"{each['word']} {each['cosine']:.2f}".replace("-", MINUS) for each in neighbours)


def _ends(interval: Interval) -> str:
    if interval.low is None or interval.high is None:
        return "\N{EN DASH}"
    return f"{signed(interval.low)} to {signed(interval.high)}"


def _finding(arm: _Arm, text: str, holds: bool | None = None) -> "Finding":
    from vitral.studies.verdict import Finding

    return Finding(NAME, arm.name, f"{arm.title[:1].upper()}{arm.title[1:]}: {text}", holds)

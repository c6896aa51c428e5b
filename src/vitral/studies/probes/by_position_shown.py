"""What is shown of the losses by position: two figures, two tables, and findings by rule."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from jaxtyping import Float, Int

from vitral.figures.lines import MOST_LINES, Axis, Line, left_out, line_plot
from vitral.figures.sections import Heading, Paragraph, Section, Table
from vitral.studies.probes.protocol import ByRun, Exhibit, Plain, Plot
from vitral.studies.results import StudyResult
from vitral.studies.statistics import Interval, holm, mean_interval, paired_difference
from vitral.studies.verdict import ENOUGH_SEEDS, LEVEL, Finding
from vitral.studies.wording import NONE, SPACE, capital, nats, p_clause, signed

RULE = "by-position"
KEEPS = 0.05
"""Nats within which a loss counts as kept beyond the trained length."""
NOT_SCORED = "not all quarters have a loss that could be compared"


@dataclass(frozen=True)
class _Arm:
    """What was measured of one arm; arrays have a row for each seed, and NaN where there is no loss."""

    name: str
    title: str
    context_length: int
    seeds: tuple[int, ...]
    inside: Float[np.ndarray, "seeds time"]
    multiple: int
    beyond: Float[np.ndarray, "seeds places"]
    why: str

    @property
    def scored(self) -> Int[np.ndarray, " scored"]:
        """The positions inside at which every seed has a loss."""
        return np.flatnonzero(np.isfinite(self.inside).all(axis=0))

    @property
    def goes_on(self) -> bool:
        """Whether it was measured beyond the trained length, and just before it."""
        return not self.why and bool(np.isfinite(self.past(1, self.multiple)).all())

    def between(self, begin: int, end: int) -> Float[np.ndarray, " seeds"]:
        """The mean loss inside at positions begin + 1 … end."""
        losses = self.inside[:, begin:end]
        losses = losses[:, np.isfinite(losses).all(axis=0)]
        return losses.mean(axis=1) if losses.size else np.full(len(self.seeds), np.nan)

    def past(self, begin: int, end: int) -> Float[np.ndarray, " seeds"]:
        """The loss between `begin` and `end` context lengths less that in the last quarter of the first."""
        quarters = self.beyond.shape[1] // self.multiple
        return self.beyond[:, begin * quarters : end * quarters].mean(axis=1) - self.beyond[:, quarters - 1]


def show(result: StudyResult, measured: ByRun) -> Exhibit:
    """Figures of the loss by position and beyond the trained length, tables, findings.

    An arm "keeps" its loss beyond the trained length where the difference to the last quarter of the trained length
    lies within `KEEPS` nats of zero, "loses" (or "gains") where it lies outside. Either is said where a paired t test
    of the difference against the nearer of the two limits is significant after Holm's correction over the arms.
    """
    named = [(arm.arm.name, arm.arm.title) for arm in result.arms]
    arms = [_gathered(name, title, measured[name]) for name, title in named if measured.get(name)]
    if not arms:
        return Exhibit()
    sections: list[Section | Plot] = [Heading("Loss by position in the window")]
    drawn = [arm for arm in arms if arm.scored.size]
    sections += [*([_inside_figure(drawn)] if drawn else []), _inside_table(arms), Heading("Beyond the trained length")]
    sections += _beyond_sections(arms)
    return Exhibit(tuple(sections), (*_inside_findings(arms), *_beyond_findings(arms)))


def half_doublings(length: int) -> list[tuple[int, int]]:
    """Groups of positions [begin, end) counted from 0, two to each doubling of the position.

    >>> half_doublings(16)
    [(0, 1), (1, 2), (2, 3), (3, 4), (4, 6), (6, 8), (8, 12), (12, 16)]
    """
    edges, edge, width = [0], 1, 1
    while edge < length:
        edges.append(edge)
        if edge >= 4 and edge & (edge - 1) == 0:
            width = edge // 2
        edge += width
    edges.append(length)
    return list(pairwise(edges))


def _gathered(name: str, title: str, runs: Mapping[int, Plain]) -> _Arm:
    """One arm's measures, seeds in order; beyond its context only what all seeds have."""
    seeds = tuple(sorted(runs))
    beyond = [runs[seed]["beyond"] for seed in seeds]
    length = int(runs[seeds[0]]["context_length"])
    return _Arm(
        name=name,
        title=title,
        context_length=length,
        seeds=seeds,
        inside=np.array([runs[seed]["inside"]["nats"] for seed in seeds], dtype=np.float64),
        multiple=int(beyond[0]["length"]) // length,
        beyond=np.array([one["nats"] or [] for one in beyond], dtype=np.float64),
        why=next((one["why"] for one in beyond if "why" in one), ""),
    )


def _inside_figure(arms: Sequence[_Arm]) -> Plot:
    lines = []
    for arm in arms[:MOST_LINES]:
        groups = half_doublings(arm.context_length)
        middles = [(begin + 1 + end) / 2 for begin, end in groups]
        lines.append(Line(arm.title, middles, [float(arm.between(*group).mean()) for group in groups]))
    longest = max(arm.context_length for arm in arms)
    ticks = [2**power for power in range(longest.bit_length()) if 2**power <= longest]
    figure = line_plot(
        lines,
        Axis("position in the window (tokens)", log=True, ticks=ticks),
        Axis("test loss (nats per token)"),
        title="Loss by position",
    )
    ends = ", ".join(f"{arm.title} from {_loss(arm.between(0, 1))} to {_loss(_last(arm))}" for arm in arms)
    caption = (
        "Mean test loss at the positions of a window, in groups two to each doubling; mean over seeds. The first "
        "position knows one token, the last a whole window."
        f"{left_out([arm.title for arm in arms])}"
    )
    return Plot(figure, "loss-by-position", caption, f"Test loss, first position to last quarter: {ends}.")


def _last(arm: _Arm) -> Float[np.ndarray, " seeds"]:
    """By seed, the loss in the last quarter of the window."""
    return arm.between(3 * arm.context_length // 4, arm.context_length)


def _loss(by_seed: Float[np.ndarray, " seeds"]) -> str:
    """The mean over seeds, or a dash."""
    mean = float(by_seed.mean())
    return nats(mean) if math.isfinite(mean) else NONE


def _inside_table(arms: Sequence[_Arm]) -> Table:
    """Mean losses in groups that grow fourfold."""
    length = max(arm.context_length for arm in arms)
    edges = [0, *(edge for edge in (4**power for power in range(12)) if edge < length), length]
    groups = list(pairwise(edges))
    columns = ("positions", *(f"{b + 1}" if e == b + 1 else f"{b + 1}\N{EN DASH}{e}" for b, e in groups))
    rows = []
    for arm in arms:
        cells = [NONE if b >= arm.context_length else _loss(arm.between(b, e)) for b, e in groups]
        rows.append((arm.title, *cells))
    return Table("Test loss by position in the window, nats per token, mean over seeds.", columns, tuple(rows))


def _inside_findings(arms: Sequence[_Arm]) -> list[Finding]:
    """Whether what separates an arm from the base changes along the window."""
    base, rows, findings = arms[0], [], []
    for arm in arms[1:]:
        seeds = [seed for seed in base.seeds if seed in arm.seeds]
        if not seeds or arm.context_length != base.context_length:
            continue
        places = np.intersect1d(arm.scored, base.scored)
        if len(places) < 2:
            text = (
                f"{capital(arm.title)}: too few positions are scored to compare it with {base.title} along the window."
            )
            findings.append(Finding(RULE, arm.name, text))
            continue
        quarters = places[: max(1, len(places) // 4)], places[3 * len(places) // 4 :]
        gaps = [_gap(arm, base, seeds, quarter) for quarter in quarters]
        what = "the window" if len(places) == base.context_length else "the positions that are scored"
        rows.append((arm, len(seeds), what, *gaps, paired_difference(gaps[1].tolist(), gaps[0].tolist())))
    tested = [row[5].p_value for row in rows if row[5].p_value is not None]
    adjusted = iter(holm(tested))
    for arm, num, what, early, late, paired in rows:
        p = None if paired.p_value is None else next(adjusted)
        text = (
            f"{capital(arm.title)}: against {base.title}, {signed(float(early.mean()))} nats in the first quarter of "
            f"{what} and {signed(float(late.mean()))} in the last"
        )
        if p is None or num < ENOUGH_SEEDS:
            text, holds = f"{text}, from {num} seed{'s' * (num > 1)}: too few to say whether that changes.", None
        elif p >= LEVEL:
            text, holds = f"{text}; no change along the window seen ({p_clause(p)} after Holm's correction).", False
        else:
            text, holds = f"{text}, a change along the window ({p_clause(p)} after Holm's correction).", True
        findings.append(Finding(RULE, arm.name, text, holds))
    return findings


def _gap(
    arm: _Arm, base: _Arm, seeds: Sequence[int], places: Int[np.ndarray, " places"]
) -> Float[np.ndarray, " seeds"]:
    """By seed, arm minus base, at these positions."""

    def of(one: _Arm) -> Float[np.ndarray, " seeds"]:
        return one.inside[[one.seeds.index(seed) for seed in seeds]][:, places].mean(axis=1)

    return of(arm) - of(base)


def _beyond_sections(arms: Sequence[_Arm]) -> list[Section | Plot]:
    measured = [arm for arm in arms if np.isfinite(arm.beyond).all(axis=0).any()]
    if not measured:
        return [Paragraph("; ".join(f"{arm.title}: {arm.why or NOT_SCORED}" for arm in arms) + ".")]
    return [_beyond_figure(measured), _beyond_table(measured)]


def _beyond_figure(arms: Sequence[_Arm]) -> Plot:
    lines, lowest, highest = [], np.inf, -np.inf
    for arm in arms[:MOST_LINES]:
        place = arm.multiple * arm.context_length / arm.beyond.shape[1]
        means = arm.beyond.mean(axis=0)
        lines.append(Line(arm.title, [place * (g + 0.5) for g in range(len(means))], means.tolist()))
        there = means[np.isfinite(means)]
        lowest, highest = min(lowest, there.min()), max(highest, there.max())
    borders = sorted({arm.context_length for arm in arms})
    lines += [Line("", (border, border), (float(lowest), float(highest)), theory=True) for border in borders]
    longest, most = max((arm.multiple * arm.context_length, arm.multiple) for arm in arms)
    step = max(1, borders[0] if most > 2 else borders[0] // 2)
    figure = line_plot(
        lines,
        Axis("position in a longer window (tokens)", ticks=range(0, longest, step)),
        Axis("test loss (nats per token)"),
        title="Beyond the trained length",
    )
    caption = (
        "Loss on the same target tokens at every quarter of a context length; mean over seeds. The upright dashed "
        f"line marks the trained length, {' and '.join(map(str, borders))} tokens; a model that cannot read on ends "
        f"there.{left_out([arm.title for arm in arms])}"
    )
    reaching = [arm for arm in arms if arm.goes_on]
    ends = ", ".join(f"{arm.title} {signed(float(arm.past(1, arm.multiple).mean()))} nats" for arm in reaching)
    return Plot(
        figure,
        "loss-beyond-the-trained-length",
        caption,
        f"Beyond the trained length: {ends or 'no model reads so far'}.",
    )


def _beyond_table(arms: Sequence[_Arm]) -> Table:
    multiple = max(arm.multiple for arm in arms)
    reaches = [(1, 2), *([(2, multiple)] if multiple > 2 else [])]
    columns = ["positions", "last quarter inside"]
    columns += [f"to {end} lengths, difference" for _, end in reaches]
    rows = []
    for arm in arms:
        inside = _loss(arm.beyond[:, arm.beyond.shape[1] // arm.multiple - 1])
        if not arm.goes_on:
            rows.append((arm.title, inside, *([NONE] * len(reaches))))
            continue
        cells = [_difference(mean_interval(arm.past(*reach).tolist())) for reach in reaches]
        rows.append((arm.title, inside, *cells))
    return Table(
        "Loss in the last quarter of the trained length, and by how much it is higher beyond, on the same targets; "
        f"nats per token, mean over seeds with 95% intervals. {NONE}: the model cannot read that far, or has no "
        "loss there.",
        tuple(columns),
        tuple(rows),
    )


def _beyond_findings(arms: Sequence[_Arm]) -> list[Finding]:
    """Where an arm's loss beyond its trained length lies, or why there is none."""
    past = {arm.name: arm.past(1, arm.multiple).tolist() for arm in arms if arm.goes_on}
    raw = {name: _against_limit(values) for name, values in past.items()}
    tested = {name: p for name, p in raw.items() if p is not None}
    adjusted = dict(zip(tested, holm(list(tested.values())), strict=True))
    return [
        _beyond_finding(arm, past[arm.name], adjusted.get(arm.name))
        if arm.name in past
        else Finding(
            RULE,
            arm.name,
            f"{capital(arm.title)}: nothing beyond {arm.context_length} tokens, since {arm.why or NOT_SCORED}.",
        )
        for arm in arms
    ]


def _against_limit(past: Sequence[float]) -> float | None:
    """The p value of a mean on its side of the nearer limit, `KEEPS` above or below zero.

    It is the least level at which the confidence interval has no limit inside.
    """
    nearer = KEEPS if math.fsum(past) > 0 else -KEEPS
    return paired_difference(past, [nearer] * len(past)).p_value


def _beyond_finding(arm: _Arm, past: Sequence[float], p: float | None) -> Finding:
    title, between = capital(arm.title), mean_interval(past)
    size = f"{_difference(between)} nats from {arm.context_length} to {arm.multiple * arm.context_length} tokens"
    if p is None or between.num < ENOUGH_SEEDS:
        text = f"{title}: {size}, from {between.num} seed{'s' * (between.num > 1)}: too few for a verdict."
        return Finding(RULE, arm.name, text)
    sure = f"{p_clause(p)} after Holm's correction"
    if p >= LEVEL:
        text = f"{title}: {size}; not told whether it keeps its loss within {KEEPS} nats ({sure})."
        return Finding(RULE, arm.name, text)
    if abs(between.mean) <= KEEPS:
        text = f"{title} keeps its loss beyond its trained length, within {KEEPS} nats: {size}; {sure}."
        return Finding(RULE, arm.name, text, holds=True)
    way = "loses" if between.mean > 0 else "gains"
    text = f"{title} {way} beyond its trained length: {size}, more than {KEEPS} nats; {sure}."
    return Finding(RULE, arm.name, text, holds=between.mean < 0)


def _difference(between: Interval) -> str:
    """A difference with its interval."""
    if between.low is None or between.high is None:
        return signed(between.mean)
    return f"{signed(between.mean)} ({signed(between.low)} to {signed(between.high)})".replace(" ", SPACE)

"""What the probe `head-patterns` has to show: what heads attend to, how alike they are, what each is worth."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING

from vitral.figures.grid import MOST_ROWS, value_grid
from vitral.figures.intervals import Row, interval_dots
from vitral.figures.sections import Heading, Listing, Paragraph, Section, Table
from vitral.inspection import BROAD, KINDS, LEAST_KEYS, NAMED_FROM
from vitral.studies.probes.protocol import ByRun, Exhibit, Plain, Plot
from vitral.studies.statistics import Interval, PairedDifference, holm, mean_interval, paired_difference
from vitral.studies.verdict import ENOUGH_SEEDS, LEVEL, Finding
from vitral.studies.wording import MINUS, NONE, interval_text, nats, p_clause, signed

if TYPE_CHECKING:
    from vitral.studies.results import StudyResult

NAME = "head-patterns"
SEVERAL = 2
"""Different kinds of position that make heads "see several things"."""


@dataclass(frozen=True)
class _Arm:
    """An arm's numbers over its seeds.

    Attributes:
        name: the arm's.
        title: the arm's.
        num_heads: of each layer.
        runs: what was measured, by seed.
    """

    name: str
    title: str
    num_heads: int
    runs: Mapping[int, Plain]

    @property
    def names(self) -> Counter[str]:
        """How many heads of all runs have each name."""
        return Counter(head["name"] for run in self.runs.values() for head in _heads(run))

    @property
    def distinct(self) -> dict[int, float]:
        """By seed, how many different kinds the heads are named after."""
        return {seed: float(len({head["name"] for head in _heads(run)} - {BROAD})) for seed, run in self.runs.items()}

    @property
    def overlaps(self) -> dict[int, float]:
        """By seed, the mean over layers; empty where a layer has one head."""
        if self.num_heads < SEVERAL:
            return {}
        return {seed: fmean(layer["overlap"] for layer in run["layers"]) for seed, run in self.runs.items()}

    def single(self, way: str) -> dict[int, float]:
        """By seed, what the loss rises by without one head, mean over heads."""
        return {seed: fmean(head[way]["increase"] for head in _heads(run)) for seed, run in self.runs.items()}

    def most(self, way: str) -> dict[int, float]:
        """By seed, the same for the head that matters most."""
        return {seed: max(head[way]["increase"] for head in _heads(run)) for seed, run in self.runs.items()}

    def added(self, way: str) -> dict[int, float]:
        """By seed, the sum of what single heads of a layer cost, mean over layers."""
        return {
            seed: fmean(sum(head[way]["increase"] for head in layer["heads"]) for layer in run["layers"])
            for seed, run in self.runs.items()
        }

    def together(self, way: str) -> dict[int, float]:
        """By seed, what all heads of a layer together cost, mean over layers."""
        return {
            seed: fmean(layer["all"][way]["increase"] for layer in run["layers"]) for seed, run in self.runs.items()
        }

    def mean_of(self, what: str) -> float:
        """A number of every head, mean over heads and seeds."""
        return fmean(head[what] for run in self.runs.values() for head in _heads(run))


def _heads(run: Plain) -> list[Plain]:
    return [head for layer in run["layers"] for head in layer["heads"]]


def show(result: "StudyResult", measured: ByRun) -> Exhibit:
    """What heads attend to, how alike they are and what each is worth, by arm in order of the number of heads."""
    if not any(measured.values()):
        return Exhibit()
    arms = _arms(result, measured)
    if not arms:
        return Exhibit((Heading("What the heads do"), Paragraph("No finished run of this study has attention.")))
    base = next((arm for arm in arms if arm.name == result.arms[0].arm.name), arms[0])
    sections: list[Section | Plot] = [*_introduction(), _map_of(base), _table_of_kinds(arms)]
    sections += [Heading("How alike the heads of a layer are", 3), *_overlap(arms)]
    sections += [Heading("What one head is worth", 3), *_knock_out(arms)]
    return Exhibit(tuple(sections), tuple(_findings(arms)))


def _arms(result: "StudyResult", measured: ByRun) -> list[_Arm]:
    arms = []
    for arm in result.arms:
        runs = {seed: run for seed, run in sorted(measured.get(arm.arm.name, {}).items()) if run["layers"]}
        if runs:
            arms.append(_Arm(arm.arm.name, arm.arm.title, int(arm.config["model"]["num_heads"]), runs))
    return sorted(arms, key=lambda arm: arm.num_heads)


def _introduction() -> list[Section]:
    how = (
        "In windows of the test part, the mean share of a head's weight that lies on keys of each kind, over positions "
        f"that see at least {LEAST_KEYS} keys and one of that kind. Kinds overlap, so shares need not add up to one. "
        f"A head is named after the kind on which it has most weight beyond uniform attention, if that is at least "
        f"{NAMED_FROM:.2f} of its weight; otherwise it is called broad."
    )
    kinds = tuple(f"{kind}: {meaning}" for kind, meaning in KINDS.items())
    return [Heading("What the heads attend to"), Paragraph(how), Listing(kinds)]


def _map_of(arm: _Arm) -> Plot:
    """Every head of an arm's first seed, of its first layers where all are too many to read, and uniform attention."""
    seed, run = next(iter(arm.runs.items()))
    heads = [
        (layer, head, each) for layer, found in enumerate(run["layers"]) for head, each in enumerate(found["heads"])
    ]
    fitting = max(1, (MOST_ROWS - 1) // arm.num_heads) * arm.num_heads
    drawn = heads[: min(fitting, MOST_ROWS - 1)]
    rows = [f"block {layer}, head {head}: {each['name']}" for layer, head, each in drawn]
    values = [[each["share"][kind] for kind in KINDS] for _, _, each in drawn]
    apart = [row for row, (_, head, _) in enumerate(drawn) if head == 0] + [len(rows)]
    figure = value_grid(
        [*values, [run["uniform"][kind] for kind in KINDS]],
        [*rows, "uniform attention"],
        list(KINDS),
        "share of attention weight",
        apart=apart[1:],
        title=f"What heads attend to: {arm.title}, seed {seed}",
    )
    counts = Counter(each["name"] for _, _, each in drawn)
    caption = (
        "Share of each head's weight by kind of key; the row below is what even attention over all visible keys would "
        "give. A blank cell: no position sees such a key."
    )
    if len(drawn) < len(heads):
        caption += f" Shown are the first {len(drawn)} of {len(heads)} heads, as many as can be read."
    return Plot(figure, "heads-attend-to", caption, f"{_counted(counts)} among {len(rows)} heads.")


def _table_of_kinds(arms: list[_Arm]) -> Table:
    rows = []
    for arm in arms:
        rows.append(
            (
                arm.title,
                _counted(arm.names),
                f"{fmean(arm.distinct.values()):.1f}",
                f"{arm.mean_of('distance'):.1f}",
                f"{arm.mean_of('entropy'):.2f}",
            )
        )
    first = next(iter(arms[0].runs.values()))
    rows.append(("uniform attention", NONE, NONE, f"{first['uniform_distance']:.1f}", "1.00"))
    return Table(
        "What heads are named after, over all layers and seeds; different kinds in one run; mean distance looked back, "
        "in tokens; entropy of the weights as a share of the most possible.",
        ("arm", "heads", "kinds a run", "distance", "entropy"),
        tuple(rows),
        prose=(1,),
    )


def _overlap(arms: list[_Arm]) -> list[Section | Plot]:
    several = [arm for arm in arms if arm.overlaps]
    how = (
        "Two heads are as alike as 1 - JSD / ln 2 of their weights, with JSD the Jensen-Shannon divergence (Lin 1991): "
        "1 when both attend alike, 0 when they share no key; the mean over all pairs of a layer, positions and layers."
    )
    if not several:
        return [Paragraph(f"{how} No arm has two heads in a layer.")]
    rows = [_row(arm.title, arm.overlaps) for arm in several]
    figure = interval_dots(rows, title="How alike the heads of a layer attend", x_label="overlap (0 to 1)")
    alt = "; ".join(f"{arm.title} {fmean(arm.overlaps.values()):.2f}" for arm in several)
    caption = "Mean overlap of the heads of a layer; a dot for each seed, the mean with its 95% interval."
    return [Paragraph(how), Plot(figure, "heads-overlap", caption, f"Overlap: {alt}.")]


def _knock_out(arms: list[_Arm]) -> list[Section | Plot]:
    how = (
        "What the loss rises by, on the same windows of the test part, when a head's output z is replaced by zeros, or "
        "by its mean over those windows, in the model as it was trained. The sum of what single heads cost stands "
        "beside what all heads of a layer cost together: where the sum is smaller, heads stand in for one another. "
        "At a fixed width one of h heads is an h-th of it, so more heads are each worth less for that alone."
    )
    figure = interval_dots(
        [_row(arm.title, arm.single("zero")) for arm in arms],
        title="What one head is worth",
        x_label="loss increase without one head (nats per token)",
    )
    alt = "; ".join(f"{arm.title} {nats(fmean(arm.single('zero').values()))}" for arm in arms)
    caption = "Rise of the loss with one head's output set to zero, mean over heads; dots are seeds, 95% intervals."
    rows = tuple(
        (
            arm.title,
            *(nats(fmean(arm.single(way).values())) for way in ("zero", "mean")),
            *(nats(fmean(of("zero").values())) for of in (arm.most, arm.added, arm.together)),
        )
        for arm in arms
    )
    columns = ("arm", "one head (zeros)", "one head (its mean)", "dearest head", "sum over a layer", "whole layer")
    table = Table(
        "Rise of the loss in nats per token, means over seeds; zeros from the third number on.", columns, rows
    )
    return [Paragraph(how), Plot(figure, "heads-knock-out", caption, f"Loss increase: {alt}."), table]


def _row(title: str, values: Mapping[int, float]) -> Row:
    interval = mean_interval(list(values.values()))
    return Row(title, list(values.values()), interval.mean, interval.low, interval.high)


def _counted(names: Counter[str]) -> str:
    """`3 previous, 2 near, 1 broad`: the most frequent first, broad heads last."""
    kinds = sorted((name for name in names if name != BROAD), key=lambda name: (-names[name], name))
    return ", ".join(f"{names[name]} {name}" for name in [*kinds, *([BROAD] if names[BROAD] else [])])


@dataclass(frozen=True)
class _Question:
    """Two numbers of each seed, compared pair by pair.

    Attributes:
        arm: that is spoken of.
        sizes: what was found, in words.
        one: by seed.
        other: by seed.
        more: what it means where the first is larger.
        less: where the second is.
        holds: what the finding then says of the claim, (more, less).
    """

    arm: _Arm
    sizes: str
    one: Mapping[int, float]
    other: Mapping[int, float]
    more: str
    less: str
    holds: tuple[bool, bool] = (True, True)

    @property
    def paired(self) -> PairedDifference | None:
        """The comparison over the seeds that both have; None with fewer than `ENOUGH_SEEDS`."""
        shared = [seed for seed in self.one if seed in self.other]
        if len(shared) < ENOUGH_SEEDS:
            return None
        return paired_difference([self.one[seed] for seed in shared], [self.other[seed] for seed in shared])


def _findings(arms: list[_Arm]) -> "list[Finding]":
    """What heads are named after, and every comparison, p values adjusted for all of them (Holm)."""
    several = [arm for arm in arms if arm.overlaps]
    questions: list[_Question] = []
    if len(several) > 1:
        questions.append(_between(several[-1], several[0], "the overlap of a layer's heads", lambda arm: arm.overlaps))
    if len(arms) > 1:
        what = "the loss increase without one head (nats per token)"
        questions.append(_between(arms[-1], arms[0], what, lambda arm: arm.single("zero")))
    questions += [_standing_in(arm) for arm in several]
    pairs = [question.paired for question in questions]
    known = [paired.p_value for paired in pairs if paired is not None and paired.p_value is not None]
    adjusted = iter(holm(known))
    answers = [
        _answer(question, paired, None if paired is None or paired.p_value is None else next(adjusted), len(known))
        for question, paired in zip(questions, pairs, strict=True)
    ]
    return [*(_several_things(arm) for arm in arms if arm.num_heads >= SEVERAL), *answers]


def _answer(question: _Question, paired: PairedDifference | None, p: float | None, tests: int) -> "Finding":
    arm, sizes = question.arm, question.sizes
    if paired is None or p is None:
        seeds = len(set(question.one) & set(question.other))
        return _finding(arm, f"{sizes}; {seeds} of the {ENOUGH_SEEDS} seeds that a verdict needs.")
    corrected = f"{p_clause(p)} after Holm's correction over {tests} comparisons" if tests > 1 else p_clause(p)
    size = f"{_difference(paired.difference)}, {corrected}"
    if p >= LEVEL:
        return _finding(arm, f"{sizes}: no difference seen at this budget ({size}).", False)
    larger = paired.difference.mean > 0
    text = f"{sizes}: {question.more if larger else question.less} ({size})."
    return _finding(arm, text, question.holds[0 if larger else 1])


def _several_things(arm: _Arm) -> "Finding":
    """Whether the heads of each run are named after several kinds."""
    distinct = list(arm.distinct.values())
    named = sum(count for name, count in arm.names.items() if name != BROAD)
    found = f"{named} of {sum(arm.names.values())} heads of all seeds are named after a kind: {_counted(arm.names)}."
    every = f"the heads see several things (kinds in a run: {_span(distinct)})."
    enough = len(distinct) >= ENOUGH_SEEDS
    if min(distinct) >= SEVERAL:
        return _finding(arm, f"{found} In every run {every}", True if enough else None)
    if max(distinct) < SEVERAL:
        none = every.replace("the heads see", "do the heads see", 1)
        return _finding(arm, f"{found} In no run {none}", False if enough else None)
    return _finding(arm, f"{found} In some runs {every.replace(' (', ', in others not (', 1)}")


def _between(arm: _Arm, other: _Arm, what: str, of: Callable[[_Arm], dict[int, float]]) -> _Question:
    """Whether a number differs between two arms."""
    one, two = of(arm), of(other)
    sizes = f"{what} is {nats(fmean(one.values()))}, against {nats(fmean(two.values()))} with {other.title}"
    return _Question(arm, sizes, one, two, "more", "less")


def _standing_in(arm: _Arm) -> _Question:
    """Whether the heads of a layer cost more together than one by one."""
    added, together = arm.added("zero"), arm.together("zero")
    sizes = (
        f"the heads of a layer cost {nats(fmean(together.values()))} nats per token together and "
        f"{nats(fmean(added.values()))} added one by one"
    )
    replace, need = "heads stand in for one another", "heads need one another"
    return _Question(arm, sizes, together, added, replace, need, (True, False))


def _finding(arm: _Arm, text: str, holds: bool | None = None) -> "Finding":
    return Finding(NAME, arm.name, f"{arm.title[:1].upper()}{arm.title[1:]}: {text}", holds)


def _difference(interval: Interval) -> str:
    return f"difference {signed(interval.mean)}, 95% interval {interval_text(interval)}".replace("-", MINUS)


def _span(counts: list[float]) -> str:
    low, high = int(min(counts)), int(max(counts))
    return str(low) if low == high else f"{low} to {high}"

"""What is shown of gradients by block: figures for deep arms, a table of ratios, findings."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from vitral.figures.lines import MOST_LINES, Axis, Line, left_out, line_plot
from vitral.figures.sections import Heading, Section, Table
from vitral.studies.probes.protocol import ByRun, Exhibit, Plain, Plot
from vitral.studies.results import ArmResult, StudyResult
from vitral.studies.verdict import Finding
from vitral.studies.wording import NONE, capital

RULE = "gradients"
VANISHES = 0.1
"""A gradient that is less than so many times as large at the first block as at the last vanishes on its way there."""
EXPLODES = 10.0
"""Above this it explodes."""
KEPT = "is kept"
DEEP = 3
"""Blocks from which on a curve over blocks says more than a ratio."""
STATES = ("fresh", "trained")
RATIOS = ("stream", "share", "parameters")
KINDS = {
    "stream": ("gradient-of-the-stream", "gradient of the stream (nats per unit)"),
    "parameters": ("gradient-of-the-parameters", "gradient of the block's parameters (nats per unit)"),
}


@dataclass(frozen=True)
class _Measured:
    """An arm with its measures by seed."""

    result: ArmResult
    runs: Mapping[int, Plain]

    @property
    def title(self) -> str:
        return self.result.arm.title

    def by_block(self, state: str, kind: str) -> list[float | None]:
        """The geometric mean over seeds for each block; None where a seed has no positive number."""
        rows = [_norms(run[state], kind) for run in self.runs.values()]
        return [_geometric(column) for column in zip(*rows, strict=True)]

    def ratios(self, state: str, kind: str) -> list[float]:
        """First block over last, for each seed that has both."""
        norms = [_norms(run[state], kind) for run in self.runs.values()]
        return [each[0] / each[-1] for each in norms if each[0] is not None and each[-1]]


def show(result: StudyResult, measured: ByRun) -> Exhibit:
    """Gradients by block, fresh and trained, and what the ratio from the first block to the last amounts to.

    A gradient with respect to a stream ten times as wide is ten times as small for the same effect, and a stream grows
    from block to block under pre-norm. So the rule looks at what a change of the stream by a share of itself does to
    the loss (`stream` · `scale`): where that at the first block is less than `VANISHES` times that at the last, the
    gradient vanishes; above `EXPLODES` it explodes; where seeds disagree on that, it differs from seed to seed.
    """
    arms = [_Measured(arm, measured[arm.arm.name]) for arm in result.arms if measured.get(arm.arm.name)]
    arms = [arm for arm in arms if depth(arm.result)]
    if not arms:
        return Exhibit()
    sections: list[Section | Plot] = [Heading("Gradients by block")]
    sections += [plot for blocks in _drawn_depths(arms) for plot in _figures(arms, blocks)]
    sections.append(_table(arms))
    findings = [finding for arm in arms for finding in _finding(arm)]
    missing = [arm for arm in result.arms if not arm.losses]
    findings += [_missing(arm) for arm in missing]
    return Exhibit(tuple(sections), tuple(findings))


def _norms(state: Plain, kind: str) -> list[float | None]:
    """One kind's norms by block; the share is the stream's gradient times its scale."""
    if kind != "share":
        return state[kind]
    pairs = zip(state["stream"], state["scale"], strict=True)
    return [None if norm is None or scale is None else norm * scale for norm, scale in pairs]


def depth(arm: ArmResult) -> int:
    """How many blocks an arm has."""
    return int(arm.config["model"]["num_layers"])


def _drawn_depths(arms: Sequence[_Measured]) -> list[int]:
    """The depths worth a figure: all that are deep, or else the deepest."""
    depths = sorted({depth(arm.result) for arm in arms})
    return [blocks for blocks in depths if blocks >= DEEP] or depths[-1:]


def _figures(arms: Sequence[_Measured], blocks: int) -> list[Plot]:
    """Stream and parameters, fresh and trained, for the arms of one depth."""
    same = [arm for arm in arms if depth(arm.result) == blocks]
    plots = []
    for kind, (name, label) in KINDS.items():
        for state in STATES:
            shown = _different(same) if state == "fresh" else same
            lines = [_line(arm, state, kind) for arm in shown]
            lines = [line for line in lines if any(value is not None for value in line.y)]
            if lines:
                plots.append(_figure(lines, f"{name}-{blocks}-blocks-{state}", label, state, blocks))
    return plots


def _figure(lines: Sequence[Line], name: str, label: str, state: str, blocks: int) -> Plot:
    """One figure of the first lines, its captions and its alternative text."""
    step, lines, missing = max(1, blocks // 12), lines[:MOST_LINES], left_out([line.label for line in lines])
    figure = line_plot(
        lines,
        Axis("block", ticks=range(1, blocks + 1, step)),
        Axis(label, log=True),
        title=f"{blocks} blocks, {'before the first step' if state == 'fresh' else 'after training'}",
    )
    ends = []
    for line in lines:
        values = [value for value in line.y if value is not None]
        ends.append(f"{line.label} {_short(values[0])} at its first block and {_short(values[-1])} at its last")
    what = label.split(" (")[0]
    when = "Before the first step" if state == "fresh" else "After training"
    caption = (
        f"{when}: norm of the {what} at each of {blocks} blocks, the first nearest to the tokens; geometric mean over "
        "seeds. A line that falls to the left is a gradient that becomes smaller on its way to the first block."
        f"{missing}"
    )
    return Plot(figure, name, caption, f"{when}, {what}: {'; '.join(ends)}.")


def _line(arm: _Measured, state: str, kind: str) -> Line:
    values = arm.by_block(state, kind)
    return Line(arm.title, range(1, len(values) + 1), values)


def _different(arms: Sequence[_Measured]) -> list[_Measured]:
    """Of arms with the same model, which are the same before the first step, the first."""
    kept: list[_Measured] = []
    for arm in arms:
        if all(arm.result.config["model"] != other.result.config["model"] for other in kept):
            kept.append(arm)
    return kept


def _table(arms: Sequence[_Measured]) -> Table:
    columns = ["arm", "blocks"]
    columns += [f"{kind}, {state}" for kind in RATIOS for state in STATES]
    rows = [
        (
            arm.title,
            str(depth(arm.result)),
            *(_ratio_text(arm.ratios(state, kind)) for kind in RATIOS for state in STATES),
        )
        for arm in arms
    ]
    return Table(
        "First block over last, geometric mean over seeds: the gradient with respect to the residual stream; the same "
        "times the stream's own scale, which is what changing the stream by a share of itself does; the gradient with "
        "respect to the block's parameters. 1: as much arrives at the first block as at the last.",
        tuple(columns),
        tuple(rows),
    )


def _finding(arm: _Measured) -> list[Finding]:
    """Whether the gradient reaches the first block; nothing for a single block."""
    if depth(arm.result) < 2:
        return []
    said, kept = [], True
    for state, when in (("fresh", "before the first step"), ("trained", "after training")):
        shares, plain = arm.ratios(state, "share"), _ratio_text(arm.ratios(state, "stream"))
        mean = _geometric(shares)
        if mean is None or len(shares) < len(arm.runs):
            said, kept = [*said, f"{when} it is zero or not finite somewhere"], False
            continue
        kinds = {_kind(share) for share in shares}
        what = kinds.pop() if len(kinds) == 1 else "differs from seed to seed"
        kept = kept and what == KEPT
        seeds = f"seeds {_short(min(shares))} to {_short(max(shares))}; " if len(shares) > 1 else ""
        inside = f"{seeds}not in shares {plain}"
        said.append(f"{when} it {what}, {_short(mean)} times as large ({inside})")
    text = (
        f"{capital(arm.title)}: the gradient at the first of {depth(arm.result)} blocks against the last, in shares "
        f"of the stream: {'; '.join(said)}."
    )
    return [Finding(RULE, arm.result.arm.name, text, kept)]


def _kind(share: float) -> str:
    return "vanishes" if share < VANISHES else "explodes" if share > EXPLODES else KEPT


def _missing(arm: ArmResult) -> Finding:
    text = f"{capital(arm.arm.title)} finished from no seed, so there are no gradients to show."
    return Finding(RULE, arm.arm.name, text)


def _geometric(values: Sequence[float | None]) -> float | None:
    """exp(mean(log value)); None where one is missing or not positive."""
    there = [value for value in values if value is not None and value > 0]
    if not there or len(there) < len(values):
        return None
    return math.exp(math.fsum(map(math.log, there)) / len(there))


def _ratio_text(ratios: Sequence[float]) -> str:
    mean = _geometric(ratios)
    return NONE if mean is None else _short(mean)


def _short(value: float) -> str:
    """A positive number in two or three digits, whatever its size.

    >>> _short(3.14159), _short(0.0625), _short(314.159), _short(1.6e-11)
    ('3.14', '0.062', '314', '1.6e-11')
    """
    if not 0.01 <= value < 1e4:
        return f"{value:.1e}"
    return f"{value:.3f}" if value < 0.1 else f"{value:.2f}" if value < 10 else f"{value:.3g}"

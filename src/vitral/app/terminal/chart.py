"""The curve of losses in characters: logged losses, evaluations, and the n-gram baselines as lines across."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from rich.text import Text

from vitral.core.language import _, number
from vitral.evaluation import baseline_name

Points = Sequence[tuple[int, float]]
MARGIN = 18
"""Columns for the names of the baselines."""
AXIS = 6
"""Columns for a loss and a space."""
LEAST_COLUMNS = 8
LOGGED, EVALUATED, EARLY, ACROSS = range(4)
SIGNS = {True: "•◆◇┈", False: "*O0-"}
STYLES = ("cyan", "bold yellow", "bold yellow", "dim")


@dataclass(frozen=True)
class Chart:
    """A curve of losses by step.

    Attributes:
        logged: (step, training loss).
        evaluations: (step, validation loss).
        early: (step, validation loss on few tokens).
        baselines: order of the n-gram -> its loss.
        steps: of the whole training, the width of the chart.
        unicode: whether other characters than ASCII may be used.
    """

    logged: Points
    evaluations: Points
    early: Points
    baselines: Mapping[int, float]
    steps: int
    unicode: bool = True


def drawn(chart: Chart, width: int, height: int) -> list[Text]:
    """The chart in `height` lines of at most `width` characters; none without a loss, or where there is no room."""
    columns = width - AXIS - (MARGIN if chart.baselines else 0)
    cells = _means(chart.logged, chart.steps, columns)
    if not cells or columns < LEAST_COLUMNS or height < 2:
        return []
    points = [*cells.items(), *_placed(chart.evaluations, chart, columns), *_placed(chart.early, chart, columns)]
    values = [*(value for column, value in points), *chart.baselines.values()]
    # A baseline above every loss, as that of single characters soon is, would press the curve together.
    low, high = min(values), max(value for column, value in points)
    span = (high - low) or 1.0

    def row(value: float) -> int:
        return round((high - value) / span * (height - 1))

    grid = [[(" ", "")] * columns for each in range(height)]
    names: list[list[str]] = [[] for each in range(height)]
    signs = SIGNS[chart.unicode]
    for order, loss in chart.baselines.items():
        if loss <= high:
            grid[row(loss)] = [(signs[ACROSS], STYLES[ACROSS])] * columns
            names[row(loss)].append(baseline_name(order))
    kinds = [(LOGGED, list(cells.items()))]
    kinds += [(EVALUATED, _placed(chart.evaluations, chart, columns)), (EARLY, _placed(chart.early, chart, columns))]
    for kind, places in kinds:
        for column, value in places:
            grid[row(value)][column] = (signs[kind], STYLES[kind])
    ends = {0: number(high, ".2f"), height - 1: number(low, ".2f")}
    return [_line(ends.get(at, ""), cells, names[at]) for at, cells in enumerate(grid)]


def _line(end: str, cells: Sequence[tuple[str, str]], names: Sequence[str]) -> Text:
    label = names[0] if len(names) == 1 else _("{first} to {last}", first=names[0], last=names[-1]) if names else ""
    pieces = [
        ("".join(sign for sign, shade in same), style) for style, same in groupby(cells, key=lambda cell: cell[1])
    ]
    return Text.assemble((f"{end:>{AXIS - 1}} ", "dim"), *pieces, (f" {label[: MARGIN - 1]}".rstrip(), "dim"))


def _column(step: int, steps: int, columns: int) -> int:
    return min(columns - 1, max(0, (step - 1) * columns // max(1, steps)))


def _placed(points: Points, chart: Chart, columns: int) -> list[tuple[int, float]]:
    return [(_column(step, chart.steps, columns), value) for step, value in points]


def _means(points: Points, steps: int, columns: int) -> dict[int, float]:
    """Column -> mean of the losses logged in its steps."""
    found: dict[int, list[float]] = {}
    for step, value in points:
        found.setdefault(_column(step, steps, max(1, columns)), []).append(value)
    return {column: sum(values) / len(values) for column, values in found.items()}

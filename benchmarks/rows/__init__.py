"""The rows: measurements by name."""

from collections.abc import Callable, Sequence

from benchmarks.options import Options
from benchmarks.results import Section
from benchmarks.rows import (
    board,
    capturing,
    encoding,
    evaluating,
    generating,
    gpu,
    importing,
    longtexts,
    minute,
    nanogpt_minute,
    neighbour,
    ranks,
    starting,
    target,
    training,
)

Measure = Callable[[Sequence[str], Options], list[Section]]

_MODULES: tuple[tuple[tuple[str, ...], Measure], ...] = (
    (target.NAMES, target.measure),
    (minute.NAMES, minute.measure),
    (nanogpt_minute.NAMES, nanogpt_minute.measure),
    (training.NAMES, training.measure),
    (generating.NAMES, generating.measure),
    (importing.NAMES, importing.measure),
    (encoding.NAMES, encoding.measure),
    (capturing.NAMES, capturing.measure),
    (starting.NAMES, starting.measure),
    (evaluating.NAMES, evaluating.measure),
    (longtexts.NAMES, longtexts.measure),
    (ranks.NAMES, ranks.measure),
    (neighbour.NAMES, neighbour.measure),
    (board.NAMES, board.measure),
    (gpu.NAMES, gpu.measure),
)

ROWS: dict[str, Measure] = {name: measure for names, measure in _MODULES for name in names}
"""Row -> its measurement; rows with the same function are measured together, alternating with the same peers."""
ON_REQUEST = (*board.NAMES, *gpu.NAMES)
"""The rows that are measured only if they are named."""
USUAL = tuple(name for name in ROWS if name not in ON_REQUEST)
"""The rows that are measured where none is named."""


def together(names: Sequence[str]) -> list[tuple[Measure, list[str]]]:
    """The measures of these rows in order, each with the rows it is asked for."""
    groups: dict[Measure, list[str]] = {}
    for name in ROWS:
        if name in names:
            groups.setdefault(ROWS[name], []).append(name)
    return list(groups.items())

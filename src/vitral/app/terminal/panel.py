"""The panel of a training in progress: one screen that changes in place, in the room that the terminal has."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import Console, ConsoleOptions, RenderResult
from rich.panel import Panel
from rich.text import Text

from vitral.app.terminal.chart import Chart, drawn
from vitral.app.training_state import TrainingState, copied_note
from vitral.core.language import _, ngettext, number
from vitral.core.text import visible

FRAME_LINES, FRAME_COLUMNS = 2, 4
CHART_LINES, LEAST_CHART = 7, 4
SAMPLE_LINES, LEAST_SAMPLE = 8, 2
"""Lines of a sample with its heading, at most and at least."""
CHART_COLUMNS = 100
ARMS_SHOWN = 6
TEXT_STYLE, COPIED_STYLE, LABEL_STYLE = "default", "underline yellow", "dim"


class TrainingPanel:
    """The state of a training, drawn as often as rich asks for it."""

    def __init__(self, state: TrainingState, *, unicode: bool = True) -> None:
        """Draw `state`, which changes; without Unicode, the chart is made of ASCII."""
        self._state, self._unicode = state, unicode

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """The panel in the width of the terminal and at most its height."""
        width = max(1, options.max_width - FRAME_COLUMNS)
        room = console.size.height - FRAME_LINES - 1
        yield Panel(Text("\n").join(self._lines(console, width, room)), width=options.max_width)

    def _lines(self, console: Console, width: int, room: int) -> list[Text]:
        state = self._state
        said = [Text(state.headline(), style=LABEL_STYLE), self._bar(width), Text(state.progress())]
        said += [Text(state.measured(), style="bold")]
        below = (_(state.planned), state.whole(), *arm_lines(state.arms), state.measuring)
        said += [Text(line) for line in below if line]
        told = wrapped(said, console, width)
        room -= len(told)
        header, sample = sample_text(state.sample)
        wanted = SAMPLE_LINES // 2 if state.sample else 0
        height = min(CHART_LINES, room - wanted)
        chart = drawn(self._chart(), min(width, CHART_COLUMNS), height) if height >= LEAST_CHART else []
        room -= len(chart)
        shown: list[Text] = []
        if state.sample and room >= LEAST_SAMPLE:
            body = [line for line in wrapped([sample], console, width) if line.plain.strip()]
            most = min(SAMPLE_LINES, room) - 1
            shown = [Text(header, style=LABEL_STYLE, overflow="ellipsis", no_wrap=True), *body[:most]]
            if len(body) > most > 1:
                shown[-1] = Text("…", style=LABEL_STYLE)
            shown[0].truncate(width, overflow="ellipsis")
        return [*told[:3], *chart, *told[3:], *shown]

    def _bar(self, width: int) -> Text:
        state, size = self._state, min(width, CHART_COLUMNS)
        done = state.step.get("step", state.first_step) / max(1, state.start.get("steps", 1))
        full = round(size * min(1.0, done))
        mark, rest = ("━", "─") if self._unicode else ("=", "-")
        return Text.assemble((mark * full, "green"), (rest * (size - full), LABEL_STYLE))

    def _chart(self) -> Chart:
        state = self._state
        lines = {} if state.lines is None or not state.is_causal_lm else state.lines.orders
        return Chart(
            state.points, state.validation, state.early_points, lines, state.start.get("steps", 1), self._unicode
        )


def wrapped(texts: Iterable[Text], console: Console, width: int) -> list[Text]:
    """The lines of texts in this width; a word that is longer is cut."""
    return [line for text in texts for line in text.wrap(console, width, overflow="fold", tab_size=4)]


def sample_text(sample: Mapping[str, Any]) -> tuple[str, Text]:
    """The heading of a sample, and the sample with its copied passages marked."""
    if not sample:
        return "", Text()
    made, at = Text(style=TEXT_STYLE), 0
    for begin, end in sample.get("copied", ()):
        made.append(visible(sample["text"][at:begin])).append(visible(sample["text"][begin:end]), style=COPIED_STYLE)
        at = end
    made.append(visible(sample["text"][at:]))
    made.rstrip()
    if "arm" in sample:
        which = {"step": sample["step"], "arm": sample["arm"], "seed": sample["seed"]}
        heading = _("sample after step {step:,} of {arm}, seed {seed}", **which)
    else:
        heading = _("sample after step {step:,}", step=sample["step"])
    return " · ".join(filter(None, (heading, copied_note(sample)))), made


def arm_lines(arms: Mapping[str, Sequence[float]]) -> list[str]:
    """The test losses of a study's finished runs, one line for each arm."""
    lines = [f"{arm}: {' · '.join(number(loss, '.3f') for loss in losses)}" for arm, losses in arms.items()]
    more = len(lines) - ARMS_SHOWN
    return [*lines[-ARMS_SHOWN:], *([ngettext("and {n} more arm", "and {n} more arms", more, n=more)] * (more > 0))]

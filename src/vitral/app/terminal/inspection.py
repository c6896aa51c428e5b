"""How the inspection of a run is printed."""

from typing import TYPE_CHECKING, Any

from vitral.app.terminal.screen import console, say, table
from vitral.core.language import _, number

if TYPE_CHECKING:
    from vitral.report.sections import Table

MOST_COLUMNS = 9
"""Points of the lens shown on a terminal."""
MOST_ROWS = 40
"""Positions of the lens shown on a terminal."""


def print_inspection(found: dict[str, Any]) -> None:
    """A summary on the terminal: sublayers, heads, lens and norms."""
    from vitral.report.inspection import summary, tables

    say(summary(found))
    for note in found["notes"]:
        say(_("note: {text}", text=_(note)))
    say()
    screen = console()
    *parts, norms = map(_on_screen, tables(found))
    for shown in (*parts, _lens(found), norms):
        screen.print(shown)


def _on_screen(made: "Table") -> Any:
    words = 1 + max((index for index in made.prose), default=0)
    return table(made.caption, made.columns, made.rows, words=words)


def _lens(found: dict[str, Any]) -> Any:
    """The most probable token at each position and point, with the last column's loss; few enough to read."""
    from vitral.report.inspection import best_token, mixer, point_label, token_names

    lens = found["lens"]
    points, targets, tokens = lens["points"], lens["targets"], token_names(found)
    step = 1 + (len(points) - 1) // MOST_COLUMNS
    shown = points[::-1][::step][::-1]  # the last point is always among them
    first = max(0, len(tokens) - MOST_ROWS)
    rows = [
        (tokens[place], *(_cell(point["positions"][place], targets[place], best_token) for point in shown))
        for place in range(first, len(tokens))
    ]
    mean = (_("loss"), *("–" if point["loss"] is None else number(point["loss"], ".3f") for point in shown))
    title = _("Logit lens: most probable token, its probability, ✓ where it is the true one")
    cut = [_("the last {n} of {all} positions", n=len(rows), all=len(tokens))] * (first > 0)
    cut += [_("{n} of {all} points", n=len(shown), all=len(points))] * (step > 1)
    if cut:
        title = _("{title} ({parts}; --out page.html has all)", title=title, parts=", ".join(cut))
    return table(title, (_("position"), *(point_label(point["point"], mixer(found)) for point in shown)), [*rows, mean])


def _cell(position: dict[str, Any], target: dict[str, Any] | None, best_token: Any) -> str:
    share = position["top"][0]["probability"]
    return f"{best_token(position, target)} {'–' if share is None else number(share, '.2f')}"

"""The picture of a computation (`explanation.picture`) as lines of text."""

import math

from vitral.core.text import columns as width_of
from vitral.core.text import visible
from vitral.explanation.formulas import number, text
from vitral.explanation.phrasebook import Phrases
from vitral.explanation.picture import MOST_POSITIONS, Picture, Strip, fewer


def picture_title(picture: Picture, say: Phrases) -> str:
    """The path of which position it is."""
    number_ = picture.position + picture.first
    if picture.position < len(picture.tokens):
        row = say("explain.position", number=number_, label=picture.tokens[picture.position])
    else:
        row = say("explain.position_plain", number=number_)
    return say("picture.title", row=row)


def picture_lines(picture: Picture, say: Phrases) -> list[str]:
    """The picture in text: one line for each quantity, with its formula and the numbers of the chosen position."""
    rows: list[tuple[str, str]] = []
    if picture.tokens:
        rows.append((say("picture.tokens"), "  ".join(marked_tokens(picture))))
    for part in picture.parts:
        for place in range(len(picture.heads) if part[0].has_heads else 1):
            if part[0].has_heads and are_named(picture):
                rows.append((head_name(picture, place, say), ""))
            rows += [(f"↓ {named(strip, say)}", written(strip, place, say)) for strip in part]
    room = max(width_of(visible(left)) for left, right in rows if right or len(rows) == 1)
    shown = [visible(left + " " * (room + 2 - width_of(visible(left))) + right).rstrip() for left, right in rows]
    more = [say("picture.more_heads", count=picture.more_heads)] if picture.more_heads else []
    return [*([] if picture.formula is None else [text(picture.formula, 2, say), ""]), *shown, *more]


def compact(value: float, say: Phrases) -> str:
    """A number in at most about six characters."""
    if not math.isfinite(value):
        return number(value, 0)
    if abs(value) >= 1e6:
        return f"{value:.0e}".replace("-", "−")
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    shortest = next((fewer for fewer in range(digits) if abs(round(value, fewer) - value) < 1e-9), digits)
    return say.number(number(value, shortest))


def are_named(picture: Picture) -> bool:
    """Whether there is more than one head."""
    return len(picture.heads) > 1 or picture.more_heads > 0


def head_name(picture: Picture, place: int, say: Phrases) -> str:
    """The name of the head drawn at this place."""
    return say("explain.head", number=picture.heads[place] + picture.first)


def marked_tokens(picture: Picture) -> list[str]:
    """The tokens around the chosen one, which is in brackets."""
    return [
        "…" if place is None else f"[{picture.tokens[place]}]" if place == picture.position else picture.tokens[place]
        for place in fewer(len(picture.tokens), {picture.position}, MOST_POSITIONS)
    ]


def named(strip: Strip, say: Phrases) -> str:
    """The quantity's name and its formula."""
    label = text(strip.label, 2, say)
    return label if strip.how is None else f"{label} = {text(strip.how, 2, say)}"


def written(strip: Strip, head: int, say: Phrases) -> str:
    """The numbers of a strip in a line; of all positions only their sizes."""
    if strip.words:
        return " ".join(strip.words)
    grid = strip.grids[min(head, len(strip.grids) - 1)]
    if strip.is_whole:
        return say("picture.every", rows=len(grid), columns=len(grid[0]))
    places = strip.columns[min(head, len(strip.columns) - 1)]
    return "  ".join(
        "…"
        if place is None
        else f"{strip.labels[place]} {compact(grid[0][place], say)}"
        if strip.axis == "vocab"
        else compact(grid[0][place], say)
        for place in places
    )

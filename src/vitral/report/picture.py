"""The picture of a computation (`explanation.picture`) as SVG drawings and as lines of text."""

import html
import math
from dataclasses import dataclass

from vitral.core.text import columns as width_of
from vitral.core.text import visible
from vitral.explanation.formulas import mathml, text
from vitral.explanation.formulas.notation import Equation
from vitral.explanation.phrasebook import Phrases
from vitral.explanation.picture import MOST_POSITIONS, Grid, Picture, Places, Strip, fewer
from vitral.explanation.picture_text import (
    are_named,
    compact,
    head_name,
    marked_tokens,
    named,
    picture_lines,
    picture_title,
    written,
)
from vitral.report.sections import Diagram, Drawing

CELL, HEIGHT, GAP, SMALL, SMALL_HEIGHT = 42, 22, 14, 15, 13
"""Units of a cell of a strip, of a gap in it, and of a cell of a grid of all positions."""
LABEL, ARROW, ASIDE = 17, 14, 22
"""Units above a strip for its label, between two strips, and between the strips and the grids beside them."""
WORD = 5
"""Characters of a token above a cell."""
MOST_LETTERS, LETTER = 44, 6.7
"""Characters of a label, and units of one of them."""
SKIPPED = 9
"""Units of a gap in a grid."""


def diagram(picture: Picture, say: Phrases) -> Diagram:
    """The picture as a section: SVG drawings in rows, the heads of one row side by side, and lines of text."""
    rows: list[tuple[Drawing, ...]] = [(_tokens(picture, say),)] if picture.tokens else []
    for part in picture.parts:
        lanes = [_Lane(picture, part, place, say) for place in range(len(picture.heads) if part[0].has_heads else 1)]
        rows.append(tuple(lane.drawing(begins=not rows) for lane in lanes))
    formula = ""
    if isinstance(picture.formula, Equation):
        # Two formulas, so that the line can break between them on a narrow screen.
        formula = " = ".join(mathml(side, 2, say) for side in picture.formula.sides)
    return Diagram(picture_title(picture, say), tuple(rows), "\n".join(picture_lines(picture, say)), formula)


@dataclass
class _Place:
    """Where a quantity is drawn: the middle of its height, and its right and lower edges."""

    middle: float
    right: float
    bottom: float


class _Lane:
    """Draws the strips of one head, or those without heads, from top to bottom; keys and values beside them."""

    def __init__(self, picture: Picture, part: tuple[Strip, ...], head: int, say: Phrases) -> None:
        """Nothing drawn yet."""
        self.picture, self.head, self.say = picture, head, say
        self.strips = [strip for strip in part if not strip.is_whole]
        self.grids = [strip for strip in part if strip.is_whole]
        self.described = "; ".join(f"{named(strip, say)}: {written(strip, head, say)}" for strip in part)
        self.labels: tuple[tuple[str, ...], Places] = ((), ())
        self.pieces: list[str] = []
        self.drawn: dict[str, _Place] = {}
        words = max((len(named(strip, say)) for strip in self.strips), default=0)
        rows = max((_row_width(self._columns(strip)) for strip in self.strips), default=0)
        self.wide = max(rows, min(words, MOST_LETTERS) * LETTER)
        self.name = ""
        if part[0].has_heads and are_named(picture):
            self.name = head_name(picture, head, say)

    def drawing(self, *, begins: bool) -> Drawing:
        """The whole drawing; an arrow leads into it unless it `begins` the picture."""
        top = 0.0
        if not begins:
            self._arrow(CELL / 2, 0, ARROW)
            top = ARROW
        if self.name:
            self._text(0, top + 12, self.name, "head")
            top += LABEL
        bottom = top
        for place, strip in enumerate(self.strips):
            if place:
                self._arrow(CELL / 2, bottom + 1, bottom + ARROW)
                bottom += ARROW
            bottom = self._strip(strip, bottom)
        beside = top
        for grid in self.grids:
            beside = self._grid(grid, beside) + ARROW
        right = max((place.right for place in self.drawn.values()), default=0)
        width, height = max(right, self.wide, 120) + 4, max(bottom, beside) + 4
        about = ", ".join(filter(None, [picture_title(self.picture, self.say), self.name]))
        return Drawing("".join(self.pieces), math.ceil(width), math.ceil(height), about, visible(self.described))

    def _columns(self, strip: Strip) -> Places:
        return strip.columns[min(self.head, len(strip.columns) - 1)] if strip.columns else (0,) * len(strip.words)

    def _values(self, strip: Strip) -> Grid:
        return strip.grids[min(self.head, len(strip.grids) - 1)]

    def _strip(self, strip: Strip, top: float) -> float:
        """A label and a row of numbers or words; its lower edge."""
        self._text(0, top + 12, named(strip, self.say), "name")
        top += LABEL
        places = self._columns(strip)
        if strip.labels and (strip.labels, places) != self.labels:
            self._labels(strip, places, top)
            self.labels = (strip.labels, places)
            top += 12
        if strip.words:
            x = 0.0
            for word in strip.words:
                x = self._cell(x, top, word, _word_width(word), "")
        else:
            x = self._numbers(self._values(strip)[0], places, top, is_share=strip.is_share)
        self.drawn[strip.name] = _Place(top + HEIGHT / 2, x, top + HEIGHT)
        return top + HEIGHT

    def _numbers(self, values: tuple[float, ...], places: Places, top: float, *, is_share: bool) -> float:
        """Cells with numbers; their right edge."""
        x, largest = 0.0, max((abs(value) for value in values if math.isfinite(value)), default=0.0)
        for place in places:
            if place is None:
                self._text(x + GAP / 2, top + 15, "…", "mid")
                x += GAP
            else:
                fill = _fill(values[place], largest, is_share=is_share)
                x = self._cell(x, top, compact(values[place], self.say), CELL, fill)
        return x

    def _cell(self, x: float, top: float, shown: str, wide: int, fill: str) -> float:
        self.pieces.append(f'<rect x="{x:g}" y="{top:g}" width="{wide}" height="{HEIGHT}"{fill}/>')
        self._text(x + wide / 2, top + 15, shown, "mid")
        return x + wide

    def _labels(self, strip: Strip, places: Places, top: float) -> None:
        x = 0.0
        for place in places:
            if place is not None:
                label = visible(strip.labels[place])
                self._text(x + CELL / 2, top + 8, label if len(label) <= WORD + 1 else f"{label[:WORD]}…", "mid small")
            x += GAP if place is None else CELL

    def _grid(self, strip: Strip, least: float) -> float:
        """All positions of keys or values as a small heat map beside the strip that uses them; its lower edge."""
        left, height = self.wide + ASIDE, sum(SKIPPED if row is None else SMALL_HEIGHT for row in strip.rows)
        user = next((self.drawn[each.name] for each in self.strips if strip.name in each.inputs), None)
        top = least if user is None else max(least, user.middle - height / 2 - LABEL)
        self._text(left, top + 12, text(strip.label, 2, self.say), "name")
        top += LABEL
        grid, columns = self._values(strip), self._columns(strip)
        largest = max((abs(value) for row in grid for value in row), default=0.0)
        y = top
        for row in strip.rows:
            if row is None:
                self._text(left + 2, y + 7, "⋮", "small")
                y += SKIPPED
                continue
            for place, column in enumerate(columns):
                if column is not None:
                    fill = _fill(grid[row][column], largest, is_share=False)
                    x = left + place * SMALL
                    self.pieces.append(f'<rect x="{x:g}" y="{y:g}" width="{SMALL}" height="{SMALL_HEIGHT}"{fill}/>')
            mark = " chosen" if row == self.picture.position else ""
            self._text(left + len(columns) * SMALL + 3, y + 10, str(row + self.picture.first), f"small{mark}")
            y += SMALL_HEIGHT
        self.drawn[strip.name] = _Place((top + y) / 2, left + len(columns) * SMALL + 18, y)
        if user is not None:
            self._line(left, y, user)
        return y

    def _line(self, left: float, bottom: float, user: _Place) -> None:
        """A line from a grid to the strip that uses it."""
        begin = f"M{left - 3:g} {user.middle:g}"
        if user.middle > bottom:
            begin = f"M{left + SMALL / 2:g} {bottom:g}V{user.middle:g}"
        x, y = user.right + 2, user.middle
        self.pieces.append(f'<path class="way" d="{begin}H{x + 6:g}"/><path class="tip" d="M{x:g} {y:g}l6 -4v8z"/>')

    def _arrow(self, x: float, top: float, bottom: float) -> None:
        way = f'<path class="way" d="M{x:g} {top:g}V{bottom - 4:g}"/>'
        self.pieces.append(f'{way}<path class="tip" d="M{x:g} {bottom:g}l-4 -6h8z"/>')

    def _text(self, x: float, y: float, words: str, kind: str) -> None:
        shown = visible(words)
        if kind == "name" and len(shown) > MOST_LETTERS:
            shown = f"{shown[: MOST_LETTERS - 1]}…"
        self.pieces.append(f'<text x="{x:g}" y="{y:g}" class="{kind}">{html.escape(shown)}</text>')


def _tokens(picture: Picture, say: Phrases) -> Drawing:
    """The tokens, the chosen one marked."""
    pieces, x = [], 0.0
    pieces.append(f'<text x="0" y="12" class="name">{html.escape(say("picture.tokens"))}</text>')
    places = fewer(len(picture.tokens), {picture.position}, MOST_POSITIONS)
    for place in places:
        if place is None:
            pieces.append(f'<text x="{x + GAP / 2:g}" y="32" class="mid">…</text>')
            x += GAP
            continue
        word = visible(picture.tokens[place])
        short = word if len(word) <= 9 else f"{word[:8]}…"
        wide = _word_width(short)
        chosen = place == picture.position
        kind = ' class="chosen"' if chosen else ""
        pieces.append(f'<rect x="{x:g}" y="{LABEL}" width="{wide}" height="{HEIGHT}"{kind}/>')
        mark = " chosen" if chosen else ""
        pieces.append(f'<text x="{x + wide / 2:g}" y="{LABEL + 15}" class="mid{mark}">{html.escape(short)}</text>')
        x += wide
    described = " ".join(marked_tokens(picture))
    return Drawing(
        "".join(pieces), math.ceil(max(x, 60)) + 4, LABEL + HEIGHT + 4, picture_title(picture, say), visible(described)
    )


def _word_width(word: str) -> int:
    return max(28, 8 * width_of(visible(word)) + 12)


def _row_width(places: Places) -> int:
    return sum(GAP if place is None else CELL for place in places)


def _fill(value: float, largest: float, *, is_share: bool) -> str:
    """The colour of a cell: shares from 0 to 1, other numbers by size, negative ones in another colour."""
    if not math.isfinite(value):
        return ' class="out"'
    share = value if is_share else abs(value) / largest if largest else 0.0
    if share < 0.005:
        return ""
    kind = "below" if value < 0 else "above"
    return f' class="{kind}" style="--heat:{min(share, 1.0):.2f}"'

"""The picture of a computation: the path of one position through it, from its token to the last quantity.

It is made from sheets, so it has the quantities that are computed there and no others. Renderers draw it (SVG) or write
it as lines of text.
"""

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from torch import Tensor

from vitral.explanation.examples.schema import AXES
from vitral.explanation.formulas.notation import (
    Apply,
    Equation,
    Expression,
    Fraction,
    Name,
    Number,
    Product,
    Root,
    Sum,
    Words,
)
from vitral.explanation.operations import ApplyMask, Normalise, Scale, Sinusoid, Softmax
from vitral.explanation.operations.decoding import Filtered
from vitral.explanation.sheet import Sheet, SheetQuantity

MOST_POSITIONS, MOST_FEATURES, MOST_WORDS, MOST_HEADS = 6, 4, 5, 4
"""More columns than these are drawn in part; more heads than these are not drawn."""
ATTENTION = ("scores", "scaled", "weights", "z")
EVERY_KEY = ("k", "v", "k_pre")
"""Quantities of which the chosen query meets every row."""
STREAM_ENDS = ("embed", "resid_post")
"""Quantities that the next sheet goes on from."""
SHARES = ("weights", "probabilities")

Grid = tuple[tuple[float, ...], ...]
Places = tuple[int | None, ...]


@dataclass(frozen=True)
class Strip:
    """One quantity of the picture: the row of the chosen position, or all rows of keys and values.

    Attributes:
        name: the quantity.
        label: its name with the number of the row.
        how: the right-hand side of its formula; None if it is given.
        inputs: the quantities it is computed from.
        grids: its numbers, one grid [rows, columns] for each head, or one.
        rows: index of each row that is drawn, None for a gap; one row for the chosen position.
        columns: of each grid, the index of each column that is drawn, None for a gap.
        labels: of every column: tokens or words; empty for features.
        words: of a choice, the words; it has no numbers.
        axis: of the columns: "source" (positions), "vocab" (words) or another.
        has_heads: whether it is drawn once for each head.
        is_share: whether the numbers are shares of one.
    """

    name: str
    label: Expression
    how: Expression | None
    inputs: tuple[str, ...]
    grids: tuple[Grid, ...]
    rows: Places
    columns: tuple[Places, ...]
    labels: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    axis: str = ""
    has_heads: bool = False
    is_share: bool = False

    @property
    def is_whole(self) -> bool:
        """Whether it shows every position, as keys and values."""
        return self.name in EVERY_KEY


@dataclass(frozen=True)
class Picture:
    """The path of one position.

    Attributes:
        formula: attention as one equation; None without attention.
        tokens: labels of all positions.
        position: index of the chosen one.
        first: the number of the first position and head.
        heads: the heads drawn side by side, from 0; empty without heads.
        more_heads: number of heads that are not drawn.
        parts: strips in order, in groups: with heads, then without, and so on.
    """

    formula: Expression | None
    tokens: tuple[str, ...]
    position: int
    first: int
    heads: tuple[int, ...]
    more_heads: int
    parts: tuple[tuple[Strip, ...], ...]

    @property
    def strips(self) -> tuple[Strip, ...]:
        """All strips in order."""
        return tuple(strip for part in self.parts for strip in part)


def draw(pieces: Sequence[tuple[Sheet, Collection[str] | None]], query: int, heads: Sequence[int]) -> Picture | None:
    """The picture of sheets that follow one another; None if nothing in them has positions or words.

    Args:
        pieces: each sheet, and the names of its quantities that are shown; None for all.
        query: the chosen position.
        heads: the chosen heads.
    """
    drawn = tuple(heads[:MOST_HEADS])
    strips: list[Strip] = []
    for sheet, names in pieces:
        goes_on = bool(strips) and strips[-1].name in STREAM_ENDS
        strips += _Path(sheet, query, drawn, {"resid_pre", "resid_post"} if goes_on else set()).strips(names)
    if not any(strip.labels or _is_of_positions(strip.name) for strip in strips):
        return None
    first_sheet = pieces[0][0]
    parts = tuple(tuple(group) for _, group in groupby(strips, key=lambda strip: strip.has_heads))
    has_heads = any(strip.has_heads for strip in strips)
    return Picture(
        next((made for sheet, names in pieces if (made := _attention(sheet, names)) is not None), None),
        next((sheet.tokens for sheet, _ in pieces if sheet.tokens), ()),
        query,
        first_sheet.namer.first,
        drawn if has_heads else (),
        len(heads) - len(drawn) if has_heads else 0,
        parts,
    )


def fewer(count: int, kept: Collection[int], most: int) -> Places:
    """At most about `most` of so many indices, those kept among them, with None where some are left out.

    >>> fewer(3, {1}, 6), fewer(50, {25}, 6)
    ((0, 1, 2), (0, 1, None, 24, 25, 26, None, 49))
    """
    if count <= most + 1:
        return tuple(range(count))
    around = {0, 1, count - 1, *(place + step for place in kept for step in (-1, 0, 1))}
    shown = sorted(place for place in around if 0 <= place < count)
    places: list[int | None] = []
    for place in shown:
        before = next((last for last in reversed(places) if last is not None), -1)
        places += [None] if place > before + 2 else [before + 1] if place == before + 2 else []
        places.append(place)
    return tuple(places)


def _is_of_positions(name: str) -> bool:
    axes = AXES.get(name, ())
    return "time" in axes[:2] or "source" in axes[:2]


class _Path:
    """The strips of one sheet."""

    def __init__(self, sheet: Sheet, query: int, heads: tuple[int, ...], seen: set[str]) -> None:
        """Draw the row `query` of what is not in `seen`, and note there what is drawn."""
        self.sheet, self.query, self.heads, self.seen = sheet, query, heads, seen

    def strips(self, names: Collection[str] | None) -> Iterator[Strip]:
        """Each strip; given quantities before the first that needs them."""
        for quantity in self.sheet.quantities:
            if names is not None and quantity.name not in names:
                continue
            for name in quantity.inputs:
                if name not in self.seen and _is_of_positions(name):
                    yield from self._strip(name, AXES[name], None, ())
            yield from self._strip(quantity.name, quantity.axes, _how(quantity), quantity.inputs)

    def _strip(
        self, name: str, axes: tuple[str, ...], how: Expression | None, inputs: tuple[str, ...]
    ) -> Iterator[Strip]:
        value = self.sheet.values[name]
        self.seen.add(name)
        if not value.numel() or len(axes) != value.dim():
            return
        if axes == ("choice",):
            yield self._choice(name, how, inputs)
            return
        grids = self._grids(name, axes, value)
        if grids is None:
            return
        every, words = name in EVERY_KEY, axes[-1] == "vocab"
        labels = self._labels(axes[-1], len(grids[0][0]))
        columns = tuple(
            _best(grid[0]) if words else self._places(len(grid[0])) if axes[-1] == "source" else _features(len(grid[0]))
            for grid in grids
        )
        of_row = axes[0] == "time" or (len(axes) == 3 and not every)
        number = min(self.query, (value.shape[-2] if value.dim() > 1 else 1) - 1)
        yield Strip(
            name,
            self.sheet.cell(name, (number,)) if of_row and value.dim() > 1 else Name(name),
            how,
            inputs,
            grids,
            self._places(len(grids[0])) if every else (0,),
            columns,
            labels,
            axis=axes[-1],
            has_heads=value.dim() == 3,
            is_share=name in SHARES or (words and how is not None and name != "logits"),
        )

    def _grids(self, name: str, axes: tuple[str, ...], value: Tensor) -> tuple[Grid, ...] | None:
        if value.dim() == 3 and axes[1] in ("time", "source"):
            heads = [value[head * len(value) // self.sheet.num_heads] for head in self.heads]
            whole = name in EVERY_KEY
            return tuple(_grid(head if whole else head[self.query : self.query + 1]) for head in heads)
        if value.dim() == 2 and axes[0] == "time":
            row = min(self.query, len(value) - 1)
            return (_grid(value[row : row + 1]),)
        if axes == ("vocab",) or (value.dim() == 1 and value.numel() == 1):
            return (_grid(value[None]),)
        return None

    def _choice(self, name: str, how: Expression | None, inputs: tuple[str, ...]) -> Strip:
        value = self.sheet.values[name].tolist()
        if name == "beam_probability" or not self.sheet.vocabulary:
            return Strip(name, Name(name), how, inputs, ((tuple(value),),), (0,), (tuple(range(len(value))),))
        words = tuple(self.sheet.vocabulary[int(place)] for place in value)
        return Strip(name, Name(name), how, inputs, (), (), (), (), words)

    def _labels(self, axis: str, count: int) -> tuple[str, ...]:
        first, tokens = self.sheet.namer.first, self.sheet.tokens
        if axis == "source":
            return tuple(tokens[place] if place < len(tokens) else str(place + first) for place in range(count))
        if axis == "vocab":
            known = len(self.sheet.vocabulary) == count
            return self.sheet.vocabulary if known else tuple(str(place + first) for place in range(count))
        return ()

    def _places(self, count: int) -> Places:
        return fewer(count, {self.query}, MOST_POSITIONS)


def _grid(value: Tensor) -> Grid:
    return tuple(map(tuple, value.tolist()))


def _features(count: int) -> Places:
    return tuple(range(count)) if count <= MOST_FEATURES + 1 else (*range(MOST_FEATURES), None)


def _best(row: tuple[float, ...]) -> Places:
    """All words if there are few, else those with the largest numbers."""
    if len(row) <= MOST_WORDS + 1:
        return tuple(range(len(row)))
    return (*sorted(range(len(row)), key=lambda place: -row[place])[:MOST_WORDS], None)


def _how(quantity: SheetQuantity) -> Expression:
    """The right-hand side in a few letters."""
    operation = quantity.operation
    if isinstance(operation, Softmax):
        return Apply("softmax", (Name(operation.of),))
    if isinstance(operation, Normalise):
        return Apply("RMSNorm" if operation.kind == "rmsnorm" else "LayerNorm", (Name(operation.of),))
    if isinstance(operation, Filtered):
        return Apply(operation.rule.replace("_", "-"), (Name("probabilities"), Number(operation.value, exact=True)))
    if isinstance(operation, Sinusoid):
        return Words("sin, cos")
    if quantity.name in ("q", "k") and quantity.inputs[:1] == (f"{quantity.name}_pre",):
        return Apply("rotate", (Name(f"{quantity.name}_pre"),))
    return operation.formula()


def _attention(sheet: Sheet, names: Collection[str] | None) -> Expression | None:
    """Attention as one equation, with the sheet's scale, and the bias and the mask if they change anything."""
    if any(name not in sheet or (names is not None and name not in names) for name in ATTENTION):
        return None
    inside: Expression = Product((Name("Q"), Name("K", above="T")), tight=True)
    scale, mask = sheet["scaled"].operation, sheet["masked"].operation if "masked" in sheet else None
    if isinstance(scale, Scale):
        width = Name("d", below="k")
        below: dict[str, Expression] = {"sqrt": Root(width), "linear": width, "adaptive": Name("σ", below="row")}
        if scale.kind in below:
            inside = Fraction(inside, below[scale.kind])
        elif scale.kind == "number" and scale.factor.numel() == 1:
            inside = Product((Number(float(scale.factor)), inside))
        elif scale.kind != "none":
            inside = Product((Name("s"), inside))
    if isinstance(mask, ApplyMask):
        hides = bool((sheet.values["masked"] == -math.inf).any())
        terms = [*([Name("bias")] if mask.bias is not None else []), *([Name("M")] if hides else [])]
        inside = Sum((inside, *terms)) if terms else inside
    rule = Product((Apply("softmax", (inside,)), Name("V")), tight=True)
    return Equation((Apply("Attention", (Name("Q"), Name("K"), Name("V"))), rule))

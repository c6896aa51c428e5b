"""Claims about parts of a quantity: one row, one column, one cell, as "weights[2]" = [0.1, 0.9]."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from vitral.core.language import _
from vitral.explanation.examples.schema import shape_text
from vitral.explanation.operations import Index

Keys = tuple[str, ...]
ALL = slice(None)
_PART = re.compile(r"(?P<name>[^\[\]]+)\[(?P<places>[^\[\]]*)\]")
_ROW = frozenset(("row", "linha", "column", "coluna", "head", "values", "valores"))


@dataclass(frozen=True)
class Part:
    """A claim about a part of a quantity.

    Attributes:
        name: the quantity, as the file has it.
        places: rows, columns or heads, counted from 1; None for all.
        keys: of the numbers in the file.
        value: the numbers.
        from_the_end: whether the places are those of the last axes.
    """

    name: str
    places: tuple[int | None, ...]
    keys: Keys
    value: Any
    from_the_end: bool = False


def part_of(keys: Keys, value: Any) -> Part | None:
    """The part that a key, or a table with a row, names; None if the key names a whole quantity.

    >>> part_of(("weights[2]",), [0.5, 0.5]).places
    (2,)
    """
    label = ".".join(keys)
    found = _PART.fullmatch(label)
    if found:
        written = [each.strip() for each in found["places"].split(",")]
        if all(each == ":" or (each.isdecimal() and len(each) < 9) for each in written):
            return Part(
                found["name"].strip(), tuple(None if each == ":" else int(each) for each in written), keys, value
            )
    if isinstance(value, Mapping) and value and set(value) <= _ROW and {"values", "valores"} & set(value):
        numbers = "values" if "values" in value else "valores"
        row, column = value.get("row", value.get("linha")), value.get("column", value.get("coluna"))
        places = (value.get("head"),) * ("head" in value) + (row, column)
        if all(each is None or type(each) is int for each in places):
            return Part(label, places, (*keys, numbers), value[numbers], from_the_end=True)
    return None


def cells_of(part: Part, typed: Tensor, grid: Tensor) -> Mapping[int, tuple[float, Keys | tuple[Any, ...]]] | str:
    """The numbers of a part by their place in the quantity, and the path of each; a complaint if they do not fit.

    Args:
        part: the claim.
        typed: its numbers.
        grid: the numbers 0, 1, … of the quantity's cells, laid out as the author lays the quantity out.
    """
    if len(part.places) > grid.dim() and not part.from_the_end:
        return _("{name}: it has {n} axes", name=part.name, n=grid.dim())
    places = part.places[-grid.dim() :] if part.from_the_end else part.places
    free = (ALL,) * (grid.dim() - len(places))
    axes = range(grid.dim() - len(places), grid.dim()) if part.from_the_end else range(len(places))
    for axis, place in zip(axes, places, strict=True):
        if place is not None and not 1 <= place <= grid.shape[axis]:
            return _(
                "{name}: there is no number {place}; they are counted from 1 to {last}",
                name=part.name,
                place=place,
                last=grid.shape[axis],
            )
    chosen = tuple(ALL if place is None else place - 1 for place in places)
    found = grid[(*free, *chosen) if part.from_the_end else (*chosen, *free)]
    if found.shape != typed.shape:
        return _(
            "{label}: claimed as {claimed}, but it is {expected}",
            label=part.name,
            claimed=shape_text(tuple(typed.shape)),
            expected=shape_text(tuple(found.shape)),
        )
    cells = {}
    for index in _indices(typed):
        if not math.isnan(float(typed[index])):
            cells[int(found[index])] = float(typed[index]), (*part.keys, *index)
    return cells


def _indices(value: Tensor) -> list[Index]:
    return [tuple(place) for place in torch.ones_like(value).nonzero().tolist()]

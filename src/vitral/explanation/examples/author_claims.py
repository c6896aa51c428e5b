"""The claims of a worked example, as the author typed them."""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from vitral.core.errors import UsageError
from vitral.core.language import _
from vitral.explanation.examples.example import AuthorClaim
from vitral.explanation.examples.given import Given, Keys, file_entries
from vitral.explanation.examples.names import hint
from vitral.explanation.examples.schema import (
    AXES,
    OF_BLOCKS,
    shape_text,
    with_comma_hint,
)
from vitral.explanation.recipe import RecipeLine, missing_for
from vitral.explanation.sheet import Sheet

ALL = slice(None)
_PART = re.compile(r"(?P<name>[^\[\]]+)\[(?P<places>(?:\s*(?::|\d{1,8})\s*,?)+)\]")


@dataclass(frozen=True)
class Part:
    """A claim about a part of a quantity, as "weights[2]" = [0.1, 0.9].

    Attributes:
        name: the quantity, as the file has it.
        places: rows, columns or heads, counted from 1; None for all.
        keys: of the numbers in the file.
    """

    name: str
    places: tuple[int | None, ...]
    keys: Keys

    def region(self, grid: Tensor) -> Tensor | str:
        """The numbers 0, 1, … of its cells; a complaint if there are no such cells.

        Args:
            grid: those of the whole quantity, laid out as the author lays it out.
        """
        if len(self.places) > grid.dim():
            return _("{name}: it has {n} axes", name=self.name, n=grid.dim())
        for place, size in zip(self.places, grid.shape, strict=False):
            if place is not None and not 1 <= place <= size:
                return _(
                    "{name}: there is no number {place}; they are counted from 1 to {last}",
                    name=self.name,
                    place=place,
                    last=size,
                )
        return grid[tuple(ALL if place is None else place - 1 for place in self.places)]


def part_of(keys: Keys) -> Part | None:
    """The part that a key names; None if it names a whole quantity.

    >>> part_of(("weights[2,:]",)).places
    (2, None)
    """
    found = _PART.fullmatch(".".join(keys))
    if found is None:
        return None
    places = (each.strip() for each in found["places"].split(","))
    return Part(found["name"].strip(), tuple(None if each == ":" else int(each) for each in places), keys)


def typed_axes(typed: tuple[int, ...], shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """The axes of a shape that a typed list has, where it may leave out axes of size 1; None if they do not fit."""
    every = tuple(range(len(shape)))
    leading = next((place for place, size in enumerate(shape) if size != 1), len(shape))
    several = tuple(axis for axis in every if shape[axis] != 1)
    choices = [every, *(every[first:] for first in range(1, leading + 1)), several]
    return next((axes for axes in choices if typed == tuple(shape[axis] for axis in axes)), None)


class AuthorClaims:
    """Reads the claims about the quantities of a sheet."""

    def __init__(
        self,
        given: Given,
        sheet: Sheet,
        lines: Mapping[str, RecipeLine],
        complain: Callable[[str], None] | None = None,
    ) -> None:
        """Remember the computation.

        Args:
            given: of the file.
            sheet: the computation.
            lines: those of the recipe, by name.
            complain: called with each complaint, while what cannot be read is left out; None: the first is raised.
        """
        self.given, self.sheet, self.lines, self.complain = given, sheet, lines, complain
        self.head, self.conventions = given.head, given.conventions

    def all(self) -> list[AuthorClaim]:
        """All claims; those about parts of the same quantity together.

        Raises:
            UsageError: a claim cannot be read, or a cell is claimed twice.
        """
        made: dict[str, AuthorClaim] = {}
        for keys, value in file_entries(self.head.claimed):
            part = None if "rows" in self.sheet.values else part_of(keys)
            try:
                claim = self._claim(keys, value) if part is None else self._part(part, value)
                before = made.get(claim.name)
                made[claim.name] = claim if before is None else self._together(before, claim, keys)
            except UsageError as error:
                if self.complain is None:
                    raise
                self.complain(str(error))
        return list(made.values())

    def _together(self, one: AuthorClaim, other: AuthorClaim, keys: Keys) -> AuthorClaim:
        """Two claims on different cells of a quantity as one."""
        known = [~claim.values.isnan() for claim in (one, other)]
        if bool((known[0] & known[1]).any()) or (not one.paths and not other.paths):
            raise self.given.refuse(_("{name}: a cell is claimed twice", name=".".join(keys)), "claimed", *keys)
        places = [
            (claim, tuple(index))
            for claim, cells in zip((one, other), known, strict=True)
            for index in cells.nonzero().tolist()
        ]
        values = torch.where(known[0], one.values, other.values)
        return replace(one, values=values, paths={index: claim.path(index) for claim, index in places})

    def _claim(self, keys: Keys, value: Any) -> AuthorClaim:
        label, path = ".".join(keys), ("claimed", *keys)
        if label in ("rows", "total") and "rows" in self.sheet.values:
            return self._count(label, value)
        name = self._claimed_name(label, path)
        shape = tuple(self.sheet.values[name].shape)
        if name in ("greedy", "beam"):
            values, left_out = self._words(name, label, value)
        elif name in AXES:
            values, left_out = self.given.tensor(name, label, self._readable(name, label, value, path), *path)
        else:
            value = self._readable(name, label, value, path)
            values, left_out = torch.tensor(self.given.numbers(value, path, label), dtype=torch.float64), 0
            order = typed_axes(tuple(values.shape), shape)
            if order is not None:
                return AuthorClaim(name, path, values.reshape(shape), order=order)
        if tuple(values.shape) != shape:
            turned = [self.conventions.index(name, tuple(each)) for each in (shape, values.shape)]
            expected, got = (each[left_out:] for each in turned)
            if expected == got:  # they differ in the axes that the file leaves out
                expected, got = turned
            raise self._unlike(label, got, expected, value, path, expected[-1] if expected else None)
        if self.conventions.turned(name) and values.dim() > 1:
            order = self.conventions.index(name, tuple(range(values.dim())))[left_out:]
            return AuthorClaim(name, path, values, order=order)
        return AuthorClaim(name, path, values, left_out)

    def _readable(self, name: str, label: str, value: Any, path: Keys) -> Any:
        """The value as it is, or where complaints are collected, with "?" for what cannot be read."""
        if self.complain is None:
            return value
        depth, inner = 0, value
        while isinstance(inner, list):
            depth, inner = depth + 1, next((part for part in inner if isinstance(part, list)), None)
        shape = tuple(self.conventions.seen(name, self.sheet.values[name]).shape)
        while len(shape) > depth and shape[0] == 1:
            shape = shape[1:]
        return self._mended(value, shape, label, path)

    def _mended(self, value: Any, shape: tuple[int, ...], label: str, path: tuple[str | int, ...]) -> Any:
        assert self.complain is not None
        blank: Any = "?"
        for size in reversed(shape):
            blank = [blank] * size
        if not shape:
            try:
                self.given.numbers(value, path, label)
            except UsageError as error:
                self.complain(str(error))
                return blank
            return blank if isinstance(value, list) else value
        if value == "?":
            return blank
        if not isinstance(value, list) or len(value) > shape[0] or (len(shape) == 1 and len(value) < shape[0]):
            got = len(value) if isinstance(value, list) else 1
            complaint = _("{name}: {n} numbers, expected {expected}", name=label, n=got, expected=shape[0])
            self.complain(str(self.given.refuse(complaint, *path)))
            return blank
        rows = [self._mended(part, shape[1:], label, (*path, place)) for place, part in enumerate(value)]
        return [*rows, *blank[len(rows) :]]

    def _part(self, part: Part, value: Any) -> AuthorClaim:
        """A claim about a part of a quantity: NaN everywhere else."""
        path = ("claimed", *part.keys)
        name = self._claimed_name(part.name, path)
        shape = self.sheet.values[name].shape
        grid = self.conventions.seen(name, torch.arange(shape.numel()).reshape(shape))
        region = part.region(grid[0] if grid.dim() == 3 and len(grid) == 1 else grid)
        if isinstance(region, str):
            raise self.given.refuse(region, *path)
        written = value if self.complain is None else self._mended(value, tuple(region.shape), part.name, path)
        typed = torch.tensor(self.given.numbers(written, path, part.name), dtype=torch.float64)
        if typed.shape != region.shape:
            raise self._unlike(part.name, tuple(typed.shape), tuple(region.shape), value, path, grid.shape[-1])
        values, paths = torch.full(shape, math.nan, dtype=torch.float64), {}
        for place in (~typed.isnan()).nonzero().tolist():
            index = tuple(int(each) for each in torch.unravel_index(region[tuple(place)], shape))
            values[index], paths[index] = typed[tuple(place)], (*path, *place)
        return AuthorClaim(name, ("claimed", part.name), values, paths=paths)

    def _unlike(
        self, label: str, got: tuple[int, ...], expected: tuple[int, ...], value: Any, path: Keys, width: int | None
    ) -> UsageError:
        """The error for numbers of another shape."""
        complaint = _(
            "{label}: claimed as {claimed}, but it is {expected}",
            label=label,
            claimed=shape_text(got),
            expected=shape_text(expected),
        )
        return self.given.refuse(with_comma_hint(complaint, value, width), *path)

    def _claimed_name(self, label: str, path: Keys) -> str:
        """The quantity that a key under [claimed] stands for."""
        name = self.given.name(label)
        if name in self.sheet.values:
            return name
        if name not in AXES:
            near = hint(label, [*AXES, *self.sheet.values, "output", "greedy", "beam"])
            raise self.given.refuse(_("unknown name {name!r} under [claimed], {hint}", name=label, hint=near), *path)
        if self.head.block is None and name in OF_BLOCKS:
            complaint = _('{label}: belongs to a block; say block = "pre" or block = "post"', label=label)
            raise self.given.refuse(complaint, *path)
        raise self.given.missing(label, missing_for(name, self.lines, self.sheet.values) or name, *path)

    def _words(self, name: str, key: str, value: Any) -> tuple[Tensor, int]:
        """The indices of claimed words, NaN for "?"."""
        words = [value] if name == "greedy" else value
        if not isinstance(words, list):
            raise self.given.refuse(_("{key}: expected a list of words", key=key), "claimed", key)
        places = [
            math.nan if word == "?" else self.given.word(word, self.head.vocabulary, "claimed", key) for word in words
        ]
        return torch.tensor(places, dtype=torch.float64), int(name == "greedy")

    def _count(self, key: str, value: Any) -> AuthorClaim:
        """A claim about a parameter table."""
        if key == "total":
            return AuthorClaim("total", ("claimed", "total"), torch.tensor([self._single(value, "total")]).double(), 1)
        counts = [self._single(number, "rows", name) for name, number in value.items()]
        return AuthorClaim("rows", ("claimed", "rows"), torch.tensor(counts, dtype=torch.float64), rows=tuple(value))

    def _single(self, value: Any, *path: str) -> float:
        if self.complain is not None:
            value = self._mended(value, (), path[-1], ("claimed", *path))
        number = self.given.numbers(value, ("claimed", *path), path[-1])
        if isinstance(number, list):
            raise self.given.refuse(_("{name}: expected one number, not a list", name=path[-1]), "claimed", *path)
        return number

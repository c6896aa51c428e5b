"""The claims of a worked example, as the author typed them."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from vitral.core.language import _
from vitral.explanation.examples.claims import Part, cells_of, part_of
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


def typed_axes(typed: tuple[int, ...], shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """The axes of a shape that a typed list has, where it may leave out axes of size 1; None if they do not fit."""
    every = tuple(range(len(shape)))
    leading = next((place for place, size in enumerate(shape) if size != 1), len(shape))
    several = tuple(axis for axis in every if shape[axis] != 1)
    choices = [every, *(every[first:] for first in range(1, leading + 1)), several]
    return next((axes for axes in choices if typed == tuple(shape[axis] for axis in axes)), None)


class AuthorClaims:
    """Reads the claims about the quantities of a sheet."""

    def __init__(self, given: Given, sheet: Sheet, lines: Mapping[str, RecipeLine]) -> None:
        """Of the file that `given` is from; `lines` are those of the recipe, by name."""
        self.given, self.sheet, self.lines = given, sheet, lines
        self.head, self.conventions = given.head, given.conventions

    def all(self) -> list[AuthorClaim]:
        """All claims; those about parts of the same quantity together."""
        whole: list[AuthorClaim] = []
        parts: dict[str, AuthorClaim] = {}
        for keys, value in file_entries(self.head.claimed):
            part = None if "rows" in self.sheet.values else part_of(keys, value)
            if part is None:
                whole.append(self._claim(keys, value))
                continue
            claim = self._part(part)
            before = parts.get(claim.name)
            if before is not None:
                if bool((~before.values.isnan() & ~claim.values.isnan()).any()):
                    raise self.given.refuse(
                        _("{name}: a cell is claimed twice", name=claim.name), "claimed", *part.keys
                    )
                values = torch.where(claim.values.isnan(), before.values, claim.values)
                claim = replace(before, values=values, paths={**before.paths, **claim.paths})
            parts[claim.name] = claim
        return [*whole, *parts.values()]

    def _claim(self, keys: Keys, value: Any) -> AuthorClaim:
        label, path = ".".join(keys), ("claimed", *keys)
        if label in ("rows", "total") and "rows" in self.sheet.values:
            return self._count(label, value)
        name = self._claimed_name(label, path)
        shape = tuple(self.sheet.values[name].shape)
        if name in ("greedy", "beam"):
            values, left_out = self._words(name, label, value)
        elif name in AXES:
            values, left_out = self.given.tensor(name, label, value, *path)
        else:
            values, left_out = torch.tensor(self.given.numbers(value, path, label), dtype=torch.float64), 0
            order = typed_axes(tuple(values.shape), shape)
            if order is not None:
                return AuthorClaim(name, path, values.reshape(shape), order=order)
        if tuple(values.shape) != shape:
            turned = [self.conventions.index(name, tuple(each)) for each in (shape, values.shape)]
            expected, got = (each[left_out:] for each in turned)
            if expected == got:  # they differ in the axes that the file leaves out
                expected, got = turned
            complaint = _(
                "{label}: claimed as {claimed}, but it is {expected}",
                label=label,
                claimed=shape_text(got),
                expected=shape_text(expected),
            )
            raise self.given.refuse(with_comma_hint(complaint, value, expected[-1] if expected else None), *path)
        if self.conventions.turned(name) and values.dim() > 1:
            return AuthorClaim(
                name, path, values, order=self.conventions.index(name, tuple(range(values.dim())))[left_out:]
            )
        return AuthorClaim(name, path, values, left_out)

    def _part(self, part: Part) -> AuthorClaim:
        """A claim about a part of a quantity: NaN everywhere else."""
        path = ("claimed", *part.keys)
        name = self._claimed_name(part.name, path)
        value = self.sheet.values[name]
        grid = self.conventions.seen(name, torch.arange(value.numel()).reshape(value.shape))
        grid = grid[0] if grid.dim() == 3 and len(grid) == 1 else grid
        typed = torch.tensor(self.given.numbers(part.value, path, part.name), dtype=torch.float64)
        cells = cells_of(part, typed, grid)
        if isinstance(cells, str):
            raise self.given.refuse(with_comma_hint(cells, part.value, grid.shape[-1]), *path)
        values, paths = torch.full(value.shape, math.nan, dtype=torch.float64), {}
        for place, (number, keys) in cells.items():
            index = tuple(int(each) for each in torch.unravel_index(torch.tensor(place), value.shape))
            values[index], paths[index] = number, ("claimed", *keys)
        return AuthorClaim(name, ("claimed", part.name), values, paths=paths)

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
        number = self.given.numbers(value, ("claimed", *path), path[-1])
        if isinstance(number, list):
            raise self.given.refuse(_("{name}: expected one number, not a list", name=path[-1]), "claimed", *path)
        return number

"""The claims of a worked example, as the author typed them."""

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, NoReturn

import torch
from torch import Tensor

from vitral.core.errors import UsageError
from vitral.core.language import _
from vitral.explanation.examples.example import AuthorClaim
from vitral.explanation.examples.given import Given, Keys, Values, label_of
from vitral.explanation.examples.names import hint
from vitral.explanation.examples.numerals import value_of
from vitral.explanation.examples.places import KeyPath
from vitral.explanation.examples.schema import AXES, OF_BLOCKS, cells, shape_of
from vitral.explanation.recipe import RecipeLine, chosen, follow, missing_for
from vitral.explanation.rows import Beam, Filtered, Greedy
from vitral.explanation.sheet import Sheet, SheetQuantity

RULES = ("temperature", "top_k", "top_p", "min_p")
WORDS = ("greedy", "beam")
_PART = re.compile(r"(?P<name>[^\[\]]+)\[(?P<places>(?:\s*(?::|\d{1,8})\s*,?)+)\]")


def part_of(label: str) -> tuple[str, tuple[int | None, ...]]:
    """The name in a key, and the rows, columns or heads that it is about, counted from 1; None for all.

    >>> part_of("weights[2,:]")
    ('weights', (2, None))
    """
    found = _PART.fullmatch(label)
    if found is None:
        return label, ()
    places = re.findall(r":|\d+", found["places"])
    return found["name"].strip(), tuple(None if each == ":" else int(each) for each in places)


def _raised(error: UsageError) -> NoReturn:
    raise error


class AuthorClaims:
    """Reads the claims about the quantities of a sheet."""

    def __init__(
        self,
        given: Given,
        sheet: Sheet,
        lines: Mapping[str, RecipeLine],
        complain: Callable[[UsageError], None] | None = None,
    ) -> None:
        """Remember the computation.

        Args:
            given: of the file.
            sheet: the computation.
            lines: those of the recipe, by name.
            complain: called with each complaint, while what cannot be read, and rows that are missing, are left out;
                None: the first is raised.
        """
        self.given, self.sheet, self.lines = given, sheet, lines
        self.complain, self.may_end = complain or _raised, complain is not None

    def read(self, entries: Iterable[tuple[Keys, Any]]) -> list[AuthorClaim]:
        """All claims; those about parts of the same quantity together.

        Args:
            entries: of each the place in the file, as ("claimed", "mlp", "pre"), and the numbers.

        Raises:
            UsageError: a claim cannot be read, or a cell is claimed twice.
        """
        made: dict[str, AuthorClaim] = {}
        for path, value in entries:
            try:
                claim = self._claim(path, value)
                made[claim.name] = self._together(made.get(claim.name, claim), claim, path)
            except UsageError as error:
                self.complain(error)
        return list(made.values())

    def _together(self, one: AuthorClaim, other: AuthorClaim, path: Keys) -> AuthorClaim:
        """Two claims on different cells of a quantity as one."""
        known = ~other.values.isnan()
        if one is not other and bool((known & ~one.values.isnan()).any()):
            raise self.given.refuse(_("{name}: a cell is claimed twice", name=label_of(path)), *path)
        paths = {index: path for index, path in other.paths.items() if bool(known[index])}
        return replace(one, values=torch.where(known, other.values, one.values), paths={**one.paths, **paths})

    def _claim(self, path: Keys, value: Any) -> AuthorClaim:
        """A claim; NaN for the cells that it is not about."""
        label, places = part_of(label_of(path))
        name = self._name(label, path)
        shape = self.sheet.values[name].shape
        typed = self.given.conventions.seen(name, torch.arange(shape.numel()).reshape(shape))
        if places:
            typed = self._part(typed[0] if typed.dim() == 3 and len(typed) == 1 else typed, label, places, path)
        typed = _as_typed(typed, shape_of(value))

        def complain(complaint: str, place: KeyPath) -> None:
            self.complain(self.given.misfit(f"{label}: {complaint}", *place))

        values, paths = torch.full(shape, math.nan, dtype=torch.float64), dict[tuple[int, ...], KeyPath]()
        found = cells(value, tuple(typed.shape), path, complain, may_end=self.may_end)
        for cell, (place, part) in zip(typed.flatten(), found, strict=True):
            index = tuple(map(int, torch.unravel_index(cell, shape)))
            try:
                values[index], paths[index] = self._number(name, part, label, place), place
            except UsageError as error:
                self.complain(error)
        return AuthorClaim(name, label, values, paths)

    def _number(self, name: str, value: Any, label: str, path: KeyPath) -> float:
        if name in WORDS and value != "?":
            return self.given.word(value, label, *path)
        return self.given.number(value, label, *path, may_be_unknown=True)

    def _part(self, typed: Tensor, label: str, places: tuple[int | None, ...], path: KeyPath) -> Tensor:
        """The cells of a part."""
        if len(places) > typed.dim():
            raise self.given.refuse(_("{name}: it has {n} axes", name=label, n=typed.dim()), *path)
        for place, size in zip(places, typed.shape, strict=False):
            if place is not None and not 1 <= place <= size:
                complaint = _(
                    "{name}: there is no number {place}; they are counted from 1 to {last}",
                    name=label,
                    place=place,
                    last=size,
                )
                raise self.given.refuse(complaint, *path)
        return typed[tuple(slice(None) if place is None else place - 1 for place in places)]

    def _name(self, label: str, path: Keys) -> str:
        """The quantity that a key under [claimed] stands for."""
        name = self.given.name(label)
        if name in self.sheet.values:
            return name
        if name not in AXES:
            near = hint(label, [*AXES, *self.sheet.values, "output", *WORDS])
            raise self.given.refuse(_("unknown name {name!r} under [claimed], {hint}", name=label, hint=near), *path)
        if self.given.head.block is None and name in OF_BLOCKS:
            complaint = _('{label}: belongs to a block; say block = "pre" or block = "post"', label=label)
            raise self.given.refuse(complaint, *path)
        raise self.given.missing(label, missing_for(name, self.lines, self.sheet.values) or name, *path)


def _as_typed(cells: Tensor, shape: tuple[int, ...]) -> Tensor:
    """The cells without those axes of size 1 that the author leaves out."""
    choices = [cells]
    while choices[-1].dim() and len(choices[-1]) == 1:
        choices.append(choices[-1][0])
    choices.append(cells.squeeze())
    alike = [each for each in choices if each.dim() == len(shape)]
    return next((each for each in alike if each.shape == shape), alike[0] if alike else cells)


def choice(given: Given, key: str, values: Values, lines: Mapping[str, RecipeLine]) -> tuple[SheetQuantity, ...]:
    """The quantity of a claimed choice of the next token, such as greedy or top_k_2; none for other keys."""
    rule, value = key.rpartition("_")[::2]
    path, head = ("claimed", key), given.head
    is_beam = key in ("beam", "beam_probability")
    if not is_beam and key != "greedy" and rule not in RULES:
        return ()
    needed = "next" if is_beam else "probabilities"
    missing = missing_for(needed, lines, values)
    if missing and not is_beam and given.stream not in values:
        missing = _("probabilities (or logits)")
    if is_beam and not missing:
        missing = next((name for name in ("start", "beams", "length") if getattr(head, name) is None), "")
    if missing:
        raise given.missing(key, missing, *path)
    if isinstance(head.claimed[key], dict):
        complaint = _('{key}: a key with a point needs quotes, as "temperature_0.5" = […]', key=key)
        raise given.refuse(complaint, *path)
    row: Filtered | Greedy | Beam = Greedy()
    if is_beam:
        start = given.word(head.start, "start", "start")
        row = Beam(start, head.beams or 0, head.length or 0, probability=key == "beam_probability")
    elif rule in RULES:
        number = value_of(value)
        if number is None:
            raise given.refuse(_("{name}: {value!r} is not a number", name=key, value=value), *path)
        row = Filtered(rule, number)
    try:
        return follow(iter([chosen(key, row)]), values)
    except UsageError as error:
        raise given.refuse(f"{key}: {str(error).rpartition(': ')[2]}", *path) from None

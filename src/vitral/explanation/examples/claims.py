"""The claims of a worked example, as the author typed them."""

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, NoReturn

import torch
from torch import Tensor

from vitral.core.errors import UsageError
from vitral.core.language import N_, _
from vitral.explanation.examples.example import AuthorClaim
from vitral.explanation.examples.given import Given, Keys, Values, label_of
from vitral.explanation.examples.names import hint
from vitral.explanation.examples.places import Fault, KeyPath, Misfit
from vitral.explanation.examples.schema import AXES, CHOICES, OF_BLOCKS, WORDS, cells, shape_of
from vitral.explanation.recipe import SheetQuantity, choice_of, follow, missing_for
from vitral.explanation.rows import Beam, rule_of
from vitral.explanation.sheet import Sheet

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


def _raised(fault: Fault) -> NoReturn:
    raise fault


def missing(what: str, name: str, path: Keys) -> Fault:
    """The fault of a claim that the given numbers do not determine."""
    settings = {
        "scale": N_('scale: is needed after the scores; add scale = "none", "sqrt", "linear" or a number'),
        "mask": N_('mask: is needed after the scaled scores; add mask = "causal" or "bidirectional"'),
    }
    complaint = N_("{what}: cannot be computed, {name} is missing under [given]")
    return Fault(settings.get(name, complaint), path, what=what, name=name)


class AuthorClaims:
    """Reads the claims about the quantities of a sheet."""

    def __init__(
        self,
        given: Given,
        sheet: Sheet,
        lines: Mapping[str, SheetQuantity],
        complain: Callable[[Fault], None] | None = None,
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
            Fault: a claim cannot be read, or a cell is claimed twice.
        """
        made: dict[str, AuthorClaim] = {}
        for path, value in entries:
            try:
                claim = self._claim(path, value)
                made[claim.name] = self._together(made.get(claim.name, claim), claim, path)
            except Fault as fault:
                self.complain(fault)
        return list(made.values())

    def _together(self, one: AuthorClaim, other: AuthorClaim, path: Keys) -> AuthorClaim:
        """Two claims on different cells of a quantity as one."""
        known = ~other.values.isnan()
        if one is not other and bool((known & ~one.values.isnan()).any()):
            raise Fault("{name}: a cell is claimed twice", path, name=label_of(path))
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
            self.complain(Misfit(f"{label}: {complaint}", place))

        values, paths = torch.full(shape, math.nan, dtype=torch.float64), dict[tuple[int, ...], KeyPath]()
        found = cells(value, tuple(typed.shape), path, complain, may_end=self.may_end)
        for cell, (place, part) in zip(typed.flatten(), found, strict=True):
            index = tuple(map(int, torch.unravel_index(cell, shape)))
            try:
                values[index], paths[index] = self._number(name, part, label, place), place
            except Fault as fault:
                self.complain(fault)
        return AuthorClaim(name, label, values, paths)

    def _number(self, name: str, value: Any, label: str, path: KeyPath) -> float:
        if name in WORDS and value != "?":
            return self.given.word(value, label, *path)
        return self.given.number(value, label, *path, may_be_unknown=True)

    def _part(self, typed: Tensor, label: str, places: tuple[int | None, ...], path: KeyPath) -> Tensor:
        """The cells of a part."""
        if len(places) > typed.dim():
            raise Fault("{name}: it has {n} axes", path, name=label, n=typed.dim())
        for place, size in zip(places, typed.shape, strict=False):
            if place is not None and not 1 <= place <= size:
                raise Fault(
                    "{name}: there is no number {place}; they are counted from 1 to {last}",
                    path,
                    name=label,
                    place=place,
                    last=size,
                )
        return typed[tuple(slice(None) if place is None else place - 1 for place in places)]

    def _name(self, label: str, path: Keys) -> str:
        """The quantity that a key under [claimed] stands for."""
        name = self.given.name(label)
        if name in self.sheet.values:
            return name
        if name not in AXES:
            near = hint(label, [*AXES, *self.sheet.values, "output", *WORDS])
            raise Fault("unknown name {name!r} under [claimed], {hint}", path, name=label, hint=near)
        if self.given.head.block is None and name in OF_BLOCKS:
            raise Fault('{label}: belongs to a block; say block = "pre" or block = "post"', path, label=label)
        raise missing(label, missing_for(name, self.lines, self.sheet.values) or name, path)


def _as_typed(cells: Tensor, shape: tuple[int, ...]) -> Tensor:
    """The cells without those axes of size 1 that the author leaves out."""
    choices = [cells]
    while choices[-1].dim() and len(choices[-1]) == 1:
        choices.append(choices[-1][0])
    choices.append(cells.squeeze())
    alike = [each for each in choices if each.dim() == len(shape)]
    return next((each for each in alike if each.shape == shape), alike[0] if alike else cells)


def choice(given: Given, key: str, values: Values, lines: Mapping[str, SheetQuantity]) -> tuple[SheetQuantity, ...]:
    """The quantity of a claimed choice of the next token, such as greedy or top_k_2; none for other keys."""
    rule, number = rule_of(key)
    path, head, is_beam = ("claimed", key), given.head, key.startswith("beam")
    if key not in CHOICES and not rule:
        return ()
    unknown = missing_for("next" if is_beam else "probabilities", lines, values)
    if unknown and not is_beam and given.stream not in values:
        unknown = _("probabilities (or logits)")
    if is_beam and not unknown:
        unknown = next((name for name in ("start", "beams", "length") if getattr(head, name) is None), "")
    if unknown:
        raise missing(key, unknown, path)
    if isinstance(head.claimed[key], dict):
        raise Fault('{key}: a key with a point needs quotes, as "temperature_0.5" = […]', path, key=key)
    if rule and number is None:
        raise Fault("{name}: {value!r} is not a number", path, name=key, value=key.rpartition("_")[2])
    beam = Beam(given.word(head.start, "start", "start"), head.beams or 0, head.length or 0) if is_beam else None
    try:
        return follow(iter([choice_of(key, beam)]), values)
    except UsageError as error:
        raise Fault(f"{key}: {str(error).rpartition(': ')[2]}", path) from None

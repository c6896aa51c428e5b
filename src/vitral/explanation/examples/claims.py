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
from vitral.explanation.examples.faults import Fault, KeyPath, Misfit, label_of
from vitral.explanation.examples.names import hint
from vitral.explanation.examples.reader import Reader, Values
from vitral.explanation.examples.schema import AXES, CHOICES, OF_BLOCKS, WORDS, cells, number, shape_of
from vitral.explanation.recipe import SheetQuantity, choice_of, follow, missing_for
from vitral.explanation.rows import Beam, rule_of
from vitral.explanation.sheet import Sheet

_PART = re.compile(r"(?P<name>[^\[\]]+)\[(?P<index>(?:\s*(?::|\d{1,8})\s*,?)+)\]")


def part_of(label: str) -> tuple[str, tuple[int | None, ...]]:
    """The name in a key, and the rows, columns or heads that it is about, counted from 1; None for all.

    >>> part_of("weights[2,:]")
    ('weights', (2, None))
    """
    match = _PART.fullmatch(label)
    if match is None:
        return label, ()
    index = re.findall(r":|\d+", match["index"])
    return match["name"].strip(), tuple(None if number == ":" else int(number) for number in index)


def _raised(fault: Fault) -> NoReturn:
    raise fault


def missing(what: str, name: str, path: KeyPath) -> Fault:
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
        reader: Reader,
        sheet: Sheet,
        lines: Mapping[str, SheetQuantity],
        complain: Callable[[Fault], None] | None = None,
    ) -> None:
        """Remember the computation.

        Args:
            reader: of the file.
            sheet: the computation.
            lines: those of the recipe, by name.
            complain: called with each complaint, while what cannot be read, and rows that are missing, are left out;
                None: the first is raised.
        """
        self.reader, self.sheet, self.lines = reader, sheet, lines
        self.complain, self.may_end = complain or _raised, complain is not None

    def read(self, entries: Iterable[tuple[KeyPath, Any]]) -> list[AuthorClaim]:
        """All claims; those about parts of the same quantity together.

        Args:
            entries: of each the path in the file, as ("claimed", "scores"), and the numbers.

        Raises:
            Fault: a claim cannot be read, or a cell is claimed twice.
        """
        claims: dict[str, AuthorClaim] = {}
        for path, value in entries:
            try:
                claim = self._claim(path, value)
                claims[claim.name] = self._together(claims.get(claim.name, claim), claim, path)
            except Fault as fault:
                self.complain(fault)
        return list(claims.values())

    def _together(self, first: AuthorClaim, second: AuthorClaim, path: KeyPath) -> AuthorClaim:
        """Two claims on different cells of a quantity as one."""
        claimed = ~second.values.isnan()
        if first is not second and bool((claimed & ~first.values.isnan()).any()):
            raise Fault("{name}: a cell is claimed twice", path, name=label_of(path))
        paths = {index: path for index, path in second.paths.items() if bool(claimed[index])}
        values = torch.where(claimed, second.values, first.values)
        return replace(first, values=values, paths={**first.paths, **paths})

    def _claim(self, path: KeyPath, value: Any) -> AuthorClaim:
        """A claim; NaN for the cells that it is not about."""
        label, selected = part_of(label_of(path))
        name = self._name(label, path)
        shape = self.sheet.values[name].shape
        typed = self.reader.conventions.seen(name, torch.arange(shape.numel()).reshape(shape))
        if selected:
            typed = self._part(typed[0] if typed.dim() == 3 and len(typed) == 1 else typed, label, selected, path)
        typed = _as_typed(typed, shape_of(value))
        rows = self.sheet.vocabulary
        if isinstance(value, dict) and value.keys() == set(rows):  # of a parameter table, in the order of the sheet
            value = {row: value[row] for row in rows}

        def complain(complaint: str, part: KeyPath) -> None:
            self.complain(Misfit("{label}: {complaint}", part, label=label, complaint=complaint))

        values, paths = torch.full(shape, math.nan, dtype=torch.float64), dict[tuple[int, ...], KeyPath]()
        parts = cells(value, tuple(typed.shape), path, complain, may_end=self.may_end)
        for cell, (cell_path, part) in zip(typed.flatten(), parts, strict=True):
            index = tuple(map(int, torch.unravel_index(cell, shape)))
            try:
                is_word = name in WORDS and part != "?"
                read = self.reader.word(part, *cell_path) if is_word else number(part, cell_path, may_be_unknown=True)
                values[index], paths[index] = read, cell_path
            except Fault as fault:
                self.complain(fault)
        return AuthorClaim(name, label, values, paths)

    def _part(self, typed: Tensor, label: str, selected: tuple[int | None, ...], path: KeyPath) -> Tensor:
        """The cells of a part."""
        if len(selected) > typed.dim():
            raise Fault("{name}: it has {n} axes", path, name=label, n=typed.dim())
        for position, size in zip(selected, typed.shape, strict=False):
            if position is not None and not 1 <= position <= size:
                raise Fault(
                    "{name}: there is no number {place}; they are counted from 1 to {last}",
                    path,
                    name=label,
                    place=position,
                    last=size,
                )
        return typed[tuple(slice(None) if position is None else position - 1 for position in selected)]

    def _name(self, label: str, path: KeyPath) -> str:
        """The quantity that a key under [claimed] stands for."""
        name = self.reader.name(label)
        if name in self.sheet.values:
            return name
        if name not in AXES:
            near = hint(label, [*AXES, *self.sheet.values, "output", *WORDS])
            raise Fault("unknown name {name!r} under [claimed], {hint}", path, name=label, hint=near)
        if self.reader.head.block is None and name in OF_BLOCKS:
            raise Fault('{label}: belongs to a block; say block = "pre" or block = "post"', path, label=label)
        raise missing(label, missing_for(name, self.lines, self.sheet.values) or name, path)


def _as_typed(cells: Tensor, shape: tuple[int, ...]) -> Tensor:
    """The cells without those axes of size 1 that the author leaves out."""
    views = [cells]
    while views[-1].dim() and len(views[-1]) == 1:
        views.append(views[-1][0])
    views.append(cells.squeeze())
    views = [view for view in views if view.dim() == len(shape)]
    return next((view for view in views if view.shape == shape), views[0] if views else cells)


def choice(reader: Reader, key: str, values: Values, lines: Mapping[str, SheetQuantity]) -> tuple[SheetQuantity, ...]:
    """The quantity of a claimed choice of the next token, such as greedy or top_k_2; none for other keys."""
    rule, number = rule_of(key)
    path, head, is_beam = ("claimed", key), reader.head, key.startswith("beam")
    if key not in CHOICES and not rule:
        return ()
    unknown = missing_for("next" if is_beam else "probabilities", lines, values)
    if unknown and not is_beam and reader.stream not in values:
        unknown = _("probabilities (or logits)")
    if is_beam and not unknown:
        unknown = next((name for name in ("start", "beams", "length") if getattr(head, name) is None), "")
    if unknown:
        raise missing(key, unknown, path)
    if isinstance(head.claimed[key], dict):
        raise Fault('{key}: a key with a point needs quotes, as "temperature_0.5" = […]', path, key=key)
    if rule and number is None:
        raise Fault("{name}: {value!r} is not a number", path, name=key, value=key.rpartition("_")[2])
    beam = Beam(reader.word(head.start, "start"), head.beams or 0, head.length or 0) if is_beam else None
    try:
        return follow(iter([choice_of(key, beam)]), values)
    except UsageError as error:
        raise Fault(f"{key}: {str(error).rpartition(': ')[2]}", path) from None

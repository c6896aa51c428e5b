"""Rules: how the tensors of Vitral's model are those of another library's, in both directions.

A rule is a bijection between some of our tensors and some of theirs. A map is a list of rules; it must name every
tensor of both sides once, so that what is imported is whole, and what is exported too.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import torch
from torch import Tensor

from vitral.core.errors import UsageError

Tensors = Mapping[str, Tensor]
Change = Callable[[Sequence[Tensor]], Sequence[Tensor]]
SHOWN = 3
"""Names that a message lists."""


@dataclass(frozen=True)
class Rule:
    """Some of our tensors and the same numbers as theirs.

    Attributes:
        ours: the names of our tensors.
        theirs: the names of theirs.
        export: ours, in order → theirs, in order.
        take: the inverse of `export`.
    """

    ours: tuple[str, ...]
    theirs: tuple[str, ...]
    export: Change
    take: Change


def same(ours: str, theirs: str) -> Rule:
    """One tensor under another name."""
    return Rule((ours,), (theirs,), list, list)


def transposed(ours: str, theirs: str) -> Rule:
    """A matrix that they store as [in, out]."""

    def turned(tensors: Sequence[Tensor]) -> list[Tensor]:
        if tensors[0].dim() != 2:
            raise ValueError(theirs)
        return [tensors[0].T]

    return Rule((ours,), (theirs,), turned, turned)


def split(ours: str, theirs: Sequence[str], sizes: Sequence[int]) -> Rule:
    """Rows that we store in one tensor and they in several, such as queries, keys and values."""
    return packed(ours, dict(zip(theirs, sizes, strict=True)), sizes, range(len(sizes)))


def packed(
    ours: str,
    theirs: Mapping[str, int],
    widths: Sequence[int],
    order: Sequence[int],
    *,
    heads: int = 1,
    flip: bool = False,
) -> Rule:
    """Queries, keys and values, which they store in another order and in one tensor or in several.

    Args:
        ours: rows of queries, then of keys, then of values.
        theirs: their tensors in order, and the rows of each.
        widths: rows of queries, keys and values.
        order: the order of the three in theirs, as in (1, 2, 0) for keys, values, queries.
        heads: into how many groups theirs are divided, each with some rows of all three; all rows lie together if 1.
        flip: whether they store matrices as [in, out].
    """
    groups = [rows.reshape(heads, -1) for rows in torch.arange(sum(widths)).split(list(widths))]
    there = torch.cat([groups[one] for one in order], dim=1).flatten()
    here, rows = there.argsort(), list(theirs.values())

    def turned(tensor: Tensor) -> Tensor:
        return tensor.T if flip and tensor.dim() == 2 else tensor

    def export(tensors: Sequence[Tensor]) -> list[Tensor]:
        return [turned(part) for part in tensors[0][there].split(rows)]

    def take(tensors: Sequence[Tensor]) -> list[Tensor]:
        if [len(turned(tensor)) for tensor in tensors] != rows:
            raise ValueError(listed(list(theirs)))
        return [torch.cat([turned(tensor) for tensor in tensors])[here]]

    return Rule((ours,), tuple(theirs), export, take)


def shifted(ours: str, theirs: str, rows: int) -> Rule:
    """A table that they store below so many unused rows, which are zero in an export."""

    def export(tensors: Sequence[Tensor]) -> list[Tensor]:
        table = tensors[0]
        return [torch.cat([table.new_zeros(rows, table.shape[1]), table])]

    return Rule((ours,), (theirs,), export, lambda tensors: [tensors[0][rows:]])


def exported(rules: Sequence[Rule], ours: Tensors) -> dict[str, Tensor]:
    """Their tensors from ours.

    Raises:
        UsageError: a tensor has no rule, or a rule no tensor.
    """
    _require_whole([name for rule in rules for name in rule.ours], ours, "vitral")
    return _changed([(rule.ours, rule.theirs, rule.export) for rule in rules], ours)


def imported(rules: Sequence[Rule], theirs: Tensors, where: str) -> dict[str, Tensor]:
    """Our tensors from theirs.

    Args:
        rules: the map.
        theirs: their tensors, which are not changed.
        where: the folder, for messages.

    Raises:
        UsageError: a tensor has no rule, a rule no tensor, or the shapes do not fit a rule.
    """
    _require_whole([name for rule in rules for name in rule.theirs], theirs, where)
    empty = sorted(name for name, tensor in theirs.items() if not tensor.dim() or not tensor.numel())
    if empty:
        raise misshapen(where, listed(empty))
    try:
        return _changed([(rule.theirs, rule.ours, rule.take) for rule in rules], theirs)
    except (RuntimeError, ValueError) as error:
        raise misshapen(where, error) from None


def misshapen(where: str, names: object) -> UsageError:
    """The error for tensors whose shapes do not fit a rule."""
    return UsageError("{where}: its tensors do not have the shapes of this form ({error})", where=where, error=names)


def require_named(names: Iterable[str], there: Iterable[str], where: str) -> None:
    """Refuse weights in which a tensor is missing.

    Raises:
        UsageError: names the first ones.
    """
    gaps = sorted(set(names) - set(there))
    if gaps:
        raise UsageError("{where}: {names} missing from the weights", where=where, names=listed(gaps))


def _changed(steps: Iterable[tuple[Sequence[str], Sequence[str], Change]], tensors: Tensors) -> dict[str, Tensor]:
    made: dict[str, Tensor] = {}
    for given, wanted, change in steps:
        made |= zip(wanted, change([tensors[name] for name in given]), strict=True)
    return {name: tensor.contiguous() for name, tensor in made.items()}


def _require_whole(named: Sequence[str], there: Iterable[str], where: str) -> None:
    require_named(named, there, where)
    surplus = sorted(set(there) - set(named)) or sorted(name for name, count in Counter(named).items() if count > 1)
    if surplus:
        raise UsageError("{where}: {names} have no place in this form", where=where, names=listed(surplus))


def listed(names: Sequence[str]) -> str:
    """The first names, and how many there are."""
    more = f" … ({len(names)})" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more


def by_layer(num_layers: int, rules: Callable[[int], Iterable[Rule]]) -> list[Rule]:
    """The rules of every block."""
    return list(chain.from_iterable(map(rules, range(num_layers))))


def weight_and_bias(
    rule: Callable[..., Rule], ours: str, theirs: str, *details: object, bias: bool = True
) -> list[Rule]:
    """A rule for `.weight` and, where there is one, for `.bias`."""
    parts = ("weight", "bias") if bias else ("weight",)
    return [rule(f"{ours}.{part}", f"{theirs}.{part}", *details) for part in parts]

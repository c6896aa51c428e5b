"""Rules: how the tensors of Vitral's model are those of another library's, in both directions.

A rule is a bijection between some of our tensors and some of theirs. A map of names makes rules; they must name every
tensor of both sides once, so that what is imported is whole, and what is exported too.
"""

from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from vitral.core.config import Config
from vitral.core.errors import UsageError
from vitral.model import ModelConfig, parameter_table

Tensors = Mapping[str, Tensor]
SHOWN = 3
"""Names that a message lists."""
LAYER, HEAD_NUMBER = "{layer}", "{head}"
PARTS = ("weight", "bias")


@dataclass(frozen=True)
class Rule:
    """One of our tensors and the same numbers as theirs.

    Attributes:
        ours: the name of our tensor.
        theirs: the names of theirs.
        export: ours → theirs, in order.
        take: the inverse of `export`.
    """

    ours: str
    theirs: tuple[str, ...]
    export: Callable[[Tensor], Sequence[Tensor]]
    take: Callable[[Sequence[Tensor]], Tensor]


class Place(Config):
    """Where a tensor of ours, or a module's weight and bias, is among theirs.

    Attributes:
        name: the name of their tensor; with a list, of queries, keys and values. {layer} and {head} are numbers from 0.
        transpose: whether they store the matrix as [in, out].
        order: the order of queries, keys and values, "qkv" for ours.
        by: "block" if all queries lie together, "head" if the rows of each head do.
        like: a module of torch whose tensors are all of the block's or of its attention's.
    """

    name: str | Annotated[tuple[str, ...], Field(strict=False, min_length=3, max_length=3)]
    transpose: bool = False
    order: Annotated[str, Field(pattern="^(qkv|qvk|kqv|kvq|vqk|vkq)$")] = "qkv"
    by: Literal["block", "head"] = "block"
    like: Literal["torch.nn.TransformerEncoderLayer", "torch.nn.MultiheadAttention"] | None = None

    def names(self) -> Sequence[str]:
        """One name, or three."""
        return [self.name] if isinstance(self.name, str) else self.name


Own = Callable[[ModelConfig, str, int], Rule]
"""What makes the rule of a tensor of ours in a layer."""
Where = str | tuple[str, ...] | Place | Own
Names = Mapping[str, Where]
"""A map of names: our tensors, or modules with weight and bias, and where they are."""


def by_names(*maps: Names) -> Callable[[ModelConfig], list[Rule]]:
    """The rules of maps of names, for the tensors that a model has; those of blocks one block after another."""

    def rules(config: ModelConfig) -> list[Rule]:
        known, made = {row.name for row in parameter_table(config, 2)}, list[Rule]()
        for names in maps:
            for in_blocks, keys in groupby(names, lambda key: LAYER in key):
                together = list(keys)
                for layer in range(config.num_layers if in_blocks else 1):
                    for key in together:
                        made += rules_at(config, key, names[key], layer, known)
        return made

    return rules


def rules_at(config: ModelConfig, key: str, place: Where, layer: int, known: Container[str]) -> Iterator[Rule]:
    """The rules of one key in one layer: of a tensor, or of a module's weight and bias.

    Args:
        config: the model.
        key: our tensor or module.
        place: where it is.
        layer: the number that stands for {layer}.
        known: the names of our tensors.
    """
    module = key.replace(LAYER, str(layer))
    for part in ("",) if module in known else [f".{part}" for part in PARTS]:
        ours = f"{module}{part}"
        if ours not in known:
            continue
        if not isinstance(place, str | tuple | Place):
            yield place(config, ours, layer)
            continue
        where = place if isinstance(place, Place) else Place(name=place)
        names = [f"{name.replace(LAYER, str(layer))}{part}" for name in where.names()]
        if ".attn.in_proj." in ours:
            yield _of_attention(config, ours, names, where)
        else:
            yield same(ours, names[0], transpose=where.transpose)


def same(ours: str, theirs: str, *, transpose: bool = False) -> Rule:
    """One tensor under another name; `transpose` if they store a matrix as [in, out]."""
    return Rule(
        ours,
        (theirs,),
        lambda tensor: [_turned(tensor, transpose)],
        lambda tensors: _turned(tensors[0], transpose),
    )


def _turned(matrix: Tensor, transpose: bool) -> Tensor:
    return matrix.T if transpose and matrix.dim() == 2 else matrix


def projections(config: ModelConfig) -> list[int]:
    """The rows of queries, keys and values."""
    return [heads * config.d_head for heads in (config.num_heads, config.kv_heads, config.kv_heads)]


def _of_attention(config: ModelConfig, ours: str, names: Sequence[str], place: Place) -> Rule:
    """Queries, keys and values, which they store in another order, and in one tensor, in three or in those of heads."""
    widths, order = projections(config), ["qkv".index(letter) for letter in place.order]
    groups = config.num_heads if place.by == "head" else 1
    rows = [part.reshape(groups, -1) for part in torch.arange(sum(widths)).split(widths)]
    theirs: dict[str, int] = {}
    for name, size in zip(names, [widths[one] for one in order] if len(names) > 1 else [sum(widths)], strict=True):
        count = 1 if HEAD_NUMBER not in name else groups if place.by == "head" else size // config.d_head
        theirs |= {name.replace(HEAD_NUMBER, str(number)): size // count for number in range(count)}
    return permuted(ours, theirs, torch.cat([rows[one] for one in order], dim=1).flatten(), transpose=place.transpose)


def permuted(ours: str, theirs: Mapping[str, int], there: Tensor, *, transpose: bool = False) -> Rule:
    """Rows in another order, and in several tensors.

    Args:
        ours: our tensor.
        theirs: their tensors in order, and the rows of each.
        there: the number of the row of ours that each of theirs is.
        transpose: whether they store matrices as [in, out].
    """
    here, rows = there.argsort(), list(theirs.values())

    def export(tensor: Tensor) -> list[Tensor]:
        return [_turned(part, transpose) for part in tensor[there].split(rows)]

    def take(tensors: Sequence[Tensor]) -> Tensor:
        turned = [_turned(tensor, transpose) for tensor in tensors]
        if [len(tensor) for tensor in turned] != rows:
            raise ValueError(listed(list(theirs)))
        return torch.cat(turned)[here]

    return Rule(ours, tuple(theirs), export, take)


def exported(rules: Sequence[Rule], ours: Tensors) -> dict[str, Tensor]:
    """Their tensors from ours.

    Raises:
        UsageError: a tensor has no rule, or a rule no tensor.
    """
    _require_whole([rule.ours for rule in rules], ours, "vitral")
    made: dict[str, Tensor] = {}
    for rule in rules:
        made |= zip(rule.theirs, rule.export(ours[rule.ours]), strict=True)
    return {name: tensor.contiguous() for name, tensor in made.items()}


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
    empty = sorted(name for name, tensor in theirs.items() if not tensor.numel() or not tensor.dim())
    if empty:
        raise misshapen(where, listed(empty))
    try:
        return {rule.ours: rule.take([theirs[name] for name in rule.theirs]).contiguous() for rule in rules}
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


def _require_whole(named: Sequence[str], there: Iterable[str], where: str) -> None:
    require_named(named, there, where)
    surplus = sorted(set(there) - set(named)) or sorted(name for name, count in Counter(named).items() if count > 1)
    if surplus:
        raise UsageError("{where}: {names} have no place in this form", where=where, names=listed(surplus))


def listed(names: Sequence[str]) -> str:
    """The first names, and how many there are."""
    more = f" … ({len(names)})" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more

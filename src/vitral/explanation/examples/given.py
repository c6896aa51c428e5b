"""The numbers under [given] in a worked example, and their sizes; an error names the place in the file."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from vitral.core.errors import UsageError
from vitral.core.language import _
from vitral.explanation.examples.document import Document
from vitral.explanation.examples.free_steps import read_steps
from vitral.explanation.examples.names import Names, hint
from vitral.explanation.examples.numerals import DEFAULT
from vitral.explanation.examples.schema import (
    AXES,
    IDENTITY,
    Head,
    NotNumbers,
    nesting,
    numbers,
    shape_text,
    with_comma_hint,
)
from vitral.explanation.examples.settings import settled
from vitral.explanation.readings.layout import Conventions
from vitral.explanation.rows.choices import word_index

BEAM = ("start", "beams", "length")
NESTED = ("attn", "mlp")
"""Tables of quantities: `mlp.pre = …` is the key "mlp.pre"."""

Values = dict[str, Tensor]
Keys = tuple[str, ...]


def file_entries(table: Mapping[str, Any]) -> Iterator[tuple[Keys, Any]]:
    """The keys of a table with their values."""
    for key, value in table.items():
        if key in NESTED and isinstance(value, dict):
            yield from (((key, inner), part) for inner, part in value.items())
        else:
            yield (key,), value


class Given:
    """What one file says besides its claims.

    Attributes:
        document: the file.
        head: its tables and settings, with their types.
        stream: the name of the first quantity of the computation.
        steps: the author's own steps.
        name: from a key of the file to the name of the quantity.
        conventions: how the file writes vectors and weights.
        has_memory: whether keys and values come from other states than queries.
        sizes: of each axis, with the key that was read first with it.
    """

    def __init__(self, document: Document) -> None:
        """Read the settings and steps; the numbers are read by `all_given`.

        Raises:
            UsageError: something is missing, unknown or of another type.
        """
        self.document = document
        where, data = document.name, document.data
        if "given" not in data:
            raise UsageError(
                "{where}: no [given] table; a worked example has the tables [given] and [claimed]", where=where
            )
        self.moved: dict[tuple[str, ...], tuple[str, ...]] = {}
        data, self.moved = settled(data, self.refuse)
        try:
            self.head = Head.parse(data, where)
        except UsageError as error:
            complaint = str(error).removeprefix(f"{where}: ")
            raise self.refuse(complaint, complaint.partition(":")[0]) from None
        self.stream = "x" if self.head.block is None else "resid_pre"
        self.steps = read_steps(dict(file_entries(self.head.steps)), self.refuse)
        self.name = Names(self.stream, (name for step in self.steps for name in step.mentions))
        columns = self.head.layout == "columns"
        self.conventions = Conventions(
            columns, columns if self.head.weight_layout is None else self.head.weight_layout == "out-in"
        )
        names = {self.name(".".join(keys)) for keys, _ in file_entries(self.head.given)}
        self.has_memory = "memory" in names
        if self.has_memory and self.stream != "x":
            complaint = _("memory: in a block, cross-attention is written as steps; give the states another name")
            raise self.refuse(complaint, "given", "memory")
        self.sizes: dict[str, tuple[int, str]] = {}
        if self.head.vocabulary:
            self.sizes["vocab"] = len(self.head.vocabulary), "vocabulary"

    def refuse(self, complaint: str, *path: str | int) -> UsageError:
        """The error, with the place of the deepest part of `path` that the file contains."""
        for depth in range(len(path), 0, -1):
            begin = tuple(map(str, path[:depth]))
            if begin in self.moved:
                path = (*self.moved[begin], *path[depth:])
                break
        return self.document.refuse(complaint, *path)

    def missing(self, what: str, name: str, *path: str) -> UsageError:
        """The error for a claim that the given numbers do not determine."""
        settings = {
            "scale": _('scale: is needed after the scores; add scale = "none", "sqrt", "linear" or a number'),
            "mask": _('mask: is needed after the scaled scores; add mask = "causal" or "bidirectional"'),
        }
        complaint = _("{what}: cannot be computed, {name} is missing under [given]", what=what, name=name)
        complaint = settings.get(name, complaint)
        return self.refuse(complaint, *path)

    def word(self, word: Any, vocabulary: list[str], *path: str | int) -> int:
        """The index of a word."""
        if not vocabulary:
            raise self.refuse(_("vocabulary: is missing; it lists the words"), *path)
        try:
            return word_index(word, vocabulary, str(path[-1]))
        except UsageError as error:
            raise self.refuse(str(error), *path) from None

    def axes(self, name: str) -> Keys:
        """The axes of a quantity of this computation."""
        of_memory = self.has_memory and name in ("w_k", "w_v")
        return ("kv_heads", "d_memory", AXES[name][2]) if of_memory else AXES[name]

    def all_given(self) -> Values:
        """The tensors under [given] by name."""
        values: Values = {}
        keys_of: dict[str, Keys] = {}
        for keys, value in file_entries(self.head.given):
            name = self.name(".".join(keys))
            if keys[0] in ("d_k", *BEAM) or (name == "position_embedding" and value == "sinusoidal"):
                continue
            if name in keys_of:
                raise self.refuse(_("{name}: is given twice, by two names", name=name), "given", *keys)
            if name in self.name.own:
                keys_of[name] = keys
                values[name] = self.own_number(".".join(keys), value, "given", *keys)
                continue
            if name not in AXES:
                label = ".".join(keys)
                near = hint(label, [*AXES, *BEAM, "d_k"])
                complaint = _("unknown name {name!r} under [given], {hint}", name=label, hint=near)
                raise self.refuse(complaint, "given", *keys)
            keys_of[name] = keys
            if not (isinstance(value, str) and value.casefold() in IDENTITY):
                values[name] = self.quantity(name, keys, value)
        return {name: values[name] if name in values else self.identity(name, keys) for name, keys in keys_of.items()}

    def own_number(self, label: str, value: Any, *path: str) -> Tensor:
        """A number, a list, a matrix or a list of matrices that only steps use; words stand for their indices."""
        words = [value] if isinstance(value, str) else value
        if isinstance(words, list) and words and all(isinstance(word, str) for word in words) and self.head.vocabulary:
            return torch.tensor([self.word(word, self.head.vocabulary, *path) for word in words], dtype=torch.float64)
        tensor = torch.tensor(self.numbers(value, path, label), dtype=torch.float64)
        if tensor.numel() == 0 or tensor.dim() > 3:
            raise self.refuse(_("{label}: expected a number, a list, a matrix or a list of these", label=label), *path)
        if not bool((tensor < math.inf).all()):
            raise self.refuse(_("{label}: every number must be finite", label=label), *path)
        return tensor.reshape(1) if tensor.dim() == 0 else tensor

    def quantity(self, name: str, keys: Keys, value: Any) -> Tensor:
        """The numbers of a quantity of the computation; they must fit those that are known."""
        label = ".".join(keys)
        tensor = self.tensor(name, label, value, "given", *keys)[0]
        may_be_infinite = name in ("masked", "logits")
        if not bool((tensor < math.inf).all()) or not (may_be_infinite or bool((tensor > -math.inf).all())):
            raise self.refuse(_("{label}: every number must be finite", label=label), "given", *keys)
        if name in ("probabilities", "next", "weights"):
            self.check_shares(name, tensor)
        self.bind(label, self.axes(name), tensor.shape, "given", *keys)
        return tensor

    def check_shares(self, name: str, tensor: Tensor) -> None:
        """Refuse rows that are not probabilities; a row of weights may be all zeros."""
        decimals = DEFAULT if self.head.decimals is None else self.head.decimals
        totals, room = tensor.sum(dim=-1), max(0.02, tensor.shape[-1] * 10.0**-decimals / 2)
        hidden = (totals == 0) if name == "weights" else torch.zeros_like(totals).bool()
        if bool((tensor < 0).any()) or bool((((totals - 1).abs() > room) & ~hidden).any()):
            complaint = _("{name}: expected shares of one, none below 0, each row adding up to 1", name=name)
            raise self.refuse(complaint, "given", name)

    def tensor(self, name: str, label: str, value: Any, *path: str) -> tuple[Tensor, int]:
        """The numbers with all their axes, and the number of leading axes that the file omits."""
        rank = len(AXES[name])
        tensor = torch.tensor(self.numbers(value, path, label), dtype=torch.float64)
        leading = AXES[name][0] in ("heads", "kv_heads") or name in ("logits", "probabilities")
        if tensor.numel() == 0:
            raise self.refuse(_("{label}: is empty", label=label), *path)
        if tensor.dim() == rank - 1 and (leading or name == "factor"):
            one = name in ("logits", "probabilities")  # a vector for one position
            return tensor[None] if one or name == "factor" else self.conventions.seen(name, tensor)[None], 1
        if tensor.dim() != rank:
            expected, got = nesting(rank), nesting(tensor.dim())
            if leading:
                expected = _("{one} or {other}", one=nesting(rank - 1), other=expected)
            complaint = _("{label}: expected {expected}, not {got}", label=label, expected=expected, got=got)
            raise self.refuse(complaint, *path)
        return self.conventions.seen(name, tensor), 0

    def numbers(self, value: Any, path: tuple[str | int, ...], label: str) -> Any:
        """A number or nested lists of numbers."""
        try:
            return numbers(value, label, path[0] == "claimed")
        except NotNumbers as error:
            raise self.refuse(str(error), *path, *error.place) from None

    def bind(self, label: str, axes: Keys, shape: tuple[int, ...], *path: str) -> None:
        """Refuse an axis whose size differs from the one it has elsewhere."""
        for axis, size in zip(axes, shape, strict=True):
            if axis == "factors":
                continue
            known = self.sizes.setdefault(axis, (size, label))
            if axis == "heads" and self.head.heads not in (None, size):
                complaint = _(
                    "{label}: {size} heads, but heads = {heads}", label=label, size=size, heads=self.head.heads
                )
                raise self.refuse(complaint, *path)
            if known[0] != size:
                complaint = _(
                    "{label} is {shape}: its {axis} is {size}, expected {expected} as in {other}",
                    label=label,
                    shape=shape_text(shape),
                    axis=axis,
                    size=size,
                    expected=known[0],
                    other=known[1],
                )
                hinted = with_comma_hint(complaint, self.raw(path), known[0])
                other = self.raw(("given", *known[1].split(".")))
                raise self.refuse(with_comma_hint(complaint, other, size) if hinted == complaint else hinted, *path)

    def raw(self, path: Keys) -> Any:
        """The value at a path of the file."""
        value: Any = self.document.data
        for key in path:
            value = value.get(key) if isinstance(value, Mapping) else None
        return value

    def identity(self, name: str, keys: Keys) -> Tensor:
        """A unit matrix, of the size that the other quantities require."""
        width = self.sizes.get(self.axes(name)[-2] if name != "w_o" else "d_model", (0, ""))[0]
        if name == "w_o":
            width = self.sizes.get("heads", (1, ""))[0] * self.sizes.get("d_value", (width, ""))[0]
        if not width:
            complaint = _(
                '{name} = "identity": its size is not known; give {stream} or write it out',
                name=".".join(keys),
                stream=self.stream,
            )
            raise self.refuse(complaint, "given", *keys)
        eye = torch.eye(width, dtype=torch.float64)
        if len(AXES[name]) < 3:
            return eye
        self.bind(".".join(keys), self.axes(name), (1, width, width), "given", *keys)
        return eye[None]

"""The settings, steps and given numbers of a worked example, and their sizes; an error names the line or the cell."""

import keyword
import math
import re
import unicodedata
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NoReturn

import torch
from torch import Tensor

from vitral.core.errors import UsageError, reason
from vitral.core.language import N_, _
from vitral.explanation.examples.document import Document, TomlDocument
from vitral.explanation.examples.faults import Fault, KeyPath, Misfit, at, label_of
from vitral.explanation.examples.names import Names, hint
from vitral.explanation.examples.numerals import DEFAULT
from vitral.explanation.examples.schema import (
    AXES,
    IDENTITY,
    LARGEST,
    cells,
    nesting,
    number,
    shape_of,
    shape_text,
)
from vitral.explanation.examples.settings import Head, settled
from vitral.explanation.expressions import Tree, parse, references
from vitral.explanation.expressions.parser import FUNCTIONS, GRADIENT, NAMES
from vitral.explanation.readings.layout import Conventions

OF_HEADS = ("heads", "kv_heads")
MOST_STEPS = 100
_NAME = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)?")

Values = dict[str, Tensor]


def read_steps(table: Mapping[str, Any]) -> Iterator[tuple[str, Tree]]:
    """The name and the tree of each step of a file, from the expressions by name; the names are those of the file.

    Raises:
        Fault: too many, a name that is none, or text that is no expression.
    """
    if len(table) > MOST_STEPS:
        raise Fault("steps: {n} of them; at most {most}", ("steps",), n=len(table), most=MOST_STEPS)
    for name, text in table.items():
        with at("steps", name):
            if not _is_name(name):
                raise UsageError("a name has letters, digits and underscores, and is no word of the language")
            if not isinstance(text, str):
                raise UsageError('expected an expression in quotes, as {name} = "q @ k.T"', name=name)
            yield name, parse(text)


def _is_name(name: str) -> bool:
    """Whether expressions can mention it."""
    words = {*FUNCTIONS, *NAMES, GRADIENT}
    plain = unicodedata.normalize("NFKC", name) == name and _NAME.fullmatch(name)
    return bool(plain) and len(name) <= 40 and name not in words and not any(map(keyword.iskeyword, name.split(".")))


class Reader:
    """Reads what a file has besides its claims.

    Attributes:
        document: the file.
        head: its tables and settings, with their types.
        stream: the name of the first quantity of the computation.
        steps: the trees of the author's own steps, by name.
        name: from a key of the file to the name of the quantity.
        conventions: how the file writes vectors and weights.
        has_memory: whether keys and values come from other states than queries.
        sizes: of each axis, with the key that was read first with it.
        sinusoidal: whether the position embedding is, once the numbers are read.
    """

    def __init__(self, document: Document) -> None:
        """Read the settings and steps; the numbers are read by `all_given`.

        Raises:
            UsageError: something is missing, unknown or of another type.
        """
        self.document, self.sinusoidal = document, False
        self.moved: dict[KeyPath, KeyPath] = {}
        with self.located():
            self._read(document.name, document.data)

    def _read(self, where: str, data: Mapping[str, Any]) -> None:
        if "given" not in data:
            raise UsageError(
                "{where}: no [given] table; a worked example has the tables [given] and [claimed]", where=where
            )
        data, self.moved = settled(data)
        try:
            self.head = head = Head.parse(data, where)
        except UsageError as error:
            complaint = str(error).removeprefix(f"{where}: ")
            raise Fault(complaint, tuple(complaint.partition(":")[0].split("."))) from None
        self.stream = "x" if head.block is None else "resid_pre"
        self.steps = dict(read_steps(head.steps))
        self.name = Names(
            self.stream, (name for step, tree in self.steps.items() for name in (step, *references(tree)))
        )
        columns = head.layout == "columns"
        self.conventions = Conventions(
            columns, columns if head.weight_layout is None else head.weight_layout == "out-in"
        )
        self.has_memory = any(self.name(label) == "memory" for label in head.given)
        if self.has_memory and self.stream != "x":
            raise Fault(
                "memory: in a block, cross-attention is written as steps; give the states another name",
                ("given", "memory"),
            )
        listed = {
            "vocab": (len(head.vocabulary), "vocabulary"),
            "time": (len(head.tokens), "tokens"),
            "source": (len(head.memory_tokens), "memory_tokens"),
            "heads": (head.heads or 0, "heads"),
        }
        self.sizes: dict[str, tuple[int, str]] = {axis: size for axis, size in listed.items() if size[0]}

    @contextmanager
    def located(self) -> Generator[None]:
        """Give a fault the name of the file and the line."""
        try:
            yield
        except Fault as fault:
            raise self.refuse(fault) from None

    def refuse(self, fault: Fault) -> UsageError:
        """The error, with the line or cell of the deepest part of its path that the file contains.

        If numbers have a wrong shape, and there may be an unquoted decimal comma, it says what that does.
        """
        path, complaint = fault.path, reason(fault)
        is_toml = isinstance(self.document, TomlDocument)
        if isinstance(fault, Misfit) and is_toml and re.search(r"\d,\d", self.document.text):
            hint = N_('{complaint}; if a comma is decimal: 0,5 is two numbers, write 0.5 or "0,5"')
            complaint = hint.format(complaint=complaint)
        begin = next((path[:depth] for depth in range(len(path), 0, -1) if path[:depth] in self.moved), ())
        return self.document.refuse(complaint, *self.moved.get(begin, ()), *path[len(begin) :])

    def word(self, word: Any, *path: str | int) -> int:
        """The index of the word at a path."""
        vocabulary = self.head.vocabulary
        if not vocabulary:
            raise Fault("vocabulary: is missing; it lists the words", path)
        if word not in vocabulary:
            raise Fault(
                "{where}: {word!r} is not in the vocabulary ({vocabulary})",
                path,
                where=label_of(path),
                word=word,
                vocabulary=", ".join(vocabulary),
            )
        return vocabulary.index(word)

    def axes(self, name: str) -> tuple[str, ...]:
        """The axes of a quantity of this computation."""
        of_memory = self.has_memory and name in ("w_k", "w_v")
        return ("kv_heads", "d_memory", AXES[name][2]) if of_memory else AXES[name]

    def all_given(self) -> Values:
        """The tensors under [given] by name."""
        values: Values = {}
        labels: dict[str, str] = {}
        for label, value in self.head.given.items():
            name, path = self.name(label), ("given", label)
            if name == "position_embedding" and value == "sinusoidal":
                self.sinusoidal = True
                continue
            if name in labels:
                raise Fault("{name}: is given twice, by two names", path, name=name)
            labels[name] = label
            if name in self.name.own:
                values[name] = self.own_number(value, path)
            elif name not in AXES:
                near = hint(label, [*AXES, "start", "beams", "length", "d_k"])
                raise Fault("unknown name {name!r} under [given], {hint}", path, name=label, hint=near)
            elif not isinstance(value, str) or value.casefold() not in IDENTITY:
                values[name] = self.quantity(name, value, path)
        return {name: values[name] if name in values else self.identity(name, label) for name, label in labels.items()}

    def array(self, value: Any, path: KeyPath, *, least: float = -math.inf) -> Tensor:
        """Numbers in lists of equal lengths, none below `least` and all below infinity."""
        shape, label = shape_of(value), label_of(path)
        if len(shape) > 3 or 0 in shape:
            raise Fault("{label}: expected a number, a list, a matrix or a list of these", path, label=label)

        def refuse(complaint: str, part: KeyPath) -> NoReturn:
            raise Misfit("{label}: {complaint}", part, label=label, complaint=complaint)

        numbers = [number(cell, cell_path) for cell_path, cell in cells(value, shape, path, refuse)]
        if any(not least <= entry < math.inf for entry in numbers):
            raise Fault("{label}: every number must be finite", path, label=label)
        return torch.tensor(numbers, dtype=torch.float64).reshape(shape)

    def own_number(self, value: Any, path: KeyPath) -> Tensor:
        """A number, a list, a matrix or a list of matrices that only steps use; words stand for their indices."""
        words = [value] if isinstance(value, str) else value
        if isinstance(words, list) and words and all(isinstance(word, str) for word in words) and self.head.vocabulary:
            return torch.tensor([self.word(word, *path) for word in words], dtype=torch.float64)
        return torch.atleast_1d(self.array(value, path))

    def quantity(self, name: str, value: Any, path: KeyPath) -> Tensor:
        """The numbers of a quantity of the computation; they must fit those that are known."""
        may_be_infinite, label = name in ("masked", "logits"), label_of(path)
        tensor = self.array(value, path, least=-math.inf if may_be_infinite else -LARGEST)
        tensor, axes = self.conventions.seen(name, tensor), self.axes(name)
        may_be_left_out = axes[0] in (*OF_HEADS, "factors") or name in ("logits", "probabilities")
        if may_be_left_out and tensor.dim() == len(axes) - 1:
            tensor = tensor[None]
        if tensor.dim() != len(axes):
            expected, got = nesting(len(axes)), nesting(tensor.dim())
            if may_be_left_out:
                expected = _("{one} or {other}", one=nesting(len(axes) - 1), other=expected)
            raise Fault("{label}: expected {expected}, not {got}", path, label=label, expected=expected, got=got)
        if name in ("probabilities", "next", "weights"):
            self.check_shares(name, tensor, label)
        self.bind(label, axes, tensor.shape)
        return tensor

    def check_shares(self, name: str, tensor: Tensor, label: str) -> None:
        """Refuse rows that are not probabilities; a row of weights may be all zeros."""
        decimals = DEFAULT if self.head.decimals is None else self.head.decimals
        totals, room = tensor.sum(dim=-1), max(0.02, tensor.shape[-1] * 10.0**-decimals / 2)
        is_off = ((totals - 1).abs() > room) & ~((totals == 0) & (name == "weights"))
        if bool((tensor < 0).any()) or bool(is_off.any()):
            raise Fault(
                "{name}: expected shares of one, none below 0, each row adding up to 1", ("given", label), name=label
            )

    def bind(self, label: str, axes: tuple[str, ...], shape: tuple[int, ...]) -> None:
        """Refuse an axis whose size differs from the one it has elsewhere."""
        for axis, size in zip(axes, shape, strict=True):
            known, other = (size, label) if axis == "factors" else self.sizes.setdefault(axis, (size, label))
            if known != size:
                raise Misfit(
                    "{label} is {shape}: its {axis} is {size}, expected {expected} as in {other}",
                    ("given", label),
                    label=label,
                    shape=shape_text(shape),
                    axis=axis,
                    size=size,
                    expected=known,
                    other=other,
                )

    def identity(self, name: str, label: str) -> Tensor:
        """A unit matrix, of the size that the other quantities require."""
        axes = self.axes(name)
        heads, values, model, rows = (
            self.sizes.get(axis, (0,))[0] for axis in ("heads", "d_value", "d_model", axes[-2])
        )
        width = (max(1, heads) * values or model) if name == "w_o" else rows
        if not width:
            raise Fault(
                '{name} = "identity": its size is not known; give {stream} or write it out',
                ("given", label),
                name=label,
                stream=self.stream,
            )
        eye = torch.eye(width, dtype=torch.float64).expand(*[1] * (len(axes) - 2), -1, -1)
        if axes[0] in OF_HEADS:
            self.bind(label, axes, eye.shape)
        return eye

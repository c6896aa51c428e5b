"""Reading worked examples from TOML files. The format is described in docs/examples.md."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch import Tensor

from vitral.attention.masks import Mask
from vitral.core.checked import checked
from vitral.core.errors import UsageError, reason
from vitral.core.language import _
from vitral.explanation.conventions import Conventions
from vitral.explanation.documents import document_of
from vitral.explanation.examples.claims import Part, cells_of, part_of
from vitral.explanation.examples.digits import DEFAULT, most_decimals
from vitral.explanation.examples.document import Document, TomlDocument
from vitral.explanation.examples.example import AuthorClaim, Example
from vitral.explanation.examples.free_steps import StepSolver, read_steps
from vitral.explanation.examples.names import Names, hint
from vitral.explanation.examples.parameters import FindModel, parameter_sheet
from vitral.explanation.examples.schema import (
    AXES,
    MOST_DECIMALS,
    OF_BLOCKS,
    Head,
    NotNumbers,
    mask_of,
    nesting,
    numbers,
    shape_text,
    turned_tables,
    with_comma_hint,
)
from vitral.explanation.examples.settings import settled
from vitral.explanation.expressions.evaluation import MOST_ELEMENTS
from vitral.explanation.operations.decoding import Beam, Filtered, Greedy, word_index
from vitral.explanation.recipe import Architecture, RecipeLine, follow, missing_for, recipe
from vitral.explanation.sheet import Sheet, SheetQuantity

MOST_BYTES = 2**20
"""A larger file is not a worked example."""

RULES = ("temperature", "top_k", "top_p", "min_p")
BEAM = ("start", "beams", "length")
MOST_BEAMS = 32
"""Largest number of beams and largest length of a beam search."""
NESTED = ("attn", "mlp")
"""Tables of quantities: `mlp.pre = …` is the key "mlp.pre"."""

Values = dict[str, Tensor]
Keys = tuple[str, ...]


@checked(first=True)
def load_example(path: Path, find_model: FindModel) -> Example:
    """Read a worked example from a file.

    Args:
        path: a file in any format of `vitral.explanation.documents`.
        find_model: returns the configuration of a preset, for parameter tables.

    Raises:
        UsageError: the file cannot be read, or contains an error; the message names the line or the cell.
    """
    return read_example(load_document(path), find_model, path)


def load_document(path: Path) -> Document:
    """The document of a file.

    Raises:
        UsageError: the file cannot be read.
    """
    try:
        if path.is_dir():
            raise UsageError("{path}: is a folder, not a worked example", path=path)
        with path.open("rb") as file:
            raw = read_limited(file, str(path))
    except OSError as error:
        raise UsageError("{path}: cannot be read ({reason})", path=path, reason=reason(error)) from None
    return document_of(raw, str(path))


def read_limited(file: BinaryIO, name: str) -> bytes:
    """The bytes of a worked example.

    Raises:
        UsageError: there are more than `MOST_BYTES`.
    """
    raw = file.read(MOST_BYTES + 1)  # a device has no size and no end
    if len(raw) > MOST_BYTES:
        raise UsageError(
            "{path}: larger than {most_bytes:,} bytes: not a worked example", path=name, most_bytes=MOST_BYTES
        )
    return raw


@checked(first=True)
def parse_example(text: str, find_model: FindModel, path: Path | None = None) -> Example:
    """Read a worked example from its text; see `load_example`."""
    return read_example(TomlDocument(str(path or "example"), text), find_model, path)


def read_example(document: Document, find_model: FindModel, path: Path | None = None) -> Example:
    """Read a worked example from a document of any format; see `load_example`."""
    try:
        return _Reader(document, find_model).read(path)
    except RecursionError:
        raise UsageError("{where}: not a worked example: brackets nested too deep", where=document.name) from None


def file_entries(table: Mapping[str, Any]) -> Iterator[tuple[Keys, Any]]:
    """The keys of a table with their values."""
    for key, value in table.items():
        if key in NESTED and isinstance(value, dict):
            yield from (((key, inner), part) for inner, part in value.items())
        else:
            yield (key,), value


def typed_axes(typed: tuple[int, ...], shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """The axes of a shape that a typed list has, where it may leave out axes of size 1; None if they do not fit."""
    every = tuple(range(len(shape)))
    leading = next((place for place, size in enumerate(shape) if size != 1), len(shape))
    several = tuple(axis for axis in every if shape[axis] != 1)
    choices = [every, *(every[first:] for first in range(1, leading + 1)), several]
    return next((axes for axes in choices if typed == tuple(shape[axis] for axis in axes)), None)


class _Reader:
    """Reads one file; an error names the place."""

    def __init__(self, document: Document, find_model: FindModel) -> None:
        self.document, self.find_model = document, find_model
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

    def read(self, path: Path | None) -> Example:
        head, given = self.head, self.head.given
        lines: dict[str, RecipeLine] = {}
        if any(key in given for key in ("preset", "model", "shapes")):
            architecture = Architecture()
            sheet = parameter_sheet(given, head.claimed, self.find_model, self.refuse)
        else:
            architecture, sheet, lines = self.computation()
        claims = self.claims(sheet, lines)
        names = [claim.name for claim in claims]
        for claim in claims:
            if names.count(claim.name) > 1:
                raise self.refuse(_("{name}: is claimed twice, by two names", name=claim.name), *claim.key)
        order = [quantity.name for quantity in sheet.quantities]
        title = head.title if "title" in head.model_fields_set else _("Worked example")
        claims.sort(key=lambda claim: order.index(claim.name) if claim.name in order else -1)
        return Example(
            path,
            self.document,
            title,
            head.source,
            head.note,
            self.decimals(claims),
            sheet,
            tuple(claims),
            architecture,
            states_decimals=head.decimals is not None,
        )

    def decimals(self, claims: list[AuthorClaim]) -> int:
        """The decimals that the file states, or the most that are typed in a claim."""
        if self.head.decimals is not None:
            return self.head.decimals
        paths = (claim.path(tuple(place)) for claim in claims for place in claim.values.isfinite().nonzero().tolist())
        return min(most_decimals(map(self.document.typed, paths)) or DEFAULT, MOST_DECIMALS)

    def computation(self) -> tuple[Architecture, Sheet, dict[str, RecipeLine]]:
        """Everything but a parameter table: the parts, the sheet and the recipe's lines by name."""
        head = self.head
        values = self.all_given()
        architecture = self.architecture(values)
        if architecture.sinusoidal and "token_embedding" not in values and not architecture.rows:
            complaint = _("position_embedding: give token_embedding too; it determines the size")
            raise self.refuse(complaint, "given", "position_embedding")
        self.refuse_large()
        quantities = self.followed(architecture, values)
        lines = {line.name: line for line in recipe(architecture, values)}
        for key in head.claimed:
            quantities += self.choice(key, values, lines)
        tokens = tuple(head.tokens)
        if tokens and "time" in self.sizes and len(tokens) != self.sizes["time"][0]:
            size, name = self.sizes["time"]
            complaint = _("tokens: {count} names, but {name} has {size} rows", count=len(tokens), name=name, size=size)
            raise self.refuse(complaint, "tokens")
        sources = tuple(head.memory_tokens)
        if sources and len(sources) != self.sizes.get("source", (0, ""))[0]:
            complaint = _(
                "memory_tokens: {count} names, but there are {size} keys",
                count=len(sources),
                size=self.sizes.get("source", (0, ""))[0],
            )
            raise self.refuse(complaint, "memory_tokens")
        sheet = Sheet(
            quantities,
            values,
            tokens,
            tuple(head.vocabulary),
            num_heads=architecture.num_heads,
            sources=sources,
            conventions=self.conventions,
        )
        return architecture, sheet, lines

    def refuse_large(self) -> None:
        """Refuse a computation with a quantity of too many numbers before it is computed."""
        size = {axis: known for axis, (known, _) in self.sizes.items()}
        rows, heads = size.get("time", 1), size.get("heads", 1)
        widest = max((known for axis, known in size.items() if axis != "heads"), default=1)
        if rows * heads * max(widest, size.get("source", rows)) > MOST_ELEMENTS:
            complaint = _("a quantity has more than {most:,} numbers; a worked example is smaller", most=MOST_ELEMENTS)
            raise self.refuse(complaint, "given")

    def followed(self, architecture: Architecture, values: Values) -> tuple[SheetQuantity, ...]:
        """Everything that the recipe and the steps compute."""
        solver = StepSolver(self.steps, self.name, values, architecture.num_heads, self.refuse, self.conventions)

        def recipe_again() -> tuple[SheetQuantity, ...]:
            lines = (line for line in recipe(architecture, values) if line.name not in solver.names)
            try:
                return follow(lines, values)
            except UsageError as error:
                key = str(error).partition(":")[0]
                raise self.refuse(str(error), *self.place_of(key)) from None

        return solver.quantities(recipe_again)

    def place_of(self, key: str) -> tuple[str, ...]:
        """The path of a setting or of a given number."""
        return (key,) if key in self.head.model_fields_set else ("given", key)

    def architecture(self, given: Values) -> Architecture:
        head = self.head
        if head.tied and "embedding" not in given:
            complaint = _("tied: the head is the embedding, but embedding is missing under [given]")
            raise self.refuse(complaint, "tied")
        rows = (
            tuple(self.word(token, head.vocabulary, "tokens") for token in head.tokens) if "embedding" in given else ()
        )
        d_k = head.given.get("d_k")
        if d_k is not None and (isinstance(d_k, bool) or not isinstance(d_k, int) or d_k < 1):
            complaint = _("d_k: expected a whole number of at least 1, not {value}", value=repr(d_k))
            raise self.refuse(complaint, "given", "d_k")
        return Architecture(
            stream=self.stream,
            norm=head.block,
            mask=None if head.mask is None else self.mask(head.mask),
            scale=head.scale,
            num_heads=self.sizes.get("heads", (head.heads or 1, ""))[0],
            d_k=d_k,
            activation=head.activation,
            norm_type=head.norm_type,
            epsilon=head.epsilon,
            final_norm=head.final_norm or "final_norm_gain" in given,
            tied=head.tied,
            rows=rows,
            sinusoidal=any(
                value == "sinusoidal" and self.name(key) == "position_embedding" for key, value in head.given.items()
            ),
            position_base=head.position_base,
            position_halves=head.positions == "halves",
            first_position=head.first_position,
            softmax_base=math.e if head.softmax_base == "e" else head.softmax_base,
            memory=self.has_memory,
        )

    def word(self, word: Any, vocabulary: list[str], *path: str | int) -> int:
        """The index of a word."""
        if not vocabulary:
            raise self.refuse(_("vocabulary: is missing; it lists the words"), *path)
        try:
            return word_index(word, vocabulary, str(path[-1]))
        except UsageError as error:
            raise self.refuse(str(error), *path) from None

    def mask(self, value: Any) -> Mask:
        try:
            return mask_of(turned_tables(value) if self.conventions.columns else value)
        except UsageError as error:
            raise self.refuse(str(error), "mask") from None

    def axes(self, name: str) -> Keys:
        """The axes of a quantity of this computation."""
        of_memory = self.has_memory and name in ("w_k", "w_v")
        return ("kv_heads", "d_memory", AXES[name][2]) if of_memory else AXES[name]

    # What is given.

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
            if value != "identity":
                values[name] = self.given(name, keys, value)
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

    def given(self, name: str, keys: Keys, value: Any) -> Tensor:
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

    def numbers(self, value: Any, path: tuple[str, ...], label: str) -> Any:
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

    # Claims about the next token.

    def choice(self, key: str, values: Values, lines: Mapping[str, RecipeLine]) -> tuple[SheetQuantity, ...]:
        """The quantity of a claimed choice, such as greedy or top_k_2; none for other keys."""
        rule, number = key.rpartition("_")[::2]
        if key == "greedy":
            self.need("probabilities", key, values, lines)
            line = RecipeLine(key, ("choice",), ("probabilities",), lambda _: Greedy())
        elif rule in RULES:
            self.need("probabilities", key, values, lines)
            filtered = self.filtered(key, rule, number)
            line = RecipeLine(key, ("vocab",), ("probabilities",), lambda _: filtered)
        elif key in ("beam", "beam_probability"):
            self.need("next", key, values, lines)
            beam = self.beam(key)
            line = RecipeLine(key, ("choice",), ("next",), lambda _: beam)
        else:
            return ()
        try:
            return follow(iter([line]), values)
        except UsageError as error:
            raise self.refuse(f"{key}: {str(error).rpartition(': ')[2]}", "claimed", key) from None

    def filtered(self, key: str, rule: str, number: str) -> Filtered:
        if isinstance(self.head.claimed[key], dict):
            complaint = _('{key}: a key with a point needs quotes, as "temperature_0.5" = […]', key=key)
            raise self.refuse(complaint, "claimed", key)
        try:
            if math.isfinite(float(number)):
                return Filtered(rule, float(number))
        except ValueError:
            pass
        raise self.refuse(_("{name}: {value!r} is not a number", name=key, value=number), "claimed", key)

    def beam(self, key: str) -> Beam:
        given = self.head.given
        for name in BEAM:
            if name not in given:
                raise self.missing(key, name, "claimed", key)
        counts = [given["beams"], given["length"]]
        if any(
            isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= MOST_BEAMS for count in counts
        ):
            complaint = _("beams and length: expected whole numbers from 1 to {most}", most=MOST_BEAMS)
            raise self.refuse(complaint, "given", "beams")
        start = self.word(given["start"], self.head.vocabulary, "given", "start")
        return Beam(start, counts[0], counts[1], probability=key == "beam_probability")

    def need(self, name: str, key: str, values: Values, lines: Mapping[str, RecipeLine]) -> None:
        missing = missing_for(name, lines, values)
        if missing and name == "probabilities" and self.stream not in values:
            missing = _("probabilities (or logits)")
        if missing:
            raise self.missing(key, missing, "claimed", key)

    # Claims.

    def claim(self, keys: Keys, value: Any, sheet: Sheet, lines: Mapping[str, RecipeLine]) -> AuthorClaim:
        label, path = ".".join(keys), ("claimed", *keys)
        if label in ("rows", "total") and "rows" in sheet.values:
            return self.count(label, value)
        name = self.claimed_name(label, sheet, lines, path)
        shape = tuple(sheet.values[name].shape)
        if name in ("greedy", "beam"):
            values, left_out = self.words(name, label, value)
        elif name in AXES:
            values, left_out = self.tensor(name, label, value, *path)
        else:
            values, left_out = torch.tensor(self.numbers(value, path, label), dtype=torch.float64), 0
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
            raise self.refuse(with_comma_hint(complaint, value, expected[-1] if expected else None), *path)
        if self.conventions.turned(name) and values.dim() > 1:
            return AuthorClaim(
                name, path, values, order=self.conventions.index(name, tuple(range(values.dim())))[left_out:]
            )
        return AuthorClaim(name, path, values, left_out)

    def claimed_name(self, label: str, sheet: Sheet, lines: Mapping[str, RecipeLine], path: Keys) -> str:
        """The quantity that a key under [claimed] stands for."""
        name = self.name(label)
        if name in sheet.values:
            return name
        if name not in AXES:
            near = hint(label, [*AXES, *sheet.values, "output", "greedy", "beam"])
            raise self.refuse(_("unknown name {name!r} under [claimed], {hint}", name=label, hint=near), *path)
        if self.head.block is None and name in OF_BLOCKS:
            complaint = _('{label}: belongs to a block; say block = "pre" or block = "post"', label=label)
            raise self.refuse(complaint, *path)
        raise self.missing(label, missing_for(name, lines, sheet.values) or name, *path)

    def part(self, part: Part, sheet: Sheet, lines: Mapping[str, RecipeLine]) -> AuthorClaim:
        """A claim about a part of a quantity: NaN everywhere else."""
        path = ("claimed", *part.keys)
        name = self.claimed_name(part.name, sheet, lines, path)
        value = sheet.values[name]
        grid = self.conventions.seen(name, torch.arange(value.numel()).reshape(value.shape))
        grid = grid[0] if grid.dim() == 3 and len(grid) == 1 else grid
        typed = torch.tensor(self.numbers(part.value, path, part.name), dtype=torch.float64)
        cells = cells_of(part, typed, grid)
        if isinstance(cells, str):
            raise self.refuse(with_comma_hint(cells, part.value, grid.shape[-1]), *path)
        values, paths = torch.full(value.shape, math.nan, dtype=torch.float64), {}
        for place, (number, keys) in cells.items():
            index = tuple(int(each) for each in torch.unravel_index(torch.tensor(place), value.shape))
            values[index], paths[index] = number, ("claimed", *keys)
        return AuthorClaim(name, ("claimed", part.name), values, paths=paths)

    def claims(self, sheet: Sheet, lines: Mapping[str, RecipeLine]) -> list[AuthorClaim]:
        """All claims; those about parts of the same quantity together."""
        whole: list[AuthorClaim] = []
        parts: dict[str, AuthorClaim] = {}
        for keys, value in file_entries(self.head.claimed):
            part = None if "rows" in sheet.values else part_of(keys, value)
            if part is None:
                whole.append(self.claim(keys, value, sheet, lines))
                continue
            claim = self.part(part, sheet, lines)
            before = parts.get(claim.name)
            if before is not None:
                if bool((~before.values.isnan() & ~claim.values.isnan()).any()):
                    raise self.refuse(_("{name}: a cell is claimed twice", name=claim.name), "claimed", *part.keys)
                values = torch.where(claim.values.isnan(), before.values, claim.values)
                claim = replace(before, values=values, paths={**before.paths, **claim.paths})
            parts[claim.name] = claim
        return [*whole, *parts.values()]

    def words(self, name: str, key: str, value: Any) -> tuple[Tensor, int]:
        """The indices of claimed words, NaN for "?"."""
        words = [value] if name == "greedy" else value
        if not isinstance(words, list):
            raise self.refuse(_("{key}: expected a list of words", key=key), "claimed", key)
        places = [math.nan if word == "?" else self.word(word, self.head.vocabulary, "claimed", key) for word in words]
        return torch.tensor(places, dtype=torch.float64), int(name == "greedy")

    def count(self, key: str, value: Any) -> AuthorClaim:
        """A claim about a parameter table."""
        if key == "total":
            return AuthorClaim("total", ("claimed", "total"), torch.tensor([self.single(value, "total")]).double(), 1)
        counts = [self.single(number, "rows", name) for name, number in value.items()]
        return AuthorClaim("rows", ("claimed", "rows"), torch.tensor(counts, dtype=torch.float64), rows=tuple(value))

    def single(self, value: Any, *path: str) -> float:
        number = self.numbers(value, ("claimed", *path), path[-1])
        if isinstance(number, list):
            raise self.refuse(_("{name}: expected one number, not a list", name=path[-1]), "claimed", *path)
        return number

"""Worked examples as files: what is given, and what the author claims. The format stands in docs/examples.md."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vitral.attention.masks import Explicit, Mask, Padding, as_mask
from vitral.core.config import nearest
from vitral.core.errors import UsageError
from vitral.explain.choices import Beam, Filtered, Greedy, word_place
from vitral.explain.operations import Index, Sinusoid
from vitral.explain.places import line_of
from vitral.explain.recipes import STREAM, Recipe, Setting, grow
from vitral.explain.schema import AXES, Head, NotNumbers, missing_for, nesting, numbers, shape_text, toml
from vitral.explain.sheet import Sheet
from vitral.explain.tables import FindModel, parameter_sheet

MOST_BYTES = 2**20
"""A worked example is small; a larger file is something else."""

RULES = ("temperature", "top_k", "top_p", "min_p")
BEAM = ("start", "beams", "length")


@dataclass(frozen=True)
class Claim:
    """What the author says of one quantity.

    Attributes:
        name: the quantity.
        key: as the file writes it.
        values: the numbers, NaN where nothing is claimed; of words their places in the vocabulary.
        full: whether the file writes the axis of heads.
    """

    name: str
    key: tuple[str, ...]
    values: Tensor
    full: bool = True

    def path(self, index: Index) -> tuple[str | int, ...]:
        """Where the file writes a cell."""
        if self.name in ("greedy", "total", "beam_probability"):
            return self.key
        return (*self.key, *(index if self.full else index[1:]))


@dataclass(frozen=True)
class Example:
    """A worked example, read and computed.

    Attributes:
        path: of the file; None where it was made here.
        text: of the file.
        title: what it is.
        source: where it comes from.
        note: what it shows.
        decimals: digits after the point in the claims; one unit is the last of them.
        sheet: the computation from what is given.
        claims: the author's numbers, in the order of the computation.
        setting: mask, scale and the rest.
    """

    path: Path | None
    text: str
    title: str
    source: str
    note: str
    decimals: int
    sheet: Sheet
    claims: tuple[Claim, ...]
    setting: Setting

    @property
    def unit(self) -> float:
        """One unit of the last digit that is written."""
        return 10.0**-self.decimals


def load_example(path: Path, find_model: FindModel) -> Example:
    """Read a worked example from a file.

    Args:
        path: a TOML file.
        find_model: gives the configuration of a preset, for parameter tables.

    Raises:
        UsageError: it cannot be read, is not TOML, or something in it does not fit; with the file's line.
    """
    try:
        if path.is_dir():
            raise UsageError(f"{path}: is a folder, not a worked example (a .toml file)")
        if path.stat().st_size > MOST_BYTES:
            raise UsageError(f"{path}: larger than {MOST_BYTES:,} bytes: not a worked example")
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror})") from None
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: not UTF-8 at byte {error.start}; save it as UTF-8") from None
    return parse_example(text, find_model, path)


def parse_example(text: str, find_model: FindModel, path: Path | None = None) -> Example:
    """Read a worked example from its text; see `load_example`."""
    where = str(path or "example")
    data = toml(text, where)
    try:
        return _Reader(where, text, data, find_model).read(path)
    except RecursionError:
        raise UsageError(f"{where}: not a worked example: brackets nested too deep") from None


class _Reader:
    """Reads one file; every complaint names its line."""

    def __init__(self, where: str, text: str, data: dict[str, Any], find_model: FindModel) -> None:
        self.where, self.text, self.find_model = where, text, find_model
        if "given" not in data:
            raise UsageError(f"{where}: no [given] table; a worked example says what is given and what is claimed")
        try:
            self.head = Head.parse(data, where)
        except UsageError as error:
            complaint = str(error).removeprefix(f"{where}: ")
            unknown = re.match(r"unknown key '([^']*)'", complaint)
            raise self.refuse(complaint, unknown[1] if unknown else complaint.partition(":")[0]) from None
        self.sizes: dict[str, tuple[int, str]] = {}

    def refuse(self, complaint: str, *path: str | int) -> UsageError:
        """The error, with the line of the deepest part of the path that the file has."""
        return UsageError(f"{self.where}, line {line_of(self.text, path)}: {complaint}")

    def read(self, path: Path | None) -> Example:
        head, given = self.head, self.head.given
        if any(key in given for key in ("preset", "model", "shapes")):
            setting, sheet = Setting(), parameter_sheet(given, head.claimed, self.find_model, self.refuse)
        else:
            setting, sheet = self.attention()
        claims = [self.claim(key, value, sheet) for key, value in head.claimed.items()]
        order = [quantity.name for quantity in sheet.quantities]
        claims.sort(key=lambda claim: order.index(claim.name) if claim.name in order else -1)
        return Example(
            path, self.text, head.title, head.source, head.note, head.decimals, sheet, tuple(claims), setting
        )

    def attention(self) -> tuple[Setting, Sheet]:
        """The sheet of everything but a parameter table."""
        head = self.head
        given = {
            name: self.given(name, value)
            for name, value in head.given.items()
            if name not in ("d_k", *BEAM) and not (name == "position_embedding" and value == "sinusoidal")
        }
        given |= self.identities(given)
        setting = self.setting(given)
        recipe = Recipe(given)
        if head.given.get("position_embedding") == "sinusoidal":
            self.sinusoidal(recipe, setting)
        try:
            recipe = grow(recipe, setting)
        except UsageError as error:
            raise self.refuse(str(error), "given") from None
        self.choices(recipe)
        tokens = tuple(head.tokens)
        if tokens and "time" in self.sizes and len(tokens) != self.sizes["time"][0]:
            size, name = self.sizes["time"]
            raise self.refuse(f"tokens: {len(tokens)} names, but {name} has {size} rows", "tokens")
        sheet = Sheet(
            tuple(recipe.quantities), recipe.values, tokens, tuple(head.vocabulary), num_heads=setting.num_heads
        )
        return setting, sheet

    def setting(self, given: Mapping[str, Tensor]) -> Setting:
        head = self.head
        if head.tied and "embedding" not in given:
            raise self.refuse("tied: the head is the embedding, but embedding is missing under [given]", "tied")
        rows = (
            tuple(self.word(token, head.vocabulary, "tokens") for token in head.tokens) if "embedding" in given else ()
        )
        d_k = head.given.get("d_k")
        if d_k is not None and (isinstance(d_k, bool) or not isinstance(d_k, int) or d_k < 1):
            raise self.refuse(f"d_k: expected a whole number of at least 1, not {d_k!r}", "given", "d_k")
        return Setting(
            mask=None if head.mask is None else self.mask(head.mask),
            scale=head.scale,
            num_heads=self.sizes.get("heads", (head.heads or 1, ""))[0],
            d_k=d_k,
            block=head.block,
            activation=head.activation,
            norm_type=head.norm_type,
            epsilon=head.epsilon,
            final_norm=head.final_norm or "final_norm_gain" in given,
            tied=head.tied,
            rows=rows,
        )

    def word(self, word: Any, vocabulary: list[str], *path: str | int) -> int:
        if not vocabulary:
            raise self.refuse("vocabulary: is missing; it names the words", *path)
        try:
            return word_place(word, vocabulary, str(path[-1]))
        except UsageError as error:
            raise self.refuse(str(error), *path) from None

    def mask(self, value: Any) -> Mask:
        try:
            if isinstance(value, list) and value and all(isinstance(row, list) for row in value):
                return Explicit(torch.tensor(value).bool())
            if isinstance(value, list) and value:
                first, *others = (self.mask(part) for part in value)
                for other in others:
                    first = first & other
                return first
            if isinstance(value, dict) and value.get("name") == "padding":
                real = value.get("real")
                if set(value) != {"name", "real"} or not isinstance(real, list):
                    raise UsageError("mask: padding needs real = [true, …, false], one for each key")
                return Padding(torch.tensor([[bool(entry) for entry in real]]))
            spec: Any = value
            return as_mask(spec)
        except UsageError as error:
            raise self.refuse(str(error).replace("mask {", "mask = {"), "mask") from None
        except (ValueError, TypeError):
            raise self.refuse("mask: expected rows of true and false of equal length", "mask") from None

    def given(self, name: str, value: Any) -> Tensor:
        if name not in AXES:
            raise self.refuse(
                f"unknown name {name!r} under [given], {nearest(name, [*AXES, *BEAM, 'd_k'])}", "given", name
            )
        if value == "identity":
            return torch.empty(0)
        tensor, _ = self.tensor(name, value, "given", name)
        if not bool(torch.isfinite(tensor).all()) and name not in ("masked", "logits"):
            raise self.refuse(f"{name}: every number must be finite", "given", name)
        if name in ("probabilities", "next", "weights"):
            self.shares(name, tensor)
        self.bind(name, AXES[name], tensor.shape)
        return tensor

    def shares(self, name: str, tensor: Tensor) -> None:
        totals = tensor.sum(dim=-1)
        if bool((tensor < 0).any()) or bool(((totals - 1).abs() > 0.02).any()):
            raise self.refuse(f"{name}: expected shares of one, none below 0, each row adding up to 1", "given", name)

    def tensor(self, name: str, value: Any, *path: str | int) -> tuple[Tensor, bool]:
        """The numbers with all their axes, and whether the file writes the axis of heads (or of rows)."""
        rank = len(AXES[name])
        numbers = self.numbers(value, path, name)
        tensor = torch.tensor(numbers, dtype=torch.float64)
        leading = AXES[name][0] in ("heads", "kv_heads") or name in ("logits", "probabilities")
        if tensor.dim() == 0 and name == "factor":
            return tensor[None], True
        if tensor.dim() == rank - 1 and leading:
            return tensor[None], False
        if tensor.numel() == 0:
            raise self.refuse(f"{name}: is empty", *path)
        if tensor.dim() != rank:
            raise self.refuse(f"{name}: expected {nesting(rank)}, not {nesting(tensor.dim())}", *path)
        return tensor, True

    def numbers(self, value: Any, path: tuple[str | int, ...], name: str) -> Any:
        """The numbers of a list of lists; a complaint names the place."""
        try:
            return numbers(value, name, path[0] == "claimed")
        except NotNumbers as error:
            raise self.refuse(str(error), *path, *error.place) from None

    def bind(self, name: str, axes: tuple[str, ...], shape: tuple[int, ...]) -> None:
        """Hold every axis to one size."""
        for axis, size in zip(axes, shape, strict=True):
            if axis == "factors":
                continue
            known = self.sizes.setdefault(axis, (size, name))
            if axis == "heads" and self.head.heads not in (None, size):
                raise self.refuse(f"{name}: {size} heads, but heads = {self.head.heads}", "given", name)
            if known[0] != size:
                shapes = shape_text(shape)
                raise self.refuse(
                    f"{name} is {shapes}: its {axis} is {size}, expected {known[0]} as in {known[1]}", "given", name
                )

    def identities(self, given: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Unit matrices, as large as their neighbours say."""
        made = {}
        for name, tensor in given.items():
            if tensor.numel():
                continue
            rank, width = len(AXES[name]), self.sizes.get("d_model", (0, ""))[0]
            if name == "w_o":
                heads, value = (
                    self.sizes.get("heads", (1, ""))[0],
                    self.sizes.get("d_value", self.sizes.get("d_model", (0, "")))[0],
                )
                width = heads * value
            if not width:
                raise self.refuse(f'{name} = "identity": its size is not known; give x or write it out', "given", name)
            eye = torch.eye(width, dtype=torch.float64)
            made[name] = eye[None] if rank == 3 else eye
            if rank == 3:
                self.bind(name, AXES[name], (1, width, width))
        return made

    def sinusoidal(self, recipe: Recipe, setting: Setting) -> None:
        size = recipe.values.get("token_embedding")
        if size is None and setting.rows and "embedding" in recipe.values:
            size = recipe.values["embedding"][list(setting.rows)]
        if size is None:
            raise self.refuse(
                "position_embedding: give token_embedding too, which says how large it is",
                "given",
                "position_embedding",
            )
        recipe.add("position_embedding", STREAM, Sinusoid(*size.shape))

    def choices(self, recipe: Recipe) -> None:
        """The quantities of decoding that are claimed."""
        head = self.head
        for key in head.claimed:
            rule, _, number = key.rpartition("_")
            if key == "greedy":
                self.need(recipe, "probabilities", key)
                recipe.add("greedy", ("choice",), Greedy(), "probabilities")
            elif rule in RULES:
                self.need(recipe, "probabilities", key)
                self.filtered(recipe, key, rule, number)
            elif key in ("beam", "beam_probability"):
                self.need(recipe, "next", key)
                recipe.add(key, ("choice",), self.beam(recipe, key), "next")

    def filtered(self, recipe: Recipe, key: str, rule: str, number: str) -> None:
        try:
            recipe.add(key, ("vocab",), Filtered(rule, float(number)), "probabilities")
        except (ValueError, UsageError) as error:
            detail = str(error).rpartition(": ")[2] if isinstance(error, UsageError) else f"{number!r} is not a number"
            raise self.refuse(f"{key}: {detail}", "claimed", key) from None

    def beam(self, recipe: Recipe, key: str) -> Beam:
        given = self.head.given
        for name in BEAM:
            if name not in given:
                raise self.refuse(f"{key}: cannot be computed, {name} is missing under [given]", "claimed", key)
        counts = [given["beams"], given["length"]]
        if any(isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= 1000 for count in counts):
            raise self.refuse("beams and length: expected whole numbers of at least 1", "given", "beams")
        start = self.word(given["start"], self.head.vocabulary, "given", "start")
        return Beam(start, counts[0], counts[1], probability=key == "beam_probability")

    def need(self, recipe: Recipe, name: str, key: str) -> None:
        missing = missing_for(name, recipe.values)
        if missing:
            raise self.refuse(f"{key}: cannot be computed, {missing} is missing under [given]", "claimed", key)

    def claim(self, key: str, value: Any, sheet: Sheet) -> Claim:
        path = ("claimed", key)
        if key in ("rows", "total") and "rows" in sheet.values:
            return self.count(key, value, sheet)
        name = self.named(key)
        if name not in sheet.values:
            if name not in AXES:
                raise self.refuse(
                    f"unknown name {key!r} under [claimed], {nearest(key, [*AXES, 'output', 'greedy', 'beam'])}", *path
                )
            raise self.refuse(
                f"{key}: cannot be computed, {missing_for(name, sheet.values) or name} is missing under [given]", *path
            )
        if name in ("greedy", "beam"):
            words = [value] if name == "greedy" else value
            if not isinstance(words, list):
                raise self.refuse(f"{key}: expected a list of words", *path)
            places = [self.word(word, self.head.vocabulary, *path) for word in words]
            values, full = torch.tensor(places, dtype=torch.float64), True
        elif name in AXES:
            values, full = self.tensor(name, value, *path)
        else:
            numbers = self.numbers(value, path, key)
            values, full = torch.tensor(numbers if isinstance(numbers, list) else [numbers], dtype=torch.float64), True
        if values.shape != sheet.values[name].shape:
            expected, got = (shape if full else shape[1:] for shape in (sheet.values[name].shape, values.shape))
            raise self.refuse(f"{key}: claimed as {shape_text(got)}, but it is {shape_text(expected)}", *path)
        return Claim(name, path, values, full)

    def named(self, key: str) -> str:
        if key == "output":
            return "out" if self.head.block is None else "resid_post"
        return key

    def count(self, key: str, value: Any, sheet: Sheet) -> Claim:
        if key == "total":
            return Claim(
                "total",
                ("claimed", "total"),
                torch.tensor([self.numbers(value, ("claimed", "total"), "total")], dtype=torch.float64),
            )
        numbers = [self.numbers(number, ("claimed", "rows", name), name) for name, number in value.items()]
        return Claim("rows", ("claimed", "rows"), torch.tensor(numbers, dtype=torch.float64))

"""Worked examples as files. The format stands in docs/examples.md."""

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vitral.attention.masks import Mask
from vitral.core.config import nearest
from vitral.core.errors import UsageError
from vitral.explain.choices import Beam, Filtered, Greedy, word_place
from vitral.explain.example import Claim, Example
from vitral.explain.operations import Sinusoid
from vitral.explain.places import line_of
from vitral.explain.recipes import STREAM, Recipe, Setting, grow
from vitral.explain.schema import (
    AXES,
    OF_BLOCKS,
    Head,
    NotNumbers,
    mask_of,
    missing_for,
    nesting,
    numbers,
    shape_text,
    toml,
)
from vitral.explain.sheet import Sheet
from vitral.explain.tables import FindModel, parameter_sheet

MOST_BYTES = 2**20
"""A worked example is small; a larger file is something else."""

RULES = ("temperature", "top_k", "top_p", "min_p")
BEAM = ("start", "beams", "length")
MOST_BEAMS = 32
"""The search is shown whole; by hand nobody follows more."""


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
        text = path.read_bytes().decode("utf-8-sig")
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
        if self.head.vocabulary:
            self.sizes["vocab"] = len(self.head.vocabulary), "vocabulary"

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
        names = [claim.name for claim in claims]
        for claim in claims:
            if names.count(claim.name) > 1:
                raise self.refuse(f"{claim.name}: is claimed twice, by two names", *claim.key)
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
            key = str(error).partition(":")[0]
            raise self.refuse(str(error), *((key,) if key in head.model_fields_set else ("given", key))) from None
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
            mask=None if head.mask is None else self.masked(head.mask),
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

    def masked(self, value: Any) -> Mask:
        """The mask, with complaints that name its line."""
        try:
            return mask_of(value)
        except UsageError as error:
            raise self.refuse(str(error), "mask") from None

    def given(self, name: str, value: Any) -> Tensor:
        if name not in AXES:
            raise self.refuse(
                f"unknown name {name!r} under [given], {nearest(name, [*AXES, *BEAM, 'd_k'])}", "given", name
            )
        if value == "identity":
            return torch.empty(0)
        tensor, _ = self.tensor(name, value, "given", name)
        if not bool((tensor < math.inf).all()) or not (
            name in ("masked", "logits") or bool((tensor > -math.inf).all())
        ):
            raise self.refuse(f"{name}: every number must be finite", "given", name)
        if name in ("probabilities", "next", "weights"):
            self.shares(name, tensor)
        self.bind(name, AXES[name], tensor.shape)
        return tensor

    def shares(self, name: str, tensor: Tensor) -> None:
        totals, room = tensor.sum(dim=-1), max(0.02, tensor.shape[-1] * 10.0**-self.head.decimals / 2)
        hidden = (totals == 0) if name == "weights" else torch.zeros_like(totals).bool()
        if bool((tensor < 0).any()) or bool((((totals - 1).abs() > room) & ~hidden).any()):
            raise self.refuse(f"{name}: expected shares of one, none below 0, each row adding up to 1", "given", name)

    def tensor(self, name: str, value: Any, *path: str | int) -> tuple[Tensor, int]:
        """The numbers with all their axes, and how many of these (of heads, of rows) the file leaves out."""
        rank = len(AXES[name])
        tensor = torch.tensor(self.numbers(value, path, name), dtype=torch.float64)
        leading = AXES[name][0] in ("heads", "kv_heads") or name in ("logits", "probabilities")
        if tensor.numel() == 0:
            raise self.refuse(f"{name}: is empty", *path)
        if tensor.dim() == rank - 1 and (leading or name == "factor"):
            return tensor[None], 1
        if tensor.dim() != rank:
            expected = f"{nesting(rank - 1)} or {nesting(rank)}" if leading else nesting(rank)
            raise self.refuse(f"{name}: expected {expected}, not {nesting(tensor.dim())}", *path)
        return tensor, 0

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
        if isinstance(self.head.claimed[key], dict):
            raise self.refuse(f'{key}: a key with a point needs quotes, as "temperature_0.5" = […]', "claimed", key)
        try:
            if not math.isfinite(float(number)):
                raise ValueError
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
        if any(
            isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= MOST_BEAMS for count in counts
        ):
            raise self.refuse(f"beams and length: expected whole numbers from 1 to {MOST_BEAMS}", "given", "beams")
        start = self.word(given["start"], self.head.vocabulary, "given", "start")
        return Beam(start, counts[0], counts[1], probability=key == "beam_probability")

    def need(self, recipe: Recipe, name: str, key: str) -> None:
        missing = missing_for(name, recipe.values)
        if missing and name == "probabilities" and "x" not in recipe.values:
            missing = "probabilities (or logits)"
        if missing:
            raise self.refuse(f"{key}: cannot be computed, {missing} is missing under [given]", "claimed", key)

    def claim(self, key: str, value: Any, sheet: Sheet) -> Claim:
        path = ("claimed", key)
        if key in ("rows", "total") and "rows" in sheet.values:
            return self.count(key, value)
        name = self.named(key)
        if name not in sheet.values:
            if name not in AXES:
                raise self.refuse(
                    f"unknown name {key!r} under [claimed], {nearest(key, [*AXES, 'output', 'greedy', 'beam'])}", *path
                )
            if self.head.block is None and name in OF_BLOCKS:
                raise self.refuse(f'{key}: belongs to a block; say block = "pre" or block = "post"', *path)
            raise self.refuse(
                f"{key}: cannot be computed, {missing_for(name, sheet.values) or name} is missing under [given]", *path
            )
        if name in ("greedy", "beam"):
            values, left_out = self.words(name, key, value)
        elif name in AXES:
            values, left_out = self.tensor(name, value, *path)
        else:
            values = torch.tensor(self.numbers(value, path, key), dtype=torch.float64)
            left_out = int(values.dim() == 0)
            values = values[None] if left_out else values
        if values.shape != sheet.values[name].shape:
            expected, got = (tuple(tensor.shape)[left_out:] for tensor in (sheet.values[name], values))
            raise self.refuse(f"{key}: claimed as {shape_text(got)}, but it is {shape_text(expected)}", *path)
        return Claim(name, path, values, left_out)

    def words(self, name: str, key: str, value: Any) -> tuple[Tensor, int]:
        """The places of claimed words, NaN for those unknown."""
        words = [value] if name == "greedy" else value
        if not isinstance(words, list):
            raise self.refuse(f"{key}: expected a list of words", "claimed", key)
        places = [math.nan if word == "?" else self.word(word, self.head.vocabulary, "claimed", key) for word in words]
        return torch.tensor(places, dtype=torch.float64), int(name == "greedy")

    def named(self, key: str) -> str:
        if key == "output":
            return "out" if self.head.block is None else "resid_post"
        return key

    def count(self, key: str, value: Any) -> Claim:
        """A claim about a parameter table."""
        if key == "total":
            return Claim("total", ("claimed", "total"), torch.tensor([self.single(value, "total")]).double(), 1)
        numbers = [self.single(number, "rows", name) for name, number in value.items()]
        return Claim("rows", ("claimed", "rows"), torch.tensor(numbers, dtype=torch.float64))

    def single(self, value: Any, *path: str) -> float:
        number = self.numbers(value, ("claimed", *path), path[-1])
        if isinstance(number, list):
            raise self.refuse(f"{path[-1]}: expected one number, not a list", "claimed", *path)
        return number

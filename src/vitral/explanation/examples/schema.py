"""The format of worked examples: names and axes of quantities, numbers and masks."""

import functools
import itertools
import math
import operator
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from vitral.attention.masks import Explicit, Mask, Padding, Prefix, Window, as_mask
from vitral.core.errors import UsageError
from vitral.core.language import N_, _
from vitral.core.names import ATTENTION_STEPS
from vitral.explanation.examples.faults import Fault, KeyPath, label_of
from vitral.explanation.examples.numerals import value_of

_STREAM = (
    *("token_embedding", "position_embedding", "x", "resid_pre", "attn_norm", "out", "attn_sum", "resid_mid"),
    *("mlp_norm", "mlp.out", "mlp_sum", "resid_post", "final_norm"),
)
AXES = {
    "embedding": ("vocab", "d_model"),
    **dict.fromkeys(_STREAM, ("time", "d_model")),
    "memory": ("source", "d_memory"),
    "w_q": ("heads", "d_model", "d_head"),
    "w_k": ("kv_heads", "d_model", "d_head"),
    "w_v": ("kv_heads", "d_model", "d_value"),
    "b_q": ("heads", "d_head"),
    "b_k": ("kv_heads", "d_head"),
    "b_v": ("kv_heads", "d_value"),
    "q": ("heads", "time", "d_head"),
    "k": ("kv_heads", "source", "d_head"),
    "v": ("kv_heads", "source", "d_value"),
    **dict.fromkeys(("scores", "scaled", "masked", "weights"), ("heads", "time", "source")),
    "z": ("heads", "time", "d_value"),
    "w_o": ("heads · d_value", "d_out"),
    "b_o": ("d_out",),
    **{f"{norm}_norm_{kind}": ("d_model",) for norm in ("attn", "mlp", "final") for kind in ("gain", "bias")},
    **dict.fromkeys(("w_gate", "w_up"), ("d_model", "d_ff")),
    **dict.fromkeys(("b_gate", "b_up"), ("d_ff",)),
    **dict.fromkeys(("mlp.gate", "mlp.pre", "mlp.hidden"), ("time", "d_ff")),
    "w_down": ("d_ff", "d_model"),
    "b_down": ("d_model",),
    "w_u": ("d_model", "vocab"),
    "b_u": ("vocab",),
    **dict.fromkeys(("logits", "probabilities"), ("time", "vocab")),
    "next": ("vocab", "vocab"),
    "factor": ("factors",),
}
"""The axes of each quantity that may be given or claimed. With one head the axis of heads may be omitted."""

AXES_OF_RANK = (("one",), ("columns",), ("rows", "columns"), ("heads", "rows", "columns"))
"""Those of any other quantity, by their number."""

ALIASES = {
    "w_1": "w_up",
    "b_1": "b_up",
    "w_2": "w_down",
    "b_2": "b_down",
    **{f"attn.{step}": step for step in ATTENTION_STEPS},
}
"""Other keys of files, and the names they stand for."""

TABLES = ("given", "steps", "claimed")
SUBTABLES = ("attn", "mlp")
"""Tables inside these: those of quantities with such names."""

STREAM_KEYS = ("x", "embed", "resid_pre")
"""Keys of the stream's first quantity: `resid_pre` in a block, `x` in attention alone."""

OF_BLOCKS = (
    *("attn_norm", "attn_sum", "resid_mid", "mlp_norm", "mlp.gate", "mlp.pre", "mlp.hidden", "mlp.out", "mlp_sum"),
    *("resid_post", "final_norm"),
)
"""Quantities that exist only in a block."""

ONLY_IN_BLOCKS = (
    *OF_BLOCKS,
    *(name for name in AXES if name.endswith(("_gain", "_bias"))),
    *("w_gate", "b_gate", "w_up", "b_up", "w_down", "b_down"),
)
"""These and their parameters."""

WORDS = ("greedy", "beam")
"""Quantities whose numbers are indices of words."""
CHOICES = (*WORDS, "beam_probability")
"""Choices of the next token that are searches."""
ROTATED = ("q_pre", "k_pre")
"""Queries and keys before rotary positions turn them."""

SPECIAL = {"inf": math.inf, "+inf": math.inf, "∞": math.inf, "-inf": -math.inf, "-∞": -math.inf, "−∞": -math.inf}
"""Spellings of infinity."""
IDENTITY = ("identity", "identidade", "i")
"""Words for a unit matrix."""
LARGEST = 1e15
"""Larger whole numbers are not exact in double precision."""


def toml(text: str, where: str) -> dict[str, Any]:
    """The data of a TOML text; `mlp.pre = …`, which TOML reads as a subtable, is the key "mlp.pre".

    Raises:
        UsageError: it is not TOML, and the message names the line; or a key is there twice.
    """
    try:
        data = tomllib.loads(text)
    except RecursionError:
        raise UsageError("{where}: not a worked example: brackets nested too deep", where=where) from None
    except ValueError as error:
        line = re.search(r"at line (\d+)", str(error))
        number = line[1] if line else len(text.rstrip().splitlines())
        raise UsageError("{where}, line {number}: not TOML: {fault}", where=where, number=number, fault=error) from None
    for section in TABLES:
        if isinstance(table := data.get(section), dict):
            data[section] = dict(_quantities(table, where))
    return data


def _quantities(table: Mapping[str, Any], where: str) -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        is_subtable = key in SUBTABLES and isinstance(value, dict)
        for inner, part in value.items() if is_subtable else ():
            if (name := f"{key}.{inner}") in table:
                raise UsageError("{where}: {complaint}", where=where, complaint=_("{name}: is set twice", name=name))
            yield name, part
        if not is_subtable:
            yield key, value


def number(value: Any, path: KeyPath, *, may_be_unknown: bool = False) -> float:
    """The number at a path; NaN for "?" if `may_be_unknown`.

    Raises:
        Fault: it is none, or too large.
    """
    if value == "?" and may_be_unknown:
        return math.nan
    parsed = SPECIAL.get(value, value_of(value)) if isinstance(value, str) else value
    if isinstance(parsed, bool) or not isinstance(parsed, int | float) or parsed != parsed:
        raise Fault("{name}: {value!r} is not a number", path, name=label_of(path), value=value)
    if LARGEST < abs(parsed) < math.inf:
        value = str(parsed)[:20]
        raise Fault("{name}: {value} is too large for a worked example", path, name=label_of(path), value=value)
    return float(parsed)


def shape_of(value: Any) -> tuple[int, ...]:
    """The lengths of lists of lists, or of a table, as far as the first of them shows."""
    if not isinstance(value, list | dict):
        return ()
    return len(value), *shape_of(next((part for part in value if isinstance(part, list)), None))


def cells(
    value: Any,
    shape: tuple[int, ...],
    path: KeyPath,
    complain: Callable[[str, KeyPath], None],
    *,
    may_end: bool = False,
) -> Iterator[tuple[KeyPath, Any]]:
    """The path and the value of each cell, in order; "?" for each cell of a part that is "?", missing or refused.

    Args:
        value: lists of lists, or a table of numbers.
        shape: that it should have.
        path: of the value in the file.
        complain: called with the complaint about each part of another shape, and the path of the part.
        may_end: whether rows at the end may be missing.
    """
    if not shape:
        yield path, value
        return
    length = shape[0]
    parts = list(value.values()) if isinstance(value, dict) else [] if value == "?" else value
    if value != "?":
        got = shape_of(value)
        fits = got[:1] == shape[:1] or (may_end and len(shape) > 1 and () < got[:1] < shape[:1])
        if not fits or (len(got) != len(shape) and "?" not in parts):
            complain(N_("{got}, expected {expected}").format(got=shape_text(got), expected=shape_text(shape)), path)
            parts = []
    keys = value if isinstance(value, dict) and parts else range(length)
    for key, part in itertools.zip_longest(keys, parts, fillvalue="?"):
        yield from cells(part, shape[1:], (*path, key), complain, may_end=may_end)


def mask_of(value: Any, *, turned: bool = False) -> Mask:
    """The mask of a file: a name, a table, rows of true and false, or a list of masks that must all allow.

    Args:
        value: as written.
        turned: whether rows of true and false are the keys.

    Raises:
        UsageError: none of these.
    """
    if isinstance(value, list) and value:
        if not all(isinstance(row, list) and not any(isinstance(part, list) for part in row) for row in value):
            return functools.reduce(operator.and_, (mask_of(part, turned=turned) for part in value))
        if not all(_is_allowing(row) and len(row) == len(value[0]) for row in value):
            raise UsageError("mask: expected rows of true and false of equal length")
        table = torch.tensor(value).bool()
        return Explicit(table.mT if turned else table)
    if not isinstance(value, str | dict):
        raise UsageError("mask: expected a name, a table, rows of true and false, or a list of masks")
    settings: dict[str, Any] = {"name": value} if isinstance(value, str) else value
    name = str(settings.get("name"))
    if name == "padding":
        if set(settings) != {"name", "real"} or not _is_allowing(settings["real"]):
            raise UsageError("mask: padding needs real = [true, …, false], one for each key")
        return Padding(torch.tensor([settings["real"]]).bool())
    kind = {"prefix": Prefix, "window": Window}.get(name)
    return kind.parse(settings, f"mask {name}") if kind else as_mask(value)


def _is_allowing(row: Any) -> bool:
    return isinstance(row, list) and bool(row) and all(type(entry) in (bool, int) and entry in (0, 1) for entry in row)


def shape_text(shape: tuple[int, ...]) -> str:
    """A shape for messages: 2 × 3."""
    if len(shape) > 1:
        return " × ".join(map(str, shape))
    return N_("{n} numbers").format(n=shape[0]) if shape else N_("one number")


def nesting(rank: int) -> str:
    """The form of a value with `rank` axes, for messages."""
    forms = (N_("a number"), N_("a list of numbers"), N_("a list of rows"), N_("a list of matrices"))
    return _(forms[min(rank, 3)])

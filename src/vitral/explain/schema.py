"""What a worked example may give and claim: names, axes, what each quantity needs, how numbers are written."""

import functools
import math
import operator
import re
import tomllib
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import torch
from pydantic import Field
from torch import Tensor

from vitral.attention.masks import Explicit, Mask, Padding, as_mask
from vitral.core.config import Config
from vitral.core.errors import UsageError

AXES = {
    "embedding": ("vocab", "d_model"),
    "token_embedding": ("time", "d_model"),
    "position_embedding": ("time", "d_model"),
    "x": ("time", "d_model"),
    "w_q": ("heads", "d_model", "d_head"),
    "w_k": ("kv_heads", "d_model", "d_head"),
    "w_v": ("kv_heads", "d_model", "d_value"),
    "b_q": ("heads", "d_head"),
    "b_k": ("kv_heads", "d_head"),
    "b_v": ("kv_heads", "d_value"),
    "q": ("heads", "time", "d_head"),
    "k": ("kv_heads", "source", "d_head"),
    "v": ("kv_heads", "source", "d_value"),
    "scores": ("heads", "time", "source"),
    "scaled": ("heads", "time", "source"),
    "masked": ("heads", "time", "source"),
    "weights": ("heads", "time", "source"),
    "z": ("heads", "time", "d_value"),
    "w_o": ("heads · d_value", "d_out"),
    "b_o": ("d_out",),
    "out": ("time", "d_model"),
    "norm_1_gain": ("d_model",),
    "norm_1_bias": ("d_model",),
    "norm_1": ("time", "d_model"),
    "sum_1": ("time", "d_model"),
    "resid_mid": ("time", "d_model"),
    "norm_2_gain": ("d_model",),
    "norm_2_bias": ("d_model",),
    "norm_2": ("time", "d_model"),
    "w_1": ("d_model", "d_ff"),
    "b_1": ("d_ff",),
    "pre_activation": ("time", "d_ff"),
    "hidden": ("time", "d_ff"),
    "w_2": ("d_ff", "d_model"),
    "b_2": ("d_model",),
    "mlp_out": ("time", "d_model"),
    "sum_2": ("time", "d_model"),
    "resid_post": ("time", "d_model"),
    "final_norm_gain": ("d_model",),
    "final_norm_bias": ("d_model",),
    "final_norm": ("time", "d_model"),
    "w_u": ("d_model", "vocab"),
    "logits": ("time", "vocab"),
    "probabilities": ("time", "vocab"),
    "next": ("vocab", "vocab"),
    "factor": ("factors",),
}
"""What may be given or claimed, and its axes; those of a head may leave the first out where there is one head."""

NEEDS = {
    "token_embedding": ("embedding",),
    "x": ("token_embedding", "position_embedding"),
    "q": ("x", "w_q"),
    "k": ("x", "w_k"),
    "v": ("x", "w_v"),
    "scores": ("q", "k"),
    "scaled": ("scores",),
    "masked": ("scaled",),
    "weights": ("masked",),
    "z": ("weights", "v"),
    "out": ("z",),
    "norm_1": ("x",),
    "sum_1": ("x", "out"),
    "resid_mid": ("x", "out"),
    "norm_2": ("resid_mid",),
    "pre_activation": ("resid_mid", "w_1"),
    "hidden": ("pre_activation",),
    "mlp_out": ("hidden", "w_2"),
    "sum_2": ("resid_mid", "mlp_out"),
    "resid_post": ("resid_mid", "mlp_out"),
    "final_norm": ("resid_post",),
    "logits": ("x", "w_u"),
    "probabilities": ("logits",),
}
"""What each quantity is made of, to say what is missing."""

OF_BLOCKS = (
    *("norm_1", "sum_1", "resid_mid", "norm_2", "pre_activation"),
    *("hidden", "mlp_out", "sum_2", "resid_post", "final_norm"),
)
"""Quantities that there are only in a block."""

MOST_DECIMALS = 12


class Head(Config):
    """The top of the file."""

    title: str = "Worked example"
    source: str = ""
    note: str = ""
    tokens: list[str] = Field(default_factory=list)
    vocabulary: list[str] = Field(default_factory=list)
    mask: Any = None
    scale: (
        Literal["none", "sqrt", "linear", "adaptive", "learned", "learned-per-head"]
        | Annotated[float, Field(ge=-1e6, le=1e6)]
        | None
    ) = None
    heads: Annotated[int, Field(ge=1, le=1024)] | None = None
    decimals: Annotated[int, Field(ge=0, le=MOST_DECIMALS)] = 3
    block: Literal["pre", "post"] | None = None
    activation: Literal["relu", "gelu", "squared_relu"] = "relu"
    norm_type: Literal["layernorm", "rmsnorm"] = "layernorm"
    epsilon: Annotated[float, Field(ge=0, le=1)] = 1e-5
    final_norm: bool = False
    tied: bool = False
    given: dict[str, Any] = Field(default_factory=dict)
    claimed: dict[str, Any] = Field(default_factory=dict)


SPECIAL = {"inf": math.inf, "+inf": math.inf, "∞": math.inf, "-inf": -math.inf, "-∞": -math.inf, "−∞": -math.inf}
"""Numbers that are written as words."""
MOST_NESTED = 4
LARGEST = 1e15
"""Beyond this whole numbers are no longer exact, and no example is worked by hand."""


def toml(text: str, where: str) -> dict[str, Any]:
    """The data of a TOML text.

    Raises:
        UsageError: it is not TOML; with the line.
    """
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise UsageError(f"{where}: not a worked example: brackets nested too deep") from None
    except ValueError as error:
        line = re.search(r"at line (\d+)", str(error))
        number = line[1] if line else len(text.rstrip().splitlines())
        raise UsageError(f"{where}, line {number}: not TOML: {error}") from None


class NotNumbers(ValueError):
    """Something that is not the numbers it should be; knows its place in the list of lists."""

    def __init__(self, complaint: str, *place: int) -> None:
        """Keep the place."""
        super().__init__(complaint)
        self.place = place


def numbers(value: Any, name: str, may_be_unknown: bool, depth: int = 0) -> Any:
    """A number, or a list of lists of them, all rows equally long; NaN for a "?" where that may stand.

    Raises:
        NotNumbers: something else.
    """
    if isinstance(value, list):
        if depth > MOST_NESTED:
            raise NotNumbers(f"{name}: lists nested too deep")
        made = []
        for place, part in enumerate(value):
            try:
                made.append(numbers(part, name, may_be_unknown, depth + 1))
            except NotNumbers as error:
                raise NotNumbers(str(error), place, *error.place) from None
            if _shape_of(made[-1]) != _shape_of(made[0]):
                raise NotNumbers(f"{name}: {_unlike(made[0], made[-1])}", place)
        return made
    if isinstance(value, str) and (value in SPECIAL or (value == "?" and may_be_unknown)):
        return SPECIAL.get(value, math.nan)
    if isinstance(value, int | float) and not isinstance(value, bool) and value == value:
        if abs(value) > LARGEST and value not in (math.inf, -math.inf):
            raise NotNumbers(f"{name}: {str(value)[:20]} is too large for a worked example")
        return float(value)
    raise NotNumbers(f"{name}: {value!r} is not a number")


def mask_of(value: Any) -> Mask:
    """The mask that a file means: a name, a table, rows of true and false, or a list of masks that all must allow.

    Raises:
        UsageError: none of these.
    """
    if isinstance(value, list) and value and all(isinstance(part, list) and not _is_nested(part) for part in value):
        if not all(_is_allowing(row) and len(row) == len(value[0]) for row in value):
            raise UsageError("mask: expected rows of true and false of equal length")
        return Explicit(torch.tensor(value).bool())
    if isinstance(value, list) and value:
        return functools.reduce(operator.and_, map(mask_of, value))
    if not isinstance(value, str | dict):
        raise UsageError("mask: expected a name, a table, rows of true and false, or a list of masks")
    table: dict[str, Any] = {"name": value} if isinstance(value, str) else value
    if table.get("name") == "padding":
        if set(table) != {"name", "real"} or not _is_allowing(table["real"]):
            raise UsageError("mask: padding needs real = [true, …, false], one for each key")
        return Padding(torch.tensor([table["real"]]).bool())
    name = table.get("name")
    number = {"prefix": "length", "window": "size"}.get(str(name))
    if number and (set(table) != {"name", number} or type(table[number]) is not int or table[number] < 1):
        raise UsageError(f'mask: {name} needs a {number} of at least 1, as {{name = "{name}", {number} = 2}}')
    return as_mask(value)


def _is_nested(value: list[Any]) -> bool:
    return any(isinstance(part, list) for part in value)


def _is_allowing(row: Any) -> bool:
    return isinstance(row, list) and bool(row) and all(type(entry) in (bool, int) and entry in (0, 1) for entry in row)


def _unlike(first: Any, other: Any) -> str:
    if isinstance(first, list) and isinstance(other, list) and len(first) != len(other):
        return f"rows of {len(first)} and {len(other)} numbers; all must be equally long"
    return "numbers and lists side by side; all rows must be alike"


def missing_for(name: str, values: Mapping[str, Tensor]) -> str:
    """The first thing that is not given on the way to a quantity."""
    if name in values:
        return ""
    return next((missing for each in NEEDS.get(name, ()) if (missing := missing_for(each, values))), name)


def _shape_of(value: Any) -> tuple[int, ...]:
    return (
        (len(value), *_shape_of(value[0]))
        if isinstance(value, list) and value
        else (0,)
        if isinstance(value, list)
        else ()
    )


def shape_text(shape: tuple[int, ...]) -> str:
    """A shape as people write it: 2 × 3."""
    return " × ".join(map(str, shape)) if len(shape) > 1 else f"{shape[0]} numbers" if shape else "one number"


def nesting(rank: int) -> str:
    """What so many axes are written as."""
    return ("a number", "a list of numbers", "a list of rows", "a list of matrices")[min(rank, 3)]

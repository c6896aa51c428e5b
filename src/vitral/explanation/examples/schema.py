"""The format of worked examples: names and axes of quantities, the settings at the top, numbers and masks."""

import functools
import math
import operator
import re
import tomllib
from typing import Annotated, Any, Literal

import torch
from pydantic import Field

from vitral.attention.masks import Explicit, Mask, Padding, as_mask
from vitral.core.config import Config
from vitral.core.errors import UsageError
from vitral.core.language import N_, _
from vitral.core.names import ATTENTION_STEPS
from vitral.explanation.examples.numerals import MOST_DECIMALS, has_split_decimals, value_of

AXES = {
    "embedding": ("vocab", "d_model"),
    "token_embedding": ("time", "d_model"),
    "position_embedding": ("time", "d_model"),
    "x": ("time", "d_model"),
    "memory": ("source", "d_memory"),
    "resid_pre": ("time", "d_model"),
    "attn_norm_gain": ("d_model",),
    "attn_norm_bias": ("d_model",),
    "attn_norm": ("time", "d_model"),
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
    "attn_sum": ("time", "d_model"),
    "resid_mid": ("time", "d_model"),
    "mlp_norm_gain": ("d_model",),
    "mlp_norm_bias": ("d_model",),
    "mlp_norm": ("time", "d_model"),
    "w_gate": ("d_model", "d_ff"),
    "b_gate": ("d_ff",),
    "mlp.gate": ("time", "d_ff"),
    "w_up": ("d_model", "d_ff"),
    "b_up": ("d_ff",),
    "mlp.pre": ("time", "d_ff"),
    "mlp.hidden": ("time", "d_ff"),
    "w_down": ("d_ff", "d_model"),
    "b_down": ("d_model",),
    "mlp.out": ("time", "d_model"),
    "mlp_sum": ("time", "d_model"),
    "resid_post": ("time", "d_model"),
    "final_norm_gain": ("d_model",),
    "final_norm_bias": ("d_model",),
    "final_norm": ("time", "d_model"),
    "w_u": ("d_model", "vocab"),
    "b_u": ("vocab",),
    "logits": ("time", "vocab"),
    "probabilities": ("time", "vocab"),
    "next": ("vocab", "vocab"),
    "factor": ("factors",),
}
"""The axes of each quantity that may be given or claimed. With one head the axis of heads may be omitted."""

ALIASES = {
    "w_1": "w_up",
    "b_1": "b_up",
    "w_2": "w_down",
    "b_2": "b_down",
    **{f"attn.{step}": step for step in ATTENTION_STEPS},
}
"""Other keys of files, and the names they stand for."""

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


class Head(Config):
    """The settings at the top of the file, and its two tables."""

    title: str = "Worked example"
    source: str = ""
    note: str = ""
    tokens: list[str] = Field(default_factory=list)
    memory_tokens: list[str] = Field(default_factory=list)
    layout: Literal["rows", "columns"] = "rows"
    weight_layout: Literal["in-out", "out-in"] | None = None
    vocabulary: list[str] = Field(default_factory=list)
    mask: Any = None
    scale: (
        Literal["none", "sqrt", "linear", "adaptive", "learned", "learned-per-head"]
        | Annotated[float, Field(ge=-1e6, le=1e6)]
        | None
    ) = None
    softmax_base: Annotated[float, Field(gt=1, le=1e6)] | Literal["e"] = "e"
    position_base: Annotated[float, Field(gt=1, le=1e9)] = 10_000.0
    positions: Literal["pairs", "halves"] = "pairs"
    first_position: Annotated[int, Field(ge=0, le=1)] = 0
    heads: Annotated[int, Field(ge=1, le=1024)] | None = None
    decimals: Annotated[int, Field(ge=0, le=MOST_DECIMALS)] | None = None
    block: Literal["pre", "post"] | None = None
    activation: Literal["relu", "gelu", "gelu_tanh", "squared_relu", "swiglu"] = "relu"
    norm_type: Literal["layernorm", "rmsnorm"] = "layernorm"
    epsilon: Annotated[float, Field(ge=0, le=1)] = 1e-5
    final_norm: bool = False
    tied: bool = False
    given: dict[str, Any] = Field(default_factory=dict)
    steps: dict[str, Any] = Field(default_factory=dict)
    claimed: dict[str, Any] = Field(default_factory=dict)


SPECIAL = {"inf": math.inf, "+inf": math.inf, "∞": math.inf, "-inf": -math.inf, "-∞": -math.inf, "−∞": -math.inf}
"""Spellings of infinity."""
IDENTITY = ("identity", "identidade", "i")
"""Words for a unit matrix."""
MOST_NESTED = 4
LARGEST = 1e15
"""Larger whole numbers are not exact in double precision."""


def toml(text: str, where: str) -> dict[str, Any]:
    """The data of a TOML text.

    Raises:
        UsageError: it is not TOML; the message names the line.
    """
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise UsageError("{where}: not a worked example: brackets nested too deep", where=where) from None
    except ValueError as error:
        line = re.search(r"at line (\d+)", str(error))
        number = line[1] if line else len(text.rstrip().splitlines())
        raise UsageError("{where}, line {number}: not TOML: {fault}", where=where, number=number, fault=error) from None


class NotNumbers(ValueError):
    """A value that is not a number or a rectangular list of numbers, with its place."""

    def __init__(self, complaint: str, *place: int) -> None:
        """Place: indices in the list of lists."""
        super().__init__(complaint)
        self.place = place


def numbers(value: Any, name: str, may_be_unknown: bool, depth: int = 0) -> Any:
    """A number or a rectangular list of numbers; NaN for "?" if `may_be_unknown`.

    Raises:
        NotNumbers: anything else.
    """
    if isinstance(value, list):
        if depth > MOST_NESTED:
            raise NotNumbers(_("{name}: lists nested too deep", name=name))
        made = []
        unknown = ["?"] * next((len(part) for part in value if isinstance(part, list)), 0)
        value = [unknown if unknown and part == "?" and may_be_unknown else part for part in value]
        for place, part in enumerate(value):
            try:
                made.append(numbers(part, name, may_be_unknown, depth + 1))
            except NotNumbers as error:
                raise NotNumbers(str(error), place, *error.place) from None
            if _shape_of(made[-1]) != _shape_of(made[0]):
                complaint = f"{name}: {_unlike(made[0], made[-1])}"
                raise NotNumbers(with_comma_hint(complaint, value), place)
        return made
    if isinstance(value, str) and (value in SPECIAL or (value == "?" and may_be_unknown)):
        return SPECIAL.get(value, math.nan)
    if isinstance(value, str) and (read := value_of(value)) is not None:
        return numbers(read, name, may_be_unknown, depth)
    if isinstance(value, int | float) and not isinstance(value, bool) and value == value:
        if abs(value) > LARGEST and value not in (math.inf, -math.inf):
            raise NotNumbers(_("{name}: {value} is too large for a worked example", name=name, value=str(value)[:20]))
        return float(value)
    raise NotNumbers(_("{name}: {value!r} is not a number", name=name, value=value))


def with_comma_hint(complaint: str, value: Any, width: int | None = None) -> str:
    """The complaint, and what an unquoted decimal comma does, if there may be one."""
    if not has_split_decimals(value, width):
        return complaint
    return _('{complaint}; if a comma is decimal: 0,5 is two numbers, write 0.5 or "0,5"', complaint=complaint)


def mask_of(value: Any) -> Mask:
    """The mask of a file: a name, a table, rows of true and false, or a list of masks that must all allow.

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
        raise UsageError(
            'mask: {name} needs a {number} of at least 1, as {{name = "{name}", {number} = 2}}',
            name=name,
            number=number,
        )
    return as_mask(value)


def turned_tables(value: Any) -> Any:
    """A mask with each table of true and false transposed: of an author who writes positions as columns."""
    if isinstance(value, list) and value and all(map(_is_allowing, value)) and len({*map(len, value)}) == 1:
        return [list(column) for column in zip(*value, strict=True)]
    return [turned_tables(part) for part in value] if isinstance(value, list) else value


def _is_nested(value: list[Any]) -> bool:
    return any(isinstance(part, list) for part in value)


def _is_allowing(row: Any) -> bool:
    return isinstance(row, list) and bool(row) and all(type(entry) in (bool, int) and entry in (0, 1) for entry in row)


def _unlike(first: Any, other: Any) -> str:
    if isinstance(first, list) and isinstance(other, list) and len(first) != len(other):
        return _("rows of {first} and {other} numbers; all must be equally long", first=len(first), other=len(other))
    return _("numbers and lists side by side; all rows must be alike")


def _shape_of(value: Any) -> tuple[int, ...]:
    return (
        (len(value), *_shape_of(value[0]))
        if isinstance(value, list) and value
        else (0,)
        if isinstance(value, list)
        else ()
    )


def shape_text(shape: tuple[int, ...]) -> str:
    """A shape for messages: 2 × 3."""
    if len(shape) > 1:
        return " × ".join(map(str, shape))
    return _("{n} numbers", n=shape[0]) if shape else _("one number")


def nesting(rank: int) -> str:
    """The form of a value with `rank` axes, for messages."""
    forms = (N_("a number"), N_("a list of numbers"), N_("a list of rows"), N_("a list of matrices"))
    return _(forms[min(rank, 3)])

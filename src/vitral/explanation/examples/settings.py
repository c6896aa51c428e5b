"""The settings of a worked example: their types and limits, where they stand and how they are spelled."""

import math
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from vitral.core.config import Config
from vitral.explanation.examples.faults import Fault, KeyPath
from vitral.explanation.examples.names import hint, named, spelled
from vitral.explanation.examples.numerals import MOST_DECIMALS, value_of
from vitral.explanation.examples.schema import TABLES

LAYOUTS = {"layout": ("tokens", ("rows", "columns")), "weight_layout": ("weights", ("in-out", "out-in"))}
"""Settings whose key means something else where its value is no such word."""
MOST_BEAMS = 32
"""Largest number of beams and largest length of a beam search."""
Size = Annotated[int, Field(ge=1, le=10**9)]


class Head(Config):
    """The settings of a file, and its tables."""

    title: str = ""
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
    softmax_base: Annotated[float, Field(gt=1, le=1e6)] = math.e
    position_base: Annotated[float, Field(gt=1, le=1e9)] = 10_000.0
    positions: Literal["pairs", "halves"] = "pairs"
    first_position: Annotated[int, Field(ge=0, le=1)] = 0
    heads: Annotated[int, Field(ge=1, le=1024)] | None = None
    d_k: Annotated[int, Field(ge=1)] | None = None
    decimals: Annotated[int, Field(ge=0, le=MOST_DECIMALS)] | None = None
    block: Literal["pre", "post"] | None = None
    activation: Literal["relu", "gelu", "gelu_tanh", "squared_relu", "swiglu"] = "relu"
    norm_type: Literal["layernorm", "rmsnorm"] = "layernorm"
    epsilon: Annotated[float, Field(ge=0, le=1)] = 1e-5
    final_norm: bool = False
    tied: bool = False
    start: str | None = None
    beams: Annotated[int, Field(ge=1, le=MOST_BEAMS)] | None = None
    length: Annotated[int, Field(ge=1, le=MOST_BEAMS)] | None = None
    preset: str | None = None
    model: dict[str, Any] | None = None
    vocab_size: Size | None = None
    shapes: dict[str, Annotated[list[Size], Field(min_length=1, max_length=8)]] | None = None
    given: dict[str, Any] = Field(default_factory=dict)
    steps: dict[str, Any] = Field(default_factory=dict)
    claimed: dict[str, Any] = Field(default_factory=dict)


_OTHERS: Mapping[str, tuple[str, ...]] = {
    "title": ("titulo",),
    "source": ("fonte",),
    "note": ("nota",),
    "tokens": ("token_names", "names_of_tokens", "nomes_dos_tokens"),
    "memory_tokens": ("memory_token_names", "encoder_tokens", "tokens_da_memoria", "tokens_do_codificador"),
    "vocabulary": ("vocab", "vocabulario"),
    "mask": ("mascara", "attention_mask", "mascara_de_atencao"),
    "scale": ("escala", "scaling"),
    "heads": ("num_heads", "n_heads", "cabecas"),
    "decimals": ("digits", "decimais", "casas", "casas_decimais"),
    "block": ("bloco",),
    "activation": ("ativacao",),
    "epsilon": ("eps",),
    "softmax_base": ("base_do_softmax",),
    "position_base": ("base_das_posicoes",),
    "first_position": ("primeira_posicao",),
}
_SETTINGS = {spelled(word): name for name, words in _OTHERS.items() for word in words} | {
    spelled(name): name for name in Head.model_fields if name not in (*TABLES, *LAYOUTS)
}
_SCALES = {
    **dict.fromkeys(("1/sqrt(d_k)", "1/sqrt(dk)", "1/√d_k", "1/√dk", "sqrt(d_k)", "√d_k", "raiz"), "sqrt"),
    **dict.fromkeys(("1/d_k", "1/dk", "d_k"), "linear"),
    **dict.fromkeys(("nenhuma", "no", "1"), "none"),
}
_MASKS = {"none": "bidirectional", "nenhuma": "bidirectional", "bidirecional": "bidirectional"}


def setting_of(key: str, value: Any = None) -> str | None:
    """The setting that a key stands for; None if it is none."""
    for name, (word, values) in LAYOUTS.items():
        if spelled(key) == word and isinstance(value, str) and value in values:
            return name
    return key if key in LAYOUTS else _SETTINGS.get(spelled(key))


def settled(data: Mapping[str, Any]) -> tuple[dict[str, Any], dict[KeyPath, KeyPath]]:
    """The data with every setting at the top under its own name, and the paths that settings come from.

    Args:
        data: as written; settings stand at the top or among the given numbers.

    Raises:
        Fault: a setting twice, or a key at the top that is none.
    """
    normalised: dict[str, Any] = {key: data[key] for key in TABLES if key in data}
    moved: dict[KeyPath, KeyPath] = {}

    def put(name: str, value: Any, *path: str) -> None:
        if name in normalised:
            raise Fault("{name}: is set twice", path, name=path[-1])
        normalised[name], moved[(name,)] = _plain(name, value), path

    for key, value in data.items():
        if key in TABLES:
            continue
        if name := setting_of(key, value):
            put(name, value, key)
        elif named(key):
            raise Fault("{name}: belongs under [given] or [claimed]", (key,), name=key)
        else:
            near = hint(key, [*_SETTINGS.values(), *TABLES])
            raise Fault("unknown key {name!r}, {hint}", (key,), name=key, hint=near)
    if isinstance(data.get("given"), Mapping):
        normalised["given"] = {}
        steps = data.get("steps")
        used = re.findall(r"\w+", " ".join(map(str, steps.values()))) if isinstance(steps, Mapping) else ()
        for key, value in data["given"].items():
            name = setting_of(key, value)
            if name and key not in used and (name in LAYOUTS or not named(key)):
                put(name, value, "given", key)
            else:
                normalised["given"][key] = value
    return normalised, moved


def _plain(name: str, value: Any) -> Any:
    """A value without other words for it, and with fractions as numbers."""
    if not isinstance(value, str):
        return value
    if name == "mask":
        return _MASKS.get(value, value)
    if name == "scale" and (word := _SCALES.get(value.replace(" ", "").casefold())):
        return word
    if name == "softmax_base" and value == "e":
        return math.e
    is_number = name in ("scale", "softmax_base", "position_base", "epsilon")
    number = value_of(value) if is_number else None
    return value if number is None else number

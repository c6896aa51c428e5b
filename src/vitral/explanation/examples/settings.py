"""The settings of a worked example: where they stand and how they are spelled."""

import re
from collections.abc import Callable, Mapping
from typing import Any

from vitral.core.errors import UsageError
from vitral.core.language import _
from vitral.explanation.examples.names import hint, is_quantity, spelled
from vitral.explanation.examples.numerals import value_of
from vitral.explanation.examples.schema import Head

Refuse = Callable[..., UsageError]
Path = tuple[str, ...]
TABLES = ("given", "steps", "claimed")
UNDER_GIVEN = ("d_k", "start", "beams", "length")
"""Numbers of the computation that are no quantities; they stand under [given], or at the top."""
LAYOUTS = {"layout": ("tokens", ("rows", "columns")), "weight_layout": ("weights", ("in-out", "out-in"))}
"""Settings whose key means something else where its value is no such word."""

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


def settled(data: Mapping[str, Any], refuse: Refuse) -> tuple[dict[str, Any], dict[Path, Path]]:
    """The data with every setting at the top under its own name, and the places that settings come from.

    Args:
        data: as written.
        refuse: makes the error for a place in the file.

    Raises:
        UsageError: a setting twice, or a key at the top that is none.
    """
    settler = _Settler(data, refuse)
    for key, value in data.items():
        settler.top(key, value)
    settler.inside()
    _spell_values(settler.made)
    return settler.made, settler.moved


class _Settler:
    def __init__(self, data: Mapping[str, Any], refuse: Refuse) -> None:
        given, steps = data.get("given"), data.get("steps")
        self.refuse = refuse
        self.given = dict(given) if isinstance(given, Mapping) else given
        self.texts = list(map(str, steps.values())) if isinstance(steps, Mapping) else []
        self.made: dict[str, Any] = {}
        self.moved: dict[Path, Path] = {}

    def put(self, name: str, value: Any, path: Path) -> None:
        if name in self.made:
            raise self.refuse(_("{name}: is set twice", name=path[-1]), *path)
        self.made[name], self.moved[(name,)] = value, path

    def top(self, key: str, value: Any) -> None:
        """One key at the top of the file."""
        name = _setting(key, value)
        if key in TABLES:
            self.made[key] = self.given if key == "given" else value
        elif key in UNDER_GIVEN and isinstance(self.given, dict):
            if key in self.given:
                raise self.refuse(_("{name}: is set twice", name=key), key)
            self.given[key] = value
            self.moved["given", key] = (key,)
        elif name in Head.model_fields:
            self.put(name, value, (key,))
        elif is_quantity(key):
            raise self.refuse(_("{name}: belongs under [given] or [claimed]", name=key), key)
        else:
            near = hint(key, [*_SETTINGS.values(), *TABLES])
            raise self.refuse(_("unknown key {name!r}, {hint}", name=key, hint=near), key)

    def inside(self) -> None:
        """Settings among the given numbers."""
        for key, value in list(self.given.items()) if isinstance(self.given, dict) else ():
            name = _setting(key, value)
            is_own = any(re.search(rf"(?<!\w){re.escape(key)}(?!\w)", text) for text in self.texts)
            if name in Head.model_fields and not is_own and (name in LAYOUTS or not is_quantity(key)):
                self.put(name, self.made["given"].pop(key), ("given", key))


def _setting(key: str, value: Any) -> str:
    """The setting that a key stands for; the key itself if it is none."""
    if isinstance(value, str):
        for name, (word, values) in LAYOUTS.items():
            if spelled(key) == word and value in values:
                return name
    return _SETTINGS.get(spelled(key), key)


def _spell_values(made: dict[str, Any]) -> None:
    """Other words for values, and fractions, in place."""
    scale, mask = made.get("scale"), made.get("mask")
    if isinstance(scale, str):
        plain = scale.replace(" ", "").casefold()
        number = value_of(scale)
        made["scale"] = _SCALES.get(plain, scale if number is None else number)
    if isinstance(mask, str):
        made["mask"] = _MASKS.get(mask, mask)
    for name in ("softmax_base", "position_base", "epsilon"):
        if isinstance(made.get(name), str):
            number = value_of(made[name]) if made[name] != "e" else None
            made[name] = made[name] if number is None else number

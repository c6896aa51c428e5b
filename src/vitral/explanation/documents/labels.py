"""Names of quantities as people write them before a matrix: with markup, numbering, head or row."""

import re
from dataclasses import dataclass

from vitral.explanation.examples.names import named
from vitral.explanation.examples.schema import CHOICES
from vitral.explanation.examples.settings import setting_of
from vitral.explanation.rows import rule_of

LONGEST_LABEL = 200
"""Characters of a label that are read, from its end."""
INPUTS = ("x", "resid_pre", "embedding", "token_embedding", "position_embedding", "memory", "next", "factor")

WORDS = (*CHOICES, "total")
"""Quantities that are a word, a list of words or one number."""
SECTIONS = {
    "given": (
        "given",
        "givens",
        "inputs",
        "input",
        "data",
        "dado",
        "dados",
        "dados do problema",
        "entrada",
        "entradas",
    ),
    "claimed": (
        *("claimed", "results", "result", "solution", "answers", "answer", "computed", "my results"),
        *("resultado", "resultados", "solução", "resposta", "respostas", "calculado", "calculados", "afirmado"),
    ),
}

_PART = re.compile(
    r"^(?P<name>.*?)[\s,;]*(?:\(?\[?\s*(?:head|cabeça|cabeca|h)\s*(?P<head>\d+)\s*\]?\)?|\^\{?\(?(?P<above>\d+)\)?\}?"
    r"|\[(?P<inside>\d+)\]|\(?\s*(?:row|linha|token)\s*(?P<row>\d+)\s*\)?|_\{?(?P<below>\d+)\}?)$",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Label:
    """A quantity, or one of its heads or rows.

    Attributes:
        name: of the quantity.
        head: from 1; 0 for the whole quantity.
        row: from 1; 0 for all rows.
    """

    name: str
    head: int = 0
    row: int = 0


def is_input(name: str) -> bool:
    """Whether a quantity is an input or a parameter, which is given and never computed."""
    return name in INPUTS or name.startswith(("w_", "b_")) or name.endswith(("_gain", "_bias"))


def section_of(words: str) -> str:
    """The section, given or claimed, that a heading names; empty if none."""
    plain = bare(words).lower().strip("[] ")
    return next((section for section, names in SECTIONS.items() if plain in names), "")


def known_setting(key: str) -> tuple[str, ...]:
    """The path in the data of a setting, or of a single number or word of the example; empty for anything else."""
    plain = bare(key[:LONGEST_LABEL]).lower().replace(" ", "_")
    name = quantity_named(plain) or plain
    if name in WORDS:
        return "claimed", name
    setting = None if named(plain) else setting_of(plain)
    return () if setting in (None, "preset", "model", "vocab_size", "shapes") else (setting,)


def quantity_named(text: str) -> str | None:
    """The quantity of a name, in any spelling; a word for given or claimed numbers is none."""
    plain = text.strip().lower()
    if any(plain in words for words in SECTIONS.values()):
        return None
    joined = plain.replace(" ", "_")
    return joined if joined in WORDS or rule_of(joined)[1] is not None else named(plain)


def bare(label: str) -> str:
    r"""A label without markup and numbering.

    >>> bare("### 2. **Attention weights**:"), bare("$W^{Q}$ =")
    ('Attention weights', 'W^Q')
    """
    text = re.sub(r"[$`*#\"]|^\\s*%", "", label)
    text = re.sub(r"\{\s*([^{}\s]+)\s*\}", r"\1", text).replace("{", "").replace("}", "")
    text = re.sub(r"\\(?=_)", "", text)
    text = re.sub(r"^\s*(?:\(?[0-9]+[.)]|[a-z]\)|[-–•])\s+", "", text)
    return text.strip(" \t=:&\\.,-–")


def known_label(label: str, *, is_row: bool = False) -> Label | None:
    """The quantity that a label names, with its head or row; None if it names none.

    A subscript of a single row is its number (q_2), one of a matrix that of a head (Q_2).
    """
    text = bare(" ".join(label.split())[-LONGEST_LABEL:])
    parts = [part for part in map(bare, re.split(r"[=:]", text)) if part]
    for candidate in dict.fromkeys((text, *parts, re.sub(r"\s*[(\[].*$", "", text))):
        name = quantity_named(candidate)
        if name is not None:
            return Label(name)
        part = _PART.match(candidate)
        name = quantity_named(part["name"]) if part else None
        if part and part.lastgroup and name is not None:
            is_head = part.lastgroup in ("head", "above") or (part.lastgroup == "below" and not is_row)
            number = int(part[part.lastgroup])
            return Label(name, head=number) if is_head else Label(name, row=number)
    return None

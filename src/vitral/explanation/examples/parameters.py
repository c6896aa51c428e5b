"""Parameter tables as worked examples: the count of each row from its shape, and the total."""

import itertools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from vitral.core.config import nearest
from vitral.core.language import N_
from vitral.explanation.examples.faults import Fault, at
from vitral.explanation.examples.settings import Head
from vitral.explanation.expressions import Call, Constant, read
from vitral.explanation.formulas.notation import Equation, Name, Number, Product, Sum, Words
from vitral.explanation.recipe import SheetQuantity, follow
from vitral.explanation.rows import CellNamer, Row
from vitral.explanation.sheet import Sheet
from vitral.model import ModelConfig, parameter_table
from vitral.runs.config import preset_model

Shape = tuple[int, ...]
MOST_NAMES = 10_000
"""Largest number of names that one name with braces may stand for."""

_LAYER = r"(?:.*\.)?(?:MM|SA|h|blocks|layers|attn|attention)\.(?P<layer>\d+)\."
_ALIASES: tuple[tuple[str, tuple[str, ...]], ...] = (
    (r"(?:.*\.)?(?:wte|tok_emb\w*|token_embedding\w*|embed_tokens)\.weight", ("token_embedding.weight",)),
    (r"(?:.*\.)?(?:wpe|pos_emb\w*|position_embedding\w*|positions)\.weight", ("positions.weight",)),
    (r"(?:.*\.)?(?:lm_head|head|unembed\w*)\.weight", ("head.weight",)),
    # GPT-2's final norm; some notes use this name for the output matrix.
    (r"(?:.*\.)?ln_f\.weight", ("final_norm.weight", "head.weight")),
    (r"(?:.*\.)?(?:ln_f|scale3|final_norm|norm_f)\.(?P<kind>weight|bias)", ("final_norm.{kind}",)),
    (_LAYER + r"(?:.*\.)?(?:in_proj|c_attn|qkv)[._](?P<kind>weight|bias)", ("blocks.{layer}.attn.in_proj.{kind}",)),
    (
        _LAYER + r"(?:attn\.c_proj|(?:.*\.)?out_proj|(?:.*\.)?o_proj)[._](?P<kind>weight|bias)",
        ("blocks.{layer}.attn.out_proj.{kind}",),
    ),
    (r"(?:scale1|ln1)\.(?P<layer>\d+)\.(?P<kind>weight|bias)", ("blocks.{layer}.attn_norm.{kind}",)),
    (r"(?:scale2|ln2)\.(?P<layer>\d+)\.(?P<kind>weight|bias)", ("blocks.{layer}.mlp_norm.{kind}",)),
    (_LAYER + r"(?:ln_1|attn_norm|norm1)\.(?P<kind>weight|bias)", ("blocks.{layer}.attn_norm.{kind}",)),
    (_LAYER + r"(?:ln_2|mlp_norm|norm2)\.(?P<kind>weight|bias)", ("blocks.{layer}.mlp_norm.{kind}",)),
    (r"(?:FFN|MLP|ffn|mlp)\.(?P<layer>\d+)\.0\.(?P<kind>weight|bias)", ("blocks.{layer}.mlp.up.{kind}",)),
    (r"(?:FFN|MLP|ffn|mlp)\.(?P<layer>\d+)\.2\.(?P<kind>weight|bias)", ("blocks.{layer}.mlp.down.{kind}",)),
    (_LAYER + r"(?:mlp|ffn)\.(?:c_fc|up|fc1|up_proj)\.(?P<kind>weight|bias)", ("blocks.{layer}.mlp.up.{kind}",)),
    (
        _LAYER + r"(?:mlp|ffn)\.(?:c_proj|down|fc2|down_proj)\.(?P<kind>weight|bias)",
        ("blocks.{layer}.mlp.down.{kind}",),
    ),
)
"""Patterns of row names used elsewhere, with the names of Vitral; of several, the one whose count fits."""


@dataclass(frozen=True)
class Counted(Row):
    """The number of parameters in each row of a table.

    Attributes:
        shapes: of each row's tensors; a row may stand for several.
    """

    shapes: tuple[tuple[tuple[int, ...], ...], ...]

    def counts(self) -> Tensor:
        """[rows]."""
        return torch.tensor([sum(map(math.prod, row)) for row in self.shapes], dtype=torch.float64)

    def formula(self, name: str) -> Equation:
        """The product of the sizes, in words."""
        words = Words(N_("product of the sizes of its tensor, or the sum of such products"))
        return Equation((Name(name, below="i"), words))

    def worked(self, inputs: Sequence[Tensor], index: tuple[int, ...], namer: CellNamer) -> Equation:
        """The product of the sizes, summed over the tensors of the row."""
        terms = [Product(tuple(Number(size, exact=True) for size in shape)) for shape in self.shapes[index[0]]]
        return Equation((terms[0] if len(terms) == 1 else Sum(tuple(terms)),))


def parameter_sheet(head: Head) -> Sheet:
    """The sheet of a parameter table: "rows" in the author's order, and "total".

    Raises:
        Fault: not a table, an unknown preset, or a row that the model does not have.
    """
    rows = head.claimed.get("rows", {})
    if not isinstance(rows, Mapping) or not (rows or "rows" not in head.claimed):
        raise Fault("rows: expected a table of names and counts", ("claimed", "rows"))
    for name, count in rows.items():
        if isinstance(count, Mapping):
            first = ".".join((name, *itertools.islice(count, 1)))
            raise Fault(
                'row {name!r}: a name with points needs quotes, as "{first}" = 0',
                ("claimed", "rows", name),
                name=name,
                first=first,
            )
    for key in head.claimed:
        if key not in ("rows", "total"):
            hint = nearest(key, ["rows", "total"])
            raise Fault("unknown name {name!r} in a parameter table, {hint}", ("claimed", key), name=key, hint=hint)
    table = {name: tuple(shape) for name, shape in (head.shapes or _of_model(head)).items()}
    shapes: dict[str, list[str]] = {}
    for written, count in (rows or dict.fromkeys(table)).items():
        parts = re.findall(r"\{([^{}]*)\}", written)
        if math.prod(part.count(",") + 1 for part in parts) > MOST_NAMES:
            raise Fault(
                "row {name!r}…: its braces stand for too many names", ("claimed", "rows", written), name=written[:20]
            )
        names = [_find(name, table, count) for name in ([written] if written in table else _expanded(written))]
        if None in names:
            hint = nearest(written, table)
            raise Fault(
                "row {name!r} is none of the model's, {hint}", ("claimed", "rows", written), name=written, hint=hint
            )
        shapes[written] = [name for name in names if name is not None]
    named = {name for names in shapes.values() for name in names}
    rest = float(sum(math.prod(shape) for name, shape in table.items() if name not in named))
    counted = Counted(tuple(tuple(table[name] for name in names) for names in shapes.values()))
    total = read("lifted(sum(rows, -1, 1))")
    total = Call("add", (total, Constant(rest, "others"))) if rest else total
    values: dict[str, Tensor] = {}
    rows_and_total = (
        SheetQuantity("rows", ("row",), Constant.of(counted.counts()), counted),
        SheetQuantity("total", ("total",), total),
    )
    return Sheet(follow(iter(rows_and_total), values), values, vocabulary=tuple(shapes))


def _of_model(head: Head) -> dict[str, Shape]:
    """Shapes of a model's tensors."""
    if head.vocab_size is None:
        raise Fault("vocab_size: give the number of tokens, under [given]", ("given",))
    with at("preset" if head.preset else "model"):
        model = preset_model(head.preset) if head.preset else ModelConfig.parse(head.model or {}, "model")
    return {row.name: row.shape for row in parameter_table(model, head.vocab_size)}


def _find(name: str, table: Mapping[str, Shape], count: Any) -> str | None:
    """The table's row of this name; if the name may mean two rows, the one with the claimed count."""
    if name in table:
        return name
    matches = [(match, targets) for pattern, targets in _ALIASES if (match := re.fullmatch(pattern, name))]
    meant = (target.format(**match.groupdict()) for match, targets in matches for target in targets)
    rows = [row for row in meant if row in table]
    return next((row for row in rows if math.prod(table[row]) == count), rows[0] if rows else None)


def _expanded(name: str) -> list[str]:
    """The names that a name with braces stands for.

    >>> _expanded("scale1.{0,1}.bias")
    ['scale1.0.bias', 'scale1.1.bias']
    """
    parts = re.split(r"\{([^{}]*)\}", name)
    choices = [part.split(",") if index % 2 else [part] for index, part in enumerate(parts)]
    return ["".join(chosen) for chosen in itertools.product(*choices)]

"""Parameter tables as worked examples: the count of each row from its shape, and the total."""

import itertools
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from vitral.core.config import nearest
from vitral.core.errors import UsageError
from vitral.core.language import N_, _
from vitral.explanation.examples.schema import LARGEST
from vitral.explanation.expressions import Call, Constant, read
from vitral.explanation.formulas.notation import Equation, Expression, Name, Number, Over, Product, Sum, Words
from vitral.explanation.rows.base import CellNamer, Row, numbers
from vitral.explanation.sheet import Sheet, SheetQuantity, computed
from vitral.model import ModelConfig, ParameterRow, parameter_table

FindModel = Callable[[str], ModelConfig]
"""Returns the model configuration of a preset."""
Refuse = Callable[..., UsageError]
"""Makes the error for a complaint and the keys of a place in the file."""
Shape = tuple[int, ...]
MOST_TOKENS = 10**9
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
    subscript: ClassVar[str] = "i"

    def counts(self) -> Tensor:
        """[rows]."""
        return torch.tensor([sum(map(math.prod, row)) for row in self.shapes], dtype=torch.float64)

    def formula(self) -> Expression:
        """The product of the sizes, in words."""
        return Words(N_("product of the sizes of its tensor, or the sum of such products"))

    def stages(self, inputs: Sequence[Tensor], index: tuple[int, ...], namer: CellNamer) -> tuple[Expression, ...]:
        """The product of the sizes, summed over the tensors of the row."""
        terms = [Product(tuple(Number(size, exact=True) for size in shape)) for shape in self.shapes[index[0]]]
        return (terms[0] if len(terms) == 1 else Sum(tuple(terms)),)


@dataclass(frozen=True)
class Total(Row):
    """The sum of all rows.

    Attributes:
        rest: parameters of the model that no row names.
    """

    rest: float = 0.0

    def formula(self) -> Expression:
        """The sum over rows, and what they leave out."""
        rows = Over("i", Name("rows", below="i"))
        return Sum((rows, Name("others"))) if self.rest else rows

    def after(self, name: str) -> tuple[Equation, ...]:
        """The parameters that no row names."""
        return (Equation((Name("others"), Number(self.rest))),) if self.rest else ()

    def stages(self, inputs: Sequence[Tensor], index: tuple[int, ...], namer: CellNamer) -> tuple[Expression, ...]:
        """The counts of all rows."""
        return (Sum((*numbers(inputs[0]), *([Number(self.rest)] if self.rest else []))),)


def parameter_sheet(
    given: Mapping[str, Any], claimed: Mapping[str, Any], find_model: FindModel, refuse: Refuse
) -> Sheet:
    """The sheet of a parameter table: "rows" in the author's order, and "total".

    Raises:
        UsageError: not a table, an unknown preset, or a row that the model does not have.
    """
    rows = claimed.get("rows", {})
    if not isinstance(rows, Mapping):
        raise refuse(_("rows: expected a table of names and counts"), "claimed", "rows")
    for name, count in rows.items():
        if isinstance(count, Mapping):
            first = ".".join((name, *itertools.islice(count, 1)))
            complaint = _('row {name!r}: a name with points needs quotes, as "{first}" = 0', name=name, first=first)
            raise refuse(complaint, "claimed", "rows", name)
    if "rows" in claimed and not rows:
        raise refuse(_("rows: no row is claimed"), "claimed", "rows")
    for key in claimed:
        if key not in ("rows", "total"):
            hint = nearest(key, ["rows", "total"])
            complaint = _("unknown name {name!r} in a parameter table, {hint}", name=key, hint=hint)
            raise refuse(complaint, "claimed", key)
    if "shapes" in given:
        shapes, rest = _listed(given, rows, refuse)
    else:
        shapes, rest = _of_model(given, rows, find_model, refuse)
    counted, total = Counted(tuple(shapes)), read("sum(rows, -1)")
    total = Call("add", (total, Constant(rest))) if rest else total
    quantities = (
        SheetQuantity("rows", ("row",), Constant.of(counted.counts()), counted),
        SheetQuantity("total", ("total",), total, Total(rest)),
    )
    return Sheet(quantities, computed(quantities, {}), vocabulary=tuple(rows))


def _listed(given: Mapping[str, Any], rows: Mapping[str, Any], refuse: Refuse) -> tuple[list[tuple[Shape, ...]], float]:
    """Shapes listed in the file."""
    listed = given["shapes"]
    if not isinstance(listed, Mapping) or not all(_is_shape(shape) for shape in listed.values()):
        raise refuse(_('shapes: expected names with sizes, as "wte.weight" = [109, 128]'), "given", "shapes")
    for name in rows:
        if name not in listed:
            complaint = _("row {name!r} has no shape, {hint}", name=name, hint=nearest(name, listed))
            raise refuse(complaint, "claimed", "rows", name)
    rest = sum(math.prod(shape) for name, shape in listed.items() if name not in rows)
    return [(tuple(listed[name]),) for name in rows], float(rest)


def _of_model(
    given: Mapping[str, Any], rows: Mapping[str, Any], find_model: FindModel, refuse: Refuse
) -> tuple[list[tuple[Shape, ...]], float]:
    """Shapes of a model's tensors."""
    vocab_size = given.get("vocab_size")
    if isinstance(vocab_size, bool) or not isinstance(vocab_size, int) or not 1 <= vocab_size <= MOST_TOKENS:
        complaint = _("vocab_size: expected the number of tokens under [given], 1 to {most:,}", most=MOST_TOKENS)
        raise refuse(complaint, "given", "vocab_size")
    try:
        if not isinstance(given.get("model", {}), Mapping):
            raise UsageError("model: expected a table of the model's settings")
        model = ModelConfig.parse(given["model"], "model") if "model" in given else find_model(str(given["preset"]))
    except UsageError as error:
        raise refuse(str(error), "given") from None
    table = {row.name: row for row in parameter_table(model, vocab_size)}
    named: set[str] = set()
    shapes: list[tuple[Shape, ...]] = []
    for written, count in rows.items():
        if math.prod(part.count(",") + 1 for part in re.findall(r"\{([^{}]*)\}", written)) > MOST_NAMES:
            complaint = _("row {name!r}…: its braces stand for too many names", name=written[:20])
            raise refuse(complaint, "claimed", "rows", written)
        found = [_find(name, table, count) for name in _expanded(written)]
        if None in found:
            hint = nearest(written, table)
            complaint = _("row {name!r} is none of the model's, {hint}", name=written, hint=hint)
            raise refuse(complaint, "claimed", "rows", written)
        known = [row for row in found if row is not None]
        named |= {row.name for row in known}
        shapes.append(tuple(row.shape for row in known))
    return shapes, float(sum(row.count for name, row in table.items() if name not in named))


def _find(name: str, table: Mapping[str, ParameterRow], count: Any) -> ParameterRow | None:
    """The model's row of this name; if the name may mean two rows, the one with the claimed count."""
    if name in table:
        return table[name]
    candidates: list[ParameterRow] = []
    for pattern, targets in _ALIASES:
        match = re.fullmatch(pattern, name)
        if match:
            candidates += [table[full] for target in targets if (full := target.format(**match.groupdict())) in table]
    return next((row for row in candidates if row.count == count), candidates[0] if candidates else None)


def _expanded(name: str) -> list[str]:
    """The names that a name with braces stands for.

    >>> _expanded("scale1.{0,1}.bias")
    ['scale1.0.bias', 'scale1.1.bias']
    """
    parts = re.split(r"\{([^{}]*)\}", name)
    choices = [part.split(",") if place % 2 else [part] for place, part in enumerate(parts)]
    return ["".join(chosen) for chosen in itertools.product(*choices)]


def _is_shape(shape: Any) -> bool:
    """Whether it is a list of sizes whose product is exact in double precision."""
    return (
        isinstance(shape, list)
        and bool(shape)
        and all(isinstance(size, int) and not isinstance(size, bool) and size > 0 for size in shape)
        and math.prod(shape) <= LARGEST
    )

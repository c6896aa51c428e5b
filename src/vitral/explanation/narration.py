"""Narration: the quantities of a sheet as steps with title, formula, shapes, numbers and a sentence."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from vitral.explanation.examples.schema import AXES
from vitral.explanation.expressions import Call, compute, expanded
from vitral.explanation.formulas import number
from vitral.explanation.formulas.notation import Words
from vitral.explanation.phrasebook import Phrases
from vitral.explanation.rows.choices import Beam, Filtered
from vitral.explanation.rows.positions import Rotary
from vitral.explanation.sheet import Index, Sheet, SheetQuantity
from vitral.explanation.steps import Arithmetic, Cell, Panel, Step, Working

DIGITS = 3
"""Digits after the point of numbers in sentences."""
SHARES = ("weights", "probabilities")
SQUARE = ("scores", "scaled", "masked", "weights")
STREAM = ("x", "embed", "resid_pre", "resid_mid", "resid_post")
RESIDUAL = ("attn_sum", "resid_mid", "mlp_sum", "resid_post")
SHAPE_SIGNS = {"add": " + ", "multiply": " ⊙ "}
"""Signs between the shapes of inputs: a sum, for numbers one by one; others are products of matrices."""
OF_STEPS = {"matmul": " · ", "add": " + ", "subtract": " − ", "multiply": " ⊙ ", "divide": " / "}
"""The same of the author's own steps, by their last function; commas for any other."""
LABELLED_ONCE = ("one", "choice", "total")
"""Axes without labels, of which only the first entry is worked through."""
NORMS = {"layernorm": "norm", "rmsnorm": "rmsnorm"}
Told = tuple[str, dict[str, object]]
"""The key of a sentence, and the values of its places that not all sentences have."""
GIVEN_AXES = {1: ("columns",), 2: ("rows", "columns"), 3: ("heads", "rows", "columns")}


@dataclass(frozen=True)
class Choice:
    """Which heads are shown, and the cell whose arithmetic is written out.

    Attributes:
        heads: query heads; None for all.
        query: position of the query; None for the middle one, or the last where the next token is chosen.
        key: position of the key; None for the one with the largest weight.
        column: of matrices with features as columns.
        with_given: whether the given numbers are shown as the first step.
    """

    heads: tuple[int, ...] | None = None
    query: int | None = None
    key: int | None = None
    column: int = 0
    with_given: bool = False


def _cell_working(
    arithmetic: Callable[[Index], Arithmetic], head: Index, is_vector: bool, row: int, column: int
) -> Arithmetic:
    """The arithmetic of a panel's cell by row and column; as a partial function a panel can be copied."""
    return arithmetic((column,) if is_vector else (*head, row, column))


def _given_cell(sheet: Sheet, name: str, index: Index) -> Arithmetic:
    return Arithmetic(sheet.cell(name, index), (), float(sheet.values[name][index]))


def _swapped(working: Working, row: int, column: int) -> Arithmetic:
    return working(column, row)


def _turned(panel: Panel) -> Panel:
    """The panel with rows and columns exchanged."""
    return replace(
        panel,
        matrix=tuple(zip(*panel.matrix, strict=True)),
        row_labels=panel.column_labels,
        column_labels=panel.row_labels,
        columns_are_positions=True,
        cell=panel.cell[::-1],
        working=partial(_swapped, panel.working),
        also=tuple(cell[::-1] for cell in panel.also),
        asked=panel.asked[::-1],
        words=tuple(zip(*panel.words, strict=True)),
    )


class Narrator:
    """Narrates one sheet in one language."""

    def __init__(self, sheet: Sheet, say: Phrases, choice: Choice, *, post_norm: bool = False) -> None:
        """Choose the query and the key.

        Args:
            sheet: the computation.
            say: phrases of the language.
            choice: of heads and cells.
            post_norm: whether the block is post-norm, which changes the titles of its norms.
        """
        self.sheet, self.say, self.choice, self.post_norm = sheet, say, choice, post_norm
        self.heads = choice.heads if choice.heads is not None else tuple(range(sheet.num_heads))
        self.query, self.key = self._chosen()

    def _chosen(self) -> Cell:
        values = self.sheet.values
        square = next((values[name] for name in reversed(SQUARE) if name in values), None)
        if square is None:
            tall = next(
                (values[made.name] for made in self.sheet.quantities if made.axes[0] == "time"), torch.zeros(1, 1)
            )
            return self._query(len(tall)), 0
        query = self._query(square.shape[1])
        key = int(square[self.heads[0], query].argmax()) if self.choice.key is None else self.choice.key
        return query, key

    def _query(self, count: int) -> int:
        if self.choice.query is not None:
            return self.choice.query
        return count - 1 if "logits" in self.sheet or "probabilities" in self.sheet.values else middle(count)

    def _hidden(self, head: int) -> Cell | None:
        """A cell that the mask hides: in the chosen row, else in the middle one, else in the first that has one."""
        if "masked" not in self.sheet.values:
            return None
        table = self.sheet.values["masked"][head]
        for row in (self.query, middle(len(table)), *range(len(table))):
            is_hidden = table[row] == -math.inf
            if bool(is_hidden.any()) and not bool(is_hidden.all()):
                return row, int(is_hidden.int().argmax())
        return None

    def steps(self, names: Sequence[str] | None = None) -> tuple[Step, ...]:
        """All steps in order, or those with the given names."""
        given = [self._given()] if self.choice.with_given and self._given_names() else []
        there = [quantity for quantity in self.sheet.quantities if self.sheet.values[quantity.name].numel()]
        wanted = [quantity for quantity in there if names is None or quantity.name in names]
        return (*given, *(self._step(quantity) for quantity in wanted))

    def _given_names(self) -> list[str]:
        """Given quantities that are used; gains of 1 are omitted."""
        used = {name for quantity in self.sheet.quantities for name in quantity.inputs}
        made = {quantity.name for quantity in self.sheet.quantities}
        values = self.sheet.values
        plain = [name for name in values if name.endswith("_gain") and bool((values[name] == 1).all())]
        return [name for name in values if name in used and name not in made and name not in plain]

    def _given(self) -> Step:
        """The given quantities, one panel each or one for each head."""
        panels: list[Panel] = []
        for name in self._given_names():
            value = self.sheet.values[name]
            axes = AXES.get(name, ())
            axes = axes if len(axes) == value.dim() else GIVEN_AXES[value.dim()]
            seen = ("heads", *axes[1:]) if value.dim() == 3 else tuple(axis.replace("heads", "head") for axis in axes)
            layout = self.sheet.conventions
            plain = layout.seen(name, value[0] if value.dim() == 3 else value)
            shape = _shape(plain, layout.index(name, seen[-2:]))
            for panel in self.panels(value, seen, name, partial(_given_cell, self.sheet, name)):
                label = f"{name}, {panel.label}" if panel.label else name
                panels.append(replace(panel, label=f"{label} {shape}", asked=()))
        return Step("given", self.say("titles.given"), Words(""), "", self.say("sentences.given"), tuple(panels))

    def _step(self, quantity: SheetQuantity) -> Step:
        name, value = quantity.name, self.sheet.values[quantity.name]
        return Step(
            name=name,
            title=self._title(quantity),
            formula=self.sheet.formula(name),
            shapes=self._shapes(quantity),
            sentence=self._sentence(quantity),
            panels=self.panels(value, quantity.axes, name, partial(self.sheet.arithmetic, name)),
            is_share=name in SHARES or isinstance(quantity.row, Filtered),
        )

    def _title(self, quantity: SheetQuantity) -> str:
        name, row = quantity.name, quantity.row
        if quantity.is_free:
            return self.say("titles.step", name=name)
        if isinstance(row, Filtered):
            return self.say(f"titles.{row.rule}", value=self.say.number(f"{row.value:g}"))
        if name in ("resid_mid", "resid_post") and self.post_norm:
            return self.say(f"titles.{name}_post")
        if name == "out" and "w_o" not in quantity.inputs and self.sheet.num_heads == 1:
            return self.say("titles.out_alone")
        return self.say(f"titles.{name}")

    def _shapes(self, quantity: SheetQuantity) -> str:
        """Inputs and output, with the names of the axes."""
        made = {each.name: each.axes for each in self.sheet.quantities}
        inputs = [name for name in quantity.inputs if name in made or name in STREAM]
        if quantity.derivative:
            inputs = [quantity.derivative[0]]
        tree = quantity.tree
        while isinstance(tree, Call) and tree.function in ("lifted", "transpose"):
            tree = tree.arguments[0]
        function = tree.function if isinstance(tree, Call) else ""
        if quantity.is_free and not quantity.derivative:
            sign = OF_STEPS.get(function, ", ")
        else:
            sign = SHAPE_SIGNS.get(function, " · ") if not quantity.derivative else " · "
        before = sign.join(self._shape(name, made.get(name, ("time", "d_model"))) for name in inputs)
        after = self._shape(quantity.name, quantity.axes)
        return f"{before} → {after}" if before else after

    def _shape(self, name: str, axes: tuple[str, ...]) -> str:
        layout = self.sheet.conventions
        return _shape(layout.seen(name, self.sheet.values[name]), layout.index(name, axes))

    def panels(
        self, value: Tensor, axes: tuple[str, ...], name: str, arithmetic: Callable[[Index], Arithmetic]
    ) -> tuple[Panel, ...]:
        """The matrices of a quantity: one for each chosen head, or one.

        Args:
            value: the numbers.
            axes: their names; the first of quantities of heads is "heads".
            name: of the quantity.
            arithmetic: of a cell, by its whole index.
        """
        panels = self._panels(value, axes, name, arithmetic)
        return tuple(map(_turned, panels)) if self.sheet.conventions.turned(name) else panels

    def _panels(
        self, value: Tensor, axes: tuple[str, ...], name: str, arithmetic: Callable[[Index], Arithmetic]
    ) -> tuple[Panel, ...]:
        if axes[0] != "heads":
            table = value if value.dim() == 2 else value[None]
            return (self._panel("", table, axes, name, partial(_cell_working, arithmetic, (), value.dim() == 1)),)
        made: list[Panel] = []
        for place, head in self._places(value):
            label = (
                self.say("explain.head", number=head + self.sheet.namer.first)
                if len(value) > 1 or self.sheet.num_heads > 1
                else ""
            )
            panel = self._panel(
                label, value[place], axes[1:], name, partial(_cell_working, arithmetic, (place,), False)
            )
            hidden = self._hidden(head) if name in ("masked", "weights") and not made else None
            made.append(replace(panel, head=head, also=() if hidden in (None, panel.cell) else (hidden,)))
        return tuple(made)

    def _places(self, value: Tensor) -> list[tuple[int, int]]:
        """Index and number of each chosen head; a key head that several query heads share appears once."""
        groups = max(1, self.sheet.num_heads // len(value))
        return list({head // groups: head // groups if groups > 1 else head for head in self.heads}.items())

    def _panel(self, label: str, table: Tensor, axes: tuple[str, ...], name: str, working: Working) -> Panel:
        rows, columns = (
            self._labels(axes[0] if len(axes) == 2 else "one", len(table)),
            self._labels(axes[-1], table.shape[1]),
        )
        return Panel(
            label,
            tuple(map(tuple, table.tolist())),
            rows,
            columns,
            axes[-1] == "source",
            self._cell(name, axes, table),
            working,
            name,
            asked=() if axes[0] != "time" or axes[-1] in ("vocab", *LABELLED_ONCE) else self._asked(name, axes),
            first=self.sheet.namer.first,
            words=self._chosen_words(name, table),
        )

    def _asked(self, name: str, axes: tuple[str, ...]) -> tuple[str, str]:
        return "key" if name in ("k", "v", "k_pre") else "query", "key" if axes[-1] == "source" else "column"

    def _chosen_words(self, name: str, table: Tensor) -> tuple[tuple[str, ...], ...]:
        """The words that the numbers stand for, if they are choices."""
        row = self.sheet[name].row if name in self.sheet else None
        if row is None or not row.chooses:
            return ()
        return tuple(tuple(self.sheet.vocabulary[int(place)] for place in row) for row in table.tolist())

    def _labels(self, axis: str, count: int) -> tuple[str, ...]:
        first = self.sheet.namer.first
        if axis in ("time", "source"):
            if axis == "source" and self.sheet.sources:
                return tuple(f"{place + first} {name}" for place, name in enumerate(self.sheet.sources))
            names = self.sheet.tokens[:count] if len(self.sheet.tokens) >= count else ("",) * count
            return tuple(f"{place + first} {name}".rstrip() for place, name in enumerate(names))
        if axis in ("vocab", "row") and len(self.sheet.vocabulary) == count and axis != "one":
            return tuple(self.sheet.vocabulary)
        return ("",) * count if axis in LABELLED_ONCE else tuple(str(place + first) for place in range(count))

    def _cell(self, name: str, axes: tuple[str, ...], table: Tensor) -> Cell:
        """The cell whose arithmetic is written out."""
        rows, columns = table.shape
        row = self.key if name in ("k", "v", "k_pre") else self.query if axes[0] in ("time",) else 0
        column = self.key if axes[-1] == "source" else 0 if axes[-1] in LABELLED_ONCE else self.choice.column
        if axes[-1] == "vocab":
            column = int(table[min(row, rows - 1)].argmax())
        return min(row, rows - 1), min(column, columns - 1)

    def _sentence(self, quantity: SheetQuantity) -> str:
        values, first = self.sheet.values[quantity.name], self.sheet.namer.first
        shared = {"row": self._position(self.query), "column": self._source(self.key), "width": values.shape[-1]}
        words = " ".join(
            self.say(self._laid_out(f"sentences.{key}"), **{**shared, **places})
            for key, places in self._about(quantity)
        )
        if quantity.axes[0] == "heads" and len(self.heads) > 1 and quantity.name not in ("q", "k", "v"):
            return self.say("sentences.head", head=self.heads[0] + first, sentence=words[:1].lower() + words[1:])
        return words[:1].upper() + words[1:]

    def _about(self, quantity: SheetQuantity) -> Iterator[Told]:
        """The sentences of a quantity."""
        name, row = quantity.name, quantity.row
        value = self.sheet.values[name]
        narrators = {
            **dict.fromkeys("qkv", self._projecting),
            "scores": self._scoring,
            "scaled": self._scaling,
            "masked": self._masking,
            "weights": self._weighing,
            "z": self._gathering,
            "out": self._joining,
            "mlp.hidden": self._activating,
            "probabilities": self._predicting,
        }
        if quantity.derivative:
            yield "derivative", {"of": quantity.derivative[0], "by": quantity.derivative[1]}
        elif quantity.is_free:
            first = next(each for each in self.sheet.quantities if each.is_free and not each.derivative)
            yield from [("step", {})] if name == first.name else []
        elif name in narrators:
            yield from narrators[name](quantity, value)
        elif name in ("q_pre", "k_pre"):
            yield "before_rotation", {"what": {"q": "queries", "k": "keys"}[name[0]]}
        elif isinstance(quantity.tree, Call) and quantity.tree.function in NORMS:
            yield NORMS[quantity.tree.function], {}
        elif name in RESIDUAL:
            yield "residual" if len(quantity.inputs) > 1 else "replaced", {}
        elif isinstance(row, Filtered):
            yield _filtering(row, value)
        else:
            words = [self.sheet.vocabulary[int(place)] for place in value] if name in ("greedy", "beam") else []
            beam = {"beams": row.num_beams, "length": row.length} if isinstance(row, Beam) else {}
            yield name, {"word": " ".join(words), "words": " ".join(words), **beam}

    def _projecting(self, quantity: SheetQuantity, value: Tensor) -> Iterator[Told]:
        is_query, first = quantity.name == "q", self.sheet.namer.first
        place = self.query if is_query else self.key
        row = self._position(place) if is_query else self._source(place)
        yield quantity.name, {"number": place + first, "row": row}
        groups = self.sheet.num_heads // len(value)
        if groups > 1:
            begin = self.heads[0] // groups * groups + first
            yield "shared", {"heads": f"{begin}–{begin + groups - 1}"}
        if isinstance(quantity.row, Rotary):
            yield "rotated", {}

    def _scoring(self, quantity: SheetQuantity, value: Tensor) -> Iterator[Told]:
        score = self._at(value)
        kind = "agree" if score > 0 else "oppose" if score < 0 else "apart"
        yield f"scores_{kind}", {"value": self._short(score)}

    def _scaling(self, quantity: SheetQuantity, value: Tensor) -> Iterator[Told]:
        scores, scale = self.sheet.values["scores"], self.sheet.architecture.scale
        tree = quantity.tree
        if scale == "adaptive" and isinstance(tree, Call) and isinstance(divided := expanded(tree), Call):
            factor = 1 / compute(divided.arguments[1], self.sheet.values)
        else:
            factor = compute(tree, {"scores": torch.ones_like(scores)})
        factor = factor.expand(len(scores), scores.shape[1], -1)[self.heads[0], self.query, 0]
        width = next((self.sheet.values[name].shape[-1] for name in "qk" if name in self.sheet.values), None)
        kind = scale if isinstance(scale, str) else "number"
        d_head = width or self.sheet.architecture.d_k
        yield f"scaled_{kind}", {"factor": self._short(float(factor)), "d_head": d_head}

    def _masking(self, quantity: SheetQuantity, value: Tensor) -> Iterator[Told]:
        seen, everything = int((value[self.heads[0], self.query] > -math.inf).sum()), value.shape[-1]
        yield "masked_all" if seen == everything else "masked_some", {"seen": seen, "all": everything}
        bias = self.sheet.architecture.bias
        if bias is not None:
            yield "masked_bias", {"bias": self._short(self._at(bias.expand(value.shape)))}

    def _weighing(self, quantity: SheetQuantity, value: Tensor) -> Iterator[Told]:
        share, is_empty = self._at(value), not bool(value[self.heads[0], self.query].any())
        kind = "empty" if is_empty else "none" if share == 0 else "some"
        kind += "_itself" if self.key == self.query and not is_empty else ""
        yield f"weights_{kind}", {"share": self.say.number(f"{share:.1%}")}

    def _gathering(self, quantity: SheetQuantity, value: Tensor) -> Iterator[Told]:
        weights = self.sheet.values.get("weights")
        seen = 2 if weights is None else int((weights[self.heads[0], self.query] > 0).sum())
        yield f"z_{('none', 'one', 'many')[min(seen, 2)]}", {"seen": seen}

    def _joining(self, quantity: SheetQuantity, value: Tensor) -> Iterator[Told]:
        heads = len(self.sheet.values["z"])
        one, many = ("one", "many") if "w_o" in quantity.inputs else ("same", "joined")
        yield f"out_{many if heads > 1 else one}", {"heads": heads}

    def _activating(self, quantity: SheetQuantity, value: Tensor) -> Iterator[Told]:
        zeros = int((value[min(self.query, len(value) - 1)] == 0).sum())
        rectifies = self.sheet.architecture.activation in ("relu", "squared_relu")
        yield "hidden_zero" if rectifies and zeros else "hidden", {"zeros": zeros}

    def _predicting(self, quantity: SheetQuantity, value: Tensor) -> Iterator[Told]:
        shares = value[min(self.query, len(value) - 1)]
        best = int(shares.argmax())
        word = self.sheet.vocabulary[best] if self.sheet.vocabulary else str(best + self.sheet.namer.first)
        yield "probabilities", {"word": word, "share": self.say.number(f"{float(shares[best]):.1%}")}

    def _position(self, place: int, labels: Sequence[str] | None = None) -> str:
        """A position in words, with its label."""
        number_, labels = place + self.sheet.namer.first, self.sheet.tokens if labels is None else labels
        if place < len(labels):
            return self.say("explain.position", number=number_, label=labels[place])
        return self.say("explain.position_plain", number=number_)

    def _source(self, place: int) -> str:
        """A key's position."""
        return self._position(place, self.sheet.sources or None)

    def _laid_out(self, key: str) -> str:
        """The key of a sentence about rows, or of the same about columns."""
        other = f"{key}_columns"
        return other if self.sheet.conventions.columns and self.say.has(other) else key

    def _short(self, value: float) -> str:
        return self.say.number(short(value))

    def _at(self, value: Tensor) -> float:
        """The cell of the chosen query and key, in the first chosen head."""
        return float(value[self.heads[0], self.query, self.key])


def _filtering(row: Filtered, value: Tensor) -> Told:
    if row.rule != "temperature":
        return "filtered", {"kept": int((value > 0).sum()), "all": len(value)}
    kind = "zero" if row.value == 0 else "cold" if row.value < 1 else "hot" if row.value > 1 else "one"
    return f"temperature_{kind}", {}


def _shape(value: Tensor, axes: Sequence[str]) -> str:
    sizes: Mapping[str, int] = dict(zip(axes, value.shape, strict=True))
    return "[" + ", ".join(f"{axis} {size}" for axis, size in sizes.items()) + "]"


def middle(count: int) -> int:
    """The middle one of so many positions: under a causal mask it sees some keys, and some are hidden from it.

    >>> middle(1), middle(2), middle(3), middle(4)
    (0, 1, 1, 2)
    """
    return count // 2


def short(value: float) -> str:
    """A number for a sentence, without trailing zeros.

    >>> short(6.0), short(0.5), short(1 / 3)
    ('6', '0.5', '0.333')
    """
    digits = next((fewer for fewer in range(DIGITS) if abs(round(value, fewer) - value) < 1e-9), DIGITS)
    return number(value, digits)

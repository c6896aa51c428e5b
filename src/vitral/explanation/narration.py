"""Narration: the quantities of a sheet as steps with title, formula, shapes, numbers and a sentence."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from vitral.explanation.examples.schema import AXES
from vitral.explanation.formulas import number
from vitral.explanation.formulas.notation import Words
from vitral.explanation.operations import Activate, Add, ApplyMask, Index, Normalise, Output, Project, Rotate, Scale
from vitral.explanation.operations.decoding import Beam, Filtered
from vitral.explanation.operations.expression import Compute, Differentiate
from vitral.explanation.phrasebook import Phrases
from vitral.explanation.sheet import Sheet, SheetQuantity
from vitral.explanation.steps import Arithmetic, Cell, Panel, Step, Working

DIGITS = 3
"""Digits after the point of numbers in sentences."""
SHARES = ("weights", "probabilities")
SQUARE = ("scores", "scaled", "masked", "weights")
STREAM = ("x", "embed", "resid_pre", "resid_mid", "resid_post")
RESIDUAL = ("attn_sum", "resid_mid", "mlp_sum", "resid_post")
SHAPE_SIGNS: Mapping[type, str] = {Add: " + ", Activate: " ⊙ "}
"""Signs between the shapes of an operation's inputs: a sum, for numbers one by one; others are products of matrices."""
LABELLED_ONCE = ("one", "choice", "total")
"""Axes without labels, of which only the first entry is worked through."""
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


@dataclass(frozen=True)
class _CellWorking:
    """The arithmetic of a panel's cells, by row and column; an object and no function, so that it can be copied."""

    arithmetic: Callable[[Index], Arithmetic]
    head: Index = ()
    is_vector: bool = False

    def __call__(self, row: int, column: int) -> Arithmetic:
        return self.arithmetic((*self.head, column) if self.is_vector else (*self.head, row, column))


def _given_cell(sheet: Sheet, name: str, index: Index) -> Arithmetic:
    return Arithmetic(sheet.cell(name, index), (), float(sheet.values[name][index]))


@dataclass(frozen=True)
class _TurnedWorking:
    """The arithmetic of the cells of a transposed panel."""

    working: Working

    def __call__(self, row: int, column: int) -> Arithmetic:
        return self.working(column, row)


def _turned(panel: Panel) -> Panel:
    """The panel with rows and columns exchanged."""
    return replace(
        panel,
        matrix=tuple(zip(*panel.matrix, strict=True)),
        row_labels=panel.column_labels,
        column_labels=panel.row_labels,
        columns_are_positions=True,
        cell=panel.cell[::-1],
        working=_TurnedWorking(panel.working),
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
            is_share=name in SHARES or isinstance(quantity.operation, Filtered),
        )

    def _title(self, quantity: SheetQuantity) -> str:
        name, operation = quantity.name, quantity.operation
        if isinstance(operation, Compute | Differentiate):
            return self.say("titles.step", name=name)
        if isinstance(operation, Filtered):
            return self.say(f"titles.{operation.rule}", value=self.say.number(f"{operation.value:g}"))
        if name in ("resid_mid", "resid_post") and self.post_norm:
            return self.say(f"titles.{name}_post")
        if isinstance(operation, Output) and not operation.projects and operation.num_heads == 1:
            return self.say("titles.out_alone")
        return self.say(f"titles.{name}")

    def _shapes(self, quantity: SheetQuantity) -> str:
        """Inputs and output, with the names of the axes."""
        made = {each.name: each.axes for each in self.sheet.quantities}
        inputs = [name for name in quantity.inputs if name in made or name in STREAM]
        if isinstance(quantity.operation, Differentiate):
            inputs = [quantity.operation.of]
        sign = SHAPE_SIGNS.get(type(quantity.operation), " · ")
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
            return (self._panel("", table, axes, name, _CellWorking(arithmetic, is_vector=value.dim() == 1)),)
        made: list[Panel] = []
        for place, head in self._places(value):
            label = (
                self.say("explain.head", number=head + self.sheet.namer.first)
                if len(value) > 1 or self.sheet.num_heads > 1
                else ""
            )
            panel = self._panel(label, value[place], axes[1:], name, _CellWorking(arithmetic, (place,)))
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
        if name not in self.sheet or not getattr(self.sheet[name].operation, "chooses", False):
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
        return ("",) if axis in LABELLED_ONCE else tuple(str(place + first) for place in range(count))

    def _cell(self, name: str, axes: tuple[str, ...], table: Tensor) -> Cell:
        """The cell whose arithmetic is written out."""
        rows, columns = table.shape
        row = self.key if name in ("k", "v", "k_pre") else self.query if axes[0] in ("time",) else 0
        column = self.key if axes[-1] == "source" else 0 if axes[-1] in LABELLED_ONCE else self.choice.column
        if axes[-1] == "vocab":
            column = int(table[min(row, rows - 1)].argmax())
        return min(row, rows - 1), min(column, columns - 1)

    def _sentence(self, quantity: SheetQuantity) -> str:
        words = self._words(quantity)
        if quantity.axes[0] == "heads" and len(self.heads) > 1 and quantity.name not in ("q", "k", "v"):
            return self.say(
                "sentences.head", head=self.heads[0] + self.sheet.namer.first, sentence=words[:1].lower() + words[1:]
            )
        return words[:1].upper() + words[1:]

    def _words(self, quantity: SheetQuantity) -> str:
        name, say = quantity.name, self.say
        if isinstance(quantity.operation, Differentiate):
            return say("sentences.derivative", of=quantity.operation.of, by=quantity.operation.by)
        if isinstance(quantity.operation, Compute):
            return say("sentences.step")
        row, column = self._position(self.query), self._source(self.key)
        narrators = {
            "scores": self._scoring,
            "scaled": self._scaling,
            "masked": self._masking,
            "weights": self._weighing,
            "z": self._gathering,
            "out": self._joining,
            "mlp.hidden": self._activating,
            "probabilities": self._predicting,
        }
        if name in narrators:
            return narrators[name](quantity)
        if name in ("q_pre", "k_pre"):
            return say("sentences.before_rotation", what={"q": "queries", "k": "keys"}[name[0]])
        if isinstance(quantity.operation, Project | Rotate):
            return self._projecting(quantity)
        if isinstance(quantity.operation, Normalise):
            return say("sentences.rmsnorm" if quantity.operation.kind == "rmsnorm" else "sentences.norm", row=row)
        if name in RESIDUAL:
            return say("sentences.residual" if len(quantity.inputs) > 1 else "sentences.replaced", row=row)
        if isinstance(quantity.operation, Filtered):
            return self._filtering(quantity.operation, self.sheet.values[name])
        if isinstance(quantity.operation, Beam) and name == "beam":
            found = " ".join(self.sheet.vocabulary[int(place)] for place in self.sheet.values[name].tolist())
            return say(
                "sentences.beam", beams=quantity.operation.num_beams, length=quantity.operation.length, words=found
            )
        width = self.sheet.values[name].shape[-1]
        word = self.sheet.vocabulary[int(self.sheet.values[name][0])] if name == "greedy" else ""
        return say(f"sentences.{name}", row=row, column=column, width=width, word=word)

    def _position(self, place: int) -> str:
        number_, tokens = place + self.sheet.namer.first, self.sheet.tokens
        if place < len(tokens):
            return self.say("explain.position", number=number_, label=tokens[place])
        return self.say("explain.position_plain", number=number_)

    def _source(self, place: int) -> str:
        """A key's position, with its label."""
        sources = self.sheet.sources
        if not sources:
            return self._position(place)
        return self.say("explain.position", number=place + self.sheet.namer.first, label=sources[place])

    def _laid_out(self, key: str) -> str:
        """The key of a sentence about rows, or of the same about columns."""
        other = f"{key}_columns"
        return other if self.sheet.conventions.columns and self.say.has(other) else key

    def _short(self, value: float) -> str:
        return self.say.number(short(value))

    def _at(self, name: str) -> float:
        """The cell of the chosen query and key, in the first chosen head."""
        return float(self.sheet.values[name][self.heads[0], self.query, self.key])

    def _projecting(self, quantity: SheetQuantity) -> str:
        name = quantity.name
        place = self.query if name == "q" else self.key
        position = self._position(place) if name == "q" else self._source(place)
        words = [self.say(self._laid_out(f"sentences.{name}"), number=place + self.sheet.namer.first, row=position)]
        groups = self.sheet.num_heads // len(self.sheet.values[name])
        if groups > 1:
            begin = self.heads[0] // groups * groups + self.sheet.namer.first
            words.append(self.say("sentences.shared", heads=f"{begin}–{begin + groups - 1}"))
        if isinstance(quantity.operation, Rotate):
            words.append(self.say("sentences.rotated"))
        return " ".join(words)

    def _scoring(self, quantity: SheetQuantity) -> str:
        value = self._at("scores")
        kind = "agree" if value > 0 else "oppose" if value < 0 else "apart"
        return self.say(
            f"sentences.scores_{kind}",
            row=self._position(self.query),
            column=self._source(self.key),
            value=self._short(value),
        )

    def _scaling(self, quantity: SheetQuantity) -> str:
        operation = quantity.operation
        assert isinstance(operation, Scale)
        scores = self.sheet.values["scores"]
        factor = operation.factors(scores).expand(len(scores), scores.shape[1], 1)[self.heads[0], self.query, 0]
        return self.say(
            f"sentences.scaled_{operation.kind}",
            row=self._position(self.query),
            factor=self._short(float(factor)),
            d_head=operation.d_head,
        )

    def _masking(self, quantity: SheetQuantity) -> str:
        operation = quantity.operation
        assert isinstance(operation, ApplyMask)
        row = self.sheet.values["masked"][self.heads[0], self.query]
        seen, everything = int((row > -math.inf).sum()), len(row)
        kind = "all" if seen == everything else "some"
        words = [self.say(f"sentences.masked_{kind}", row=self._position(self.query), seen=seen, all=everything)]
        if operation.bias is not None:
            bias = float(operation.bias.expand(self.sheet.values["masked"].shape)[self.heads[0], self.query, self.key])
            words.append(self.say("sentences.masked_bias", bias=self._short(bias)))
        return " ".join(words)

    def _weighing(self, quantity: SheetQuantity) -> str:
        share = self._at("weights")
        is_empty = not bool(self.sheet.values["weights"][self.heads[0], self.query].any())
        kind = "empty" if is_empty else "none" if share == 0 else "some"
        if self.key == self.query and not is_empty:
            kind = f"{kind}_itself"
        return self.say(
            self._laid_out(f"sentences.weights_{kind}"),
            row=self._position(self.query),
            column=self._source(self.key),
            share=self.say.number(f"{share:.1%}"),
        )

    def _gathering(self, quantity: SheetQuantity) -> str:
        seen = (
            int((self.sheet.values["weights"][self.heads[0], self.query] > 0).sum())
            if "weights" in self.sheet.values
            else 2
        )
        return self.say(
            f"sentences.z_{('none', 'one', 'many')[min(seen, 2)]}", row=self._position(self.query), seen=seen
        )

    def _joining(self, quantity: SheetQuantity) -> str:
        operation = quantity.operation
        assert isinstance(operation, Output)
        several = operation.num_heads > 1
        kind = ("many" if several else "one") if operation.projects else ("joined" if several else "same")
        return self.say(f"sentences.out_{kind}", heads=operation.num_heads, row=self._position(self.query))

    def _activating(self, quantity: SheetQuantity) -> str:
        row = self.sheet.values["mlp.hidden"][min(self.query, len(self.sheet.values["mlp.hidden"]) - 1)]
        zeros = int((row == 0).sum())
        rectifies = isinstance(quantity.operation, Activate) and quantity.operation.kind in ("relu", "squared_relu")
        kind = "hidden_zero" if rectifies and zeros else "hidden"
        return self.say(f"sentences.{kind}", zeros=zeros, width=len(row), row=self._position(self.query))

    def _predicting(self, quantity: SheetQuantity) -> str:
        table = self.sheet.values["probabilities"]
        row = table[min(self.query, len(table) - 1)]
        best = int(row.argmax())
        word = self.sheet.vocabulary[best] if self.sheet.vocabulary else str(best + self.sheet.namer.first)
        return self.say(
            "sentences.probabilities",
            row=self._position(self.query),
            word=word,
            share=self.say.number(f"{float(row[best]):.1%}"),
        )

    def _filtering(self, operation: Filtered, shares: Tensor) -> str:
        if operation.rule == "temperature":
            value = operation.value
            kind = "zero" if value == 0 else "cold" if value < 1 else "hot" if value > 1 else "one"
            return self.say(f"sentences.temperature_{kind}")
        return self.say("sentences.filtered", kept=int((shares > 0).sum()), all=len(shares))


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

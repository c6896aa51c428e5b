"""Narration: the quantities of a sheet as steps with title, formula, shapes, numbers and a sentence."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from vitral.explanation.examples.schema import CHOICES, ROTATED
from vitral.explanation.expressions import Tree, compute, expanded
from vitral.explanation.formulas import decimals, number
from vitral.explanation.formulas.notation import Words
from vitral.explanation.phrasebook import Phrases, catalogue
from vitral.explanation.recipe import RESIDUAL, SheetQuantity
from vitral.explanation.rows import Beam, rule_of
from vitral.explanation.sheet import SINGLE, Index, Sheet
from vitral.explanation.steps import Arithmetic, Cell, Panel, Step

DIGITS = 3
"""Digits after the point of numbers in sentences."""
SQUARE = ("scores", "scaled", "masked", "weights")
STREAM = ("x", "embed", "resid_pre", "resid_mid", "resid_post")
SIGNS = {"matmul": " · ", "add": " + ", "subtract": " − ", "multiply": " ⊙ ", "divide": " / "}
"""Between the shapes of inputs, by the last function; others are products of matrices, or an author's own."""
NORMS = {"layernorm": "norm", "rmsnorm": "rmsnorm"}
OF_KEYS = ("k", "v", "k_pre")
"""Quantities with a row for each key."""
WEIGHED = (*SQUARE, "z")
Phrase = tuple[str, dict[str, object]]
"""The key of a sentence, and values in it that not all sentences have."""


@dataclass(frozen=True)
class Choice:
    """Which heads are shown, and the cell whose arithmetic is written out.

    Attributes:
        heads: query heads; None for all.
        query: position of the query; None for the middle one, or the last where the next token is chosen.
        key: position of the key; None for the one with the largest weight.
        column: of matrices with features as columns.
    """

    heads: tuple[int, ...] | None = None
    query: int | None = None
    key: int | None = None
    column: int = 0


def _panel_arithmetic(sheet: Sheet, name: str, before: Index, order: Index, row: int, column: int) -> Arithmetic:
    """The arithmetic of a panel's cell by row and column; as a partial function a panel can be copied."""
    return sheet.arithmetic(name, (*before, *((row, column)[axis] for axis in order)))


class Narrator:
    """Narrates one sheet in one language."""

    def __init__(self, sheet: Sheet, say: Phrases, choice: Choice) -> None:
        """Choose the query and the key.

        Args:
            sheet: the computation.
            say: phrases of the language.
            choice: of heads and cells.
        """
        self.sheet, self.say, self.choice = sheet, say, choice
        self.values, self.first = sheet.values, sheet.first
        self.heads = choice.heads if choice.heads is not None else tuple(range(sheet.num_heads))
        count, _keys = sides(sheet)
        is_end = "logits" in sheet or "probabilities" in self.values
        self.query = choice.query if choice.query is not None else count - 1 if is_end else middle(count)
        self.key = choice.key or 0
        if choice.key is None and (square := _square(sheet)) is not None:
            self.key = int(square[self.heads[0], self.query].argmax())

    def _hidden(self, head: int) -> Cell | None:
        """A cell that the mask hides: in the chosen row, else in the middle one, else in the first that has one."""
        is_hidden = self.values["masked"][head] == -math.inf if "masked" in self.values else torch.zeros(1, 1)
        mixed = (is_hidden.any(-1) & ~is_hidden.all(-1)).tolist()
        rows = [row for row in (self.query, middle(len(mixed)), *range(len(mixed))) if row < len(mixed) and mixed[row]]
        return (rows[0], int(is_hidden[rows[0]].int().argmax())) if rows else None

    def steps(self, names: Sequence[str] | None = None) -> tuple[Step, ...]:
        """All steps in order, or those with the given names."""
        nonempty = [quantity for quantity in self.sheet.quantities if self.values[quantity.name].numel()]
        return tuple(self._step(quantity) for quantity in nonempty if names is None or quantity.name in names)

    def given(self) -> Step:
        """The given quantities, one panel each or one for each head."""
        panels: list[Panel] = []
        for name in self.sheet.given_names:
            shape = self._shape(name, self.sheet.axes(name)[-2:])
            for panel in self.panels(name):
                label = f"{name}, {panel.label}" if panel.label else name
                panels.append(replace(panel, label=f"{label} {shape}", asked=()))
        return Step("given", self.say("titles.given"), Words(""), "", self.say("sentences.given"), tuple(panels))

    def _step(self, quantity: SheetQuantity) -> Step:
        name, called = quantity.name, self.sheet.called(quantity.name)
        return Step(
            name=called,
            title=self._title(quantity),
            formula=self.sheet.formula(name),
            shapes=self._shapes(quantity),
            sentence=self._sentence(quantity),
            panels=tuple(replace(panel, quantity=called) for panel in self.panels(name)),
            is_share=quantity.is_share,
        )

    def _title(self, quantity: SheetQuantity) -> str:
        name, (rule, number) = quantity.name, rule_of(quantity.name)
        if quantity.is_free and name not in ("k", "v"):
            return self.say("titles.step", name=name)
        if rule:
            return self.say(f"titles.{rule}", value=self.say.number(f"{number:g}"))
        if name in ("resid_mid", "resid_post") and self.sheet.architecture.norm == "post":
            return self.say(f"titles.{name}_post")
        is_alone = name == "out" and "w_o" not in quantity.inputs and self.sheet.num_heads == 1
        return self.say("titles.out_alone" if is_alone else f"titles.{name}")

    def _shapes(self, quantity: SheetQuantity) -> str:
        """Inputs and output, with the names of the axes."""
        axes = {other.name: other.axes for other in self.sheet.quantities}
        inputs = [name for name in quantity.inputs if name in axes or name in STREAM]
        inputs = [quantity.derivative[0]] if quantity.derivative else inputs
        sign = SIGNS.get(quantity.outer.function, ", " if quantity.is_free else " · ")
        before = sign.join(self._shape(name, axes.get(name, ("time", "d_model"))) for name in inputs)
        after = self._shape(quantity.name, quantity.axes)
        return f"{before} → {after}" if before else after

    def _shape(self, name: str, axes: tuple[str, ...]) -> str:
        """The sizes of the last axes of a quantity, by their names."""
        layout = self.sheet.conventions
        sizes = layout.seen(name, self.values[name]).shape[-len(axes) :]
        words = {axis: self.say.translated(axis) for axis in ("rows", "columns")}
        shown = layout.index(name, axes)
        named = [f"{words.get(axis, axis)} {size}" for axis, size in zip(shown, sizes, strict=True)]
        return f"[{', '.join(named)}]"

    def panels(self, name: str) -> tuple[Panel, ...]:
        """The matrices of a quantity: one for each chosen head, or one."""
        value, axes = self.values[name], self.sheet.axes(name)
        if axes[0] != "heads":
            return (self._panel("", value if value.dim() == 2 else value[None], axes, name, ()),)
        panels: list[Panel] = []
        for index, head in self._head_indices(value):
            is_one = len(value) == 1 and self.sheet.num_heads == 1
            label = "" if is_one else self.say("explain.head", number=head + self.first)
            panel = self._panel(label, value[index], axes[1:], name, (index,))
            hidden = self._hidden(head) if name in ("masked", "weights") and not panels else None
            hidden = hidden[::-1] if hidden and self.sheet.conventions.turned(name) else hidden
            panels.append(replace(panel, head=head, also=() if hidden in (None, panel.cell) else (hidden,)))
        return tuple(panels)

    def _head_indices(self, value: Tensor) -> list[tuple[int, int]]:
        """Index and number of each chosen head; a key head that several query heads share appears once."""
        groups = max(1, self.sheet.num_heads // len(value))
        return list({head // groups: head // groups if groups > 1 else head for head in self.heads}.items())

    def _panel(self, label: str, table: Tensor, axes: tuple[str, ...], name: str, before: Index) -> Panel:
        """One matrix, in the author's layout."""
        is_row = len(axes) < 2
        labels = self._labels("one" if is_row else axes[0], len(table)), self._labels(axes[-1], table.shape[1])
        cell, order, words = self.cell(name, axes, table), (1,) if is_row else (0, 1), self._words(name, table)
        asked = "key" if name in OF_KEYS else "query", "key" if axes[-1] == "source" else "column"
        asked = () if axes[0] != "time" or axes[-1] in ("vocab", *SINGLE) else asked
        if is_turned := self.sheet.conventions.turned(name):
            table, labels, cell, asked = table.mT, labels[::-1], (cell[1], cell[0]), asked[::-1]
            order, words = tuple(1 - axis for axis in order), tuple(zip(*words, strict=True))
        return Panel(
            label=label,
            matrix=tuple(map(tuple, table.tolist())),
            row_labels=labels[0],
            column_labels=labels[1],
            columns_are_positions=is_turned or axes[-1] == "source",
            cell=cell,
            working=partial(_panel_arithmetic, self.sheet, name, before, order),
            quantity=name,
            asked=asked,
            first=self.first,
            words=words,
        )

    def _words(self, name: str, table: Tensor) -> tuple[tuple[str, ...], ...]:
        """The words that the numbers stand for, if they are choices."""
        rows = table.tolist() if name in self.sheet and self.sheet[name].chooses else ()
        return tuple(tuple(self.sheet.vocabulary[int(index)] for index in row) for row in rows)

    def _labels(self, axis: str, count: int) -> tuple[str, ...]:
        if axis in ("time", "source"):
            names = self.sheet.sources if axis == "source" and self.sheet.sources else self.sheet.tokens[:count]
            names = names if len(names) >= count else ("",) * count
            return tuple(f"{index + self.first} {name}".rstrip() for index, name in enumerate(names))
        if axis in ("vocab", "row") and len(self.sheet.vocabulary) == count:
            return tuple(self.sheet.vocabulary)
        return ("",) * count if axis in SINGLE else tuple(str(index + self.first) for index in range(count))

    def cell(self, name: str, axes: tuple[str, ...], table: Tensor) -> Cell:
        """The cell whose arithmetic is written out."""
        rows, columns = table.shape
        row = min(self.key if name in OF_KEYS else self.query if axes[0] == "time" else 0, rows - 1)
        column = self.key if axes[-1] == "source" else 0 if axes[-1] in SINGLE else self.choice.column
        column = int(table[row].argmax()) if axes[-1] == "vocab" else column
        return row, min(column, columns - 1)

    def _sentence(self, quantity: SheetQuantity) -> str:
        value = self.values[quantity.name]
        shared = {"row": self._position(self.query), "column": self._source(self.key), "width": value.shape[-1]}
        phrases = self._phrases_of(quantity, value)
        words = " ".join(self.say(self._laid_out(f"sentences.{key}"), **{**shared, **more}) for key, more in phrases)
        is_of_heads = self.sheet.axes(quantity.name)[0] == "heads" and quantity.name not in ("q", "k", "v")
        if is_of_heads and len(self.heads) > 1:
            head = self.heads[0] + self.first
            return self.say("sentences.head", head=head, sentence=words[:1].lower() + words[1:])
        return words[:1].upper() + words[1:]

    def _phrases_of(self, quantity: SheetQuantity, value: Tensor) -> Iterator[Phrase]:
        """The sentences of a quantity."""
        if quantity.derivative:
            of, by = quantity.derivative
            yield "derivative", {"of": of, "by": by}
        elif quantity.is_free:
            first = next(step for step in self.sheet.quantities if step.is_free and not step.derivative)
            yield from [("step", {})] if quantity.name == first.name else []
        elif quantity.name in ("q", "k", "v"):
            yield from self._projecting(quantity, value)
        elif quantity.name in WEIGHED:
            yield from self._of_attention(quantity, value)
        else:
            yield self._of_others(quantity, value)

    def _of_attention(self, quantity: SheetQuantity, value: Tensor) -> Iterator[Phrase]:
        """The sentences of a step of attention."""
        of_row = self._row(quantity.name)
        match quantity.name:
            case "scores":
                kind = "agree" if of_row[self.key] > 0 else "oppose" if of_row[self.key] < 0 else "apart"
                yield f"scores_{kind}", {"value": self._short(of_row[self.key])}
            case "scaled":
                yield self._scaling(quantity.tree)
            case "masked":
                seen, everything = int((of_row > -math.inf).sum()), len(of_row)
                yield "masked_all" if seen == everything else "masked_some", {"seen": seen, "all": everything}
                if (bias := self.sheet.architecture.bias) is not None:
                    bias = bias.expand(value.shape)[self.heads[0], self.query, self.key]
                    yield "masked_bias", {"bias": self._short(bias)}
            case "weights":
                kind = "empty" if not bool(of_row.any()) else "some" if of_row[self.key] else "none"
                is_itself = self.key == self.query and not self.sheet.sources
                kind += "_itself" if is_itself and kind != "empty" else ""
                yield f"weights_{kind}", {"share": self._percent(of_row[self.key])}
            case "z":
                seen = int((self._row("weights") > 0).sum()) if "weights" in self.values else 2
                yield f"z_{('none', 'one', 'many')[min(seen, 2)]}", {"seen": seen}

    def _projecting(self, quantity: SheetQuantity, value: Tensor) -> Iterator[Phrase]:
        position, in_words = (self.query, self._position) if quantity.name == "q" else (self.key, self._source)
        yield quantity.name, {"number": position + self.first, "row": in_words(position)}
        groups = self.sheet.num_heads // len(value)
        if groups > 1:
            begin = self.heads[0] // groups * groups + self.first
            yield "shared", {"heads": f"{begin}–{begin + groups - 1}"}
        if quantity.inputs[0] in ROTATED:
            yield "rotated", {}

    def _scaling(self, tree: Tree) -> Phrase:
        scores, scale = self.values["scores"], self.sheet.architecture.scale
        if tree.function == "adaptive":
            factor = 1 / compute(expanded(tree).arguments[1], self.values)
        else:
            factor = compute(tree, {"scores": torch.ones_like(scores)})
        factor = factor.expand(len(scores), scores.shape[1], -1)[self.heads[0], self.query, 0]
        widths = [self.values[name].shape[-1] for name in "qk" if name in self.values]
        kind = scale if isinstance(scale, str) else "number"
        d_head = widths[0] if widths else self.sheet.architecture.d_k
        return f"scaled_{kind}", {"factor": self._short(factor), "d_head": d_head}

    def _of_others(self, quantity: SheetQuantity, value: Tensor) -> Phrase:
        """The sentences of any other quantity."""
        name, tree, (rule, heat) = quantity.name, quantity.tree, rule_of(quantity.name)
        if rule == "temperature" and heat is not None:
            return f"temperature_{'zero' if heat == 0 else 'cold' if heat < 1 else 'hot' if heat > 1 else 'one'}", {}
        if rule:
            return "filtered", {"kept": int((value > 0).sum()), "all": len(value)}
        if name in CHOICES:
            words = " ".join(*self._words(name, value[None])) if quantity.chooses else ""
            row = quantity.row
            beam = {"beams": row.num_beams, "length": row.length} if isinstance(row, Beam) else {}
            return name, {"word": words, "words": words, **beam}
        if tree.function in NORMS:
            return NORMS[tree.function], {}
        if name in RESIDUAL:
            return "residual" if len(quantity.inputs) > 1 else "replaced", {}
        return self._of_block(quantity, value)

    def _of_block(self, quantity: SheetQuantity, value: Tensor) -> Phrase:
        """The sentence of a quantity beside attention, the norms and the residual stream."""
        row = value[min(self.query, len(value) - 1)]
        match quantity.name:
            case "q_pre" | "k_pre":
                return "before_rotation", {"what": "queries" if quantity.name == "q_pre" else "keys"}
            case "out":
                heads, is_projected = len(self.values["z"]), "w_o" in quantity.inputs
                one, many = ("one", "many") if is_projected else ("same", "joined")
                return f"out_{many if heads > 1 else one}", {"heads": heads}
            case "mlp.hidden":
                zeros = int((row == 0).sum())
                rectifies = self.sheet.architecture.activation in ("relu", "squared_relu")
                return "hidden_zero" if rectifies and zeros else "hidden", {"zeros": zeros}
            case "probabilities":
                best, vocabulary = int(row.argmax()), self.sheet.vocabulary
                word = vocabulary[best] if vocabulary else str(best + self.first)
                return "probabilities", {"word": word, "share": self._percent(row[best])}
        return quantity.name, {}

    def _row(self, name: str) -> Tensor:
        """The numbers of the chosen query, in the first chosen head."""
        return self.values[name][self.heads[0], self.query]

    def _position(self, position: int, labels: Sequence[str] = ()) -> str:
        """A position in words, with its label."""
        labels = labels or self.sheet.tokens
        if position < len(labels):
            return self.say("explain.position", number=position + self.first, label=labels[position])
        return self.say("explain.position_plain", number=position + self.first)

    def _source(self, position: int) -> str:
        """A key's position."""
        return self._position(position, self.sheet.sources)

    def _laid_out(self, key: str) -> str:
        """The key of a sentence about rows, or of the same about columns."""
        other = f"{key}_columns"
        return other if self.sheet.conventions.columns and other in catalogue() else key

    def _short(self, value: Tensor) -> str:
        """A number for a sentence, without trailing zeros."""
        return self.say.number(number(float(value), decimals(DIGITS, float(value))))

    def _percent(self, share: Tensor) -> str:
        return self.say.number(f"{float(share):.1%}")


def _square(sheet: Sheet) -> Tensor | None:
    """The last known numbers of queries and keys."""
    return next((sheet.values[name] for name in reversed(SQUARE) if name in sheet.values), None)


def sides(sheet: Sheet) -> tuple[int, int]:
    """The number of queries, and that of keys."""
    if (square := _square(sheet)) is not None:
        return square.shape[1], square.shape[2]
    rows = next((len(sheet.values[quantity.name]) for quantity in sheet.quantities if quantity.axes[0] == "time"), 1)
    return rows, rows


def middle(count: int) -> int:
    """The middle one of so many positions: under a causal mask it sees some keys, and some are hidden from it.

    >>> middle(1), middle(2), middle(3), middle(4)
    (0, 1, 1, 2)
    """
    return count // 2

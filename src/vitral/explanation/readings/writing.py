"""Formulas and arithmetic: one reading of a tree at an index.

An index has for each axis a number (that cell), a letter (any cell) or None (the whole axis). Without any number the
reading is a formula; with numbers it is the rule of a cell, and with values in place of names its arithmetic.
"""

import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache, partial
from itertools import product
from typing import Any

import torch
from torch import Tensor

from vitral.core.language import N_
from vitral.explanation.expressions import (
    DEFINITIONS,
    PRIMITIVES,
    Call,
    Constant,
    Index,
    Reference,
    Tree,
    compute,
    every,
    expanded,
    nodes,
)
from vitral.explanation.expressions.definitions import BY_ROWS, OF_CELLS, SHOWN
from vitral.explanation.formulas.notation import (
    COMBINED,
    EXP,
    ONE,
    ZERO,
    Apply,
    Equation,
    Expression,
    Name,
    Number,
    Over,
    Power,
    Product,
    Root,
    Sum,
    Words,
    added,
    combined,
    exact,
    mapped,
    transposed,
    value_of,
)

PLAIN = {0.0: ZERO, 1.0: ONE}
WEIGHTS = ("q", "k", "v", "o", "u", "up", "down", "gate")
SPREAD = N_("standard deviation of the visible scores of its row, or the root of d_k if they do not differ")
LLAMA3 = N_("the rate of pair i, 1 over the base to the power of i/h, scaled as in Llama 3.1")
MEANINGS = {"M": N_("0 where attention is allowed, −∞ elsewhere"), "σ_row": SPREAD, "θ_i": LLAMA3}
"""Letters that formulas explain in words."""
OF_AXIS = {-1: Words(N_("rows")), -2: Words(N_("columns"))}
"""Written after the argument of an author's function that goes through each row, or through each column."""
MOST_WRITTEN = 12
"""A sum of more terms is written with their values instead of the arithmetic of each."""
FROM_ONE, FROM_ZERO = N_("p is counted from 1, i from 0"), N_("p and i are counted from 0")
LARGEST = "largest"
KEPT = ("keep top k", "keep top p", "keep min p")
NOT_KEPT = N_("0 for words that are not kept")
COMPUTED = ("sin", "cos", "tanh", "Φ", "φ")
"""Functions of one number whose values are a stage of their own, as powers of e are."""


class NoRule(Exception):
    """A cell of a function of whole matrices has no rule in names of cells."""


def symbol(name: str) -> Name:
    """A quantity as formulas write it: w_q is W^Q, a gain g, its gradient dg."""
    if name[:1] == "d" and (inner := symbol(name[1:])).letters in ("W", "b", "g", "E"):
        return replace(inner, letters=f"d{inner.letters}")
    letter, _, mark = name.partition("_")
    if letter in ("w", "b") and mark in WEIGHTS:
        return Name("W" if letter == "w" else "b", above=mark.upper() if len(mark) == 1 else mark)
    if name.endswith(("norm_gain", "norm_bias")):
        return Name("g" if name.endswith("gain") else "b")
    return Name("E" if name == "embedding" else name)


def _letter(name: str) -> Name:
    """The letter of a constant or a number on the side: d_k has a subscript."""
    letter, _, below = name.partition("_")
    return Name(letter, below=below)


def _is_whole(index: Index) -> bool:
    return all(entry is None for entry in index)


class Writer:
    """Reads trees over some quantities."""

    def __init__(self, values: Mapping[str, Tensor], first: int = 1) -> None:
        """Values of the quantities; the number of the first row."""
        self.values, self.first = values, first
        self.at_cell, self.numbers, self.is_author = False, False, True
        self.cache: dict[Tree, Tensor] = {}

    def value(self, tree: Tree) -> Tensor:
        """The value of a part."""
        return compute(tree, self.values, None, self.cache)

    def number(self, tree: Tree, index: Index) -> Number:
        """A cell of a part as a number."""
        return Number(float(self.value(tree)[self.aligned(tree, index)]))

    def stages(self, tree: Tree, index: Index, *, short: bool = False) -> tuple[Expression, ...]:
        """The right-hand sides for one cell: the rule in names, its numbers, and these with functions computed.

        Args:
            tree: the computation.
            index: the cell.
            short: whether the last of them has the values of the parts, as 4 + 6 after 2·2 + 2·3.
        """
        stages: list[Expression] = []
        with suppress(NoRule):
            stages.append(self.at(tree, index))
        if tree.function == LARGEST:
            return tuple(stages)
        stages.append(self.at(tree, index, numbers=True))
        if stages[-1] == ZERO and not isinstance(stages[0], Name):
            return (ZERO,)
        while (after := mapped(stages[-1], _settled)) != stages[-1]:
            stages.append(after)
        if short and tree.function in (*COMBINED, "maximum", "minimum"):
            stages.append(combined(tree.function, [self.number(argument, index) for argument in tree.arguments]))
        return tuple(part for order, part in enumerate(stages) if not order or not isinstance(part, Number))

    def before(self, tree: Tree, index: Index) -> tuple[Equation, ...]:
        """The numbers on the side that a cell uses, as the mean of its row, each with its arithmetic."""
        equations: list[Equation] = []
        if tree.function == LARGEST:
            shares = tuple(map(Number, self.value(tree.arguments[0]).tolist()))
            equations.append(Equation((Apply("max", shares), Number(max(share.value for share in shares)))))
        for call in asides(tree):
            at, inside, sizes = self.aligned(call, index), call.arguments[0], self.value(call).shape
            is_here = all(entry is not None and entry < size for entry, size in zip(at, sizes, strict=True))
            if is_here and not isinstance(inside, Constant):
                equations.append(
                    Equation((self.at(call, at), self.at(inside, at, numbers=True), self.number(call, at)))
                )
        return tuple(equations)

    def formula(self, name: Name, tree: Tree) -> Equation:
        """The formula of a quantity, with the equations of its letters."""
        rank = self.value(tree).dim()
        if cases := self.cases(name, tree):
            return Equation(cases[0].sides, after=(*cases[1:], *self._after(tree)))
        letters = ("i", "j")[-rank:] if tree.function in OF_CELLS else ()
        letters = letters[::-1] if tree.settings else letters
        index = (*(None,) * (rank - len(letters)), *letters)
        below = ",".join(letters)
        if tree.function == "unpicked" and tree.settings[0] == -2:
            row, end = tree.settings[1:]
            below = f"{row + self.first},:" if end == row + 1 else below
        return Equation((replace(name, below=below), self.read(tree, index)), after=tuple(self._after(tree)))

    def cases(self, name: Name, tree: Tree) -> list[Equation]:
        """The equations of columns in turn, if the mask of a choice has letters for their subscripts: "p,2i|p,2i+1"."""
        equations: list[Equation] = []
        match tree:
            case Call("where", (Constant(_, subscripts), *parts)) if "|" in subscripts:
                for subscript, part in zip(subscripts.split("|"), parts, strict=True):
                    index = (*(None,) * (self.value(part).dim() - 2), *subscript.split(","))
                    equations += self.cases(name, part) or [
                        Equation((replace(name, below=subscript), self.read(part, index)))
                    ]
        return equations

    def _after(self, tree: Tree) -> dict[Equation, None]:
        """The equations of a formula's letters, each once."""
        named = sorted(asides(tree), key=lambda call: isinstance(call.arguments[0], Constant))
        if any(call.settings[0] in MEANINGS for call in named):
            return {Equation((_letter("σ_row"), Words(SPREAD))): None}
        equations: dict[Equation, None] = {}
        for node in nodes(tree):
            if remark := self.remark(node):
                equations[Equation((Words(remark),))] = None
            match node:
                case Constant(_, letters) if letters in MEANINGS:
                    equations[Equation((_letter(letters), Words(MEANINGS[letters])))] = None
                case Constant(value, letters) if letters and (letters == "s" or isinstance(value, float)):
                    if (numbers := self.value(node)).numel() == 1:
                        equations[Equation((_letter(letters), Number(float(numbers), exact=letters != "s")))] = None
                case Call(function) if SHOWN.get(function, function) != function:
                    x = Writer({"x": self.value(tree).new_zeros(())})
                    of_x = Call(function, (Reference("x"),))
                    equations[Equation((x.read(of_x, ()), x.read(expanded(of_x), ())))] = None
        self.is_author = False
        for call in named:
            if call.settings[0][0] != "m":
                [inside], index = call.arguments, (None,) * self.value(call).dim()
                read = partial(self.at, numbers=True) if isinstance(inside, Constant) else self.read
                equations[Equation((self.read(call, index), read(inside, index)))] = None
        self.is_author = True
        return equations

    def remark(self, node: Tree) -> str:
        """A sentence beside a formula with this part."""
        match node:
            case Constant(_, "p"):
                return FROM_ONE if self.value(node)[0] else FROM_ZERO
            case Call(function) if function in KEPT:
                return NOT_KEPT
        return ""

    def source(self, tree: Tree, index: Index) -> tuple[str, Index] | None:
        """The cell of another quantity that a cell is a copy of."""
        match tree:
            case Reference(name):
                return name, self.aligned(tree, index)
            case Call("add", (inside, Constant(_, "M") as mask)) if self.number(mask, index).value == 0:
                return self.source(inside, index)
            case Call(function, (inside, *_)) if function in PRIMITIVES and PRIMITIVES[function].kind == "move":
                at = self.aligned(tree, index)
                return self.source(inside, PRIMITIVES[function].moved(at, self.value(inside).shape, *tree.settings))
        return None

    def at(self, tree: Tree, index: Index, *, numbers: bool = False) -> Expression:
        """A tree at a cell, in names or in numbers."""
        self.at_cell, self.numbers = True, numbers
        try:
            return self.read(tree, index)
        finally:
            self.at_cell, self.numbers = False, False

    def read(self, tree: Tree, index: Index) -> Expression:
        """A tree at an index."""
        match tree:
            case Constant():
                return self.constant(tree, index)
            case Reference(name):
                return self.quantity(name, self.aligned(tree, index))
            case Call("where", (condition, yes, no)) if self.at_cell:
                if not all(isinstance(entry, int) for entry in self.aligned(condition, index)):
                    raise NoRule
                chosen = yes if self.number(condition, index).value else no
                return ZERO if chosen == Constant(0.0) else self.read(chosen, self.aligned(chosen, index))
            case Call(function) if function in DEFINITIONS:
                return self.defined(tree, index)
        kind = tree.function if tree.function in ("aside", "plain") else PRIMITIVES[tree.function].kind
        return getattr(self, kind)(tree, index)  # the method that is named after the kind

    def cell(self, tree: Call, index: Index) -> Expression:
        """A function that is computed number by number."""
        return combined(
            tree.function, [self.read(argument, self.aligned(argument, index)) for argument in tree.arguments]
        )

    def defined(self, tree: Call, index: Index) -> Expression:
        """A defined function: by its name, or its body."""
        function = tree.function
        if function in OF_CELLS and not self.at_cell and _is_whole(index):
            words = tuple(OF_AXIS[axis] for axis in tree.settings if axis in OF_AXIS)
            return Apply(function, (self.read(tree.arguments[0], index), *words))
        if function in BY_ROWS and self.at_cell and not self.numbers and index[-1:] == (None,):
            raise NoRule
        if function in SHOWN and not self.numbers and (not self.at_cell or function not in (*BY_ROWS, "causal")):
            return Apply(
                SHOWN[function],
                tuple(self.read(argument, self.aligned(argument, index)) for argument in tree.arguments),
            )
        return self.read(expanded(tree), index)

    def plain(self, tree: Call, index: Index) -> Expression:
        """A parameter that is not written where it changes nothing."""
        [inside], [usual] = tree.arguments, tree.settings
        value = self.value(inside)[self.aligned(inside, index) if self.at_cell else ...]
        return PLAIN[usual] if bool((value == usual).all()) else self.read(inside, index)

    def silent(self, tree: Call, index: Index) -> Expression:
        """A number that has no name."""
        number = self.number(tree, index) if self.numbers else ZERO
        return PLAIN.get(number.value) or replace(number, exact=tree.function != "shift")

    def aligned(self, tree: Tree, index: Index) -> Index:
        """The place in a part that belongs to a place of the whole: axes of size 1 are repeated."""
        shape = self.value(tree).shape
        aligned = (*(None,) * (len(shape) - len(index)), *index[len(index) - min(len(shape), len(index)) :])
        return tuple(
            0 if size == 1 and isinstance(entry, int) else entry for size, entry in zip(shape, aligned, strict=True)
        )

    def constant(self, tree: Constant, index: Index) -> Expression:
        """A number, or its letter."""
        letters, at = tree.symbol, self.aligned(tree, index)
        if letters and not self.numbers and (not self.at_cell or letters in ("s", "bias")):
            return self.subscripted(Name(letters), *at[-2:]) if self.at_cell and letters == "bias" else _letter(letters)
        if isinstance(tree.value, float):
            exact = math.isfinite(tree.value) and letters != "s"
            return {math.e: EXP, math.pi: Name("π")}.get(tree.value) or Number(tree.value, exact=exact)
        number = self.number(tree, at)
        return ZERO if letters == "M" and number.value == 0 else replace(number, exact=not letters)

    def quantity(self, name: str, index: Index) -> Expression:
        """A cell, a row, a column or the whole of a quantity."""
        value = self.values[name]
        if self.numbers:
            return Number(float(value[index]))
        if value.shape in ((), (1,)) or _is_whole(index):
            return symbol(name)
        return self.subscripted(symbol(name), *index[-1 if name in ("b_q", "b_k", "b_v") else -2 :])

    def subscripted(self, base: Name, *entries: Any) -> Name:
        """A name with the numbers of a row, a column or a cell."""
        shown = [str(entry + self.first) if isinstance(entry, int) else entry or ":" for entry in entries]
        is_row = shown[-1] == ":" and base.letters not in ("W", "dW")
        return replace(base, below=",".join(shown[:-1] if is_row else shown))

    def aside(self, tree: Call, index: Index) -> Expression:
        """A number on the side: by its name, except where it has none."""
        [inside], [name] = tree.arguments, tree.settings
        if name == "_angle" and self.numbers:
            return self.number(tree, index)
        if name[0] == "_" or (name[0] == "m" and not self.numbers):
            was, self.is_author = self.is_author, False
            written = self.read(inside, index)
            self.is_author = was
            return written
        if self.numbers:
            return replace(self.number(tree, index), exact=isinstance(inside, Constant))
        if name == "σ2":
            return Name("σ") ** exact(2)
        if name == "σ_row" and self.at_cell:
            return self.subscripted(Name("σ"), next(entry for entry in index[-2:] if entry is not None))
        has_columns = self.value(tree).shape[-1:] not in ((), (1,)) and not _is_whole(index)
        return self.subscripted(_letter(name), *self.aligned(tree, index)[-2:]) if has_columns else _letter(name)

    def dot(self, tree: Call, index: Index) -> Expression:
        """A sum of products; that of values by their weights is written as a sum over j, without weights of 0."""
        left, right = tree.arguments
        a, b = self.value(left), self.value(right)
        weights = [part == Reference("weights") for part in (left, right)]
        row = self.aligned(left, (*index[:-1], None) if a.dim() > 1 else (None,))
        column = self.aligned(right, (*index[:-2], None, index[-1]) if b.dim() > 1 else (None,))
        if self.numbers:
            cells = [tuple(slice(None) if entry is None else entry for entry in at) for at in (row, column)]
            lines = [x[cell].tolist() for x, cell in zip((a, b), cells, strict=True)]
            pairs = list(zip(*lines, strict=True))
            if any(weights):
                pairs = [pair for pair in pairs if pair[weights.index(True)] != 0]
            return Sum(tuple(Number(x) * Number(y) for x, y in pairs))
        if _is_whole(index):
            parts = [self.read(argument, (None,) * self.value(argument).dim()) for argument in (left, right)]
            return Product(tuple(factor for part in parts for factor in part.factors_of(tight=True)), tight=True)
        if any(weights):
            row, column = (*row[:-1], "j"), (*column[:-2], "j", column[-1])
            return Over("j", self.read(left, row) * self.read(right, column))
        return self.read(left, row) * self.read(right, column)

    def fold(self, tree: Call, index: Index) -> Expression:
        """A reduction: of numbers its terms, of names a sum over a letter, or the function's name."""
        inside, function, settings = tree.arguments[0], tree.function, tree.settings
        shape = self.value(inside).shape
        axes = [settings[0] % len(shape)] if settings else list(range(len(shape)))
        inner: list[Any] = [*index[: axes[0]], None, *index[axes[0] :]] if len(settings) > 1 else [*index]
        inner = inner[-len(shape) :] if len(inner) >= len(shape) else [None] * len(shape)
        for axis in axes:
            inner[axis] = None
        if self.numbers:
            return self.totalled(
                tree, [range(size) if axis in axes else [inner[axis]] for axis, size in enumerate(shape)]
            )
        of_author = self.is_author and not self.at_cell and _is_whole(index)
        if function == "mean" and not settings and self.at_cell:
            return Apply("sum", (self.read(inside, tuple(inner)),)) / exact(math.prod(shape))
        if function != "sum" or not settings or (of_author and len(settings) == 1):
            words = [OF_AXIS.get(axes[0] - len(shape))] if settings and of_author and function != "seen" else []
            return Apply(
                {"seen": "mean"}.get(function, function), (self.read(inside, tuple(inner)), *filter(None, words))
            )
        letter = "h" if len(shape) - axes[0] == 3 else "i" if len(settings) > 1 else "l"
        inner[axes[0]] = letter if letter != "h" or self.at_cell else None
        are_kept = inside.function in KEPT
        return Over("kept" if are_kept else letter, self.read(inside, tuple(inner)))

    def totalled(self, tree: Call, ranges: list[Any]) -> Expression:
        """A reduction of the numbers in these cells."""
        inside, function, cells = tree.arguments[0], tree.function, list(product(*ranges))
        if function == "seen":
            is_seen = (self.value(tree.arguments[1]) == 0).expand(self.value(inside).shape)
            cells = [cell for cell in cells if is_seen[cell]]
        if inside.function in KEPT:
            cells = [cell for cell in cells if self.value(inside)[cell] > 0]
        is_long = len(cells) > MOST_WRITTEN and function in ("sum", "mean") and self.is_author
        terms = [self.number(inside, cell) if is_long else self.read(inside, cell) for cell in cells]
        if function in ("max", "min"):
            return Apply(function, tuple(terms))
        total = added(*terms)
        return total if function == "sum" or len(cells) == 1 else total / exact(len(cells))

    def move(self, tree: Call, index: Index) -> Expression:
        """Numbers in another place."""
        inside = tree.arguments[0]
        if tree.function == "spread" and inside == Constant(1.0):
            return ONE
        shape, function = self.value(inside).shape, tree.function
        whole = _is_whole(index) and not self.numbers and not (function == "transpose" and len(shape) < 2)
        index = self.aligned(tree, index)
        at: Index = (None,) * len(shape) if whole else PRIMITIVES[function].moved(index, shape, *tree.settings)
        written = self.read(inside, at)
        if function in ("merge", "stack") and shape[0] > 1 and not self.numbers:
            if whole or None in index[-2:]:
                return Apply("Concat", (written,)) if whole else self.subscripted(Name("Concat(z)"), *index[-2:])
            return (
                replace(written, below=f"{at[0] + self.first},{written.below}")
                if isinstance(written, Name)
                else written
            )
        if function == "transpose" and whole:
            return transposed(written)
        if function in ("row", "column") and whole and self.is_author:
            return Apply(function, (written,))
        if function == "lookup" and whole:
            return Name("E", below="token")
        if function == "pick" and not any(isinstance(entry, int) for entry in index):
            (axis, start, end), written = tree.settings, self.read(inside, (None,) * len(shape))
            first, last = "" if start is None else str(start + 1), "" if end is None else str(end)
            some = str(start) if (start or 0) < 0 else first if first == last else f"{first}…{last}"
            below = f"{some},:" if axis in (0, -2) else f":,{some}"
            plain = isinstance(written, Name) and not written.below
            return replace(written, below=below) if plain else Apply("part", (written, Words(below)))
        return written

    def named(self, tree: Call, index: Index) -> Expression:
        """A function that is written by its name; a cell of some is that of an argument."""
        function, settings, inside = tree.function, tree.settings, tree.arguments[0]
        along = (settings[0] if settings and function in ("unpicked", "concat") else -1) % max(1, len(index))
        if function in ("unpicked", "concat") and index and isinstance(index[along], int):
            return self.part(tree, index, along)
        if function == "gathered":
            if not self.at_cell:
                return Over("i", self.read(inside, ("i", None)))
            rows = [row for row, word in enumerate(settings) if word == index[0]]
            return added(*(self.read(inside, (row, *index[1:])) for row in rows))
        if function in KEPT and not self.numbers:
            return self.read(inside, index)
        if function == LARGEST and not self.numbers:
            return Over("w", self.read(inside, ("w",)), sign="argmax")
        if self.numbers:
            number = self.number(tree, index)
            return PLAIN.get(number.value) or replace(number, exact=number.value == int(number.value))
        if self.at_cell:
            raise NoRule
        arguments = tree.arguments[:1] if function in ("unpicked", "target") else tree.arguments
        whole = tuple(self.read(argument, (None,) * self.value(argument).dim()) for argument in arguments)
        words = tuple(OF_AXIS[axis] for axis in settings[:1] if function == "concat" and axis in OF_AXIS)
        words = (exact(settings[0]),) if function == "one_hot" else words
        return whole[0] if function == "unpicked" else Apply(function.replace("target", "one_hot"), (*whole, *words))

    def part(self, tree: Call, index: Index, along: int) -> Expression:
        """The cell of an argument that a cell of `concat` or `unpicked` is; 0 where it is none."""
        start, arguments = 0, tree.arguments
        if tree.function == "unpicked":
            start, arguments = range(self.value(tree).shape[along])[slice(*tree.settings[1:])].start, arguments[:1]
        for argument in arguments:
            position, size = index[along] - start, self.value(argument).shape[along]
            if 0 <= position < size:
                return self.read(argument, (*index[:along], position, *index[along + 1 :]))
            start += size
        return exact(0)


@lru_cache(maxsize=1024)
def asides(tree: Tree) -> list[Call]:
    """The numbers on the side that have names, in the order in which they need one another."""
    calls = [call for call in every(tree) if call.function == "aside" and call.settings[0][0] != "_"]
    return sorted(dict.fromkeys(calls), key=lambda call: len(list(nodes(call))))


def _settled(part: Any) -> Any:
    """What becomes of a part one stage later: powers of e and functions of one number are computed."""
    match part:
        case Power(base, exponent) if base == EXP or not (isinstance(exponent, Number) and exponent.exact):
            return Number(value_of(part))
        case Power(base, exponent):
            return mapped(base, _settled) ** exponent

        case Apply(function, (argument,)) if function in COMPUTED:
            return Number(float(PRIMITIVES[function].value(torch.tensor(value_of(argument), dtype=torch.float64))))
        case Name() | Number() | Apply() | Root() | Over():
            return part
    return None

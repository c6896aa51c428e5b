"""Expressions as formulas, and the arithmetic of one cell of an expression's value."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence

import torch
from torch import Tensor

from vitral.core.language import N_
from vitral.explanation.expressions import Call, Constant, Reference, Tree, evaluate
from vitral.explanation.expressions.functions import FUNCTIONS
from vitral.explanation.formulas.notation import (
    Apply,
    Difference,
    Expression,
    Fraction,
    Name,
    Number,
    Over,
    Power,
    Product,
    Root,
    Sum,
    Words,
)
from vitral.explanation.operations.attention import MOST_EXPONENT, Softmax
from vitral.explanation.operations.base import CellNamer, Index, dot

EXP = Name("e")
MINUS = Number(-1, exact=True)
CONSTANTS = {math.pi: Name("π"), math.e: EXP}
OF_AXIS = (Words(N_("rows")), Words(N_("columns")))
"""Written after the argument of a function that goes through each row, or through each column."""
MOST_SURPRISES = 4
MOST_WRITTEN = 12
"""A sum of more terms is written with their values instead of the arithmetic of each."""


def written(name: str) -> Name:
    """A quantity as formulas write it: w_q is W^Q, b_q is b^Q."""
    letter, _, mark = name.partition("_")
    if letter in ("w", "b") and mark in ("q", "k", "v", "o", "u", "up", "down", "gate"):
        return Name("W" if letter == "w" else "b", above=mark.upper() if len(mark) == 1 else mark)
    return Name(name)


def formula_of(tree: Tree) -> Expression:
    """An expression as a formula of whole quantities."""
    match tree:
        case Constant(float(number)):
            return CONSTANTS.get(number, Number(number, exact=True))
        case Constant():
            raise AssertionError("a table of numbers in an expression")
        case Reference(name):
            return written(name)
        case Call("matmul", arguments):
            return Product(tuple(factor for each in arguments for factor in _factors(each)), tight=True)
        case Call("transpose", (inside,)):
            made = formula_of(inside)
            if isinstance(made, Name) and not made.above:
                return Name(made.letters, made.below, "T")
            return Power(made, Name("T"))
        case Call("pick", (inside,), (axis, start, end)):
            part, places = formula_of(inside), _range(axis, start, end)
            if isinstance(part, Name) and not part.below:
                return Name(part.letters, places, part.above)
            return Apply("part", (part, Words(places)))
        case Call(function, arguments, settings):
            parts = tuple(map(formula_of, arguments))
            return combined(function, (*parts, *_axis_words(function, settings)))
    raise TypeError(f"{type(tree).__name__} has no formula")


def _factors(tree: Tree) -> tuple[Expression, ...]:
    made = formula_of(tree)
    return made.factors if isinstance(made, Product) and made.tight else (made,)


def _range(axis: int | None, start: int | None, end: int | None) -> str:
    """The rows or columns of a slice, counted from 1."""
    first, last = "" if start is None else str(start + 1), "" if end is None else str(end)
    if start is not None and start < 0:
        first, last = str(start), ""
    some = first if first == last or (start is not None and start < 0 and end is None) else f"{first}…{last}"
    return f"{some},:" if axis in (0, -2) else f":,{some}"


def _axis_words(function: str, settings: tuple[int | None, ...]) -> tuple[Expression, ...]:
    if not settings or FUNCTIONS[function].setting != "axis" or settings[0] is None:
        return ()
    if function in ("softmax", "log_softmax") and settings[0] == -1:
        return ()
    return (OF_AXIS[0] if settings[0] == -1 else OF_AXIS[1],)


def combined(function: str, parts: tuple[Expression, ...]) -> Expression:
    """A function of written parts."""
    if function in _COMBINED:
        return _COMBINED[function](*parts)
    return Apply(_WRITTEN.get(function, function), parts)


def _added(first: Expression, *rest: Expression) -> Expression:
    return Sum((*(first.terms if isinstance(first, Sum) else (first,)), *rest))


def _multiplied(first: Expression, *rest: Expression) -> Expression:
    return Product((*(first.factors if isinstance(first, Product) and not first.tight else (first,)), *rest))


def _negated(part: Expression) -> Expression:
    return Number(-part.value, part.exact) if isinstance(part, Number) else Product((MINUS, part))


_COMBINED: dict[str, Callable[..., Expression]] = {
    "add": _added,
    "subtract": Difference,
    "multiply": _multiplied,
    "divide": Fraction,
    "power": Power,
    "negative": _negated,
    "exp": lambda part: Power(EXP, part),
    "sqrt": Root,
}
_WRITTEN = {"relu": "ReLU", "gelu": "GELU", "silu": "SiLU", "maximum": "max", "minimum": "min"}


class CellWriter:
    """Writes the arithmetic of cells of an expression's value.

    An expression is written down to its first reduction (a matrix product, a softmax, a sum over an axis, …); inside
    that, and beside other reductions, stand values.
    """

    def __init__(self, values: Mapping[str, Tensor], namer: CellNamer) -> None:
        """Values: of the quantities by name."""
        self.values, self.namer = values, namer
        self.made: dict[Tree, Tensor] = {}

    def value(self, tree: Tree) -> Tensor:
        """The value of a part."""
        if tree not in self.made:
            self.made[tree] = evaluate(tree, self.values)
        return self.made[tree]

    def stages(self, tree: Tree, index: Index) -> tuple[Expression, ...]:
        """The rule in names where it is short, then in numbers."""
        rule = self.rule(tree, index)
        return (*([] if rule is None else [rule]), *self.in_numbers(tree, index))

    # In names.

    def rule(self, tree: Tree, index: Index) -> Expression | None:
        """A cell in names of cells; None if it has no short rule."""
        match tree:
            case Constant():
                return formula_of(tree)
            case Reference(name):
                return self.cell(name, index)
            case Call("matmul", (left, right)) if self.value(left).dim() > 1 < self.value(right).dim():
                row, column = self.line(left, index[-2], 0), self.line(right, index[-1], 1)
                return None if row is None or column is None else Product((row, column))
            case Call("softmax", (Reference(name),), settings) if len(index) > 1:
                whole = [str(place + self.namer.first) for place in index[-2:]]
                whole[(settings or (-1,))[0] or 0] = "l"
                return Fraction(
                    Power(EXP, self.cell(name, index)), Over("l", Power(EXP, Name(name, below=",".join(whole))))
                )
            case Call("sum" | "mean" | "max" | "min", (Reference(name),), settings):
                return self._reduced(tree.function, name, settings, index)
            case Call(function, arguments) if FUNCTIONS[function].cells:
                parts = [self.rule(each, self.place(each, index)) for each in arguments]
                return None if None in parts else combined(function, tuple(part for part in parts if part is not None))
        moved = self.moved(tree, index)
        return None if moved is None else self.rule(*moved)

    def cell(self, name: str, index: Index) -> Name:
        """The name of a cell; a single number has no place, and the head is not named."""
        value, base = self.values[name], written(name)
        if value.numel() == 1:
            return base
        made = self.namer.cell(name, *index[-2:])
        return Name(base.letters, made.below, base.above)

    def line(self, tree: Tree, place: int, axis: int) -> Name | None:
        """The name of a row (axis 0) or a column (axis 1) of a quantity or of its transpose."""
        match tree:
            case Reference(name):
                number, base = place + self.namer.first, written(name)
                return Name(base.letters, str(number) if axis == 0 else f":,{number}", base.above)
            case Call("transpose", (Reference() as inside,)):
                return self.line(inside, place, 1 - axis)
        return None

    def _reduced(self, function: str, name: str, settings: tuple[int | None, ...], index: Index) -> Expression | None:
        value, base = self.values[name], written(name)
        if value.dim() not in (1, 2) or (settings and value.dim() != 2):
            return None
        places = list("ij"[: value.dim()])
        if settings:
            kept = 0 if settings[0] in (-1, 1) else 1
            places[kept] = str(index[kept] + self.namer.first)
        body = Name(base.letters, ",".join(places), base.above)
        if function in ("max", "min"):
            return Apply(function, (body,))
        total: Expression = body
        for letter in [place for place in reversed(places) if place in "ij"]:
            total = Over(letter, total)
        count = value.numel() if not settings else value.shape[settings[0] or 0]
        return Fraction(total, Number(count, exact=True)) if function == "mean" else total

    # In numbers.

    def in_numbers(self, tree: Tree, index: Index) -> list[Expression]:
        """One stage or more, each in numbers."""
        match tree:
            case Call("softmax", (inside,), settings):
                axis = settings[0] if settings and settings[0] is not None else -1
                entries, place = self.along(inside, axis, index)
                return list(Softmax("").stages([entries], (place,), self.namer)[1:]) or [Words("0")]
            case Call("cross_entropy"):
                return self.surprise(tree)
            case Call("sum" | "mean", (Call(function, _) as inside,)) if FUNCTIONS[function].cells:
                places = list(self.reached(inside, tree.settings, index))
                values = [Number(float(self.value(inside)[place])) for place in places]
                of_values = self._averaged(tree.function, values)
                if len(places) > MOST_WRITTEN:
                    return [of_values]
                return [self._averaged(tree.function, [self.number(inside, place) for place in places]), of_values]
            case Call("matmul" | "sum" | "mean"):
                return [self.number(tree, index)]
            case Call(function, arguments) if FUNCTIONS[function].cells:
                whole = self.number(tree, index)
                short = combined(function, tuple(Number(self.at(each, index)) for each in arguments))
                if isinstance(short, Apply) and function not in ("where", "less", "equal"):  # first the function's name
                    return [short] if isinstance(whole, Number) else [short, whole]
                return [whole] if function in ("where", "less", "equal") else [whole, short]
        moved = self.moved(tree, index)
        return [self.number(tree, index)] if moved is None else self.in_numbers(*moved)

    def at(self, tree: Tree, index: Index) -> float:
        """The number of a part at the place that belongs to a cell of the whole."""
        return float(self.value(tree)[self.place(tree, index)])

    def number(self, tree: Tree, index: Index) -> Expression:
        """A cell in numbers."""
        match tree:
            case Constant(float(number)):
                return Number(number, exact=abs(number) < math.inf)
            case Call("matmul", (left, right)):
                return self._dotted(left, right, index)
            case Call("sum" | "mean" as function, (inside,), settings):
                places = self.reached(inside, settings, index)
                return self._averaged(function, [Number(float(self.value(inside)[place])) for place in places])
            case Call("max" | "min" as function, (inside,), settings):
                places = self.reached(inside, settings, index)
                return Apply(function, tuple(Number(float(self.value(inside)[place])) for place in places))
            case Call("layernorm", (inside, *rest)):
                return self._normed(inside, rest, index)
            case Call(function) if FUNCTIONS[function].cells:
                return self._elementwise(tree, index)
        return Number(float(self.value(tree)[index]))

    def _elementwise(self, tree: Call, index: Index) -> Expression:
        match tree:
            case Call("where", (condition, yes, no)):
                chosen = yes if self.at(condition, index) else no
                return self.number(chosen, self.place(chosen, index))
            case Call("less" | "equal"):
                return Number(float(self.value(tree)[index]))
            case Call("relu", (inside,)):
                return Apply("max", (Number(0, exact=True), self.number(inside, index)))
            case Call("sigmoid", (inside,)):
                return Fraction(Number(1, exact=True), self._one_more(inside, index))
            case Call("silu", (inside,)):
                return Fraction(Number(float(self.value(inside)[index])), self._one_more(inside, index))
            case Call("gelu" | "tanh" | "floor" | "abs"):
                return Number(float(self.value(tree)[index]))
        return combined(tree.function, tuple(self.number(each, self.place(each, index)) for each in tree.arguments))

    def _one_more(self, inside: Tree, index: Index) -> Expression:
        return Sum((Number(1, exact=True), Power(EXP, Number(-float(self.value(inside)[index])))))

    def _dotted(self, left: Tree, right: Tree, index: Index) -> Expression:
        one, other = self.value(left), self.value(right)
        batch = index[: len(index) - (one.dim() > 1) - (other.dim() > 1)]
        row = one if one.dim() == 1 else one[(*_aligned(one.shape[:-2], batch), index[len(batch)])]
        column = other if other.dim() == 1 else other[(*_aligned(other.shape[:-2], batch), slice(None), index[-1])]
        return dot(row, column)

    def _normed(self, inside: Tree, rest: list[Tree], index: Index) -> Expression:
        row = self.value(inside)[index[:-1]]
        epsilon = self.at(rest[2], ()) if len(rest) > 2 else 1e-5
        spread = Root(Sum((Number(float(row.var(correction=0))), Number(epsilon, exact=True))))
        made: Expression = Fraction(Difference(Number(float(row[index[-1]])), Number(float(row.mean()))), spread)
        made = Product((Number(self.at(rest[0], index)), made)) if rest else made
        return Sum((made, Number(self.at(rest[1], index)))) if len(rest) > 1 else made

    def surprise(self, tree: Call) -> list[Expression]:
        """Cross-entropy: minus the logarithm of each row's probability of its target, on average."""
        logits, targets = map(self.value, tree.arguments)
        rows = logits.reshape(-1, logits.shape[-1])
        if targets.shape == logits.shape or targets.numel() != len(rows):
            shares = targets.reshape(rows.shape)
        else:
            shares = torch.nn.functional.one_hot(targets.reshape(-1).long(), rows.shape[-1]).double()
        logs = torch.log_softmax(rows, dim=-1)
        seen = [(i, j) for i, j in (shares != 0).nonzero().tolist() if logs[i, j] > -math.inf]
        values = [Number(-float(shares[place] * logs[place])) for place in seen]
        stages = [Sum(tuple(values))]
        if len(seen) <= MOST_SURPRISES and bool((rows.abs() <= MOST_EXPONENT).all()):
            logarithms = [Apply("log", (self._chance(rows[i], j),)) for i, j in seen]
            pairs = zip(seen, logarithms, strict=True)
            stages.insert(0, Sum(tuple(Product((Number(-float(shares[place])), log)) for place, log in pairs)))
        count = Number(len(rows), exact=True)
        return [stage if len(rows) == 1 else Fraction(stage, count) for stage in stages]

    @staticmethod
    def _chance(logits: Tensor, place: int) -> Expression:
        """A softmax in numbers; not its value, which may be so small that no logarithm of its digits is near."""
        raised = tuple(Power(EXP, Number(logit)) for logit in logits.tolist())
        return Fraction(raised[place], Sum(raised))

    def _averaged(self, function: str, terms: Sequence[Expression]) -> Expression:
        total = Sum(tuple(terms))
        return Fraction(total, Number(len(terms), exact=True)) if function == "mean" else total

    # Places.

    def place(self, tree: Tree, index: Index) -> Index:
        """The place in a part that belongs to a cell of the whole: axes of size 1 are repeated."""
        return _aligned(self.value(tree).shape, index)

    def along(self, tree: Tree, axis: int, index: Index) -> tuple[Tensor, int]:
        """The numbers on a line through a cell, and the cell's place among them."""
        value = self.value(tree)
        moved = value.movedim(axis, -1)
        places = list(index)
        place = places.pop(axis)
        return moved[tuple(places)], place

    def reached(self, tree: Tree, settings: tuple[int | None, ...], index: Index) -> Iterator[Index]:
        """The cells that a reduction to one cell goes through."""
        shape = self.value(tree).shape
        axis = None if not settings or settings[0] is None else settings[0] % len(shape)
        choices = [
            range(size) if axis in (None, position) else (index[position],) for position, size in enumerate(shape)
        ]
        grids = torch.cartesian_prod(*(torch.tensor(list(choice)) for choice in choices)) if shape else torch.tensor([])
        if not shape:
            yield ()
            return
        for row in grids.reshape(-1, len(shape)).tolist():
            yield tuple(row)

    def moved(self, tree: Tree, index: Index) -> tuple[Tree, Index] | None:
        """For functions that only rearrange numbers: the part and the place that a cell is copied from."""
        match tree:
            case Call("transpose", (inside,)):
                return inside, ((*index[:-2], index[-1], index[-2]) if len(index) > 1 else index)
            case Call("pick", (inside,), (axis, start, _)):
                shape = self.value(inside).shape
                places, at = list(index), (axis or 0) % len(shape)
                begin = start or 0
                places[at] += begin + (shape[at] if begin < 0 else 0)
                return inside, tuple(places)
            case Call("row" | "column", (inside,)):
                flat = index[0] + index[1]
                return inside, _unflat(flat, tuple(self.value(inside).shape))
            case Call("causal", (inside,)) if self.value(tree)[index] > -math.inf:
                return inside, index
            case Call("concat", arguments, settings):
                axis = settings[0] if settings and settings[0] is not None else -1
                at = axis % len(index)
                places = list(index)
                for part in arguments:
                    size = self.value(part).shape[at]
                    if places[at] < size:
                        return part, tuple(places)
                    places[at] -= size
        return None


def _aligned(shape: tuple[int, ...] | torch.Size, index: Index) -> Index:
    kept = index[len(index) - len(shape) :] if len(shape) else ()
    return tuple(0 if size == 1 else place for size, place in zip(shape, kept, strict=True))


def _unflat(flat: int, shape: tuple[int, ...]) -> Index:
    places: list[int] = []
    for size in reversed(shape):
        flat, place = divmod(flat, size)
        places.append(place)
    return tuple(reversed(places))

"""A reader of printed equations that shares no code with their writer.

It parses an equation as printed (plain text, LaTeX or MathML, with decimal point or comma), computes each side with
intervals, and says whether every pair of sides agrees. A printed number stands for all numbers that are rounded to it:
half a unit of its last digit to each side, if it has all the digits asked for; with fewer it is exact. Names of cells
are looked up in the values of the computation. A side that cannot be read is an error.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from intervals import FUNCTIONS, SLACK, Interval, Untrue, add, divide, exact, multiply, power, subtract
from scipy.special import softmax


class Unreadable(AssertionError):
    """An equation, or a side of it, that cannot be read."""


SAME = {
    "sen": "sin",
    "média": "mean",
    "mantidas": "kept",
    "linha": "row",
    "outras": "others",
    "linhas": "rows",
    "colunas": "columns",
}
"""Portuguese words of formulas."""
NAMED = {"soma": "sum", "escalados": "scaled", "mascarados": "masked", "pesos": "weights"}
"""Portuguese names of quantities."""

# ----------------------------------------------------------------- reading

TOKEN = re.compile(
    r"""\s*(?:
      …\s\((?:\d+\smore\sterms?|mais\s\d+\stermos?):\s(?P<rest>−?[\d.,]+|−?∞)\)
    | (?P<gap>…\s(?:\d+\smore|mais\s\d+))
    | P\((?!w\))(?P<words>.*)\)$
    | (?P<sign>[ΣΠ]|argmax)_(?P<index>\w+)
    | (?P<number>\d+(?:[.,]\d+)?(?:e-\d+)?|∞)
    | (?P<name>ReLU²|[^\W\d_ᵀ][^\Wᵀ]*(?:\.[^\Wᵀ]+)*)
    | (?P<op>[-+−·/()√;,⊙ᵀ\[\]^])
    )""",
    re.VERBOSE,
)


@dataclass
class Reader:
    """Recursive descent over one side; `names` resolves names, `digits` is the number of decimals asked for."""

    written: str
    comma: bool
    digits: int
    names: "Names"
    place: int = 0
    whole_are_exact: bool = False
    """With 0 digits, whether whole numbers in a denominator or a logarithm are exact."""
    below: int = 0
    by_entry: int = 0
    """Whether rows are multiplied entry by entry, as inside a mean."""
    shift: float = 0.0
    """Subtracted from every exponent of e."""

    def side(self) -> Any:
        tree = self.sum()
        if self.written[self.place :].strip():
            raise Unreadable(f"{self.written!r}: stuck at {self.written[self.place :]!r}")
        return tree

    # Trees are functions of the bindings, so that sums over an index can evaluate their body again.

    def peek(self) -> re.Match[str] | None:
        return TOKEN.match(self.written, self.place)

    def take(self, *operators: str) -> str:
        found = self.peek()
        if found and found["op"] in operators:
            self.place = found.end()
            return found["op"]
        return ""

    def need(self, operator: str) -> None:
        if not self.take(operator):
            raise Unreadable(f"{self.written!r}: no {operator} at {self.written[self.place :]!r}")

    def sum(self) -> "Tree":
        minus = self.take("−")
        total = self.product()
        if minus:
            first = total
            total = lambda bound, one=first: negative(one(bound))  # noqa: E731
        while sign := self.take("+", "−"):
            right, left = self.product(), total
            how = plus if sign == "+" else less
            total = lambda bound, one=left, other=right, how=how: how(one(bound), other(bound))  # noqa: E731
        return total

    def product(self) -> "Tree":
        total = self.power()
        while True:
            left = total
            if sign := self.take("·", "/", "⊙"):
                self.below += sign == "/"
                right = self.power()
                self.below -= sign == "/"
                how = {"·": times if self.by_entry else dot, "/": over, "⊙": times}[sign]
            else:
                found = self.peek()
                begins = found and (found["name"] or found["sign"] or found["op"] == "√" or found["op"] == "(")
                if not begins:
                    return total
                right, how = self.power(), side_by_side
            total = lambda bound, one=left, other=right, how=how: how(one(bound), other(bound))  # noqa: E731

    def power(self) -> "Tree":
        base = self.atom()
        if self.take("^"):
            whole = re.compile(r"\d+(?![.,\d])").match(self.written, self.place)
            if whole:  # a whole exponent is itself
                self.place = whole.end()
                return lambda bound: raised(base(bound), exact(int(whole[0])))
            exponent = self.atom()
            return lambda bound: raised(base(bound), exponent(bound))
        return base

    def atom(self) -> "Tree":
        found = self.peek()
        if found is None:
            raise Unreadable(f"{self.written!r}: cannot read {self.written[self.place :]!r}")
        self.place = found.end()
        if found["rest"]:
            return self.number(found["rest"])
        if found["number"]:
            return self.number(found["number"])
        if found["words"] is not None:
            return self.names.chance(found["words"])
        if found["sign"]:
            return self.over(found["sign"], found["index"])
        if found["name"]:
            return self.name(found["name"])
        if found["op"] == "(":
            inside = self.sum()
            self.need(")")
            return inside
        if found["op"] == "√":
            inside = self.atom()
            return lambda bound: root(inside(bound))
        if found["op"] == "−":
            inside = self.power()
            return lambda bound: negative(inside(bound))
        raise Unreadable(f"{self.written!r}: cannot read {found[0]!r}")

    def number(self, letters: str) -> "Tree":
        sign, plain = (-1, letters[1:]) if letters.startswith("−") else (1, letters)
        if plain == "∞":
            value = exact(sign * math.inf)
            return lambda _: value
        if ("," if self.comma else ".") not in plain and re.search(r"[.,]", plain):
            raise Unreadable(f"{self.written!r}: {letters} has the other language's decimal sign")
        digits, _, power = plain.partition("e-")
        decimals = (len(re.split(r"[.,]", digits)[1]) if re.search(r"[.,]", digits) else 0) + int(power or 0)
        middle = sign * float(plain.replace(",", "."))
        is_exact = (decimals < self.digits and not power) or (self.whole_are_exact and self.below > 0 and not decimals)
        half = 0.0 if is_exact else 0.5 * 10.0**-decimals
        value = Interval(middle - half * (1 + SLACK), middle + half * (1 + SLACK))
        return lambda _: value

    def over(self, sign: str, index: str) -> "Tree":
        body = self.product() if sign != "argmax" else self.power()
        index = SAME.get(index, index)

        def value(bound: Mapping[str, int]) -> Any:
            letter = "l" if index == "kept" else index
            entries = [body({**bound, letter: place}) for place in self.names.range(index)]
            if sign == "argmax":
                return self.names.word(max(range(len(entries)), key=lambda place: scalar(entries[place]).low))
            if _is_array(*entries) and sign == "Σ":
                return np.sum(entries, axis=0)
            result = exact(0.0 if sign == "Σ" else 1.0)
            for entry in entries:
                result = (add if sign == "Σ" else multiply)(result, scalar(entry))
            return result

        return value

    def name(self, letters: str) -> "Tree":
        letters = SAME.get(letters, letters)
        if self.written[self.place : self.place + 1] == "(":
            self.need("(")
            if letters == "Concat":
                inside = self.written[self.place : self.written.index(")", self.place)]
                self.place += len(inside) + 1
                if inside.startswith("z^"):  # Concat(z^(0))
                    self.need(")")
                return self.cell("Concat(z)")
            self.below += letters == "log"
            self.by_entry += letters == "mean"
            arguments = self.arguments()
            self.below -= letters == "log"
            self.by_entry -= letters == "mean"
            if letters == "exp" and self.shift:
                return lambda bound: called("exp", [less(arguments[0](bound), exact(self.shift))])
            if letters == "one_hot":
                width = self.names.values["logits"].shape[-1]
                return lambda bound: np.eye(width)[int(scalar(arguments[0](bound)).low)]
            return lambda bound: called(letters, [argument(bound) for argument in arguments])
        single = re.fullmatch(r"([^\W\d_])_(\w+)", letters)
        if single and letters not in self.names.values:
            return self.cell(single[1], SAME.get(single[2], single[2]))
        return self.cell(letters)

    def arguments(self) -> list["Tree"]:
        found: list[Tree] = []
        while not self.take(")"):
            gap = self.peek()
            if gap and gap["gap"]:
                self.place = gap.end()
            else:
                found.append(self.sum())
            if not self.take(";" if self.comma else ","):
                self.need(")")
                break
        return found

    def cell(self, letters: str, below: str = "") -> "Tree":
        above = re.compile(r"\^(\(\d+\)|[A-Za-z]+)").match(self.written, self.place)
        mark = ""
        if above:
            mark, self.place = above[1], above.end()
        turned = self.written[self.place : self.place + 1] == "ᵀ"
        self.place += turned
        if self.written[self.place : self.place + 1] == "[":
            end = self.written.index("]", self.place)
            below, self.place = self.written[self.place + 1 : end], end + 1
            below = SAME.get(below, below)
        return lambda bound: self.names.look(letters, mark, below, bound, turned=turned)


Tree = Callable[[Mapping[str, int]], Any]

# ----------------------------------------------------------------- values: intervals, arrays of exact numbers, words


def scalar(value: Any) -> Interval:
    if isinstance(value, Interval):
        return value
    if isinstance(value, np.ndarray) and value.size == 1:
        return exact(float(value.reshape(())))
    raise Unreadable(f"{value!r} is not one number")


def array(value: Any) -> np.ndarray:
    if isinstance(value, Interval):
        if value.low != value.high and not math.isinf(value.low):
            # A definition's number beside arrays: its middle.
            return np.asarray((value.low + value.high) / 2)
        return np.asarray(value.low)
    return np.asarray(value)


def _is_array(*values: Any) -> bool:
    return any(isinstance(value, np.ndarray) and value.ndim > 0 for value in values)


def entrywise(
    of_arrays: Callable[..., Any], of_intervals: Callable[[Interval, Interval], Interval]
) -> Callable[..., Any]:
    """An operation on two numbers, or on an array and what goes with it."""

    def operation(one: Any, other: Any) -> Any:
        if _is_array(one, other):
            return of_arrays(array(one), array(other))
        return of_intervals(scalar(one), scalar(other))

    return operation


plus, less = entrywise(np.add, add), entrywise(np.subtract, subtract)
times, over = entrywise(np.multiply, multiply), entrywise(np.divide, divide)
raised = entrywise(np.power, power)


def negative(value: Any) -> Any:
    return -value if _is_array(value) else Interval(-scalar(value).high, -scalar(value).low)


def dot(one: Any, other: Any) -> Any:
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray) and one.ndim == other.ndim == 1:
        return exact(math.fsum((one * other).tolist()))
    return times(one, other)


def side_by_side(one: Any, other: Any) -> Any:
    if _is_array(one) and _is_array(other):
        return one @ other
    return dot(one, other)


def root(value: Any) -> Any:
    if _is_array(value):
        return np.sqrt(value)
    if scalar(value).high < 0:
        raise Untrue("the root of a negative number")
    return Interval(math.sqrt(max(0.0, scalar(value).low)), math.sqrt(scalar(value).high))


def _softmax(x: np.ndarray, axis: np.ndarray | None = None) -> np.ndarray:
    with np.errstate(invalid="ignore"):  # a row that sees nothing: zeros
        return np.nan_to_num(softmax(x, -1 if axis is None else int(axis)))


def _summed(x: np.ndarray, axis: np.ndarray | None = None) -> np.ndarray:
    return x.sum() if axis is None else x.sum(axis=int(axis), keepdims=True)


def _cross_entropy(logits: np.ndarray, targets: np.ndarray) -> np.ndarray:
    chances = _softmax(logits.reshape(-1, logits.shape[-1]))
    if targets.size == len(chances):
        return -np.log([row[int(place)] for row, place in zip(chances, targets.flatten(), strict=True)]).mean()
    return -(targets * np.log(chances)).sum() / len(chances)


def _layernorm(x: np.ndarray, gain: Any = 1.0, bias: Any = 0.0, epsilon: Any = 1e-5) -> np.ndarray:
    made = x - x.mean(axis=-1, keepdims=True)
    return gain * made / np.sqrt(x.var(axis=-1, keepdims=True) + epsilon) + bias


MATRICES: dict[str, Callable[..., Any]] = {
    "softmax": _softmax,
    "sum": _summed,
    "cross_entropy": _cross_entropy,
    "layernorm": _layernorm,
}
"""Functions of free steps."""


def _extreme(function: str, arguments: Sequence[Any]) -> Any:
    if _is_array(*arguments):
        if len(arguments) == 1:
            return exact(float(getattr(arguments[0], function)()))
        return (np.maximum if function == "max" else np.minimum)(*map(array, arguments))
    numbers, best = [scalar(argument) for argument in arguments], max if function == "max" else min
    return Interval(best(each.low for each in numbers), best(each.high for each in numbers))


def called(function: str, arguments: Sequence[Any]) -> Any:
    if function in ("max", "min"):
        return _extreme(function, arguments)
    if function == "less":
        return exact(float(scalar(arguments[0]).low < scalar(arguments[1]).low))
    if function == "where":
        return arguments[1] if scalar(arguments[0]).low else arguments[2]
    if function in MATRICES:
        made = np.asarray(MATRICES[function](*map(array, arguments)))
        return made if made.ndim else exact(made.item())
    [argument] = arguments
    if function == "mean":
        entries = array(argument)
        return exact(float(entries.mean())) if entries.ndim == 1 else entries.mean(axis=-1, keepdims=True)
    if function not in FUNCTIONS:
        raise Unreadable(f"no function {function}")
    if _is_array(argument):
        return _each(lambda x: FUNCTIONS[function](exact(x)).low, argument)
    return FUNCTIONS[function](scalar(argument))


def _each(function: Callable[[float], float], argument: np.ndarray) -> Any:
    return np.vectorize(function, otypes=[float])(argument)


@dataclass
class Names:
    """What names mean: `values` by letters, or letters^mark; an index counts from `first`, or is a bound letter.

    Attributes:
        values: arrays of exact numbers, words, or numbers.
        first: number of the first row.
        ranges: the places over which a bound letter runs.
        vocabulary: words.
    """

    values: dict[str, Any]
    first: int = 1
    ranges: dict[str, Sequence[int]] = field(default_factory=dict)
    vocabulary: Sequence[str] = ()
    chances: dict[str, float] = field(default_factory=dict)

    def range(self, index: str) -> Sequence[int]:
        if index not in self.ranges:
            raise Unreadable(f"the index {index} runs over nothing")
        return self.ranges[index]

    def word(self, place: int) -> str:
        return self.vocabulary[place] if self.vocabulary else str(place + self.first)

    def chance(self, words: str) -> Tree:
        if words not in self.chances:
            raise Unreadable(f"no hypothesis {words!r}")
        return lambda _: exact(self.chances[words])

    def look(self, letters: str, mark: str, below: str, bound: Mapping[str, int], *, turned: bool = False) -> Any:
        if not mark and not below and letters in bound:
            return exact(bound[letters])
        key = f"{letters}^{mark}" if mark and not mark.startswith("(") else letters
        if f"{key}[{below}]" in self.values:
            named = self.values[f"{key}[{below}]"]
            return exact(named) if isinstance(named, int | float) else named
        if key not in self.values:
            raise Unreadable(f"no name {key}[{below}]")
        value = self.values[key].T if turned else self.values[key]
        if isinstance(value, int | float):
            return exact(value)
        if below:
            free = {":", *(set("ij") - set(bound))}  # over all, as in max(a[i,1])
            places = tuple(slice(None) if part in free else self.place(part, bound) for part in below.split(","))
            value = value[places[0]] if isinstance(value, list) else value[places]
        if isinstance(value, list):
            return " ".join(value)
        if isinstance(value, str | Interval):
            return value
        return value if isinstance(value, np.ndarray) and value.ndim else exact(float(value))

    def place(self, part: str, bound: Mapping[str, int]) -> int:
        """A number, or letters that are bound or have values, as p, 2i+1, i+h."""
        if part.isdecimal():
            return int(part) - self.first
        total = 0
        for piece in part.split("+"):
            found = re.fullmatch(r"(\d*)([a-z]?)", piece)
            if not found:
                raise Unreadable(f"no place {part}")
            digits, letter = found.groups()
            value = (
                bound[letter] if letter in bound else int(scalar(self.look(letter, "", "", {})).low) if letter else 1
            )
            total += int(digits or 1) * value
        return total


# ----------------------------------------------------------------- equations


def equations(written: str) -> list[list[str]]:
    """The sides of each equation of a text: lines with signs of equality below one another, or "; " between them."""
    found: list[list[str]] = []
    for line in re.sub(rf"\b({'|'.join(NAMED)})(?! de )(?![a-z])", lambda word: NAMED[word[0]], written).splitlines():
        for part in _parts(line):
            begins = part.startswith("= ")
            sides = re.split(r" = ", part.removeprefix("= "))
            if begins and found:
                found[-1] += sides
            else:
                found.append(sides)
    return [[side.strip() for side in sides] for sides in found]


def _parts(line: str) -> list[str]:
    """What stands between semicolons outside of brackets and quotes."""
    parts, depth, quoted = [""], 0, False
    for letter in line:
        quoted = (quoted or letter == "“") and letter != "”"
        depth += 0 if quoted else (letter == "(") - (letter == ")")
        if letter == ";" and not depth and not quoted:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts if part.strip()]


_SOFTMAX = re.compile(r"\(*exp\((\w+)(?:\^\(\d+\))?\[(?:(\w+),)?\w+\]\)")


def value_of(side: str, names: Names, digits: int, *, comma: bool, bound: Mapping[str, int] | None = None) -> Any:
    """The value of a side: an interval, an array, or a word."""
    if side == "argmax_w P(w)":
        return names.values["P(w)"]
    if side == "P(w)":
        return exact(names.chances[names.values["P(w)"]])
    bound = bound or {}
    softmax = _SOFTMAX.match(side)
    reader = Reader(side, comma, digits, names)
    if softmax and "Σ" in side:
        # A quotient of exponentials of names, which may be too large or too small for a double: all are shifted.
        row = softmax[2]
        entries = names.values[softmax[1]]
        entries = entries if row is None else entries[names.place(row, bound)]
        reader.shift = float(entries.max())
    if digits:
        return reader.side()(bound)
    try:
        made = reader.side()(bound)
    except Untrue:
        made = None
    is_sure = isinstance(made, Interval) and math.isinf(made.low) == math.isinf(made.high)
    return made if is_sure else Reader(side, comma, digits, names, whole_are_exact=True).side()(bound)


def check_equation(sides: Sequence[str], names: Names, digits: int, *, comma: bool) -> None:
    """Every pair of sides agrees within the printed digits; the last side of a choice is a word.

    Raises:
        Untrue: a pair does not, or a side says nothing, since it may be any number.
        Unreadable: a side cannot be read, or there is only one.
    """
    if len(sides) < 2:
        raise Unreadable(f"one side alone: {sides}")
    first = value_of(sides[0], names, digits, comma=comma)
    if isinstance(first, str):
        others = [value_of(side, names, digits, comma=comma) for side in sides[1:-1]]
        if any(value != sides[-1] for value in (first, *others)):
            raise Untrue(f"{' = '.join(sides)}: {first}, {others}")
        return
    values = [scalar(first), *(scalar(value_of(side, names, digits, comma=comma)) for side in sides[1:])]
    for place, one in enumerate(values):
        if math.isinf(one.low) != math.isinf(one.high):
            raise Untrue(f"{sides[place]} may be any number")
        for later, other in zip(sides[place + 1 :], values[place + 1 :], strict=True):
            if not _overlap(one, other):
                raise Untrue(f"{' = '.join(sides)}: {one} is not {other} ({sides[place]} and {later}, {digits} digits)")


def _overlap(one: Interval, other: Interval) -> bool:
    if one.low == other.low or one.high == other.high:
        return True
    room = SLACK * max(1.0, *(abs(end) for end in (one.low, one.high, other.low, other.high) if math.isfinite(end)))
    return one.low <= other.high + room and other.low <= one.high + room

"""Formulas in plain text, on one line."""

from vitral.core.text import columns
from vitral.explanation.formulas.notation import Apply, Equation, Expression, Fraction, Name, Number, Power, Root
from vitral.explanation.formulas.writer import EXP, FormulaWriter
from vitral.explanation.phrasebook import Phrases


def text(expression: Expression, digits: int, say: Phrases) -> str:
    """The expression in one line of plain text."""
    return _Plain(digits, say).write(expression)


def sides(equation: Equation, digits: int, say: Phrases) -> list[str]:
    """The sides of an equation in plain text; a side written like the one before is not repeated."""
    return _Plain(digits, say).sides(equation)


def lines(equation: Equation, digits: int, say: Phrases) -> list[str]:
    """Lines of plain text: every equation with its signs of equality below one another."""
    written: list[str] = []
    for each in equation.all():
        target, *others = sides(each, digits, say)
        first = [f"{target} = {others[0]}"] if others else [target]
        written += [*first, *(f"{' ' * columns(target)} = {side}" for side in others[1:])]
    return written


class _Plain(FormulaWriter):
    """As q[2,1] = x[2]·W^Q[:,1]; places in brackets, letters below a letter after an underscore: √d_k."""

    def number(self, letters: str) -> str:
        return letters

    def name(self, name: Name) -> str:
        above = self.marks(name.above, "^{}".format, "ᵀ")
        short = len(name.letters) == 1 and name.below.isalpha()
        below = f"_{name.below}" if short else f"[{name.below}]" if name.below else ""
        return f"{name.letters}{above}{below}"

    def words(self, words: str) -> str:
        return words

    def sign(self, sign: str) -> str:
        return f"{sign} " if sign in ",;" else f" {sign} "

    def brackets(self, inside: str) -> str:
        return f"({inside})"

    def product(self, factors: list[str], tight: bool) -> str:
        return (" " if tight else "·").join(factors)

    def factor(self, expression: Expression, later: bool) -> str:
        return (
            self.brackets(self.write(expression))
            if isinstance(expression, Fraction)
            else super().factor(expression, later)
        )

    def fraction(self, above: Expression, below: Expression) -> str:
        top = self.factor(above, later=False)
        bottom = self.write(below)
        simple = isinstance(below, Number | Name | Root | Power) and not self.is_negative(below)
        return f"{top} / {bottom if simple else self.brackets(bottom)}"

    def root(self, inside: Expression) -> str:
        return (
            f"√{self.write(inside)}"
            if isinstance(inside, Name) or (isinstance(inside, Number) and not self.is_negative(inside))
            else f"√({self.write(inside)})"
        )

    def power(self, base: Expression, exponent: Expression) -> str:
        if base == EXP:
            return f"exp({self.write(exponent)})"
        raised = self.write(exponent)
        simple = isinstance(exponent, Number | Name) and not self.is_negative(exponent)
        below = (
            self.write(base)
            if isinstance(base, Name | Apply) or (isinstance(base, Number) and not self.is_negative(base))
            else self.brackets(self.write(base))
        )
        return f"{below}^{raised if simple else self.brackets(raised)}"

    def over(self, sign: str, index: str, body: str) -> str:
        return f"{sign}_{index} {body}"

    def together(self, equations: list[str]) -> str:
        return "; ".join(equations)

    def function(self, function: str) -> str:
        return function

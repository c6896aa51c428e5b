"""Formulas in MathML Core."""

import html

from vitral.explanation.formulas.notation import Equation, Expression, Name, Number
from vitral.explanation.formulas.writer import FormulaWriter
from vitral.explanation.phrasebook import Phrases
from vitral.figures.text import visible


def mathml(expression: Expression, digits: int, say: Phrases) -> str:
    """The expression as a `math` element of MathML Core; an equation of several sides, one line for each."""
    script = _MathML(digits, say)
    if not isinstance(expression, Equation):
        return _line(script.write(expression))
    first, *others = script.sides(expression)
    if not others:
        return _line(first)
    lines = [first + script.sign("=") + others[0], *(script.sign("=") + side for side in others[1:])]
    return "<br>".join(map(_line, lines))


def _line(inside: str) -> str:
    return f"<math>{inside}</math>"


def _shown(letters: str) -> str:
    """Letters for a page: HTML escaped, invisible characters made visible."""
    return html.escape(visible(letters))


class _MathML(FormulaWriter):
    def number(self, letters: str) -> str:
        if letters.startswith("−"):
            return f"<mrow><mo>−</mo>{self.number(letters[1:])}</mrow>"
        return "<mi>∞</mi>" if letters == "∞" else f"<mn>{letters}</mn>"

    def name(self, name: Name) -> str:
        base = f"<mi>{_shown(name.letters)}</mi>"
        below = f"<mtext>{_shown(name.below)}</mtext>"
        above = f"<mi>{_shown(name.above)}</mi>"
        if name.below and name.above:
            return f"<msubsup>{base}{below}{above}</msubsup>"
        if name.below:
            return f"<msub>{base}{below}</msub>"
        return f"<msup>{base}{above}</msup>" if name.above else base

    def words(self, words: str) -> str:
        return f"<mtext>{_shown(words)}</mtext>"

    def sign(self, sign: str) -> str:
        return f"<mo>{sign}</mo>"

    def brackets(self, inside: str) -> str:
        return f"<mrow><mo>(</mo>{inside}<mo>)</mo></mrow>"

    def product(self, factors: list[str], tight: bool) -> str:
        return self.joined(self.between(factors, '<mspace width="0.2em"/>' if tight else "<mo>·</mo>"))

    def fraction(self, above: Expression, below: Expression) -> str:
        return f"<mfrac><mrow>{self.write(above)}</mrow><mrow>{self.write(below)}</mrow></mfrac>"

    def root(self, inside: Expression) -> str:
        return f"<msqrt>{self.write(inside)}</msqrt>"

    def power(self, base: Expression, exponent: Expression) -> str:
        loose = not isinstance(base, Name) and not (isinstance(base, Number) and not self.is_negative(base))
        below = self.brackets(self.write(base)) if loose else self.write(base)
        return f"<msup>{below}<mrow>{self.write(exponent)}</mrow></msup>"

    def over(self, index: str, body: str) -> str:
        return f"<mrow><munder><mo>∑</mo><mi>{_shown(index)}</mi></munder>{body}</mrow>"

    def function(self, function: str) -> str:
        return f"<mi>{_shown(function)}</mi>"

"""Formulas in MathML Core."""

import html

from vitral.core.text import visible
from vitral.explanation.formulas.notation import Equation, Expression, Name, Number, Words
from vitral.explanation.formulas.writer import FormulaWriter
from vitral.explanation.phrasebook import Phrases

TIMES, OF = "&#x2062;", "&#x2061;"
"""Invisible operators that a screen reader speaks: times, and a function of."""


def mathml(expression: Expression, digits: int, say: Phrases) -> str:
    """The expression as a `math` element of MathML Core; an equation of several sides, one line for each."""
    script = _MathML(digits, say)
    equations = expression.all() if isinstance(expression, Equation) else ()
    lines = [line for each in equations for line in _lines(script, each)] or [_line(script.write(expression))]
    return "<br>".join(lines)


def _lines(script: "_MathML", equation: Equation) -> list[str]:
    if len(equation.sides) == 1 and isinstance(equation.sides[0], Words):  # a sentence, which may be broken
        return [f"<span>{_shown(script.say.told(equation.sides[0].text))}</span>"]
    first, *others = script.sides(equation)
    if not others:
        return [_line(first)]
    return [_line(first + script.sign("=") + others[0]), *(_line(script.sign("=") + side) for side in others[1:])]


def _line(inside: str) -> str:
    return f"<math>{inside}</math>"


def _shown(letters: str) -> str:
    """Letters for a page: HTML escaped, invisible characters made visible."""
    return html.escape(visible(letters))


def _places(below: str) -> str:
    """A subscript: places and letters with commas between them, or a word."""
    tags = [_place(part) for part in below.split(",")]
    return f"<mrow>{'<mo>,</mo>'.join(tags)}</mrow>" if len(tags) > 1 else tags[0]


def _place(part: str) -> str:
    if part.isdecimal():
        return f"<mn>{part}</mn>"
    return f"<mo>{part}</mo>" if part == ":" else f"<mi>{_shown(part)}</mi>"


class _MathML(FormulaWriter):
    def number(self, letters: str) -> str:
        if letters.startswith("−"):
            return f"<mrow><mo>−</mo>{self.number(letters[1:])}</mrow>"
        return "<mi>∞</mi>" if letters == "∞" else f"<mn>{letters}</mn>"

    def name(self, name: Name) -> str:
        base = f"<mi>{_shown(name.letters)}</mi>"
        below = _places(name.below)
        above = self.marks(name.above, lambda letters: f"<mi>{_shown(letters)}</mi>", "<mo>⊤</mo>")
        above = f"<mrow>{above}</mrow>" if above.count("<m") > 1 else above
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
        # Brackets that need not grow stand close to what is in them.
        size = "" if "<mfrac>" in inside or "<munder>" in inside else ' stretchy="false"'
        return f"<mrow><mo{size}>(</mo>{inside}<mo{size}>)</mo></mrow>"

    def product(self, factors: list[str], tight: bool) -> str:
        # Matrices side by side: invisible times for the ear, a space for the eye and for a copy of the text.
        return self.joined(self.between(factors, f"<mo>{TIMES}</mo><mtext>&#xa0;</mtext>" if tight else "<mo>·</mo>"))

    def fraction(self, above: Expression, below: Expression) -> str:
        return f"<mfrac><mrow>{self.write(above)}</mrow><mrow>{self.write(below)}</mrow></mfrac>"

    def root(self, inside: Expression) -> str:
        return f"<msqrt>{self.write(inside)}</msqrt>"

    def power(self, base: Expression, exponent: Expression) -> str:
        loose = not isinstance(base, Name) and not (isinstance(base, Number) and not self.is_negative(base))
        below = self.brackets(self.write(base)) if loose else self.write(base)
        return f"<msup>{below}<mrow>{self.write(exponent)}</mrow></msup>"

    def over(self, sign: str, index: str, body: str) -> str:
        symbol = {"Σ": "<mo>∑</mo>", "Π": "<mo>∏</mo>"}.get(sign)
        if symbol is None:  # a function of the index, as argmax
            symbol, body = f"<mi>{_shown(sign)}</mi>", f"<mo>{OF}</mo><mtext>&#xa0;</mtext>{body}"
        return f"<mrow><munder>{symbol}<mi>{_shown(index)}</mi></munder>{body}</mrow>"

    def applied(self, function: str, arguments: str) -> str:
        return f"<mrow>{function}<mo>{OF}</mo>{arguments}</mrow>"

    def together(self, equations: list[str]) -> str:
        return "<mo>;</mo>".join(equations)

    def function(self, function: str) -> str:
        return f"<mi>{_shown(function)}</mi>"

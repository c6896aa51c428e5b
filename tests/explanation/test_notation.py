"""Expressions in three scripts: what is read is what is meant, and nothing in a text can break out."""

import math
import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest
from equations import Names, scalar
from equations import value_of as value_of_side
from hypothesis import given, settings
from hypothesis import strategies as st

from vitral.core.latex import escape
from vitral.explanation.formulas import MOST_TERMS, latex, mathml, text, value_of
from vitral.explanation.formulas.notation import (
    Apply,
    Difference,
    Equation,
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
from vitral.explanation.phrasebook import LANGUAGES, phrases

SAY = phrases("en")
ALLOWED = {"math", "mi", "mn", "mo", "mrow", "mspace", "mfrac", "msqrt", "msub", "msup", "msubsup", "mtext", "munder"}
NASTY = "\\end{document} $x_1^2$ & 50% #1 ~{} <b>\"'`</b> \x1b[31m \u202e \n\n ж 中 🙂 é"


tenths = st.integers(-30, 30).map(lambda tenth: Number(tenth / 10))
positive = st.integers(1, 30).map(lambda tenth: Number(tenth / 10))


def larger(inner: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
    several = st.lists(inner, min_size=1, max_size=4).map(tuple)
    return st.one_of(
        several.map(Sum),
        several.map(Product),
        st.builds(Difference, inner, inner),
        st.builds(Fraction, inner, st.one_of(positive, positive.map(Root), st.tuples(positive, positive).map(Sum))),
        st.builds(Power, inner, st.just(Number(2, exact=True))),
        st.builds(Power, positive, st.tuples(tenths, positive).map(lambda pair: Fraction(*pair))),
        st.builds(Power, st.just(Name("e")), tenths),
        st.builds(Root, st.one_of(positive, st.tuples(positive, positive).map(Sum))),
        # A fraction that more factors follow.
        st.tuples(st.builds(Fraction, tenths, positive), inner).map(Product),
    )


expressions = st.recursive(tenths, larger, max_leaves=8)


@given(expressions)
@settings(max_examples=300, deadline=None)
def test_the_text_evaluates_to_the_value(expression: Expression) -> None:
    value = value_of(expression)
    if math.isfinite(value) and abs(value) < 1e12:
        for language in LANGUAGES:
            written = text(expression, 9, phrases(language))
            read = scalar(value_of_side(written, Names({}), 9, comma=language == "pt"))
            assert math.isclose(read.low, value, rel_tol=1e-6, abs_tol=1e-6)


@given(expressions)
@settings(max_examples=150, deadline=None)
def test_no_sign_stands_beside_a_sign(expression: Expression) -> None:
    for written in (text(expression, 1, SAY), latex(expression, 1, SAY).replace("-", "−")):
        assert not re.search(r"[−+·/]\s*−", written.replace(r"\cdot", "·"))


@given(expressions)
@settings(max_examples=150, deadline=None)
def test_mathml_is_wellformed_and_of_the_core_alone(expression: Expression) -> None:
    root = ElementTree.fromstring(mathml(Equation((Name("a", "1,2", "T"), Over("j", expression))), 3, SAY))
    assert {element.tag for element in root.iter()} <= ALLOWED
    arity = {"mfrac": 2, "msub": 2, "msup": 2, "munder": 2, "msubsup": 3}
    for element in root.iter():
        assert len(element) == arity.get(element.tag, len(element))


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (Product((Number(0.5), Number(2.0))), "0.5·2"),
        (Product((Number(2), Number(-0.5))), "2·(−0.5)"),
        (Sum((Product((Number(1), Number(2))), Product((Number(-3), Number(4))))), "1·2 − 3·4"),
        (Sum((Number(1), Fraction(Number(-3), Number(4)))), "1 − 3 / 4"),
        (Sum((Number(1), Number(-0.0001))), "1 + 0.000"),
        (Difference(Number(1), Number(-2)), "1 − (−2)"),
        (Difference(Number(1), Sum((Number(2), Number(3)))), "1 − (2 + 3)"),
        (Product((Name("q"), Name("k", above="T")), tight=True), "q kᵀ"),
        (Fraction(Name("scores"), Root(Name("d", "k"))), "scores / √d_k"),
        (Fraction(Number(1), Product((Number(2), Number(3)))), "1 / (2·3)"),
        (Product((Fraction(Number(1), Number(2)), Number(3))), "(1 / 2)·3"),
        (Power(Name("e"), Difference(Number(1), Number(2))), "exp(1 − 2)"),
        (Power(Number(-2), Number(2, exact=True)), "(−2)^2"),
        (Over("j", Product((Name("weights", "2,j"), Name("v", "j,1")))), "Σ_j weights[2,j]·v[j,1]"),
        (Over("j", Sum((Name("a"), Name("b")))), "Σ_j (a + b)"),
        (Apply("max", (Number(0, exact=True), Number(-1.25))), "max(0, −1.25)"),
        (Sum(()), "0"),
        (Number(1234567, exact=True), "1234567"),
        (Number(1e-05, exact=True), "0.00001"),
        (Number(-math.inf), "−∞"),
    ],
)
def test_text_is_written_as_by_hand(expression: Expression, expected: str) -> None:
    assert text(expression, 3, SAY) == expected


def test_a_decimal_comma_is_no_comma_of_a_list() -> None:
    largest = Apply("max", (Number(0, exact=True), Number(-1.25), Number(2)))
    portuguese = phrases("pt")
    assert text(largest, 3, portuguese) == "max(0; −1,25; 2)"
    assert latex(largest, 3, portuguese) == r"\max \left(0;\,-1{,}25;\,2\right)"
    assert "<mn>1,25</mn>" in mathml(largest, 3, portuguese)
    assert latex(Name("scores", "2,1"), 3, portuguese) == r"\text{scores}_{2,1}"  # two places, not a number
    assert text(largest, 3, replace(portuguese, in_data=True)) == text(largest, 3, SAY)


def test_words_in_formulas_are_translated_and_names_are_not() -> None:
    formula = Sum((Apply("mean", (Name("rows"),)), Over("row", Name("others")), Words("others"), Apply("max", ())))
    assert text(formula, 3, SAY) == "mean(rows) + Σ_row others + others + max()"
    assert text(formula, 3, phrases("pt")) == "média(rows) + Σ_linha outras + outras + max()"
    assert text(Words("others", own=True), 3, phrases("pt")) == "others"  # a word of the reader's text


def test_what_reads_the_same_is_not_said_twice() -> None:
    equal = Equation((Name("z", "1"), Number(0.5), Number(0.5), Number(0.25)))
    assert text(equal, 2, SAY) == "z[1] = 0.5 = 0.25"


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("script", [text, mathml, latex])
def test_long_sums_say_how_many_terms_follow_and_what_they_come_to(script, language: str) -> None:
    say = phrases(language)
    for count in (MOST_TERMS + 1, MOST_TERMS + 2, 40):
        long = Sum(tuple(Product((Number(index), Number(0.5))) for index in range(1, count + 1)))
        written = script(long, 3, say)
        rest = sum(index * 0.5 for index in range(1, count - MOST_TERMS + 1))  # the largest are written
        told = say("page.more_terms", count=count - MOST_TERMS, total=say.number(f"{rest:.1f}".removesuffix(".0")))
        told = escape(told) if script is latex else told
        assert (told in written) == (count > MOST_TERMS + 1)


def test_of_a_long_sum_the_largest_terms_are_written() -> None:
    terms = Sum(tuple(map(Number, (0.1, -7, 0.2, 3, -0.3, 5, 0.4, 4, 0.5, 6))))
    assert text(terms, 1, SAY) == "−7 + 3 + 5 + 4 + 6 + … (5 more terms: 0.9)"


@pytest.mark.parametrize(
    ("fraction", "digits", "expected"),
    [
        (Fraction(Number(0.3), Root(Number(0.00002))), 3, "0.3 / √0.00002"),
        (Fraction(Number(1), Sum((Number(1), Number(0.37), Number(0.14)))), 0, "1 / (1 + 0.4 + 0.1)"),
        (Fraction(Number(2), Number(0.4)), 0, "2 / 0.4"),
        (Fraction(Number(1 / 3), Number(7)), 2, "0.33 / 7"),
        (Power(Number(1e-7), Fraction(Number(1, exact=True), Number(2, exact=True))), 2, "0.0000001^(1 / 2)"),
    ],
)
def test_no_denominator_is_rounded_to_0(fraction: Expression, digits: int, expected: str) -> None:
    assert text(fraction, digits, SAY) == expected


def test_a_number_that_is_rounded_to_0_is_not_written_as_0() -> None:
    assert text(Sum((Number(1e-12), Number(0.0), Number(1e-17))), 3, SAY) == "0.000 + 0 + 0"


def test_long_lists_say_how_many_follow() -> None:
    assert text(Apply("max", tuple(map(Number, range(20)))), 1, SAY) == "max(15, 16, 17, 18, 19, … 15 more)"
    assert "more" not in text(Apply("max", tuple(map(Number, range(MOST_TERMS + 1)))), 1, SAY)


def test_what_numbers_cannot_hold_is_infinite_or_unknown() -> None:
    assert value_of(Power(Name("e"), Number(1000))) == math.inf
    assert math.isnan(value_of(Fraction(Number(1), Number(0))))
    assert math.isnan(value_of(Sum((Number(1), Name("x")))))


def balanced(code: str) -> bool:
    """Whether braces close in order, escaped ones left aside."""
    depth = 0
    for brace in re.findall(r"[{}]", re.sub(r"\\[\\{}]", "", code)):
        depth += 1 if brace == "{" else -1
        if depth < 0:
            return False
    return depth == 0


@given(st.text(max_size=30))
@settings(max_examples=300, deadline=None)
def test_no_text_breaks_out_of_latex(words: str) -> None:
    written = escape(words)
    assert balanced(written)
    assert "\n" not in written
    bare = re.sub(r"\\[a-zA-Z]+(\{\})?|\\[\\{}$&#%_]|\\[~^]\{\}|\\ensuremath\{\^\{?|[{}]", "", written)
    assert not re.search(r"[\\$&#%_~]", bare)
    assert all(letter.isascii() or letter in "×" or 0xC0 <= ord(letter) < 0x180 for letter in written)


def test_nasty_words_and_names_stay_words() -> None:
    nasty = Sum((Words(NASTY), Name(NASTY, NASTY, NASTY), Apply(NASTY, (Name("x"),)), Over(NASTY, Name("y"))))
    root = ElementTree.fromstring(mathml(nasty, 3, SAY))
    assert {element.tag for element in root.iter()} <= ALLOWED
    assert "\x1b" not in mathml(nasty, 3, SAY)
    written = latex(nasty, 3, SAY)
    assert balanced(written)
    assert r"\end{document}" not in written
    assert "ж" not in written
    assert r"\texttt{U+0436}" in written
    assert escape("a--b,,c") == "a-{}-b,{},c"
    assert escape("ação 3º «é»") == r"ação 3\textordmasculine{} \guillemotleft{}é\guillemotright{}"

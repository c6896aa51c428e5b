"""All equations of a sheet as they are printed, each read and computed again."""

import itertools
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from equations import Names, Reader, Unreadable, array, check_equation, equations, value_of
from intervals import Untrue
from meaning import ALONE, STATEMENTS, names_of, of_cell, of_formula
from scripts import from_latex, from_markdown, from_mathml

from vitral.core.language import _, in_language
from vitral.explanation.formulas import latex, lines, markdown_latex, mathml, text
from vitral.explanation.formulas.notation import Equation
from vitral.explanation.phrasebook import Phrases, phrases
from vitral.explanation.recipe import Architecture, SheetQuantity
from vitral.explanation.rows import rule_of
from vitral.explanation.sheet import Index, Sheet

SCRIPTS = {
    "text": lambda equation, digits, say: "\n".join(lines(equation, digits, say)),
    "line": text,
    "latex": lambda equation, digits, say: from_latex(latex(equation, digits, say)),
    "markdown": lambda equation, digits, say: from_markdown(markdown_latex(equation, digits, say)),
    "mathml": lambda equation, digits, say: from_mathml(mathml(equation, digits, say)),
}
EXACT = 13
"""Digits with which every side is the number itself, but for the rounding of double precision."""


def cells(sheet: Sheet, quantity: SheetQuantity, most: int = 10**9) -> Iterator[Index]:
    """The cells of a quantity; evenly spread ones if there are too many."""
    shape = sheet.values[quantity.name].shape
    every = list(itertools.product(*map(range, shape)))
    step = max(1, -(-len(every) // most))
    yield from every[::step]


def check_cells(
    sheet: Sheet,
    digits: Sequence[int],
    languages: Sequence[str] = ("en",),
    scripts: Sequence[str] = tuple(SCRIPTS),
    *,
    most: int = 10**9,
    **options: bool,
) -> int:
    """Read every equation of the cells of a sheet; how many there are; `options` are those of phrases."""
    count = 0
    for quantity in sheet.quantities:
        heads = len(sheet.values[quantity.name]) if sheet.values[quantity.name].dim() == 3 else 1
        known = [names_of(sheet, quantity, head) for head in range(heads)]
        for index in cells(sheet, quantity, most):
            names = of_cell(known[index[0] if len(index) == 3 else 0], sheet, quantity, index)
            equation = sheet.arithmetic(quantity.name, index).equation()
            for language, digit, script in itertools.product(languages, digits, scripts):
                say = replace(phrases(language), **options)
                count += check_printed(equation, names, digit, say, script)
    return count


def check_printed(equation: Equation, names: Names, digits: int, say: Phrases, script: str) -> int:
    """Read one arithmetic in one script; the number of its equations."""
    language = say.language
    found = equations(SCRIPTS[script](equation, digits, say))
    for sides in found:
        try:
            check_equation(sides, names, digits, comma=language == "pt")
        except (Unreadable, IndexError, KeyError, ValueError, TypeError) as error:
            raise Unreadable(f"{sides} ({script}, {language}): {error!r}") from error
        except Untrue as error:
            raise Untrue(f"{sides} ({script}, {language}, {digits} digits): {error}") from error
    return len(found)


def check_formulas(sheet: Sheet, languages: Sequence[str] = ("en",), scripts: Sequence[str] = tuple(SCRIPTS)) -> int:
    """Evaluate the general formula of each quantity over the values of the sheet; the number of equations."""
    count = 0
    for quantity, language, script in itertools.product(sheet.quantities, languages, scripts):
        value = sheet.values[quantity.name]
        if not value.numel():
            continue
        found = equations(SCRIPTS[script](sheet.formula(quantity.name), EXACT, phrases(language)))
        for head in range(len(value) if value.dim() == 3 else 1):
            names = of_formula(names_of(sheet, quantity, head), sheet, quantity, head)
            for sides in found:
                _check_formula(sides, names, sheet, quantity, head, language)
                count += 1
    return count


def _told(words: str, language: str) -> str:
    with in_language(language):
        return _(words)


def _check_formula(
    sides: list[str], names: Names, sheet: Sheet, quantity: SheetQuantity, head: int, language: str
) -> None:
    comma, alone = language == "pt", [_told(words, language) for words in ALONE]
    if len(sides) == 1 and sides[0] in alone:
        return
    if len(sides) != 2:
        raise Unreadable(f"{sides}: no formula")
    left, right = sides
    for name, words in STATEMENTS.items():
        if right == _told(words, language):
            assert re.sub(r"[_\[].*", "", left) == re.sub(r"_.*", "", name), sides
            return
    whole = sheet.values[quantity.name]
    value = sheet.conventions.seen(quantity.name, whole[head] if whole.dim() == 3 else whole).numpy()
    letters = re.match(r"[\w.]+?(?=\^|\[|$)", left)
    own = sheet.names[quantity.name].letters if quantity.name in sheet.names else quantity.name
    if not letters or letters[0] != own:
        one, other = (value_of(side, names, EXACT, comma=comma) for side in sides)
        np.testing.assert_allclose(array(one), array(other), rtol=1e-9, atol=1e-11, err_msg=str(sides))
        return
    if quantity.name in ("greedy", "beam") or right == _told(ROWS, language):
        return
    below = re.search(r"\[(.*)\]$", left)
    try:
        if below and below[1].endswith(",:"):  # one row; the others are 0
            rows = np.zeros_like(value)
            row = names.place(below[1][:-2], {})
            rows[row] = array(Reader(right, comma, EXACT, names).side()({}))
            np.testing.assert_allclose(rows, value, rtol=1e-8, atol=1e-9, err_msg=str(sides))
        elif below is None:
            made = array(Reader(right, comma, EXACT, names).side()({}))
            np.testing.assert_allclose(
                np.broadcast_to(made, value.shape), value, rtol=1e-8, atol=1e-9, err_msg=str(sides)
            )
        else:
            _check_each(below[1], right, names, quantity, value, sheet.architecture, comma=comma)
    except (Unreadable, IndexError, KeyError, ValueError, TypeError) as error:
        raise Unreadable(f"{sides} ({language}): {error!r}") from error


ROWS = "product of the sizes of its tensor, or the sum of such products"


def _check_each(
    below: str,
    right: str,
    names: Names,
    quantity: SheetQuantity,
    value: np.ndarray,
    parts: Architecture,
    *,
    comma: bool,
) -> None:
    letters = sorted(set(re.findall(r"[a-z]", below)) - {"h", "w"})
    count, half = 0, math.inf
    if quantity.name == "position_embedding" and parts.position_halves:
        half = (value.shape[-1] + 1) // 2
    elif quantity.name in ("q", "k") and parts.frequencies is not None:
        half = len(parts.frequencies)
    for places in itertools.product(*(range(max(value.shape)) for _letter in letters)):
        bound = dict(zip(letters, places, strict=True))
        cell = tuple(names.place(part, bound) for part in below.split(","))
        if bound.get("i", 0) >= half or any(place >= size for place, size in zip(cell, value.shape, strict=True)):
            continue
        is_filtered = rule_of(quantity.name)[0] != "" and value[cell] == 0
        is_empty = quantity.name == "weights" and not value[cell[0]].any()
        if not is_filtered and not is_empty:
            np.testing.assert_allclose(
                array(value_of(right, names, EXACT, comma=comma, bound=bound)),
                value[cell],
                rtol=1e-8,
                atol=1e-9,
                err_msg=right,
            )
        count += 1
    assert count or value.shape[-1] == 1  # of one column there is no cosine

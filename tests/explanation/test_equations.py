"""Every equation that is printed is true: read as a reader reads it, computed, and compared within its digits.

With VITRAL_FULL=1 there are more than 20,000 of them.
"""

import itertools
import os
import re
from dataclasses import replace

import numpy as np
import pytest
from equations import Names, Unreadable, check_equation, equations
from intervals import Untrue
from meaning import names_of, of_cell
from printed import EXACT, cells, check_cells, check_formulas, check_printed
from redrawn import changed, recomputed
from tiers import few
from variants import TEXT, TOKENIZER, TRACED, made

from vitral.core.text import visible
from vitral.explanation import Walkthrough, check, parse_example, to_plain, to_text, walk_example
from vitral.explanation.checks.report import ReportText
from vitral.explanation.examples.by_name import find_example, gallery
from vitral.explanation.formulas import latex, lines, markdown_latex, mathml, text
from vitral.explanation.formulas.notation import Equation, Expression
from vitral.explanation.phrasebook import Phrases, phrases
from vitral.explanation.trace import trace_text
from vitral.report.walkthrough import to_latex, to_page

FULL = os.environ.get("VITRAL_FULL") == "1"
LANGUAGES = ("en", "pt")
RULES = [("temperature", 0.5), ("temperature", 2.0), ("top_k", 3.0), ("top_p", 0.9), ("min_p", 0.2)]


@pytest.mark.parametrize("name", few(gallery()))
def test_the_gallerys_equations_are_true(name: str) -> None:
    sheet = find_example(name).sheet
    assert check_cells(sheet, (EXACT,), ("en",), ("text",), most=10**9 if FULL else 6) > 0
    assert check_cells(sheet, (0, 2, 3), LANGUAGES if FULL else ("pt",), most=10**9 if FULL else 1) > 0


@pytest.mark.parametrize("name", few(gallery()))
def test_the_gallerys_formulas_are_true(name: str) -> None:
    assert check_formulas(find_example(name).sheet, LANGUAGES if FULL else ("pt",)) > 0


SIZES = (0.001, 0.1, 1.0, 5.0, 100.0, 4000.0)
REDRAWN = [name for name in gallery() if not re.search("parameters|beam|columns?-|loss", name)]
"""Sheets of any numbers: neither stored shares of a beam nor exponentials too large for the reader."""


@pytest.mark.parametrize("seed", range(400 if FULL else 7))
def test_the_equations_of_other_numbers_are_true(seed: int) -> None:
    sheet, language = find_example(REDRAWN[seed % len(REDRAWN)]).sheet, LANGUAGES[seed % 2 : seed % 2 + 1]
    sheet = replace(sheet, values=recomputed(sheet, changed(sheet, seed, SIZES[seed % len(SIZES)])))
    options = {"whole": seed % 3 == 0}
    assert check_cells(sheet, (seed % 7, EXACT), language, ("text",), most=4, **options) > 0
    assert check_cells(sheet, (3,), language, ("latex", "markdown", "mathml"), most=1) > 0
    assert check_formulas(sheet, language, ("text",)) > 0


@pytest.mark.parametrize("variant", TRACED if FULL else few([*TRACED[::5], "swiglu"], 3))
def test_the_equations_of_a_traced_model_are_true(variant: str) -> None:
    seen = trace_text(made(variant), TOKENIZER, TEXT, RULES)
    for place, sheet in enumerate((seen.embedding, *itertools.chain(*seen.blocks), seen.ending)):
        language = LANGUAGES[place % 2 : place % 2 + 1]
        count = check_cells(sheet, (3, 6, EXACT), language, ("text",), most=12 if FULL else 2)
        assert (count > 0) == bool(sheet.quantities)
        check_formulas(sheet, language, ("text", "latex"))


def test_the_equations_of_an_encoder_decoder_are_true() -> None:
    both = {"shape": "encoder-decoder", "encoder_layers": 1, "num_layers": 1, "d_model": 6, "num_heads": 2}
    seen = trace_text(made(both), TOKENIZER, TEXT, RULES, source=TEXT[::-1] + TEXT[0])
    assert seen.encoder is not None
    for sheet in (*seen.encoder.blocks[0], seen.encoder.ending, *seen.blocks[0], seen.ending):
        assert check_cells(sheet, (3, EXACT), ("en",), ("text",), most=2) > 0
        check_formulas(sheet, ("en",), ("text", "latex"))


FREE = """a @ b; a + c; a - c; a * c; a / (1 + abs(c)); -a; exp(a); log(abs(a) + 1); sqrt(abs(a)); tanh(a);
relu(a); gelu(a);
silu(a); sigmoid(a); a ** 2; softmax(a); softmax(a, axis=0); log_softmax(a); log_softmax(a, axis=0); sum(a);
sum(a, axis=0);
mean(a); mean(a, axis=1); max(a); min(a, axis=0); maximum(a, c); minimum(a, c); where(a < c, a, c); transpose(a);
a[0]; a[:, 1:]; layernorm(a); rmsnorm(a); causal(a @ b); cross_entropy(a, t); floor(a); abs(a); sin(a);
cos(a); concat(a, c);
a @ transpose(c) / sqrt(3); softmax(a @ b) @ c; sum(a * c); mean((a - mean(a, axis=1)) ** 2, axis=1); grad(total, a)"""


@pytest.mark.parametrize("size", [0.01, 1, 300])
@pytest.mark.parametrize("expression", [" ".join(each.split()) for each in FREE.split(";")])
def test_the_equations_of_a_free_step_are_true(expression: str, size: float) -> None:
    rng = np.random.default_rng(1)
    given = {"a": rng.normal(size=(2, 3)) * size, "b": rng.normal(size=(3, 2)), "c": rng.normal(size=(2, 3))}
    written = "\n".join(f"{name} = {value.round(3).tolist()}" for name, value in given.items())
    steps = f'use = "sum(b) + sum(t)"\ntotal = "sum(a * c)"\nmade = "{expression}"\n'
    sheet = parse_example(f"[given]\n{written}\nt = [1, 0]\n[steps]\n{steps}").sheet
    along = range(2 if "axis=0" in expression else 3)
    names = Names(
        {name: value.numpy() for name, value in sheet.values.items()}, 1, {"l": along, "i": range(2), "j": range(3)}
    )
    for index, digits in itertools.product(cells(sheet, sheet["made"], 10**9 if FULL else 2), (0, 1, 3, EXACT)):
        for language, script in zip(LANGUAGES, ("text", "latex"), strict=True):
            arithmetic = sheet.arithmetic("made", index).equation()
            known = of_cell(names, sheet, sheet["made"], index)
            assert check_printed(arithmetic, known, digits, phrases(language), script) > 0


class Printed:
    """All equations that a walkthrough may print in one language, in each script: those of its formulas and cells."""

    def __init__(self, told: Walkthrough) -> None:
        say = phrases(told.language)
        equations_of = [step.formula for step in told.steps]
        for panel in [panel for step in told.steps for panel in step.panels]:
            for row in range(len(panel.row_labels)):
                arithmetics = (panel.working(row, column) for column in range(len(panel.column_labels)))
                equations_of += [arithmetic.equation() for arithmetic in arithmetics if arithmetic.stages]
        self.lines = {visible(line) for each in equations_of for line in _lines(each, say)}
        self.math = {line for each in equations_of for line in mathml(each, 3, say).split("<br>")}
        self.latex = {latex(each, 3, say) for each in equations_of}
        self.markdown = {markdown_latex(each, 3, say) for each in equations_of}
        in_data = replace(say, in_data=True)
        self.data = {write(each, 3, in_data) for each in equations_of for write in (text, latex)}
        self.given = {
            write(arithmetic.equation(), 3, in_data)
            for panel in [panel for step in told.steps for panel in step.panels]
            if not (arithmetic := panel.working(*panel.cell)).stages
            for write in (text, latex)
        }


def _lines(formula: Expression, say: Phrases) -> list[str]:
    return [line.strip() for line in lines(formula, 3, say)] if isinstance(formula, Equation) else []


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("name", gallery() if FULL else list(gallery())[::6])
def test_documents_print_no_other_equations(name: str, language: str) -> None:
    told = walk_example(find_example(name), language=language)
    printed, sentences = Printed(told), " ".join([*told.intro, *(step.sentence for step in told.steps)])
    for line in to_text(told).splitlines():
        bare = re.sub(r"^[^=]*: ", "", line.strip())
        assert " = " not in bare or bare in printed.lines or bare in sentences, line
    found = re.findall(r"<math>.*?</math>", to_page(told), re.DOTALL)
    assert found
    assert set(found) <= printed.math
    found = re.findall(r"\\\[\\fitting\{(.*?)\}\\\]$", to_latex(told), re.MULTILINE | re.DOTALL)
    assert found
    assert set(found) <= printed.latex
    for step in (step for chapter in to_plain(told)["chapters"] for step in chapter["steps"]):
        for panel in step["panels"]:
            assert {panel["arithmetic"], panel["arithmetic_latex"]} <= printed.data | printed.given


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("scale", ["sqrt", "linear"])
def test_the_equation_in_a_sentence_is_true(scale: str, language: str) -> None:
    for d_head in (1, 2, 3, 5, 64):
        given = f"mask = 'causal'\nscale = '{scale}'\n[given]\nscores = [[1]]\nd_k = {d_head}\n"
        step = walk_example(parse_example(given), language=language).steps[1]
        [found] = re.findall(r"1/√?d_k = 1/√?\d+ = [\d.,]+", step.sentence)
        [sides] = equations(found)
        check_equation(sides, Names({"d_k": d_head, "d[k]": d_head}), 3, comma=language == "pt")


@pytest.mark.parametrize("name", few(gallery()))
def test_the_equations_of_a_check_are_true(name: str) -> None:
    report = check(find_example(name))
    sheet = report.example.sheet
    for finding in (finding for quantity in report.quantities for finding in quantity.findings):
        quantity = sheet[finding.name]
        head = finding.index[0] if len(finding.index) == 3 else 0
        names = of_cell(names_of(sheet, quantity, head), sheet, quantity, finding.index)
        for checked in report.quantities:  # as the file calls it
            names.values[checked.claim.label] = names.values.get(checked.claim.name)
        for language in LANGUAGES:
            for sides in equations(ReportText(report, phrases(language)).working(finding)):
                check_equation(sides, names, report.example.decimals, comma=language == "pt")


FALSE = {
    "greedy[1] = max(0.6, 0.2, 0.15, 0.05) = 0": "a place set equal to a maximum",
    "p = 0.581·0.167·0.836·0.755 = 2": "a word set equal to a product",
    "p = 0.5 + 0.25 = 0.76": "a sum",
    "p = 0.333 + 0.333 + 0.333 = 1.003": "beyond what the digits allow",
    "p = 1 / 0.000 = 5": "division by what may be 0",
    "p = exp(1) / (exp(1) + exp(2)) = 0.731": "the other share",
}


@pytest.mark.parametrize("written", FALSE)
def test_the_reader_refuses_what_is_false(written: str) -> None:
    names = Names({"greedy": 0.0, "p": 0.0})
    [sides] = equations(written)
    with pytest.raises(Untrue):
        check_equation(sides[1:] if sides[0] == "p" else sides, names, 3, comma=False)


@pytest.mark.parametrize("written", ["p = 1 +", "p = f(2)", "p = 1,5", "p = q[1]", "p", "p = 2 words"])
def test_the_reader_refuses_what_it_cannot_read(written: str) -> None:
    [sides] = equations(written)
    with pytest.raises(Unreadable):
        check_equation(sides, Names({"p": 1.0}), 3, comma=False)


@pytest.mark.parametrize("written", ["0.333 + 0.333 + 0.333 = 1", "2 / 3 = 0.667", "√2 = 1.414", "exp(−∞) = 0"])
def test_the_reader_allows_what_the_digits_allow(written: str) -> None:
    [sides] = equations(written)
    check_equation(sides, Names({}), 3, comma=False)

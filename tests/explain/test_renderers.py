"""Text and page show the walkthrough's numbers, aligned, and say how many they leave out."""

import math
import re

import pytest
import torch

from vitral.core.streams import torch_stream
from vitral.data import CorpusConfig, build_tokenizer
from vitral.explain import Arithmetic, Exponentials, Step, Sum, Walkthrough, to_sections, to_text, walk_attention
from vitral.explain.arithmetic import number
from vitral.figures.html import page
from vitral.figures.sections import Details, Paragraph, Preformatted, Table
from vitral.model import ModelConfig, Transformer

SQUARE = ("scores", "scaled", "masked", "weights")


def walk(num_tokens: int, cell: tuple[int, int] | None = None, d_head: int = 8) -> Walkthrough:
    sizes = {"d_model": 2 * d_head, "num_layers": 1, "num_heads": 2, "context_length": 23}
    made = Transformer(ModelConfig.parse(sizes), 4, seed=3).eval()
    with torch.no_grad():
        for name, parameter in made.named_parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=torch_stream(5, name)))
    text = ("ab " * num_tokens)[:num_tokens]
    return walk_attention(made, build_tokenizer(CorpusConfig(), "ab ", []), text, cell=cell)


def tables(walkthrough: Walkthrough) -> dict[str, Table]:
    details = [section for section in to_sections(walkthrough) if isinstance(section, Details)]
    assert len(details) == len(walkthrough.steps)
    found = {}
    for step, section in zip(walkthrough.steps, details, strict=True):
        sentence, table, working = section.sections
        assert isinstance(table, Table)
        assert sentence == Paragraph(step.sentence)
        assert isinstance(working, Preformatted)
        assert " ".join(working.text.split()) == " ".join(step.arithmetic.line().split())
        found[step.name] = table
    return found


def left_out(labels: list[str] | tuple[str, ...]) -> int:
    return sum(int(label.split()[1]) for label in labels if label.startswith("…"))


@pytest.mark.parametrize(
    ("num_tokens", "cell", "d_head"),
    [
        (1, None, 2),
        (5, (2, 1), 6),
        (12, (0, 11), 8),
        (13, None, 7),
        (20, (19, 3), 8),
        (23, (1, 0), 8),
        (20, (11, 10), 8),
    ],
)
def test_every_number_shown_is_the_steps_and_every_other_is_counted(
    num_tokens: int, cell: tuple[int, int] | None, d_head: int
) -> None:
    walkthrough = walk(num_tokens, cell, d_head)
    shown = tables(walkthrough)
    for step in walkthrough.steps:
        _, *columns = shown[step.name].columns
        rows = shown[step.name].rows
        kept = [column for column in columns if not column.startswith("…")]
        labels = [label for label, *_ in rows]
        assert left_out(columns) == len(step.column_labels) - len(kept)
        assert left_out(labels) == len(step.row_labels) - sum(not label.startswith("…") for label in labels)
        marked = []
        for label, *cells in rows:
            for column, cell_text in zip(columns, cells, strict=True):
                if label.startswith("…") or column.startswith("…"):
                    assert cell_text == "…"
                    continue
                place = step.row_labels.index(label), step.column_labels.index(column)
                assert cell_text.strip("[]") == number(step.matrix[place[0]][place[1]], 3)
                marked += [place] if cell_text.startswith("[") else []
        assert marked == [step.cell]


def test_a_long_text_shows_its_end_and_what_is_worked_out() -> None:
    shown = tables(walk(20, (19, 3)))
    last = [f"{index} {'ab␠'[index % 3]}" for index in range(12, 20)]
    assert [row[0] for row in shown["scores"].rows] == ["… 12 more", *last]
    assert list(shown["scores"].columns) == ["", "… 3 more", "3 a", "… 8 more", *last]
    assert [row[0] for row in shown["v"].rows] == ["… 3 more", "3 a", "… 8 more", *last]
    assert list(shown["v"].columns) == ["", "0", "1", "2", "3", "4", "5", "… 2 more"]
    assert list(shown["out"].columns)[-1] == "… 10 more"


def test_one_alone_is_shown_since_a_gap_takes_as_much_room() -> None:
    shown = tables(walk(20, (19, 10), d_head=7))
    assert list(shown["q"].columns) == ["", *"0123456"]
    assert list(shown["weights"].columns)[:5] == ["", "… 10 more", "10 b", "11 ␠", "12 a"]


def test_what_fits_is_shown_whole_and_cutting_is_said_only_where_it_happens() -> None:
    whole, cut = walk(12, d_head=3), walk(13, (12, 12), d_head=3)
    assert not any(left_out(table.columns) for table in tables(whole).values())
    assert "left out" not in to_text(whole)
    assert "left out" in to_text(cut)
    assert [section for section in to_sections(cut) if isinstance(section, Paragraph) and "left out" in section.text]


def test_long_sums_say_how_many_terms_follow_and_what_they_come_to() -> None:
    steps = {step.name: step.arithmetic for step in walk(20).steps}
    assert "… (13 more terms: " in steps["out"].line()  # 16 products and a bias, of which 4 are written
    assert "… (4 more terms: " in steps["scores"].line()
    assert "… (16 more terms: " in steps["weights"].line()
    assert "… (16 more terms: " in steps["z"].line()
    assert "more" not in steps["scaled"].line()
    ones = Sum(tuple((1.0, float(index)) for index in range(1, 6)))
    assert ones.lines(0) == ("1·1 + 1·2 + 1·3 + 1·4 + … (1 more term: 5)",)


def test_text_holds_the_same_tables_aligned() -> None:
    walkthrough = walk(20, (19, 3))
    text = to_text(walkthrough)
    assert text.startswith(walkthrough.title)
    assert not [line for line in text.splitlines() if line != line.rstrip()]
    for index, (step, table) in enumerate(zip(walkthrough.steps, tables(walkthrough).values(), strict=True), start=1):
        told = text[text.index(f"\n{index}. {step.title}: {step.formula}\n") :]
        block = told.split("\n\n")[1].splitlines()
        assert len({len(line) for line in block}) == 1  # numbers end together
        for line, row in zip(block[1:], table.rows, strict=True):
            assert line.split() == " ".join(row).split()
        assert " ".join(told.split("\n\n")[2].split()) == " ".join(step.arithmetic.line().split())


@pytest.mark.parametrize(("digits", "form"), [(0, r"\[?(−?\d+|−∞)\]?"), (5, r"\[?(−?\d+\.\d{5}|−∞)\]?")])
def test_digits_are_those_asked_for_everywhere(digits: int, form: str) -> None:
    walkthrough = walk(3, d_head=4)
    for section in to_sections(walkthrough, digits=digits):
        if isinstance(section, Details):
            _, table, _ = section.sections
            assert isinstance(table, Table)
            shown = [cell for row in table.rows for cell in row[1:] if cell != "…"]
            assert all(re.fullmatch(form, cell) for cell in shown)
    assert walkthrough.steps[0].arithmetic.line(digits) in " ".join(to_text(walkthrough, digits=digits).split())


def test_wide_and_hidden_characters_do_not_shift_the_table() -> None:
    made = Arithmetic("n[0, 0]", "one", Sum(((1.0,),)), 1.0)
    step = Step("n", "t", "f", "s", "z", ((1.0,), (2.0,), (3.0,)), ("中", "ab", "\x1bé"), ("0",), (0, 0), made)
    text = to_text(Walkthrough("title", "intro", (step,)))
    assert "   中  [1.000]\n   ab    2.000\n   ␛é    3.000\n" in text
    assert "\x1b" not in text


def test_a_page_takes_it() -> None:
    walkthrough = walk(5)
    html = page("x", to_sections(walkthrough))
    assert html.count("<details") == 9
    assert "−∞" in html
    for step in walkthrough.steps:
        for value in step.matrix[-1][:5]:
            assert number(value, 3) in html


def test_numbers_are_written_as_by_hand() -> None:
    shown = [number(value, 2) for value in (-0.001, 0.0, -0.0, -1.5, math.inf, -math.inf)]
    assert shown == ["0.00", "0.00", "0.00", "−1.50", "∞", "−∞"]


def test_exponentials_of_large_entries_do_not_overflow() -> None:
    assert Exponentials(1000.0, (1000.0, 999.0)).lines(2) == ("exp(1000.00 − 1000.00) / Σ", "1.00 / (1.00 + 0.37)")
    assert Exponentials(-2.0, (-2.0, -1.0)).lines(0)[0] == "exp(−2 − (−1)) / Σ"
    assert Exponentials(-math.inf, (-math.inf,)).lines(2) == ("nothing may be seen",)

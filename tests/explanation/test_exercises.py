"""Exercises: numbers that a hand can compute with, sheets that tell no answer, and keys that are right."""

import os
import re
import tomllib
from typing import Any

import pytest
import torch
from scipy.stats import ttest_rel
from tiers import few

from vitral.app.exercises import OWN_STEPS
from vitral.core.errors import UsageError
from vitral.core.language import in_language
from vitral.explanation import KINDS, ExerciseSheet, Verdict, check, exercise_of, parse_example
from vitral.explanation.documents import document_of
from vitral.explanation.examples.file import read_example
from vitral.explanation.exercises.exercise import effort
from vitral.explanation.exercises.workbook import workbook
from vitral.report.live import sheet_latex, sheet_page

SEEDS = range(12 if os.environ.get("VITRAL_FULL") == "1" else 4)
FINE = (Verdict.right, Verdict.rounding)
HALF = 0.5


def key_of(kind: str, seed: int) -> Any:
    return ExerciseSheet(exercise_of(kind, seed=seed)).key


def text_of(kind: str, seed: int) -> str:
    return ExerciseSheet(exercise_of(kind, seed=seed)).toml


@pytest.mark.parametrize("kind", KINDS)
def test_a_hand_can_compute_the_numbers(kind: str) -> None:
    for seed in SEEDS:
        key = key_of(kind, seed)
        assert effort(key).within(KINDS[kind].most), seed
        scale = 10**key.decimals
        for claim in key.claims:
            exact = key.sheet.values[claim.name] * scale
            exact = exact[exact.isfinite()]
            assert bool((((exact - HALF) - (exact - HALF).round()).abs() >= 0.01).all()), (seed, claim.name)


@pytest.mark.parametrize("kind", few(KINDS, 2))
def test_the_key_is_right_and_the_sheet_is_empty(kind: str) -> None:
    for seed in SEEDS:
        text, key = text_of(kind, seed), check(key_of(kind, seed))
        assert key.worst in FINE, (seed, key)
        assert key.counts()["unknown"] == 0
        sheet = check(parse_example(text))
        assert sheet.worst is Verdict.unknown
        assert sheet.counts()["unknown"] == sum(key.counts().values())
        assert text == text_of(kind, seed)
        assert tomllib.loads(text)["given"] == key.example.document.data["given"]
    assert text_of(kind, 1) != text_of(kind, 2)


def test_effort_counts_what_a_hand_does() -> None:
    written = (
        'scale = "none"\nmask = "causal"\n[given]\nx = [[1, 2], [0, 3]]\nw_q = "identity"\nw_k = "identity"\n'
        "w_v = [[1, 1], [0, 1]]\n[claimed]\n"
    )
    work = effort(parse_example(written))
    # q and k: 3 products each; v: 2 + 1 … row 1: 1·1, 1·1, 2·1; row 2: 3·1; scores 2 + 1 + 1 + 1; z: 2 + 4 - 1.
    assert work.products == 3 + 3 + 4 + 5 + 5
    assert work.largest == 9
    assert (work.exponentials, work.exponent) == (3, 9)
    assert (work.flat_rows, work.roots) == (0, 0)
    flat = parse_example('mask = "bidirectional"\n[given]\nscaled = [[2, 2]]\nv = [[1], [2]]\n[claimed]\n')
    assert effort(flat).flat_rows == 1


def test_the_first_norm_of_a_block_is_exact() -> None:
    for seed in SEEDS:
        key = key_of("block", seed)
        assert torch.equal(key.sheet.values["attn_norm"].abs(), torch.ones(2, 4, dtype=torch.float64))


def test_the_interval_of_a_difference_is_that_of_a_paired_t_test() -> None:
    for seed in SEEDS:
        values = key_of("difference", seed).sheet.values
        expected = ttest_rel(values["other"].flatten(), values["base"].flatten()).confidence_interval(0.95)
        found = [float(values[end]) for end in ("low", "high")]
        assert found == pytest.approx([expected.low, expected.high], abs=1e-3)  # 3.18 for 3.1824


def test_probabilities_of_a_choice_are_whole_twentieths() -> None:
    for seed in SEEDS:
        twentieths = key_of("choice", seed).sheet.values["probabilities"] * 20
        assert torch.allclose(twentieths, twentieths.round(), atol=1e-3)


@pytest.mark.parametrize("kind", KINDS)
def test_a_sheet_has_a_box_for_each_number_and_tells_none(kind: str) -> None:
    sheet = ExerciseSheet(exercise_of(kind, seed=7))
    asked = sum(claim.values.numel() for claim in sheet.key.claims)
    empty, filled = sheet.paper(), sheet.paper(filled=True)
    boxes = [cell for task in empty.tasks for grid in task.grids for row in grid.cells for cell in row]
    numbers = [cell for task in filled.tasks for grid in task.grids for row in grid.cells for cell in row]
    assert boxes == [None] * asked
    assert len(numbers) == asked
    assert None not in numbers
    assert sheet_latex(sheet).count(r"\place{}") == asked
    assert sheet_latex(sheet, is_key=True).count(r"\place{}") == 0
    assert len(re.findall(r"<td></td>", sheet_page(sheet))) == asked + sum(
        any(grid.columns)
        for grid in (*empty.given, *empty.helps, *(grid for task in empty.tasks for grid in task.grids))
    )


def test_pages_load_nothing_and_are_in_the_language() -> None:
    for language, code in (("en", "en"), ("pt", "pt-BR")):
        with in_language(language):
            sheet = ExerciseSheet(exercise_of("multi-head", seed=3))
            for page in (sheet_page(sheet), sheet_page(sheet, is_key=True)):
                assert f'<html lang="{code}">' in page
                assert "default-src 'none'" in page
                assert not re.search(r"(src|href)=\"(?!#)", page)
            told = sheet_page(sheet)
    assert "Compute the numbers" not in told


def test_tables_that_help_have_the_exponentials_that_are_needed() -> None:
    for seed in SEEDS:
        sheet = ExerciseSheet(exercise_of("attention", seed=seed))
        shown = {cell for grid in sheet.paper().helps for cell in grid.cells[0]}
        masked = sheet.key.sheet.values["masked"]
        needed = {f"{value:g}".replace("-", "−") for value in masked[masked.isfinite()].tolist()}
        assert needed <= shown


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != OWN_STEPS])
def test_a_filled_spreadsheet_can_be_handed_in(kind: str) -> None:
    sheet = ExerciseSheet(exercise_of(kind, seed=5))
    made = workbook(sheet.key_toml)
    assert made is not None
    report = check(read_example(document_of(made, "sheet.xlsx")))
    read = [
        claim for claim in sheet.key.claims if claim.name != "loss" and not claim.name.startswith("d_")
    ]  # own steps
    assert report.counts()["right"] == sum(claim.values.numel() for claim in read)


def test_sizes_that_a_kind_does_not_have_are_refused() -> None:
    wrong: list[dict[str, Any]] = [
        {"kind": "choice", "positions": 3},
        {"kind": "positions", "num_heads": 2},
        {"kind": "block", "d_model": 5},
        {"kind": "atention"},
        {"kind": "multi-head", "num_heads": 3},
        {"positions": 0},
        {"d_model": 9},
        {"mask": "half"},
        {"scale": "cube"},
    ]
    for sizes in wrong:
        with pytest.raises(UsageError):
            exercise_of(**sizes)
    assert exercise_of("multi-head", num_heads=None).num_heads == 2


@pytest.mark.full
def test_large_sizes_have_the_easiest_numbers_that_are_found() -> None:
    for sizes in ({"positions": 8, "d_model": 8}, {"positions": 1, "d_model": 1}):
        exercise = exercise_of("attention", **sizes)
        assert check(ExerciseSheet(exercise).key).worst in FINE

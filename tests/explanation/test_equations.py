"""Every equation that is printed is true: read as a reader reads it, computed, and compared within its digits."""

import pytest
from printed import EXACT, check_cells, check_formulas

from vitral.lab.examples import find_example, gallery

LANGUAGES = ("en", "pt")


@pytest.mark.parametrize("name", gallery())
def test_the_gallerys_equations_are_true(name: str) -> None:
    sheet = find_example(name).sheet
    assert check_cells(sheet, (2, 3, EXACT), LANGUAGES) > 0


@pytest.mark.parametrize("name", gallery())
def test_the_gallerys_formulas_are_true(name: str) -> None:
    assert check_formulas(find_example(name).sheet, LANGUAGES) > 0

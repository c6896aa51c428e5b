"""The tree of every quantity, as the author lays matrices out, has the quantity's value."""

import itertools
import math

import pytest
import torch
from students import student_sheet

from vitral.explanation.examples.by_name import gallery
from vitral.explanation.examples.example import Example
from vitral.explanation.examples.file import parse_example
from vitral.explanation.expressions.primitives import hypotheses_of


def agree(example: Example) -> None:
    sheet = example.sheet
    for quantity in sheet.quantities:
        seen = sheet.conventions.seen(quantity.name, sheet.values[quantity.name])
        made = sheet.writer.value(sheet.tree(quantity.name)).expand(seen.shape)
        torch.testing.assert_close(made, seen, atol=1e-12, rtol=1e-12, msg=quantity.name)


@pytest.mark.parametrize("name", gallery())
def test_in_the_gallery(name: str) -> None:
    agree(parse_example(gallery()[name]))


@pytest.mark.parametrize("seed", range(60))
def test_on_sheets_at_random(seed: int) -> None:
    agree(parse_example(student_sheet(seed).text))


def test_a_beam_as_wide_as_all_texts_finds_the_most_probable_and_of_equal_ones_the_first() -> None:
    table = torch.softmax(torch.randn(3, 3, generator=torch.Generator().manual_seed(2)).double(), -1)
    texts = list(itertools.product(range(3), repeat=3))
    chances = {text: math.prod(float(table[pair]) for pair in itertools.pairwise((1, *text))) for text in texts}
    words, scores = hypotheses_of(table, 1, 27, 3)
    assert list(map(tuple, words.tolist())) == sorted(texts, key=lambda text: -chances[text])
    assert scores.exp().tolist() == pytest.approx(sorted(chances.values(), reverse=True))
    assert hypotheses_of(torch.full((3, 3), 1 / 3).double(), 1, 2, 2)[0].tolist() == [[0, 0], [0, 1]]

"""The tree of every quantity, as the author lays matrices out, has the quantity's value."""

import pytest
import torch
from students import student_sheet

from vitral.explanation.examples.by_name import gallery
from vitral.explanation.examples.example import Example
from vitral.explanation.examples.file import parse_example
from vitral.runs.presets import preset_model


def agree(example: Example) -> None:
    sheet = example.sheet
    for quantity in sheet.quantities:
        seen = sheet.conventions.seen(quantity.name, sheet.values[quantity.name])
        made = sheet.writer.value(sheet.tree(quantity.name)).expand(seen.shape)
        torch.testing.assert_close(made, seen, atol=1e-12, rtol=1e-12, msg=quantity.name)


@pytest.mark.parametrize("name", gallery())
def test_in_the_gallery(name: str) -> None:
    agree(parse_example(gallery()[name], preset_model))


@pytest.mark.parametrize("seed", range(60))
def test_on_sheets_at_random(seed: int) -> None:
    agree(parse_example(student_sheet(seed).text, preset_model))

"""The grid of numbers, and that of heads by kind of key."""

from typing import Any

import pytest

from vitral.report.grid import head_grid, value_grid
from vitral.report.style import svg_bytes


def test_a_grid_writes_its_numbers() -> None:
    values: list[list[float | None]] = [[0.25, None], [0.5, 0.125]]
    svg = svg_bytes(value_grid(values, ["a", "b"], ["x", "y"], "share", apart=[1], title="T"))
    assert [words in svg.decode() for words in ("0.25", "0.50", "0.12", "nan")] == [True, True, True, False]
    assert svg == svg_bytes(value_grid(values, ["a", "b"], ["x", "y"], "share", apart=[1], title="T"))


def heads(layers: int, num: int) -> dict[str, Any]:
    head = {"name": "near", "share": {"near": 0.5, "line": None}}
    return {"uniform": {"near": 0.1, "line": None}, "layers": [{"heads": [head] * num}] * layers}


@pytest.mark.parametrize(("layers", "num", "drawn"), [(2, 3, 6), (4, 24, 48), (1, 70, 63)])
def test_heads_of_the_first_layers_are_drawn_beside_uniform_attention(layers: int, num: int, drawn: int) -> None:
    figure, number = head_grid(heads(layers, num), "T")
    assert number == drawn
    svg = svg_bytes(figure).decode()
    last = (drawn - 1) // num
    for words in ("block 0, head 0: near", f"block {last}, head {min(num, drawn) - 1}: near", "uniform attention"):
        assert words in svg
    assert f"block {last + 1}, " not in svg

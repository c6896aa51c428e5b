"""The grid of numbers."""

from vitral.report.grid import value_grid
from vitral.report.style import svg_bytes


def test_a_grid_writes_its_numbers() -> None:
    values: list[list[float | None]] = [[0.25, None], [0.5, 0.125]]
    svg = svg_bytes(value_grid(values, ["a", "b"], ["x", "y"], "share", title="T"))
    assert [words in svg.decode() for words in ("0.25", "0.50", "0.12", "nan")] == [True, True, True, False]
    assert svg == svg_bytes(value_grid(values, ["a", "b"], ["x", "y"], "share", title="T"))

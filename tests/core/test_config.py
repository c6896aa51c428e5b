"""Strict configuration: closed, frozen, one line for every mistake."""

from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import Field

from vitral.core.config import Config, merge, read_toml
from vitral.core.errors import UsageError


class Round(Config):
    name: Literal["round"] = "round"
    radius: float


class Square(Config):
    name: Literal["square"] = "square"
    side: int = 2


class Glass(Config):
    colour: Literal["red", "blue"] = "red"
    width: Annotated[int, Field(ge=1)] = 3
    shape: Annotated[Round | Square, Field(discriminator="name")] = Square()
    lead: Literal["none"] | Square = "none"
    panes: list[Square] = Field(default_factory=list)


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        ({"widht": 3}, "window: unknown key 'widht', did you mean 'width'?"),
        ({"zzz": 3}, "window: unknown key 'zzz', known: colour, lead, panes, shape, width"),
        ({"width": 0}, "window: width: input should be greater than or equal to 1, not 0"),
        ({"width": "3"}, "window: width: input should be a valid integer, not '3'"),
        ({"colour": "blu"}, "window: colour: 'blu' is not one of red, blue; did you mean 'blue'?"),
        ({"shape": {"name": "squar"}}, "window: shape: 'squar' is not one of round, square; did you mean 'square'?"),
        ({"shape": {"side": 3}}, "window: shape: the table needs a name"),
        ({"shape": {"name": "round"}}, "window: shape.radius: is required here"),
        ({"shape": {"name": "round", "radius": float("nan")}}, "window: shape.radius: input should be a finite number"),
        ({"shape": {"name": "round", "raduis": 1.0}}, "window: shape: unknown key 'raduis', did you mean 'radius'?"),
        ({"shape": "round"}, "window: shape: expected a name or a table, not 'round'"),
        ({"lead": "nome"}, "window: lead: 'nome' is not one of none; did you mean 'none'?"),
        ({"lead": {"sid": 3}}, "window: lead: unknown key 'sid', did you mean 'side'?"),
        ({"lead": {"side": 3.5}}, "window: lead.side: input should be a valid integer, not 3.5"),
        ({"lead": 7}, "window: lead: expected a table, not 7"),
        ({"panes": [{"side": 1}, {"side": "x"}]}, "window: panes.1.side: input should be a valid integer, not 'x'"),
    ],
)
def test_a_mistake_is_one_line_that_names_the_key(data: dict[str, Any], complaint: str) -> None:
    with pytest.raises(UsageError) as refused:
        Glass.parse(data, "window")
    assert str(refused.value).startswith(complaint)


def test_parse_gives_its_own_class_and_plain_gives_the_data_back() -> None:
    glass = Glass.parse({"shape": {"name": "round", "radius": 2.5}, "lead": {"side": 3}})
    assert isinstance(glass, Glass)
    assert glass.plain() == {
        "colour": "red",
        "width": 3,
        "shape": {"name": "round", "radius": 2.5},
        "lead": {"name": "square", "side": 3},
        "panes": [],
    }
    assert Glass.parse(glass.plain()) == glass


def test_layers_win_over_those_below() -> None:
    low = {"a": 1, "t": {"x": 1, "y": {"z": 1, "w": 2}}}
    assert merge(low, {"t": {"y": {"z": 5}}}, {"a": 7}) == {"a": 7, "t": {"x": 1, "y": {"z": 5, "w": 2}}}
    assert low == {"a": 1, "t": {"x": 1, "y": {"z": 1, "w": 2}}}
    assert merge({"t": 3}, {"t": {"x": 1}}) == {"t": {"x": 1}}
    assert merge({"t": {"x": 1}}, {"t": 3}) == {"t": 3}
    merge(low)["t"]["x"] = 2
    assert low["t"] == {"x": 1, "y": {"z": 1, "w": 2}}


def test_another_part_replaces_the_one_below() -> None:
    below = {"mask": {"name": "window", "size": 3}}
    assert merge(below, {"mask": {"name": "prefix", "length": 2}}) == {"mask": {"name": "prefix", "length": 2}}
    assert merge(below, {"mask": {"name": "window", "size": 5}}) == {"mask": {"name": "window", "size": 5}}
    assert merge(below, {"mask": {"size": 5}}) == {"mask": {"name": "window", "size": 5}}


def test_toml_that_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    with pytest.raises(UsageError, match=r"cannot be read \(No such file"):
        read_toml(path)
    path.write_bytes(b'a = "\xff"')
    with pytest.raises(UsageError, match="not UTF-8 at byte 5"):
        read_toml(path)
    path.write_text("a = 1\nb = =\n", encoding="utf-8")
    with pytest.raises(UsageError, match=r"not TOML: .*line 2"):
        read_toml(path)
    path.write_text("a = 1\n[b]\nc = 'é'\n", encoding="utf-8")
    assert read_toml(path) == {"a": 1, "b": {"c": "é"}}

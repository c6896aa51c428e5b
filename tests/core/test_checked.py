"""Checked calls: a value of another kind is one line that names function and argument; all else passes unchanged."""

import inspect
import pickle
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pytest
import torch
from jaxtyping import Float, Int
from torch import Tensor

import vitral
from vitral.core.checked import Count, Finite, Natural, Share, Within, checked, fits
from vitral.core.errors import UsageError


@checked
def product(rows: Float[Tensor, "time width"], columns: Float[Tensor, "width out"], *, times: int = 1) -> Tensor:
    """A product."""
    return times * (rows @ columns)


@checked
def halves(numbers: Sequence[int], share: Share = 0.5) -> list[float]:
    return [number * share for number in numbers]


@checked
class Counter:
    def __init__(self, start: Natural = 0) -> None:
        self.start = start

    def up(self, by: Count) -> int:
        return self.start + by

    @classmethod
    def at(cls, start: Natural) -> "Counter":
        return cls(start)

    @staticmethod
    def names(known: Mapping[str, int]) -> list[str]:
        return sorted(known)


def refused(call: Callable[[], Any]) -> str:
    with pytest.raises(UsageError) as error:
        call()
    assert str(error.value).isprintable()
    return str(error.value)


def test_the_line_names_function_and_argument() -> None:
    rows = torch.zeros(2, 3)
    for call, words in (
        (lambda: product(torch.zeros(2, 3, dtype=torch.int64), torch.zeros(3, 1)), ("product: rows:", "int64 [2, 3]")),
        (lambda: product(rows, torch.zeros(4, 1)), ("product: columns:", "[4, 1]", "rows float32 [2, 3]")),
        (lambda: product(rows, rows.T, times=None), ("product: times:", "None")),  # pyright: ignore
        (lambda: product(rows, rows.T, tims=2), ("product:", "'tims'", "'times'")),  # pyright: ignore
        (lambda: halves([1], 1.5), ("halves: share:", "1.5")),
        (lambda: halves([1], float("nan")), ("halves: share:", "nan")),
        (lambda: Counter(-1), ("Counter: start:", "-1")),
        (lambda: Counter(1).up(0), ("Counter.up: by:", "0")),
        (lambda: Counter.at(1.5), ("Counter.at: start:", "1.5")),  # pyright: ignore
        (lambda: Counter.names({1: 2}), ("Counter.names: known:",)),  # pyright: ignore
    ):
        line = refused(call)
        assert all(word in line for word in words), line


def test_what_is_right_passes_unchanged() -> None:
    assert product(torch.eye(2), torch.eye(2), times=2).trace() == 4
    assert halves(range(3)) == [0, 0.5, 1]
    assert halves(np.array([4])) == [2]  # pyright: ignore
    assert Counter.at(np.int64(3)).up(1) == 4  # pyright: ignore
    assert product.__doc__ == "A product."
    assert list(inspect.signature(product).parameters) == ["rows", "columns", "times"]
    assert pickle.loads(pickle.dumps(product)) is product


FITTING: list[tuple[Any, Any]] = [
    (1, int),
    (np.int32(1), int),
    (1, float),
    (np.float32(1), float),
    (None, int | None),
    ("a", Literal["a", "b"]),
    ("x", Path),
    (Path(), str | Path),
    ([1, 2], Sequence[int]),
    (np.zeros(3), Sequence[float]),
    ([1, 2], tuple[int, ...]),
    ([("a", 1.0)], Sequence[tuple[str, float]]),
    ({"a": 1}, Mapping[str, Any]),
    (len, Callable[[str], int]),
    (torch.zeros(1, 2), Float[Tensor, "a b"]),
    (object(), Any),
    (3, Annotated[int, Within(1, 3)]),
    (-1e300, Finite),
]
UNFIT: list[tuple[Any, Any]] = [
    (True, int),
    (1.0, int),
    (True, float),
    ("1", float),
    (None, int),
    ("c", Literal["a", "b"]),
    (1, str | Path),
    ("ab", Sequence[str]),
    ([1, None], Sequence[int]),
    (np.array(1), Sequence[int]),
    ({1, 2}, tuple[int, ...]),
    ([("a", 1.0, 2)], Sequence[tuple[str, float]]),
    ({1: 1}, Mapping[str, Any]),
    (3, Callable[[str], int]),
    (torch.zeros(2), Float[Tensor, "a b"]),
    (torch.zeros(2, 2), Int[Tensor, "a b"]),
    (4, Annotated[int, Within(1, 3)]),
    (float("inf"), Finite),
    (10**400, Finite | Natural),
]


def test_values_fit_their_hints_or_not() -> None:
    assert [(value, hint) for value, hint in FITTING if not fits(value, hint)] == []
    assert [(value, hint) for value, hint in UNFIT if fits(value, hint)] == []


def test_every_function_of_the_face_is_checked() -> None:
    public = [getattr(vitral, name) for name in vitral.__all__]
    assert [one.__name__ for one in public if inspect.isfunction(one) and not hasattr(one, "__checked__")] == []
    assert hasattr(vitral.Run.generate, "__checked__")

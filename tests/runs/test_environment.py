"""An environment names what the bits of a run depend on, and a difference is told in one line."""

import copy
from typing import Any

import pytest

from vitral.runs.environment import (
    COMPARED,
    ON_CUDA,
    describe_environment,
    environment_differences,
)

HERE = {**describe_environment(), "processor": "A", "accelerator": "G", "cuda": "13.0"}


def changed(key: str, value: Any) -> dict[str, Any]:
    """The environment with another value; None takes it away."""
    environment = copy.deepcopy(HERE)
    inner = environment["packages"] if key in environment["packages"] else environment
    inner[key] = value
    if value is None:
        del inner[key]
    return environment


@pytest.mark.parametrize("key", COMPARED)
def test_each_difference_is_told_by_both_values(key: str) -> None:
    other: Any = {"MKL_CBWR": "other"} if key == "dispatch" else "other"
    (line,) = environment_differences(changed(key, other), HERE)
    assert line.index("other") < line.index("→")
    (line,) = environment_differences(HERE, changed(key, other))
    assert line.index("other") > line.index("→")


@pytest.mark.parametrize("key", [*COMPARED, *ON_CUDA])
def test_a_key_missing_on_either_side_is_no_difference(key: str) -> None:
    assert environment_differences(changed(key, None), HERE, "cuda") == []
    assert environment_differences(HERE, changed(key, None), "cuda") == []


@pytest.mark.parametrize("key", ON_CUDA)
def test_the_gpu_counts_only_where_it_trains(key: str) -> None:
    assert environment_differences(changed(key, "other"), HERE) == []
    assert len(environment_differences(changed(key, "other"), HERE, "cuda")) == 1

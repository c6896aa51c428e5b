"""Former names keep working, with a warning at the line that uses them."""

import importlib
import sys
import warnings

import pytest

import vitral
from vitral import explanation


def test_the_former_package_of_explanations_has_the_names_of_the_present_one() -> None:
    given: dict[str, object] = {}
    with pytest.warns(DeprecationWarning, match=r"vitral\.explain is now called vitral\.explanation") as warned:
        exec(compile("from vitral.explain import walk_example", "own.py", "exec"), given)
    assert given["walk_example"] is explanation.walk_example
    assert {each.filename for each in warned} == {"own.py"}


def test_it_hides_no_name_of_the_library() -> None:
    importlib.import_module("vitral.explain")
    assert "explain" not in vars(vitral) or callable(vars(vitral)["explain"])


def test_unknown_names_are_unknown_and_nobody_is_warned_of_them() -> None:
    former = sys.modules["vitral.explain"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not hasattr(former, "__path__")
        with pytest.raises(AttributeError):
            former.nothing_of_this_name  # noqa: B018

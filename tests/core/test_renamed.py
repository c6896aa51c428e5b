"""Former names keep working, with a warning at the line that uses them."""

import pytest

from vitral import explanation


def test_the_former_package_of_explanations_has_the_names_of_the_present_one() -> None:
    given: dict[str, object] = {}
    with pytest.warns(DeprecationWarning, match=r"vitral\.explain is now called vitral\.explanation") as warned:
        exec(compile("from vitral.explain import walk_example", "own.py", "exec"), given)
    assert given["walk_example"] is explanation.walk_example
    assert {each.filename for each in warned} == {"own.py"}

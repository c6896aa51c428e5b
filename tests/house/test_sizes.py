"""Every room keeps its budget, and a budget follows its room down."""

import pytest
import sizes

BUDGETS = sizes.read()
MEASURED = sizes.sizes(BUDGETS)
ROWS = [(unit, name) for unit in ("tokens", "bytes") for name in BUDGETS[unit]]


@pytest.mark.parametrize(("unit", "name"), ROWS, ids=lambda each: each)
def test_a_room_keeps_its_budget(unit: str, name: str) -> None:
    size, budget = MEASURED[unit][name], BUDGETS[unit][name]
    assert size <= budget, f"{name} has {size} {unit}, its budget is {budget}"
    assert size >= 0.99 * budget - 10, f"{name} has become smaller: make sizes LOWER=--lower"


def test_every_room_has_a_budget() -> None:
    for base in ("src/vitral", "tests"):
        rooms = {path.relative_to(sizes.ROOT / base).parts[0] for path in (sizes.ROOT / base).rglob("*.py")}
        assert {f"{base}/{room}" for room in rooms} <= set(BUDGETS["tokens"])


def test_code_tokens_by_hand() -> None:
    source = (
        '"""Docstring."""\n\nfrom a import b  # comment\n\n\ndef f(x):\n    """One."""\n    return f"{x!r}: {b + 1}"\n'
    )
    assert sizes.code_tokens(source) == 4 + 6 + 2
    assert sizes.code_tokens('RULE = "a * b"\n', parsed=True) == 2 + 5


def test_code_bytes_leave_comments_out(tmp_path) -> None:
    path = tmp_path / "a.ts"
    path.write_text('/* x */const a = "// kept"; // gone\n', encoding="utf-8")
    assert sizes.code_bytes(path) == len('const a = "// kept"; \n')

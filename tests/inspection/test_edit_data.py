"""Edits as data: what they do to an activation, and what is refused, with its place."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from vitral.core.errors import UsageError
from vitral.inspection.edits import Edit, edited, editor, edits_of, existing, read_edits

HEADED = torch.randn(2, 3, 4, 5, generator=torch.Generator().manual_seed(1))
FLAT = HEADED[:, 0]
WRONG = [
    ("[", "not JSON"),
    ("{}", "expected a list"),
    ("[3]", "edits.0: expected a table"),
    ('[{"at": "embed"}]', "edits.0: do"),
    ('[{"at": "embed", "do": "zer"}]', "zero"),
    ('[{"at": "embed", "do": "scale"}]', "factor"),
    ('[{"at": "embed", "do": "zero", "factor": 1}]', "factor"),
    ('[{"at": "embed", "do": "set", "value": NaN}]', "edits.0: value"),
    ('[{"at": "embed", "do": "patch", "other": "x"}]', "edits.0: unknown key 'other'"),
    ('[{"at": "embed", "do": "zero", "positions": "some"}]', "edits.0: positions"),
    ('[{"at": "embed", "do": "zero", "positions": [1, -1]}]', "edits.0: positions"),
    ('[{"at": "embed", "do": "zero", "heads": []}]', "edits.0: heads"),
    ('[{"at": "embed", "do": "zero", "columns": [-1]}]', "edits.0: columns"),
    ('[{"at": "embed", "do": "zero"}, {"at": 3, "do": "zero"}]', "edits.1: at"),
    ("[" * 100_000, "not JSON"),
]


@pytest.mark.parametrize(("text", "where"), WRONG)
def test_what_is_no_edit_is_refused_in_one_line_with_its_place(text: str, where: str) -> None:
    with pytest.raises(UsageError, match=where):
        read_edits(text)


def test_edits_are_read_from_a_file_and_written_again(tmp_path: Path) -> None:
    plain = [
        {"at": "blocks.1.attn.z", "heads": [3], "positions": "all", "do": "zero"},
        {"at": "embed", "positions": [0, 2], "do": "patch", "from": "ação"},
        {"at": "logits", "positions": "all", "do": "scale", "factor": 0.5},
    ]
    (tmp_path / "edits.json").write_text(json.dumps(plain), encoding="utf-8")
    read = read_edits(str(tmp_path / "edits.json"))
    assert [edit.plain() for edit in read] == plain
    assert edits_of(plain) == read == edits_of(read)
    assert edits_of([{"at": "embed", "do": "zero", "positions": range(2), "heads": [1]}])[0].heads == (1,)
    (tmp_path / "edits.json").write_bytes(b"\xff\xfe")
    for missing in ("edits.json", "none.json", "."):
        with pytest.raises(UsageError, match=str(tmp_path)):
            read_edits(str(tmp_path / missing))


CHOICES = [(None, "all"), ([1], "all"), (None, [2]), ([2, 0], [3, 1])]


@pytest.mark.parametrize("columns", [None, [4, 1]])
@pytest.mark.parametrize(("heads", "positions"), CHOICES)
@pytest.mark.parametrize("kind", ["zero", "mean", "scale", "set", "patch"])
def test_the_chosen_numbers_change_as_told_and_no_others(
    kind: str, heads: list | None, positions: object, columns: list | None
) -> None:
    value = HEADED if heads is not None else FLAT
    other = torch.randn(value.shape, generator=torch.Generator().manual_seed(2))[:1]
    needs = {"scale": {"factor": -0.5}, "set": {"value": 7.0}, "patch": {"from": "x"}}.get(kind, {})
    edit = edits_of([{"at": "a", "do": kind, "heads": heads, "positions": positions, "columns": columns, **needs}])[0]
    made = edited(value, edit, other if kind == "patch" else None)
    for cell in np.ndindex(*value.shape):
        row, where = cell[:-2], cell[-2]
        chosen = (heads is None or cell[1] in heads) and (positions == "all" or where in positions)  # pyright: ignore
        chosen = chosen and (columns is None or cell[-1] in columns)
        expected = {
            "zero": 0.0,
            "mean": value[row].double().mean(dim=0)[cell[-1]].float(),
            "scale": value[cell] * -0.5,
            "set": 7.0,
            "patch": other[(0, *cell[1:])],
        }
        assert made[cell] == (expected[kind] if chosen else value[cell])
    assert value is made or not made.is_set_to(value)


def test_columns_that_do_not_exist_are_refused_and_those_of_later_keys_wait() -> None:
    with pytest.raises(UsageError, match=r"edits\.0: columns: a has 5"):
        editor(edits_of([{"at": "a", "do": "zero", "columns": [5]}]), {})("a", HEADED)
    of_keys = {"at": "blocks.0.attn.scores", "do": "zero", "columns": [1, 7]}
    assert existing(edits_of([of_keys]), 5)[0].columns == (1,)


def test_a_forbidden_key_stays_forbidden_and_is_not_in_the_mean() -> None:
    masked = torch.tensor([[[[2.0, -torch.inf, -torch.inf], [4.0, 1.0, -torch.inf], [6.0, 5.0, 9.0]]]])
    made = {
        kind: edited(masked, Edit(at="a", do=kind, **more))[0, 0].tolist()
        for kind, more in (("zero", {}), ("mean", {}), ("scale", {"factor": 0.0}), ("set", {"value": 3.0}))
    }
    no = -torch.inf
    assert made["zero"] == made["scale"] == [[0, no, no], [0, 0, no], [0, 0, 0]]
    assert made["mean"] == [[4, no, no], [4, 3, no], [4, 3, 9]]
    assert made["set"] == [[3, no, no], [3, 3, no], [3, 3, 3]]

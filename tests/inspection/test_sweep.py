"""The sweep of a model: every cell is the edited forward pass, nothing patched is 0 and everything patched is 1."""

from typing import Any

import pytest
from edited import edited_trace, encoded
from variants import TEXT, TOKENIZER, made

from vitral.core.errors import UsageError
from vitral.inspection.edits import edits_of
from vitral.inspection.sweep import sweep_places

OTHER = "abch\nba "


@pytest.mark.parametrize("by", ["layer", "head"])
@pytest.mark.parametrize("other", [OTHER, None])
@pytest.mark.parametrize("variant", ["grouped", "rotary", "post", "no residual", "no attention", "bidirectional"])
def test_every_cell_is_the_forward_pass_with_that_edit(variant: str, other: str | None, by: Any) -> None:
    model, how = made(variant), {"do": "patch", "from": other} if other else {"do": "zero"}
    if (variant, by) == ("no attention", "head"):
        with pytest.raises(UsageError, match="attention"):
            sweep_places(model, TOKENIZER, TEXT, other, by=by)
        return

    def difference(text: str, *edit: Any) -> float:
        logits = edited_trace(model, encoded(text), ["logits"], edits_of(edit), encoded)["logits"][0, -2]
        one, two = logits[TOKENIZER.encode("ba")].tolist()
        return one - two

    whole = difference(OTHER) - difference(TEXT) if other else 1
    for cell in sweep_places(model, TOKENIZER, TEXT, other, tokens=("b", "a"), by=by, position=-2).records():
        at, _, head = cell["place"].removesuffix("]").partition("[")
        edit = {"at": at, "heads": [int(head)] if head else None, "positions": [cell["position"]], **how}
        wanted = (difference(TEXT, edit) - difference(TEXT)) / whole
        assert cell["effect"] == pytest.approx(wanted, rel=1e-4, abs=1e-5)


def test_all_that_differs_is_restored_and_nothing_else() -> None:
    measured = sweep_places(made("rotary"), TOKENIZER, TEXT, TEXT[:-1] + "h").records()
    assert measured[7]["effect"] == pytest.approx(1, abs=1e-5)  # the embedding of the only token that differs
    assert {cell["effect"] for cell in measured if cell["position"] < 7} == {0.0}


@pytest.mark.parametrize(
    ("other", "how"),
    [("ab", {}), (TEXT, {}), (OTHER, {"tokens": "aa"}), (OTHER, {"by": "row"}), (OTHER, {"position": 8})],
)
def test_what_cannot_be_swept_is_refused(other: str, how: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        sweep_places(made("pre"), TOKENIZER, TEXT, other, **how)

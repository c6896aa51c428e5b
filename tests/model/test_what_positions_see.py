"""What each position's logits depend on: never the future, and order only where the model knows of order."""

import pytest
import torch
from small_models import lively, reached, tokens

TIME = 7
POSITIONS = ["learned", "sinusoidal", "rotary", "alibi", "relative", "none"]
PREFIX, WINDOW = {"name": "prefix", "length": 3}, {"name": "window", "size": 2}


@pytest.mark.parametrize("norm", ["pre", "post", "none"])
@pytest.mark.parametrize("positions", POSITIONS)
def test_no_future_token_changes_an_earlier_logit(positions: str, norm: str) -> None:
    scale = {"pre": "sqrt", "post": "adaptive", "none": "learned-per-head"}[norm]
    for mask in ("causal", WINDOW, PREFIX):
        model = lively(attention={"mask": mask, "scale": scale}, positions=positions, norm=norm)
        together = 3 if mask is PREFIX else 1
        for at in range(TIME):
            first = at if at >= together else 0
            result = reached(model, tokens(2, TIME), at)
            assert result[:first] == [False] * first
            assert result[at]
            if mask is PREFIX and at < together:
                assert result[0]
            if mask is WINDOW:  # two layers, each of which looks one position back
                assert result[at + 3 :] == [False] * (TIME - at - 3)


def test_bidirectional_attention_sees_everything() -> None:
    model = lively(attention={"mask": "bidirectional"})
    assert all(all(reached(model, tokens(2, TIME), at)) for at in range(TIME))


@pytest.mark.parametrize("positions", POSITIONS)
def test_without_attention_a_position_sees_its_own_token_only(positions: str) -> None:
    model = lively(attention="none", positions=positions)
    for at in range(TIME):
        assert reached(model, tokens(2, TIME), at) == [position == at for position in range(TIME)]


@pytest.mark.parametrize(
    ("mask", "positions", "expected"),
    [
        ("bidirectional", "none", True),
        ("causal", "none", False),
        *(("bidirectional", positions, False) for positions in POSITIONS[:-1]),
    ],
)
def test_only_without_positions_and_mask_is_order_nothing(mask: str, positions: str, expected: bool) -> None:
    """Permuted tokens give permuted logits: attention by itself is a function of sets."""
    model, ids = lively(attention={"mask": mask}, positions=positions), tokens(2, TIME)
    order = torch.tensor([3, 0, 6, 1, 5, 2, 4])
    with torch.inference_mode():
        assert torch.allclose(model(ids[:, order]), model(ids)[:, order], rtol=0, atol=1e-12) is expected


@pytest.mark.parametrize(
    ("positions", "same"),
    [("rotary", True), ("alibi", True), ("relative", True), ("learned", False), ("sinusoidal", False)],
)
def test_relative_positions_alone_do_not_know_where_a_window_begins(positions: str, same: bool) -> None:
    """Under a window of 2 and two layers, position 4 depends on tokens 2 … 4 only, wherever those stand."""
    model, ids = lively(attention={"mask": WINDOW}, positions=positions), tokens(2, TIME)
    with torch.inference_mode():
        assert torch.allclose(model(ids[:, 2:5])[:, 2], model(ids)[:, 4], rtol=0, atol=1e-12) is same

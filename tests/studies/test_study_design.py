"""Designs: what can be compared, what an arm's configuration becomes, how wide a matched arm is."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vitral.core.errors import UsageError
from vitral.model import ModelConfig, count_parameters
from vitral.studies import Study
from vitral.studies.resolution import matched_width, resolve
from vitral.training import RunConfig

VOCAB = 31
BASE = RunConfig.parse({"model": {"context_length": 7, "d_model": 12, "num_heads": 3, "num_layers": 2}})


def study(*arms: dict, **more) -> dict:
    """A design as plain data: a base and these arms."""
    base = {"name": "base", "title": "the base"}
    return {"name": "s", "title": "S", "question": "?", "arms": [base, *arms], **more}


def arm(name: str = "other", **changes) -> dict:
    """An arm that changes the model."""
    return {"name": name, "title": name, "changes": {"model": changes}}


@pytest.mark.parametrize(
    ("plain", "complaint"),
    [
        (study(), "at least two arms"),
        (study(arm(norm="post"), arm(norm="none")), "two arms are called 'other'"),
        (study({"name": "x", "title": "x"}), "'x' changes nothing"),
        (study({"name": "x", "title": "x", "changes": {"corpus": {"source": "y"}}}), "cannot change 'corpus'"),
        (study({"name": "x", "title": "x", "changes": {"seed": 3}}, varies_text=True), "cannot change 'seed'"),
        (study(arm(norm="post"), seeds=[]), "at least one"),
        (study(arm(norm="post"), seeds=[3, 3]), "3 is there twice"),
        (study(arm(norm="post"), seeds=[-1]), "greater than or equal to 0, not -1"),
        (study(arm("../up", norm="post")), "name"),
        ({**study(arm(norm="post")), "arms": [arm(norm="post"), arm("b", norm="none")]}, "is the base"),
    ],
)
def test_designs_that_compare_nothing_are_refused_in_one_line(plain: dict, complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        Study.parse(plain, "study")


@pytest.mark.parametrize(
    ("arms", "complaint"),
    [
        ([arm(norm="pre")], "'base' and 'other' have the same configuration"),
        ([arm(norm="post"), arm("again", norm="post")], "'other' and 'again' have the same configuration"),
        ([arm(norn="post")], "arm other: model: unknown key 'norn', did you mean 'norm'"),
        ([arm(num_heads=5)], "arm other"),
        ([{**arm(feed_forward="none", attention="none"), "match": "parameters"}], "no width"),
    ],
)
def test_arms_that_make_no_other_configuration_are_refused(arms: list[dict], complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        resolve(Study.parse(study(*arms)), BASE, VOCAB)


@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from(["gelu", "swiglu"]),
    st.integers(1, 3),
    st.booleans(),
    st.integers(0, 40_000),
)
def test_no_width_is_nearer_than_the_matched_one(feed_forward: str, layers: int, bias: bool, target: int) -> None:
    model = ModelConfig.parse(
        {"d_model": 6, "num_heads": 2, "num_layers": layers, "feed_forward": feed_forward, "bias": bias}
    )

    def miss(width: int) -> int:
        return abs(count_parameters(ModelConfig.parse(model.plain() | {"d_ff": width}), VOCAB) - target)

    width = matched_width(model, target, VOCAB)
    assert all(miss(width) <= miss(other) for other in range(max(1, width - 3), width + 4))

"""Designs: what can be compared, what an arm's configuration becomes, how wide a matched arm is."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vitral.core.errors import UsageError
from vitral.model import ModelConfig, Transformer, count_parameters
from vitral.studies import Study, read_study, study_named, study_names
from vitral.studies.design import check_seeds
from vitral.studies.resolution import first_difference, matched_width, resolve
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
        (study({"name": "x", "title": "x", "changes": {"seed": 3}}), "cannot change 'seed'"),
        (study({"name": "x", "title": "x", "changes": {"corpus": {"source": "y"}}}), "cannot change 'corpus'"),
        (study(arm(norm="post"), seeds=[]), "at least one"),
        (study(arm(norm="post"), seeds=[3, 3]), "3 is there twice"),
        (study(arm(norm="post"), seeds=[-1]), "-1 is negative"),
        (study(arm("A b", norm="post")), "name"),
        (study(arm("../up", norm="post")), "name"),
        (study(arm(norm="post"), colour="red"), "unknown key 'colour'"),
        ({**study(arm(norm="post")), "arms": [arm(norm="post"), arm("b", norm="none")]}, "is the base"),
    ],
)
def test_designs_that_compare_nothing_are_refused_in_one_line(plain: dict, complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint) as refused:
        Study.parse(plain, "study")
    assert "\n" not in str(refused.value)


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


def test_a_design_survives_its_plain_form() -> None:
    for name in study_names():
        found = study_named(name)
        assert Study.parse(found.plain()) == found


def test_a_study_of_ones_own_is_read_from_toml(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        """
        name = "mine"
        title = "Mine"
        question = "Does depth help?"
        seeds = [2, 3, 5]
        [[arms]]
        name = "two"
        title = "two blocks"
        [[arms]]
        name = "one"
        title = "one block, as many parameters"
        match = "parameters"
        changes.model.num_layers = 1
        """,
        encoding="utf-8",
    )
    _, one = resolve(read_study(path), BASE, VOCAB)
    assert one.config.model.num_layers == 1
    assert one.config.model.hidden_width > BASE.model.hidden_width
    path.write_text("name = 3", encoding="utf-8")
    with pytest.raises(UsageError, match=r"mine\.toml: "):
        read_study(path)


def test_an_unknown_study_offers_the_nearest() -> None:
    with pytest.raises(UsageError, match="did you mean 'no-attention'"):
        study_named("noattention")


def test_the_arms_of_no_attention_differ_from_the_base_only_where_they_say() -> None:
    full, without, matched, linear, *_ = resolve(study_named("no-attention"), BASE, VOCAB)
    assert full.config == BASE
    assert without.config.model.attention == matched.config.model.attention == "none"
    assert linear.config.model.feed_forward == "none"
    plain = BASE.plain()
    for other in (without, matched, linear):
        changed = {key for key, value in other.config.plain()["model"].items() if plain["model"].get(key) != value}
        assert changed <= {"attention", "feed_forward", "d_ff"}
        assert other.config.training == BASE.training
    assert without.num_parameters < full.num_parameters
    # One more unit of d_ff in each of two layers is two columns of d_model and a bias: half of that is the nearest.
    assert abs(matched.num_parameters - full.num_parameters) <= 2 * (2 * 12 + 1) / 2


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


@pytest.mark.parametrize("heads", [1, 4])
def test_an_lstm_without_a_feed_forward_is_matched_by_its_width(heads: int) -> None:
    lstm = {"attention": "none", "recurrence": "lstm", "positions": "none", "feed_forward": "none", "norm": "none"}
    changed = {**arm(**lstm, residual=False, num_heads=heads), "match": "parameters"}
    base, other = resolve(Study.parse(study(changed)), BASE, VOCAB)
    model = other.config.model
    assert model.d_model % heads == 0
    # 16 d² + 16 d in two LSTM layers, 2 V d in embedding and head: one step of the width is more than twice the miss.
    assert other.num_parameters == 2 * (8 * model.d_model**2 + 8 * model.d_model) + 2 * VOCAB * model.d_model
    step = 32 * heads * model.d_model + 16 * heads**2 + (16 + 2 * VOCAB) * heads
    assert 2 * abs(other.num_parameters - base.num_parameters) <= step


def test_counted_parameters_are_the_models_own() -> None:
    for resolved in resolve(study_named("no-attention"), BASE, VOCAB):
        model = Transformer(resolved.config.model, VOCAB)
        assert sum(parameter.numel() for parameter in model.parameters()) == resolved.num_parameters


def test_the_first_difference_is_named_by_its_path() -> None:
    assert first_difference({"a": {"b": 1, "c": [2]}}, {"a": {"b": 1, "c": [3]}}) == "a.c is [2] there and [3] here"
    assert first_difference({"a": 1}, {}) == "a is 1 there and not set here"
    assert first_difference({"a": {"b": 1}}, {"a": {"b": 1}}) == ""


def test_seeds_given_on_the_way_are_checked_too() -> None:
    with pytest.raises(UsageError, match="twice"):
        check_seeds((1, 2, 1))

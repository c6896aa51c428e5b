"""How often a text is seen, and how large the model is for it, decides dropout and weight decay."""

from hypothesis import given
from hypothesis import strategies as st

from tests.training.conftest import Bench, build
from vitral.model import count_parameters
from vitral.model.config import DropoutConfig, ModelConfig
from vitral.training.plans import resolve_plan
from vitral.training.regularisation import ROOMY, TABLE, most_passes, regularisation

SMALL = ModelConfig(d_model=16, num_layers=1, num_heads=2, d_ff=32)


@given(st.floats(0, 1000), st.floats(0, 1000), st.integers(1, 10**9))
def test_what_is_seen_more_often_is_regularised_no_less(passes: float, more: float, num_tokens: int) -> None:
    often, rarely = (regularisation(times, SMALL, num_tokens) for times in (passes + more, passes))
    assert often.rate >= rarely.rate
    assert often.weight_decay >= rarely.weight_decay
    assert often.most_passes >= rarely.most_passes
    assert regularisation(passes, SMALL, 1).rate >= regularisation(passes, SMALL, 10**9).rate


def test_the_most_passes_follow_the_dropout_and_the_room() -> None:
    parameters = count_parameters(SMALL, 1)
    few, many = int(parameters / ROOMY) - 1, parameters

    def most(num_tokens: int, **rates: float) -> int:
        return most_passes(SMALL.model_copy(update={"dropout": DropoutConfig(**rates)}), num_tokens)

    for row in TABLE:
        assert most(many, **row.dropout) == row.most_passes > row.passes
        assert most(few, **row.dropout) == row.most_passes / 2
    assert most(many, feed_forward=0.9) == TABLE[-1].most_passes
    assert most(few, weights=0.05) == TABLE[0].most_passes / 2


def test_the_measured_speed_decides_how_often_a_text_is_seen(bench: Bench) -> None:
    """The text is as long as so many passes make it, in ten minutes of 600 steps."""
    bench.takes(lambda config, plan: 1.0)
    how = {"minutes": 10.0, "regularisation": "fit", "threads": 1}
    config = bench.configured(training=how, model={"d_model": 2, "num_heads": 1, "d_ff": 2})
    for times, row in ((0.5, TABLE[0]), (12, TABLE[1]), (30, TABLE[2])):
        num_tokens = int(600 * config.tokens_per_step / times)
        result = resolve_plan(config, build, num_tokens).config
        assert count_parameters(result.model, 1) < ROOMY * num_tokens
        assert result.model.dropout == DropoutConfig(**row.dropout)
        assert result.training.regularisation is None

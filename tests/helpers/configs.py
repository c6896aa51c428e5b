"""Any model of small sizes, drawn part by part."""

from typing import Any

from hypothesis import strategies as st

WINDOW = {"name": "window", "size": 3}
ROTARY = st.fixed_dictionaries(
    {
        "name": st.just("rotary"),
        "base": st.sampled_from([10_000.0, 7.0]),
        "fraction": st.sampled_from([0.7, 1]),
        "pairing": st.sampled_from(["halves", "interleaved"]),
    },
    optional={
        "scaling": st.sampled_from(
            [{"name": "linear", "factor": 3.0}, {"name": "llama3", "factor": 8.0, "original_context_length": 23}]
        )
    },
)


@st.composite
def configs(draw: st.DrawFn, *, one_token_at_a_time: bool = False) -> dict[str, Any]:
    """The settings of a model.

    Args:
        draw: of Hypothesis.
        one_token_at_a_time: only what the decoder of one token knows: no adaptive scale, no LSTM.
    """

    def one(*options: Any) -> Any:
        return draw(st.sampled_from(options))

    heads, kv_divisor = one((1, 1), (2, 1), (3, 3), (6, 3), (6, 2))
    masks = ("causal", WINDOW, ["causal", WINDOW], [WINDOW, "causal", {"name": "window", "size": 2}])
    scales = ("none", "sqrt", "learned", "learned-per-head", 0.5, *(() if one_token_at_a_time else ("adaptive",)))
    attention = {"mask": one(*masks), "scale": one(*scales)}
    kinds: list[dict[str, Any]] = [{"attention": attention}, {"attention": attention}, {"attention": "none"}]
    names: tuple[str, ...] = ("qkv", "output", "feed_forward", "norm", "head")
    chosen: dict[str, Any] = {
        "context_length": 11,
        "d_model": 5 * heads,
        "d_head": one(4, 6),
        "num_layers": 3,
        "num_heads": heads,
        "num_kv_heads": heads // kv_divisor,
        "d_ff": 7,
        "norm": one("pre", "post", "none"),
        "norm_type": one("layernorm", "rmsnorm"),
        "positions": draw(ROTARY | st.sampled_from(["learned", "sinusoidal", "alibi", "relative", "none"])),
        "feed_forward": one("gelu", "gelu_tanh", "relu", "squared_relu", "swiglu", "none"),
        "residual": one(True, False),
        "tie_head": one(True, False),
        **one(*kinds, *([] if one_token_at_a_time else [{"attention": "none", "recurrence": "lstm"}])),
    }
    bias = draw(st.booleans() | st.fixed_dictionaries(dict.fromkeys(names, st.booleans())))
    chosen["bias"] = bias if "recurrence" not in chosen else isinstance(bias, dict)
    if chosen["norm"] != "none":
        chosen |= {"norm_epsilon": one(1e-5, 0.03), "final_norm": one(True, False)}
    if chosen["norm"] != "post" and chosen["residual"] and "none" not in (chosen["attention"], chosen["feed_forward"]):
        chosen["parallel"] = one(True, False)
    if not one_token_at_a_time:
        chosen["embedding_norm"] = one(True, False)
        chosen["head_transform"] = one(True, False) and chosen["feed_forward"] not in ("swiglu", "none")
    return chosen


@st.composite
def encoder_decoders(draw: st.DrawFn) -> dict[str, Any]:
    """The settings of an encoder-decoder."""
    chosen = draw(configs().filter(lambda chosen: chosen["attention"] != "none"))
    return {**chosen, "shape": "encoder-decoder", "source_length": 5, "encoder_layers": draw(st.integers(0, 2))}

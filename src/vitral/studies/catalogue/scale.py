"""The scale of attention's scores: none, 1/√d_k, 1/d_k, learned, adaptive, at several widths of a head."""

from typing import Any

from vitral.studies.design import Arm, Budget, Study


def _scaled(scale: str) -> dict[str, Any]:
    return {"attention": {"scale": scale}}


def _one_wide_head(width: int, scale: str) -> dict[str, Any]:
    """One head as wide as the model."""
    return {"model": {"d_model": width, "num_heads": 1} | _scaled(scale)}


SCALE = Study(
    name="scale",
    title="The scale of attention's scores",
    question="What does dividing the scores by √d_k do, and what happens under other scales?",
    claim=(
        "For independent queries and keys of unit variance the scores have variance d_k; 1/√d_k brings it to 1 and "
        "1/d_k to 1/d_k. Without a scale the softmax saturates as d_k grows: its rows become one-hot, its Jacobian "
        "vanishes, and so do the gradients that reach the queries; with 1/d_k the weights stay uniform."
    ),
    design=(
        "Scores are measured directly on independent N(0, 1) queries and keys at d_k 16, 64, 256 and 1024, and in "
        "every model of the study, fresh and trained. Trained at quick: the base's d_k alone, under 1/√d_k, no scale, "
        "1/d_k, a learned scale for each head and the adaptive one. At standard also one learned scale a layer, and "
        "d_k 16, 64 and 256, each under 1/√d_k and without a scale; at full also d_k 1024, under these two. 1/d_k, "
        "learned and adaptive scales are trained at the base's d_k only. For d_k 16 and 64 the number of heads "
        "changes and d_model does not: parameters and counted operations stay what they are, so those arms are fair "
        "rivals. A head wider than the model cannot be had that way: at d_k 256 and 1024 the model is one head wide "
        "and has many times the parameters, and its recipe is the base's, which was not tuned for it; those arms are "
        "there to be compared with and without a scale. What each arm cost in time stands in the table of arms. "
        "Learned scales begin at 1/√d_k."
    ),
    arms=(
        Arm(name="sqrt", title="1/√d_k"),
        Arm(name="none", title="no scale", changes={"model": _scaled("none")}),
        Arm(name="linear", title="1/d_k", changes={"model": _scaled("linear")}),
        Arm(name="learned", title="learned, one a layer", changes={"model": _scaled("learned")}, budget="standard"),
        Arm(name="learned-per-head", title="learned, one a head", changes={"model": _scaled("learned-per-head")}),
        Arm(name="adaptive", title="adaptive", changes={"model": _scaled("adaptive")}, budget="standard"),
        Arm(name="d16", title="1/√d_k, d_k 16", changes={"model": {"num_heads": 8}}, budget="standard"),
        Arm(name="d64", title="1/√d_k, d_k 64", changes={"model": {"num_heads": 2}}, budget="standard"),
        Arm(
            name="d64-none",
            title="no scale, d_k 64",
            changes={"model": {"num_heads": 2} | _scaled("none")},
            against="d64",
            budget="standard",
        ),
        Arm(
            name="d16-none",
            title="no scale, d_k 16",
            changes={"model": {"num_heads": 8} | _scaled("none")},
            against="d16",
            budget="standard",
        ),
        Arm(
            name="d256",
            title="1/√d_k, d_k 256 (d_model 256)",
            changes=_one_wide_head(256, "sqrt"),
            budget="standard",
        ),
        Arm(
            name="d256-none",
            title="no scale, d_k 256 (d_model 256)",
            changes=_one_wide_head(256, "none"),
            against="d256",
            budget="standard",
        ),
        Arm(
            name="d1024",
            title="1/√d_k, d_k 1024 (d_model 1024)",
            changes=_one_wide_head(1024, "sqrt"),
            budget="full",
        ),
        Arm(
            name="d1024-none",
            title="no scale, d_k 1024 (d_model 1024)",
            changes=_one_wide_head(1024, "none"),
            against="d1024",
            budget="full",
        ),
    ),
    budgets={
        "quick": Budget(seeds=(1, 2, 3), changes={"training": {"evaluation_tokens": 50_000}}),
        "standard": Budget(seeds=(1, 2, 3)),
        "full": Budget(seeds=(1, 2, 3, 4, 5), changes={"training": {"steps": 1000, "evaluate_every": 500}}),
    },
    probes=("score-statistics", "saturation"),
    source=(
        "Course notes, document 001: Var(q·k) = d_k, 1 after 1/√d_k, 1/d_k after 1/d_k; saturated (one-hot) against "
        "uniform rows; the softmax Jacobian; training. Vaswani et al. 2017, §3.2.1, footnote 4."
    ),
)

"""The smaller choices in one table: head, activation, dropout, optimizer."""

from vitral.studies.design import Arm, Budget, Study

PARTS = Study(
    name="parts",
    title="The smaller choices, side by side",
    question="What do a tied head, the activation, dropout and the optimizer matter?",
    source="Course notes, documents 002 and 004: the head's matrix tied to the embedding's, or its own; dropout 0.2.",
    claim=(
        "A tied head saves parameters and, with a small vocabulary, should cost little; dropout should cost loss as "
        "long as a text is seen less than once; the optimizer should matter most in a short training."
    ),
    design=(
        "One model, each choice changed alone. The learning rates of the optimizers are those of Vitral's own recipes, "
        "not tuned for this study; AdamW has the warm-up, cosine and clipping without which it scatters at this "
        "length. SwiGLU has three matrices, so its width is two thirds, as is usual."
    ),
    arms=(
        Arm(name="base", title="own head, GELU, Muon, no dropout"),
        Arm(name="tied-head", title="tied head", changes={"model": {"tie_head": True}}),
        Arm(name="relu", title="ReLU", changes={"model": {"feed_forward": "relu"}}),
        Arm(
            name="squared-relu",
            title="squared ReLU",
            changes={"model": {"feed_forward": "squared_relu"}},
            budget="standard",
        ),
        Arm(name="swiglu", title="SwiGLU", changes={"model": {"feed_forward": "swiglu"}}, budget="standard"),
        Arm(name="dropout", title="dropout 0.2", changes={"model": {"dropout": 0.2}}),
        Arm(
            name="adamw",
            title="AdamW, warm-up, clipped",
            changes={
                "training": {
                    "optimizer": {"name": "adamw", "learning_rate": 3e-3, "weight_decay": 0.1},
                    "schedule": {"name": "cosine", "warmup_steps": 40, "final_fraction": 0.1},
                    "clip_norm": 1.0,
                }
            },
        ),
        Arm(name="no-biases", title="no biases", changes={"model": {"bias": False}}, budget="standard"),
    ),
    budgets={
        "quick": Budget(seeds=(1, 2, 3), changes={"training": {"evaluation_tokens": 50_000}}),
        "standard": Budget(seeds=(1, 2, 3), changes={"training": {"steps": 400, "evaluate_every": 200}}),
        "full": Budget(seeds=(1, 2, 3, 4, 5), changes={"training": {"steps": 3000, "evaluate_every": 500}}),
    },
)

"""One head to sixteen in the same width: what they attend to, how alike they are, what each is worth."""

from vitral.studies.design import Arm, Budget, Study

HEADS = Study(
    name="heads",
    title="How many heads, and what each does",
    question="Do several heads see several things, and does having more of them help?",
    claim=(
        "Heads with projections of their own can attend to different things at once, which one head's single average "
        "cannot (Vaswani et al. 2017, §3.2.2). At a fixed width more heads cost no parameters, but each is narrower."
    ),
    source=(
        "Course notes, documents 002 and 004: h heads with W_Q, W_K and W_V of their own, concatenated, times W_O; as "
        "dynamically weighted means."
    ),
    design=(
        "The width stays 128 and the parameters the same, so arms differ only in how the width is cut into heads. What "
        "a head attends to is measured beside uniform attention; what it is worth, by taking its output out of the "
        "trained model."
    ),
    arms=(
        Arm(name="heads-4", title="4 heads"),
        Arm(name="heads-1", title="1 head", changes={"model": {"num_heads": 1}}),
        Arm(name="heads-2", title="2 heads", changes={"model": {"num_heads": 2}}, budget="standard"),
        Arm(name="heads-8", title="8 heads", changes={"model": {"num_heads": 8}}, budget="standard"),
        Arm(name="heads-16", title="16 heads", changes={"model": {"num_heads": 16}}),
    ),
    budgets={
        "quick": Budget(seeds=(1, 2, 3), changes={"training": {"evaluation_tokens": 50_000}}),
        "standard": Budget(seeds=(1, 2, 3), changes={"training": {"steps": 400, "evaluate_every": 200}}),
        "full": Budget(seeds=(1, 2, 3, 4, 5), changes={"training": {"steps": 3000, "evaluate_every": 500}}),
    },
    probes=("head-patterns",),
)

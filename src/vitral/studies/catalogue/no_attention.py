"""The same model without attention, and without each of its other parts: what happens to training, and why it must."""

from vitral.studies.design import Arm, Budget, Study

NO_ATTENTION = Study(
    name="no-attention",
    title="The same model without attention",
    question="What happens to training when attention is taken out, and what is each other part worth?",
    source=(
        "Course notes, document 002, question 3: the same model is trained without attention, and what happens to it "
        "is asked."
    ),
    claim=(
        "Without attention each position computes its prediction from its own token (and its place in the window) "
        "alone, so such a model can learn which token follows which and nothing more: the test text's bigram entropy "
        "is a floor under its loss, whatever its size and however long it trains."
    ),
    design=(
        "One part is taken out at a time. An arm with fewer parameters is no fair rival, so attention's are given back "
        "in one arm as a wider feed-forward, and the feed-forward's in another as four more blocks."
    ),
    arms=(
        Arm(name="full", title="the full model"),
        Arm(name="no-attention", title="without attention", changes={"model": {"attention": "none"}}),
        Arm(
            name="no-attention-matched",
            title="without attention, as many parameters",
            changes={"model": {"attention": "none"}},
            match="parameters",
            budget="standard",
        ),
        Arm(name="no-feed-forward", title="without feed-forward", changes={"model": {"feed_forward": "none"}}),
        Arm(name="no-residual", title="without residual", changes={"model": {"residual": False}}),
        Arm(name="no-norm", title="without norms", changes={"model": {"norm": "none"}}),
        Arm(
            name="no-positions",
            title="without positions",
            changes={"model": {"positions": "none"}},
            budget="standard",
        ),
        Arm(
            name="no-feed-forward-deeper",
            title="without feed-forward, six blocks",
            changes={"model": {"feed_forward": "none", "num_layers": 6}},
            budget="standard",
        ),
    ),
    budgets={
        "quick": Budget(seeds=(1, 2, 3), changes={"training": {"evaluation_tokens": 50_000}}),
        "standard": Budget(seeds=(1, 2, 3), changes={"training": {"steps": 400, "evaluate_every": 100}}),
        "full": Budget(seeds=(1, 2, 3, 4, 5), changes={"training": {"steps": 3000, "evaluate_every": 500}}),
    },
)

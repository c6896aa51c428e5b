"""The same model without attention: what happens to training, and why it must."""

from vitral.studies.design import Arm, Study

NO_ATTENTION = Study(
    name="no-attention",
    title="The same model without attention",
    question="What happens to training when attention is taken out?",
    claim=(
        "Without attention each position computes its prediction from its own token (and its place in the window) "
        "alone, so such a model can learn which token follows which and nothing more: the test text's bigram entropy "
        "is a floor under its loss, whatever its size and however long it trains."
    ),
    arms=(
        Arm(name="full", title="the full model"),
        Arm(name="no-attention", title="without attention", changes={"model": {"attention": "none"}}),
        Arm(
            name="no-attention-matched",
            title="without attention, as many parameters",
            changes={"model": {"attention": "none"}},
            match="parameters",
        ),
        Arm(name="no-feed-forward", title="without feed-forward", changes={"model": {"feed_forward": "none"}}),
    ),
)

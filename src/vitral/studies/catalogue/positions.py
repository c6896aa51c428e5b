"""Ways to tell a model what comes before what: their loss, place by place, and what is left of it in longer texts."""

from vitral.studies.design import Arm, Budget, Study

POSITIONS = Study(
    name="positions",
    title="How a model knows what comes before what",
    question="What do positions bring, and does a model still work on texts longer than those it was trained on?",
    claim=(
        "Attention itself weighs a set and knows no order. A causal mask alone tells some, since each position sees "
        "another number of tokens; so without positions a model should know less of word order and do worse, but not "
        "lose it all. Kinds of positions that depend on distance alone should hold beyond the trained length, a table "
        "of learned places cannot."
    ),
    source=(
        "Course notes, documents 003 and 004: token and position embeddings, learned, fixed sines and cosines, or "
        "relative; without positions order is lost."
    ),
    design=(
        "One model, six kinds of positions, everything else alike. After training, the loss by position in the window "
        "on the test text; then the same model reads windows of twice (and four times) its length, and the same target "
        "tokens are scored at every place of the long window, so that only their place differs."
    ),
    arms=(
        Arm(name="learned", title="learned"),
        Arm(
            name="sinusoidal",
            title="sines and cosines",
            changes={"model": {"positions": "sinusoidal"}},
            budget="standard",
        ),
        Arm(name="rotary", title="rotary", changes={"model": {"positions": "rotary"}}),
        Arm(name="alibi", title="ALiBi", changes={"model": {"positions": "alibi"}}),
        Arm(name="relative", title="relative", changes={"model": {"positions": "relative"}}, budget="standard"),
        Arm(name="none", title="no positions", changes={"model": {"positions": "none"}}),
    ),
    budgets={
        "quick": Budget(seeds=(1, 2, 3), changes={"training": {"evaluation_tokens": 50_000}}),
        "standard": Budget(seeds=(1, 2, 3), changes={"training": {"steps": 400, "evaluate_every": 200}}),
        "full": Budget(seeds=(1, 2, 3, 4, 5), changes={"training": {"steps": 3000, "evaluate_every": 500}}),
    },
    probes=("by-position",),
)

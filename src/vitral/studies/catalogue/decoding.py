"""Every way to choose the next token, on the same prompts: what it repeats, how varied it is, what it copies."""

from vitral.studies.design import Arm, Budget, Study

DECODING = Study(
    name="decoding",
    title="Ways to choose the next token",
    question="What do greedy choice, beam search and the kinds of sampling do to the text one model writes?",
    claim=(
        "The likeliest text is not the most natural one: greedy choice and beam search should fall into loops, and "
        "sampling from a cut or cooled distribution should come nearer to the text itself (Holtzman et al. 2020)."
    ),
    source="Course notes, document 000: greedy, beam search, top-k, temperature.",
    design=(
        "One model, trained from each seed. Prompts are cut from the test text; each strategy continues all of them, "
        "and the test text's own continuations are measured in the same way: repetition, distinct n-grams, runs copied "
        "from the training text, and nats per token under the model and under a 5-gram model of the training text."
    ),
    arms=(Arm(name="base", title="the model"),),
    budgets={
        "quick": Budget(
            seeds=(1, 2, 3), changes={"training": {"steps": 600, "evaluate_every": 300, "evaluation_tokens": 50_000}}
        ),
        "standard": Budget(seeds=(1, 2, 3), changes={"training": {"steps": 2000, "evaluate_every": 1000}}),
        "full": Budget(seeds=(1, 2, 3, 4, 5), changes={"training": {"steps": 5000, "evaluate_every": 1000}}),
    },
    probes=("strategies",),
)

"""Characters, bytes and byte pairs at equal compute, in bits per character."""

from vitral.studies.design import Arm, Budget, BudgetName, Study


def _pairs(vocab_size: int, budget: BudgetName = "quick") -> Arm:
    return Arm(
        name=f"bpe-{vocab_size}",
        title=f"byte pairs ({vocab_size:,})",
        changes={"corpus": {"tokenizer": {"name": "bpe", "vocab_size": vocab_size}}},
        match="flops",
        budget=budget,
    )


TOKENS = Study(
    name="tokens",
    title="What a token is: characters, bytes, byte pairs",
    question="Which tokens predict the same text best for the same compute?",
    claim=(
        "Richer tokens help: a token of several characters lets a window of so many positions reach further back, and "
        "every prediction settles more of the text. They cost a larger table and a larger head, and each of them is "
        "seen more rarely."
    ),
    design=(
        "Losses of different tokens are not comparable, so all are told in bits per character of the whole test part, "
        "the same characters for all. The model inside is the same in all arms; each is trained for as many steps as "
        "its own head leaves of the base's operations, so an arm with a larger vocabulary makes fewer steps but may "
        "still read more text. Merges are learned from the training part alone."
    ),
    arms=(
        Arm(name="char", title="characters"),
        Arm(name="byte", title="bytes", changes={"corpus": {"tokenizer": {"name": "byte"}}}, match="flops"),
        _pairs(512),
        _pairs(1024),
        _pairs(2048, "standard"),
        _pairs(4096, "standard"),
    ),
    budgets={
        "quick": Budget(seeds=(1, 2, 3), changes={"training": {"evaluate_every": 240, "evaluation_tokens": 100_000}}),
        "standard": Budget(
            seeds=(1, 2, 3),
            changes={"training": {"steps": 960, "evaluate_every": 960, "schedule": {"warmup_steps": 40}}},
        ),
        "full": Budget(
            seeds=(1, 2, 3, 4, 5),
            changes={"training": {"steps": 4_000, "evaluate_every": 500, "schedule": {"warmup_steps": 200}}},
        ),
    },
    probes=("text-units",),
    unit="bits per character",
    varies_text=True,
    source=(
        "Course notes, documents 000 and 002: tokens are characters (109 with <PAD>); a more robust tokenisation may "
        "help coherence."
    ),
)

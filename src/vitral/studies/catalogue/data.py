"""How much text, and how varied a text, a model of one size needs at fixed steps."""

from vitral.studies.design import Arm, Budget, BudgetName, Study

ONE_PLAY = [["KING RICHARD THE THIRD", "THE TRAGEDY OF ROMEO AND JULIET"]]
HISTORIES = [
    ["THE FIRST PART OF KING HENRY THE FOURTH", "THE TRAGEDY OF JULIUS CAESAR"],
    ["KING RICHARD THE SECOND", "THE TRAGEDY OF ROMEO AND JULIET"],
]
"""The ten history plays of the First Folio stand together in the collection, but for the two Richards."""
ONE_PLAY_SHARE = 0.857
HISTORIES_SHARE = 0.107
"""With these, the play and the histories have as many training bytes as a thirty-second of everything, within 0.5 %."""


def _amount(parts: int, name: str, budget: BudgetName = "quick") -> Arm:
    return Arm(name=name, title=f"1/{parts} of the text", changes={"corpus": {"share": 1 / parts}}, budget=budget)


DATA = Study(
    name="data",
    title="How much text, and how varied",
    question="What do more text and more varied text bring at a fixed number of steps?",
    claim=(
        "More data and more varied data generalise better: from little text a model learns what is peculiar to it, "
        "which shows as a loss on the training part below the one on the test part."
    ),
    design=(
        "All arms make the same steps with the same model and are tested on the same bytes, drawn from all works. "
        "Shares are blocks of 5,000 characters drawn over the whole text, a smaller share inside a larger one. For "
        "variety the amount is held: a thirty-second of the text from one play (Richard III), from the ten history "
        "plays, and from all works. English with Portuguese is half of the English and half of Machado de Assis, so "
        "as much text as all of the English. Bytes are the tokens, so that no arm has a vocabulary of its own."
    ),
    arms=(
        Arm(name="all", title="all of the text"),
        _amount(2, "half", "standard"),
        _amount(4, "quarter", "standard"),
        _amount(8, "eighth"),
        _amount(16, "sixteenth", "standard"),
        _amount(32, "thirty-second"),
        Arm(
            name="one-genre",
            title="as much from ten history plays",
            changes={"corpus": {"passages": HISTORIES, "share": HISTORIES_SHARE}},
            against="thirty-second",
        ),
        Arm(
            name="one-play",
            title="as much from one play",
            changes={"corpus": {"passages": ONE_PLAY, "share": ONE_PLAY_SHARE}},
            against="thirty-second",
        ),
        Arm(
            name="english-portuguese",
            title="half English, half Portuguese",
            changes={"corpus": {"share": 0.5, "also": ["machado"]}},
        ),
    ),
    budgets={
        "quick": Budget(
            seeds=(1, 2, 3),
            changes={
                "corpus": {"tokenizer": {"name": "byte"}},
                "model": {"d_model": 96},
                "training": {"evaluate_every": 240, "evaluation_tokens": 100_000},
            },
        ),
        "standard": Budget(
            seeds=(1, 2, 3),
            changes={
                "corpus": {"tokenizer": {"name": "byte"}},
                "training": {"steps": 600, "evaluate_every": 600, "schedule": {"warmup_steps": 25}},
            },
        ),
        "full": Budget(
            seeds=(1, 2, 3, 4, 5),
            changes={
                "corpus": {"tokenizer": {"name": "byte"}},
                "training": {"steps": 4_000, "evaluate_every": 500, "schedule": {"warmup_steps": 200}},
            },
        ),
    },
    probes=("amounts",),
    varies_text=True,
    source="Course notes, document 004: knowledge comes from text; more varied data generalises better.",
)

"""What a small model of one text knows of its words: neighbours, senses, agreement, coreference."""

from vitral.studies.design import Arm, Budget, Study

MEANING = Study(
    name="meaning",
    title="What a model knows of words",
    question="Does a model learn from text alone which words are alike, which sense is meant, and which form is right?",
    claim=(
        "A word is known by the words beside it, so words of like meaning get like vectors. Attention mixes the "
        "context into a word's vector, so one word in two senses becomes two vectors, and a form can agree with a word "
        "further back. Without attention a position knows its own token alone."
    ),
    source=(
        "Course notes, document 004: the distributional hypothesis (banco with dinheiro or with jardim), agreement "
        "(keys ... are), coreference (it and chicken), sense (bank near pond)."
    ),
    design=(
        "A model whose tokens are pieces of words learned from the same text, with attention and without it: what the "
        "second lacks can come only from context. Likeness by counted contexts, shuffled words and pairs balanced so "
        "that chance is a half say what the numbers mean. The same model trained on Machado de Assis is asked in "
        "Portuguese; its words and pairs are others, so its numbers are not compared with the English ones."
    ),
    arms=(
        Arm(name="two-layers", title="two layers"),
        Arm(name="without-attention", title="without attention", changes={"model": {"attention": "none"}}),
        Arm(
            name="portuguese",
            title="two layers, on Machado de Assis (Portuguese)",
            changes={"corpus": {"source": "machado"}},
            compared=False,
        ),
    ),
    budgets={
        "quick": Budget(
            seeds=(1, 2, 3),
            changes={
                "corpus": {"tokenizer": {"name": "bpe", "vocab_size": 2048}},
                "training": {"evaluate_every": 240, "evaluation_tokens": 50_000},
            },
        ),
        "standard": Budget(
            seeds=(1, 2, 3),
            changes={
                "corpus": {"tokenizer": {"name": "bpe", "vocab_size": 4096}},
                "training": {"steps": 800, "evaluate_every": 400},
            },
        ),
        "full": Budget(
            seeds=(1, 2, 3, 4, 5),
            changes={
                "corpus": {"tokenizer": {"name": "bpe", "vocab_size": 4096}},
                "training": {"steps": 6000},
            },
        ),
    },
    probes=("meaning",),
    varies_text=True,
)

"""The mask: what may be seen, what that leaks, and what a model can then be used for."""

from typing import Any

from vitral.studies.design import Arm, Budget, Study

PREFIX = 32
"""Half of the base's context."""
LONGER = 1600
"""Steps of the arm that is to make up for this: a model that fills blanks learns from a sixth of a window's tokens."""


def _seen(mask: Any) -> dict[str, Any]:
    return {"model": {"attention": {"mask": mask}}}


def _size(*seeds: int, **training: int) -> Budget:
    """Rotary positions for all arms, so that the arm that fills blanks gets anywhere in as many steps."""
    changes: dict[str, Any] = {"model": {"positions": "rotary"}}
    return Budget(seeds=seeds, changes=changes | ({"training": training} if training else {}))


MASK = Study(
    name="mask",
    title="Which positions may see which",
    question="What does each mask let through, and what is a model good for under it?",
    claim=(
        "A causal mask lets no future token through, so a model can be trained on every next token at once and can "
        "generate, at a cost per token that grows with n when keys and values are kept. A bidirectional mask shows "
        "each position its own answer: predicting the next token means nothing under it. Trained to fill blanks "
        "instead, it uses both sides of a gap, but each new token changes all of the past, so a cache is no use. A "
        "prefix mask has both sides inside the prefix and generates after it."
    ),
    design=(
        "Four models on the same batches: causal; bidirectional, trained to fill blanks (15% of the tokens of a window "
        "are hidden; Devlin et al. 2019, simplified); prefix, the first half of the window seen both ways and the next "
        "tokens of the second half predicted; and the leak, a bidirectional model trained on next tokens that it sees. "
        "Losses of the first and the third are of next tokens, though the third's only of those after its prefix, "
        "where the context is longer; the second's are of hidden tokens and the fourth's of tokens it is shown, so "
        "these are not compared: what the models can do is compared use by use, on the same passages. In as many "
        "steps a model that fills blanks has learned from a sixth of the targets, so from the standard budget on "
        "there is one that is trained for 1,600 steps, the rest alike: nearly seven times the 240 of the others at the "
        "standard budget, 1.6 times their 1,000 at the full one. Positions are rotary in all arms: a model that fills "
        "blanks has to find its neighbours by their places; in a trial with learned positions it had learned little "
        "more than the frequencies of characters after 900 steps. Copying over a distance and the cost of a token by "
        "length are measured on small models of their own."
    ),
    arms=(
        Arm(name="causal", title="causal"),
        Arm(
            name="bidirectional",
            title="bidirectional, fills blanks",
            changes={**_seen("bidirectional"), "training": {"objective": {"name": "masked", "rate": 0.15}}},
            compared=False,
        ),
        Arm(
            name="bidirectional-long",
            title=f"bidirectional, fills blanks, {LONGER:,} steps",
            changes={
                **_seen("bidirectional"),
                "training": {"objective": {"name": "masked", "rate": 0.15}, "steps": LONGER},
            },
            compared=False,
            budget="standard",
        ),
        Arm(
            name="prefix",
            title="prefix of half the window",
            changes=_seen({"name": "prefix", "length": PREFIX}),
            compared=False,
            budget="standard",
        ),
        Arm(
            name="leak",
            title="bidirectional, “predicts” what it sees",
            changes={**_seen("bidirectional"), "training": {"allow_leak": True}},
            compared=False,
        ),
    ),
    budgets={
        "quick": _size(1, 2, 3, evaluate_every=240, evaluation_tokens=50_000),
        "standard": _size(1, 2, 3),
        "full": _size(1, 2, 3, 4, 5, steps=1000, evaluate_every=500),
    },
    probes=("uses", "copying", "cost-by-length"),
    source=(
        "Course notes, documents 000 to 004: causal, bidirectional and hybrid masks; no future token leaks; causal "
        "for generation, bidirectional for classification and filling gaps; O(n) per token with a cache against "
        "O(n²); long-range dependence; parallel training. Vaswani et al. 2017, §3.2.3; Devlin et al. 2019, "
        "§3.1; Raffel et al. 2020."
    ),
)

"""What a trained model can be used for under its mask: the leak, filling a gap, continuing, telling works apart."""

from collections.abc import Mapping
from dataclasses import asdict

from vitral.core.errors import UsageError
from vitral.studies.probes.flow import Asked, answers, continuing, filling, leak, pooled, spread_windows
from vitral.studies.probes.linear import Sample, frequencies, probe
from vitral.studies.probes.protocol import BudgetName, Plain, RunProbe, Trained
from vitral.studies.probes.uses_shown import NAME, show
from vitral.studies.probes.works import labelled
from vitral.training import TrainingConfig
from vitral.training.objectives import masking_of

GAPS: Mapping[BudgetName, int] = {"quick": 64, "standard": 384, "full": 1_000}
"""Windows with a gap: by the chain rule each costs as many passes as there are tokens."""
CONTEXTS: Mapping[BudgetName, int] = {"quick": 1_000, "standard": 4_000, "full": 10_000}
LEAST_CONTEXT = 5
"""Tokens, so that there are two places with a token after them, and a gap with two sides."""
LEAST_WINDOWS = 2
"""A window's next token is changed to that of another window."""
LEAKING = 256
"""Windows whose next token is changed."""
PER_WORK: Mapping[BudgetName, dict[str, int]] = {
    "quick": {"train": 150, "validation": 50, "test": 60},
    "standard": {"train": 400, "validation": 80, "test": 120},
    "full": {"train": 1_000, "validation": 80, "test": 120},
}


def measure(trained: Trained) -> Plain:
    """All four uses, on passages of the test part.

    The gap and what is to be continued stand in the middle of the context, at the first token after half of it, or
    later where a longer prefix would show it. To the right of the gap an eighth of the context is given. `targets` are
    the tokens of a window that a training step asks for.

    Raises:
        UsageError: the context is too short, the prefix leaves nothing behind it, or the test part has no two windows.
    """
    model, tokenizer = trained.run.model, trained.run.tokenizer
    training = TrainingConfig.parse(trained.run.config["training"], f"arm {trained.arm}")
    masking = masking_of(training.objective, tokenizer)
    asked = Asked(model, None if masking is None else masking.token, tuple(tokenizer.specials))
    time, part = model.config.context_length, trained.dataset.splits["test"]
    if time < LEAST_CONTEXT:
        raise UsageError(f"a context of {time} tokens has no room for a gap and two sides; {LEAST_CONTEXT} are needed")
    if asked.first_target + 1 > time - 2:
        raise UsageError(f"what the mask shows leaves no room for a gap and a right side in {time} tokens")
    gap = max(time // 2, asked.first_target + 1)
    end = min(gap + 1 + max(1, time // 8), time)
    contexts = spread_windows(part, time, CONTEXTS[trained.budget])
    if len(contexts) < LEAST_WINDOWS:
        raise UsageError(
            f"the test part has {len(contexts)} whole windows of {time} tokens; {LEAST_WINDOWS} are needed"
        )
    windows = spread_windows(part, time, GAPS[trained.budget])[:, :end]
    both = filling(asked, windows, gap)
    positions = {"early": time // 4, "late": 3 * time // 4}
    return {
        "context": time,
        "gap": gap,
        "right": end - gap - 1,
        "targets": time - asked.first_target if masking is None else masking.count(time),
        "leak": {
            name: leak(asked, contexts[:: max(1, len(contexts) // LEAKING)], place) for name, place in positions.items()
        },
        "filling": {
            "both": None if both is None else answers(both, windows[:, gap]),
            "left": answers(continuing(asked, windows[:, :gap]), windows[:, gap]),
        },
        "continuing": answers(continuing(asked, contexts[:, :gap]), contexts[:, gap]),
        "classifying": _classifying(trained, time),
    }


def _classifying(trained: Trained, time: int) -> Plain | None:
    """A linear probe on pooled activations, and one on token frequencies; None if no two works reach all parts."""
    model, counts = trained.run.model, PER_WORK[trained.budget]
    titles, are_works, parts = labelled(trained.dataset, time, counts)
    if len(titles) < 2 or not all(len(parts[part].works) for part in counts):
        return None
    activations = [Sample(pooled(model, parts[part].tokens), parts[part].works) for part in counts]
    letters = [Sample(frequencies(parts[part].tokens.numpy(), model.vocab_size), parts[part].works) for part in counts]
    return {
        "titles": list(titles),
        "works": are_works,
        "passages": {part: len(parts[part].works) for part in counts},
        "activations": asdict(probe(activations[0], activations[1], activations[2])),
        "frequencies": asdict(probe(letters[0], letters[1], letters[2])),
    }


USES = RunProbe(NAME, measure, show, seconds={"quick": 5, "standard": 12, "full": 40})

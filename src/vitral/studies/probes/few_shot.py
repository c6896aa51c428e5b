"""The probe `few-shot`: whether a passage is predicted better after examples of it than after controls."""

from vitral.core.language import N_
from vitral.inspection import few_shot_losses
from vitral.studies.probe import Axis, Course, Fixed, Plain, Probe, Quantity, Trained, Within, require_causal_lm

PASSAGES = (200, 400, 1000)
MOST_EXAMPLES = 3
NATS = "nats per token"
COUNTS = range(MOST_EXAMPLES + 1)
SAME, SHUFFLED = (
    [Quantity(title.format(n=count), f"losses/{kind}/{count}", NATS, "lower") for count in COUNTS]
    for kind, title in (
        ("same", N_("loss after {n} examples of the passage")),
        ("shuffled", N_("loss after {n} examples with their tokens shuffled")),
    )
)
CHANGES = [
    Quantity(
        N_("change of the loss by {n} examples of the passage").format(n=count),
        f"effects/same/{count}/increase",
        NATS,
        "lower",
    )
    for count in COUNTS
]
CONTROL = Quantity(
    N_("change of the loss by {n} shuffled examples").format(n=MOST_EXAMPLES),
    f"effects/shuffled/{MOST_EXAMPLES}/increase",
    NATS,
)


def measure(trained: Trained) -> Plain:
    """Losses of test passages after 0 to 3 examples of each kind; four passages fill the context."""
    require_causal_lm(trained)
    length = trained.model.config.context_length // (MOST_EXAMPLES + 1)
    given = {"length": length, "passages": trained.size(*PASSAGES), "most_examples": MOST_EXAMPLES}
    return few_shot_losses(trained.model, trained.test, **given)


PROBE = Probe(
    "few-shot",
    N_("Examples in a prompt"),
    measure,
    about=N_(
        "{passages} test passages of {length} tokens, each at the end of a window that holds three passages before it. "
        "Examples are the same passage; the controls are the same passage with its tokens in random order, and other "
        "passages of the text. All windows are equally long."
    ),
    tables=[SAME, SHUFFLED[1:]],
    contrasts=[Fixed((CHANGES[1], CHANGES[-1]), 0.0, N_("other passages")), Within(CHANGES[-1], CONTROL)],
    figure=Course(
        N_("Change of the loss by examples of the passage"),
        Axis(N_("examples in the prompt"), ticks=list(COUNTS)),
        Axis(N_("change of the loss (nats per token)")),
        lambda run: [(count, one.read(run)) for count, one in zip(COUNTS, CHANGES, strict=True)],
    ),
    seconds=(3, 6, 20),
)

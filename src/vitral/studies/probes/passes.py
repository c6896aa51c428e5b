"""The probe `passes`: test loss over the passes over a text, and the lowest on the way."""

from vitral.core.language import N_
from vitral.studies.probe import Against, Axis, Course, Plain, Probe, Quantity, Trained, baseline

NATS = "nats per token"
SEEN = Quantity(N_("passes"), "passes", digits=1)
TOKENS = Quantity(N_("training text"), "tokens", "tokens", digits=0)
LOWEST = Quantity(N_("lowest test loss"), "lowest", NATS, better="lower")
AFTER = Quantity(N_("passes at the lowest"), "after", digits=1)
LAST = Quantity(N_("last test loss"), "last", NATS, better="lower")


def measure(trained: Trained) -> Plain:
    """Size of the training text, passes over it, and the losses on the way, from the run's own evaluations.

    Returns:
        "tokens", "passes"; "curve", (passes, test loss) of each evaluation; "lowest", the test loss where the
        validation loss is lowest, so that the test part chooses nothing; "after", the passes there; "last", the last
        test loss.
    """
    tokens = len(trained.dataset.splits["train"].tokens)
    events = trained.run.folder.metrics("evaluation")
    per_step = trained.num_tokens / trained.run.config["training"]["steps"] / tokens
    found = [(one["step"] * per_step, one["validation_loss"], one["test_loss"]) for one in events]
    best = min(found, key=lambda one: one[1])
    return {
        "tokens": tokens,
        "passes": trained.num_tokens / tokens,
        "curve": [[passes, test] for passes, _, test in found],
        "lowest": best[2],
        "after": best[0],
        "last": found[-1][2],
    }


PROBE = Probe(
    "passes",
    N_("How often a text is read"),
    measure,
    about=N_(
        "All arms read equally many tokens, so a smaller text is read more often. The lowest loss is the test loss at "
        "the evaluation with the lowest validation loss, which one would keep. Losses are of the part of the test text "
        "that is measured while training."
    ),
    tables=[(TOKENS, SEEN, LOWEST, AFTER, LAST)],
    contrasts=[Against([LOWEST], baseline)],
    figure=Course(
        N_("Test loss over passes"),
        Axis(N_("passes over the training text"), log=True),
        Axis(N_("test loss (nats per token)")),
        lambda run: run["curve"],
    ),
)

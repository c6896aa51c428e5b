"""The probe `forgetting`: the loss on the text trained on first, before and after training on another."""

from vitral.core.language import N_
from vitral.data.batches import thinned
from vitral.evaluation import evaluate_split
from vitral.studies.probe import Against, Dots, Plain, Probe, Quantity, Trained, parent, require_causal_lm

MEASURED = (50_000, 100_000, 500_000)
"""Tokens of the first text."""
FIRST = Quantity(N_("loss on the first text"), "first_loss", "nats per token", better="lower")


def measure(trained: Trained) -> Plain:
    """Loss on the training text of the arm whose weights the run began from; on its own text without such an arm.

    The training text, and not a held-out part of it, since the test part of all arms is that of the second text. A part
    of it that is spread over all of it is read, the same before and after.
    """
    require_causal_lm(trained)
    text = trained.first or trained.dataset
    part = thinned(text.splits["train"], trained.size(*MEASURED))
    return {"first_loss": evaluate_split(trained.model, part, text.tokenizer).loss, "name": text.corpus_name}


PROBE = Probe(
    "forgetting",
    N_("Forgetting"),
    measure,
    about=N_(
        "A run that begins from another's weights goes on with another text. The loss on the first text is measured "
        "with the weights that the second training begins from and with those it ends with, on the same part of the "
        "text that the first training read."
    ),
    tables=[[FIRST]],
    contrasts=[Against([FIRST], parent)],
    figure=Dots(N_("Loss on the first text"), FIRST),
    seconds=(1, 2, 8),
)

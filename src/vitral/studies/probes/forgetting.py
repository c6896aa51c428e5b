"""The probe `forgetting`: the loss on the text trained on first, before and after training on another."""

from dataclasses import replace

from vitral.core.language import N_, _
from vitral.data.batches import thinned
from vitral.evaluation import evaluate_split
from vitral.figures.sections import Heading, Table
from vitral.studies import probe
from vitral.studies.losses import loss_quantity
from vitral.studies.probe import Arms, Plain, Quantity, StudyResult, Trained, View

MEASURED = (50_000, 100_000, 500_000)
"""Tokens of the first text."""
FIRST = Quantity(N_("loss on the first text"), "first_loss", "nats per token", better="lower")


def measure(trained: Trained) -> Plain:
    """Loss on the training text of the arm whose weights the run began from; on its own text without such an arm.

    The training text, and not a held-out part of it, since the test part of all arms is that of the second text. A part
    of it that is spread over all of it is read, the same before and after.
    """
    probe.require_causal_lm(trained)
    text = trained.first or trained.dataset
    part = thinned(text.splits["train"], trained.size(*MEASURED))
    return {"first_loss": evaluate_split(trained.model, part, text.tokenizer).loss, "name": text.corpus_name}


def view(result: StudyResult, arms: Arms) -> View:
    """A row and a comparison for each arm that begins from another: its first text before and after."""
    measured = {arm.name: arm for arm in probe.with_losses(result, arms)}
    pairs = [
        (arm, measured[parent])
        for arm in measured.values()
        if (parent := result.arm(arm.name).arm.init_from) is not None and parent in measured
    ]
    if not pairs:
        return View()
    how = _(
        "A run that begins from another's weights goes on with another text. The loss on the first text is measured "
        "with the weights that the second training begins from and with those it ends with, on the same part of the "
        "text that the first training read."
    )
    loss, rows = replace(loss_quantity(result), source="loss"), []
    for arm, parent in pairs:
        before, after = parent.mean(FIRST), arm.mean(FIRST)
        more = None if before is None or after is None else after - before
        rows.append((arm.title, parent.title, *map(FIRST.show, (before, after, more)), loss.show(arm.mean(loss))))
    columns = (_("arm"), _("begins from"), _("loss on the first text before"), _("after"), _("increase"), loss.label)
    table = Table(_("Loss on the first text, in nats per token. Means over seeds."), columns, tuple(rows))
    increases = [one for arm, parent in pairs for one in probe.against_base((parent, arm), FIRST)]
    return View((Heading(_("Forgetting")), how, table), increases)

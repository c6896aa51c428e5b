"""The probe `forgetting`: the loss on the text trained on first, before and after training on another."""

from dataclasses import replace

from vitral.core.language import N_, _
from vitral.data.batches import thinned
from vitral.evaluation import evaluate_split
from vitral.figures.sections import Heading, Paragraph, Section, Table
from vitral.studies import probe
from vitral.studies.claims import Comparison, Plain, Quantity
from vitral.studies.losses import loss_quantity
from vitral.studies.probe import ArmMeasures, Arms, Plot, Trained, View
from vitral.studies.results import StudyResult

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
    return {"first_loss": evaluate_split(trained.run.model, part, text.tokenizer).loss, "name": text.corpus_name}


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
    loss = replace(loss_quantity(result), source="loss")
    columns = (_("arm"), _("begins from"), _("loss on the first text before"), _("after"), _("increase"), loss.label)
    rows = tuple(_row(arm, parent, loss) for arm, parent in pairs)
    caption = _("Loss on the first text, in nats per token. Means over seeds.")
    sections: list[Section | Plot] = [Heading(_("Forgetting")), Paragraph(how), Table(caption, columns, rows)]
    return View(tuple(sections), tuple(_increase(arm, parent) for arm, parent in pairs))


def _row(arm: ArmMeasures, parent: ArmMeasures, loss: Quantity) -> tuple[str, ...]:
    before, after = parent.mean(FIRST), arm.mean(FIRST)
    more = None if before is None or after is None else after - before
    return (arm.title, parent.title, FIRST.show(before), FIRST.show(after), FIRST.show(more), loss.show(arm.mean(loss)))


def _increase(arm: ArmMeasures, parent: ArmMeasures) -> Comparison:
    return Comparison(arm.title, parent.title, FIRST, arm.values(FIRST), parent.values(FIRST), arm.name)

"""The probe `context`: the loss on the same targets from ever more tokens of context."""

from collections.abc import Mapping
from typing import Any

from vitral.core.language import N_, _
from vitral.figures.lines import Axis
from vitral.figures.sections import Heading
from vitral.inspection import loss_by_context
from vitral.studies import probe
from vitral.studies.probe import Arms, Plain, Quantity, StudyResult, Trained, View

TARGETS = (20_000, 50_000, 200_000)
NEAR = 16
"""Tokens of context that count as near."""
NATS = "nats per token"
EFFECTIVE = Quantity(N_("effective context (tokens)"), "effective", digits=1)


def measure(trained: Trained) -> Plain:
    """The loss by the amount of context on the test split."""
    probe.require_causal_lm(trained)
    return loss_by_context(trained.model, trained.test, most_targets=trained.size(*TARGETS))


def view(result: StudyResult, arms: Arms) -> View:
    """Loss and gain by the amount of context, and how far each arm looks."""
    amounts = sorted({amount for arm in arms for amount in arm.first["context"]})
    losses = {float(amount): _loss(_("loss"), amount) for amount in amounts}
    columns = [_loss(_span(amount), amount, unit="") for amount in amounts]
    far = probe.difference(_("gain from context beyond {n} tokens", n=NEAR), _loss("", NEAR), _loss("", amounts[-1]))
    gain = Quantity(far.name, far.source, NATS, "higher", 4)
    how = _(
        "Every target is predicted from the tokens just before it, and from no others; the targets are the same at "
        "every amount. The effective context is the amount beyond which the loss falls by at most 1% more (after "
        "Khandelwal et al. 2018)."
    )
    x = Axis(_("tokens of context, at most"), log=True, ticks=amounts)
    return View(
        (
            Heading(_("Loss by the amount of context")),
            how,
            *probe.mean_lines(
                "loss-by-context", _("Loss by context"), arms, losses, x, _("Means over seeds on the same targets.")
            ),
            probe.mean_table(_("Test loss (nats per token) by tokens of context, means over seeds"), arms, *columns),
            probe.mean_table(_("Means over seeds."), arms, gain, EFFECTIVE),
        ),
        probe.against_base(arms, gain, EFFECTIVE),
    )


def _span(amount: int) -> str:
    return str(amount) if amount < 3 else f"{amount // 2 + 1}\N{EN DASH}{amount}"


def _loss(name: str, amount: int, unit: str = NATS) -> Quantity:
    """The loss with at most so many tokens of context; None where the model does not read so many."""

    def read(run: Mapping[str, Any]) -> float | None:
        return run["nats"][run["context"].index(amount)] if amount in run["context"] else None

    return Quantity(name, read, unit, "lower")

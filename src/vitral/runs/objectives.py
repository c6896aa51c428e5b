"""What an objective is called and predicts, and its unit, without the configuration, which loads PyTorch."""

from typing import Any

from vitral.core.language import N_, _

_UNITS = {"masked": N_("nats per masked token"), "label": N_("nats per label")}


def objective_name(objective: Any) -> str:
    """The name of an objective, as an object or as plain data.

    >>> objective_name("next-token"), objective_name({"name": "masked"})
    ('next-token', 'masked')
    """
    return objective if isinstance(objective, str) else dict(objective)["name"]


def predicts_next(objective: Any) -> bool:
    """Whether a model with this objective predicts the next token, so that it continues a text."""
    return objective_name(objective) in ("next-token", "mixed")


def loss_unit(objective: Any) -> str:
    """The unit of a loss, by the training objective."""
    return _(_UNITS.get(objective_name(objective), N_("nats per token")))

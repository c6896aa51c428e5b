"""What an objective is called and predicts, without the configuration, which loads PyTorch."""

from typing import Any


def objective_name(objective: Any) -> str:
    """The name of an objective, as an object or as plain data.

    >>> objective_name("next-token"), objective_name({"name": "masked"})
    ('next-token', 'masked')
    """
    return objective if isinstance(objective, str) else dict(objective)["name"]


def predicts_next(objective: Any) -> bool:
    """Whether a model with this objective predicts the next token, so that it continues a text."""
    return objective_name(objective) in ("next-token", "mixed")

"""Dropout and weight decay: how strongly a run is kept from learning its text by heart.

How often the text is seen decides, and how large the model is for it. The table is measured (docs/internals).
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from vitral.core.config import merge
from vitral.model import count_parameters
from vitral.model.config import DropoutConfig, ModelConfig
from vitral.runs.config import RunConfig
from vitral.runs.optimizers import MuonConfig

ROOMY = 1.5
"""Parameters per token of the text from which on a model knows it by heart after half as many passes: then all numbers
of passes in the table count half."""


class Regularisation(NamedTuple):
    """How a run is regularised that sees its text so often.

    Attributes:
        passes: passes over the training text from which on it is used.
        dropout: the rates; on attention weights dropout is slow, and changes little.
        weight_decay: of the matrices, where Muon trains them.
        most_passes: passes after which more would only memorize the text.
    """

    passes: float
    dropout: Mapping[str, float]
    weight_decay: float
    most_passes: int

    @property
    def rate(self) -> float:
        """The highest rate of dropout."""
        return max(self.dropout.values(), default=0.0)

    def of(self, config: RunConfig, *, decays: bool) -> RunConfig:
        """The configuration with this dropout, and with this weight decay if that is not the user's."""
        layer: dict[str, Any] = {"model": {"dropout": DropoutConfig(**self.dropout).plain()}}
        if decays and isinstance(config.training.optimizer, MuonConfig):
            layer["training"] = {"optimizer": {"weight_decay": self.weight_decay}}
        return RunConfig.parse(merge(config.plain(), layer), "plan")


TABLE = (
    Regularisation(0, {}, 0.0, 8),
    Regularisation(7, {"embedding": 0.1, "attention": 0.1, "feed_forward": 0.1}, 0.0, 16),
    Regularisation(16, {"embedding": 0.1, "attention": 0.2, "feed_forward": 0.2}, 0.05, 40),
)
"""From a text that is seen rarely to one that is seen often."""


def regularisation(passes: float, model: ModelConfig, num_tokens: int) -> Regularisation:
    """What suits a model that sees a training text of so many tokens so often."""
    share = _share(model, num_tokens)
    return next((row for row in reversed(TABLE) if passes > share * row.passes), TABLE[0])


def most_passes(model: ModelConfig, num_tokens: int) -> int:
    """The number of passes over a text of so many tokens after which more would only memorize it."""
    highest = max(model.dropout.plain().values())
    row = next(row for row in reversed(TABLE) if highest >= row.rate)
    return round(_share(model, num_tokens) * row.most_passes)


def _share(model: ModelConfig, num_tokens: int) -> float:
    """The share of the passes in the table that this model takes."""
    return 0.5 if count_parameters(model, 1) > ROOMY * num_tokens else 1.0

"""The Transformer: configuration, embeddings, blocks, head, cache, parameter counts."""

from vitral.model.cache import KVCache
from vitral.model.config import ModelConfig
from vitral.model.counts import Cost, ParameterRow, cost, count_parameters, parameter_table
from vitral.model.positions import Positions
from vitral.model.transformer import Transformer, first_target, next_token_loss

__all__ = [
    "Cost",
    "KVCache",
    "ModelConfig",
    "ParameterRow",
    "Positions",
    "Transformer",
    "cost",
    "count_parameters",
    "first_target",
    "next_token_loss",
    "parameter_table",
]

"""The optimizer's own cost, computed from the configuration: the numbers it keeps."""

from collections.abc import Sequence

from vitral.model.counts import ParameterRow, is_block_matrix
from vitral.runs.config import MuonConfig, OptimizerConfig, SGDConfig


def kept_numbers(optimizer: OptimizerConfig, rows: Sequence[ParameterRow]) -> int:
    """Numbers in the optimizer's averages: two for each parameter of AdamW, one of Muon and of SGD with momentum.

    An own optimizer is taken to keep as much as AdamW. Numbers of steps are not counted.

    Args:
        optimizer: its configuration.
        rows: every learned tensor.
    """
    parameters = sum(row.count for row in rows)
    if isinstance(optimizer, SGDConfig):
        return parameters if optimizer.momentum else 0
    if isinstance(optimizer, MuonConfig):
        return 2 * parameters - sum(row.count for row in rows if is_block_matrix(row))
    return 2 * parameters

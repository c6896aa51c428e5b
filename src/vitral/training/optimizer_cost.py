"""The optimizer's own cost, computed from the configuration: the numbers it keeps and the operations of its step.

The products of matrices in Muon are counted exactly, as those of the model are. Everything else acts on each number
alone and is counted by its formula: it is small beside the model's work, which needs each weight once for every token.
"""

from collections.abc import Iterator, Sequence

from vitral.core.checked import Count
from vitral.model.config import ModelConfig
from vitral.model.counts import ParameterRow, cost, is_block_matrix, parameter_table
from vitral.model.recurrence import GATES
from vitral.runs.config import MuonConfig, OptimizerConfig, RunConfig, SGDConfig
from vitral.training.optimizers import POLYNOMIALS

ADAMW_OPERATIONS = 14
"""For each parameter: decay 1; mean of gradients 3, of squares 4; root, bias and epsilon 3; division and step 3."""
SGD_OPERATIONS = 2
"""For each parameter: the step, and as much again for each of momentum, Nesterov's form and weight decay."""
MUON_OPERATIONS = 12
"""For each parameter besides the products of matrices: two averages 3 each; decay 1; norm and division 3; step 2."""


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


def step_flops(config: RunConfig, vocab_size: int) -> int:
    """Floating-point operations of one step of training: forward and backward passes, and the optimizer's own.

    Args:
        config: configuration of the run.
        vocab_size: number of tokens in the vocabulary.
    """
    counted = cost(config.model, vocab_size)
    passes = config.tokens_per_step * (counted.forward_flops + counted.backward_flops)
    return passes + optimizer_flops(config, vocab_size)


def optimizer_flops(config: RunConfig, vocab_size: int) -> int:
    """Floating-point operations of one step of the optimizer; an own one is taken to need as many as AdamW.

    With `training.dtype = "bfloat16"` Muon's are those of a GPU or of a processor with a unit for matrices.

    Args:
        config: configuration of the run.
        vocab_size: number of tokens in the vocabulary.
    """
    rows, optimizer = parameter_table(config.model, vocab_size), config.training.optimizer
    parameters = sum(row.count for row in rows)
    if isinstance(optimizer, SGDConfig):
        decayed = sum(row.count for row in rows if len(row.shape) == 2) if optimizer.weight_decay else 0
        terms = 1 + bool(optimizer.momentum) + optimizer.nesterov
        return SGD_OPERATIONS * (terms * parameters + decayed)
    if not isinstance(optimizer, MuonConfig):
        return ADAMW_OPERATIONS * parameters
    moved = [row for row in rows if is_block_matrix(row)]
    inside = sum(row.count for row in moved)
    in_bfloat16 = config.training.dtype == "bfloat16"
    products = sum(orthogonalisation_flops(*shape, in_bfloat16=in_bfloat16) for shape in matrices(config.model, moved))
    return products + MUON_OPERATIONS * inside + ADAMW_OPERATIONS * (parameters - inside)


def orthogonalisation_flops(rows: Count, columns: Count, *, in_bfloat16: bool = False) -> int:
    """Floating-point operations of the products in `vitral.training.optimizers.orthogonalise` of one matrix.

    With n the smaller side, m the larger one and K iterations: K (4 n² m + 2 n³) if n = m or in bfloat16; else
    4 n² m + (8 K - 6) n³.
    """
    n, m, iterations = min(rows, columns), max(rows, columns), len(POLYNOMIALS)
    if in_bfloat16 or n == m:
        return iterations * (4 * n**2 * m + 2 * n**3)
    return 4 * n**2 * m + (8 * iterations - 6) * n**3


def matrices(model: ModelConfig, moved: Sequence[ParameterRow]) -> Iterator[tuple[int, int]]:
    """Rows and columns of the single matrices in these tensors; q, k and v are stacked, as are the gates of an LSTM."""
    d_kv = model.kv_heads * model.d_head
    for row in moved:
        height, width = row.shape
        if row.name.endswith("in_proj.weight"):
            parts = (model.num_heads * model.d_head, d_kv, d_kv)
        else:
            parts = (model.d_model,) * GATES if row.part == "recurrence" else (height,)
        for part in parts:
            yield part, width

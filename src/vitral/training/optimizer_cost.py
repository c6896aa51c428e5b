"""The operations of a step of training, computed from the configuration."""

from vitral.model.counts import cost, parameter_table
from vitral.runs.config import RunConfig


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
    """Floating-point operations of one step of the optimizer.

    With `training.dtype = "bfloat16"` Muon's are those of a GPU or of a processor with a unit for matrices.

    Args:
        config: configuration of the run.
        vocab_size: number of tokens in the vocabulary.
    """
    rows, in_bfloat16 = parameter_table(config.model, vocab_size), config.training.dtype == "bfloat16"
    return config.training.optimizer.flops(rows, config.model, in_bfloat16=in_bfloat16)

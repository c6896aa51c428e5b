"""The memory that training needs at least, computed from the configuration: no model is made."""

import math
from collections import Counter

import torch

from vitral.core.devices import resolve_device
from vitral.core.language import N_, _
from vitral.core.machine import require_memory
from vitral.model.config import DropoutConfig
from vitral.model.counts import (
    BYTES_FLOAT32,
    ParameterRow,
    cost,
    count_parameters,
    is_block_matrix,
    kept_per_token,
    parameter_table,
    plain_weights_per_token,
    single_matrices,
)
from vitral.model.transformer import first_target
from vitral.runs.config import RunConfig
from vitral.training import ranks

COPIES_OF_LOGITS = 3
"""At the start of the backward pass: log-probabilities, their gradient, and the gradient of the logits."""
COPIES_OF_MATRICES = {"float32": 3, "bfloat16": 2.5, "float64": 3}
"""While Muon orthogonalises matrices of one shape: stacked, scaled, and the result (in bfloat16: scaled, rounded)."""
LSTM_WORKSPACE = {"float32": 8, "bfloat16": 24, "float64": 0}
"""Vectors of d_model numbers that oneDNN keeps on the CPU per token of an LSTM, besides those it needs; measured."""
THIS, ON_THE_GPU = N_("training this model"), N_("training this model on the GPU")


def training_bytes(config: RunConfig, vocab_size: int, shares: int = 1, *, device: str | None = None) -> int:
    """Bytes that training needs at least at once, besides the program and the text.

    A lower bound: weights and the optimizer's state, and the larger of two moments. At the start of the backward pass:
    activations, logits and their gradients (and the gradients of earlier batches). In the optimizer's step: gradients
    and, for Muon, updates. Other temporary tensors are not counted, nor are activations of a compiled model, which the
    compiler may recompute.

    Args:
        config: configuration of the run.
        vocab_size: number of tokens in the vocabulary.
        shares: number of ranks that share out weights, gradients and optimizer; each has all weights at an evaluation.
        device: the type of the device, which need not be here; None: that of the configuration.
    """
    on_cpu = (device or resolve_device(config.training.device).type) == "cpu"
    model, training, rows = config.model, config.training, parameter_table(config.model, vocab_size)
    size = 2 * BYTES_FLOAT32 if training.dtype == "float64" else BYTES_FLOAT32
    weights = size * sum(row.count for row in rows)
    moved = training.optimizer.orthogonalised(rows)
    by_muon = size * sum(row.count for row in moved)
    optimizer = size * training.optimizer.kept_numbers(rows)
    backward = 0
    if not training.compile:
        mask = None if model.attention == "none" else model.attention.mask
        targets = training.batch_size * (model.context_length - first_target(mask))
        backward = _activations(config, vocab_size, rows, on_cpu=on_cpu)
        backward += COPIES_OF_LOGITS * targets * vocab_size * size
    if shares > 1:
        return (2 * weights + optimizer) // shares + max(weights, backward)
    earlier = (
        training.accumulation - 1
    )  # batches whose gradients are kept: in one sum, or in a sum for each 1 in base 2
    sums = max(earlier.bit_count(), earlier.bit_length() - 1) if training.is_canonical else min(1, earlier)
    backward += weights * sums
    stacks = Counter[tuple[int, ...]]()  # of Muon's matrices of one shape, whichever way they lie
    for shape in single_matrices(model, moved):
        stacks[tuple(sorted(shape))] += size * math.prod(shape)
    step = weights + by_muon + int(COPIES_OF_MATRICES[training.dtype] * max(stacks.values(), default=0))
    if training.steps == 1:  # the optimizer's state is made in the first step
        return weights + max(backward, optimizer + step)
    return weights + optimizer + max(backward, step)


def require_training_memory(config: RunConfig, vocab_size: int, where: str) -> None:
    """Refuse a training that cannot fit into the memory of its device, or its weights into that of the machine.

    Args:
        config: configuration of the run.
        vocab_size: number of tokens in the vocabulary.
        where: the file or option that asks for the training.

    Raises:
        UsageError: more is needed than there is, or the device does not exist.
    """
    device, here = resolve_device(config.training.device), ranks.on_this_machine()
    needed = training_bytes(config, vocab_size, ranks.size() if config.training.sharding == "sharded" else 1)
    if device.type == "cuda":
        require_memory(needed, where, _(ON_THE_GPU), there=torch.cuda.get_device_properties(device).total_memory)
        needed = BYTES_FLOAT32 * count_parameters(config.model, vocab_size)
    require_memory(here * needed, where, _(THIS))


def _activations(config: RunConfig, vocab_size: int, rows: list[ParameterRow], *, on_cpu: bool) -> int:
    """Activations of one batch without logits."""
    model, training = config.model, config.training
    tokens = training.batch_size * model.context_length
    # A GPU keeps dropout's masks as bits or bytes, and no attention weights.
    kept = kept_per_token(model if on_cpu else model.model_copy(update={"dropout": DropoutConfig()}))
    if on_cpu and model.recurrence is not None:
        kept += LSTM_WORKSPACE[training.dtype] * model.d_model * model.num_layers
    if model.encoder is not None:
        kept += kept_per_token(model.encoder) * model.encoder.context_length // model.context_length
    if training.dtype != "bfloat16":
        return tokens * kept * (8 if training.dtype == "float64" else 4)
    # Norms read a stream in float32, matrices are copied, and short contexts are attended to by plain products.
    norms = sum(row.part in ("norm", "final norm") and row.name.endswith("weight") for row in rows) * model.residual
    norms -= model.num_layers if model.parallel and model.norm == "pre" else 0  # both norms read one stream
    kept += norms * model.d_model
    kept += plain_weights_per_token(model) if on_cpu else 0
    copied = sum(row.count for row in rows if is_block_matrix(row) or row.part == "head")
    copied += vocab_size * model.d_model if model.tie_head else 0
    return 2 * (tokens * kept + copied)


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

"""Weights that several ranks share out by PyTorch's `fully_shard`: each holds some rows of every parameter.

The rows of a block are put together while it is computed, and the optimizer moves the rows of its rank. A checkpoint
has whole tensors, which rank 0 writes, so any number of ranks reads it.
"""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from torch import nn
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

from vitral.model import Transformer
from vitral.runs.config import TrainingConfig
from vitral.training.optimizers import Optimizers, load_optimizer_tensors, optimizer_of, optimizer_tensors


def shard(model: Transformer, optimizer: Optimizers, training: TrainingConfig) -> Optimizers:
    """Leave every rank some rows of the weights and of the optimizer's state, of which all ranks have the whole.

    Args:
        model: the model, whose parameters are others afterwards.
        optimizer: that of the parameters before.
        training: its options.

    Returns:
        The optimizer of the new parameters.
    """
    kept = optimizer_tensors(model, optimizer)
    for module in (*model.blocks, model):
        fully_shard(module)
    for module in _shared(model):
        module.set_gradient_divide_factor(1.0)  # the losses are divided, and gradients added
        module.set_force_sum_reduction_for_comms(True)  # gloo knows no other
    parameters, optimizer = dict(model.named_parameters()), optimizer_of(model, training)
    for name, tensor in kept.items():
        like = parameters[name.partition("/")[0]]
        if isinstance(like, DTensor) and tensor.shape == like.shape:
            kept[name] = distribute_tensor(tensor, like.device_mesh, like.placements, src_data_rank=None)
    load_optimizer_tensors(model, optimizer, kept, "")
    return optimizer


@contextmanager
def unsharded(model: nn.Module) -> Generator[None]:
    """Let every rank have all weights inside the block; all ranks come here."""
    for module in _shared(model):
        module.set_reshard_after_forward(False, recurse=False)
        module.unshard()
    yield
    for module in _shared(model):
        module.reshard()
        module.set_reshard_after_forward(True, recurse=False)


def _shared(model: nn.Module) -> list[Any]:
    return [module for module in model.modules() if isinstance(module, FSDPModule)]

"""The memory of one rank of a sharded training, measured without the machines: fake tensors and a fake process group.

Two steps of the run's own model are made on tensors without data, and PyTorch's tracker counts bytes.
"""

from typing import Any

import torch
import torch.distributed as dist
from torch._subclasses.fake_tensor import FakeTensorMode

from vitral.core.errors import UsageError
from vitral.model import Transformer, next_token_loss
from vitral.runs import RunConfig


def rank_bytes(config: RunConfig, vocab_size: int, ranks: int) -> dict[str, int]:
    """Bytes of one of several ranks at the peak of a step, by kind, `Total` among them.

    Every block is sharded (`fully_shard`), and the rest of the model; weights and averages are float32, arithmetic is
    in `training.dtype`. An optimizer other than AdamW is counted as AdamW.

    Args:
        config: configuration of the run; `training.batch_size` is that of one rank.
        vocab_size: number of tokens in the vocabulary.
        ranks: number of processes, one for each accelerator.

    Raises:
        UsageError: the model cannot be sharded or traced.
    """
    from torch.distributed.device_mesh import init_device_mesh
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", rank=0, world_size=ranks, store=FakeStore())
    try:
        mesh = init_device_mesh("cpu", (ranks,))
        with FakeTensorMode():
            return _counted(config, vocab_size, mesh)
    except Exception as error:
        raise UsageError("forecast: the memory could not be counted: {reason}", reason=error) from error
    finally:
        dist.destroy_process_group()


def _counted(config: RunConfig, vocab_size: int, mesh: Any) -> dict[str, int]:
    from torch.distributed._tools.fsdp2_mem_tracker import FSDPMemTracker
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    training = config.training
    policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32) if training.dtype == "bfloat16" else None
    model = Transformer(config.model, vocab_size).train()
    for module in (*model.blocks, model):
        fully_shard(module, mesh=mesh, mp_policy=policy or MixedPrecisionPolicy())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=True)
    mask = model.mask
    tracker = FSDPMemTracker(model, optimizer)
    tracker.track_inputs(())
    window = torch.randint(0, vocab_size, (training.batch_size, config.model.context_length))
    with tracker:
        for step in range(2):
            next_token_loss(model(window), window, mask).backward()
            optimizer.step()
            optimizer.zero_grad()
            if step == 0:
                tracker.reset_mod_stats()
    (peak,) = tracker.get_tracker_snapshot("peak").values()
    return {str(kind).rpartition(".")[2]: int(size) for kind, size in peak.items()}

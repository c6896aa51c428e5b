"""The memory of one rank of a sharded training, measured without the machines: fake tensors and a fake process group.

A process of its own runs this module (`python -m vitral.training.sharded_memory`), because a process has one default
process group. Two steps of the run's own model are made on tensors without data, and PyTorch's tracker counts bytes.
"""

import json
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import torch

from vitral.core.errors import UsageError
from vitral.model import ModelConfig, Transformer, next_token_loss
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
    asked = {
        "model": config.model.plain(),
        "batch_size": config.training.batch_size,
        "dtype": config.training.dtype,
        "vocab_size": vocab_size,
        "ranks": ranks,
    }
    command = [sys.executable, "-m", __spec__.name]
    done = subprocess.run(command, input=json.dumps(asked), capture_output=True, text=True, check=False)
    if done.returncode:
        complaint = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise UsageError("forecast: the memory could not be counted: {reason}", reason=complaint)
    return json.loads(done.stdout.splitlines()[-1])


def _measured(asked: Mapping[str, Any]) -> dict[str, int]:
    import torch.distributed as dist
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.distributed._tools.fsdp2_mem_tracker import FSDPMemTracker
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", rank=0, world_size=asked["ranks"], store=FakeStore())
    mesh = init_device_mesh("cpu", (asked["ranks"],))
    config, vocab_size = ModelConfig.parse(asked["model"]), asked["vocab_size"]
    dtypes = (torch.bfloat16, torch.float32) if asked["dtype"] == "bfloat16" else (None, None)
    policy = MixedPrecisionPolicy(*dtypes)
    with FakeTensorMode():
        model = Transformer(config, vocab_size).train()
        for block in model.blocks:
            fully_shard(block, mesh=mesh, mp_policy=policy)
        fully_shard(model, mesh=mesh, mp_policy=policy)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=True)
        mask = model.mask
        tracker = FSDPMemTracker(model, optimizer)
        tracker.track_inputs(())
        window = torch.randint(0, vocab_size, (asked["batch_size"], config.context_length))
        with tracker:
            for step in range(2):
                next_token_loss(model(window), window, mask).backward()
                optimizer.step()
                optimizer.zero_grad()
                if step == 0:
                    tracker.reset_mod_stats()
    (peak,) = tracker.get_tracker_snapshot("peak").values()
    return {str(kind).rpartition(".")[2]: int(size) for kind, size in peak.items()}


if __name__ == "__main__":
    print(json.dumps(_measured(json.load(sys.stdin))))

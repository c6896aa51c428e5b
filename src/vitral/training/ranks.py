"""Several ranks: processes, started by torchrun, that share the batches of a step; without a launcher, one rank alone.

Every rank runs the same loop; rank 0 plans, evaluates, talks and writes. Rank r of W computes the batches r, r + W,
r + 2W … of a step. Replicated weights: after each round of batches every rank has one piece of all gradients, and adds
the pieces in the order of the batches, in the tree of `vitral.training.summing`; so the sums, and with them norm, step
and weights, have the bits of one rank. Sharded weights (`vitral.training.sharding`): PyTorch adds, equal to rounding.

A rank that ends breaks its connections, and one that hangs lets the time of the process group run out. Either ends the
others; torchrun then ends, or starts all anew, and they go on from the last checkpoint.
"""

import atexit
import hashlib
import json
import logging
import os
import platform
import re
import signal
import tempfile
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.functional import pad
from torch.torch_version import TorchVersion

from vitral.core.errors import UsageError, VitralError, reason
from vitral.core.language import N_, _
from vitral.core.machine import versions
from vitral.core.process import EXIT_CODE, LAUNCHER, end_with_parent, launched
from vitral.runs import Checkpoint, RunFolder
from vitral.runs.config import RunConfig
from vitral.runs.environment import NUMERICS
from vitral.runs.optimizers import OwnOptimizer

LEAST_TORCH = "2.9.0a0"
TIMEOUT = "VITRAL_RANKS_TIMEOUT"
"""Variable of the environment: seconds after which a rank that does not answer is lost."""
LONGEST_SILENCE = 1800.0
"""These seconds if the variable is not set."""
LAUNCHERS = {
    "OMP_NUM_THREADS": "1",  # as torchrun does
    "PET_SIGNALS_TO_HANDLE": "SIGTERM,SIGINT",  # a terminal that closes ends no training
    "TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "600",  # in which ranks that were asked to stop must have saved their step
}
"""Variables of the environment that `launch` sets for the launcher, unless they are set."""


class RankLost(VitralError):
    """A rank has ended, or does not answer."""

    exit_code = 4


def rank() -> int:
    """The number of this rank."""
    return dist.get_rank() if dist.is_available() and dist.is_initialized() else 0


def size() -> int:
    """The number of ranks."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def leads() -> bool:
    """Whether this is rank 0."""
    return rank() == 0


def on_this_machine() -> int:
    """The number of ranks on this machine."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", "1")) if size() > 1 else 1


@contextmanager
def joined() -> Generator[None]:
    """Be one of the ranks inside the block, if this process was launched as one; all ranks come here.

    Raises:
        RankLost: a rank has ended, or does not answer.
        UsageError: PyTorch is too old, the ranks have different versions, or the launcher says something impossible.
    """
    if not launched():
        yield
        return
    try:
        with watched():
            if not dist.is_initialized():
                _join()
            yield
            dist.barrier()  # rank 0 may serve the others' store, so it must not be the first to leave
    except BaseException as error:
        error.is_said = not _speaks(error)  # pyright: ignore[reportAttributeAccessIssue]
        raise


def _join() -> None:
    end_with_parent(signal.SIGTERM)
    require_ranks()
    given = os.environ.get(TIMEOUT) or str(LONGEST_SILENCE)
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count())
    try:
        timeout = timedelta(seconds=float(given))
        store, number, count = next(dist.rendezvous("env://", timeout=timeout))  # pyright: ignore[reportPrivateImportUsage]
        if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":  # it remembers the addresses of an earlier start
            start = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
            store = dist.PrefixStore(start, store)  # pyright: ignore[reportPrivateImportUsage]
        has_gpu = 0 < int(os.environ.get("LOCAL_WORLD_SIZE", "1")) <= torch.cuda.device_count()
        engines = "cpu:gloo,cuda:nccl" if has_gpu else "gloo"  # NCCL needs a GPU for each rank
        dist.init_process_group(engines, store=store, rank=number, world_size=count, timeout=timeout)
    except (ValueError, OverflowError) as error:
        raise UsageError(
            "what the launcher of several ranks sets, or {variable}={given!r}, is wrong: {error}",
            variable=TIMEOUT,
            given=given,
            error=error,
        ) from None
    atexit.register(dist.destroy_process_group)
    drawing = {"NumPy": np.__version__, "numerics": NUMERICS, "machine": platform.machine()}
    require_same(N_("versions"), json.dumps([versions(), drawing]))


def require_ranks() -> None:
    """Refuse a PyTorch that cannot connect ranks.

    Raises:
        UsageError: it is too old, or was built without torch.distributed.
    """
    if TorchVersion(torch.__version__) < LEAST_TORCH:
        raise UsageError("several ranks need PyTorch 2.9 or newer, this is {version}", version=torch.__version__)
    if not (dist.is_available() and dist.is_gloo_available()):
        raise UsageError("several ranks need torch.distributed with gloo, which this PyTorch was built without")


@contextmanager
def watched() -> Generator[None]:
    """Name what a broken connection raises.

    Raises:
        RankLost: a rank has ended, or does not answer.
    """
    try:
        yield
    except RuntimeError as error:
        is_broken = launched() and (isinstance(error, dist.DistError) or "gloo" in str(error))
        if isinstance(error, VitralError) or not is_broken:
            raise
        why = re.sub(r"^\[[^]]*\] *", "", str(error).splitlines()[0])[:200]
        raise RankLost("another rank has ended, or does not answer ({reason})", reason=why) from error


def _speaks(error: BaseException) -> bool:
    """Whether this rank tells the user: the first one that fails; `--ranks` itself tells which one has ended."""
    if isinstance(error, RankLost) and EXIT_CODE in os.environ and "imed out" not in reason(error):
        return False
    with suppress(RuntimeError, ValueError):
        store = dist.distributed_c10d._get_default_store()  # pyright: ignore[reportPrivateImportUsage]
        return store.compare_set("speaker", "", str(rank())) == str(rank()).encode()
    return not dist.is_initialized() and os.environ.get("RANK") == "0"


def launch(ranks: int, arguments: Sequence[str]) -> int:
    """Run `vitral` on several ranks of this machine by torchrun's launcher, and return the exit code.

    Args:
        ranks: their number.
        arguments: of the command line.

    Raises:
        UsageError: PyTorch cannot connect ranks.
        RankLost: a rank ended, and none has said why.
        KeyboardInterrupt: a signal ended all of them before they could say anything.
    """
    require_ranks()
    from torch.distributed import run
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

    for name, value in LAUNCHERS.items():
        os.environ.setdefault(name, value)
    options = ["--standalone", f"--nproc-per-node={ranks}", "--local-addr=localhost", "-m", "vitral", *arguments]
    failures: dict[int, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        code = Path(folder) / "code"
        os.environ |= {EXIT_CODE: str(code), LAUNCHER: str(os.getpid())}
        logging.disable()  # a rank says what is to be said
        try:
            run.run(run.parse_args(options))
        except ChildFailedError as failed:
            failures = failed.failures
        except SignalException:
            pass  # passed on to the ranks, which have ended
        finally:
            logging.disable(logging.NOTSET)
        if code.exists():
            return int(code.read_text(encoding="ascii"))
    if not failures:
        raise KeyboardInterrupt(N_("interrupted before the ranks could save; what was saved before is intact"))
    number, first = min(failures.items(), key=lambda item: item[1].exitcode)  # one that a signal has ended
    if first.exitcode < 0:
        raise RankLost("rank {rank} was ended by {signal}", rank=number, signal=first.signal_name())
    raise RankLost("rank {rank} ended with exit code {code}", rank=number, code=first.exitcode)


def require_share(config: RunConfig, where: str) -> None:
    """Refuse a number of ranks that cannot share the batches of a step.

    Raises:
        UsageError: the batches cannot be shared evenly, or the run adds them in an order of its own.
    """
    training, ranks = config.training, size()
    if ranks == 1:
        return
    if training.sharding != "replicated" and (training.compile or isinstance(training.optimizer, OwnOptimizer)):
        raise UsageError(
            '{where}: training.sharding = "{kind}" gives each rank some rows of the weights, and {part} needs all '
            'of them; use "replicated"',
            where=where,
            kind=training.sharding,
            part="torch.compile" if training.compile else training.optimizer.name,
        )
    if training.accumulation % ranks:
        each = max(1, training.batch_size * training.accumulation // ranks)
        raise UsageError(
            "{where}: {ranks} ranks cannot share the batches of a step evenly, training.accumulation = {batches}; a "
            "new run with training.accumulation = {ranks} and training.batch_size = {size} reads {tokens:,} tokens a "
            "step instead of {before:,}, in other windows of the text",
            where=where,
            batches=training.accumulation,
            ranks=ranks,
            size=each,
            tokens=ranks * each * config.model.context_length,
            before=config.tokens_per_step,
        )


def broadcast(plain: Any = None) -> Any:
    """Plain data of rank 0, on all ranks."""
    if size() == 1:
        return plain
    content = torch.frombuffer(bytearray(json.dumps(plain).encode()), dtype=torch.uint8)
    length = torch.tensor(len(content))
    dist.broadcast(length, 0)
    if not leads():
        content = torch.empty(int(length), dtype=torch.uint8)
    dist.broadcast(content, 0)
    return json.loads(content.numpy().tobytes())


def broadcast_tensors(tensors: Mapping[str, Tensor]) -> None:
    """Give tensors of rank 0 to all ranks, in place."""
    for tensor in tensors.values():
        here = tensor.detach().cpu()
        dist.broadcast(here, 0)
        tensor.detach().copy_(here)


def any_of(*flags: bool) -> list[bool]:
    """For each flag, whether it is set on some rank."""
    if size() == 1:
        return [*flags]
    on_any = torch.tensor(flags, dtype=torch.uint8)
    dist.all_reduce(on_any, dist.ReduceOp.MAX)
    return on_any.bool().tolist()


def all_to_all(flat: Tensor) -> Sequence[Tensor]:
    """This rank's piece of one tensor of each rank, in their order."""
    if size() == 1:
        return [flat]
    here = flat if flat.is_cuda and "nccl" in dist.get_backend_config() else flat.cpu()
    mine = pad(here, (0, -len(flat) % size()))
    received = torch.empty_like(mine)
    dist.all_to_all_single(received, mine)
    return [piece.clone() for piece in received.view(size(), -1)]


def all_gather(piece: Tensor) -> Tensor:
    """The pieces of all ranks, one after another."""
    if size() == 1:
        return piece
    pieces = [torch.empty_like(piece) for _ in range(size())]
    dist.all_gather(pieces, piece)
    return torch.cat(pieces)


def all_reduce(tensor: Tensor) -> Tensor:
    """The sum over all ranks, in the engine's order."""
    if size() > 1:
        dist.all_reduce(tensor)
    return tensor


def require_same(what: str, content: str, code: int = UsageError.exit_code) -> None:
    """Compare something that all ranks must have alike; all call it at the same place.

    Raises:
        UsageError: a rank has something else; the command ends with this code.
    """
    if size() == 1:
        return
    mine = torch.frombuffer(bytearray(hashlib.sha256(content.encode()).digest()), dtype=torch.uint8)
    first, *others = all_gather(mine).view(size(), -1)
    for other, digest in enumerate(others, 1):
        if not digest.equal(first):
            error = UsageError("rank {rank} differs from rank 0: {what}", rank=other, what=_(what))
            error.exit_code = code
            raise error


def digest(tensors: Mapping[str, Tensor]) -> str:
    """SHA-256 of tensors by name; computed where there are several ranks."""
    hashed = hashlib.sha256()
    for name, tensor in tensors.items() if size() > 1 else ():
        hashed.update(name.encode())
        hashed.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
    return hashed.hexdigest()


def full_tensor(tensor: Any) -> Tensor:
    """The whole of a tensor of which each rank may hold some rows; then all ranks call it at the same place."""
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def local_rows(tensor: Any) -> Tensor:
    """This rank's rows of a tensor, or all."""
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def first_row(tensor: Tensor) -> int:
    """The number of this rank's first row: all ranks but the last have as many."""
    return min(rank() * -(-len(tensor) // size()), len(tensor)) if hasattr(tensor, "to_local") else 0


def gathered(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Whole tensors on rank 0, which are moved to the processor if they were not whole; nothing on the others."""
    whole: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        all_of_it = full_tensor(tensor)
        if leads():
            whole[name] = all_of_it if all_of_it is tensor else all_of_it.cpu()
    return whole


class SilentFolder(RunFolder):
    """The folder of a run on any rank but 0, which does not write."""

    def append_metric(self, event: Mapping[str, Any]) -> None:
        """Nothing."""

    def save(self, checkpoint: Checkpoint, *, keep: int) -> None:
        """Nothing."""

    def reseal(self, event: Mapping[str, Any]) -> None:
        """Nothing."""

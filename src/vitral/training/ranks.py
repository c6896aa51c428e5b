"""Several ranks on torch.distributed, launched by torchrun, connected by gloo.

Rank 0 tells the others what to do by *orders*, broadcast as JSON. In a step every rank has the gradients of its own
batches; after each round of batches the ranks exchange them so that each has one part of every gradient, and adds the
parts in the order of the batches, in the tree that one rank would use. At the end everyone gets all parts.

Whoever waits wakes up now and then and looks at the others: every rank counts its *heartbeats* in the launcher's store,
in a thread, so that no work, however long, keeps it from answering. A rank that fails says why in the same store.
"""

import atexit
import hashlib
import json
import logging
import math
import os
import platform
import signal
import sys
import tempfile
import threading
import uuid
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn

from vitral.core.config import differences
from vitral.core.errors import StorageError, UsageError, VitralError
from vitral.core.language import N_
from vitral.core.launching import Launch, out_of_place
from vitral.core.machine import processor
from vitral.core.versions import versions
from vitral.model import Transformer
from vitral.runs import RunFolder
from vitral.runs.config import TrainingConfig
from vitral.runs.environment import NUMERICS
from vitral.training.heart import STANDSTILL, Heart, failed
from vitral.training.holding import Holding
from vitral.training.meeting import launcher_gone, meet
from vitral.training.summing import StepSum, present, taken
from vitral.training.team import RankDiffers, RankLost, Team

LEAST_TORCH = (2, 9)
HEARTBEAT = "VITRAL_HEARTBEAT"
"""Variable of the environment: seconds without a heartbeat after which a rank is lost."""
SILENCE = 60.0
"""These seconds if the variable is not set."""
LONGEST_WORK = 1800.0
"""Seconds in which the main thread of a rank must come forward, if `STANDSTILL` is not set."""
SECONDS = (0.1, 7 * 86400.0)
"""The fewest and the most of either."""
LONGEST_WAIT = timedelta(days=7)
"""A last limit of the connections themselves: a rank may prepare the text, before the first step, for days."""
COMING = 10
"""Heartbeats, of the longest silence each, within which every rank must have started."""
LONGEST_SILENT = 20.0
"""Seconds that a rank waits for rank 0 to tell the user of a lost rank; then it does so itself."""
LONGEST_END = 600
"""Seconds in which ranks that were asked to stop must have finished their step and saved it."""
_joined: list["Ranks"] = []
"""The ranks that this process is one of: it connects to them once."""
Follow = Callable[["Ranks", str | None], RunFolder]


@contextmanager
def joined(follow: Follow) -> Generator["Ranks"]:
    """Be one of the ranks inside the block.

    Args:
        follow: what any rank but 0 does in a training.

    Raises:
        RankLost: a rank failed or no longer answers.
        UsageError: PyTorch is too old, the ranks have different versions, or the environment says something impossible.
    """
    here = Launch.read()
    require_ranks()
    if not _joined:
        _joined.append(Ranks(here, follow))
        atexit.register(_joined[0].part)
    team = _joined[0]
    try:
        team.greet()
        yield team
    except BaseException as error:
        team.leave(error)
        raise


def launch(ranks: int, arguments: Sequence[str], told: str) -> int:
    """Run a program on several ranks of this machine by torchrun's launcher, and return the exit code.

    Args:
        ranks: their number.
        arguments: of Python.
        told: variable of the environment: a file in which the rank that has spoken to the user leaves its exit code.

    Raises:
        UsageError: PyTorch cannot connect ranks.
        RankLost: a rank ended, and none has said why.
        KeyboardInterrupt: a signal ended all of them before they could say anything.
    """
    require_ranks()
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    os.environ.setdefault("OMP_NUM_THREADS", "1")  # as torchrun does
    options: dict[str, Any] = {}
    if "signals_to_handle" in LaunchConfig.__dataclass_fields__:
        options["signals_to_handle"] = "SIGTERM,SIGINT"  # a terminal that closes ends no training
    if "shutdown_timeout" in LaunchConfig.__dataclass_fields__ and "TORCH_ELASTIC_SHUTDOWN_TIMEOUT" not in os.environ:
        options["shutdown_timeout"] = LONGEST_END
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=ranks,
        run_id=uuid.uuid4().hex,
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        local_addr="localhost",
        max_restarts=0,
        **options,
    )
    with tempfile.TemporaryDirectory() as folder:
        code = Path(folder) / "code"
        os.environ[told] = str(code)
        failures: dict[int, Any] = {}
        before = logging.root.manager.disable
        logging.disable()  # a rank says what is to be said
        try:
            elastic_launch(config, sys.executable)(*arguments)
        except ChildFailedError as failed:
            failures = failed.failures
        except SignalException:
            pass  # passed on to the ranks, which have ended
        finally:
            logging.disable(before)
            del os.environ[told]
        if code.exists():
            return int(code.read_text(encoding="ascii"))
    if not failures:
        raise KeyboardInterrupt(N_("interrupted before the ranks could save; what was saved before is intact"))
    rank, first = min(failures.items(), key=lambda item: item[1].timestamp)
    if first.exitcode < 0:
        raise RankLost("rank {rank} was ended by {signal}", rank=rank, signal=first.signal_name())
    raise RankLost("rank {rank} ended with exit code {code}", rank=rank, code=first.exitcode)


def require_ranks() -> None:
    """Refuse a PyTorch that cannot connect ranks.

    Raises:
        UsageError: it is too old, or was built without torch.distributed.
    """
    numbers = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2] if part.isdecimal())
    if numbers < LEAST_TORCH:
        raise UsageError("several ranks need PyTorch 2.9 or newer, this is {version}", version=torch.__version__)
    if not (dist.is_available() and dist.is_gloo_available()):
        raise UsageError("several ranks need torch.distributed with gloo, which this PyTorch was built without")


class Ranks(Team):
    """This process as one of several ranks."""

    def __init__(self, here: Launch, follow: Follow) -> None:
        """Connect the ranks that the launcher has started."""
        silence, standstill, self._refused = SILENCE, LONGEST_WORK, None
        try:
            silence, standstill = _seconds(HEARTBEAT, SILENCE), _seconds(STANDSTILL, LONGEST_WORK)
        except UsageError as error:
            self._refused = error  # said when all are connected, and thus once
        self.rank, self.size, self.local = here.rank, here.size, here.local_size
        self._place = [here.local_rank, here.local_size]
        self.asked = self.is_broken = False
        self._follow = follow
        if torch.cuda.is_available():
            torch.cuda.set_device(here.local_rank % torch.cuda.device_count())
        coming = min(COMING * silence, LONGEST_WAIT.total_seconds())
        is_served = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
        store = _store(here, coming, serves=self.rank == 0 and not is_served)
        self._launcher = store
        met = meet(store, self.rank, self.size, coming, is_restarted=here.restarts > 0)
        self.is_restarted = met.is_restarted
        # In a store without the name of the start PyTorch would read addresses of ranks that were before.
        named = partial(dist.PrefixStore, f"vitral/{met.name}")  # pyright: ignore[reportPrivateImportUsage]
        place, beating = (named(_store(here, SILENCE)) for _ in range(2))
        # Without the store one rank of each machine speaks; where rank 0 served it, rank 0 is gone.
        is_first = here.local_rank == 0 or (self.rank == 1 and not is_served)
        self.heart = Heart(self.rank, self.size, [place, beating], silence, standstill, is_first=is_first)
        self._coming = timedelta(seconds=coming)
        self._connect(named(store))

    def _connect(self, store: Any) -> None:
        """Connect to the other ranks, all of which have started.

        Raises:
            RankLost: one has ended since, or cannot be reached.
        """
        try:
            dist.init_process_group("gloo", timeout=self._coming, rank=self.rank, world_size=self.size, store=store)
        except RuntimeError as error:
            lost = self.heart.reason(error)
            lost.is_said = not self.heart.speaks(lost.rank, LONGEST_SILENT)
            raise lost from None
        _wait_long(None)
        store.set_timeout(LONGEST_WAIT)

    def greet(self) -> None:
        """Compare the versions of all ranks.

        Raises:
            UsageError: they differ, or the environment of this rank has an impossible number of seconds.
        """
        if self._refused is not None:
            raise self._refused
        drawing = {"NumPy": np.__version__, "numerics": NUMERICS}
        self._compare({"versions": versions(), **drawing, "machine": platform.machine()})
        self._processors = [json.loads(one) for one in self.gathered(json.dumps(processor()).encode())]
        places = [json.loads(one) for one in self.gathered(json.dumps(self._place).encode())]
        self.misplaced = out_of_place(places)

    def answers(self, mine: int) -> list[int]:
        """A small number of each rank."""
        return self.assembled(torch.tensor([mine])).tolist()

    def remember(self, name: str) -> None:
        """Keep a name in the launcher's store."""
        self._launcher.set(f"kept/{name}", "")

    def remembers(self, name: str) -> bool:
        """Whether a name is kept there."""
        return self._launcher.check([f"kept/{name}"])

    def agree(self, request: Mapping[str, Any]) -> None:
        """Compare what all ranks were asked for; see `Team`."""
        self._compare({"request": dict(request)})

    def remarks(self) -> list[str]:
        """A line for each rank whose processor is another than that of rank 0, with which other bits may result."""
        first, *others = self._processors
        return [
            N_("rank {rank} has another processor than rank 0 ({found}, not {first}): the bits may differ").format(
                rank=rank, found=found, first=first
            )
            for rank, found in enumerate(others, 1)
            if found != first
        ]

    def gather(self, about: Mapping[str, Any], tensors: Mapping[str, Tensor], optimizer: Mapping[str, Tensor]) -> None:
        """Give every rank the run; see `Team`."""
        self._broadcast(_json(about))
        with self.answering():
            pass
        self.receive_tensors(tensors)
        described = [[name, list(tensor.shape), str(tensor.dtype)] for name, tensor in optimizer.items()]
        self._broadcast(_json({"tensors": described}))
        self.receive_tensors(optimizer)
        self.heart.is_free = False

    def told(self) -> dict[str, Any]:
        """What rank 0 says of the run (`gather`)."""
        return json.loads(self._broadcast())

    @contextmanager
    def answering(self) -> Generator[None]:
        """Do something that may fail for this rank alone; afterwards all ranks know whether it has.

        Raises:
            RankLost: it has failed for another rank.
        """
        failure: VitralError | None = None
        try:
            yield
        except VitralError as error:
            failure = error
        said = b"" if failure is None else _json({"line": str(failure), "code": failure.exit_code})
        for rank, answer in enumerate(self.gathered(said)):
            if answer:
                told = json.loads(answer)
                raise failed(rank, told["line"], told["code"]) from failure

    def receive_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Give tensors of rank 0 to all ranks, in place."""
        for tensor in tensors.values():
            here = tensor.detach().cpu().contiguous()
            self._wait(dist.broadcast(here, 0, async_op=True))
            with torch.no_grad():
                tensor.copy_(here)

    def receive_named(self) -> dict[str, Tensor]:
        """The optimizer's tensors of rank 0 (`gather`)."""
        described = json.loads(self._broadcast())["tensors"]
        found = {name: torch.empty(shape, dtype=getattr(torch, kind.split(".")[1])) for name, shape, kind in described}
        self.receive_tensors(found)
        return found

    def follow(self, corpus: str | None) -> RunFolder:
        """Follow rank 0; see `Team`."""
        return self._follow(self, corpus)

    def orders(self) -> Iterator[dict[str, Any]]:
        """The orders of rank 0, until the last."""
        self.heart.is_free = False
        while (order := json.loads(self._broadcast()))["order"] != "end":
            yield order
        self.heart.is_free = True

    def begin_step(self) -> None:
        """Order the next step."""
        self.give_order("step")

    def decide(self, decision: Mapping[str, Any]) -> None:
        """Order a decision."""
        self.give_order("decide", decision=dict(decision))

    def verify(self, tensors: Mapping[str, Tensor], distinct: int) -> None:
        """Compare weights and optimizer of all ranks; see `Team`."""
        if distinct < self.size and not self.is_broken:
            self.give_order("verify")
            self.compare(tensors, distinct)

    def compare_batches(self, chain: str) -> None:
        """Compare the batches that all ranks have drawn; see `Team`."""
        mine = torch.frombuffer(bytearray.fromhex(chain), dtype=torch.uint8)
        first, *others = self.assembled(mine).view(self.size, -1)
        for rank, found in enumerate(others, 1):
            if not found.equal(first):
                self.is_broken = True
                raise RankLost(
                    "rank {rank} draws other batches than rank 0: the text of one of them has changed (vitral doctor "
                    "compares shards with their hashes), or a machine has a fault; this step was not applied",
                    rank=rank,
                )

    def moved(self) -> None:
        """Count progress of the main thread; see `Team`."""
        self.heart.moved()

    def compare(self, tensors: Mapping[str, Tensor], distinct: int) -> None:
        """Compare tensors of the ranks that hold the same by their SHA-256.

        Raises:
            RankLost: they differ.
        """
        digests = self.gathered(_digest(tensors))
        for rank, found in enumerate(digests):
            if found != digests[rank % distinct]:
                self.is_broken = True
                raise RankDiffers(
                    "rank {rank} has other weights than rank {first}, or another optimizer: another processor, or a "
                    "fault of a machine; this step was not saved, the last checkpoint is intact",
                    rank=rank,
                    first=rank % distinct,
                )

    def end(self) -> None:
        """Order the end of the training."""
        if not self.is_broken:
            self.give_order("end")
        self.heart.is_free = True

    def share_out(self, model: Transformer, training: TrainingConfig) -> Holding | None:
        """Leave every rank some rows of each of the model's weights; see `Team`."""
        if training.sharding == "replicated" or (training.sharding == "hybrid" and self.local == 1):
            return None
        from vitral.training.sharding import Shards  # loads `fully_shard`

        return Shards(self, model, training)

    def step_sum(self, held: Holding, training: TrainingConfig, *, asked: bool) -> StepSum:
        """The sum of the next step over all ranks; see `Team`."""
        if held.is_whole:
            return SharedSum(self, list(held.parameters.values()), training, asked=asked)
        from vitral.training.sharding import Shards, SharedOutSum

        assert isinstance(held, Shards)
        return SharedOutSum(held, training, asked=asked)

    def split(self) -> tuple[Any, Any]:
        """The group of the ranks of this machine, and that of the ranks of one number, one on each machine.

        Raises:
            RankLost: one has ended, or cannot be reached.
        """
        self.any_of([False])  # a rank that is lost by now is named sooner than by connecting to it
        machines = [list(range(first, first + self.local)) for first in range(0, self.size, self.local)]
        across = [list(ranks) for ranks in zip(*machines, strict=True)]
        try:
            inside, between = (
                dist.new_subgroups_by_enumeration(groups, timeout=self._coming)[0] for groups in (machines, across)
            )
        except RuntimeError as error:
            self.is_broken = True
            raise self.heart.reason(error) from None
        _wait_long(inside)
        _wait_long(between)
        return inside, between

    def exchanged(self, leaf: Tensor, group: Any = None) -> Sequence[Tensor]:
        """This rank's part of one tensor of each rank, in their order; the length is a multiple of their number.

        Args:
            leaf: this rank's tensor.
            group: the ranks, of `split`; None: all. So for the methods below.
        """
        here = leaf.cpu()
        found = torch.empty_like(here)
        self._wait(dist.all_to_all_single(found, here, group=group, async_op=True))
        return found.to(leaf.device).view(dist.get_world_size(group), -1).unbind(0)

    def assembled(self, part: Tensor, group: Any = None) -> Tensor:
        """The parts of all ranks, one after another."""
        here = part.cpu()
        found = here.new_empty(dist.get_world_size(group), part.numel())
        self._wait(dist.all_gather([*found.unbind(0)], here, group=group, async_op=True))
        return found.view(-1).to(part.device)

    def collected(self, part: Tensor, rank: int, group: Any = None) -> Tensor | None:
        """The parts of all ranks, one after another, on one of them and on the processor; None on the others."""
        here = part.cpu()
        found = here.new_empty(dist.get_world_size(group), part.numel()) if dist.get_rank(group) == rank else None
        parts = None if found is None else [*found.unbind(0)]
        self._wait(dist.gather(here, parts, group=group, group_dst=rank, async_op=True))
        return None if found is None else found.view(-1)

    def reduced(self, leaf: Tensor, group: Any = None) -> Tensor:
        """This rank's part of the sum of one tensor of each rank, in the engine's order."""
        here = leaf.cpu()
        found = here.new_empty(leaf.numel() // dist.get_world_size(group))
        scatter: Any = getattr(dist, "reduce_scatter_single", dist.reduce_scatter_tensor)  # older PyTorch's name
        self._wait(scatter(found, here, group=group, async_op=True))
        return found.to(leaf.device)

    def added(self, tensor: Tensor, group: Any = None) -> Tensor:
        """The sum over all ranks, in the engine's order; a tensor on the processor is changed."""
        here = tensor.cpu()
        self._wait(dist.all_reduce(here, group=group, async_op=True))
        return here.to(tensor.device)

    def any_of(self, flags: Sequence[bool]) -> list[bool]:
        """For each flag, whether it is set on some rank."""
        found = torch.tensor(flags, dtype=torch.uint8)
        self._wait(dist.all_reduce(found, dist.ReduceOp.MAX, async_op=True))
        return found.bool().tolist()

    def leave(self, error: BaseException) -> None:
        """Leave after an error: tell the others the reason, and find out which rank says it to the user.

        `error.is_said` is set if another rank says it.
        """
        self.is_broken = self.heart.is_free = True
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, signal.SIG_IGN)  # the launcher's, since a rank has ended
        if isinstance(error, RankLost):
            speaks = self.heart.speaks(error.rank, LONGEST_SILENT)
        else:
            code = getattr(error, "exit_code", 130 if isinstance(error, KeyboardInterrupt) else 70)
            self.heart.tell(str(error) or type(error).__name__, code)
            speaks = self.heart.speaks(None, self.heart.silence)
        error.is_said = not speaks  # pyright: ignore[reportAttributeAccessIssue]

    def part(self) -> None:
        """Leave when the process ends."""
        self.heart.stop()
        if not self.is_broken:
            dist.destroy_process_group()

    def _compare(self, mine: Mapping[str, Any]) -> None:
        first, *others = (json.loads(one) for one in self.gathered(_json(mine)))
        for rank, found in enumerate(others, 1):
            for key, here, there in differences(first, found):
                raise UsageError(
                    "rank {rank} differs from rank 0 in {key}: {there!r}, not {here!r}",
                    rank=rank,
                    key=key.removeprefix("request."),
                    there=there,
                    here=here,
                )

    def give_order(self, name: str, **content: Any) -> None:
        """Tell the other ranks, which wait for orders, what to do."""
        self._broadcast(_json({"order": name, **content}))

    def _broadcast(self, data: bytes = b"") -> bytes:
        """Bytes of rank 0, for all."""
        length = torch.tensor([len(data)])
        self._wait(dist.broadcast(length, 0, async_op=True))
        content = (
            torch.frombuffer(bytearray(data), dtype=torch.uint8)
            if data
            else torch.empty(int(length), dtype=torch.uint8)
        )
        self._wait(dist.broadcast(content, 0, async_op=True))
        return content.numpy().tobytes()

    def gathered(self, data: bytes) -> list[bytes]:
        """The bytes of every rank."""
        lengths = self.assembled(torch.tensor([len(data)])).tolist()
        padded = bytearray(data.ljust(max(lengths) + 1))
        rows = self.assembled(torch.frombuffer(padded, dtype=torch.uint8)).view(self.size, -1).numpy()
        return [row.tobytes()[:length] for row, length in zip(rows, lengths, strict=True)]

    def _wait(self, work: Any) -> None:
        """Wait for the others, and look at their hearts now and then.

        Raises:
            RankLost: one is lost.
        """
        if self.is_broken:
            raise RankLost("the connection between the ranks is broken")
        with self.heart.waiting():
            while True:
                try:
                    work.wait(timedelta(seconds=self.heart.patience))
                except RuntimeError as error:
                    lost = self.heart.silent() if not work.is_completed() else self.heart.reason(error)
                    if lost is not None:
                        self.is_broken = True
                        raise lost from None
                else:
                    return


class SharedSum(StepSum):
    """Loss and gradients of one step's batches, summed over the ranks."""

    def __init__(
        self, team: Ranks, parameters: Sequence[nn.Parameter], training: TrainingConfig, *, asked: bool
    ) -> None:
        """Begin a step; the parameters have no gradients."""
        super().__init__(parameters, training)
        self._team, self._asked = team, asked

    def add(self, loss: Tensor) -> None:
        """Count a batch of this rank; the other ranks count theirs at the same time."""
        if not self._canonical:
            super().add(loss)
            return
        self._moved |= present(self._parameters)
        for part in self._team.exchanged(self._flat(loss)):
            self._tree.add([part.clone()])

    def total(self) -> Tensor:
        """Leave the sums in the gradients of every rank, and return the loss."""
        if self._canonical:
            whole = self._team.assembled(self._tree.total()[0])
        else:
            self._moved = present(self._parameters)
            whole = self._team.added(self._flat(self._loss))
        flags = [place in self._moved for place in range(len(self._parameters))]
        *moved, self._team.asked = self._team.any_of([*flags, self._asked])
        begin = 0
        for parameter, is_moved in zip(self._parameters, moved, strict=True):
            end = begin + parameter.numel()
            if is_moved:
                parameter.grad = torch.empty_like(parameter).copy_(whole[begin:end].view(parameter.shape))
            begin = end
        return whole[begin].clone()

    def _flat(self, loss: Tensor) -> Tensor:
        """The gradients, the loss, and zeros up to a multiple of the number of ranks; on the processor."""
        parts = [*taken(self._parameters), loss]
        flat = torch.cat([part.detach().reshape(-1).cpu() for part in parts])
        return nn.functional.pad(flat, (0, -flat.numel() % self._team.size))


def _wait_long(group: Any) -> None:
    """Let the ranks of a group that are connected wait for one another as long as their hearts beat."""
    dist.distributed_c10d._set_pg_timeout(LONGEST_WAIT, group)  # pyright: ignore[reportPrivateImportUsage]


def _seconds(variable: str, default: float) -> float:
    """Seconds by a variable of the environment.

    Raises:
        UsageError: it has no usable number.
    """
    given, (least, most) = os.environ.get(variable) or str(default), SECONDS
    try:
        seconds = float(given)
    except ValueError:
        seconds = math.nan
    if least <= seconds <= most:
        return seconds
    raise UsageError(
        "{variable}={given!r} in the environment: expected seconds from {least:g} to {most:,.0f}",
        variable=variable,
        given=given,
        least=least,
        most=most,
    )


def _store(
    here: Launch,
    seconds: float,
    *,
    serves: bool = False,
) -> dist.TCPStore:  # pyright: ignore[reportPrivateImportUsage]
    """A connection to the store that all ranks see; nothing waits longer than the seconds.

    Args:
        here: this rank.
        seconds: within which it must answer.
        serves: whether this process serves it to the others, since no launcher does.

    Raises:
        RankLost: it does not answer.
        StorageError: it cannot be served.
    """
    try:
        return dist.TCPStore(  # pyright: ignore[reportPrivateImportUsage]
            here.host, here.port, None, serves, timedelta(seconds=seconds), False
        )
    except RuntimeError as error:
        if serves:
            why = str(error).splitlines()[0][:200]
            raise StorageError(
                "MASTER_PORT={port}: cannot be served ({reason})", port=str(here.port), reason=why
            ) from None
        gone = launcher_gone()
        gone.is_said = here.local_rank > 0
        raise gone from None


def _json(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content).encode()


def _digest(tensors: Mapping[str, Tensor]) -> bytes:
    """SHA-256 of tensors by name."""
    digest = hashlib.sha256()
    for name, tensor in tensors.items():
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
    return digest.digest()

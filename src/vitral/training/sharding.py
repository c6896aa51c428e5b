"""Weights that several ranks share out by PyTorch's `fully_shard`; with `ranks`, what knows torch.distributed.

Each rank holds some rows of every parameter, moves them, and keeps the optimizer's state of them. For a block's
computation `fully_shard` puts its parameters together and afterwards takes them apart; the gradients it hands to
`Adding`, which gives each rank its rows of the gradients of every batch, and adds them in the tree of
`vitral.training.summing`. The optimizer sees its rows as parameters of their own.

With "hybrid" the ranks of one machine share the weights out, and `fully_shard` knows only them. The ranks that hold the
same rows, one on each machine, divide the additions: each adds a piece of the rows, over the batches of all machines,
and at the end of a step they give each other the sums.
"""

import copy
import json
import math
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard

from vitral.core.errors import StorageError, UsageError
from vitral.core.files import temporary_name
from vitral.core.guarded import GuardedFolder
from vitral.model import Transformer
from vitral.runs.checkpoint import write_part
from vitral.runs.checkpoint_files import OPTIMIZER, WEIGHTS, part_name
from vitral.runs.config import TrainingConfig
from vitral.training.holding import Holding
from vitral.training.summing import CanonicalSum, StepSum, norm_of, squares

HEADER = 512
"""Bytes that a tensor needs at most in a file besides its numbers."""


class Exchange(Protocol):
    """What one rank exchanges with the others (`vitral.training.ranks.Ranks`)."""

    rank: int
    size: int
    local: int
    asked: bool

    @property
    def leads(self) -> bool:
        """Whether this is rank 0."""
        ...

    def give_order(self, name: str, /, **content: Any) -> None:
        """Tell the other ranks what to do."""
        ...

    def answering(self) -> AbstractContextManager[None]:
        """Do something that may fail for this rank alone; afterwards all ranks know whether it has."""
        ...

    def any_of(self, flags: Sequence[bool], /) -> list[bool]:
        """For each flag, whether it is set on some rank."""
        ...

    def gathered(self, data: bytes, /) -> list[bytes]:
        """The bytes of every rank."""
        ...

    def split(self) -> tuple[Any, Any]:
        """The group of the ranks of this machine, and that of the ranks of one number, one on each machine."""
        ...

    def assembled(self, part: Tensor, group: Any = None, /) -> Tensor:
        """The parts of all ranks of a group, one after another; None: of all ranks, as below."""
        ...

    def collected(self, part: Tensor, rank: int, group: Any = None, /) -> Tensor | None:
        """The parts of all ranks, one after another, on one of them."""
        ...

    def exchanged(self, leaf: Tensor, group: Any = None, /) -> Sequence[Tensor]:
        """This rank's part of one tensor of each rank, in their order."""
        ...

    def reduced(self, leaf: Tensor, group: Any = None, /) -> Tensor:
        """This rank's part of the sum of one tensor of each rank, in the engine's order."""
        ...

    def added(self, tensor: Tensor, group: Any = None, /) -> Tensor:
        """The sum over all ranks, in the engine's order."""
        ...


class Shards(Holding):
    """Some rows of each parameter; the first rank that has any has the first, and all but the last as many.

    Attributes:
        place: number of this rank among those that have all weights together.
        distinct: their number.
        machines: number of such groups; more than one: each machine is one ("hybrid").
        inside: the group of this rank; None: all ranks.
        between: the group of those that hold the same rows, one on each machine.
        is_last: whether the gradients of the batch that is computed now complete the step's.
    """

    is_whole, is_last = False, False

    def __init__(self, team: Exchange, model: Transformer, training: TrainingConfig) -> None:
        """Keep this rank's rows of a model's weights, which all ranks have; the other rows are freed."""
        self.team, self.model = team, model
        # The same model without numbers, to be completed for a while on rank 0.
        empty = {id(one): nn.Parameter(torch.empty_like(one, device="meta")) for one in model.parameters()}
        self._empty = copy.deepcopy(model, empty) if team.leads else None
        self._completed: Transformer | None = None
        shapes = {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}
        self.distinct = team.local if training.sharding == "hybrid" else team.size
        self.place, self.machines = team.rank % self.distinct, team.size // self.distinct
        kind, self.inside, self.between = next(model.parameters()).device.type, None, None
        if self.machines == 1:
            mesh = init_device_mesh(kind, (team.size,))
        else:
            self.inside, self.between = team.split()
            mesh = DeviceMesh.from_group(self.inside, kind)
        for block in model.blocks:
            fully_shard(block, mesh=mesh)
        fully_shard(model, mesh=mesh)
        modules: list[Any] = [module for module in model.modules() if isinstance(module, FSDPModule)]
        for module in modules:
            module.set_gradient_divide_factor(1.0)
            module.set_custom_all_gather(Gathering(self))
            module.set_custom_reduce_scatter(Adding(self) if training.is_canonical else Reducing(self))
        self.sharded: dict[str, Any] = dict(model.named_parameters())
        self.parameters = {name: nn.Parameter(one.detach().to_local()) for name, one in self.sharded.items()}
        self.shapes = {self.parameters[name]: shape for name, shape in shapes.items()}

    def begin(self, parameter: nn.Parameter) -> int:
        """The number of its first row among those of the whole parameter."""
        return min(self.place * self._share(parameter), self.shapes[parameter][0])

    def _share(self, parameter: nn.Parameter) -> int:
        """Rows of a rank, of which the last ranks may have fewer."""
        return -(-self.shapes[parameter][0] // self.distinct)

    def padded(self, parameter: nn.Parameter, part: Tensor) -> Tensor:
        """A tensor with this rank's rows of a parameter, flat, and as long as any other rank's."""
        length = self._share(parameter) * math.prod(part.shape[1:])
        return nn.functional.pad(part.detach().reshape(-1), (0, length - part.numel()))

    def whole(self, parameter: nn.Parameter, part: Tensor) -> Tensor:
        """A tensor like the whole parameter, on all ranks."""
        found, shape = self.team.assembled(self.padded(parameter, part), self.inside), self.shapes[parameter]
        return found[: math.prod(shape)].view(shape)

    def exchanged(self, gradients: Tensor) -> Sequence[Tensor]:
        """This rank's piece of the gradients of each rank's batch, in their order; on several machines of their sums.

        The batches of a machine with 2, 4, 8 … ranks are a subtree of the tree over all batches. Their sum is made
        inside the machine, so that only sums are sent between machines.

        Args:
            gradients: of this rank's batch, the rows of each rank of `inside` one after another.
        """
        if self.machines == 1:
            return self.team.exchanged(gradients)
        if self.distinct.bit_count() == 1:
            inside = CanonicalSum()
            for rows in self.team.exchanged(gradients, self.inside):
                inside.add([rows.clone()])
            (rows,) = inside.total()
            return self.team.exchanged(nn.functional.pad(rows, (0, -len(rows) % self.machines)), self.between)
        rows = gradients.view(self.distinct, -1)
        pieces = nn.functional.pad(rows, (0, -rows.shape[1] % self.machines)).view(self.distinct, self.machines, -1)
        return self.team.exchanged(pieces.transpose(0, 1).reshape(-1))

    def own(self, name: str, whole: Tensor) -> Tensor:
        """This rank's rows of a tensor that is like a whole parameter."""
        parameter = self.parameters[name]
        if tuple(whole.shape) != self.shapes[parameter]:
            return whole
        first = self.begin(parameter)
        return whole[first : first + len(parameter)].clone()

    def complete(self) -> Transformer:
        """The model with all its weights, on rank 0, until the next step; the others of its machine give theirs."""
        if self._completed is not None:
            return self._completed
        self.order("complete")
        if not self.writes:
            return self.model
        found: dict[str, Tensor] = {}
        for name, parameter in self.parameters.items():
            whole = self._collected(parameter, parameter, 0)
            if whole is not None:
                found[name] = whole.to(parameter.device)
        if self._empty is None:
            return self.model
        self._completed = copy.deepcopy(self._empty)
        self._completed.load_state_dict(self._empty.state_dict() | found, assign=True)
        self._completed.train(self.model.training)
        return self._completed

    def forget(self) -> None:
        """Free what `complete` has made."""
        self._completed = None

    def agreed(self, line: str | None) -> str | None:
        """What the first rank that has something to say says of its part."""
        if not self.team.any_of([line is not None])[0]:
            return None
        return next(told for one in self.team.gathered(json.dumps(line).encode()) if (told := json.loads(one)))

    def order(self, what: str, **content: Any) -> None:
        """Tell the other ranks to do with their parts what rank 0 is about to do with its own."""
        if self.team.leads:
            self.team.give_order(what, **content)

    def weights(self) -> Mapping[str, Tensor]:
        """Nothing: each rank writes its own (`write`)."""
        return {}

    @property
    def writes(self) -> bool:
        """Whether this rank's rows come into a checkpoint: the first machine's do, where each has all weights."""
        return self.team.rank < self.distinct

    @property
    def writer(self) -> "Shards":
        """Itself."""
        return self

    def size(self, optimizer: Mapping[str, Tensor]) -> int:
        """Bytes of the files of all ranks."""
        tensors = [*self.parameters.items(), *optimizer.items()]
        numbers = sum(
            part.element_size() * (math.prod(self.shapes[like]) if (like := self._like(name, part)) is not None else 1)
            for name, part in tensors
        )
        return numbers + HEADER * (len(tensors) + 2 * self.distinct)

    def write(self, folder: GuardedFolder, optimizer: Mapping[str, Tensor]) -> dict[str, dict[str, Any]]:
        """Write the tensors that are this rank's to write, each of them whole; size and hash of every rank's files.

        Raises:
            RankLost: a rank cannot write.
        """
        self.order("write", folder=str(folder.path.absolute()))
        files: dict[str, dict[str, Any]] = {}
        for name, tensors in ((WEIGHTS, self.parameters), (OPTIMIZER, optimizer)):
            mine, file = self._mine(tensors) if self.writes else {}, part_name(name, self.place, self.distinct)
            with self.team.answering():
                if self.writes:
                    files[file] = write_part(folder, file, mine)
        told = self.team.gathered(json.dumps(files).encode())
        return {file: about for one in told for file, about in json.loads(one).items()}

    def _mine(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Those whole tensors that this rank writes; each rank about as many bytes."""
        given, mine = [0] * self.distinct, dict[str, Tensor]()
        for name, part in tensors.items():
            like = self._like(name, part)
            owner = given.index(min(given))
            given[owner] += part.element_size() * (part.numel() if like is None else math.prod(self.shapes[like]))
            whole = part if like is None else self._collected(like, part, owner)
            if whole is not None and owner == self.place:
                mine[name] = whole
        return mine

    def _like(self, name: str, part: Tensor) -> nn.Parameter | None:
        """The parameter whose rows a tensor has, by its name; None if it has none."""
        parameter = self.parameters[name.partition("/")[0]]
        return parameter if part.shape == parameter.shape else None

    def _collected(self, parameter: nn.Parameter, part: Tensor, rank: int) -> Tensor | None:
        """A tensor like the whole parameter, on one rank; None on the others."""
        found, shape = self.team.collected(self.padded(parameter, part), rank, self.inside), self.shapes[parameter]
        return None if found is None else found[: math.prod(shape)].view(shape)

    def try_folder(self, steps: GuardedFolder, shown: str = "") -> None:
        """Find out whether every rank that will write into the folder of checkpoints can, and sees rank 0's file.

        Args:
            steps: the folder.
            shown: name of the file of rank 0, on the others.

        Raises:
            RankLost: one cannot.
        """
        if not self.writes:
            with self.team.answering():
                return
        mine = temporary_name(f"trial-{self.team.rank}")  # one that was killed may have left its own
        steps.remove(mine)
        if self.team.leads:
            shown = mine
            steps.write_new(mine, b"")
        try:
            self.order("try", folder=str(steps.path.absolute()), shown=shown)
            with self.team.answering():
                if steps.kind(shown) is None:
                    raise StorageError(
                        "{path}: not the folder that rank 0 writes to; ranks that share the weights out write to one "
                        "folder, which all of them see",
                        path=steps.path,
                    )
                if not self.team.leads:
                    steps.write_new(mine, b"")
        finally:
            steps.remove(mine)


class Exchanging:
    """A part of the work of `fully_shard`, in which whoever waits looks at the others' hearts."""

    def __init__(self, shards: "Shards") -> None:
        """Between the ranks that have all weights together."""
        self._shards = shards

    def allocate(self, size: Sequence[Any], *, dtype: torch.dtype, device: torch.device) -> Tensor:
        """Memory."""
        return torch.empty(*size, dtype=dtype, device=device)


class Gathering(Exchanging):
    """Parameters put together."""

    def __call__(self, output_tensor: Tensor, input_tensor: Tensor, group: Any, async_op: bool = False) -> None:
        """Put them together."""
        output_tensor.copy_(self._shards.team.assembled(input_tensor, self._shards.inside))


class Reducing(Exchanging):
    """Gradients added in the engine's order, this rank's part of them; `fully_shard` adds those of later batches."""

    def __call__(
        self, output_tensor: Tensor, input_tensor: Tensor, group: Any, op: Any, async_op: bool = False
    ) -> None:
        """Add the gradients of one batch of each rank."""
        output_tensor.copy_(self._shards.team.reduced(input_tensor, self._shards.inside))


class Adding(Reducing):
    """This rank's part of the gradients of one block, added in the order of the batches.

    What `fully_shard` takes for the gradients means nothing until the last batch of a step.
    """

    def __init__(self, shards: Shards) -> None:
        """For a block of this model."""
        super().__init__(shards)
        self._tree, self._length = CanonicalSum(), 0

    def __call__(
        self, output_tensor: Tensor, input_tensor: Tensor, group: Any, op: Any, async_op: bool = False
    ) -> None:
        """Count the gradients of one batch of each rank.

        Raises:
            UsageError: other parameters have gradients than in the batch before.
        """
        if self._length not in (0, input_tensor.numel()):
            raise UsageError(
                "training.sharding: ranks that share the weights out need the same parameters to have gradients in "
                'every batch; use "replicated"'
            )
        self._length = input_tensor.numel()
        for part in self._shards.exchanged(input_tensor):
            self._tree.add([part.clone()])
        if self._shards.is_last:
            (total,), self._length = self._tree.total(), 0
            if self._shards.machines > 1:
                total = self._shards.team.assembled(total, self._shards.between)[: output_tensor.numel()]
            output_tensor.copy_(total)


class SharedOutSum(StepSum):
    """Loss and this rank's part of the gradients of one step's batches, summed over the ranks."""

    def __init__(self, held: Shards, training: TrainingConfig, *, asked: bool) -> None:
        """Begin a step; the parameters have no gradients."""
        super().__init__([], training)
        held.forget()
        self._held, self._team, self._asked = held, held.team, asked
        self._losses: list[Tensor] = []
        self._left = training.accumulation // held.team.size
        held.is_last = self._left == 1

    def add(self, loss: Tensor) -> None:
        """Count a batch of this rank, whose backward pass has added the gradients of all ranks' batches."""
        self._losses.append(loss)
        self._left -= 1
        self._held.is_last = self._left == 1
        if self._canonical and self._left:
            for one in self._held.sharded.values():
                one.grad = None

    def total(self) -> Tensor:
        """Leave this rank's part of the sums in the gradients of its rows, and return the loss."""
        for name, one in self._held.sharded.items():
            if one.grad is not None:
                gradient = one.grad.to_local()
                if self._held.machines > 1 and not self._canonical:
                    gradient = self._team.added(gradient, self._held.between)
                self._held.parameters[name].grad, one.grad = gradient, None
        (self._team.asked,) = self._team.any_of([self._asked])
        losses = CanonicalSum()
        for loss in self._team.assembled(torch.stack(self._losses)).view(self._team.size, -1).T.reshape(-1):
            losses.add([loss.clone()])
        return losses.total()[0]

    def norm(self) -> Float[Tensor, ""]:
        """The norm of the sums that `total` has left, of all ranks."""
        gradients = {one: one.grad for one in self._held.parameters.values() if one.grad is not None}
        parts = [self._held.padded(one, squares(gradient)) for one, gradient in gradients.items()]
        found = self._team.assembled(torch.cat(parts), self._held.inside).view(self._held.distinct, -1)
        rows = zip(found.split([len(part) for part in parts], dim=1), gradients, strict=True)
        norm = norm_of(part.reshape(-1)[: self._held.shapes[one][0]] for part, one in rows)
        return norm.to(next(iter(gradients.values())).dtype)

"""The ranks of a run: processes that share the batches of a step. A process is alone unless a launcher says otherwise.

Rank 0 leads: it plans, evaluates, samples, decides and writes, and tells the others when a step begins; they compute
their batches of it (`vitral.training.followers`). Only `ranks` and `sharding` beside this file know torch.distributed;
without several ranks neither is imported. `sharded_memory`, which forecasts, knows it in a process of its own.
"""

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any

from torch import Tensor

from vitral.core.errors import UsageError, VitralError
from vitral.model import Transformer
from vitral.runs import RunFolder
from vitral.runs.config import OwnOptimizer, RunConfig, TrainingConfig
from vitral.training.holding import Holding
from vitral.training.summing import StepSum


class RankLost(VitralError):
    """A rank failed, ended, or no longer answers.

    Attributes:
        rank: its number; None if it is not known.
        line: the message in English, which the run records.
        is_said: whether another rank tells the user.
        is_whole: whether the weights of the ranks that are left are to be trusted.
    """

    exit_code = 4
    is_whole = True
    is_said = False

    def __init__(self, sentence: str = "", /, **places: Any) -> None:
        """Say which rank and why."""
        super().__init__(sentence, **places)
        self.rank: int | None = places.get("rank")
        self.line = sentence.format(**places)


class RankDiffers(RankLost):
    """A rank has other weights, although all do the same; those of no rank are to be trusted."""

    is_whole = False


class Team:
    """One rank alone, and the interface of several.

    Attributes:
        rank: number of this rank, from 0.
        size: number of ranks.
        local: number of them on this machine.
        misplaced: the first rank that is not where it is if each machine has as many, one machine's after another's.
        asked: whether some rank was asked to stop; known after a step.
        is_broken: whether a rank is lost; nothing is said to the others any more.
    """

    rank, size, local = 0, 1, 1
    misplaced: int | None = None
    asked = is_broken = False
    is_restarted = False

    @property
    def leads(self) -> bool:
        """Whether this is rank 0."""
        return self.rank == 0

    def answers(self, mine: int) -> list[int]:
        """A small number of each rank."""
        return [mine]

    def remember(self, name: str) -> None:
        """Keep a name for as long as the launcher lives, which may start the ranks anew."""

    def remembers(self, name: str) -> bool:
        """Whether a name is kept."""
        return False

    def agree(self, request: Mapping[str, Any]) -> None:
        """Compare what all ranks were asked for, as plain data; all ranks call it at the same place.

        Raises:
            UsageError: a rank was asked for something else.
        """

    def gather(self, about: Mapping[str, Any], tensors: Mapping[str, Tensor], optimizer: Mapping[str, Tensor]) -> None:
        """Give every rank the run, its weights and the optimizer's state.

        Raises:
            RankLost: a rank cannot have it, for example because its text is another one.
        """

    def follow(self, corpus: str | None) -> RunFolder:
        """On any rank but 0: follow its orders until the training is over; return the run's folder."""
        raise NotImplementedError  # one process is rank 0

    def remarks(self) -> list[str]:
        """What the user should know of the ranks, as stored sentences."""
        return []

    def begin_step(self) -> None:
        """Tell the other ranks to compute the next step."""

    def share_out(self, model: Transformer, training: TrainingConfig) -> Holding | None:
        """Leave every rank some rows of each of the model's weights; None: it keeps all of them."""

    def step_sum(self, held: Holding, training: TrainingConfig, *, asked: bool) -> StepSum:
        """The sum of the next step over all ranks.

        Args:
            held: what this rank holds of the model; no parameter has a gradient.
            training: the run's options.
            asked: whether this rank was asked to stop.
        """
        return StepSum(list(held.parameters.values()), training)

    def decide(self, decision: Mapping[str, Any]) -> None:
        """Tell the other ranks a decision."""

    def compare_batches(self, chain: str) -> None:
        """Compare the batches that all ranks have drawn; their weights would be equal even where these are not.

        Args:
            chain: of all batches so far (`TrainerState.chain`), with those of a step that is not applied yet.

        Raises:
            RankLost: they differ.
        """

    def moved(self) -> None:
        """Count progress of a long work; whoever makes none for too long is lost."""

    def verify(self, tensors: Mapping[str, Tensor], distinct: int) -> None:
        """Compare weights and optimizer of all ranks that hold the same.

        Args:
            tensors: those of this rank.
            distinct: number of ranks that hold different ones; the rank after them holds what the first holds.

        Raises:
            RankLost: they differ; those of no rank are to be trusted.
        """

    def end(self) -> None:
        """Tell the other ranks that the training is over."""


ALONE = Team()
_current: list[Team] = [ALONE]


def current() -> Team:
    """The team of this process."""
    return _current[-1]


@contextmanager
def as_team(team: Team) -> Generator[None]:
    """Let this be the team of the process inside the block."""
    _current.append(team)
    try:
        yield
    finally:
        _current.pop()


def require_share(config: RunConfig, team: Team, where: str) -> None:
    """Refuse a number of ranks that cannot share the batches of a step.

    Raises:
        UsageError: the batches cannot be shared evenly, or the run adds them in an order of its own.
    """
    training, ranks = config.training, team.size
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
    if training.sharding == "hybrid" and team.misplaced is not None:
        raise UsageError(
            '{where}: training.sharding = "hybrid" needs the same number of ranks on every machine, those of one after '
            'those of another (LOCAL_RANK and LOCAL_WORLD_SIZE), and rank {rank} does not fit; use "sharded"',
            where=where,
            rank=team.misplaced,
        )
    if training.accumulation % ranks:
        size = max(1, training.batch_size * training.accumulation // ranks)
        raise UsageError(
            "{where}: {ranks} ranks cannot share the batches of a step evenly, training.accumulation = {batches}; a "
            "new run with training.accumulation = {ranks} and training.batch_size = {size} reads {tokens:,} tokens a "
            "step instead of {before:,}, in other windows of the text",
            where=where,
            batches=training.accumulation,
            ranks=ranks,
            size=size,
            tokens=ranks * size * config.model.context_length,
            before=config.tokens_per_step,
        )
    if training.reduction is None:
        raise UsageError(
            "{where}: begun by an earlier Vitral, which added the batches of a step in the order of one rank; go on "
            "with one",
            where=where,
        )

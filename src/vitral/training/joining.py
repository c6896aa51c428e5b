"""Being one of several ranks, if this process was launched as one; and whether their run has begun before."""

import enum
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from vitral.core.errors import UsageError
from vitral.core.launching import launched
from vitral.runs import RunFolder, is_run, refuse_existing
from vitral.training.team import ALONE, Team, as_team, current


@contextmanager
def together() -> Generator[Team]:
    """Be one of the ranks inside the block, if this process was launched as one; all ranks come here.

    Raises:
        RankLost: a rank failed or no longer answers.
        UsageError: PyTorch is too old, the ranks have different versions, or the launcher says something impossible.
    """
    if current() is not ALONE or not launched():
        yield current()
        return
    from vitral.training.followers import follow
    from vitral.training.ranks import joined  # knows torch.distributed

    with joined(follow) as team, as_team(team):
        yield team


class Begun(enum.IntEnum):
    """How far the ranks had come with a run when their launcher started them anew."""

    NOT = 0
    STOPPED = 1
    FINISHED = 2


def begun(folder: Path) -> Begun:
    """How far the ranks have come with a run; rank 0, which writes it, knows, and all ranks ask.

    A run that was in the folder before the launcher first started the ranks is none of theirs.

    Raises:
        UsageError: another run is in rank 0's folder, or rank 0 has none where another rank has one.
    """
    team, here, name = current(), Begun.NOT, str(folder.absolute())
    if not team.leads:
        here = Begun.STOPPED if is_run(folder) else Begun.NOT
    elif not team.remembers(name):
        refuse_existing(folder)
        team.remember(name)
    elif is_run(folder):
        ends = RunFolder.open(folder).metrics("end")
        here = Begun.FINISHED if ends and ends[-1]["finished"] else Begun.STOPPED
    if not team.is_restarted:
        return Begun.NOT
    first, *others = team.answers(here)
    if first == Begun.NOT and any(others):
        raise UsageError(
            "{folder}: rank {rank} has a run there, and rank 0 has none to go on with; start the ranks with rank 0 on "
            "the machine that has it, or remove it",
            folder=folder,
            rank=others.index(Begun.STOPPED) + 1,
        )
    return Begun(first)

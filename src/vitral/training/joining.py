"""Whether this process is one of several ranks, and being one."""

import os
from collections.abc import Generator
from contextlib import contextmanager

from vitral.training.team import ALONE, Team, as_team, current


def launched() -> bool:
    """Whether this process was launched as one of several ranks, by the variables of torchrun."""
    size = os.environ.get("WORLD_SIZE", "1")
    return size.isdecimal() and int(size) > 1 and {"RANK", "MASTER_ADDR", "MASTER_PORT"} <= os.environ.keys()


@contextmanager
def together() -> Generator[Team]:
    """Be one of the ranks inside the block, if this process was launched as one; all ranks come here.

    Raises:
        RankLost: a rank failed or no longer answers.
        UsageError: PyTorch is too old, or the ranks have different versions.
    """
    if current() is not ALONE or not launched():
        yield current()
        return
    from vitral.training.followers import follow
    from vitral.training.ranks import joined  # knows torch.distributed

    with joined(follow) as team, as_team(team):
        yield team

"""Being one of several ranks, if this process was launched as one."""

from collections.abc import Generator
from contextlib import contextmanager

from vitral.core.launching import launched
from vitral.training.team import ALONE, Team, as_team, current


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

"""The ranks of one start agree on a name, whatever earlier starts have left in the launcher's store."""

import random
import threading
from collections.abc import Callable

import pytest
import torch.distributed as dist

from vitral.training.heart import Heart
from vitral.training.meeting import Meeting, meet
from vitral.training.team import RankLost

PATIENCE = 60.0


@pytest.fixture
def store() -> dist.Store:  # pyright: ignore[reportPrivateImportUsage]
    """A store in this process."""
    return dist.HashStore()  # pyright: ignore[reportPrivateImportUsage]


def gone(*_: object) -> None:
    """A call of a store whose server has ended."""
    raise RuntimeError("connection reset by peer")


def at_once(calls: list[Callable[[], object]], order: list[int]) -> None:
    """Call them in threads of their own that start in this order."""
    threads = [threading.Thread(target=calls[place]) for place in order]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@pytest.mark.parametrize("trial", range(2))
def test_every_start_has_a_name_of_its_own(trial: int, store: dist.Store) -> None:  # pyright: ignore
    """In whatever order the ranks come, and however many were started, with more of them or fewer, before."""
    draw, names = random.Random(trial), list[str]()
    for start, size in enumerate((3, 5, 2)):
        found = dict[int, Meeting]()

        def come(rank: int, size: int = size, found: dict[int, Meeting] = found) -> None:
            found[rank] = meet(store, rank, size, PATIENCE)

        at_once([lambda rank=rank: come(rank) for rank in range(size)], draw.sample(range(size), size))
        assert len(found) == size
        (met,) = set(found.values())
        assert met.is_restarted == (start > 0)
        names.append(met.name)
    assert len(set(names)) == 3


def test_a_rank_of_an_earlier_start_is_not_taken_for_one_of_this(store: dist.Store) -> None:  # pyright: ignore
    """Rank 1 came before, and has not come again."""
    at_once([lambda rank=rank: meet(store, rank, 2, PATIENCE) for rank in range(2)], [1, 0])
    with pytest.raises(RankLost, match="rank 1 ") as lost:
        meet(store, 0, 2, 0.2)
    assert not lost.value.is_said


@pytest.mark.merge
def test_one_rank_says_who_has_not_come(store: dist.Store) -> None:  # pyright: ignore
    said = list[bool]()

    def come(rank: int) -> None:
        with pytest.raises(RankLost, match="rank 1 ") as lost:
            meet(store, rank, 3, 3.0)
        said.append(lost.value.is_said)

    at_once([lambda: come(0), lambda: come(2)], [1, 0])
    assert sorted(said) == [False, True]


def test_without_the_store_there_is_no_start() -> None:
    with pytest.raises(RankLost):
        meet(BrokenStore(), 0, 2, PATIENCE)  # pyright: ignore


class BrokenStore:
    """A store whose server has ended."""

    set = get = check = add = compare_set = staticmethod(gone)  # pyright: ignore


@pytest.mark.parametrize(("lost", "those_left"), [(0, [1, 2]), (1, [0, 2]), (1, [2]), (None, [1, 2]), (2, [0, 1])])
def test_one_of_those_left_tells_the_user(
    lost: int | None,
    those_left: list[int],
    store: dist.Store,  # pyright: ignore
) -> None:
    """Rank 0 if it is there, else exactly one of the others."""
    hearts = {rank: Heart(rank, 3, [store, store], PATIENCE, is_first=True) for rank in those_left}
    spoken, seconds = dict[int, bool](), PATIENCE if 0 in those_left else 0.2

    def tell(rank: int) -> None:
        spoken[rank] = hearts[rank].speaks(lost, seconds)

    at_once([lambda rank=rank: tell(rank) for rank in those_left], [*range(len(those_left))][::-1])
    for heart in hearts.values():
        heart.stop()
    assert sum(spoken.values()) == 1
    assert spoken.get(0, True)


def test_time_in_which_a_rank_does_not_look_is_no_silence(
    store: dist.Store,  # pyright: ignore
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All ranks may be stopped together, as by Ctrl-Z, and go on."""
    now = [0.0]
    monkeypatch.setattr("vitral.training.heart.time.monotonic", lambda: now[0])
    heart = Heart(0, 2, [store, store], PATIENCE, is_first=True)
    heart.stop()
    heart._store.set("place/1", "here, 1")
    for _ in range(2):
        now[0] += 2 * PATIENCE
        assert heart.silent() is None
    looks = 0
    while (lost := heart.silent()) is None:
        now[0] += heart.patience
        looks += 1
    assert lost.rank == 1
    assert looks * heart.patience > PATIENCE


def test_without_the_store_those_tell_who_were_chosen(store: dist.Store) -> None:  # pyright: ignore
    for is_first in (True, False):
        heart = Heart(1, 4, [store, store], PATIENCE, is_first=is_first)
        heart.stop()
        heart._store = BrokenStore()  # pyright: ignore
        assert heart.speaks(None, PATIENCE) == is_first

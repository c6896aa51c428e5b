"""Leases: one worker has a job, whatever the others do at the same time; a lost claim publishes nothing."""

import json
import os
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from vitral.core.guarded import GuardedFolder
from vitral.runs.leases import Lease, LeaseLost, Owner, Room, Watcher

ROUNDS = 23


class Clock:
    """A clock that goes on when it is told to."""

    def __init__(self) -> None:
        """Begin at an arbitrary time."""
        self.now = 1e6

    def __call__(self) -> float:
        """The time."""
        return self.now


def room_in(path: Path) -> Room:
    return Room(GuardedFolder(path))


def of_another_machine(room: Room, number: int) -> None:
    """A claim whose worker cannot be asked for."""
    owner = Owner("elsewhere", 7, "another kernel", "11", "token")
    room.folder.make()
    assert room.folder.create(f"claim-{number:06}.json", json.dumps(owner.plain()).encode())


@pytest.mark.parametrize("links", [True, False])
def test_of_two_that_claim_at_the_same_instant_one_wins(tmp_path: Path, monkeypatch, links: bool) -> None:
    if not links:

        def refuse(*given, **options) -> None:
            raise PermissionError

        monkeypatch.setattr("os.link", refuse)
    for number in range(ROUNDS):
        room, barrier = room_in(tmp_path / str(number)), threading.Barrier(3)
        won: list[Lease] = []

        def claim(room: Room = room, barrier: threading.Barrier = barrier, won: list[Lease] = won) -> None:
            watcher = Watcher()
            barrier.wait()
            lease = watcher.claim(room)
            if lease is not None:
                won.append(lease)

        threads = [threading.Thread(target=claim) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [lease.number for lease in won] == [1]
        assert sorted(room.folder.names()) == ["claim-000001.json"]


def test_a_silent_worker_loses_its_claim_by_the_watchers_clock(tmp_path: Path) -> None:
    room, clock = room_in(tmp_path / "job"), Clock()
    of_another_machine(room, 1)
    watcher = Watcher(clock=clock, silence=120)
    assert not watcher.is_free(room)
    clock.now += 119
    assert not watcher.is_free(room)
    Lease(room, 1).beat(1)  # a sign of life
    clock.now += 119
    assert not watcher.is_free(room)
    clock.now += 120
    assert not watcher.is_free(room)
    clock.now += 1
    lease = watcher.claim(room)
    assert lease is not None
    assert lease.number == 2
    assert not Watcher(clock=clock).is_free(room)


def test_a_worker_that_lost_its_claim_publishes_nothing(tmp_path: Path) -> None:
    room = room_in(tmp_path / "job")
    first = Watcher().claim(room)
    assert first is not None
    with first.kept():
        first.require()
        assert Watcher().claim(room) is None
        of_another_machine(room, 2)
        with pytest.raises(LeaseLost):
            first.require()
        with pytest.raises(LeaseLost, match="elsewhere"):
            first.seal()
        first.beat(9)
        assert first.is_lost
    assert not Watcher().is_free(room)


def test_a_claim_that_is_sealed_is_not_taken_for_lost(tmp_path: Path) -> None:
    room = room_in(tmp_path / "job")
    lease = Watcher().claim(room)
    assert lease is not None
    with lease.kept():
        lease.seal()
        lease.require()
        newest = room.newest()
        assert newest is not None
        assert (newest.number, newest.publishes) == (2, 1)


def test_how_a_claim_ended_is_told_and_frees_the_job(tmp_path: Path) -> None:
    room, watcher = room_in(tmp_path / "job"), Watcher()
    for error in (RuntimeError("one"), KeyboardInterrupt(), LeaseLost("x"), OSError("two")):
        lease = watcher.claim(room)
        assert lease is not None
        with pytest.raises(type(error)), lease.kept():
            raise error
    assert room.failures() == ["RuntimeError: one", "OSError: two"]
    room.forgive()
    assert room.failures() == []
    assert watcher.claim(room) is not None


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs Linux's list of processes")
def test_a_worker_of_this_machine_that_has_ended_is_known_at_once(tmp_path: Path) -> None:
    room = room_in(tmp_path / "job")
    child = os.fork()
    if not child:
        Watcher().claim(room)
        os._exit(0)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)  # it has ended, and its parent has not asked how
    newest = room.newest()
    assert newest is not None
    assert newest.owner is not None
    assert newest.owner.has_ended()
    assert Watcher().is_free(room)
    os.waitpid(child, 0)
    assert Watcher().is_free(room)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs Linux's list of processes")
def test_a_worker_whom_the_system_hides_may_live(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of another user, where /proc shows only one's own (hidepid): a signal is refused, so there is such a process."""
    owner = replace(Owner.me(), process=os.getpid() + 2**22)
    assert owner.has_ended()

    def refuse(process: int, number: int) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "kill", refuse)
    assert not owner.has_ended()


def test_damaged_files_of_a_claim_are_no_free_job(tmp_path: Path) -> None:
    room, clock = room_in(tmp_path / "job"), Clock()
    of_another_machine(room, 1)
    (tmp_path / "job" / "claim-000001.json").write_bytes(b"\xff{")
    (tmp_path / "job" / "claim-x.json").write_bytes(b"")
    (tmp_path / "job" / "beat-000001.json").write_bytes(b"{")
    watcher = Watcher(clock=clock)
    assert not watcher.is_free(room)
    assert room.told(1) == {}
    clock.now += 1000
    assert watcher.is_free(room)

"""Threads are given back, a process does one training at a time, and a launcher says what its ranks are."""

import os
import subprocess
import sys
import threading

import pytest
import torch

from vitral.core.errors import UsageError
from vitral.core.process import launch_name, launched, only_training, using_threads

FORKING = """
import os
from vitral.core.errors import UsageError
from vitral.core.process import only_training

with only_training():
    child = os.fork()
    if not child:
        with only_training():
            try:
                with only_training():
                    os._exit(1)
            except UsageError:
                pass
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    try:
        with only_training():
            raise SystemExit(2)
    except UsageError:
        pass
with only_training():
    pass
"""


def test_threads_are_set_inside_and_given_back() -> None:
    before = torch.get_num_threads()
    with using_threads(3):
        assert torch.get_num_threads() == 3
        with using_threads(1), using_threads(None):
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 3
    with pytest.raises(KeyError), using_threads(2):
        raise KeyError
    assert torch.get_num_threads() == before


def test_a_second_training_is_refused_until_the_first_ends() -> None:
    refused: list[UsageError] = []

    def attempt() -> None:
        try:
            with only_training():
                pass
        except UsageError as error:
            refused.append(error)

    def elsewhere() -> None:
        thread = threading.Thread(target=attempt)
        thread.start()
        thread.join()

    with only_training():
        elsewhere()
        attempt()
    assert len(refused) == 2
    with pytest.raises(KeyError), only_training():
        raise KeyError
    elsewhere()
    assert len(refused) == 2


@pytest.mark.merge
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_child_of_a_training_process_may_train() -> None:
    done = subprocess.run([sys.executable, "-c", FORKING], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(("size", "several"), [(None, False), ("", False), ("1", False), ("2", True), ("two", True)])
def test_one_process_is_alone(size: str | None, several: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody trains alone by mistake."""
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    if size is not None:
        monkeypatch.setenv("WORLD_SIZE", size)
    assert launched() == several


def test_all_starts_by_one_launcher_have_one_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TORCHELASTIC_RUN_ID", raising=False)
    assert launch_name() == ""
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    names = set[str]()
    for attempt in range(2):
        monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", f"/tmp/torchelastic_a/none_b/attempt_{attempt}/0/error.json")
        names.add(launch_name())
    assert names == {"/tmp/torchelastic_a/none_b/"}
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "7")
    assert launch_name() == "7"


@pytest.mark.parametrize(("given", "result"), [("", "1000"), ("GOMP_SPINCOUNT", "7"), ("OMP_WAIT_POLICY", "None")])
def test_how_threads_wait_is_said_before_pytorch_is_loaded_unless_the_user_says_it(given: str, result: str) -> None:
    """By the package itself, which every command, rank and worker imports first."""
    own = {name: value for name, value in os.environ.items() if "OMP_" not in name} | {given or "OTHER": "7"}
    script = "import os, sys, vitral; print(os.environ.get('GOMP_SPINCOUNT'), 'torch' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", script], env=own, text=True).split() == [result, "False"]

"""A library call with wrong values returns, or raises one printable line of ours, and leaves no file behind."""

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.reliability.conftest import Tally, trials

CALLS = Path(__file__).with_name("library_values.py")


@trials(0, 30, 5000)
def test_wrong_values_are_refused_in_one_line(trials: int, tmp_path: Path, tally: Tally) -> None:
    """In a process of its own, since the type checker of the tests would refuse most values before the library does."""
    command = [sys.executable, str(CALLS), "5", str(trials), str(tmp_path)]
    environment = os.environ | {"VITRAL_CACHE": str(tmp_path / "tokens")}
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, env=environment, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert not found["failures"], "\n".join(found["failures"])
    assert found["refused"] > trials // 2
    tally("library calls with wrong values", trials)

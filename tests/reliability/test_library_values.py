"""A library call with wrong values returns, or raises one printable line of ours, and leaves no file behind."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.reliability.conftest import FULL, Tally, scaled

CALLS = Path(__file__).with_name("library_values.py")
SEEDS = range(5, 9) if FULL else range(5, 6)


@pytest.mark.parametrize("seed", SEEDS)
def test_wrong_values_are_refused_in_one_line(seed: int, tmp_path: Path, tally: Tally) -> None:
    """In a process of its own, since the type checker of the tests would refuse most values before the library does."""
    wanted = scaled(500, 5000 // len(SEEDS))
    command = [sys.executable, str(CALLS), str(seed), str(wanted), str(tmp_path)]
    environment = os.environ | {"VITRAL_CACHE": str(tmp_path / "tokens")}
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, env=environment, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["calls"] == wanted
    assert not found["failures"], f"seed {seed}: {len(found['failures'])} of {wanted}\n" + "\n".join(found["failures"])
    assert found["refused"] > wanted // 2
    tally("library calls with wrong values", wanted)

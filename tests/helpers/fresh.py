"""Code in a Python of its own."""

import subprocess
import sys


def printed(code: str) -> str:
    """What code prints in a new process."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout

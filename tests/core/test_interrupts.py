"""Ctrl-C inside one long operation."""

import os
import signal
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(os.name == "nt", reason="sends SIGINT")

PROGRAM = """
import hashlib, signal, sys
from vitral.core import interrupts

interrupts.PATIENCE = 0.01
interrupts.watch(lambda line: print("said", flush=True))
signal.getsignal(signal.SIGINT).waits = sys.argv[1] == "waits"
try:
    print("ready", flush=True)
    while sys.argv[1] == "hears":
        pass
    hashlib.pbkdf2_hmac("sha256", b"", b"", 2**31 - 1)  # more than a quarter of an hour without Python
except KeyboardInterrupt:
    print("heard")
"""


@pytest.mark.parametrize(
    ("kind", "signals", "code", "said"),
    [("computes", 1, 130, ["said"]), ("waits", 2, 130, ["said", "said"]), ("hears", 1, 0, ["heard"])],
)
def test_a_program_ends_in_the_middle_of_an_operation(kind: str, signals: int, code: int, said: list[str]) -> None:
    command = [sys.executable, "-c", PROGRAM, kind]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        lines = [program.stdout.readline()]
        for _ in range(signals):
            program.send_signal(signal.SIGINT)
            lines.append(program.stdout.readline())
        assert program.wait() == code
    assert [line.strip() for line in lines] == ["ready", *said]

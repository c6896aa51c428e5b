"""Ctrl-C inside one long operation."""

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(os.name == "nt", reason="sends SIGINT")

PROGRAM = """
import hashlib, os, signal, sys, threading, time
from vitral.core import process

def press(*line):
    print(*line, flush=True)
    os.kill(os.getpid(), signal.SIGINT)

def press_once():
    while not computes:
        time.sleep(0.001)
    press("pressed")

computes = []
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job of a shell ignores it
process.watch_interrupts(lambda line: press("said"))
signal.getsignal(signal.SIGINT).line = "says" if sys.argv[1] == "says" else ""
threading.Thread(target=press_once, daemon=True).start()
try:
    if sys.argv[1] == "hears":
        computes.append(1)
        while True:
            pass
    process.PATIENCE = 0.01
    sys.setswitchinterval(1000)  # the other threads run only while this one is inside an operation
    computes.append(1)
    hashlib.pbkdf2_hmac("sha256", b"", b"", 2**31 - 1)  # more than a quarter of an hour
except KeyboardInterrupt:
    print("heard")
"""


@pytest.mark.parametrize(
    ("kind", "code", "said"),
    [("computes", 130, "pressed said"), ("says", 130, "pressed said said"), ("hears", 0, "pressed heard")],
)
def test_a_program_ends_in_the_middle_of_an_operation(kind: str, code: int, said: str) -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM, kind], stdout=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stdout.split()) == (code, said.split())

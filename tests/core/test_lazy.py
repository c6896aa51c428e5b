"""Imports without the search for garbage."""

import subprocess
import sys

MADE = """
import gc
from vitral.core.lazy import uncollected

with uncollected():
    made = [[number] for number in range(9973)]
    young = len(gc.get_objects(generation=0))
print(young, len(gc.get_objects(generation=0)), gc.get_freeze_count())
"""


def test_the_next_search_does_not_look_through_what_was_imported() -> None:
    done = subprocess.run([sys.executable, "-c", MADE], capture_output=True, text=True, check=True)
    before, after, frozen = map(int, done.stdout.split())
    assert before >= 9973
    assert after < 1000
    assert frozen == 0

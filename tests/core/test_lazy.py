"""Imports without the search for garbage."""

from fresh import printed

MADE = """
import gc
from vitral.core.lazy import uncollected

with uncollected():
    made = [[number] for number in range(9973)]
    young = len(gc.get_objects(generation=0))
print(young, len(gc.get_objects(generation=0)), gc.get_freeze_count())
"""


def test_the_next_search_does_not_look_through_what_was_imported() -> None:
    before, after, frozen = map(int, printed(MADE).split())
    assert before >= 9973
    assert after < 1000
    assert frozen == 0

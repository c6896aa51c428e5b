"""Sheets as students write them: problems, habits, slips, and the truth about each sheet.

Nothing here is shared with the checker that these sheets measure.
"""

from students import slips_of_arithmetic, slips_of_attention, slips_of_blocks, slips_of_endings
from students.pen import HABITS, LISTED
from students.problems import PROBLEMS
from students.sheets import KINDS, Changed, Sheet, student_sheet
from students.slips import SLIPS
from students.slips_of_arithmetic import CELLS

__all__ = [
    "CELLS",
    "HABITS",
    "KINDS",
    "LISTED",
    "PROBLEMS",
    "SLIPS",
    "Changed",
    "Sheet",
    "student_sheet",
]

FILES = (slips_of_arithmetic, slips_of_attention, slips_of_blocks, slips_of_endings)
"""The files that fill the table of slips."""

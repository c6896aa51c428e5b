"""Studies: arms trained from the same seeds on the same batches, statistics, a verdict that follows, a report.

`design` says what is compared, `catalogue` holds the named studies, `running` trains, `statistics` counts,
`verdict` concludes by stated rules, `report` writes.
"""

from vitral.studies.catalogue import read_study, study_named, study_names
from vitral.studies.design import Arm, Study
from vitral.studies.report import Report, study_sections, write_report
from vitral.studies.results import ArmResult, RunResult, StudyResult
from vitral.studies.running import run_study
from vitral.studies.verdict import Finding, verdict

__all__ = [
    "Arm",
    "ArmResult",
    "Finding",
    "Report",
    "RunResult",
    "Study",
    "StudyResult",
    "read_study",
    "run_study",
    "study_named",
    "study_names",
    "study_sections",
    "verdict",
    "write_report",
]

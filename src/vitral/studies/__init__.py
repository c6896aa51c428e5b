"""Studies: arms trained from the same seeds on the same batches, measured by probes, judged by one rule.

`design` describes what is compared, `catalogue` contains the named studies, `execution` trains, `measures` keeps what
probes measure, `claims` judges. The page of a study is `vitral.report.study`.
"""

from typing import TYPE_CHECKING

from vitral.core.lazy import lazily

if TYPE_CHECKING:
    from vitral.studies.catalogue import study_named, study_names
    from vitral.studies.design import Arm, Study
    from vitral.studies.execution import run_study
    from vitral.studies.losses import against_counts, loss_claims
    from vitral.studies.results import ArmResult, RunResult, StudyResult
    from vitral.studies.study_file import read_study

__all__ = [
    "Arm",
    "ArmResult",
    "RunResult",
    "Study",
    "StudyResult",
    "against_counts",
    "loss_claims",
    "read_study",
    "run_study",
    "study_named",
    "study_names",
]

_HOMES = {
    "catalogue": "study_named study_names",
    "design": "Arm Study",
    "execution": "run_study",
    "losses": "against_counts loss_claims",
    "results": "ArmResult RunResult StudyResult",
    "study_file": "read_study",
}
__getattr__ = lazily(__name__, {name: home for home, names in _HOMES.items() for name in names.split()})

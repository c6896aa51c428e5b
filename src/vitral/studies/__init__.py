"""Studies: arms trained from the same seeds on the same batches, measured by probes, judged by one rule.

`design` describes what is compared, `catalogue` contains the named studies, `execution` trains, `measures` keeps what
probes measure, `claims` judges. The page of a study is `vitral.report.study`.
"""

from typing import TYPE_CHECKING

from vitral.core.lazy import lazily

if TYPE_CHECKING:
    from vitral.studies.design import Study
    from vitral.studies.execution import run_study
    from vitral.studies.losses import loss_claims
    from vitral.studies.results import ArmResult, RunResult, StudyResult
    from vitral.studies.study_file import read_study, study_named, study_names

__getattr__ = lazily(__name__)

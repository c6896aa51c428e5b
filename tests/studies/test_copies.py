"""Results of a study survive pickle and deep copies."""

import copy
import pickle

import pytest

from vitral.reports.study import write_report
from vitral.studies import StudyResult, loss_claims


@pytest.mark.parametrize("copied", [lambda one: pickle.loads(pickle.dumps(one)), copy.deepcopy])
def test_a_result_is_judged_and_written_the_same(trained: StudyResult, copied) -> None:
    again = copied(trained)
    assert again == trained
    assert repr(copied(loss_claims(trained))) == repr(loss_claims(again))  # NaN differs from itself
    page = write_report(again)
    assert repr(copied(page)) == repr(page)

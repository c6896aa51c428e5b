"""Sheets with a verdict that was computed elsewhere: honest ones that looked wrong, wrong ones that looked right."""

import re
from pathlib import Path

import pytest

from vitral.explanation import CheckReport, Verdict, check, parse_example
from vitral.explanation.checks.report import ReportText
from vitral.explanation.examples.by_name import find_example
from vitral.explanation.phrasebook import phrases

SHEETS = Path(__file__).parent / "sheets"


def checked(name: str) -> CheckReport:
    [path] = SHEETS.glob(f"{name}.*")
    return check(find_example(path))


def kinds(report: CheckReport) -> set[str]:
    """The kinds of all slips that are named."""
    slips = [found.slip for one in report.quantities for found in one.findings if found.slip]
    return {each.kind for slip in slips for each in (slip, slip.other) if each is not None}


@pytest.mark.parametrize("name", ["accused-given-rounded", "accused-raschka-given-rounded"])
def test_given_numbers_may_be_rounded_before_printing(name: str) -> None:
    report = checked(name)
    assert report.worst is Verdict.rounding
    assert report.rule is not None
    assert report.rule.named == (("given", 0),)


def test_a_number_that_the_rule_almost_explains_is_only_doubtful() -> None:
    """√3 as 1.73, of scores that are not printed and were rounded at a tie: an interval holds the author's root."""
    report = checked("accused-sqrt3-as-1.73")
    assert report.worst is Verdict.doubtful
    assert report.counts()["doubtful"] == 1


@pytest.mark.parametrize(
    ("name", "first", "row"),
    [
        ("acquitted-13-for-11.59", "weights", 2),
        ("acquitted-2-for-1.03", "out", 1),
        ("acquitted-3.60-for-3.84", "weights", 2),
    ],
)
def test_no_rule_excuses_any_distance(name: str, first: str, row: int) -> None:
    found = checked(name).first_wrong
    assert found is not None
    assert (found.name, found.index[-2]) == (first, row)


SILENT = ("guess-not-reproducing-known", "guess-ai-engineering", "guess-base3-equal-scores")


@pytest.mark.parametrize("name", SILENT)
def test_a_guess_that_does_not_give_the_numbers_is_not_made(name: str) -> None:
    report = checked(name)
    assert report.worst is Verdict.wrong
    assert not kinds(report)


NAMED = {
    "acquitted-13-for-11.59": {"scale-other"},
    "guess-base2-for-scale-twice": {"temperature", "scale-twice"},
    "guess-base3-for-scale": {"temperature", "scale-other"},
    "guess-columns-for-whole-matrix": {"wrong-axis"},
    "guess-only-head-1": {"head-other"},
    "guess-row-of-wq-as-key": {"operand-other", "other-row"},
    "guess-temperature-forgotten": {"temperature-missing"},
    "guess-three-different-rows": {"head-other"},
    "guess-topk-second-candidate": {"not-renormalised"},
}


@pytest.mark.parametrize("name", NAMED)
def test_a_name_is_the_right_one(name: str) -> None:
    report = checked(name)
    assert kinds(report)
    assert kinds(report) <= NAMED[name]


def test_the_softmax_of_a_whole_matrix_is_not_one_of_columns() -> None:
    found = checked("guess-columns-for-whole-matrix").first_wrong
    assert found is not None
    assert found.slip is not None
    assert found.slip.values == {"how": "all"}


@pytest.mark.parametrize("name", ["guess-only-head-1", "guess-base2-for-scale-twice", "guess-base3-for-scale"])
def test_a_guess_comes_with_the_numbers_that_it_gives(name: str) -> None:
    """And they are those that are printed."""
    report = checked(name)
    found = report.first_wrong
    assert found is not None
    words = ReportText(report, phrases("en")).guess(found)
    given = [float(number.replace("−", "-")) for number in re.findall(r"−?\d+\.?\d*", words.partition("gives")[2])]
    row = report.quantities[[one.claim.name for one in report.quantities].index(found.name)].claim.values
    assert given == pytest.approx(row[found.index[:-1]].tolist(), abs=1.2 * 10.0**-3)


def test_a_row_that_does_not_add_up_is_told() -> None:
    text = 'mask = "bidirectional"\nscale = "none"\n[given]\nscores = [[1, 2, 3]]\n[claimed]\n'
    report = check(parse_example(text + "weights = [[0.05, 0.25, 0.60]]"))
    assert "0.90" in str(report)


def test_the_same_digits_are_asked_of_every_row() -> None:
    """Weights with one decimal on a sheet of two: no rule that is coarser than the sheet excuses one row of them."""
    report = checked("unfair-weights-one-decimal")
    [weights] = [one for one in report.quantities if one.claim.name == "weights"]
    assert {found.index[1] for found in weights.findings if found.verdict is Verdict.wrong} == {1, 2}

"""The checker finds what is wrong, says where first, and accuses nobody else."""

import random
import re
from pathlib import Path

import pytest
from tiers import few

from vitral.explanation import CheckReport, Verdict, check, parse_example, phrases
from vitral.explanation.checks.checker import corrected
from vitral.explanation.checks.report import ReportText
from vitral.explanation.examples.by_name import find_example, gallery

SAY = phrases("en")


def checked(text: str) -> CheckReport:
    return check(parse_example(text))


def verdicts(report: CheckReport) -> dict[str, dict[tuple[int, ...], str]]:
    """By quantity, the verdict of each cell that is not right, counted from 1."""
    return {
        one.claim.name: {tuple(place + 1 for place in found.index): found.verdict.value for found in one.findings}
        for one in report.quantities
        if one.findings
    }


# The examples of the source documents, as SOURCES lists them.


def test_three_words() -> None:
    report = check(find_example("three-words"))
    found = verdicts(report)
    wrong = {
        name: sorted({cell[-2] for cell, verdict in cells.items() if verdict == "wrong"})
        for name, cells in found.items()
    }
    assert wrong == {"q": [2], "k": [2], "v": [2, 3], "scores": [1, 2, 3], "weights": [], "out": [3]}
    assert found["scores"] == {(1, 1, 1): "wrong", (1, 2, 1): "follows", (1, 2, 2): "wrong", (1, 3, 2): "wrong"}
    assert set(found["weights"].values()) == {"follows"}
    assert {cell: verdict for cell, verdict in found["out"].items() if cell[0] == 2} == dict.fromkeys(
        [(2, 1), (2, 2), (2, 3)], "follows"
    )
    assert ReportText(report, SAY).first_wrong() == "First wrong step: q (q[2,1])."


def test_causal_mask_has_wrong_rows_from_the_second_on() -> None:
    found = verdicts(check(find_example("causal-mask")))
    assert list(found) == ["weights"]
    assert sorted({cell[1] for cell, verdict in found["weights"].items() if verdict == "wrong"}) == [2, 3, 4]


def test_gato_preto_dorme_has_one_wrong_row_and_an_output_that_follows() -> None:
    found = verdicts(check(find_example("gato-preto-dorme")))
    assert found == {
        "weights": dict.fromkeys([(1, 3, 1), (1, 3, 2), (1, 3, 3)], "wrong"),
        "out": dict.fromkeys([(3, 1), (3, 2)], "follows"),
    }


def test_the_total_of_the_parameter_table_is_wrong_and_no_row_is() -> None:
    report = check(find_example("shakespeare-parameters"))
    assert verdicts(report) == {"total": {(1,): "wrong"}}
    [total] = report.quantities[-1].findings
    assert (total.claimed, total.expected) == (418_866, 431_104)


def test_a_norm_that_was_forgotten_is_recognised() -> None:
    report = check(find_example("post-norm-forgotten"))
    assert set(verdicts(report)) == {"resid_post"}
    assert {found.slip.values["how"] for one in report.quantities for found in one.findings if found.slip} == {"none"}


WRONG = (
    "three-words",
    "three-words-scaled",
    "causal-mask",
    "gato-preto-dorme",
    "o-gato-preto",
    "post-norm-forgotten",
    "temperature-two",
    "shakespeare-parameters",
)


@pytest.mark.parametrize("name", gallery())
def test_the_rest_of_the_gallery_is_right_to_every_digit(name: str) -> None:
    report = check(find_example(name))
    assert (report.worst is Verdict.right) == (name not in WRONG)


SHARED = Path(__file__).parents[3] / "shared" / "examples"


@pytest.mark.skipif(not SHARED.is_dir(), reason="the source documents are not at hand")
def test_the_sources_own_files_give_the_same_verdicts() -> None:
    for path in sorted(SHARED.glob("*.toml")):
        assert verdicts(check(find_example(path))) == verdicts(check(find_example(path.stem))), path.name


# Verdicts, one by one.

TWO = 'decimals = 2\nmask = "causal"\nscale = "none"\n[given]\nscores = [[1, 9], [0, 1]]\n{given}\n[claimed]\n'
CELLS = [
    ("weights = [[1, 0], [0.27, 0.73]]", {}),
    ("weights = [[1, 0], [0.26, 0.73]]", {"weights": {(1, 2, 1): "rounding"}}),
    ("weights = [[1, 0], [0.25, 0.75]]", {"weights": {(1, 2, 1): "wrong", (1, 2, 2): "wrong"}}),
    ('weights = [["?", "?"], ["?", 0.73]]', {}),
    ('masked = [[1, "-inf"], [0, 1]]', {}),
    ("masked = [[1, -inf], [0, 1]]", {}),
    ("masked = [[1, -1e9], [0, 1]]", {}),
    ("masked = [[1, -9], [0, 1]]", {"masked": {(1, 1, 2): "wrong"}}),
    ('masked = [["-inf", "-inf"], [0, 1]]', {"masked": {(1, 1, 1): "wrong"}}),
    # Follows: right for the author's own numbers, of which one is wrong.
    (
        'masked = [[1, "-inf"], [0, 2]]\nweights = [[1, 0], [0.12, 0.88]]',
        {"masked": {(1, 2, 2): "wrong"}, "weights": dict.fromkeys([(1, 2, 1), (1, 2, 2)], "follows")},
    ),
    # Right again after a wrong number that was not carried on.
    (
        'masked = [[1, "-inf"], [0, 2]]\nweights = [[1, 0], [0.27, 0.73]]',
        {"masked": {(1, 2, 2): "wrong"}},
    ),
    # Two slips: the second is wrong in itself, though the first is carried on.
    (
        'masked = [[1, "-inf"], [0, 2]]\nweights = [[1, 0], [0.12, 0.48]]',
        {"masked": {(1, 2, 2): "wrong"}, "weights": {(1, 2, 1): "follows", (1, 2, 2): "wrong"}},
    ),
]


@pytest.mark.parametrize(("claimed", "expected"), CELLS)
def test_verdicts(claimed: str, expected: dict) -> None:
    assert verdicts(checked(TWO.format(given="") + claimed)) == expected


def test_right_printed_numbers_may_be_carried_on_rounded() -> None:
    # 0.27 · 90 + 0.73 · 1 = 25.03 from the printed weights, which is a habit; unrounded ones give the true 24.94.
    given = "v = [[90], [1]]"
    begin = TWO.format(given=given) + "weights = [[1, 0], [0.27, 0.73]]\n"
    assert checked(begin + "output = [[90], [25.03]]").worst is Verdict.rounding
    assert checked(begin + "output = [[90], [24.94]]").worst is Verdict.right
    # Weights within 0.005 of the printed ones, of 90 and of 1, leave 0.455: 24.5 is out of reach, 24.97 is not.
    assert checked(begin + "output = [[90], [24.97]]").worst is Verdict.unclear
    assert checked(begin + "output = [[90], [24.50]]").worst is Verdict.wrong


@pytest.mark.parametrize("name", few(gallery()))
def test_whatever_is_claimed_is_answered_and_can_be_corrected(name: str) -> None:
    begin, section, claimed = gallery()[name].partition("[claimed]")
    rng = random.Random(name)

    def scrambled(number: re.Match[str]) -> str:
        return rng.choice((number[0], number[0], f"{float(number[0]) + 1:g}", '"?"', '"-inf"', "9.5", "0"))

    lines = [line.rpartition("=") for line in claimed.splitlines()]
    numbers = re.compile(r"(?<=[\[, ])[+-]?\d+(?:\.\d+)?(?=[],]|$)")
    wrong = "\n".join(key + sign + numbers.sub(scrambled, value) for key, sign, value in lines)
    report = checked(begin + section + wrong)
    assert checked(corrected(report).decode()).worst in (Verdict.unknown, Verdict.right, Verdict.doubtful)


def test_any_of_equally_likely_words_may_be_chosen() -> None:
    text = 'vocabulary = ["a", "b", "c"]\n[given]\nprobabilities = [0.4, 0.4, 0.2]\n[claimed]\ngreedy = "{}"\n'
    assert [checked(text.format(word)).worst.value for word in "abc?"] == ["right", "right", "wrong", "unknown"]


def test_rounding_at_every_step_is_rounding_where_steps_are_not_printed() -> None:
    """z = 0.5 · 0.2 + 0.5 · 0.36 = 0.28, which is 0.3 to one decimal, and 10 · 0.3 = 3 where 2.8 is true."""
    by_hand = "decimals = 1\n[given]\nweights = [[0.5, 0.5]]\nv = [[0.2], [0.36]]\nw_o = [[10]]\n[claimed]\noutput = "
    found = [checked(f"{by_hand}[[{claim}]]\n").worst.value for claim in (2.8, 3.0, 3.8)]
    assert found == ["right", "rounding", "wrong"]


def test_correcting_keeps_comments_and_layout() -> None:
    text = '# mine\ndecimals = 2\nmask = "causal"\nscale = "none"\n[given]\nscores = [[0]] # one\n'
    text += "[claimed]\nweights = [\n  [0.5],  # oh\n]\n"
    assert corrected(checked(text)).decode() == text.replace("0.5]", "1.00]")


def test_a_row_of_a_parameter_table_is_corrected() -> None:
    text = '[given.shapes]\n"w" = [3, 5]\n"b" = [5]\n[claimed]\ntotal = 20\n[claimed.rows]\n"w" = 16 # 3 · 5\n"b" = 5\n'
    assert corrected(checked(text)).decode() == text.replace("16", "15")


# Words and data.


def test_rows_tell_what_was_printed_and_what_it_should_be() -> None:
    told = list(ReportText(check(find_example("gato-preto-dorme")), SAY).rows())
    assert [(row.step, row.where, row.claimed, row.expected, row.verdict) for row in told] == [
        ("weights", "row 3 (dorme)", ("0.10", "0.10", "0.80"), ("0.21", "0.21", "0.58"), Verdict.wrong),
        ("output", "row 3 (dorme)", ("0.90", "0.90"), ("0.79", "0.79"), Verdict.follows),
    ]
    assert told[0].working.endswith("2.72 / (2.72 + 2.72 + 7.39) = 0.21, printed 0.10")


def test_plain_data_hold_everything() -> None:
    data = check(find_example("three-words")).plain()
    assert data["verdict"] == "wrong"
    assert data["counts"] == {
        "unknown": 3,
        "right": 25,
        "rounding": 0,
        "doubtful": 0,
        "unclear": 0,
        "follows": 11,
        "wrong": 15,
    }
    assert data["first_wrong"]["step"] == "q"
    assert data["first_wrong"]["cell"] == [1, 2, 1]
    assert data["first_wrong"]["arithmetic"] == "q[2,1] = x[2]·W^Q[:,1] = 0·0.1 + 2·0.4 + 1·0.7 = 1.5"
    assert len(data["findings"]) == 26


def test_wrong_words_are_found() -> None:
    begin = 'vocabulary = ["a", "b"]\n[given]\nprobabilities = [0.3, 0.7]\n[claimed]\n'
    report = checked(begin + 'greedy = "a"')
    assert verdicts(report) == {"greedy": {(1,): "wrong"}}
    [row] = ReportText(report, SAY).rows()
    assert (row.claimed, row.expected) == (("a",), ("b",))
    assert corrected(report).decode().endswith('greedy = "b"')
    # The choice follows from a distribution the author got wrong.
    claimed = 'vocabulary = ["a", "b"]\ndecimals = 2\n[given]\nlogits = [0, 1]\n[claimed]\n'
    claimed += 'probabilities = [0.8, 0.2]\ngreedy = "a"'
    assert verdicts(checked(claimed))["greedy"] == {(1,): "follows"}

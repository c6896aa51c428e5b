"""Grades: points by the stated rule, changed givens, unreadable parts, several keys."""

from pathlib import Path

import pytest

from vitral.core.errors import UsageError
from vitral.core.language import in_language
from vitral.explanation import Verdict, load_example, parse_example
from vitral.explanation.documents import document_of
from vitral.explanation.examples.document import TomlDocument
from vitral.explanation.grading.answers import AnswerKey, agreement, read_answers
from vitral.explanation.grading.grading import GradingRule, SheetGrade, check_rule, grade_document
from vitral.explanation.grading.sheets import GradedSheet
from vitral.report.graded_class import GradedClass

GIVEN = """title = "Two words"
mask = "bidirectional"
scale = "sqrt"
decimals = 2

[given]
q = [[2, 0, 0, 0], [0, 2, 0, 0]]
k = [[1, 0, 0, 0], [0, 1, 0, 0]]
v = [[4, 0], [0, 4]]
"""
RIGHT = """
[claimed]
scores = [[2, 0], [0, 2]]
scaled = [[1, 0], [0, 1]]
weights = [[0.73, 0.27], [0.27, 0.73]]
output = [[2.92, 1.08], [1.08, 2.92]]
"""
BLANK = '[claimed]\nscores = [["?", "?"], ["?", "?"]]\nweights = [["?", "?"], ["?", "?"]]\n'


def key_of(text: str = GIVEN + RIGHT) -> AnswerKey:
    return AnswerKey(parse_example(text))


def graded(text: str, rule: GradingRule | None = None, key: AnswerKey | None = None) -> SheetGrade:
    return grade_document(TomlDocument("ana.toml", text, mend=True), key or key_of(), rule or GradingRule())


def points(grade: SheetGrade) -> list[float]:
    return [step.points for step in grade.steps]


def test_a_sheet_without_fault_has_all_points_and_an_empty_one_none() -> None:
    assert points(graded(GIVEN + RIGHT)) == [1, 1, 1, 1]
    empty = graded(GIVEN)
    assert points(empty) == [0, 0, 0, 0]
    assert [step.counts[Verdict.unknown] for step in empty.steps] == [4, 4, 4, 4]
    assert empty.first_wrong == ""


def test_what_follows_has_full_credit_unless_the_rule_says_otherwise() -> None:
    # One wrong score, and everything after it computed rightly from it: 4/2 = 2, softmax(2, 0) = 0.88, 0.12.
    written = GIVEN + RIGHT.replace("scores = [[2,", "scores = [[4,").replace("scaled = [[1,", "scaled = [[2,")
    written = written.replace("weights = [[0.73, 0.27]", "weights = [[0.88, 0.12]")
    written = written.replace("output = [[2.92, 1.08]", "output = [[3.52, 0.48]")
    grade = graded(written)
    assert grade.first_wrong == "scores"
    assert points(grade) == [0.75, 1, 1, 1]
    half = graded(written, GradingRule(follows=0.5))
    assert points(half) == [0.75, 0.875, 0.75, 0.75]
    whole = graded(written, GradingRule(per="step", follows=0.5))
    assert points(whole) == [0, 0, 0, 0]


def test_points_of_steps_and_of_the_sheet_are_settable() -> None:
    written = GIVEN + RIGHT.replace("weights = [[0.73, 0.27]", "weights = [[0.9, 0.3]").replace(
        "2.92, 1.08]", "3.6, 1.2]", 1
    )
    rule = GradingRule(points={"weights": 5, "output": 0}, total=14)
    grade = graded(written, rule)
    assert (grade.most, grade.first_wrong) == (14, "weights")
    assert points(grade) == [2, 2, 5, 0]
    with pytest.raises(UsageError, match="weights"):
        check_rule(GradingRule(points={"weight": 1}), [key_of()])
    for wrong in ({"follows": 2}, {"points": {"q": -1}}, {"folows": 1}, {"per": "cell"}):
        with pytest.raises(UsageError):
            GradingRule.parse(wrong)


def test_changed_givens_are_said_and_the_sheet_is_graded_with_the_keys() -> None:
    changed = graded(GIVEN.replace("v = [[4, 0]", "v = [[5, 0]").replace('scale = "sqrt"', 'scale = "none"') + RIGHT)
    assert points(changed) == [1, 1, 1, 1]
    assert len(changed.edited) == 2
    assert any("v[1,1]" in told and "5" in told and "4" in told for told in changed.edited)
    assert any(told.startswith("scale") for told in changed.edited)
    broken = graded(GIVEN.replace("[[4, 0], [0, 4]]", '"many"') + RIGHT)
    assert points(broken) == [1, 1, 1, 1]
    assert len(broken.edited) == 1
    assert not graded(GIVEN.replace("[[4, 0], [0, 4]]", "[[4.0, 0], [0, 4]]").replace("Two", "My two") + RIGHT).edited


def test_notes_in_another_format_are_graded_though_they_repeat_no_givens() -> None:
    weights = "weights =\n| 0.73 | 0.27 |\n|---|---|\n| 0.27 | 0.8 |\n"
    notes = f"Two words\n\n{weights}\noutput =\n\n| 2.92 | 1.08 |\n|---|---|\n| 1.08 | 3.2 |\n"
    grade = grade_document(document_of(notes.encode(), "ana.md"), key_of(), GradingRule())
    assert points(grade) == [0, 0, 0.75, 1]
    assert (grade.first_wrong, grade.edited) == ("weights", ())
    assert grade.report.example.document.typed(("given", "weights", 1, 1)) == "0.8"


def test_a_cell_that_is_no_number_costs_only_itself() -> None:
    grade = graded(GIVEN + RIGHT.replace("weights = [[0.73, 0.27]", 'weights = [["many", 0.27]') + "scratch = [1]\n")
    assert points(grade) == [1, 1, 0.75, 1]
    assert (len(grade.unreadable), grade.unasked) == (1, ("scratch",))
    assert all("ana.toml, line" in told for told in grade.unreadable)
    twice = graded(GIVEN + RIGHT + "out = [[2.92, 1.08], [1.08, 2.92]]\n")
    assert len(twice.unreadable) == 1
    assert points(twice) == [1, 1, 1, 1]


def test_the_exercise_itself_is_a_key_and_question_marks_in_a_key_are_not_asked() -> None:
    exercise = key_of(GIVEN + BLANK)
    assert list(exercise.labels) == ["scores", "weights"]
    assert points(graded(GIVEN + RIGHT, key=exercise)) == [1, 1]
    partly = key_of(GIVEN + "[claimed]\nscores = [[2, '?'], ['?', '?']]\n")
    grade = graded(GIVEN + "[claimed]\nscores = [[2, 9], [9, 9]]\n", key=partly)
    assert points(grade) == [1]
    with pytest.raises(UsageError):
        key_of(GIVEN)


def test_a_sheet_belongs_to_the_key_with_its_title_or_its_file_name() -> None:
    other = GIVEN.replace("Two words", "Others")
    paths = ("week/attention-1-key.toml", "week/attention-2-key.toml")
    examples = [parse_example(text + RIGHT, Path(path)) for text, path in zip((GIVEN, other), paths, strict=True)]
    one, two = (AnswerKey(example) for example in examples)
    for name, text, keys in (
        ("a", GIVEN, [one]),
        ("a", other, [two]),
        ("ana attention-2.toml", "", [two]),
        ("ana.toml", 'title = "x"', []),
    ):
        assert agreement(TomlDocument(name, text), [one, two]) == keys
    assert agreement(TomlDocument("a", 'title = "x"'), [one]) == [one]


def test_sheets_that_are_none_are_refused_in_one_line() -> None:
    for text in ("claimed = 3\n[given]\nx = [[1]]\n", "[given\n", "a = " + "[" * 5000):
        with pytest.raises(UsageError):
            read_answers(TomlDocument("ana.toml", text), key_of())
    assert points(graded("given = 3\n")) == [0, 0, 0, 0]


LAB = """title = "Units"
mask = "none"
scale = "sqrt"
[given]
x = [[1, 0], [0, 1]]
w_q = [[1, 0], [0, 1]]
w_k = [[1, 0], [1, 1]]
w_v = [[2, 0], [0, 1]]
"""
LAB_KEY = (
    LAB.replace("[given]", "decimals = 2\n[given]")
    + """[claimed]
q = [[1, 0], [0, 1]]
scores = [[1, 1], [0, 1]]
weights = [[0.5, 0.5], [0.33, 0.67]]
out = [[1, 0.5], [0.66, 0.67]]
"""
)
ZERO = "[[0, 0], [0, 0]]"
HALF = "[[0.5, 0.5], [0.5, 0.5]]"


NOTES = Path(__file__).parent / "notes"


def graded_notes(name: str) -> SheetGrade:
    key = AnswerKey(load_example(NOTES / "key.toml"))
    return grade_document(document_of((NOTES / name).read_bytes(), name), key, GradingRule())


def test_a_number_copied_wrongly_costs_once() -> None:
    grade = graded_notes("one-copying-slip-three-steps.toml")  # x[3,1] = -1 read as 1
    lost = {step.name: step.most - step.points for step in grade.steps if step.points < step.most}
    assert set(lost) == {"q"}
    assert grade.first_wrong == "q"


def test_a_step_that_is_right_in_spite_of_wrong_inputs_is_marked() -> None:
    grade = graded_notes("right-scores-after-wrong-q.toml")  # q[2,2] is 3, but the scores are those of 2
    [note] = grade.notes
    assert "scores" in note
    assert " q" in note


def test_a_forgotten_mask_costs_half_of_its_step() -> None:
    # Nothing is hidden: rows of the masked scores and everything after are computed rightly from there.
    text = GIVEN.replace('mask = "bidirectional"', 'mask = "causal"').replace("[0, 1, 0, 0]]", "[1, 1, 0, 0]]")
    right = text + "[claimed]\nmasked = [[1, '-inf'], [0, 1]]\nweights = [[1, 0], [0.27, 0.73]]\n"
    wrong = text + "[claimed]\nmasked = [[1, 1], [0, 1]]\nweights = [[0.5, 0.5], [0.27, 0.73]]\n"
    assert points(graded(right, key=key_of(right))) == [1, 1]
    assert points(graded(wrong, key=key_of(right))) == [0.5, 1]
    assert points(graded(wrong, GradingRule(concept=1), key=key_of(right))) == [0.75, 1]


def test_sheets_with_the_same_strange_numbers_are_marked() -> None:
    one = GIVEN + RIGHT.replace("[[0.73, 0.27], [0.27, 0.73]]", "[[0.51, 0.38], [0.34, 0.59]]")
    other = GIVEN + RIGHT.replace("[[0.73, 0.27], [0.27, 0.73]]", "[[0.51, 0.38], [0.34, 0.58]]")
    key = key_of()
    sheets = [GradedSheet(name, graded(text, key=key)) for name, text in (("ana", one), ("bia", one), ("eva", other))]
    made = GradedClass((key,), GradingRule(), tuple(sheets))
    assert [made.alike(sheet) for sheet in sheets] == [["bia"], ["ana"], []]
    assert "ana" in str(made.table().plain()[1]["remark"])


def test_one_bad_word_costs_its_cell_and_one_bad_line_its_numbers() -> None:
    word = graded(GIVEN + RIGHT.replace("0.73, 0.27], [0.27", "O.73, 0.27], [0.27"))
    assert points(word) == [1, 1, 0.75, 1]
    assert len(word.unreadable) == 1
    line = graded(GIVEN + RIGHT.replace("scaled = [[1, 0]", "scaled == [[1, 0]"))
    assert points(line) == [1, 0, 1, 1]
    assert len(line.unreadable) == 1


def test_claims_that_are_not_asked_explain_nothing() -> None:
    key = key_of(LAB_KEY)
    assert points(graded(LAB_KEY, key=key)) == [1, 1, 1, 1]
    noughts = f"q = {ZERO}\nscores = {ZERO}\nweights = {HALF}\nout = {ZERO}\n"
    plain = points(graded(LAB + "[claimed]\n" + noughts, key=key))
    for extra in ("x", "v", "k", "X", "scaled", "nonsense"):
        grade = graded(LAB + f"[claimed]\n{extra} = {ZERO}\n" + noughts, key=key)
        assert points(grade) == plain, extra
        assert bool(grade.edited) == (extra in ("x", "X")), extra
        assert bool(grade.unasked) != bool(grade.edited), extra
    assert sum(plain) < 3
    same = graded(LAB + "[claimed]\nX = [[1.0, 0], [0, 1]]\n", key=key)
    assert (same.edited, same.unasked) == ((), ())


def test_cells_that_the_key_does_not_ask_explain_nothing() -> None:
    key = key_of(LAB + "[claimed]\nscores = [[1, '?'], ['?', '?']]\nweights = [[0.5, 0.5], ['?', '?']]\n")
    grade = graded(LAB + "[claimed]\nscores = [[1, 9], [0, 0]]\nweights = [[0, 1], [1, 0]]\n", key=key)
    assert points(grade) == [1, 0]


def test_parts_of_a_file_that_are_not_read_are_said() -> None:
    document = document_of(b"weights = [[0.73, 0.27], [0.27, 0.73]]\n", "ana.md")
    object.__setattr__(document, "notes", ("A picture is not read.",))
    grade = grade_document(document, key_of(), GradingRule())
    assert grade.notes == ("A picture is not read.",)
    assert "A picture" in GradedClass((grade.key,), GradingRule(), (GradedSheet("ana.md", grade),)).page()


def test_slips_are_told_in_each_language() -> None:
    sheet = GradedSheet("a", graded(GIVEN + RIGHT.replace("scaled = [[1, 0], [0, 1]]", "scaled = [[2, 0], [0, 2]]")))
    told = {}
    for code in ("en", "pt", "en"):
        with in_language(code):
            told[code] = sheet.slip
    assert told["en"]
    assert told["en"] != told["pt"]
    assert sheet.plain()["slip"] == told["en"]


@pytest.mark.parametrize("stated", [True, False])
def test_the_unit_is_that_of_the_key(stated: bool) -> None:
    for text in (LAB_KEY, LAB_KEY.partition("[claimed]")[0] + "[claimed]\nweights = [['?', '?'], ['?', '?']]\n"):
        key = key_of(text if stated else text.replace("decimals = 2\n", ""))
        for written, least, most in (
            ("[[1, 0], [0, 1]]", 0, 0),
            ("[[0.5, 0.5], [0.3, 0.7]]", 0.5, 0.5),
            ("[[0.5, 0.5], [0.3302, 0.6698]]", 1, 1),
        ):
            grade = graded(LAB + f"[claimed]\nweights = {written}\n", key=key)
            [step] = [step for step in grade.steps if step.name == "weights"]
            assert least <= step.points <= most, (written, step)


def test_a_fault_costs_only_its_cells() -> None:
    key = key_of(LAB_KEY)
    rows = LAB_KEY.replace("\nq = [[1, 0], [0, 1]]", '\n"q[1]" = [1, 0]\n"q[2]" = [0, 1]')
    assert points(graded(rows, key=key)) == [1, 1, 1, 1]
    for fault, lost in (("'many', 0.5", 0.25), ("0.5", 0.5), ("nan, 0.5", 0.25), ("1e16, 0.5", 0.25)):
        assert points(graded(rows.replace("0.5, 0.5", fault), key=key)) == [1, 1, 1 - lost, 1], fault
    both = graded(rows.replace("0.5, 0.5", "'many', 0.5") + '"q[1,1]" = 1\n', key=key)
    assert points(both) == [1, 1, 0.75, 1]
    assert len(both.unreadable) == 2
    named = graded(LAB_KEY.replace("\nq = ", "\nQuery = ").replace("0.5, 0.5", "'many', 0.5"), key=key)
    assert points(named) == [1, 1, 0.75, 1]
    capital = key_of(LAB_KEY.replace("\nq = ", "\nQ = "))
    assert points(graded(LAB_KEY.replace("\nq = [[1, 0]", "\nq = [['many', 0]"), key=capital)) == [0.75, 1, 1, 1]


def test_a_missing_head_costs_only_that_head() -> None:
    text = """mask = "none"
scale = "none"
[given]
x = [[1, 0], [0, 1]]
w_q = [[[1], [0]], [[0], [1]]]
w_k = [[[1], [1]], [[0], [1]]]
w_v = [[[1], [1]], [[0], [1]]]
"""
    whole = "[claimed]\nq = [[[1], [0]], [[0], [1]]]\nscores = [[[1, 1], [0, 0]], [[0, 0], [0, 1]]]\n"
    key = key_of(text + whole)
    assert points(graded(text + whole, key=key)) == [1, 1]
    less = graded(text + whole.replace(", [[0, 0], [0, 1]]]", "]"), key=key)
    assert points(less) == [1, 0.5]
    with pytest.raises(UsageError) as refused:
        parse_example(text + "[claimed]\nscores = [[1, 1], [0, 0]]\n")
    sides = str(refused.value).rpartition(": ")[2]
    assert "2 × 2 × 2" in sides


def test_rows_of_a_parameter_table_are_known_by_their_names() -> None:
    table = "[given.shapes]\na = [5, 4]\nb = [3]\n[claimed.rows]\n"
    for rows, expected in (("b = 3\na = 20\n", [1]), ("b = 3\n", [0])):
        assert points(graded(table + rows, key=key_of(table + "a = 20\nb = 3\n"))) == expected

"""Any sheet: names in any spelling, settings anywhere, fractions, parts of quantities, columns, an encoder's states."""

import math

import numpy as np
import pytest
import torch

from vitral.core.errors import UsageError
from vitral.explanation import check, to_text, walk_example
from vitral.explanation import parse_example as read
from vitral.explanation.checks.checker import corrected
from vitral.explanation.examples.example import Example
from vitral.explanation.examples.names import NICKNAMES, Names
from vitral.explanation.examples.numerals import value_of
from vitral.explanation.examples.schema import ALIASES, AXES
from vitral.report.walkthrough import to_latex, to_markdown, to_page

GIVEN = """mask = "causal"
scale = "sqrt"
[given]
x = [[1, 2], [0, 1], [3, 1]]
w_q = [[1, 0], [1, 1]]
w_k = [[0, 1], [1, 0]]
w_v = [[1, 2], [0, 1]]
"""


@pytest.mark.parametrize(
    ("name", "quantity"),
    [
        *[(spelling, "w_q") for spelling in ("W_Q", "WQ", "Wq", "w^Q", "W^{Q}")],
        *[(spelling, spelling.lower()) for spelling in "XQKVZ"],
        *[("A", "weights"), ("pesos", "weights"), ("Attention_Weights", "weights"), ("saída", "out"), ("S", "scores")],
        *[
            ("consultas", "q"),
            ("chaves", "k"),
            ("valores", "v"),
            ("pontuações", "scores"),
            ("PE", "position_embedding"),
        ],
        *[
            ("output", "out"),
            ("attn.scores", "scores"),
            ("embed", "x"),
            ("mlp.pre", "mlp.pre"),
        ],
    ],
)
def test_names_in_any_spelling(name: str, quantity: str) -> None:
    assert Names("x")(name) == quantity


def test_what_a_key_meant_it_still_means() -> None:
    for name in (*AXES, *ALIASES):
        expected = "x" if name == "resid_pre" else ALIASES.get(name, name)
        assert Names("x")(name) == expected
    assert Names("resid_pre")("output") == "resid_post"
    assert Names("resid_pre")("x") == "resid_pre"


def test_no_nickname_is_a_name_or_another_ones_nickname() -> None:
    words = [word for known in NICKNAMES.values() for word in known]
    assert len(set(words)) == len(words)
    for name, known in NICKNAMES.items():
        if name not in ("output", "greedy"):
            assert {Names("x")(word) for word in known} == {Names("x")(name)}


def test_a_nickname_gives_way_to_a_step() -> None:
    example = read('[given]\nA = [[2, 1], [1, 3]]\n[steps]\nS = "A @ A"\n[claimed]\nS = [[5, 5], [5, 10]]\n')
    assert check(example).worst == "right"


def test_settings_stand_anywhere() -> None:
    moved = GIVEN.split("[given]")
    texts = (f"[given]\n{moved[0]}{moved[1]}", GIVEN.replace("mask", "Mascara").replace("scale", "escala"))
    expected = read(GIVEN).sheet.values["out"]
    for text in texts:
        torch.testing.assert_close(read(text).sheet.values["out"], expected)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (GIVEN.replace("[given]", 'mascara = "causal"\n[given]'), ["line 3", "mascara"]),
        (GIVEN + 'mask = "causal"\n', ["line 8", "mask"]),
        (GIVEN.replace("[given]", "x = [[1]]\n[given]"), ["line 3", "x"]),
        (GIVEN + 'scale_ = "what"\n', ["line 8", "scale_"]),
        (GIVEN + "[claimed]\nqq = [[1]]\n", ["line 9", "qq"]),
        (GIVEN + "[claimed]\nq = [[0,5, 1], [1, 2], [0, 1]]\n", ["line 9", "0.5"]),
        (GIVEN + "[claimed]\nq = [[0,5, 1,5], [0,5, 2,5], [0,5, 1,5]]\n", ["line 9", "0.5"]),
        (GIVEN.replace("[[1, 0], [1, 1]]", "[[0,5, 1,0], [1,0, 1,0]]"), ["0.5"]),
        (GIVEN + '[claimed]\n"q[4]" = [1, 2]\n', ["line 9", "4"]),
        (GIVEN + '[claimed]\n"q[0]" = [1, 2]\n', ["line 9"]),
        (GIVEN + '[claimed]\n"q[1]" = [1, 2, 3]\n', ["line 9"]),
        (GIVEN + '[claimed]\n"q[1]" = [1, 2]\n"q[1,1]" = 1\n', ["line 10"]),
        (GIVEN + '[claimed]\nq = [["1/0", 1], [1, 2], [0, 1]]\n', ["line 9"]),
        (GIVEN + '[claimed]\nq = [["9**9**9", 1], [1, 2], [0, 1]]\n', ["line 9"]),
        ("softmax_base = 1\n" + GIVEN, ["line 1"]),
        ('tokens = "diagonal"\n' + GIVEN, ["line 1"]),
        ("first_position = -1\n" + GIVEN, ["line 1"]),
        ('block = "pre"\n[given]\nmemory = [[1]]\nx = [[1]]\n', ["line 3", "memory"]),
        (GIVEN.replace("[given]", "memory_tokens = ['a']\n[given]\nmemory = [[1, 2], [2, 1]]"), ["memory_tokens"]),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(text: str, words: list[str]) -> None:
    with pytest.raises(UsageError) as refused:
        read(text)
    said = str(refused.value)
    assert len(said) < 250
    assert all(word in said for word in words)


def test_a_computation_of_a_billion_numbers_is_refused() -> None:
    rows = ",".join(["[1]"] * 40_000)
    with pytest.raises(UsageError):
        read(f"[given]\nq = [{rows}]\nk = [{rows}]\n")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *[("1/3", 1 / 3), ("-2/7", -2 / 7), ("0,5", 0.5), ("−1,25", -1.25), ("√2", 2**0.5), ("1/√2", 2**-0.5)],
        *[("sqrt(2)/2", 2**0.5 / 2), ("2·3", 6.0), ("2π", None), ("2*π", 2 * math.pi), ("1/0", None), ("a", None)],
        *[("__import__", None), ("", None)],
    ],
)
def test_numbers_as_authors_write_them(text: str, value: float | None) -> None:
    assert value_of(text) == (None if value is None else pytest.approx(value))


def test_parts_of_quantities_lead_to_their_characters() -> None:
    text = GIVEN + '[claimed]\n"q[2]" = [1, "2,5"]\n"pesos[1]" = [1, 0, 0]\n"out[3,2]" = 0\n'
    example = read(text)
    report = check(example)
    assert sum(report.counts().values()) - report.counts()["unknown"] == 6
    assert {(finding.name, finding.index) for checked in report.quantities for finding in checked.findings} == {
        ("q", (0, 1, 1)),
        ("out", (2, 1)),
    }
    [claim] = [claim for claim in example.claims if claim.name == "q"]
    assert example.typed(claim, (0, 1, 1)) == "2,5"
    mended = corrected(report).decode()
    again = read(mended if isinstance(mended, str) else mended.decode())
    assert check(again).worst in ("right", "rounding")


def columns_of(text: str, extra: str = "") -> Example:
    """The same example with every matrix transposed."""
    lines = []
    for line in text.splitlines():
        name, _, value = line.partition(" = ")
        matrix = value.startswith("[[")
        lines.append(f"{name} = {np.array(eval(value)).T.tolist()}" if matrix else line)
    return read(f'tokens = "columns"\n{extra}' + "\n".join(lines) + "\n")


def test_columns_are_the_same_computation() -> None:
    for extra in ("", 'weights = "in-out"\n'):
        rows, columns = read(GIVEN), columns_of(GIVEN, extra)
        same = torch.equal(rows.sheet.values["w_q"], columns.sheet.values["w_q"])
        assert same == (extra == "")
    columns = columns_of(GIVEN)
    for name, value in read(GIVEN).sheet.values.items():
        torch.testing.assert_close(columns.sheet.values[name], value)


def test_columns_are_claimed_corrected_and_shown_as_columns() -> None:
    values = read(GIVEN).sheet.values
    claims = {name: values[name].reshape(values[name].shape[-2:]) for name in ("q", "scores", "weights", "out")}
    written = [f"{name} = {np.round(value.numpy(), 3).tolist()}" for name, value in claims.items()]
    rows = "\n".join([GIVEN, "[claimed]", *written, ""])
    example = columns_of(rows)
    assert check(example).worst == "right"
    wrong = example.text.replace("scores = [[2", "scores = [[7", 1)
    report = check(read(wrong.replace("scores = [[", "scores = [[9", 1)))
    [finding] = [each for checked in report.quantities for each in checked.findings if each.name == "scores"]
    assert finding.index == (0, 0, 0)
    mended = corrected(report).decode()
    assert check(read(mended if isinstance(mended, str) else mended.decode())).worst == "right"
    for language in ("en", "pt"):
        told = walk_example(example, language=language)
        for render in (to_text, to_markdown, to_latex, to_page):
            assert render(told)
        panel = next(step for step in told.steps if step.name == "q").panels[0]
        assert pytest.approx(values["q"][0].numpy()) == np.array(panel.matrix).T
        for row, column in np.ndindex(2, 3):
            assert panel.working(row, column).value == pytest.approx(panel.matrix[row][column])


def test_steps_see_columns() -> None:
    example = columns_of(GIVEN)
    steps = '[steps]\ntwice = "w_q @ x"\nscores = "k.T @ q * 2"\n'
    sheet = read(example.text + steps).sheet
    torch.testing.assert_close(sheet.values["twice"], example.sheet.values["q"][0].mT)
    torch.testing.assert_close(sheet.values["scores"], 2 * example.sheet.values["scores"])


def test_another_base_of_the_softmax() -> None:
    values = read("softmax_base = 3\n" + GIVEN).sheet.values
    powers = 3 ** values["masked"]
    torch.testing.assert_close(values["weights"], powers / powers.sum(dim=-1, keepdim=True))


@pytest.mark.parametrize("halves", [False, True])
def test_positions_of_another_base_and_order(halves: bool) -> None:
    text = f'positions = "{"halves" if halves else "pairs"}"\nposition_base = 100\nfirst_position = 1\n'
    text += 'mask = "causal"\nscale = "none"\n[given]\ntoken_embedding = [[0, 0, 0, 0], [0, 0, 0, 0]]\n'
    made = read(text + 'position_embedding = "sinusoidal"\n').sheet.values["position_embedding"].numpy()
    for row, column in np.ndindex(2, 4):
        rate = 100.0 ** (-2 * (column % 2 if halves else column // 2) / 4)
        is_sine = column < 2 if halves else column % 2 == 0
        angle = (row + 1) * rate
        assert made[row, column] == pytest.approx(math.sin(angle) if is_sine else math.cos(angle))


def test_cross_attention_against_numpy() -> None:
    text = GIVEN.replace("causal", "bidirectional") + "memory = [[1, 2, 0], [0, 1, 1]]\n"
    text = text.replace("w_k = [[0, 1], [1, 0]]", "w_k = [[0, 1], [1, 0], [1, 1]]")
    text = text.replace("w_v = [[1, 2], [0, 1]]", "w_v = [[1, 2], [0, 1], [2, 2]]")
    values = read(text).sheet.values
    x, memory = np.array([[1.0, 2], [0, 1], [3, 1]]), np.array([[1.0, 2, 0], [0, 1, 1]])
    q, k, v = x @ [[1, 0], [1, 1]], memory @ [[0, 1], [1, 0], [1, 1]], memory @ [[1, 2], [0, 1], [2, 2]]
    powers = np.exp(q @ k.T / math.sqrt(2))
    assert values["out"].numpy() == pytest.approx(powers / powers.sum(axis=1, keepdims=True) @ v)

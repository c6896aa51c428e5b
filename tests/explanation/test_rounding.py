"""Units, rules and intervals: any honest sheet is believed, and a wrong number is not."""

import random

import pytest
import torch

from vitral.explanation import CheckReport, Verdict, check, parse_example
from vitral.explanation.checks.checker import corrected
from vitral.explanation.checks.intervals import Interval, propagated
from vitral.explanation.checks.rounding import RoundingRule, Unit, units
from vitral.explanation.examples.numerals import MOST_DECIMALS
from vitral.explanation.expressions import compute, read

HEAD = 'mask = "bidirectional"\nscale = "sqrt"\n[given]\n'


def checked(text: str) -> CheckReport:
    return check(parse_example(HEAD + text))


def parts(report: CheckReport) -> set[str]:
    return set() if report.rule is None else {key for key, _ in report.rule.named}


# Units.


@pytest.mark.parametrize(
    ("claimed", "expected"),
    [
        ("scores = [[1, 2.5], [0.25, 3]]", Unit(2)),
        ("scores = [[1, 2], [0, 3]]", Unit(0)),
        ("scores = [[1.00, 2], [0, 3]]", Unit(2)),
        ('scores = [["?", 1e-3], [0, 3]]', Unit(3)),
        ('scores = [["1/3", "0,25"], [0, 3]]', Unit(2)),
        ("scores = [[123, 12.3], [1.23, 0.123]]", Unit(3, 3)),
    ],
)
def test_the_longest_number_of_a_quantity_tells_its_unit(claimed: str, expected: Unit) -> None:
    text = HEAD + "q = [[1, 0], [0, 1]]\nk = [[1, 2], [0, 1]]\n[claimed]\n" + claimed
    assert units(parse_example(text))["scores"] == expected


def test_every_quantity_has_a_unit_of_its_own_unless_decimals_are_stated() -> None:
    text = "q = [[1, 0]]\nk = [[1, 2], [0, 1]]\n[claimed]\nscores = [[1, 0]]\nweights = [[0.670, 0.330]]\n"
    assert units(parse_example(HEAD + text)) == {"scores": Unit(0), "weights": Unit(3)}
    assert set(units(parse_example("decimals = 2\n" + HEAD + text)).values()) == {Unit(2)}


def test_a_number_with_significant_digits_has_a_unit_by_its_size() -> None:
    sizes = Unit(4, 3).of(torch.tensor([123.0, 12.3, 0.0123, 0.0, 1e-9], dtype=torch.float64))
    torch.testing.assert_close(sizes, torch.tensor([1, 0.1, 1e-4, 1e-4, 1e-4], dtype=torch.float64))


# Rules, on a sheet worked by hand: scores 3 and 1, √2, two values.

BY_HAND = "q = [[1, 1]]\nk = [[2, 1], [1, 0]]\nv = [[7.3, -4.1], [1.7, 9.9]]\n[claimed]\nscores = [[3, 1]]\n"
SHEETS = {
    # 3/√2 = 2.1213, 1/√2 = 0.7071; e^2.1213 = 8.3421, e^0.7071 = 2.0281; weights 0.80443, 0.19557.
    "full": "scaled = [[2.12, 0.71]]\nweights = [[0.80, 0.20]]\noutput = [[6.20, -1.36]]",
    # From the printed weights: 0.80·7.3 + 0.20·1.7 = 6.18 and 0.80·(−4.1) + 0.20·9.9 = −1.30.
    "printed": "scaled = [[2.12, 0.71]]\nweights = [[0.80, 0.20]]\noutput = [[6.18, -1.30]]",
    # Cut: 0.80 and 0.19 add to 0.99; 6.2048 and −1.3620 exactly.
    "cuts": "scaled = [[2.12, 0.70]]\nweights = [[0.80, 0.19]]\noutput = [[6.20, -1.36]]",
    # 3/1.41 = 2.1277 and 1/1.41 = 0.7092: weights 0.80509 and 0.19491; 6.2085 and −1.3713.
    "roots": "scaled = [[2.128, 0.709]]\nweights = [[0.805, 0.195]]\noutput = [[6.209, -1.371]]",
}


@pytest.mark.parametrize("rule", SHEETS)
def test_honest_sheets_are_believed_and_their_rule_is_named(rule: str) -> None:
    report = checked(BY_HAND + SHEETS[rule])
    assert report.worst is (Verdict.right if rule == "full" else Verdict.rounding)
    assert rule in parts(report)
    assert report.plain()["habit"]


def test_a_rule_rounds_cuts_and_repairs() -> None:
    example = parse_example(HEAD + BY_HAND + SHEETS["full"])
    weights = example.sheet["weights"]
    made = RoundingRule(powers=1).make(weights, example.sheet.values, Unit(2))
    torch.testing.assert_close(made, torch.tensor([[[8.3 / 10.3, 2.0 / 10.3]]], dtype=torch.float64))
    thirds = torch.tensor([[[1 / 3, 1 / 3, 1 / 3, 0.0]]], dtype=torch.float64)
    assert RoundingRule(repairs=True).printed(weights, thirds, Unit(2)).flatten().tolist()[2] == pytest.approx(0.34)
    numbers = torch.tensor([0.126, -0.126, 1.0, -0.0], dtype=torch.float64)
    assert RoundingRule().rounded(numbers, 0.01).tolist() == pytest.approx([0.13, -0.13, 1.0, 0.0])
    assert RoundingRule(cuts="cuts").rounded(numbers, 0.01).tolist() == pytest.approx([0.12, -0.12, 1.0, 0.0])
    products = RoundingRule(products=True).make(
        example.sheet["z"], {"weights": thirds[..., :2], "v": torch.tensor([[[1.0], [2.0]]]).double()}, Unit(1)
    )
    assert products.flatten().tolist() == pytest.approx([0.3 + 0.7])


# What no rule excuses.


@pytest.mark.parametrize("seed", range(30))
def test_a_wrong_whole_number_from_exact_numbers_is_wrong(seed: int) -> None:
    """Whatever the other numbers are rounded to."""
    rng = random.Random(seed)
    x = [[rng.randint(-2, 3) for _ in range(2)] for _ in range(2)]
    w = [[rng.randint(-2, 3) for _ in range(2)] for _ in range(2)]
    q = [[sum(a * row[j] for a, row in zip(one, w, strict=True)) for j in range(2)] for one in x]
    row, column = rng.randrange(2), rng.randrange(2)
    q[row][column] += rng.choice((-1, 1))
    report = checked(f"x = {x}\nw_q = {w}\n[claimed]\nq = {q}")
    [finding] = report.quantities[0].findings
    assert (finding.verdict, finding.index) == (Verdict.wrong, (0, row, column))


def test_a_sum_that_fits_its_digits_must_be_equal() -> None:
    text = "q = [[0.5, 0.5]]\nk = [[0.5, 0.3], [1, 1]]\n[claimed]\nscores = [[{}, 1.0]]"
    assert [checked(text.format(claim)).worst.value for claim in (0.4, 0.5, 0.3)] == ["right", "wrong", "wrong"]


# Doubt.

MANY = "q = [[1, 1], [2, 1]]\nk = [[2, 1], [1, 0]]\nv = [[30, -40], [17, 95]]\n[claimed]\nscores = [[3, 1], [5, 2]]\n"
MANY += "scaled = [[2.12, 0.71], [3.54, 1.41]]\nweights = [[0.80, 0.20], [0.89, 0.11]]\n"
MANY += "output = [[{}, -13.60], [28.61, -25.55]]"


def test_one_number_in_the_interval_is_doubtful_where_a_rule_explains_the_others() -> None:
    """Weights up to 0.005 and values of 30 and 17: 27.46 may be 27.22 to 27.70."""
    assert checked(MANY.format(27.46)).worst is Verdict.right
    report = checked(MANY.format(27.35))
    assert report.counts()["doubtful"] == 1
    assert report.worst is Verdict.doubtful
    assert corrected(report).decode() == report.example.text
    assert checked(MANY.format(27.10)).worst is Verdict.wrong


def test_without_a_rule_it_is_rounding_by_an_unknown_one() -> None:
    begin = "weights = [[0.31, 0.69]]\nv = [[3.33, 1.37], [0.77, 2.71]]\nw_o = [[10, 1], [1, 10]]\n[claimed]\n"
    report = checked(begin + "output = [[18.0, 24.1]]")
    assert report.worst in (Verdict.rounding, Verdict.unclear)
    assert checked(begin + "output = [[19.5, 24.1]]").worst is Verdict.wrong


# Intervals hold every number that they should, and not many more.

TREES: list[tuple[str, tuple[tuple[int, ...], ...]]] = [
    ("softmax(a)", ((2, 3, 4),)),
    ("a @ b.T", ((2, 3, 2), (2, 3, 2))),
    ("a @ b", ((2, 3, 3), (2, 3, 2))),
    ("a @ b + rows(c)", ((3, 2), (2, 2, 3), (2, 3))),
    ("a * -0.7", ((1, 2, 3),)),
    ("layernorm(a, b, c, 0.00001)", ((3, 4), (4,), (4,))),
    ("rmsnorm(a, b, 0.00001)", ((3, 4), (4,))),
    ("layernorm(a, b, 0, 0)", ((2, 2), (2,))),
]


@pytest.mark.parametrize(("text", "shapes"), TREES)
@pytest.mark.parametrize("radius", [0.005, 0.05])
def test_intervals_hold_what_is_in_the_box_and_little_else(
    text: str, shapes: tuple[tuple[int, ...], ...], radius: float
) -> None:
    torch.manual_seed(1)
    tree = read(text)
    for _ in range(5):
        middles = {name: torch.randn(shape, dtype=torch.float64) for name, shape in zip("abc", shapes, strict=False)}
        found = propagated(tree, {name: Interval.around(middle, radius) for name, middle in middles.items()}, 1e-9)
        made = []
        for draw in range(400):
            signs = {name: torch.rand_like(middle) * 2 - 1 for name, middle in middles.items()}
            corner = {name: each.sign() if draw % 2 else each for name, each in signs.items()}
            made.append(compute(tree, {name: middle + radius * corner[name] for name, middle in middles.items()}))
        low, high = torch.stack(made).amin(dim=0), torch.stack(made).amax(dim=0)
        width = found.high - found.low
        assert bool((low >= found.low - 0.01 * width).all())
        assert bool((high <= found.high + 0.01 * width).all())
        assert float(((high - low) / width.clamp(min=1e-12)).mean()) > 0.4


@pytest.mark.parametrize(
    "typed",
    ["0e-3000000", "1e-400", "1e-3000", "0e-" + "9" * 5000, "1" + "0" * 400 + "e-500"],
    ids=["millions", "underflow", "thousands", "long", "long-whole"],
)
def test_an_exponent_does_not_ask_for_millions_of_digits(typed: str) -> None:
    text = f"q = [[1, 0]]\nk = [[1, 2], [0, 1]]\n[claimed]\nscores = [[1, {typed}]]\nweights = [[0.7, {typed}]]\n"
    report = checked(text)
    assert all(unit.decimals <= MOST_DECIMALS for unit in units(report.example).values())
    assert len(str(report)) < 2000
    assert len(corrected(report).decode()) < 2 * len(HEAD + text)


def test_a_number_on_the_side_may_be_rounded() -> None:
    """3 / √2 with √2 = 1.41 ± 0.005."""
    [low, high] = [1 / 1.4192135, 1 / 1.4092135]
    box = propagated(read("a / sqrt(2)"), {"a": Interval.around(torch.tensor([[3.0]]).double(), 0.0)}, 0.01)
    assert (float(box.low), float(box.high)) == (pytest.approx(3 * low, rel=1e-6), pytest.approx(3 * high, rel=1e-6))


def test_many_positions_make_no_cube() -> None:
    entries = torch.zeros(1, 1500, 1500, dtype=torch.float64)
    made = propagated(read("softmax(a)"), {"a": Interval(entries - 0.1, entries + 0.1)}, 0.01)
    assert made.low.shape == (1, 1500, 1500)

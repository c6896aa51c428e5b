"""Units, habits and intervals: any honest sheet is believed, and a wrong number is not."""

import math
import random

import pytest
import torch

from vitral.explanation import CheckReport, Verdict, check, corrected, parse_example
from vitral.explanation.checks.habits import Habit
from vitral.explanation.checks.intervals import Interval, reached
from vitral.explanation.checks.units import Unit, units
from vitral.explanation.examples.digits import MOST_DECIMALS
from vitral.explanation.operations import Normalise, Operation, Project, Scale, Score, Softmax, Weigh
from vitral.runs.presets import preset_model

HEAD = 'mask = "bidirectional"\nscale = "sqrt"\n[given]\n'


def checked(text: str) -> CheckReport:
    return check(parse_example(HEAD + text, preset_model))


def parts(report: CheckReport) -> set[str]:
    return set() if report.habit is None else {key for key, _ in report.habit.told}


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
    assert units(parse_example(text, preset_model))["scores"] == expected


def test_every_quantity_has_a_unit_of_its_own_unless_decimals_are_stated() -> None:
    text = "q = [[1, 0]]\nk = [[1, 2], [0, 1]]\n[claimed]\nscores = [[1, 0]]\nweights = [[0.670, 0.330]]\n"
    assert units(parse_example(HEAD + text, preset_model)) == {"scores": Unit(0), "weights": Unit(3)}
    assert set(units(parse_example("decimals = 2\n" + HEAD + text, preset_model)).values()) == {Unit(2)}


def test_a_number_with_significant_digits_has_a_unit_by_its_size() -> None:
    sizes = Unit(4, 3).of(torch.tensor([123.0, 12.3, 0.0123, 0.0, 1e-9], dtype=torch.float64))
    torch.testing.assert_close(sizes, torch.tensor([1, 0.1, 1e-4, 1e-4, 1e-4], dtype=torch.float64))


# Habits, on a sheet worked by hand: scores 3 and 1, √2, two values.

BY_HAND = "q = [[1, 1]]\nk = [[2, 1], [1, 0]]\nv = [[7.3, -4.1], [1.7, 9.9]]\n[claimed]\nscores = [[3, 1]]\n"
SHEETS = {
    # 3/√2 = 2.1213, 1/√2 = 0.7071; e^2.1213 = 8.3421, e^0.7071 = 2.0281; weights 0.80443, 0.19557.
    "full": "scaled = [[2.12, 0.71]]\nweights = [[0.80, 0.20]]\noutput = [[6.20, -1.36]]",
    # From the printed weights: 0.80·7.3 + 0.20·1.7 = 6.18 and 0.80·(−4.1) + 0.20·9.9 = −1.30.
    "printed": "scaled = [[2.12, 0.71]]\nweights = [[0.80, 0.20]]\noutput = [[6.18, -1.30]]",
    # Cut: 0.80 and 0.19 add to 0.99; 6.2048 and −1.3620 exactly.
    "cuts": "scaled = [[2.12, 0.70]]\nweights = [[0.80, 0.19]]\noutput = [[6.20, -1.36]]",
    # 3/1.4 = 2.1429 and 1/1.4 = 0.7143: weights 0.80669 and 0.19331; 6.2175 and −1.3937.
    "roots": "scaled = [[2.143, 0.714]]\nweights = [[0.807, 0.193]]\noutput = [[6.217, -1.394]]",
}


@pytest.mark.parametrize("habit", SHEETS)
def test_honest_sheets_are_believed_and_their_habit_is_named(habit: str) -> None:
    report = checked(BY_HAND + SHEETS[habit])
    assert report.worst is (Verdict.right if habit == "full" else Verdict.rounding)
    assert habit in parts(report)
    assert report.plain()["habit"]


def test_a_habit_rounds_cuts_and_repairs() -> None:
    example = parse_example(HEAD + BY_HAND + SHEETS["full"], preset_model)
    weights = example.sheet["weights"]
    made = Habit(powers=1).make(weights, example.sheet.values, Unit(2))
    torch.testing.assert_close(made, torch.tensor([[[8.3 / 10.3, 2.0 / 10.3]]], dtype=torch.float64))
    thirds = torch.tensor([[[1 / 3, 1 / 3, 1 / 3, 0.0]]], dtype=torch.float64)
    assert Habit(repairs=True).printed(weights, thirds, Unit(2)).flatten().tolist()[2] == pytest.approx(0.34)
    numbers = torch.tensor([0.126, -0.126, 1.0, -0.0], dtype=torch.float64)
    assert Habit().rounded(numbers, 0.01).tolist() == pytest.approx([0.13, -0.13, 1.0, 0.0])
    assert Habit(cuts=True).rounded(numbers, 0.01).tolist() == pytest.approx([0.12, -0.12, 1.0, 0.0])
    products = Habit(products=True).make(
        example.sheet["z"], {"weights": thirds[..., :2], "v": torch.tensor([[[1.0], [2.0]]]).double()}, Unit(1)
    )
    assert products.flatten().tolist() == pytest.approx([0.3 + 0.7])


# What no habit excuses.


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


def test_one_number_in_the_interval_is_doubtful_where_a_habit_explains_the_others() -> None:
    """Weights up to 0.005 and values of 30 and 17: 27.46 may be 27.22 to 27.70."""
    assert checked(MANY.format(27.46)).worst is Verdict.right
    report = checked(MANY.format(27.35))
    assert report.counts()["doubtful"] == 1
    assert report.worst is Verdict.doubtful
    assert corrected(report) == report.example.text
    assert checked(MANY.format(27.10)).worst is Verdict.wrong


def test_without_a_habit_it_is_rounding_by_an_unknown_one() -> None:
    begin = "weights = [[0.31, 0.69]]\nv = [[3.33, 1.37], [0.77, 2.71]]\nw_o = [[10, 1], [1, 10]]\n[claimed]\n"
    report = checked(begin + "output = [[18.0, 24.1]]")
    assert report.worst in (Verdict.rounding, Verdict.unclear)
    assert checked(begin + "output = [[19.5, 24.1]]").worst is Verdict.wrong


# Intervals hold every number that they should, and not many more.

OPERATIONS: list[tuple[Operation, tuple[tuple[int, ...], ...]]] = [
    (Softmax("masked"), ((2, 3, 4),)),
    (Score(), ((2, 3, 2), (2, 3, 2))),
    (Weigh(), ((2, 3, 3), (2, 3, 2))),
    (Project("Q"), ((3, 2), (2, 2, 3), (2, 3))),
    (Scale("number", torch.tensor(-0.7, dtype=torch.float64)), ((1, 2, 3),)),
    (Scale("adaptive", torch.tensor(0.5, dtype=torch.float64), torch.ones(1, 2, 3, dtype=torch.bool)), ((1, 2, 3),)),
    (Normalise("layernorm", 1e-5, "x"), ((3, 4), (4,), (4,))),
    (Normalise("rmsnorm", 1e-5, "x"), ((3, 4), (4,))),
    (Normalise("layernorm", 0.0, "x"), ((2, 2), (2,))),
]


@pytest.mark.parametrize(("operation", "shapes"), OPERATIONS)
@pytest.mark.parametrize("radius", [0.005, 0.05])
def test_intervals_hold_what_is_in_the_box_and_little_else(
    operation: Operation, shapes: tuple[tuple[int, ...], ...], radius: float
) -> None:
    torch.manual_seed(1)
    for _ in range(5):
        middles = [torch.randn(shape, dtype=torch.float64) for shape in shapes]
        found = reached(operation, [Interval.around(middle, radius) for middle in middles])
        made = []
        for draw in range(400):
            signs = [torch.rand_like(middle) * 2 - 1 for middle in middles]
            corner = [each.sign() if draw % 2 else each for each in signs]
            made.append(operation(*(m + radius * c for m, c in zip(middles, corner, strict=True))))
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
    assert len(corrected(report)) < 2 * len(HEAD + text)


@pytest.mark.parametrize("base", [math.e, 2.0])
def test_the_bounds_of_a_softmax_are_those_of_its_corners(base: float) -> None:
    generator = torch.Generator().manual_seed(4)
    middle = torch.randn(3, 4, 5, generator=generator, dtype=torch.float64) * 300
    middle[:, 0, 1:] = -math.inf
    middle[:, 1] = -math.inf
    low, high = middle - 0.5, middle + 0.5
    operation = Softmax("scores", base)
    made = reached(operation, [Interval(low, high)])
    for place in range(5):
        own = torch.arange(5) == place
        least, most = operation(torch.where(own, low, high)), operation(torch.where(own, high, low))
        torch.testing.assert_close(made.low[..., place], least[..., place].nan_to_num(), rtol=1e-9, atol=1e-300)
        torch.testing.assert_close(made.high[..., place], most[..., place].nan_to_num(), rtol=1e-9, atol=1e-300)


def test_many_positions_make_no_cube() -> None:
    n = 1500
    entries = torch.zeros(1, n, n, dtype=torch.float64)
    made = reached(Softmax("scores"), [Interval(entries - 0.1, entries + 0.1)])
    assert made.low.shape == (1, n, n)
    assert float(made.low.max()) < 1 / n < float(made.high.min())

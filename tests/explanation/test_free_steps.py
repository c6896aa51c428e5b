"""Free steps: expressions of an author's own, checked against an independent evaluation in NumPy."""

import math
import time
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import softmax

from vitral.core.errors import UsageError
from vitral.explanation import check, walk_example
from vitral.explanation import parse_example as read
from vitral.explanation.expressions import compute, parse
from vitral.explanation.formulas import value_of

BACKWARD = """
vocabulary = ["the", "cat", "sat"]
mask = "causal"
scale = "sqrt"
[given]
x = [[1, 0], [1, 1]]
w_q = [[1, 1], [0, 2]]
w_k = "identity"
w_v = [[2, 0], [0, 1]]
w_u = [[1, 0, 0], [0, 1, 1]]
targets = ["cat", "sat"]
rate = 0.1
[steps]
loss = "cross_entropy(logits, targets)"
perplexity = "exp(loss)"
d_logits = "grad(loss, logits)"
d_weights = "grad(loss, weights)"
d_scores = "grad(loss, scores)"
d_v = "grad(loss, v)"
new = "w_v - rate * grad(loss, w_v)"
"""


def loss_of(w_v: np.ndarray) -> float:
    x, w_q, w_u = np.array([[1.0, 0], [1, 1]]), np.array([[1.0, 1], [0, 2]]), np.array([[1.0, 0, 0], [0, 1, 1]])
    scores = x @ w_q @ x.T / math.sqrt(2)
    scores[0, 1] = -np.inf
    chances = softmax(softmax(scores, -1) @ x @ w_v @ w_u, -1)
    return float(-np.log(chances[[0, 1], [1, 2]]).mean())


def test_a_target_may_be_an_index() -> None:
    found = read('[given]\nx = [[1, 0, 3]]\n[steps]\nl = "cross_entropy(x[0], 2)"').sheet.values["l"]
    assert found.item() == pytest.approx(math.log(math.e + 1 + math.e**3) - 3)


def test_loss_perplexity_and_a_step_against_finite_differences() -> None:
    values = read(BACKWARD).sheet.values
    w_v = np.array([[2.0, 0], [0, 1]])
    assert float(values["loss"]) == pytest.approx(loss_of(w_v), abs=1e-12)
    assert float(values["perplexity"]) == pytest.approx(math.exp(loss_of(w_v)), abs=1e-10)
    for place in np.ndindex(2, 2):
        moved, step = w_v.copy(), 1e-6
        moved[place] += step
        slope = (loss_of(moved) - loss_of(w_v)) / step
        assert float(values["new"][place]) == pytest.approx(w_v[place] - 0.1 * slope, abs=1e-6)


def test_a_derivative_follows_the_authors_earlier_derivatives() -> None:
    """The loss is derived by the chain rule, through the author's own numbers for what lies between."""
    example = read(BACKWARD)
    wrong = example.sheet.values["d_logits"] * 2
    sheet = example.sheet
    values = {**sheet.values, "d_logits": wrong}
    for name in ("d_weights", "d_v"):
        made = sheet[name].make(values)
        torch.testing.assert_close(made, 2 * sheet.values[name])


def test_the_tree_of_a_step_has_its_value_in_every_layout() -> None:
    columns = BACKWARD.replace("w_u = [[1, 0, 0], [0, 1, 1]]", "w_u = [[1, 0], [0, 1], [0, 1]]")
    columns = 'tokens = "columns"\n' + columns.replace("logits, targets", "logits.T, targets")
    for text in (BACKWARD, "softmax_base = 3\n" + BACKWARD, columns):
        sheet = read(text).sheet
        for quantity in sheet.quantities:
            seen = sheet.conventions.seen(quantity.name, sheet.values[quantity.name])
            torch.testing.assert_close(sheet.writer.value(sheet.tree(quantity.name)).expand(seen.shape), seen)


def test_the_gradient_of_a_sum_is_that_of_each_of_its_terms() -> None:
    text = "[given]\na = [[1, 2], [3, 4]]\nw = [[1], [0], [2], [5]]\n[steps]\n"
    sheet = read(text + 'l = "sum(concat(a, a) @ w)"\nd = "grad(l, w)"\nda = "grad(l, a)"\n').sheet
    assert sheet.values["d"].tolist() == [[4], [6], [4], [6]]
    assert sheet.values["da"].tolist() == [[3, 5], [3, 5]]
    for name, place in (("l", (0,)), ("d", (3, 0)), ("da", (1, 1))):
        assert value_of(sheet.arithmetic(name, place).stages[-1]) == float(sheet.values[name][place])


def test_the_gradient_of_the_biases_of_heads_has_a_row_for_each_head() -> None:
    text = """
    [given]
    x = [[1, 0], [0, 1]]
    w_q = [[[1], [1]], [[0], [1]]]
    w_k = [[[1], [0]], [[1], [1]]]
    b_q = [[1], [2]]
    [steps]
    loss = "sum(scores)"
    d = "grad(loss, b_q)"
    """
    [panel] = walk_example(read(text)).steps[-1].panels
    assert panel.matrix == ((2,), (4,))


def test_steps_are_claimed_checked_and_explained() -> None:
    text = BACKWARD + "[claimed]\nloss = 1.98\nperplexity = 7\nd_scores = [[0, 0], [0.1, -0.1]]\n"
    example = read(text)
    assert [claim.name for claim in example.claims] == ["loss", "perplexity", "d_scores"]
    report = check(example)
    assert report.counts()["wrong"] + report.counts()["follows"] >= 1
    steps = {step.name for step in walk_example(example).steps}
    assert {"loss", "d_logits", "d_scores", "new"} <= steps


def test_a_step_with_the_name_of_a_quantity_replaces_its_computation() -> None:
    text = 'mask = "bidirectional"\nscale = "none"\n[given]\nq = [[1.0, 2.0]]\nk = [[1.0, 0.0], [0.5, 1.0]]\n'
    text += 'v = [[1.0], [3.0]]\n[steps]\nscores = "2 * q @ k.T"\n'
    values = read(text).sheet.values
    assert values["scores"].tolist() == [[[2.0, 5.0]]]
    expected = softmax([[2.0, 5.0]], -1) @ np.array([[1.0], [3.0]])
    assert values["out"].numpy() == pytest.approx(expected)


def test_a_step_can_be_the_input() -> None:
    text = '[given]\na = [[1, 2]]\nw_u = [[1, 0], [0, 1]]\n[steps]\nx = "a + 1"\n[claimed]\nlogits = [[2, 3]]\n'
    assert check(read(text)).worst == "right"


def test_one_head_is_a_matrix_and_several_are_several() -> None:
    one = '[given]\nq = [[1, 2], [3, 4]]\nk = [[1, 0], [0, 1]]\n[steps]\ns = "softmax(q @ k.T, axis=0)"\n'
    expected = softmax(np.array([[1.0, 2], [3, 4]]), axis=0)
    assert read(one).sheet.values["s"].numpy() == pytest.approx(expected)
    two = "[given]\nq = [[[1, 2]], [[3, 4]]]\nk = [[[1, 0]], [[0, 1]]]\n[steps]\ns = 'q @ k.T'\n"
    assert read(two).sheet.values["s"].tolist() == [[[1.0]], [[4.0]]]


@pytest.mark.parametrize(
    ("steps", "names"),
    [
        ('y = "missing + 1"', ["step y", "missing"]),
        ('y = "x +"', ["step y"]),
        ("y = 3", ["step y"]),
        ('y = "later"\nlater = "x"', ["step y", "later"]),
        ('"a b" = "x"', ["a b"]),
        ('sum = "x"', ["sum"]),
        ('lambda = "x"', ["lambda"]),
        ('"ﬁ" = "x"', ["step"]),
        ('y = "x @ x"', ["step y", "matmul"]),
        ('y = "grad(x, x)"', ["step y"]),
        ('loss = "sum(x)"\ny = "grad(loss, w)"', ["step y", "w"]),
        ('loss = "sum(x)"\na = "grad(loss, x)"\nb = "sum(a)"\nc = "grad(b, x)"', ["step c"]),
        ('y = "log(0 - 1 - x)"', ["step y"]),
        ('y = "1 / 0"', ["step y"]),
        ('y = "10**300 * 10**14 * x"', ["step y"]),
        ('y = "one_hot(x[0], size=100000000)"', ["step y"]),
        ('q = "sum(x)"', ["step q"]),
        ('x = "w"', ["step x"]),
        ('y = "x[7]"', ["step y"]),
        ('y = "x[9999999999999999999999]"', ["step y"]),
        ('y = "max(x, 0)"', ["step y"]),
        ('y = "' + "-" * 1500 + 'x"', ["step y"]),
        ('y = "' + "(" * 150 + "x" + ")" * 150 + '"', []),
        ('y = "' + "exp(" * 90 + "x" + ")" * 90 + '"', ["step y"]),
        ('y = "x' + "+x" * 1500 + '"', ["step y"]),
        ('y = "x.__class__"', ["step y"]),
        ('y = "sum(x, axis=7)"', ["step y"]),
        ('y = "' + "9" * 400 + ' * x"', ["step y"]),
        ("\n".join(f'y{place} = "x"' for place in range(101)), ["steps"]),
    ],
)
def test_what_is_no_step_is_refused_with_its_line_and_its_name(steps: str, names: list[str]) -> None:
    text = f'[given]\nx = [[1, 2]]\nw = [[1, 2]]\n[steps]\nuse = "w"\n{steps}\n'
    if not names:
        read(text)
        return
    with pytest.raises(UsageError) as refused:
        read(text)
    said = str(refused.value)
    assert all(name in said for name in names)
    assert "line " in said


def test_large_steps_are_refused_before_they_are_computed() -> None:
    rows = [[1] * 100] * 100
    doubling = "\n".join(f'a{place + 1} = "concat(a{place}, a{place})"' for place in range(40))
    outer = 'c = "column(a) + row(a)"'
    for steps in (f'a0 = "a"\n{doubling}', outer):
        began = time.perf_counter()
        with pytest.raises(UsageError):
            read(f"[given]\na = {rows}\n[steps]\n{steps}\n")
        assert time.perf_counter() - began < 20


# An independent evaluation: the same expression as a text of this language and as a NumPy array.

Value = Callable[[dict[str, np.ndarray]], np.ndarray]
entries = st.integers(-20, 20).map(lambda value: value / 8)


@st.composite
def matrices(draw: st.DrawFn) -> np.ndarray:
    return np.array(draw(st.lists(st.lists(entries, min_size=3, max_size=3), min_size=3, max_size=3)))


@st.composite
def expressions(draw: st.DrawFn, depth: int = 3) -> tuple[str, Value]:
    """A text, and a function of the values of a and b."""
    if depth == 0 or draw(st.integers(0, 5)) == 0:
        if draw(st.booleans()):
            name = draw(st.sampled_from(["a", "b"]))
            return name, lambda values: values[name]
        number = draw(st.integers(1, 9)) / 4
        return str(number), lambda _: np.array(number)
    left, of_left = draw(expressions(depth - 1))
    right, of_right = draw(expressions(depth - 1))
    axis = draw(st.sampled_from([0, 1, -1]))
    one = {
        f"({left}).T": lambda x: x.T,
        f"softmax(a + {left}, axis={axis})": None,
        f"sum(a + {left}, axis={axis})": None,
        f"mean({left})": lambda x: x.mean(),
        f"relu({left})": lambda x: np.maximum(x, 0),
        f"tanh({left})": np.tanh,
        f"exp(tanh({left}))": lambda x: np.exp(np.tanh(x)),
        f"-({left})": lambda x: -x,
        f"abs({left})": abs,
        f"sigmoid({left})": lambda x: 1 / (1 + np.exp(-x)),
    }
    two = {
        f"({left}) + {right}": np.add,
        f"({left}) - ({right})": np.subtract,
        f"({left}) * ({right})": np.multiply,
        f"({left}) / (1 + abs({right}))": lambda x, y: x / (1 + abs(y)),
        f"(a + {left}) @ (b + {right})": None,
        f"where(({left}) < {right}, {left}, {right})": lambda x, y: np.where(x < y, x, y),
        f"maximum({left}, {right})": np.maximum,
    }
    text = draw(st.sampled_from([*one, *two]))

    def value(values: dict[str, np.ndarray]) -> np.ndarray:
        x, y = of_left(values), of_right(values)
        if text.startswith("softmax"):
            return softmax(values["a"] + x, axis=axis)
        if text.startswith("sum"):
            return (values["a"] + x).sum(axis=axis, keepdims=True)
        if "@" in text and text in two and two[text] is None:
            return (values["a"] + x) @ (values["b"] + y)
        return one[text](x) if text in one else two[text](x, y)

    return text, value


@settings(max_examples=150, deadline=None)
@given(expressions(), matrices(), matrices())
def test_the_language_agrees_with_numpy(expression: tuple[str, Value], a: np.ndarray, b: np.ndarray) -> None:
    text, value = expression
    with np.errstate(all="ignore"):
        expected = value({"a": a, "b": b})
    try:
        tree = parse(text)  # the text may be too long
    except UsageError:
        return
    made = compute(tree, {"a": torch.from_numpy(a), "b": torch.from_numpy(b)})
    np.testing.assert_allclose(made.numpy(), np.broadcast_to(expected, made.shape), rtol=1e-9, atol=1e-9)


@settings(max_examples=60, deadline=None)
@given(expressions(), matrices(), matrices())
def test_the_arithmetic_of_a_cell_has_its_value(expression: tuple[str, Value], a: np.ndarray, b: np.ndarray) -> None:
    text, _ = expression
    try:
        example = read(f'[given]\na = {a.tolist()}\nb = {b.tolist()}\n[steps]\nuse = "a + b"\nmade = "{text}"\n')
    except UsageError:
        return
    value = example.sheet.values["made"]
    for place in list(np.ndindex(*value.shape))[:3]:
        for stage in example.sheet.arithmetic("made", place).stages:
            worth = value_of(stage)
            assert math.isnan(worth) or worth == pytest.approx(float(value[place]), abs=1e-8)


def test_a_gradient_that_rounded_inputs_do_not_change_is_judged() -> None:
    sheet = (
        '[given]\nh = [[3.1, 1.2, 2.9]]\nw = [1.1, 0.9, 1]\nb = [0.1, 0, 0.2]\n[steps]\nn = "layernorm(h, w, b, 0)"\n'
    )
    sheet += 'loss = "sum(n)"\nd = "grad(loss, b)"\n[claimed]\nn = [[1.24, -0.64, 1.09]]\nloss = 0.18\nd = [1, 2, 1]\n'
    wrong = check(read(sheet)).first_wrong
    assert wrong is not None
    assert wrong.name == "n"

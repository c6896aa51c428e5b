"""The problems that students are set, drawn with numbers as a lecturer chooses them."""

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from students.pen import ONE, ZERO, Matrix, Value

ATTENTION = ("q", "k", "v", "scores", "scaled", "masked", "weights", "z")
PER_HEAD = (*ATTENTION, "w_q", "w_k", "w_v", "b_q", "b_k", "b_v")
WORDS = ("the", "cat", "dog", "sat", "ran", "mat")


@dataclass
class Problem:
    """What a student is given.

    Attributes:
        kind: "attention", "block", "choice", "position" or "loss".
        given: the numbers, by their keys in the file.
        steps: the names of the steps, in order.
        top: further lines at the top of the file.
        mask: which keys each query may see; None where there is no mask.
        scale: "none", "sqrt", "linear" or "0.5".
        heads: number of heads.
        settings: anything else that a step needs.
        exact: steps that are sums and products of what is given.
        given_digits: decimals to which given weights are rounded on the sheet; None where they are as they are.
    """

    kind: str
    given: dict[str, Value]
    steps: list[str]
    top: list[str]
    mask: list[list[bool]] | None = None
    scale: str = "none"
    heads: int = 1
    settings: dict[str, Any] = field(default_factory=dict)
    exact: set[str] = field(default_factory=set)
    given_digits: int | None = None


def transposed(rows: Matrix) -> Matrix:
    return [list(column) for column in zip(*rows, strict=True)]


def draw_number(rng: random.Random, style: str) -> Decimal:
    """A number as a lecturer chooses it."""
    if style == "whole":
        return Decimal(rng.choice((-2, -1, 0, 0, 1, 1, 1, 2, 2, 3)))
    if style == "tenths":
        return Decimal(rng.randint(-12, 15)) / 10
    if style == "thirds":
        return Decimal(rng.choice((-4, -2, -1, 1, 2, 3, 4, 6))) / 3
    if style == "halves":
        return Decimal(rng.randint(-4, 5)) / 2
    return Decimal(rng.randint(-120, 150)) / 100


def typed_given(value: Decimal, digits: int | None) -> str:
    """A given number as typed, rounded to so many digits: a fraction where it is one."""
    value = value if digits is None else round(value, digits)
    thirds = value * 3
    if int(value.as_tuple().exponent) < -9:
        return f'"{thirds.quantize(ONE)}/3"'
    return format(value, "f")


def draw_matrix(rng: random.Random, rows: int, columns: int, style: str) -> Matrix:
    return [[draw_number(rng, style) for _ in range(columns)] for _ in range(rows)]


def draw_style(rng: random.Random) -> str:
    return rng.choice(("whole", "whole", "whole", "tenths", "tenths", "tenths", "halves", "hundredths", "thirds"))


def draw_mask(rng: random.Random, time: int) -> tuple[list[list[bool]] | None, str]:
    """A mask and its line in the file."""
    kind = rng.choice(("none", "causal", "causal", "causal", "window", "prefix", "padding"))
    cells = [(i, j) for i in range(time) for j in range(time)]
    if kind == "none" or (kind != "causal" and time < 3):
        return None, 'mask = "bidirectional"'
    if kind == "causal":
        allowed, text = {(i, j) for i, j in cells if j <= i}, '"causal"'
    elif kind == "window":
        allowed, text = {(i, j) for i, j in cells if 0 <= i - j < 2}, '{ name = "window", size = 2 }'
    elif kind == "prefix":
        allowed, text = {(i, j) for i, j in cells if j <= i or j < 2}, '{ name = "prefix", length = 2 }'
    else:
        real = [True] * (time - 1) + [False]
        allowed = {(i, j) for i, j in cells if real[j]}
        text = f'{{ name = "padding", real = [{", ".join(str(one).lower() for one in real)}] }}'
    mask = [[(i, j) in allowed for j in range(time)] for i in range(time)]
    if rng.random() < 0.1:
        text = "[" + ", ".join(f"[{', '.join(str(sees).lower() for sees in row)}]" for row in mask) + "]"
    return mask, f"mask = {text}"


def draw_inputs(
    rng: random.Random, given: dict[str, Value], start: str, shape: dict[str, int], style: str
) -> list[str]:
    """What attention begins with, and the steps up to the scores."""
    time, heads, d_head, numbers = shape["time"], shape["heads"], shape["d_head"], draw_style(rng)
    if start == "scores":
        given["scores"] = [draw_matrix(rng, time, time, numbers) for _ in range(heads)]
        given["v"] = [draw_matrix(rng, time, d_head, numbers) for _ in range(heads)]
        return []
    if start == "qkv":
        for name in "qkv":
            given[name] = [draw_matrix(rng, time, d_head, numbers) for _ in range(heads)]
        return ["scores"]
    for name in "qkv":
        given[f"w_{name}"] = [draw_matrix(rng, shape["d_model"], d_head, style) for _ in range(heads)]
    for name in "qkv":
        if rng.random() < 0.25:
            given[f"b_{name}"] = [draw_matrix(rng, 1, d_head, style) for _ in range(heads)]
    return ["q", "k", "v", "scores"]


def draw_attention(rng: random.Random, given: dict[str, Value], start: str, shape: dict[str, int]) -> Problem:
    """Attention from `start`; `shape` has time, heads, d_model, d_head and d_out (0: no W_O)."""
    time, heads, d_head = shape["time"], shape["heads"], shape["d_head"]
    style_w = draw_style(rng)
    steps = draw_inputs(rng, given, start, shape, style_w)
    mask, mask_line = draw_mask(rng, time)
    scale = rng.choice(("sqrt", "sqrt", "sqrt", "sqrt", "sqrt", "linear", "none", "0.5"))
    steps += ["scaled"] * (scale != "none") + ["masked"] * (mask is not None) + ["weights"]
    if shape["d_out"]:
        given["w_o"] = [draw_matrix(rng, heads * d_head, shape["d_out"], style_w)]
        if rng.random() < 0.3:
            given["b_o"] = [draw_matrix(rng, 1, shape["d_out"], style_w)]
    steps += ["z"] * (heads > 1 or shape["d_out"] > 0) + ["output"]
    top = [mask_line, f"scale = {scale}" if scale == "0.5" else f'scale = "{scale}"']
    if heads > 1:
        top.append(f"heads = {heads}")
    settings = {"d_k": d_head, "d_model": shape["d_model"] or d_head * heads}
    exact = {"q", "k", "v", "scores"}
    if scale != "sqrt" or math.isqrt(d_head) ** 2 == d_head:
        exact |= {"scaled", "masked"}
    return Problem("attention", given, steps, top, mask, scale, heads, settings, exact)


def attention_problem(rng: random.Random) -> Problem:
    heads = rng.choice((1, 1, 1, 2, 2, 3, 4))
    d_head = rng.choice((2, 2, 3, 4)) if heads < 3 else 2
    time = rng.randint(2, 4)
    start = rng.choice(("x", "x", "x", "embeddings", "qkv", "qkv", "scores"))
    d_model = 0
    given: dict[str, Value] = {}
    if start in ("x", "embeddings"):
        d_model = rng.choice((d_head, heads * d_head, rng.randint(2, 4)))
        style = draw_style(rng)
        names = ("x",) if start == "x" else ("token_embedding", "position_embedding")
        for name in names:
            given[name] = [draw_matrix(rng, time, d_model, style)]
    d_out = rng.choice((0, d_model or d_head, heads * d_head, d_head)) if heads > 1 or rng.random() < 0.3 else 0
    shape = {"time": time, "heads": heads, "d_head": d_head, "d_model": d_model, "d_out": d_out}
    problem = draw_attention(rng, given, start, shape)
    if start == "embeddings":
        problem.steps.insert(0, "x")
        problem.exact.add("x")
    if start == "scores":
        problem.settings["given"] = [f"d_k = {d_head}"]
    return problem


def position_problem(rng: random.Random) -> Problem:
    """Sinusoidal positions added to embeddings, and sometimes attention after it."""
    time, d_model = rng.randint(3, 5), rng.choice((4, 4, 6, 8))
    given: dict[str, Value] = {"token_embedding": [draw_matrix(rng, time, d_model, draw_style(rng))]}
    onward = rng.random() < 0.3 and d_model == 4 and time < 5
    if onward:
        shape = {"time": time, "heads": 1, "d_head": 2, "d_model": d_model, "d_out": 0}
        problem = draw_attention(rng, given, "embeddings", shape)
    else:
        problem = Problem("position", given, [], [])
    problem.kind = "position"
    problem.steps[:0] = ["position_embedding", "x"]
    problem.exact = set()
    problem.settings |= {"given": ['position_embedding = "sinusoidal"'], "d_model": d_model}
    return problem


def block_problem(rng: random.Random) -> Problem:
    """A pre-norm or post-norm block."""
    heads = rng.choice((1, 1, 2))
    d_model, time, d_ff = rng.choice((2, 3, 4, 4)), rng.randint(2, 3), rng.choice((2, 3, 4))
    d_head = d_model // heads if d_model % heads == 0 else 2
    style, style_w, norm = draw_style(rng), draw_style(rng), rng.choice(("pre", "post"))
    given: dict[str, Value] = {"resid_pre": [draw_matrix(rng, time, d_model, style)]}
    shape = {"time": time, "heads": heads, "d_head": d_head, "d_model": d_model, "d_out": d_model}
    problem = draw_attention(rng, given, "norm", shape)
    inside = [*problem.steps[:-1], "out"]
    for name in ("attn_norm", "mlp_norm"):
        if rng.random() < 0.4:
            given[f"{name}_gain"] = [[[draw_number(rng, "halves") or ONE for _ in range(d_model)]]]
            given[f"{name}_bias"] = [draw_matrix(rng, 1, d_model, "tenths")]
    given["w_up"], given["w_down"] = (
        [draw_matrix(rng, d_model, d_ff, style_w)],
        [draw_matrix(rng, d_ff, d_model, style_w)],
    )
    for name, width in (("b_up", d_ff), ("b_down", d_model)):
        if rng.random() < 0.4:
            given[name] = [draw_matrix(rng, 1, width, "tenths")]
    feed = ["mlp.pre", "mlp.hidden", "mlp.out"]
    if norm == "pre":
        problem.steps = ["attn_norm", *inside, "resid_mid", "mlp_norm", *feed, "resid_post"]
    else:
        problem.steps = [*inside, "attn_sum", "resid_mid", *feed, "mlp_sum", "resid_post"]
    activation = rng.choice(("relu", "relu", "gelu"))
    problem.top = [f'block = "{norm}"', f'activation = "{activation}"', *problem.top]
    problem.kind = "block"
    problem.settings |= {"norm": norm, "activation": activation, "epsilon": Decimal("0.00001")}
    if rng.random() < 0.5:
        problem.top.append("epsilon = 0.0")
        problem.settings["epsilon"] = ZERO
    problem.exact = {"q", "k", "v", "scores"} if norm == "post" else set()
    return problem


def choice_problem(rng: random.Random) -> Problem:
    """Logits, probabilities and the choice of the next word."""
    vocab = rng.randint(3, 6)
    start = rng.choice(("logits", "logits", "x", "probabilities"))
    given: dict[str, Value] = {}
    steps: list[str] = []
    if start == "x":
        width = rng.randint(2, 3)
        given["x"] = [draw_matrix(rng, rng.randint(1, 3), width, draw_style(rng))]
        given["w_u"] = [draw_matrix(rng, width, vocab, draw_style(rng))]
        steps += ["logits", "probabilities"]
    elif start == "logits":
        given["logits"] = [draw_matrix(rng, rng.choice((1, 1, 2, 3)), vocab, draw_style(rng))]
        steps.append("probabilities")
    else:
        parts = sorted(rng.sample(range(1, 20), vocab - 1))
        shares = [Decimal(b - a) / 20 for a, b in zip([0, *parts], [*parts, 20], strict=True)]
        given["probabilities"] = [[shares]]
    rules = {
        "temperature": rng.choice(("0.5", "2", "0.7", "1.5", "0.8")),
        "top_k": str(rng.randint(2, vocab - 1)),
        "top_p": rng.choice(("0.5", "0.7", "0.8", "0.9")),
    }
    wanted = rng.sample(list(rules), rng.randint(1, 3))
    steps += ["greedy"] * (rng.random() < 0.6) + [f"{rule}_{rules[rule]}" for rule in rules if rule in wanted]
    words = ", ".join(f'"{word}"' for word in WORDS[:vocab])
    return Problem("choice", given, steps, [f"vocabulary = [{words}]"], exact={"logits"})


def loss_problem(rng: random.Random) -> Problem:
    """Logits, probabilities, the cross-entropy of each position, their mean, perplexity."""
    vocab, time = rng.randint(3, 5), rng.randint(2, 4)
    given: dict[str, Value] = {}
    steps: list[str] = []
    if rng.random() < 0.3:
        width = rng.randint(2, 3)
        given["x"] = [draw_matrix(rng, time, width, draw_style(rng))]
        given["w_u"] = [draw_matrix(rng, width, vocab, draw_style(rng))]
        steps.append("logits")
    else:
        given["logits"] = [draw_matrix(rng, time, vocab, draw_style(rng))]
    targets = [rng.randrange(vocab) for _ in range(time)]
    words = ", ".join(f'"{word}"' for word in WORDS[:vocab])
    steps += ["probabilities", "losses", "mean_loss", "perplexity"]
    settings = {
        "targets": targets,
        "given": [f"targets = [{', '.join(f'{chr(34)}{WORDS[target]}{chr(34)}' for target in targets)}]"],
        "free": [
            f'losses = "row(-log(sum(one_hot(targets, size={vocab}) * probabilities, axis=1)))"',
            'mean_loss = "mean(losses)"',
            'perplexity = "exp(mean_loss)"',
        ],
    }
    return Problem("loss", given, steps, [f"vocabulary = [{words}]"], settings=settings, exact={"logits"})


PROBLEMS: dict[str, Callable[[random.Random], Problem]] = {
    "attention": attention_problem,
    "block": block_problem,
    "choice": choice_problem,
    "position": position_problem,
    "loss": loss_problem,
}
